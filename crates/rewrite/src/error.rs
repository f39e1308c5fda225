//! Why a program has no functional form.

use maquette_ir::Loc;
use maquette_ir::graph::BuildError;
use maquette_ir::view::ViewError;

/// A program that could not be made functional. Displays with the line of the program, where it is
/// known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{kind}", loc.map_or_else(String::new, |l| format!("{l}: ")))]
pub struct FunctionalizeError {
    /// The line of the program.
    pub loc: Option<Loc>,
    /// What is wrong.
    pub kind: Reason,
}

/// What is wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A tensor reaches elements of its storage that the tensor it comes from does not have.
    #[error(
        "{op} gives a view of elements that are not among those of the tensor its storage belongs \
            to ({viewed})"
    )]
    ViewOutOfBounds {
        /// The operator.
        op: String,
        /// The view.
        viewed: String,
    },
    /// Sizes that are no plain numbers leave open which elements of a storage a view has.
    #[error(
        "{op} gives a view of which the sizes do not tell the elements ({viewed}); make what it \
            views `contiguous` before, or its sizes plain"
    )]
    UnresolvedView {
        /// The operator.
        op: String,
        /// The view.
        viewed: String,
    },
    /// A result that the graph takes for a view has other elements than the tensor it would be a
    /// view of, or in another order.
    #[error(
        "{op} has to copy here: no view has the elements of its argument in this order; the graph \
            says so by `copy` behind the call"
    )]
    Copies {
        /// The operator.
        op: String,
    },
    /// A call names an argument that its operator does not have, or an operator that is not
    /// registered.
    #[error("{op} has no argument `{name}`")]
    Keyword {
        /// The operator.
        op: String,
        /// The argument.
        name: String,
    },
    /// An operator reads its argument's storage, and not just the argument.
    #[error(
        "{op} reads the storage of its argument; write to, or copy, an `as_strided` view instead"
    )]
    Storage {
        /// The operator.
        op: String,
    },
    /// A view of other elements than the storage was made of: its bytes are read as another dtype.
    #[error("{op} views {from} elements as {to}; write to a copy instead")]
    Reinterpreted {
        /// The operator.
        op: String,
        /// The storage's dtype.
        from: String,
        /// The view's.
        to: String,
    },
    /// An operator writes to a tensor some of whose elements share their place.
    #[error("{op} writes to a tensor whose elements overlap ({viewed})")]
    WriteToOverlappingView {
        /// The operator.
        op: String,
        /// The view.
        viewed: String,
    },
    /// Two arguments that an operator writes to share elements.
    #[error("{op} writes to two arguments that share elements")]
    AliasedMutableArgs {
        /// The operator.
        op: String,
    },
    /// Inputs that share memory have symbolic sizes.
    #[error(
        "inputs that share memory must have plain sizes: where they overlap decides what the \
            program does"
    )]
    SymbolicAliasing,
    /// Offsets, sizes or strides that make no view.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The result is no graph.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A fault of this pass.
    #[error("internal: {0}")]
    Internal(&'static str),
}

pub(crate) type Result<T> = std::result::Result<T, FunctionalizeError>;

impl<E: Into<Reason>> From<E> for FunctionalizeError {
    fn from(e: E) -> FunctionalizeError {
        FunctionalizeError { loc: None, kind: e.into() }
    }
}

impl FunctionalizeError {
    /// The same at a line, unless it has one.
    pub(crate) fn at(self, loc: Option<Loc>) -> FunctionalizeError {
        FunctionalizeError { loc: self.loc.or(loc), ..self }
    }
}
