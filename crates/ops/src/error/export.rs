//! What goes wrong when a program is exported.

use maquette_ir::Loc;
use std::fmt;

/// Why a program cannot be exported as it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Two tensors of one name.
    #[error("the module names two tensors `{name}`; a parameter or buffer has a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// A parameter or buffer that has no contents to export.
    #[error(
        "the {slot} `{name}` {problem}; a program is exported with the contents of its parameters \
            and buffers"
    )]
    State {
        /// `parameter` or `buffer`.
        slot: &'static str,
        /// Its name.
        name: String,
        /// What it is instead.
        problem: String,
    },
    /// The program does not take all sizes that were declared.
    #[error("{}", constraints(.violations, .fixes))]
    Constraints {
        /// Each condition that leaves sizes out, in the program's order.
        violations: Vec<Violation>,
        /// What to declare instead.
        fixes: Vec<String>,
    },
}

/// A condition on sizes that were declared dynamic, which some of the declared sizes do not meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The dimensions it is about: each as declared, and where.
    pub dims: Vec<String>,
    /// The condition.
    pub guard: String,
    /// The line of the program that took it.
    pub loc: Loc,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: the program takes `{}` for granted, at {}",
            self.dims.join(" and "),
            self.guard,
            self.loc
        )
    }
}

fn constraints(violations: &[Violation], fixes: &[String]) -> String {
    let lines = |of: &mut dyn Iterator<Item = String>| {
        of.map(|line| format!("\n  - {line}")).collect::<String>()
    };
    let violations = lines(&mut violations.iter().map(ToString::to_string));
    let fixes = lines(&mut fixes.iter().cloned());
    format!(
        "the program does not hold for every size that was declared \
            dynamic:{violations}\nsuggested fixes:{fixes}"
    )
}
