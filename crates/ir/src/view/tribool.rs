//! Answers that may not be known.

use std::ops::Not;

/// Whether something holds for all values that the symbols may have, for none, or it is not known
/// which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriBool {
    /// Always.
    Yes,
    /// Never.
    No,
    /// Not decided; perhaps sometimes.
    Unknown,
}

impl TriBool {
    /// Whether it always holds.
    pub const fn is_yes(self) -> bool {
        matches!(self, TriBool::Yes)
    }

    /// Whether it never holds.
    pub const fn is_no(self) -> bool {
        matches!(self, TriBool::No)
    }

    /// Both; the second is not asked where the first is no.
    pub fn and(self, other: impl FnOnce() -> TriBool) -> TriBool {
        match self {
            TriBool::No => TriBool::No,
            TriBool::Yes => other(),
            TriBool::Unknown if other().is_no() => TriBool::No,
            TriBool::Unknown => TriBool::Unknown,
        }
    }

    /// One or both; the second is not asked where the first is yes.
    pub fn or(self, other: impl FnOnce() -> TriBool) -> TriBool {
        !(!self).and(|| !other())
    }

    /// This answer, or another where it is not known.
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
