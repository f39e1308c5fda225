//! How many elements are written: one set of rules for runs, which count tensors, and for plans,
//! which count types.

mod symbolic_count;

use crate::graph::{OpFacts, Placement};
use std::ops::AddAssign;

pub use symbolic_count::{Bound, CopyCost, OverlapCondition, SymbolicCount, approximate_numel};

/// How many elements are written. Sums stop at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By copies: operators that only copy, operands that are read from a copy since they lie in
    /// what a call mutates, and results that are computed apart and then moved to where they
    /// belong. Conversions are no copies.
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

    /// How often a copy step writes each element. A target that overlaps the source is written
    /// through a temporary. A target that overlaps itself takes two more: positions are gathered,
    /// and the copy is made anew.
    pub const fn writes_per_copied_element(overlaps: bool, target_is_injective: bool) -> u64 {
        (if overlaps { 2 } else { 1 }) + if target_is_injective { 0 } else { 2 }
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
pub struct WriteModel {
    is_data_movement: bool,
    via_temporary: bool,
    elementwise: bool,
    copies_operands: bool,
}

impl WriteModel {
    /// As facts have it.
    pub fn of(op: &str, facts: &dyn OpFacts) -> WriteModel {
        let placement = facts.functional_variant(op).map(|variant| facts.placement(variant));
        WriteModel {
            is_data_movement: facts.is_data_movement(op),
            via_temporary: placement.is_some_and(|p| p != Placement::Elementwise),
            elementwise: placement == Some(Placement::Elementwise),
            copies_operands: facts.copies_operands(op),
        }
    }

    /// What is written for each element of a result; or of an argument, if it is `mutated`.
    /// `converts`: its dtype is not that of the first operand that is only read.
    pub fn per_element(self, mutated: bool, converts: bool) -> Traffic {
        match (self.is_data_movement && !converts, self.via_temporary && mutated) {
            (true, _) => Traffic::copy(1),
            (false, via_temporary) => Traffic { copied: via_temporary.into(), computed: 1 },
        }
    }

    /// Whether operands are read from copies at all, where they lie in what is mutated.
    pub const fn copies_operands(self) -> bool {
        self.copies_operands
    }

    /// Whether an operand is read from a copy, since it lies in what is mutated. It need not be if
    /// each element is read before it is written, and it lies in the `same` place, element by
    /// element.
    pub fn needs_operand_copy(
        self,
        same: impl FnOnce() -> bool,
        overlaps: impl FnOnce() -> bool,
    ) -> bool {
        !(self.elementwise && same()) && overlaps()
    }
}
