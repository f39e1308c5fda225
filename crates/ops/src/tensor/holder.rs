//! The holders of borrows, as error messages name them.

use crate::library::Op;
use maquette_ir::Loc;
use std::sync::Arc;

/// The holder of a borrow, for error messages. The text is formatted only for a conflict.
#[derive(Clone)]
pub(crate) enum Holder {
    /// An argument of an operator call.
    Argument { op: Op, index: u16 },
    /// A guard from `read()` or `write()`.
    Guard(Loc),
    /// A tensor of a run. Shared, because each storage has room for one holder, and later runs
    /// have the same inputs.
    Run(Arc<RunInput>),
}

/// A tensor that a run accesses, and the line that started the run, for error messages.
#[derive(Clone, Debug)]
pub struct RunInput {
    /// What it is to the run: `input` or `output`.
    pub role: &'static str,
    /// The name of the input or output.
    pub name: Arc<str>,
    /// The line that started the run.
    pub loc: Loc,
}

impl Holder {
    pub(super) fn describe(&self) -> String {
        match self {
            Holder::Argument { op, index } => {
                format!("argument `{}` of {}", op.arg_name(usize::from(*index)), op.name())
            }
            Holder::Guard(loc) => format!("the guard taken at {loc}"),
            Holder::Run(input) => {
                format!("{} `{}` of the run at {}", input.role, input.name, input.loc)
            }
        }
    }

    /// The borrowed item, for messages: the argument's name, or `the tensor`.
    pub(super) fn subject(&self) -> String {
        match self {
            Holder::Argument { op, index } => op.arg_name(usize::from(*index)).to_owned(),
            Holder::Guard(_) => "the tensor".to_owned(),
            Holder::Run(input) => input.name.to_string(),
        }
    }
}
