//! Named dynamic dimensions.

use maquette_ir::sym::Range;
use std::fmt;

/// A dimension whose size may differ from call to call. Used at several places, the same name means
/// that the sizes are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    name: String,
    range: Range,
}

impl Dim {
    /// A size of at least 0, named in graphs as `name`: an identifier.
    pub fn new(name: impl Into<String>) -> Dim {
        Dim { name: name.into(), range: Range { lo: 0, hi: i64::MAX } }
    }

    /// The least size, 0 by default.
    pub fn min(mut self, min: i64) -> Dim {
        self.range.lo = min;
        self
    }

    /// The greatest size, unbounded by default.
    pub fn max(mut self, max: i64) -> Dim {
        self.range.hi = max;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sizes it may have.
    pub fn range(&self) -> Range {
        self.range
    }
}

/// As one writes it.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dim::new(\"{}\")", self.name)?;
        if self.range.lo != 0 {
            write!(f, ".min({})", self.range.lo)?;
        }
        if self.range.hi != i64::MAX {
            write!(f, ".max({})", self.range.hi)?;
        }
        Ok(())
    }
}
