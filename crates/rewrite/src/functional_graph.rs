//! A functional graph, and how its results are handed back as the program would have left them.

use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::copy_cost::{Bound, CopyCost, SymbolicCount};
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::graph::Graph;
use maquette_ir::sym::SymTable;

/// A program in values: nothing in its graph mutates.
///
/// The graph takes what the program takes. What it returns are values first, and then lists of
/// integers, each a *place*: an offset, as many sizes as the tensor has dimensions, and as many
/// strides, all in elements. [`FunctionalGraph::mutations`] and [`FunctionalGraph::outputs`] say
/// what is to be done with them; both count what the graph returns.
#[derive(Clone, Debug)]
pub struct FunctionalGraph {
    /// The graph. In it strides are no part of a value: all are row-major, except those of inputs,
    /// and operands of operators that may tell them apart, which are as the types say.
    pub graph: Graph,
    /// What the graph takes behind the program's inputs: memory that several of them see, as one
    /// row.
    pub memories: Vec<SharedMemory>,
    /// The program named places by offsets from the start of inputs' storages: inputs must begin
    /// where their types say.
    pub absolute_offsets: bool,
    /// What the program leaves in the tensors it was given.
    pub mutations: Vec<Mutation>,
    /// The program's outputs, in order.
    pub outputs: Vec<Output>,
    /// How many elements the program writes as it is, and at least copies, to compare plans with.
    pub eager: CopyCost,
    /// The elements of values that may have other strides where they are made than their types say:
    /// they may be copied there.
    pub(crate) relayout_bound: SymbolicCount,
    /// The table of the symbols that `eager` and `relayout_bound` count.
    pub(crate) symbols: SymTable,
    /// What was done; empty where nothing but lifting was.
    pub stats: Stats,
}

impl FunctionalGraph {
    /// How many elements a plan of this program copies at most, if no symbol decides it.
    pub fn copies_at_most(&self, plan: &BufferPlan) -> Option<u64> {
        Some(plan.cost.copied.as_constant()?.saturating_add(self.relayout_bound.as_constant()?))
    }

    /// The same in a run in which symbols, by their names, have these values; `None` if it needs
    /// one that has none.
    pub fn copies_at_most_in(
        &self,
        plan: &BufferPlan,
        value: &dyn Fn(&str) -> Option<i64>,
    ) -> Option<u64> {
        let (planned, relayout_bound) = (&plan.cost.copied, &self.relayout_bound);
        let planned =
            planned.eval(&plan.symbols, &|s| value(plan.symbols.name(s)), Bound::AtMost)?;
        Some(planned.saturating_add(relayout_bound.eval(
            &self.symbols,
            &|s| value(self.symbols.name(s)),
            Bound::AtMost,
        )?))
    }

    /// How many elements the program copies as it is, at least, in such a run.
    pub fn copies_at_least_in(&self, value: &dyn Fn(&str) -> Option<i64>) -> Option<u64> {
        self.eager.copied.eval(&self.symbols, &|s| value(self.symbols.name(s)), Bound::AtLeast)
    }

    /// How many elements a plan of this program copies at most, as text, symbols and all.
    pub fn copies_at_most_text(&self, plan: &BufferPlan) -> String {
        match (self.relayout_bound.as_constant(), plan.cost.copied.to_text(&plan.symbols)) {
            (Some(0), planned) => planned,
            (_, planned) => format!("{planned} + {}", self.relayout_bound.to_text(&self.symbols)),
        }
    }

    /// How many elements the program copies as it is, at least, as text.
    pub fn copies_at_least_text(&self) -> String {
        self.eager.copied.to_text(&self.symbols)
    }

    /// Whether a plan of this program copies no more elements than the program does as it is, in
    /// every run that ends. `false`: that is not known.
    pub fn within_eager_copies(&self, plan: &BufferPlan) -> bool {
        if fault_injected("copies: any plan will do") {
            return true;
        }
        let (planned, relayout_bound, eager) =
            (&plan.cost.copied, &self.relayout_bound, &self.eager.copied);
        if let (Some(most), Some(least)) = (self.copies_at_most(plan), eager.as_constant()) {
            return most <= least;
        }
        // what a plan's table knows holds in such a run
        let mut symbols = plan.symbols.clone();
        let at_most = |count: &SymbolicCount, of: &SymTable, symbols: &mut SymTable| {
            count.import(symbols, of, Bound::AtMost)
        };
        let Some(mut most) = at_most(planned, &plan.symbols, &mut symbols) else { return false };
        let Some(relayout_bound) = at_most(relayout_bound, &self.symbols, &mut symbols) else {
            return false;
        };
        most.append(&relayout_bound);
        eager
            .import(&mut symbols, &self.symbols, Bound::AtLeast)
            .is_some_and(|least| most.at_most(&least, &mut symbols))
    }
}

/// What rewriting did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nodes of the lifted program.
    pub before: usize,
    /// Terms in the e-graph at the end.
    pub after: usize,
    /// Classes at the end.
    pub classes: usize,
    /// How often all that follows from what rules found was looked for.
    pub rounds: u64,
    /// How many terms rules were tried on.
    pub visits: u64,
    /// How often a rule added something.
    pub applied: u64,
    /// The same by rule, in the order of the rules; those that added nothing are left out.
    pub rules: Vec<(&'static str, u64)>,
    /// Why it ended.
    pub stopped: &'static str,
    pub(crate) order: Vec<usize>,
}

impl Stats {
    /// Counts one for a rule.
    pub(crate) fn count(&mut self, number: usize, name: &'static str) {
        match self.order.binary_search(&number) {
            Ok(i) => self.rules[i].1 += 1,
            Err(i) => {
                self.order.insert(i, number);
                self.rules.insert(i, (name, 1));
            }
        }
    }
}

/// Memory that several inputs see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// The inputs.
    pub inputs: Vec<usize>,
    /// Where its row begins, in elements, as the inputs' types count offsets.
    pub start: i64,
    /// The same, counted from the first input's first element.
    pub from_first: i64,
    /// How many elements it has.
    pub len: i64,
}

/// A tensor outside of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExternalTensor {
    /// The `i`-th input.
    Input(usize),
    /// The `i`-th constant.
    Const(usize),
    /// The `i`-th of the memories that inputs share.
    SharedMemory(usize),
}

/// A result that is to be written back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The tensor whose storage is written.
    pub target: ExternalTensor,
    /// The value it has in the end.
    pub result: usize,
    /// The elements that the value is of, counted from the tensor's first; `None` if they are the
    /// tensor's own, in order.
    pub layout: Option<usize>,
    /// So many of the graph's assertions and effects come before the program first writes there.
    pub preceding_effects: usize,
}

/// An output of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A result, in memory that nothing else sees; a tensor has this place in it, or is row-major.
    Result {
        /// Which.
        result: usize,
        /// Its layout.
        layout: Option<usize>,
    },
    /// A view of memory that the caller has already. Without a place, the tensor itself.
    Alias {
        /// The tensor whose storage is viewed.
        of: ExternalTensor,
        /// The elements, counted from the tensor's first.
        layout: Option<usize>,
    },
    /// A view of memory that other outputs see too.
    Shared {
        /// The memory's number: outputs of one number share it. Two memories may have one result as
        /// contents.
        memory: usize,
        /// The result that is the contents of that memory; the same for all of them.
        result: usize,
        /// Its layout.
        storage_layout: usize,
        /// The elements, counted from the start of the storage.
        layout: usize,
    },
    /// A list of outputs.
    List(Vec<Output>),
}
