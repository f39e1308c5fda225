//! Bufferization: assigns memory to the values of a functional graph, with the aim that a planned
//! run copies no more than the mutating program does. (`select_plan` compares the two and falls
//! back to the original program.)
//!
//! **Problem.** A functional graph never overwrites anything: a store `ir::scatter` yields a new
//! value, and an operator that mutates is called on copies. Executed literally, each of them copies
//! a whole tensor. Bufferization restores in-place updates where they cannot be observed. For
//! example, where row 0 of the input `out` is to become `x * y`:
//!
//! ```text
//! %a = aten::mul(%x, %y)               is computed directly in row 0 of `out`
//! %o = ir::scatter(%out, %a, row 0)    aliases `out`, and copies nothing
//! write %o back to `out`               copies nothing: it is already there
//! ```
//!
//! **Algorithm.** Like MLIR's One-Shot Bufferize and PyTorch's `reinplace` pass, it decides for
//! each operand whether it can be overwritten, by searching for read-after-write conflicts. It
//! differs in two points: liveness is tracked for regions of a value, and destinations are found
//! before values are computed. Two backward passes and one forward pass over the graph:
//!
//! 1. [`liveness`] (backward) computes which elements of each value are read, and until when.
//! 2. [`destinations`] (backward) computes the memory in which each value ends: a write-back to
//!    external memory, an output's memory, or a part of another value.
//! 3. [`assign`] (forward) gives each value a region when it is computed. A view aliases its base.
//!    A store aliases its base if the source is already there. An operator writes to a destination,
//!    or over an operand that is dead, and to new memory otherwise. [`interference`] decides
//!    whether a region may be overwritten; conflicting values may be copied away if that is
//!    cheaper.
//! 4. [`outputs`] copies the values that did not end where they should.
//!
//! **Invariant.** The plan keeps the conditions P1 to P7 of [`maquette_ir::buffer_plan`]. Every
//! decision is a proof by the view queries; `Unknown` leads to a copy. A checker that shares
//! nothing with this module tests the plans.
//!
//! **Cost.** About linear in the number of nodes: searches along users, live regions and the
//! occupants of a buffer have constant limits.

mod assign;
mod choose_region;
mod destinations;
mod image_layouts;
mod interference;
mod liveness;
mod node_kind;
mod outputs;

use crate::error::{FunctionalizeError, Reason, Result};
use crate::functionalize::bound_schemas::bound_schemas;
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

/// A position in the program: an index into the graph's body; then, from the body's length on, the
/// moment at which outputs are read, and then one for each write-back.
type Time = usize;

/// A view of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BufferRegion {
    buffer: BufferId,
    spec: SpecId,
}

/// The state of bufferization.
struct Planner<'a> {
    program: &'a FunctionalGraph,
    graph: &'a Graph,
    interner: Interner,
    /// For each node: what it does.
    node_kinds: Vec<NodeKind>,
    /// For each value: its live regions, its destination if it has one, and its current region once
    /// it has been computed.
    live: Vec<LiveRegions>,
    destinations: Vec<Option<Destination>>,
    /// For each value: whether an output in memory of its own is the value, or a view of all of it.
    returned: Vec<bool>,
    regions: Vec<Option<BufferRegion>>,
    /// For each value: whether it is a batch of images whose channels are last.
    channels_last: Vec<bool>,
    /// The buffers of the plan.
    buffers: Vec<Buffer>,
    /// For each external buffer: the layout of its tensor; `None` if the input is not a tensor.
    external_specs: Vec<Option<SpecId>>,
    /// For each buffer: the values that were put there. It may list values that have moved since.
    occupants: Vec<Vec<ValueId>>,
    /// The times at which data-dependent symbols are bound.
    bind_times: FxHashMap<SymbolId, Time>,
    /// The times of assertions and effects, in order.
    effect_times: Vec<Time>,
    /// The steps of the plan.
    steps: Vec<Step>,
    /// The regions that the current call mutates, as far as they have been chosen. Conflicting
    /// values have been moved away from them, and no value may be moved there.
    claimed: Vec<BufferRegion>,
    /// The results of the current node that have a region already, and no value yet.
    placing: Vec<ValueId>,
    /// For values that were copied into another layout: the copy, by value and layout.
    relayouts: FxHashMap<(ValueId, SpecId), BufferRegion>,
    /// By buffer: which of `relayouts` is there.
    relayout_in: FxHashMap<BufferId, (ValueId, SpecId)>,
    cost: CopyCost,
}

