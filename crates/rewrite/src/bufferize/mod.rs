//! Re-inplacing: giving the values of a functional graph memory, so that as little is copied as the
//! mutating program copies, or less.
//!
//! Backwards over the graph it is found out which elements of each value are [needed](liveness),
//! and where each value [belongs](destinations) in the end. Then forwards, each value gets a place:
//! a view lies in what it is a view of; a stored value lies where it is stored, if it could be made
//! there; an operator that mutates does so in place, if nobody needs what was there; an operator
//! that can write anywhere writes where its result belongs, or over an operand that is needed no
//! more, and only else to new memory. What the plan must keep to is listed at
//! [`maquette_ir::buffer_plan`].
//!
//! The idea is that of destination-passing bufferization (MLIR's One-Shot Bufferize) and of
//! PyTorch's `reinplace` pass, with liveness by regions and destinations that are found before
//! values are made.

mod assign;
mod destinations;
mod interference;
mod liveness;
mod node_kind;
mod outputs;

use crate::error::{FunctionalizeError, Reason, Result};
use crate::functionalize::value_graph::{Interner, SpecId};
use destinations::Destination;
use liveness::LiveRegions;
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferPlan, BufferView, CopyReason, Step};
use maquette_ir::copy_cost::{CopyCost, Traffic};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{Graph, OpFacts, Stmt, ValueId, ValueType};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ir::view::ViewSpec;
use node_kind::NodeKind;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A position in the graph's body; outputs leave behind it, and then what is written back, one
/// after another.
type Time = usize;

/// Elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BufferRegion {
    buffer: BufferId,
    spec: SpecId,
}

struct Planner<'a> {
    program: &'a FunctionalGraph,
    graph: &'a Graph,
    interner: Interner,
    /// By node.
    node_kinds: Vec<NodeKind>,
    /// By value.
    live: Vec<LiveRegions>,
    destinations: Vec<Option<Destination>>,
    regions: Vec<Option<BufferRegion>>,
    buffers: Vec<Buffer>,
    /// By buffer from outside: all of the tensor.
    external_specs: Vec<Option<SpecId>>,
    /// By buffer: the values that were put there.
    occupants: Vec<Vec<ValueId>>,
    /// When symbols that depend on data are bound.
    bind_times: FxHashMap<SymbolId, Time>,
    /// When assertions are made and effects happen.
    effect_times: Vec<Time>,
    steps: Vec<Step>,
    /// Where the call mutates that is being placed: what lay there has been copied away, and
    /// nothing else may be put there.
    claimed: Vec<BufferRegion>,
    /// Copies of values with other strides.
    relayouts: FxHashMap<(ValueId, SpecId), BufferRegion>,
    cost: CopyCost,
}

/// Plans how a functional program runs in memory.
///
/// # Errors
/// The graph is not one that [`functionalize`](crate::functionalize()) gives.
pub fn plan(program: &FunctionalGraph, facts: &dyn OpFacts) -> Result<BufferPlan> {
    match plan_with(program, facts, true) {
        // an assertion by which a size is negative never holds: then nothing is learnt from them
        Err(FunctionalizeError { kind: Reason::View(_), .. }) => plan_with(program, facts, false),
        planned => planned,
    }
}

fn plan_with(
    program: &FunctionalGraph,
    facts: &dyn OpFacts,
    assume_asserts: bool,
) -> Result<BufferPlan> {
    let graph = &program.graph;
    let mut symbols = graph.symbols().clone();
    for &guard in graph.guards() {
        // a guard that contradicts what is known is one that no call passes
        let _ = symbols.assume(guard);
    }
    let mut interner = Interner::new(symbols);
    let node_kinds = graph
        .nodes()
        .map(|n| NodeKind::of(graph, n, facts, &mut interner))
        .collect::<Result<_>>()?;
    let values = graph.values().len();
    let bind = |(at, s): (Time, &Stmt)| {
        if let Stmt::Bind { symbol, .. } = s { Some((*symbol, at)) } else { None }
    };
    let is_ordered = |s: &Stmt| match s {
        Stmt::Node(node) => graph.has_effect(*node),
        Stmt::Assert { .. } => true,
        Stmt::Bind { .. } => false,
    };
    let mut planner = Planner {
        program,
        graph,
        interner,
        node_kinds,
        live: vec![LiveRegions::new(); values],
        destinations: vec![None; values],
        regions: vec![None; values],
        buffers: Vec::new(),
        external_specs: Vec::new(),
        occupants: Vec::new(),
        bind_times: graph.body().iter().enumerate().filter_map(bind).collect(),
        effect_times: graph
            .body()
            .iter()
            .enumerate()
            .filter(|(_, s)| is_ordered(s))
            .map(|(at, _)| at)
            .collect(),
        steps: Vec::new(),
        claimed: Vec::new(),
        relayouts: FxHashMap::default(),
        cost: CopyCost::default(),
    };
    planner.enter()?;
    planner.compute_liveness();
    planner.compute_destinations()?;
    for (at, stmt) in graph.body().iter().enumerate() {
        match stmt {
            Stmt::Node(node) => {
                planner.node(at, *node).map_err(|e| e.at_statement(graph, at))?;
            }
            Stmt::Bind { .. } => planner.steps.push(Step::Stmt(at)),
            Stmt::Assert { cond, .. } => {
                planner.steps.push(Step::Stmt(at));
                // later places are looked at only in runs in which it holds
                if assume_asserts {
                    planner.interner.assume(*cond);
                }
            }
        }
    }
    let outputs = planner.place_outputs()?;
    Ok(planner.finish(outputs))
}

