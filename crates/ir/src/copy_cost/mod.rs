//! The cost model of copies: how many elements a program writes, and how many of these writes are
//! copies.
//!
//! One set of rules serves two uses. The interpreter counts the elements that a run writes
//! ([`Traffic`]). The planner predicts the number from symbolic sizes ([`CopyCost`]), and accepts a
//! buffer plan only if it provably copies no more than the eager program. Both uses must count by
//! the same rules, or the prediction could be wrong.
//!
//! A call writes each element of its results once. Three kinds of writes count as copies:
//!
//! - all writes of an operator that only moves data, without a conversion of dtype;
//! - the write from a temporary into a mutated argument, by an operator that is not elementwise;
//! - the copy of an operand that overlaps the argument that the call mutates.

mod symbolic_count;

use crate::graph::{OpFacts, Placement};
use std::ops::AddAssign;

pub use symbolic_count::{Bound, CopyCost, OverlapCondition, SymbolicCount, approximate_numel};

/// Numbers of written elements. All arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Elements written by copies: by operators that only copy, into copies of operands that
    /// overlap a mutated argument, and from temporary results to their destination. A conversion of
    /// dtype is not a copy.
    pub copied: u64,
    /// Elements written by operators that compute.
    pub computed: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.copied = self.copied.saturating_add(other.copied);
        self.computed = self.computed.saturating_add(other.computed);
    }
}

impl Traffic {
    /// A copy of `n` elements.
    pub const fn copy(n: u64) -> Traffic {
        Traffic { copied: n, computed: 0 }
    }

    /// How often a copy step writes each element. A target that overlaps the source is written
    /// through a temporary. A target that overlaps itself takes two more writes: the positions are
    /// gathered, and the copy is made from them.
    pub const fn writes_per_copied_element(overlaps: bool, target_is_injective: bool) -> u64 {
        (if overlaps { 2 } else { 1 }) + if target_is_injective { 0 } else { 2 }
    }

    /// All written elements: copied and computed.
    pub const fn written(self) -> u64 {
        self.copied.saturating_add(self.computed)
    }

    /// The traffic of `n` elements, if `self` is the traffic of one.
    pub const fn times(self, n: u64) -> Traffic {
        Traffic { copied: self.copied.saturating_mul(n), computed: self.computed.saturating_mul(n) }
    }
}

/// The facts of an operator that decide how many elements a call of it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteModel {
    is_data_movement: bool,
    /// An in-place call computes into a temporary and copies it to the mutated argument.
    via_temporary: bool,
    /// An in-place call reads each element before it writes the element.
    elementwise: bool,
    copies_operands: bool,
}

impl WriteModel {
    /// The model of an operator, from its facts.
    pub fn of(op: &str, facts: &dyn OpFacts) -> WriteModel {
        let placement = facts.functional_variant(op).map(|variant| facts.placement(variant));
        WriteModel {
            is_data_movement: facts.is_data_movement(op),
            via_temporary: placement.is_some_and(|p| p != Placement::Elementwise),
            elementwise: placement == Some(Placement::Elementwise),
            copies_operands: facts.copies_operands(op),
        }
    }

    /// The traffic per element of a result, or of an argument if `mutated`. `converts`: the dtype
    /// of the written tensor differs from that of the first operand that is only read.
    pub fn per_element(self, mutated: bool, converts: bool) -> Traffic {
        match (self.is_data_movement && !converts, self.via_temporary && mutated) {
            (true, _) => Traffic::copy(1),
            (false, via_temporary) => Traffic { copied: via_temporary.into(), computed: 1 },
        }
    }

    /// Whether a call itself copies an operand that overlaps the mutated argument. A composite
    /// operator leaves this to the operators that it calls.
    pub const fn copies_operands(self) -> bool {
        self.copies_operands
    }

    /// Whether a call copies an operand, given how the operand and the mutated argument lie in
    /// memory. `overlaps`: they share elements. `same`: they are the same elements in the same
    /// order, which needs no copy if the operator is elementwise.
    pub fn needs_operand_copy(
        self,
        same: impl FnOnce() -> bool,
        overlaps: impl FnOnce() -> bool,
    ) -> bool {
        !(self.elementwise && same()) && overlaps()
    }
}