/// Plans how a functional program runs in memory.
///
/// # Errors
/// The graph is not one that [`functionalize`](crate::functionalize()) returns, or one of its
/// operators was redefined since.
pub fn plan(program: &FunctionalGraph, facts: &dyn OpFacts) -> Result<BufferPlan> {
    bound_schemas(&program.graph, facts)?;
    match plan_with(program, facts, true) {
        // An assertion that a size is negative always fails. Facts derived from it are
        // contradictory, so the plan is made without facts from assertions.
        Err(FunctionalizeError { kind: Reason::View(_), .. }) => plan_with(program, facts, false),
        planned => planned,
    }
}

/// Plans a program; `assume_asserts`: later nodes may rely on assertions.
fn plan_with(
    program: &FunctionalGraph,
    facts: &dyn OpFacts,
    assume_asserts: bool,
) -> Result<BufferPlan> {
    let graph = &program.graph;
    let mut symbols = graph.symbols().clone();
    for &guard in graph.guards() {
        // an error means a guard that contradicts known facts: no call passes it
        let _ = symbols.assume(guard);
    }
    let mut interner = Interner::new(symbols);
    let node_kinds = node_kinds(graph, facts, &mut interner)?;
    let values = graph.values().len();
    let bind = |(time, s): (Time, &Stmt)| {
        if let Stmt::Bind { symbol, .. } = s { Some((*symbol, time)) } else { None }
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
        returned: vec![false; values],
        regions: vec![None; values],
        channels_last: Vec::new(),
        buffers: Vec::new(),
        external_specs: Vec::new(),
        occupants: Vec::new(),
        bind_times: graph.body().iter().enumerate().filter_map(bind).collect(),
        effect_times: graph
            .body()
            .iter()
            .enumerate()
            .filter(|(_, s)| is_ordered(s))
            .map(|(time, _)| time)
            .collect(),
        steps: Vec::new(),
        claimed: Vec::new(),
        placing: Vec::new(),
        relayouts: FxHashMap::default(),
        relayout_in: FxHashMap::default(),
        cost: CopyCost::default(),
    };
    planner.enter()?;
    planner.compute_liveness();
    planner.compute_image_layouts();
    planner.compute_destinations()?;
    for (time, stmt) in graph.body().iter().enumerate() {
        match stmt {
            Stmt::Node(node) => {
                planner.node(time, *node).map_err(|e| e.at_statement(graph, time))?;
            }
            Stmt::Bind { .. } => planner.steps.push(Step::Stmt(time)),
            Stmt::Assert { cond, .. } => {
                planner.steps.push(Step::Stmt(time));
                // later nodes run only if the assertion holds
                if assume_asserts {
                    planner.interner.assume(*cond);
                }
            }
        }
    }
    let outputs = planner.place_outputs()?;
    Ok(planner.finish(outputs))
}

/// The kind of each node.
fn node_kinds(
    graph: &Graph,
    facts: &dyn OpFacts,
    interner: &mut Interner,
) -> Result<Vec<NodeKind>> {
    let mut kinds: Vec<NodeKind> = Vec::with_capacity(graph.node_count());
    for (time, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                let kind = NodeKind::of(graph, node, facts, interner);
                kinds.push(kind.map_err(|e| e.at_statement(graph, time))?);
            }
            Stmt::Bind { symbol, value, .. } => {
                let kind = graph.producer(value).and_then(|node| kinds.get_mut(node.index()));
                let kind = kind.ok_or(Reason::Internal("a symbol is bound from an input"))?;
                kind.bind(graph, symbol, value).map_err(|e| e.at_statement(graph, time))?;
            }
            Stmt::Assert { .. } => {}
        }
    }
    Ok(kinds)
}

