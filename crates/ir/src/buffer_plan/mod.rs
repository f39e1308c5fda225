//! Where the values of a functional graph lie when it runs, and what is copied: a graph whose
//! values have memory again.
//!
//! A plan has *buffers*: the memory of the graph's inputs and constants, memory of its own, and
//! what operators return. Each tensor value has a [`BufferView`] at the moment it is read: a
//! strided view of a buffer. [`Step`]s follow the graph's statements. Views, and stores of values
//! that were made where they are stored, cost nothing; [`Step::Alias`] says so.
//!
//! What makes a plan right, whoever made it:
//!
//! - **I1** Memory from outside is written only if the program leaves a new value there, and in the
//!   end it has that value.
//! - **I2** An element that is still to be read as some value is not overwritten with another.
//! - **I3** A kernel writes where none of its operands lies; an element-wise one also exactly where
//!   an operand of the same sizes lies.
//! - **I4** An output that is memory of its own shares no buffer with an input or another output.
//! - **I5** What is written has no two elements in one place, unless they are equal in every run:
//!   copies for [`CopyReason::Strides`].
//! - **I6** Two tensors that one operator mutates share no element.
//! - **I7** Steps run in order; a step reads what the steps before it wrote.

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

/// Memory, as a row of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// That of the graph's `i`-th input, counted from the input's first element.
    Input(usize),
    /// That of the graph's `i`-th constant, likewise.
    Const(usize),
    /// New memory, of as many elements as this tensor needs in it.
    New {
        /// Their type.
        dtype: DType,
        /// Where.
        device: Device,
        /// The tensor.
        layout: ViewSpec,
    },
    /// A tensor that an operator returned, from its first element on; it has the strides that the
    /// graph declares.
    Returned(ValueId),
}

/// Some elements of a buffer, as a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferView {
    /// The buffer.
    pub buffer: BufferId,
    /// The elements.
    pub spec: ViewSpec,
}

/// Where a result of a node comes to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultDest {
    /// The node writes it here.
    Into(BufferView),
    /// The operator returns it in memory that it made.
    Returned(BufferId),
}

/// Why elements are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyReason {
    /// The program stores one tensor's value in another, and it was needed, or made, elsewhere.
    Store,
    /// A tensor is stored into whose value before is needed afterwards.
    Keep,
    /// An operand lies where the operator's result belongs.
    Operand,
    /// An operator looks at strides, and the value has others.
    Strides,
    /// An operator mutates a tensor whose value before is needed afterwards.
    Mutate,
    /// An output has memory of its own.
    Output,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A statement that binds or asserts, by its position in the graph's body.
    Stmt(usize),
    /// Nothing: the value is already there.
    Alias {
        /// The value.
        value: ValueId,
        /// Where.
        view: BufferView,
    },
    /// A node runs.
    Node {
        /// The node.
        node: NodeId,
        /// Where the tensors that it reads lie.
        reads: Vec<(ValueId, BufferView)>,
        /// Where those lie that it mutates, in the order of its arguments. They have the values
        /// that it reads.
        writes: Vec<BufferView>,
        /// Where its results come to be, those apart that it mutates.
        results: Vec<(ValueId, ResultDest)>,
    },
    /// Elements are copied, and the value lies at the new place too.
    Copy {
        /// The value.
        value: ValueId,
        /// Where it is read.
        from: BufferView,
        /// Where it is written.
        to: BufferView,
        /// They overlap: all is read before anything is written.
        overlaps: bool,
        /// Why.
        reason: CopyReason,
    },
}

/// How a functional graph runs in memory. See the [module's page](self).
#[derive(Clone, Debug)]
pub struct BufferPlan {
    /// The [digest](Graph::digest) of the graph that it is a plan of.
    pub graph: u64,
    /// The expressions of places. What it knows of symbols holds behind the graph's last assertion,
    /// not before: to be evaluated with, not to prove with.
    pub symbols: SymTable,
    /// Every buffer.
    pub buffers: Vec<Buffer>,
    /// In order.
    pub steps: Vec<Step>,
    /// Where the program's outputs lie in the end, one for each that is no list: those that are
    /// tensors in memory of their own. What is written back lies where it is written.
    pub outputs: Vec<Option<BufferView>>,
    /// How many elements are written, and at most copied.
    pub cost: CopyCost,
}

impl Step {
    /// Every buffer that it names.
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

    /// Every buffer that it names.
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
    /// The text form: buffers, then one line a step. [`BufferPlan::parse`] reads it back.
    pub fn display<'a>(&'a self, graph: &'a Graph) -> BufferPlanText<'a> {
        BufferPlanText { plan: self, graph }
    }
}
