//! Instances: programs with all sizes known, as flat lists of steps.

mod arguments;
mod builder;
mod kernel_call;
mod key;
mod places;

pub(crate) use arguments::{CallArguments, NodeArguments};
pub(crate) use builder::Uses;
pub(crate) use kernel_call::{ExpectedResult, KernelCall};
pub(crate) use key::InstanceKey;
pub use key::LayoutStamp;
pub(crate) use places::{BufferPlace, HandleLife, Place, TensorAt};

use crate::instance::builder::Builder;
use crate::outputs::OutputSlots;
use crate::packed_weights::PackedWeight;
use crate::planned::Planned;
use maquette_invoke::metadata_check::LayoutPromise;
use maquette_invoke::{Bindings, NodeReturns, SourceInfo, SymbolValues};
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::graph::{Arg, BindSource, NodeId, ValueId};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ir::{DType, Loc};
use maquette_ops::{Error, Op, PreparedCall, Result, Tensor, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most next segments that a segment keeps, one for each value of its symbol.
const MAX_NEXT: usize = 16;

/// The most segments after the first that the instances of an executable keep. Further ones are
/// made for one run.
const MAX_SEGMENTS: usize = 1_024;

/// Counts a segment that an instance keeps, until it is dropped.
pub(crate) struct KeptSegment(Arc<AtomicUsize>);

impl KeptSegment {
    fn new(count: Arc<AtomicUsize>) -> KeptSegment {
        count.fetch_add(1, Ordering::Relaxed);
        KeptSegment(count)
    }
}

impl Drop for KeptSegment {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A program for inputs of given layouts.
pub(crate) struct Instance {
    pub first: Arc<Segment>,
    /// What tensors must be that the caller gives for outputs.
    pub outputs: OutputSlots,
}

/// The steps up to the next size that depends on data, for given values of all symbols before.
pub(crate) struct Segment {
    /// A number that no other segment of the process has; not 0.
    pub id: u64,
    /// Its place in the chain of segments, and its arena.
    pub depth: usize,
    pub steps: Vec<Step>,
    /// For each step, the plan step that it belongs to.
    pub plan_steps: Vec<usize>,
    /// The bytes of its arena.
    pub arena_bytes: usize,
    /// Inputs and constants that its steps access, with the index of each.
    pub externals: Vec<(BufferId, External)>,
    /// New memory of its own for outputs: the number of elements and their dtype.
    pub outputs: Vec<(BufferId, i64, DType)>,
    /// Whether calls get handles to its memory.
    pub lends_memory: bool,
    /// The number of tensors of which calls may get handles.
    pub slots: u32,
    /// The number of calls whose arguments are kept between runs.
    pub kept_calls: u32,
    pub known: SymbolValues,
    /// Counts it, if an instance keeps it after its first.
    kept: Option<KeptSegment>,
    /// The places of all buffers that are known at its end.
    places: Vec<Option<BufferPlace>>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum External {
    Input(usize),
    Const(usize),
}

/// How a segment ends.
pub(crate) enum End {
    /// A step binds a symbol. The next segment begins with plan step `from`.
    Bind {
        symbol: SymbolId,
        value: ValueId,
        source: BindSource,
        at: usize,
        from: usize,
        next: Mutex<Vec<(i64, Arc<Segment>)>>,
    },
    /// The program is complete.
    Return(Returns),
}

/// What a program returns.
#[derive(Default)]
pub(crate) struct Returns {
    /// The results of the graph that are not tensors. `None` for a number that an operator
    /// computes.
    pub results: Vec<Value>,
    /// The position and the argument of each number that an operator computes.
    pub computed: Vec<(usize, Arg)>,
    /// The tensors of outputs that the plan places.
    pub planned: Vec<Option<TensorAt>>,
}

/// A step of a segment.
pub(crate) enum Step {
    /// A kernel runs at addresses.
    Launch(Box<Launch>),
    /// The operators of a region that has no kernel for the sizes run one by one.
    Region(Box<RegionByNodes>),
    /// An operator is called with handles.
    Call(Box<Call>),
    /// A copy from the first tensor to the second, which may overlap, or into elements that share
    /// memory.
    Copy { tensors: Box<[TensorAt; 2]>, shares_elements: bool },
    /// The memory of a returned tensor gets the strides that the graph declares.
    Adopt { buffer: BufferId, value: ValueId, strides: SmallVec<[i64; 6]> },
    /// The last use of a returned tensor.
    Release(BufferId),
    /// A step that fails in every run of the instance.
    Fail(Error),
}

pub(crate) struct Launch {
    pub call: PreparedCall,
    /// The addresses of the operands, then of the results.
    pub places: SmallVec<[Place; 4]>,
    /// What the error of the launch needs.
    pub source: LaunchSource,
    /// The weights among the operands that the call packs; none if no weight is among them.
    pub weights: Box<[Option<Arc<PackedWeight>>]>,
}

impl Launch {
    /// A launch without packed weights.
    pub fn new(call: PreparedCall, places: SmallVec<[Place; 4]>, source: LaunchSource) -> Launch {
        Launch { call, places, source, weights: Box::default() }
    }
}

/// What a launch computes, as far as its error needs it.
pub(crate) enum LaunchSource {
    /// A copy, or a region whose operators cannot fail: only memory for its kernel can be missing.
    Infallible {
        region: Option<usize>,
        /// The inputs, constants and outputs that the launch writes.
        writes: SmallVec<[BufferId; 1]>,
    },
    Node(Box<LaunchedNode>),
    Region(Box<LaunchedRegion>),
}

/// A region that may fail. Its operators run one by one to find the error.
pub(crate) struct LaunchedRegion {
    pub region: usize,
    pub operands: Vec<TensorAt>,
    /// The values of the integers that its operators take.
    pub integers: FxHashMap<Expr, i64>,
    /// The inputs, constants and outputs that the launch writes.
    pub writes: SmallVec<[BufferId; 1]>,
}

/// A region whose operators run one by one.
pub(crate) struct RegionByNodes {
    pub region: LaunchedRegion,
    /// Where its results go.
    pub targets: Vec<TensorAt>,
}

/// A node that is launched.
pub(crate) struct LaunchedNode {
    pub at: usize,
    pub loc: Option<Loc>,
    pub op: Op,
    pub arguments: NodeArguments,
    /// The inputs, constants and outputs that the launch writes.
    pub writes: SmallVec<[BufferId; 1]>,
}

/// A call through the dispatcher.
pub(crate) struct Call {
    pub node: NodeId,
    pub at: usize,
    pub loc: Option<Loc>,
    pub op: Op,
    pub name: Arc<str>,
    pub arguments: NodeArguments,
    /// Where the only result is written; otherwise the operator returns tensors.
    pub into: Option<TensorAt>,
    pub returns: NodeReturns,
    pub promise: LayoutPromise,
    /// The buffers of the returned tensors.
    pub returned: SmallVec<[(ValueId, BufferId); 2]>,
    /// The bases of memory that only this run may access, to which the call gets handles.
    pub lent: SmallVec<[u32; 2]>,
    /// The call without the dispatcher, if all is known but for memory.
    pub kernel: Option<Box<KernelCall>>,
}

impl Instance {
    /// The instance for the values of the symbols that inputs bind. `None` if a region has no
    /// kernel for these sizes.
    ///
    /// # Errors
    /// The plan belongs to another graph.
    pub fn new(
        planned: &Planned,
        inputs: &[Value],
        consts: &[Tensor],
        known: SymbolValues,
        source_info: &SourceInfo<'_>,
    ) -> Result<Option<Instance>> {
        let places = vec![None; planned.plan.buffers.len()];
        let builder =
            || Builder::new(planned, inputs, consts, &known, source_info, places.clone(), 0);
        Ok(Builder::build(0, builder)?.map(|first| {
            let bindings = Bindings::resume(&planned.program.graph, &[], &first.known);
            let outputs = OutputSlots::planned(planned, &bindings, &first);
            Instance { first: Arc::new(first), outputs }
        }))
    }
}

impl Segment {
    /// The place of a buffer, if it is known at the end of the segment.
    pub fn place_of(&self, buffer: BufferId) -> Option<BufferPlace> {
        self.places.get(buffer.index()).copied().flatten()
    }

    /// The segment that follows if the symbol at the end has this value. `known` are the values of
    /// all symbols then.
    ///
    /// # Errors
    /// As [`Instance::new`].
    pub fn next(
        &self,
        planned: &Planned,
        inputs: &[Value],
        consts: &[Tensor],
        value: i64,
        known: impl FnOnce() -> Result<SymbolValues>,
        source_info: &SourceInfo<'_>,
    ) -> Result<Arc<Segment>> {
        let End::Bind { from, next, .. } = &self.end else {
            return Err(Error::msg("the last segment has no successor"));
        };
        let lock = || next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, segment)) = lock().iter().find(|(v, _)| *v == value) {
            return Ok(segment.clone());
        }
        let (known, depth) = (known()?, self.depth + 1);
        let places = || self.places.clone();
        let builder =
            || Builder::new(planned, inputs, consts, &known, source_info, places(), depth);
        let refused = || Error::msg("a region is in no step of a segment");
        let mut segment = Builder::build(*from, builder)?.ok_or_else(refused)?;
        if planned.kept_segments.load(Ordering::Relaxed) >= MAX_SEGMENTS {
            return Ok(Arc::new(segment));
        }
        segment.kept = Some(KeptSegment::new(planned.kept_segments.clone()));
        let segment = Arc::new(segment);
        let mut next = lock();
        next.truncate(MAX_NEXT - 1);
        next.insert(0, (value, segment.clone()));
        Ok(segment)
    }
}
