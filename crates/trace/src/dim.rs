//! Named dynamic dimensions.

use maquette_ir::sym::Range;
use std::fmt;

/// A dimension whose size may differ between calls. All dimensions with one name have equal sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    name: String,
    range: Range,
}

impl Dim {
    /// A dimension of any size, 0 included. Graphs print its symbol as `name`, which must be an
    /// identifier.
    pub fn new(name: impl Into<String>) -> Dim {
        Dim { name: name.into(), range: Range { lo: 0, hi: i64::MAX } }
    }

    /// The smallest size; 0 by default.
    pub fn min(mut self, min: i64) -> Dim {
        self.range.lo = min;
        self
    }

    /// The largest size; unbounded by default.
    pub fn max(mut self, max: i64) -> Dim {
        self.range.hi = max;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The range of sizes.
    pub fn range(&self) -> Range {
        self.range
    }
}

/// The expression that creates the dimension.
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