impl<'a> Planner<'a> {
    /// The time at which outputs leave.
    fn end(&self) -> Time {
        self.graph.body().len()
    }

    /// Inputs and constants, where they lie.
    fn enter(&mut self) -> Result<()> {
        let graph = self.graph;
        let inputs = graph.inputs().iter().enumerate().map(|(i, v)| (*v, Buffer::Input(i)));
        let consts = graph.consts().iter().enumerate().map(|(i, c)| (c.value(), Buffer::Const(i)));
        for (v, buffer) in inputs.chain(consts) {
            let b = self.buffer(buffer);
            self.external_specs.push(None);
            if let ValueType::Tensor(ty) = graph.value_type(v) {
                let t = graph.type_of(ty);
                let spec = ViewSpec::strided(
                    Expr::Int(0),
                    &t.sizes,
                    &t.strides,
                    &mut self.interner.symbols,
                )?;
                let spec = self.interner.spec(spec);
                self.external_specs[b.index()] = Some(spec);
                self.put(v, BufferRegion { buffer: b, spec });
            }
        }
        Ok(())
    }

    fn buffer(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        self.occupants.push(Vec::new());
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// New memory for a tensor.
    fn new_buffer(&mut self, v: ValueId, layout: SpecId) -> Result<BufferRegion> {
        let t =
            self.graph.tensor_type(v).ok_or(Reason::Internal("a value in memory is no tensor"))?;
        let (dtype, device) = (t.dtype, t.device);
        let buffer = self.buffer(Buffer::New {
            dtype,
            device,
            layout: self.interner.specs[layout.index()].clone(),
        });
        Ok(BufferRegion { buffer, spec: layout })
    }

    /// All of a value, row-major.
    fn rows(&mut self, v: ValueId) -> Result<SpecId> {
        let sizes = self.sizes(v)?;
        let spec = ViewSpec::contiguous(&sizes, &mut self.interner.symbols)?;
        Ok(self.interner.spec(spec))
    }

    fn sizes(&self, v: ValueId) -> Result<SmallVec<[Expr; 4]>> {
        Ok(self
            .graph
            .tensor_type(v)
            .map(|t| t.sizes.clone())
            .ok_or(Reason::Internal("a value in memory is no tensor"))?)
    }

    fn put(&mut self, v: ValueId, at: BufferRegion) {
        self.regions[v.index()] = Some(at);
        self.occupants[at.buffer.index()].push(v);
    }

    fn region(&self, v: ValueId) -> Result<BufferRegion> {
        Ok(self
            .regions
            .get(v.index())
            .copied()
            .flatten()
            .ok_or(Reason::Internal("a value is read before it has a place"))?)
    }

    fn buffer_view(&self, at: BufferRegion) -> BufferView {
        BufferView { buffer: at.buffer, spec: self.interner.specs[at.spec.index()].clone() }
    }

    fn alias(&mut self, value: ValueId, at: BufferRegion) {
        let view = self.buffer_view(at);
        self.steps.push(Step::Alias { value, view });
        self.put(value, at);
    }

    fn copy(&mut self, value: ValueId, from: BufferRegion, to: BufferRegion, reason: CopyReason) {
        let overlaps = !self.disjoint(from, to) && !fault_injected(Fault::CopiesNeverOverlap);
        // what overlaps is copied away first; elements that share their place are laid out apart
        let times = if overlaps { 2 } else { 1 } + if self.injective(to) { 0 } else { 2 };
        self.count_copies(value, times);
        let (from, to) = (self.buffer_view(from), self.buffer_view(to));
        self.steps.push(Step::Copy { value, from, to, overlaps, reason });
    }

    /// Counts copies of a value.
    fn count_copies(&mut self, value: ValueId, times: u64) {
        self.cost
            .add(self.graph.tensor_type(value).map_or(&[], |t| &t.sizes), Traffic::copy(times));
    }

    /// The plan, without buffers that nothing uses.
    fn finish(self, mut outputs: Vec<Option<BufferView>>) -> BufferPlan {
        let mut used = vec![false; self.buffers.len()];
        let mut steps = self.steps;
        steps.iter().for_each(|s| s.for_each_buffer(&mut |b| used[b.index()] = true));
        outputs.iter().flatten().for_each(|p| used[p.buffer.index()] = true);
        let mut numbers: Vec<u32> = Vec::new();
        let mut kept = 0;
        for (buffer, used) in self.buffers.iter().zip(&used) {
            numbers.push(kept);
            kept += u32::from(*used || matches!(buffer, Buffer::Input(_) | Buffer::Const(_)));
        }
        let buffers = self
            .buffers
            .into_iter()
            .zip(used)
            .filter(|(b, used)| *used || matches!(b, Buffer::Input(_) | Buffer::Const(_)));
        let buffers = buffers.map(|(b, _)| b).collect();
        let renumber = |b: &mut BufferId| b.0 = numbers[b.index()];
        steps.iter_mut().flat_map(Step::buffers_mut).for_each(renumber);
        outputs.iter_mut().flatten().for_each(|p| renumber(&mut p.buffer));
        BufferPlan { symbols: self.interner.symbols, buffers, steps, outputs, cost: self.cost }
    }
}
