//! An algebra of strided views: views of flat storage as values that can be compared, composed and
//! inverted.
//!
//! A *base* is a flat sequence of elements. A [`ViewSpec`] is an offset and, for each dimension, a
//! size and a stride, all in elements. It maps the multi-index `(i, j, …)` to the base position
//! `offset + i * stride_0 + j * stride_1 + …`, as `torch.as_strided` does. A view can itself serve
//! as a base: its *flat order* is the row-major order of its elements. CuTe's layout algebra has
//! similar operations: [`ViewSpec::canonical`] is its coalesce, [`ViewSpec::compose`] its
//! composition, and [`ViewSpec::inverse`] its inverse.
//!
//! ```text
//!   base, 12 elements                 0  1  2  3  4  5  6  7  8  9 10 11
//!
//!   v = 1 + (3, 4) (2, 2)             .  0  .  1  .  2  .  3  .  4  .  5     v's flat order
//!     sizes 3 x 2, strides 4 and 2       \_____/     \_____/     \_____/     rows 0, 1, 2
//!
//!   w = 0 + (3, 2), a view of v       .  0  .  .  .  1  .  .  .  2  .  .     the first column of v
//!
//!   v.compose(w)    = 1 + (3, 4)      w as a view of the base
//!   (1 + (3, 4)).relative(v) = w      the inverse of compose: a view of the base, as a view of v
//!   v.disjoint(0 + (6, 2))   = Yes    odd and even elements
//! ```
//!
//! ```
//! use maquette_ir::sym::{Expr, Range, SymTable, SymbolKind};
//! use maquette_ir::view::{TriBool, ViewOp, ViewSpec};
//!
//! // A key-value cache with 128 positions, `n` of which are filled.
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
//! # Canonical form
//!
//! Memory analysis compares sequences of elements, not shapes. [`ViewSpec::canonical`] drops
//! dimensions of size 1 and merges adjacent dimensions that form one longer dimension:
//! `(3, 4) (2, 2)` above becomes `(6, 2)`. All empty views have one canonical form. Views with
//! equal canonical forms have the same elements in the same order; for views of plain numbers the
//! converse also holds.
//!
//! # Symbolic sizes
//!
//! Offsets, sizes and strides are expressions of a [`SymTable`]. Queries use what the table can
//! [prove](SymTable::prove) from declared ranges and assumed facts, and never record a guard. A
//! symbol may be zero unless its range excludes zero. An empty view is disjoint from every view and
//! contained in every view.
//!
//! # Guarantees
//!
//! - [`TriBool::Yes`], [`TriBool::No`] and every returned view are correct for all values of the
//!   symbols allowed by ranges and facts, except values that make a size, stride or offset
//!   negative.
//! - For views of plain numbers with at most [`MAX_ENUMERATED`] elements, no query is
//!   [`TriBool::Unknown`], and `None` means that no such view exists (for [`ViewSpec::relative`]:
//!   if the containing view is injective). Larger views are decided too, unless their strides
//!   interleave in unusual ways.
//! - Answers depend only on the table and the operands. Nothing panics; an overflow of 64 bits
//!   gives `Unknown` or `None`.
//! - Queries on views of plain numbers with up to four dimensions allocate no memory, except for
//!   enumeration.
//!
//! # Algorithms
//!
//! Whether views `a` and `b` overlap is a dependence test: does
//! `first(a) + Σ s·x = first(b) + Σ t·y` have a solution within the sizes? Counting `b` backwards
//! turns the difference into a sum, `last(b) - first(a) = Σ s·x + Σ t·y'`. Disjointness, membership
//! and injectivity all reduce to this bounded linear Diophantine equation, which `diophantine`
//! decides with the classical tests of loop compilers: bounds (Banerjee), gcd, and delinearization
//! (Maslov 1992), which splits the equation at a stride into two shorter ones.
//!
//! Composition decomposes positions into mixed-radix digits: [`ViewSpec::compose`] is exact if no
//! digit carries. [`ViewSpec::relative`] constructs a candidate from digits and verifies it by
//! composition.

mod arith;
mod canonical;
mod chain;
mod compose;
mod concrete;
mod diophantine;
mod merge;
mod overlap;
mod positions;
mod relative;
mod search;
mod tribool;

pub use chain::{ViewChain, ViewOp};
pub use concrete::MAX_ENUMERATED;
pub use positions::StridedPositions;
pub use tribool::TriBool;

use crate::sym::{Expr, Rel, SymError, SymTable};
use arith::{ONE, SymArith, ZERO};
use smallvec::SmallVec;

/// A dimension of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// The number of elements along the dimension.
    pub size: Expr,
    /// The distance between consecutive elements in the base, in elements.
    pub stride: Expr,
}

/// Dimensions, outermost first.
pub type Dims = SmallVec<[Dim; 4]>;

/// A strided view of a flat base; see the [module documentation](self).
///
/// `==` compares the representation. [`ViewSpec::same`] compares the viewed elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewSpec {
    offset: Expr,
    dims: Dims,
}

