//! Three-valued answers.

use std::ops::Not;

/// Whether a property holds for all values of the symbols, for none, or neither is known (Kleene's
/// three-valued logic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriBool {
    /// The property always holds.
    Yes,
    /// The property never holds.
    No,
    /// Undecided; the property may hold for some values only.
    Unknown,
}

impl TriBool {
    /// Whether the answer is [`TriBool::Yes`].
    pub const fn is_yes(self) -> bool {
        matches!(self, TriBool::Yes)
    }

    /// Whether the answer is [`TriBool::No`].
    pub const fn is_no(self) -> bool {
        matches!(self, TriBool::No)
    }

    /// The conjunction. `other` is not evaluated if this answer is `No`.
    pub fn and(self, other: impl FnOnce() -> TriBool) -> TriBool {
        match self {
            TriBool::No => TriBool::No,
            TriBool::Yes => other(),
            TriBool::Unknown if other().is_no() => TriBool::No,
            TriBool::Unknown => TriBool::Unknown,
        }
    }

    /// The disjunction. `other` is not evaluated if this answer is `Yes`.
    pub fn or(self, other: impl FnOnce() -> TriBool) -> TriBool {
        !(!self).and(|| !other())
    }

    /// This answer, or `other` if this one is `Unknown`.
    pub fn or_else(self, other: impl FnOnce() -> TriBool) -> TriBool {
        match self {
            TriBool::Unknown => other(),
            known => known,
        }
    }
}

impl Not for TriBool {
    type Output = TriBool;
    fn not(self) -> TriBool {
        match self {
            TriBool::Yes => TriBool::No,
            TriBool::No => TriBool::Yes,
            TriBool::Unknown => TriBool::Unknown,
        }
    }
}

impl From<bool> for TriBool {
    fn from(b: bool) -> TriBool {
        if b { TriBool::Yes } else { TriBool::No }
    }
}

impl From<Option<bool>> for TriBool {
    fn from(b: Option<bool>) -> TriBool {
        b.map_or(TriBool::Unknown, TriBool::from)
    }
}
