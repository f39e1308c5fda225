//! Why a program has no functional form.

use maquette_ir::Loc;
use maquette_ir::graph::{BuildError, Graph, Redefined, Stmt};
use maquette_ir::view::ViewError;
use std::fmt;

/// A program that has no functional form.
///
/// Displays as the line of the program, where one is known, the reason, and a window of the graph
/// around the refused statement.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{kind}{}", self.line_prefix(), self.window_suffix())]
pub struct FunctionalizeError {
    /// The reason.
    pub kind: Reason,
    /// The statement that is refused. `None`: the fault is in the graph's inputs or results.
    pub statement: Option<Box<StatementContext>>,
}

/// The statement that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementContext {
    /// Its position in the graph's body.
    pub index: usize,
    /// The line of the program that recorded it.
    pub loc: Option<Loc>,
    /// The path of the module in whose code it is.
    pub scope: Option<Box<str>>,
    /// The statements around it, as [`Graph::window_at`] shows them.
    pub window: String,
}

/// How many statements a window shows before and after the refused one.
const WINDOW_RADIUS: usize = 2;

/// Why a program is refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A view has elements that lie outside the tensor which owns the storage.
    #[error(
        "{op} returns a view that exceeds the tensor that owns the storage ({viewed}); only inputs \
            of static sizes may be viewed beyond their elements"
    )]
    ViewOutOfBounds {
        /// The operator.
        op: String,
        /// The view.
        viewed: String,
    },
    /// The elements of a view depend on symbols in a way that the view algebra cannot express.
    #[error(
        "{op}: cannot determine the view's elements from its symbolic sizes ({viewed}); call \
            `contiguous` on the viewed tensor first, or trace with static sizes"
    )]
    UnresolvedView {
        /// The operator.
        op: String,
        /// The view.
        viewed: String,
    },
    /// The graph declares a result as a view of an argument, and no view has its dtype or its
    /// elements.
    #[error(
        "{op} must copy ({why}), but the graph declares its result as a view; write `copy` after \
            the call"
    )]
    Copies {
        /// The operator.
        op: String,
        /// Why no view will do.
        why: CopyCause,
    },
    /// Only a kernel knows which elements a view has.
    #[error(
        "{op} returns a view, and only its kernel knows of which elements: {why}; the program can \
            run as it was traced"
    )]
    UnknownView {
        /// The operator.
        op: String,
        /// Why nothing else does.
        why: UnknownView,
    },
    /// A symbol is bound from a size of a view. A functional program must know the sizes of a view
    /// before it makes the view.
    #[error(
        "{op} returns an argument, or a view of one, whose size `{symbol}` is known only from the \
            result itself; compute the size before the call, or return a copy"
    )]
    SizeFromView {
        /// The operator.
        op: String,
        /// The symbol.
        symbol: String,
    },
    /// A call gives an argument by a name that its operator does not have, or by any name where the
    /// operator is not registered.
    #[error("{op} has no argument `{name}`")]
    Keyword {
        /// The operator.
        op: String,
        /// The argument.
        name: String,
    },
    /// An operator has another schema than when the graph was made.
    #[error(transparent)]
    Redefined(#[from] Redefined),
    /// An operator reads elements of its argument's storage outside the argument.
    #[error(
        "{op} reads its argument's storage beyond the argument's elements; write to an \
            `as_strided` view, or copy it, instead"
    )]
    Storage {
        /// The operator.
        op: String,
    },
    /// A view reads the bytes of a storage as another dtype.
    #[error(
        "{op} views {from} elements as {to}, which a functional graph cannot express; convert the \
            values with `to_dtype`, or make the view outside of the program and pass it as an input"
    )]
    Reinterpreted {
        /// The operator.
        op: String,
        /// The storage's dtype.
        from: String,
        /// The view's.
        to: String,
    },
    /// `Options::sharing` names inputs that cannot share memory.
    #[error("`sharing`: {0}")]
    InvalidSharing(String),
    /// `Options::only` names a rule that does not exist.
    #[error(
        "`only`: there is no rule `{name}`{}; `rules` lists the names",
        .similar.map(|s| format!(" (similar: {s})")).unwrap_or_default()
    )]
    UnknownRule {
        /// The name.
        name: String,
        /// A rule with a similar name.
        similar: Option<&'static str>,
    },
    /// Inputs that share memory have different dtypes.
    #[error(
        "the inputs `{first}` ({from}) and `{second}` ({to}) share memory, but have different \
            dtypes"
    )]
    SharedDtypes {
        /// One input.
        first: String,
        /// Its dtype.
        from: String,
        /// The other.
        second: String,
        /// Its dtype.
        to: String,
    },
    /// An operator writes to a tensor of which several indices name one element of memory.
    #[error(
        "{op} writes to a tensor that overlaps itself ({viewed}): several of its elements are one \
            element of memory, which would be written more than once; write to a copy \
            (`contiguous()`) instead"
    )]
    WriteToOverlappingView {
        /// The operator.
        op: String,
        /// The view.
        viewed: String,
    },
    /// Two arguments that an operator writes to share elements.
    #[error("{op} writes to two arguments that share elements; copy one of them first")]
    AliasedMutableArgs {
        /// The operator.
        op: String,
    },
    /// Inputs that share memory have symbolic sizes.
    #[error(
        "inputs that share memory must have static sizes: the program's results depend on which \
            elements they share"
    )]
    SymbolicAliasing,
    /// Offsets, sizes or strides that make no view.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The result is not a graph.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The arguments or results of a call are not those of its operator.
    #[error("{op}: {detail}; `check_calls` compares calls with their operators")]
    Malformed {
        /// The operator.
        op: String,
        /// What is wrong.
        detail: &'static str,
    },
    /// A size, a stride or an offset needs more than 64 bits.
    #[error("{0} overflow 64-bit integers")]
    Overflow(&'static str),
    /// A fault of this pass.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// Why only a kernel knows which elements a view has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownView {
    /// A registration overrides a builtin operator.
    Overridden,
    /// The view may have elements that its tensor does not have. A functional graph cannot compare
    /// the view with the promise of the fake kernel, because values have no memory around them.
    ExceedsBase,
    /// The argument that it views is a list of several tensors.
    OneOfSeveral,
    /// The strides depend on data, so that a functional graph does not know them.
    Strides,
}

