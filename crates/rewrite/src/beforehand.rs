//! What a program turns out to need while it is lifted, and lifting has to know from the start.

use maquette_ir::graph::ValueId;
use rustc_hash::FxHashSet;

/// Inputs that see one memory, and which elements of it the program is known to reach besides theirs.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub inputs: Vec<usize>,
    pub start: i64,
    pub end: i64,
}

impl Group {
    fn of(inputs: Vec<usize>) -> Group {
        Group { inputs, start: i64::MAX, end: 0 }
    }
}

/// Something that lifting finds out too late.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Learnt {
    /// The program sees these elements of an input's memory, from the first to behind the last.
    Reach { input: usize, start: i64, end: i64 },
    /// The program sees the elements of a value in the order of memory.
    Order(ValueId),
}

/// What is known of a program before it is lifted.
#[derive(Clone, Debug)]
pub(crate) struct Beforehand {
    /// Memory that is an input.
    pub groups: Vec<Group>,
    /// Values whose storages are kept in the order of memory.
    pub ordered: FxHashSet<ValueId>,
}

impl Beforehand {
    /// Inputs that share memory.
    pub fn sharing(groups: &[Vec<usize>]) -> Beforehand {
        Beforehand { groups: groups.iter().cloned().map(Group::of).collect(), ordered: FxHashSet::default() }
    }

    /// Takes in what was learnt. Returns whether any of it is new.
    pub fn learn(&mut self, learnt: Vec<Learnt>) -> bool {
        let new = learnt.into_iter().filter(|l| self.learn_one(*l)).count();
        new > 0
    }

    fn learn_one(&mut self, learnt: Learnt) -> bool {
        match learnt {
            Learnt::Order(value) => self.ordered.insert(value),
            Learnt::Reach { input, start, end } => {
                let at = self.groups.iter().position(|g| g.inputs.contains(&input)).unwrap_or_else(|| {
                    self.groups.push(Group::of(vec![input]));
                    self.groups.len() - 1
                });
                let group = &mut self.groups[at];
                let wider = (group.start.min(start), group.end.max(end));
                let is_new = wider != (group.start, group.end);
                (group.start, group.end) = wider;
                is_new
            }
        }
    }
}
