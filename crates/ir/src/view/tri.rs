//! Answers that may not be known.

use std::ops::Not;

/// Whether something holds for all values that the symbols may have, for none, or it is not known which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tri {
    /// Always.
    Yes,
    /// Never.
    No,
    /// Not decided; perhaps sometimes.
    Unknown,
}

impl Tri {
    /// Whether it always holds.
    pub const fn is_yes(self) -> bool {
        matches!(self, Tri::Yes)
    }

    /// Whether it never holds.
    pub const fn is_no(self) -> bool {
        matches!(self, Tri::No)
    }

    /// Both; the second is not asked where the first is no.
    pub fn and(self, other: impl FnOnce() -> Tri) -> Tri {
        match self {
            Tri::No => Tri::No,
            Tri::Yes => other(),
            Tri::Unknown if other().is_no() => Tri::No,
            Tri::Unknown => Tri::Unknown,
        }
    }

    /// One or both; the second is not asked where the first is yes.
    pub fn or(self, other: impl FnOnce() -> Tri) -> Tri {
        !(!self).and(|| !other())
    }

    /// This answer, or another where it is not known.
    pub fn or_else(self, other: impl FnOnce() -> Tri) -> Tri {
        match self {
            Tri::Unknown => other(),
            known => known,
        }
    }
}

impl Not for Tri {
    type Output = Tri;
    fn not(self) -> Tri {
        match self {
            Tri::Yes => Tri::No,
            Tri::No => Tri::Yes,
            Tri::Unknown => Tri::Unknown,
        }
    }
}

impl From<bool> for Tri {
    fn from(b: bool) -> Tri {
        if b { Tri::Yes } else { Tri::No }
    }
}

impl From<Option<bool>> for Tri {
    fn from(b: Option<bool>) -> Tri {
        b.map_or(Tri::Unknown, Tri::from)
    }
}
