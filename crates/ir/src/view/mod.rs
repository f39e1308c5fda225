//! Views of flat storage, as values that can be compared, nested and inverted.
//!
//! A *base* is a flat sequence of elements. A [`ViewSpec`] is an offset and, for each dimension, a
//! size and a stride, in elements: it maps the multi-index `(i, j, …)` to the base index `offset +
//! i * stride_0 + j * stride_1 + …`. The view is a tensor of these sizes; taken as a base itself,
//! it is the flat sequence of its elements in row-major order.
//!
//! ```text
//!   base, 12 elements                 0  1  2  3  4  5  6  7  8  9 10 11
//!
//!   v = 1 + (3, 4) (2, 2)             .  0  .  1  .  2  .  3  .  4  .  5     the view's own flat order
//!     sizes 3 x 2, strides 4 and 2       \_____/     \_____/     \_____/     rows 0, 1, 2
//!
//!   w = 0 + (3, 2), a view of v       .  0  .  .  .  1  .  .  .  2  .  .     the first column of v
//!
//!   v.compose(w)    = 1 + (3, 4)      a view of v, as a view of the base
//!   (1 + (3, 4)).relative(v) = w      what lies in v, as a view of v
//!   v.disjoint(0 + (6, 2))   = Yes    odd and even elements
//! ```
//!
//! ```
//! use maquette_ir::sym::{Expr, Range, SymTable, SymbolKind};
//! use maquette_ir::view::{TriBool, ViewOp, ViewSpec};
//!
//! // A cache of 128 places, of which `n` are taken.
//! let mut symbols = SymTable::new();
//! let n = symbols.symbol("n", SymbolKind::Backed, Range::new(0, 127))?;
//! let n = symbols.expr(n);
//! let next = symbols.add(n, Expr::Int(1))?;
//! let cache = ViewSpec::contiguous(&[4, 128, 64].map(Expr::Int), &mut symbols)?;
//! let slice = |start, end| ViewOp::Slice { dim: 1, start, end, step: Expr::Int(1) };
//! let old = cache.apply(&slice(Expr::Int(0), n), &mut symbols).unwrap();
//! let new = cache.apply(&slice(n, next), &mut symbols).unwrap();
//! assert_eq!(old.disjoint(&new, &mut symbols), TriBool::Yes);
//! let chain = new.chain(&[4, 128, 64].map(Expr::Int), &mut symbols)?;
//! assert_eq!(chain.display(&symbols).to_string(), "slice 1 n:n + 1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Keys
//!
//! Sequences are what matters for memory: [`ViewSpec::canonical`] drops dimensions of size 1 and
//! joins neighbours that are one longer dimension (`(3, 4) (2, 2)` above is `(6, 2)`), and all
//! empty views become one. Specs with equal keys have the same elements of the base in the same
//! order, whatever their sizes; between specs of plain numbers the converse holds too.
//!
//! # Symbolic sizes
//!
//! Offsets, sizes and strides are expressions of a [`SymTable`]. Answers use what the table can
//! [prove](SymTable::prove): declared ranges and assumed facts; nothing is ever guarded. A symbol
//! may be zero unless its range says otherwise, and an empty view is disjoint from every view and
//! inside every view.
//!
//! # Guarantees
//!
//! - A [`TriBool::Yes`], a [`TriBool::No`] and every view returned are right for all values that
//!   the symbols may have by ranges and facts, those excepted for which a size, stride or offset is
//!   negative.
//! - With plain numbers, and views of at most [`MAX_ENUMERATED`] elements, nothing is
//!   [`TriBool::Unknown`], and `None` means that there is no such view (for [`ViewSpec::relative`],
//!   of a view that has no element twice). Larger ones are decided too, unless their strides
//!   interlock in unusual ways.
//! - Answers depend on the table and the operands alone. Nothing panics; what overflows 64 bits is
//!   not known.
//! - Between views of up to four dimensions of plain numbers, no memory is allocated, enumeration
//!   apart.
//!
//! # How it is decided
//!
//! Two views `a` and `b` overlap where `first(a) + Σ s·x = first(b) + Σ t·y`. Counting `b`
//! backwards makes this a sum of steps: `last(b) - first(a) = Σ s·x + Σ t·y'`, and the same
//! question, *is a number a sum of so many of these steps*, decides disjointness, membership and
//! injectivity. It is split at a stride `t`: multiples of `t` on one side, what is smaller on the
//! other, each a shorter question of its own, as with the digits of a number; intervals and
//! residues end it. Positions are taken apart into digits too where one view is expressed in
//! another: [`ViewSpec::compose`] is right if no digit carries, and [`ViewSpec::relative`] proposes
//! a view that composition then confirms.

mod arith;
mod canonical;
mod chain;
mod compose;
mod concrete;
mod diophantine;
mod merge;
mod overlap;
mod relative;
mod search;
mod tribool;

pub use chain::{ViewChain, ViewOp};
pub use concrete::MAX_ENUMERATED;
pub use tribool::TriBool;

use crate::sym::{Expr, Rel, SymError, SymTable};
use arith::{ONE, SymArith, ZERO};
use smallvec::SmallVec;

