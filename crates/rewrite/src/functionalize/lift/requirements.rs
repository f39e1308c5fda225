//! What a program turns out to need while it is lifted, and lifting has to know from the start.

use maquette_ir::graph::ValueId;
use rustc_hash::FxHashSet;

/// Inputs that see one memory, and which elements of it the program is known to reach besides
/// theirs.
#[derive(Clone, Debug)]
pub(crate) struct InputGroup {
    pub inputs: Vec<usize>,
    pub start: i64,
    pub end: i64,
}

impl InputGroup {
    fn of(inputs: Vec<usize>) -> InputGroup {
        InputGroup { inputs, start: i64::MAX, end: 0 }
    }
}

/// Something that lifting finds out too late.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requirement {
    /// The program sees these elements of an input's memory, from the first to behind the last.
    InputRange { input: usize, start: i64, end: i64 },
    /// The program sees the elements of a value in the order of memory.
    MemoryOrder(ValueId),
}

/// What is known of a program before it is lifted.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    /// Memory that is an input.
    pub groups: Vec<InputGroup>,
    /// Values whose storages are kept in the order of memory.
    pub memory_order: FxHashSet<ValueId>,
}

impl Requirements {
    /// Inputs that share memory.
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
