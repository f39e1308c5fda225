//! Errors of exporting a program.

use maquette_ir::Loc;
use std::fmt;

/// A program that cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Two parameters or buffers have the same name.
    #[error(
        "duplicate tensor name `{name}` in the module; parameters and buffers must have distinct \
            names"
    )]
    SameName {
        /// The name.
        name: String,
    },
    /// A parameter or buffer has no contents to export.
    #[error(
        "the {slot} `{name}` {problem}; export needs the contents of all parameters and buffers"
    )]
    State {
        /// `parameter` or `buffer`.
        slot: &'static str,
        /// Its name.
        name: String,
        /// The reason in words: the state of the tensor.
        problem: String,
    },
    /// The program does not hold for all sizes that were declared dynamic.
    #[error("{}", constraints(.violations, .fixes))]
    Constraints {
        /// Each condition that excludes declared sizes, in program order.
        violations: Vec<Violation>,
        /// Suggested declarations.
        fixes: Vec<String>,
    },
}

/// A condition of the program that some of the sizes declared dynamic do not meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The dimensions in the condition, each with its name and its position in the inputs.
    pub dims: Vec<String>,
    /// The condition.
    pub guard: String,
    /// The source line where the program assumed the condition.
    pub loc: Loc,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: the program assumes `{}`, at {}",
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
        "the program is not valid for every size that is declared dynamic:{violations}\nsuggested \
            fixes:{fixes}"
    )
}