/// A dimension of a view, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// How many elements lie along it.
    pub size: Expr,
    /// The distance of neighbours in the base.
    pub stride: Expr,
}

/// Dimensions, the outermost first.
pub type Dims = SmallVec<[Dim; 4]>;

/// A strided view of a flat base. See the [module's page](self).
///
/// `==` compares spelling; [`ViewSpec::same`] compares what is viewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewSpec {
    offset: Expr,
    dims: Dims,
}

/// Numbers that make no view.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// Sizes and strides are not one for one.
    #[error("a view needs a stride for each size; there are {sizes} sizes and {strides} strides")]
    Rank {
        /// How many sizes.
        sizes: usize,
        /// How many strides.
        strides: usize,
    },
    /// An offset, size or stride that cannot be zero or more.
    #[error("the {what} `{value}` of a view is negative")]
    Negative {
        /// `offset`, `size` or `stride`.
        what: &'static str,
        /// Its text.
        value: Box<str>,
    },
    /// The number of elements, or the position of the last one, does not fit.
    #[error("a view's positions do not fit into 64 bits")]
    TooLarge,
}

impl From<SymError> for ViewError {
    fn from(_: SymError) -> ViewError {
        ViewError::TooLarge
    }
}

impl ViewSpec {
    /// The whole of a contiguous tensor: offset 0, row-major.
    ///
    /// # Errors
    /// A negative size, or more elements than 64 bits can count.
    pub fn contiguous(sizes: &[Expr], symbols: &mut SymTable) -> Result<ViewSpec, ViewError> {
        let mut strides: SmallVec<[Expr; 4]> = SmallVec::from_elem(ONE, sizes.len());
        let mut next = ONE;
        for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
            *stride = next;
            next = SymArith(symbols).mul(next, size).ok_or(ViewError::TooLarge)?;
        }
        ViewSpec::strided(ZERO, sizes, &strides, symbols)
    }

    /// By offset, sizes and strides, in elements. Known equalities are applied; a stride `max(n,
    /// 1)`, where `n` is one of the sizes, becomes `n`, as it differs in empty views only.
    ///
    /// # Errors
    /// As many strides as sizes are needed; none of the numbers is negative for all values of the
    /// symbols; what can be computed of the number of elements and the last position fits into 64
    /// bits.
    pub fn strided(
        offset: Expr,
        sizes: &[Expr],
        strides: &[Expr],
        symbols: &mut SymTable,
    ) -> Result<ViewSpec, ViewError> {
        if sizes.len() != strides.len() {
            return Err(ViewError::Rank { sizes: sizes.len(), strides: strides.len() });
        }
        let mut dims = Dims::with_capacity(sizes.len());
        let sizes = sizes
            .iter()
            .map(|&size| not_negative("size", size, symbols))
            .collect::<Result<SmallVec<[Expr; 4]>, _>>()?;
        for (&size, &stride) in sizes.iter().zip(strides) {
            let stride = match symbols.simplify(stride) {
                stride @ Expr::Id(_) => symbols.given_positive(stride, &sizes),
                number => number,
            };
            dims.push(Dim { size, stride: not_negative("stride", stride, symbols)? });
        }
        let spec = ViewSpec { offset: not_negative("offset", offset, symbols)?, dims };
        let mut cx = SymArith(symbols);
        if !cx.is_empty(&spec.dims) {
            cx.numel(&spec.dims).and_then(|_| cx.last(&spec)).ok_or(ViewError::TooLarge)?;
        }
        Ok(spec)
    }

    /// The position of the first element in the base.
    pub const fn offset(&self) -> Expr {
        self.offset
    }

    /// Sizes and strides.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The tensor's sizes.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = Expr> + DoubleEndedIterator + '_ {
        self.dims.iter().map(|d| d.size)
    }

    /// The number of elements; `None` if it overflows.
    pub fn numel(&self, symbols: &mut SymTable) -> Option<Expr> {
        SymArith(symbols).numel(&self.dims)
    }

    /// The position of the last element, if there are any; `None` if it overflows.
    pub fn last(&self, symbols: &mut SymTable) -> Option<Expr> {
        SymArith(symbols).last(self)
    }

    /// Whether there is no element.
    pub fn is_empty(&self, symbols: &mut SymTable) -> TriBool {
        let mut cx = SymArith(symbols);
        if cx.is_empty(&self.dims) {
            TriBool::Yes
        } else if cx.is_nonempty(&self.dims) {
            TriBool::No
        } else {
            TriBool::Unknown
        }
    }

    /// No element, but these sizes; one of them is zero.
    fn empty(sizes: impl Iterator<Item = Expr>) -> ViewSpec {
        ViewSpec { offset: ZERO, dims: sizes.map(|size| Dim { size, stride: ZERO }).collect() }
    }
}

/// The number, known equalities applied; an error if it is negative for all values.
fn not_negative(what: &'static str, e: Expr, symbols: &mut SymTable) -> Result<Expr, ViewError> {
    let e = symbols.simplify(e);
    match SymArith(symbols).known(e, Rel::Lt, ZERO) {
        TriBool::Yes => {
            Err(ViewError::Negative { what, value: symbols.display(e).to_string().into() })
        }
        _ => Ok(e),
    }
}
