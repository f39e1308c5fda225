//! Buffer plans: the memory in which each value of a functional graph is stored, and the copies
//! that a run makes.
//!
//! A plan has *buffers*: the memory of the graph's inputs and constants, new memory, and the memory
//! that operators return. Each tensor value has a [`BufferView`], a strided view of a buffer, at
//! the moment it is read. [`Step`]s follow the graph's statements. A view costs nothing, and so
//! does a store of a value that was computed where it is stored: both are a [`Step::Alias`].
//!
//! A plan from any source is right if these invariants hold:
//!
//! - **P1** External memory is written only if the program mutates it, and ends with its new value.
//! - **P2** An element that a later step reads is not overwritten by another element.
//! - **P3** A kernel does not write over its operands. An element-wise kernel may write exactly
//!   over an operand of the same sizes, and a fused product over an operand that its node names.
//! - **P4** An output in its own memory shares no buffer with an input or another output.
//! - **P5** No written region has an element twice, unless all its values are equal in every run,
//!   as in copies for [`CopyReason::Strides`].
//! - **P6** Two tensors that one operator mutates share no element.
//! - **P7** Steps run in order; a step reads what earlier steps wrote.

mod parse;
mod print;

use crate::copy_cost::CopyCost;
use crate::graph::ValueId;
use crate::graph::{Graph, NodeId};
use crate::sym::SymTable;
use crate::view::ViewSpec;
use crate::{DType, Device};

pub use print::BufferPlanText;

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

impl BufferId {
    /// Its position among the plan's buffers.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A sequence of elements in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The memory of input `i`, counted from the input's first element.
    Input(usize),
    /// The memory of constant `i`, counted from the constant's first element.
    Const(usize),
    /// New memory, with as many elements as the layout needs.
    New {
        /// The type of its elements.
        dtype: DType,
        /// Its device.
        device: Device,
        /// The layout it must hold.
        layout: ViewSpec,
    },
    /// The memory of a tensor that an operator returned, counted from its first element. The tensor
    /// has the strides that the graph declares.
    Returned(ValueId),
}

/// A strided view of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferView {
    /// The buffer.
    pub buffer: BufferId,
    /// The viewed elements.
    pub spec: ViewSpec,
}

/// The destination of a node's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultDest {
    /// The node writes the result here.
    Into(BufferView),
    /// The operator returns the result in memory that it allocated.
    Returned(BufferId),
}

/// Why elements are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyReason {
    /// The program stores a value in another tensor, and the value was computed elsewhere.
    Store,
    /// The memory of a value is overwritten while the value is still needed, or a store goes into
    /// memory that must not be written.
    Keep,
    /// An operand lies where the operator writes its result.
    Operand,
    /// An operator observes strides, and the value has other strides.
    Strides,
    /// A view of the value has no strides where the value lies: the reshape of a permutation.
    View,
    /// An operator mutates a tensor whose old value is needed afterwards.
    Mutate,
    /// An output needs memory of its own.
    Output,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A `bind` or an `assert` statement, by its position in the graph's body.
    Stmt(usize),
    /// Nothing is executed: the value is already there.
    Alias {
        /// The value.
        value: ValueId,
        /// Its memory.
        view: BufferView,
    },
    /// A node runs.
    Node {
        /// The node.
        node: NodeId,
        /// The tensors that it only reads, with their memory.
        reads: Vec<(ValueId, BufferView)>,
        /// The memory of the tensors that it mutates, in the order of its arguments. It has their
        /// old values before the node runs.
        writes: Vec<BufferView>,
        /// Its results and their destinations, without the tensors that it mutates.
        results: Vec<(ValueId, ResultDest)>,
    },
    /// A value is copied. Afterwards it is in both places.
    Copy {
        /// The value.
        value: ValueId,
        /// The source.
        from: BufferView,
        /// The destination.
        to: BufferView,
        /// Whether source and destination may overlap. Then all elements are read before the first
        /// is written.
        overlaps: bool,
        /// The reason for the copy.
        reason: CopyReason,
    },
}

/// A buffer plan of a functional graph; see the [module](self).
#[derive(Clone, Debug)]
pub struct BufferPlan {
    /// The [digest](Graph::digest) of the planned graph.
    pub graph: u64,
    /// The table of the plan's expressions. Its facts hold after the graph's last assertion, so it
    /// serves to evaluate expressions of a step, not to prove conditions about them.
    pub symbols: SymTable,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// For each output of the program, the elements of lists included: the memory that the plan
    /// gives it. `None` for a number, and for a view of memory that the caller has.
    pub outputs: Vec<Option<BufferView>>,
    /// How many elements a run writes, and how many it copies at most.
    pub cost: CopyCost,
}

impl Step {
    /// The buffers that the step names.
    pub fn buffers_mut(&mut self) -> Vec<&mut BufferId> {
        match self {
            Step::Stmt(_) => Vec::new(),
            Step::Alias { view, .. } => vec![&mut view.buffer],
            Step::Copy { from, to, .. } => vec![&mut from.buffer, &mut to.buffer],
            Step::Node { reads, writes, results, .. } => {
                let read = reads.iter_mut().map(|(_, p)| &mut p.buffer);
                let dests = results.iter_mut().map(|(_, dest)| match dest {
                    ResultDest::Into(p) => &mut p.buffer,
                    ResultDest::Returned(b) => b,
                });
                read.chain(writes.iter_mut().map(|p| &mut p.buffer)).chain(dests).collect()
            }
        }
    }

    /// The buffers that the step writes, but for those of tensors that operators return.
    pub fn for_each_written(&self, f: &mut impl FnMut(BufferId)) {
        match self {
            Step::Stmt(_) | Step::Alias { .. } => {}
            Step::Copy { to, .. } => f(to.buffer),
            Step::Node { writes, results, .. } => {
                writes.iter().for_each(|p| f(p.buffer));
                for (_, dest) in results {
                    if let ResultDest::Into(p) = dest {
                        f(p.buffer);
                    }
                }
            }
        }
    }

    /// The buffers that the step names.
    pub fn for_each_buffer(&self, f: &mut impl FnMut(BufferId)) {
        match self {
            Step::Stmt(_) => {}
            Step::Alias { view, .. } => f(view.buffer),
            Step::Copy { from, to, .. } => [from, to].into_iter().for_each(|p| f(p.buffer)),
            Step::Node { reads, writes, results, .. } => {
                reads.iter().for_each(|(_, p)| f(p.buffer));
                writes.iter().for_each(|p| f(p.buffer));
                for (_, dest) in results {
                    match dest {
                        ResultDest::Into(p) => f(p.buffer),
                        ResultDest::Returned(b) => f(*b),
                    }
                }
            }
        }
    }
}

impl BufferPlan {
    /// The text form: buffers, then one line for each step. [`BufferPlan::parse`] reads it back.
    pub fn display<'a>(&'a self, graph: &'a Graph) -> BufferPlanText<'a> {
        BufferPlanText { plan: self, graph }
    }
}
