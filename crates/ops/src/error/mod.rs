//! Errors: one enum per stage ([`ErrorKind`]), and one carrier ([`Error`]) that adds the operator,
//! the caller's line and an excerpt of the graph.

mod access;
mod autograd;
mod call;
mod compile;
mod export;
mod register;
mod run;
mod trace;

pub use access::AccessError;
pub use autograd::AutogradError;
pub use call::CallError;
pub use compile::{CompileError, GuardFailure, Remedy};
pub use export::{ExportError, Violation};
pub use register::RegisterError;
pub use run::RunError;
pub use trace::{FakeError, TraceError};

use maquette_device::{Fault, KernelError, Origin};
use maquette_ir::schema::SchemaError;
use maquette_ir::sym::SymError;
use maquette_ir::typing::TypingError;
use maquette_ir::{Device, Loc};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its context. Cheap to clone: a poisoned tensor carries one.
#[derive(Clone)]
pub struct Error(Arc<Report>);

#[derive(Clone)]
struct Report {
    kind: Arc<ErrorKind>,
    /// Each operator call the error passed through, with the line of the call; innermost first,
    /// since a kernel may call other operators.
    calls: SmallVec<[(Arc<str>, Loc); 1]>,
    /// The user's source line that raised the error, if any.
    raised: Option<Loc>,
    /// The path of the module in whose code the call is, if a trace knows it.
    scope: Option<Arc<str>>,
    statement: Option<FailedStatement>,
}

/// The statement of a graph that failed.
#[derive(Clone)]
struct FailedStatement {
    /// Its position in the graph's body.
    index: usize,
    /// The statements around it, as text.
    window: Arc<str>,
}