impl<'a> Planner<'a> {
    /// The time at which the outputs are read.
    fn end(&self) -> Time {
        self.graph.body().len()
    }

    /// Creates the buffers of inputs and constants. Their ids are their positions, inputs first.
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

    /// Adds a buffer.
    fn buffer(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        self.occupants.push(Vec::new());
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// A new buffer for a tensor in a layout.
    fn new_buffer(&mut self, v: ValueId, layout: SpecId) -> Result<BufferRegion> {
        let t = self
            .graph
            .tensor_type(v)
            .ok_or(Reason::Internal("a value with a buffer region is not a tensor"))?;
        let (dtype, device) = (t.dtype, t.device);
        let buffer = self.buffer(Buffer::New {
            dtype,
            device,
            layout: self.interner.specs[layout.index()].clone(),
        });
        Ok(BufferRegion { buffer, spec: layout })
    }

    /// The row-major layout of a value.
    fn rows(&mut self, v: ValueId) -> Result<SpecId> {
        let sizes = self.sizes(v)?;
        let spec = ViewSpec::contiguous(&sizes, &mut self.interner.symbols)?;
        Ok(self.interner.spec(spec))
    }

    /// The sizes of a value.
    fn sizes(&self, v: ValueId) -> Result<SmallVec<[Expr; 4]>> {
        Ok(self
            .graph
            .tensor_type(v)
            .map(|t| t.sizes.clone())
            .ok_or(Reason::Internal("a value with a buffer region is not a tensor"))?)
    }

    /// Records that a value is in a region from now on.
    fn put(&mut self, v: ValueId, at: BufferRegion) {
        self.regions[v.index()] = Some(at);
        self.occupants[at.buffer.index()].push(v);
    }

    /// The current region of a value.
    fn region(&self, v: ValueId) -> Result<BufferRegion> {
        Ok(self
            .regions
            .get(v.index())
            .copied()
            .flatten()
            .ok_or(Reason::Internal("a value is read before a region is assigned to it"))?)
    }

    /// A region in the form of plans.
    fn buffer_view(&self, at: BufferRegion) -> BufferView {
        BufferView { buffer: at.buffer, spec: self.interner.specs[at.spec.index()].clone() }
    }

    /// Emits that a value is already in a region.
    fn alias(&mut self, value: ValueId, at: BufferRegion) {
        let view = self.buffer_view(at);
        self.steps.push(Step::Alias { value, view });
        self.put(value, at);
    }

    /// Emits and counts a copy. The value's current region does not change.
    fn copy(&mut self, value: ValueId, from: BufferRegion, to: BufferRegion, reason: CopyReason) {
        let overlaps = !self.disjoint(from, to) && !fault_injected(Fault::CopiesNeverOverlap);
        let times = Traffic::writes_per_copied_element(overlaps, self.injective(to));
        self.count_copies(value, times);
        self.written(to.buffer);
        let (from, to) = (self.buffer_view(from), self.buffer_view(to));
        self.steps.push(Step::Copy { value, from, to, overlaps, reason });
    }

    /// Adds copies of a whole value to the cost.
    fn count_copies(&mut self, value: ValueId, times: u64) {
        self.cost
            .add(self.graph.tensor_type(value).map_or(&[], |t| &t.sizes), Traffic::copy(times));
    }

    /// Assembles the plan, without buffers that nothing uses.
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
        BufferPlan {
            graph: self.graph.digest(),
            symbols: self.interner.symbols,
            buffers,
            steps,
            outputs,
            cost: self.cost,
        }
    }
}