impl fmt::Display for UnknownView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnknownView::Overridden => {
                "a registration overrides the operator, or one that it calls"
            }
            UnknownView::ExceedsBase => "the view may exceed the tensor",
            UnknownView::OneOfSeveral => "the view may be of any tensor in a list",
            UnknownView::Strides => "its strides depend on data",
        })
    }
}

/// Why a result that a graph declares as a view has to be a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyCause {
    /// It has another dtype.
    DType,
    /// It has other elements, or the same in another order.
    Elements,
    /// The call says `copy=true`.
    Requested,
}

impl fmt::Display for CopyCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyCause::DType => "the result has another dtype",
            CopyCause::Elements => "no view has these elements in this order",
            CopyCause::Requested => "it is called with `copy=true`",
        })
    }
}

pub(crate) type Result<T> = std::result::Result<T, FunctionalizeError>;

impl<E: Into<Reason>> From<E> for FunctionalizeError {
    fn from(e: E) -> FunctionalizeError {
        FunctionalizeError { kind: e.into(), statement: None }
    }
}

impl FunctionalizeError {
    /// The line of the program, where it is known.
    pub fn loc(&self) -> Option<Loc> {
        self.statement.as_ref().and_then(|s| s.loc)
    }

    /// The statements around the refused one; empty if none is refused.
    pub fn window(&self) -> &str {
        self.statement.as_ref().map_or("", |s| s.window.trim_end())
    }

    /// The same error about the `index`-th statement of a graph, unless it names one already.
    pub(crate) fn at_statement(self, graph: &Graph, index: usize) -> FunctionalizeError {
        let statement = self.statement.or_else(|| {
            let loc = graph.body().get(index).and_then(|s| match *s {
                Stmt::Node(node) => graph.loc(node),
                Stmt::Bind { .. } | Stmt::Assert { .. } => None,
            });
            let window = graph.window_at(index, WINDOW_RADIUS);
            let scope = graph.stmt_scope(index).map(Into::into);
            Some(Box::new(StatementContext { index, loc, scope, window }))
        });
        FunctionalizeError { statement, ..self }
    }

    fn line_prefix(&self) -> String {
        let scope = self.statement.as_ref().and_then(|s| s.scope.as_deref());
        let scope = scope.map_or_else(String::new, |scope| format!(" in {scope}"));
        self.loc().map_or_else(String::new, |l| format!("{l}{scope}: "))
    }

    fn window_suffix(&self) -> String {
        if self.window().is_empty() { String::new() } else { format!("\n{}", self.window()) }
    }
}
