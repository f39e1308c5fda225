//! The holders of borrows, as error messages name them.

use crate::library::Op;
use maquette_ir::Loc;
use std::fmt;
use std::sync::Arc;

/// The holder of a borrow, for error messages. The text is formatted only for a conflict.
#[derive(Clone)]
pub(crate) enum Holder {
    /// An argument of an operator call.
    Argument { op: Op, index: u16 },
    /// A guard from `read()` or `write()`.
    Guard(Loc),
    /// User code that was given the tensor as a gradient.
    Gradient(GivenTo),
    /// A tensor of a run. Shared, because each storage has room for one holder, and later runs
    /// have the same inputs.
    Run(Arc<RunInput>),
}

/// The user code that is given a gradient: `the derivative of ns::f at model.rs:7`.
#[derive(Clone)]
pub(crate) struct GivenTo {
    /// `the derivative` or `a hook`.
    pub(crate) role: &'static str,
    /// The operator of the call.
    pub(crate) op: Arc<str>,
    /// The line of the call.
    pub(crate) called: Loc,
}

impl fmt::Display for GivenTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {}", self.role, self.op, self.called)
    }
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
            Holder::Gradient(to) => {
                format!("{to} was given the tensor as a gradient, as others may be, and")
            }
            Holder::Run(input) => {
                format!("{} `{}` of the run at {}", input.role, input.name, input.loc)
            }
        }
    }

    /// The borrowed item, for messages: the argument's name, or `the tensor`.
    pub(super) fn subject(&self) -> String {
        match self {
            Holder::Argument { op, index } => op.arg_name(usize::from(*index)).to_owned(),
            Holder::Guard(_) | Holder::Gradient(_) => "the tensor".to_owned(),
            Holder::Run(input) => input.name.to_string(),
        }
    }
}
