//! Source locations.

use std::fmt;
use std::panic::Location;

/// A line of source code: where an operator was called, a guard taken, an operator registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loc {
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl Loc {
    /// The caller's line, through every `#[track_caller]` in between.
    #[track_caller]
    pub fn caller() -> Loc {
        Location::caller().into()
    }
}

impl From<&'static Location<'static>> for Loc {
    fn from(l: &'static Location<'static>) -> Loc {
        Loc { file: l.file(), line: l.line() }
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
