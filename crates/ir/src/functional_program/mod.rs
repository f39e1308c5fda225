//! A functional graph with its calling convention: how its results become what the program would
//! have left in memory.
//!
//! Functionalization (as in PyTorch's AOTAutograd) turns a program that mutates into a graph of
//! values. The caller must not notice the difference, so three things are recorded beside the
//! graph: the tensors that are written back ([`Mutation`]), the memory of the outputs
//! ([`Output`]), and the memory that several inputs share ([`SharedMemory`]). Passes produce this
//! form, plans are made for it, and `maquette-interp` executes it; none of them needs the others.
//!
//! An example. The program `x.add_(1); return x.t()` becomes the graph `%add = aten::add(%x, 1)`
//! that returns `[%add, [0, 3, 2, 1, 3]]`. It has the mutation `x := result 0`, and the output
//! `alias of x, with the layout in result 1`.

mod copy_bound;
mod execution_mode;

pub use execution_mode::ExecutionMode;

use crate::copy_cost::{CopyCost, SymbolicCount};
use crate::functional_ops::List;
use crate::graph::{Arg, Graph, NodeId};
use crate::loc::Loc;
use crate::sym::SymTable;

/// A graph in which nothing mutates, and its calling convention.
///
/// The graph takes the program's inputs. It returns values first, and then lists of integers. Each
/// list is a *layout*: an offset, as many sizes as the tensor has dimensions, and as many strides,
/// all counted in elements. [`FunctionalGraph::mutations`] and [`FunctionalGraph::outputs`] refer
/// to both by their position among the graph's results.
#[derive(Clone, Debug)]
pub struct FunctionalGraph {
    /// The graph. In it strides are no part of a value: all values are row-major, except inputs,
    /// and operands of operators that may observe strides, which have the strides of their types.
    pub graph: Graph,
    /// Memory that several inputs share. The graph takes each as a flat tensor after the
    /// program's inputs.
    pub memories: Vec<SharedMemory>,
    /// Whether the program names offsets from the start of inputs' storages. If so, inputs must
    /// begin where their types say.
    pub absolute_offsets: bool,
    /// The values that the program leaves in the tensors it was given.
    pub mutations: Vec<Mutation>,
    /// The program's outputs, in order.
    pub outputs: Vec<Output>,
    /// How many elements the original program writes, and how many it copies at least: the bound
    /// that plans are compared with.
    pub eager: CopyCost,
    /// The number of elements of values that may be produced with other strides than their types
    /// say: they may be copied where they are produced.
    pub relayout_bound: SymbolicCount,
    /// Nodes whose types do not declare the strides of eager execution, in ascending order. The
    /// strides of such a node depend on data, or rewriting created the node.
    pub unknown_strides: Vec<NodeId>,
    /// The operators whose results became views of values, each with the line of its first call. A
    /// run of the graph calls none of them, and is right as long as nothing overrides them.
    pub viewers: Vec<(String, Option<Loc>)>,
    /// The table of the symbols in `eager` and `relayout_bound`.
    pub symbols: SymTable,
    /// What rewriting did; empty where the program was only lifted.
    pub stats: RewriteStats,
}

impl FunctionalGraph {
    /// Input `i` of the graph: an input of the program, or memory that inputs share.
    pub fn external_input(&self, i: usize) -> ExternalTensor {
        match i.checked_sub(self.graph.inputs().len() - self.memories.len()) {
            Some(memory) => ExternalTensor::SharedMemory(memory),
            None => ExternalTensor::Input(i),
        }
    }

    /// A layout among the graph's results: an offset, then sizes, then strides.
    pub fn layout(&self, result: usize) -> Option<List<'_>> {
        match self.graph.outputs().get(result) {
            Some(Arg::List(list)) => List::of(&self.graph, *list).ok(),
            _ => None,
        }
    }
}

/// What rewriting did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteStats {
    /// Nodes of the lifted program.
    pub before: usize,
    /// Terms in the e-graph at the end.
    pub after: usize,
    /// Classes of the e-graph at the end.
    pub classes: usize,
    /// How often the e-graph's congruence was restored, and rules tried again.
    pub rounds: u64,
    /// How many terms rules were tried on.
    pub visits: u64,
    /// How often a rule added something.
    pub applied: u64,
    /// The same by rule, in the order of the rules, without the rules that added nothing.
    pub rules: Vec<(&'static str, u64)>,
    /// Why rewriting ended.
    pub stopped: &'static str,
}

/// Memory that several inputs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// The inputs.
    pub inputs: Vec<usize>,
    /// Where the memory begins, in elements, as the inputs' types count offsets.
    pub start: i64,
    /// The same, counted from the first input's first element.
    pub from_first: i64,
    /// How many elements it has.
    pub len: i64,
}

/// A tensor outside of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExternalTensor {
    /// The `i`-th input.
    Input(usize),
    /// The `i`-th constant.
    Const(usize),
    /// The `i`-th of the memories that inputs share.
    SharedMemory(usize),
}

/// A result that is written back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The tensor whose storage is written.
    pub target: ExternalTensor,
    /// The value it has in the end.
    pub result: usize,
    /// The layout of the written elements, counted from the tensor's first; `None` if they are the
    /// tensor's own, in order.
    pub layout: Option<usize>,
    /// How many of the graph's assertions and effects precede the program's first write to the
    /// target.
    pub preceding_effects: usize,
}

/// An output of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A result, in memory that no other tensor shares.
    Result {
        /// The result.
        result: usize,
        /// Its layout in that memory; row-major if there is none.
        layout: Option<usize>,
    },
    /// A view of memory that the caller has already; without a layout, the tensor itself.
    Alias {
        /// The tensor whose storage is viewed.
        of: ExternalTensor,
        /// The view's layout, counted from the tensor's first element.
        layout: Option<usize>,
    },
    /// A view of memory that other outputs share.
    Shared {
        /// The memory's number: outputs of one number share it. Two memories may have one result as
        /// contents.
        memory: usize,
        /// The result that is the contents of that memory; the same for all of them.
        result: usize,
        /// Its layout.
        storage_layout: usize,
        /// The view's layout, counted from the start of the storage.
        layout: usize,
    },
    /// A list of outputs.
    List(Vec<Output>),
}
