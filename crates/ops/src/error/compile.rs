//! Errors of compiled functions.

use maquette_ir::Loc;
use std::fmt;

/// A call for which no program is compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// An input requires a gradient.
    #[error(
        "input `{input}` requires a gradient, and a compiled function computes none; compile the \
            function with its gradient, `compile(value_and_grad(f))`, or pass a tensor that does \
            not require one"
    )]
    RequiresGrad {
        /// The input's name.
        input: String,
    },
    /// The call is inside `autocast`, which a compiled program does not depend on.
    #[error(
        "a compiled function is called inside `autocast`, and its programs would be those of the \
            first call's precision; call `autocast` in the function that is compiled"
    )]
    Autocast,
    /// The function was compiled as often as it may be.
    #[error(
        "`{name}` is compiled {limit} times already, which is its recompile limit, and none of the \
            programs fits this call:{}\n{}raise the limit (`CompileOptions::recompile_limit`), or \
            call the function eagerly (`Stance::EagerOnRecompile`)", list(.failures),
        remedies(.failures)
    )]
    RecompileLimit {
        /// The function's name.
        name: String,
        /// The limit.
        limit: usize,
        /// For each program: the guard that fails.
        failures: Vec<GuardFailure>,
    },
    /// The stance forbids another compilation.
    #[error(
        "`{name}` would be compiled again, which its stance `FailOnRecompile` forbids:{}",
        list(.failures)
    )]
    Recompile {
        /// The function's name.
        name: String,
        /// For each program: the guard that fails.
        failures: Vec<GuardFailure>,
    },
    /// A mark does not fit the inputs.
    #[error("{0}")]
    Mark(String),
}

/// A condition of a compiled program that a call does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardFailure {
    /// The number of the program, in order of compilation.
    pub program: usize,
    /// What the program requires: ``size 0 of `x` is 4``.
    pub required: String,
    /// What the call has instead.
    pub found: String,
    /// The line of the function that made the requirement, if a line did.
    pub loc: Option<Loc>,
    /// How the inputs could be given so that one program serves them all, if there is a way.
    pub remedy: Option<Remedy>,
}

/// How one program can serve inputs that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// A size or a stride differs: make the size a symbol.
    DynamicSize,
    /// The function requires one number of a size: keep the size as a symbol.
    SizeAsSymbol,
    /// A float is part of the program: pass a tensor.
    FloatAsTensor,
    /// An integer is part of the program: take a symbolic one.
    IntegerAsSymbol,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::DynamicSize => {
                "make the sizes that vary dynamic from the first call (`CompileOptions::dynamic`)"
            }
            Remedy::SizeAsSymbol => {
                "compute with the `SymInt` where the function requires one number of it (as \
                    `guard_int` does)"
            }
            Remedy::FloatAsTensor => {
                "pass a float that varies as a 0-d tensor (as `Tensor::scalar(0.5f32)` makes one)"
            }
            Remedy::IntegerAsSymbol => "take an integer that varies as a `SymInt`",
        })
    }
}

impl fmt::Display for GuardFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} requires: {}; found {}", self.program, self.required, self.found)?;
        match self.loc {
            Some(loc) => write!(f, " (required at {loc})"),
            None => Ok(()),
        }
    }
}

/// What could be done in place of another program, before the last ways.
fn remedies(failures: &[GuardFailure]) -> String {
    let mut remedies: Vec<Remedy> = Vec::new();
    for remedy in failures.iter().filter_map(|failure| failure.remedy) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    remedies.iter().map(|remedy| format!("{remedy}, ")).collect()
}

fn list(failures: &[GuardFailure]) -> String {
    failures.iter().map(|failure| format!("\n  - {failure}")).collect()
}
