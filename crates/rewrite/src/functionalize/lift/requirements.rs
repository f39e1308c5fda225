//! Requirements of a program that lifting discovers while it runs, but needs from the start.
//!
//! Lifting is one forward pass, and two facts about a storage determine how its first version is
//! represented: which elements beyond an input's own the program reads, and whether its elements
//! must be kept in memory order. If lifting discovers such a requirement after it has made that
//! version, the result is discarded and lifting restarts with the requirement. The requirements
//! only grow, and a restart that adds none is an internal error, so this fixpoint iteration ends:
//! there are finitely many values, and each range only widens.

use maquette_ir::graph::ValueId;
use rustc_hash::FxHashSet;

/// Inputs that share memory, and the elements of that memory that the program accesses beyond the
/// inputs' own.
#[derive(Clone, Debug)]
pub(crate) struct InputGroup {
    pub inputs: Vec<usize>,
    pub start: i64,
    pub end: i64,
}

impl InputGroup {
    /// A group without accesses beyond its inputs: an empty range.
    fn of(inputs: Vec<usize>) -> InputGroup {
        InputGroup { inputs, start: i64::MAX, end: 0 }
    }
}

/// A requirement that lifting discovers too late.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requirement {
    /// The program accesses these elements of an input's memory: from `start` to before `end`.
    InputRange { input: usize, start: i64, end: i64 },
    /// The program accesses the elements of a value in memory order, so its storage must be kept in
    /// that order.
    MemoryOrder(ValueId),
}

/// What lifting knows of a program from the start.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    /// Memories that become inputs of their own, each with the inputs that share it.
    pub groups: Vec<InputGroup>,
    /// Values whose storages are kept in memory order.
    pub memory_order: FxHashSet<ValueId>,
}

impl Requirements {
    /// The requirements of inputs that share memory, by groups.
    pub fn sharing(groups: &[Vec<usize>]) -> Requirements {
        Requirements {
            groups: groups.iter().cloned().map(InputGroup::of).collect(),
            memory_order: FxHashSet::default(),
        }
    }

    /// Adds requirements. Returns whether any of them is new.
    pub fn extend(&mut self, requirements: Vec<Requirement>) -> bool {
        let new = requirements.into_iter().filter(|requirement| self.insert(*requirement)).count();
        new > 0
    }

    /// Adds a requirement. Returns whether it is new.
    fn insert(&mut self, requirement: Requirement) -> bool {
        match requirement {
            Requirement::MemoryOrder(value) => self.memory_order.insert(value),
            Requirement::InputRange { input, start, end } => {
                let at = self.groups.iter().position(|g| g.inputs.contains(&input)).unwrap_or_else(
                    || {
                        self.groups.push(InputGroup::of(vec![input]));
                        self.groups.len() - 1
                    },
                );
                let group = &mut self.groups[at];
                let wider = (group.start.min(start), group.end.max(end));
                let is_new = wider != (group.start, group.end);
                (group.start, group.end) = wider;
                is_new
            }
        }
    }
}
