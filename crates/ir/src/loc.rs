//! Source locations.

use std::fmt;
use std::panic::Location;

/// A line of source code: the location of an operator call, a guard or a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loc {
    /// The file path, as the compiler reports it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl Loc {
    /// The caller's line, seen through every `#[track_caller]` function in between.
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