/// The error of numbers that define no view.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// The numbers of sizes and strides differ.
    #[error("a view must have as many strides as sizes, found {sizes} sizes and {strides} strides")]
    Rank {
        /// The number of sizes.
        sizes: usize,
        /// The number of strides.
        strides: usize,
    },
    /// An offset, size or stride is negative for all values of the symbols.
    #[error("the {what} `{value}` of a view is negative")]
    Negative {
        /// The negative quantity: `offset`, `size` or `stride`.
        what: &'static str,
        /// The text of its value.
        value: Box<str>,
    },
    /// The number of elements, or the position of the last one, overflows 64 bits.
    #[error("the positions of a view's elements overflow 64 bits")]
    TooLarge,
}

impl From<SymError> for ViewError {
    fn from(_: SymError) -> ViewError {
        ViewError::TooLarge
    }
}

/// Row-major strides, the products of the inner sizes, or nothing if one overflows 64 bits.
///
/// Assumed facts do not simplify them, so the same sizes have the same strides in every table of a
/// graph.
pub(crate) fn row_major_strides(
    sizes: &[Expr],
    symbols: &mut SymTable,
) -> Option<SmallVec<[Expr; 4]>> {
    let mut strides = SmallVec::from_elem(ONE, sizes.len());
    SymArith(symbols).fill_row_major(sizes, &mut strides)?;
    Some(strides)
}

impl ViewSpec {
    /// The row-major contiguous view with these sizes, at offset 0.
    ///
    /// # Errors
    /// A size is negative, or the number of elements overflows 64 bits.
    pub fn contiguous(sizes: &[Expr], symbols: &mut SymTable) -> Result<ViewSpec, ViewError> {
        let strides = row_major_strides(sizes, symbols).ok_or(ViewError::TooLarge)?;
        ViewSpec::strided(ZERO, sizes, &strides, symbols)
    }

    /// The view with this offset and these sizes and strides, in elements, with known equalities
    /// applied. A stride `max(n, 1)`, where `n` is one of the sizes, becomes `n`: they differ only
    /// if the view is empty.
    ///
    /// # Errors
    /// The numbers of sizes and strides differ; an offset, size or stride is negative for all
    /// values of the symbols; or the number of elements or the last position overflows 64 bits.
    pub fn strided(
        offset: Expr,
        sizes: &[Expr],
        strides: &[Expr],
        symbols: &mut SymTable,
    ) -> Result<ViewSpec, ViewError> {
        let sizes: SmallVec<[Expr; 4]> = sizes.iter().map(|&size| symbols.simplify(size)).collect();
        let strides: SmallVec<[Expr; 4]> = strides
            .iter()
            .map(|&stride| match symbols.simplify(stride) {
                stride @ Expr::Id(_) => symbols.given_positive(stride, &sizes),
                number => number,
            })
            .collect();
        ViewSpec::exact(symbols.simplify(offset), &sizes, &strides, symbols)
    }

    /// The view with exactly these expressions: known equalities are not applied, so that the text
    /// of a view reads back as the same view.
    ///
    /// # Errors
    /// As [`ViewSpec::strided`].
    pub(crate) fn exact(
        offset: Expr,
        sizes: &[Expr],
        strides: &[Expr],
        symbols: &mut SymTable,
    ) -> Result<ViewSpec, ViewError> {
        if sizes.len() != strides.len() {
            return Err(ViewError::Rank { sizes: sizes.len(), strides: strides.len() });
        }
        let mut dims = Dims::with_capacity(sizes.len());
        for &size in sizes {
            not_negative("size", size, symbols)?;
        }
        for (&size, &stride) in sizes.iter().zip(strides) {
            not_negative("stride", stride, symbols)?;
            dims.push(Dim { size, stride });
        }
        not_negative("offset", offset, symbols)?;
        let spec = ViewSpec { offset, dims };
        let mut cx = SymArith(symbols);
        if !cx.is_empty(&spec.dims) {
            cx.numel(&spec.dims).and_then(|_| cx.last(&spec)).ok_or(ViewError::TooLarge)?;
        }
        Ok(spec)
    }

    /// The position of the first element in the base, in elements.
    pub const fn offset(&self) -> Expr {
        self.offset
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The sizes.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = Expr> + DoubleEndedIterator + '_ {
        self.dims.iter().map(|d| d.size)
    }

    /// The number of elements; `None` if it overflows.
    pub fn numel(&self, symbols: &mut SymTable) -> Option<Expr> {
        SymArith(symbols).numel(&self.dims)
    }

    /// The position of the last element, if the view is not empty; `None` if it overflows.
    pub fn last(&self, symbols: &mut SymTable) -> Option<Expr> {
        SymArith(symbols).last(self)
    }

    /// Whether the view has no elements.
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

    /// The canonical spec of an empty view with these sizes, one of which is zero.
    fn empty(sizes: impl Iterator<Item = Expr>) -> ViewSpec {
        ViewSpec { offset: ZERO, dims: sizes.map(|size| Dim { size, stride: ZERO }).collect() }
    }
}

/// Refuses an expression that is negative for all values of its symbols.
fn not_negative(what: &'static str, e: Expr, symbols: &mut SymTable) -> Result<(), ViewError> {
    match SymArith(symbols).known(e, Rel::Lt, ZERO) {
        TriBool::Yes => {
            Err(ViewError::Negative { what, value: symbols.display(e).to_string().into() })
        }
        _ => Ok(()),
    }
}