/// What went wrong, by stage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A schema string or a signature that has no schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A registration was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A call was refused, or a kernel broke its contract.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Reading or writing a tensor's data was refused.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Sizes, strides or dtypes that do not fit together.
    #[error(transparent)]
    Typing(#[from] TypingError),
    /// A kernel of a builtin operator refused its operands.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A fake kernel is missing or broke its contract.
    #[error(transparent)]
    Fake(#[from] FakeError),
    /// A traced tensor was misused.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A symbolic integer: a guard, an assertion, arithmetic.
    #[error(transparent)]
    Guard(#[from] SymError),
    /// A program cannot be exported as it was asked for.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A program cannot be compiled for a call, or must not be.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A gradient cannot be computed.
    #[error(transparent)]
    Autograd(#[from] AutogradError),
    /// A graph did not run as it was traced.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A graph breaks an invariant.
    #[error(transparent)]
    Verify(#[from] maquette_ir::graph::VerifyError),
    /// A graph's text does not parse.
    #[error(transparent)]
    Parse(#[from] maquette_ir::graph::ParseError),
    /// An argument's value an operator cannot take.
    #[error("{0}")]
    Value(String),
    /// Raised by a kernel, a fake kernel or model code.
    #[error("{0}")]
    Message(String),
    /// Raised by a kernel, a fake kernel or model code.
    #[error("{0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An error of a kernel, a fake kernel or model code.
    #[track_caller]
    pub fn msg(message: impl fmt::Display) -> Error {
        Error::from(ErrorKind::Message(message.to_string())).at(Loc::caller())
    }

    /// Wraps any error.
    #[track_caller]
    pub fn other(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::from(ErrorKind::Other(e.into())).at(Loc::caller())
    }

    /// An argument's value an operator cannot take.
    pub fn value(message: impl fmt::Display) -> Error {
        Error::from(ErrorKind::Value(message.to_string()))
    }

    /// What went wrong, by stage.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The operator that failed, where one was called.
    pub fn op(&self) -> Option<&str> {
        self.0.calls.first().map(|(op, _)| &**op)
    }

    /// The line to look at: the caller's, or where the error was raised.
    pub fn loc(&self) -> Option<Loc> {
        self.0.calls.first().map(|(_, loc)| *loc).or(self.0.raised)
    }

    /// The path of the module in whose code the call is that failed, as `encoder.layers.0`. Known
    /// while a program is traced, and in runs of what was traced.
    pub fn scope(&self) -> Option<&str> {
        self.0.scope.as_deref()
    }

    /// The few lines of graph around the failing node.
    pub fn window(&self) -> Option<&str> {
        self.0.statement.as_ref().map(|s| &*s.window)
    }

    /// The position in the graph's body of the failing statement, where a graph failed.
    pub fn statement(&self) -> Option<usize> {
        self.0.statement.as_ref().map(|s| s.index)
    }

    /// The same error raised at this line, unless it names one already.
    pub fn at(self, loc: Loc) -> Error {
        self.edit(|r| {
            r.raised.get_or_insert(loc);
        })
    }

    /// The same error in the code of this module, unless it names one already.
    pub fn in_scope(self, scope: Option<&str>) -> Error {
        match scope {
            Some(scope) if !scope.is_empty() && self.0.scope.is_none() => {
                self.edit(|r| r.scope = Some(scope.into()))
            }
            _ => self,
        }
    }

    /// The error of a device. That of a kernel names the operator and the line of its launch, if
    /// they are known. Without a line of its own the launch has that of the run.
    pub(crate) fn of_fault(device: Device, fault: Fault, call_site: Option<Loc>) -> Error {
        match fault {
            Fault::Kernel { error, origin } => {
                let origin = origin.as_deref();
                match origin.and_then(|Origin { op, loc }| Some((op, loc.or(call_site)?))) {
                    Some((op, loc)) => Error::from(error).in_call(op, loc),
                    None => error.into(),
                }
            }
            other => AccessError::Fault(device, other).into(),
        }
    }

    /// The same error in a call of this operator. Calls nest: a kernel may call others.
    pub fn in_call(self, op: &Arc<str>, loc: Loc) -> Error {
        self.edit(|r| r.calls.push((op.clone(), loc)))
    }

    /// The same error in a call of `to`, if its outermost call is of `from`: the program called
    /// `to`, for which a graph has `from`.
    pub fn called_as(self, from: &str, to: &str) -> Error {
        if from == to {
            return self;
        }
        self.edit(|r| {
            if let Some((op, _)) = r.calls.last_mut().filter(|(op, _)| **op == *from) {
                *op = to.into();
            }
        })
    }

    /// The same error in this statement of a graph, with a window of the graph around the
    /// statement, unless it names one already.
    pub fn in_statement(self, index: usize, window: impl Into<Arc<str>>) -> Error {
        self.edit(|r| {
            r.statement.get_or_insert_with(|| FailedStatement { index, window: window.into() });
        })
    }

    /// The same error of another kind, in other words.
    pub(crate) fn with_kind(self, kind: impl Into<ErrorKind>) -> Error {
        let kind = Arc::new(kind.into());
        self.edit(|r| r.kind = kind)
    }

    fn edit(mut self, f: impl FnOnce(&mut Report)) -> Error {
        f(Arc::make_mut(&mut self.0));
        self
    }

    /// Whether both are the same occurrence: the kind is shared, not merely equal.
    pub fn is_same(&self, other: &Error) -> bool {
        Arc::ptr_eq(&self.0.kind, &other.0.kind)
    }
}

impl<E: Into<ErrorKind>> From<E> for Error {
    fn from(e: E) -> Error {
        let kind = e.into();
        // a poisoned SymInt carries the error of the tensor it came from: the first cause stays
        // visible
        if let ErrorKind::Guard(g) = &kind
            && let Some(e) = g.poison_cause().and_then(|cause| cause.downcast_ref::<Error>())
        {
            return e.clone();
        }
        Error(Arc::new(Report {
            kind: Arc::new(kind),
            calls: SmallVec::new(),
            raised: None,
            scope: None,
            statement: None,
        }))
    }
}

impl From<ndarray::ShapeError> for ErrorKind {
    fn from(e: ndarray::ShapeError) -> ErrorKind {
        ErrorKind::Other(Box::new(e))
    }
}

impl From<std::io::Error> for ErrorKind {
    fn from(e: std::io::Error) -> ErrorKind {
        ErrorKind::Other(Box::new(e))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = self.op() {
            write!(f, "{op}: ")?;
        }
        write!(f, "{}", self.0.kind)?;
        match (self.0.raised, self.0.calls.first()) {
            (Some(raised), Some((_, called))) if raised != *called => {
                write!(f, "\n  raised at {raised}\n  called at {called}")?
            }
            (_, Some(&(_, loc))) | (Some(loc), None) => write!(f, "\n  at {loc}")?,
            (None, None) => {}
        }
        if let Some(scope) = self.scope() {
            write!(f, "{}in {scope}", if self.loc().is_some() { " " } else { "\n  " })?;
        }
        for (op, loc) in self.0.calls.iter().skip(1) {
            write!(f, "\n  in {op}, called at {loc}")?;
        }
        if let Some(window) = self.window() {
            write!(f, "\n{window}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    /// As `Display`, so that `fn main() -> Result<()>` prints what a person can read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0.kind)
    }
}

/// Returns an [`Error`] with a formatted message from the surrounding function.
#[macro_export]
macro_rules! bail {
    ($($arg:tt)*) => {
        return ::std::result::Result::Err($crate::Error::msg(::std::format!($($arg)*)))
    };
}

/// Returns an [`Error`] from the surrounding function unless the condition holds; the message
/// defaults to the condition.
#[macro_export]
macro_rules! ensure {
    ($cond:expr $(,)?) => { $crate::ensure!($cond, "expected `{}`", ::std::stringify!($cond)) };
    ($cond:expr, $($arg:tt)*) => { if !$cond { $crate::bail!($($arg)*); } };
}
