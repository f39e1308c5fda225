//! How many elements are written: one set of rules for runs, which count tensors, and for plans, which count types.

mod ledger;

use crate::graph::{OpFacts, Placement};
use std::ops::AddAssign;

pub use ledger::{Bound, Count, Ledger, Meeting, approximate_numel};

/// How many elements are written. Sums stop at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By copies: operators that only copy, operands that are read from a copy since they lie in what a call mutates, and results that are computed
    /// apart and then moved to where they belong. Conversions are no copies.
    pub copied: u64,
    /// By operators that compute.
    pub computed: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.copied = self.copied.saturating_add(other.copied);
        self.computed = self.computed.saturating_add(other.computed);
    }
}

impl Traffic {
    /// A copy of so many elements.
    pub const fn copy(n: u64) -> Traffic {
        Traffic { copied: n, computed: 0 }
    }

    /// Of copies and computations.
    pub const fn written(self) -> u64 {
        self.copied.saturating_add(self.computed)
    }

    /// The same for so many times the elements.
    pub const fn times(self, n: u64) -> Traffic {
        Traffic { copied: self.copied.saturating_mul(n), computed: self.computed.saturating_mul(n) }
    }
}

/// How an operator writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writing {
    moves: bool,
    by_way: bool,
    elementwise: bool,
    copies_operands: bool,
}

impl Writing {
    /// As facts have it.
    pub fn of(op: &str, facts: &dyn OpFacts) -> Writing {
        let twin = facts.twin(op).map(|twin| facts.placement(twin));
        Writing {
            moves: facts.moves(op),
            by_way: twin.is_some_and(|p| p != Placement::Elementwise),
            elementwise: twin == Some(Placement::Elementwise),
            copies_operands: facts.copies_operands(op),
        }
    }

    /// What is written for each element of a result; or of an argument, if it is `mutated`. `converts`: its dtype is not that of the first operand
    /// that is only read.
    pub fn each(self, mutated: bool, converts: bool) -> Traffic {
        match (self.moves && !converts, self.by_way && mutated) {
            (true, _) => Traffic::copy(1),
            (false, by_way) => Traffic { copied: by_way.into(), computed: 1 },
        }
    }

    /// Whether operands are read from copies at all, where they lie in what is mutated.
    pub const fn copies_operands(self) -> bool {
        self.copies_operands
    }

    /// Whether an operand is read from a copy, since it lies in what is mutated. It need not be if each element is read before it is written, and
    /// it lies in the `same` place, element by element.
    pub fn in_the_way(self, same: impl FnOnce() -> bool, meets: impl FnOnce() -> bool) -> bool {
        !(self.elementwise && same()) && meets()
    }
}
