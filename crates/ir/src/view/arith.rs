//! Arithmetic and proofs on sizes: plain numbers directly, other expressions through the symbol
//! table.

use super::{Dim, TriBool, ViewSpec};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::{Expr, Rel, SymTable, SymbolId};
use crate::typing::fill_dense_strides;

pub(super) const ZERO: Expr = Expr::Int(0);
pub(super) const ONE: Expr = Expr::Int(1);

/// A symbol table with arithmetic that returns `None` on overflow or excessive size, and with
/// proofs that hold for all values of the symbols.
pub(super) struct SymArith<'a>(pub &'a mut SymTable);

impl SymArith<'_> {
    #[inline]
    pub fn add(&mut self, a: Expr, b: Expr) -> Option<Expr> {
        match (a, b) {
            (Expr::Int(x), Expr::Int(y)) => x.checked_add(y).map(Expr::Int),
            (ZERO, e) | (e, ZERO) => Some(e),
            _ => self.0.add(a, b).ok(),
        }
    }

    #[inline]
    pub fn sub(&mut self, a: Expr, b: Expr) -> Option<Expr> {
        match (a, b) {
            (Expr::Int(x), Expr::Int(y)) => x.checked_sub(y).map(Expr::Int),
            (e, ZERO) => Some(e),
            _ => self.0.sub(a, b).ok(),
        }
    }

    #[inline]
    pub fn mul(&mut self, a: Expr, b: Expr) -> Option<Expr> {
        match (a, b) {
            (Expr::Int(x), Expr::Int(y)) => x.checked_mul(y).map(Expr::Int),
            (ZERO, _) | (_, ZERO) => Some(ZERO),
            (ONE, e) | (e, ONE) => Some(e),
            _ => self.0.mul(a, b).ok(),
        }
    }

    /// Writes the row-major strides of these sizes. A size of 0 counts as 0: in the view algebra,
    /// strides are the weights of digits, and an empty view has none.
    pub fn fill_row_major(&mut self, sizes: &[Expr], strides: &mut [Expr]) -> Option<()> {
        let times = |stride: Expr, size: Expr| self.mul(stride, size).ok_or(());
        fill_dense_strides(sizes, strides, (0..sizes.len()).rev(), ONE, times).ok()
    }

    /// The value `sum + a * b`.
    #[inline]
    pub fn mul_add(&mut self, sum: Expr, a: Expr, b: Expr) -> Option<Expr> {
        let product = self.mul(a, b)?;
        self.add(sum, product)
    }

    /// `q` and `r` with `a = q * b + r`. For numbers this is Euclidean division. For other
    /// expressions it is polynomial division; whether `r` is less than `b` is for the caller to
    /// prove.
    #[inline]
    pub fn divide(&mut self, a: Expr, b: Expr) -> Option<(Expr, Expr)> {
        match (a, b) {
            (Expr::Int(x), Expr::Int(y)) if y > 0 => {
                Some((Expr::Int(x.div_euclid(y)), Expr::Int(x.rem_euclid(y))))
            }
            (e, ONE) => Some((e, ZERO)),
            (a, b) if a == b && b != ZERO => Some((ONE, ZERO)),
            _ => self.0.divide_terms(a, b),
        }
    }

    /// [`SymArith::divide`] with a provably nonnegative remainder, if the quotient or one less
    /// gives one.
    pub fn digit(&mut self, a: Expr, b: Expr) -> Option<(Expr, Expr)> {
        let (q, r) = self.divide(a, b)?;
        if r != ZERO && !self.holds(r, Rel::Ge, ZERO) {
            let (less, more) = (self.sub(q, ONE)?, self.add(r, b)?);
            if self.holds(more, Rel::Ge, ZERO) {
                return Some((less, more));
            }
        }
        Some((q, r))
    }

    /// Whether a relation holds for all values of the symbols, for none, or neither is provable.
    #[inline]
    pub fn known(&mut self, a: Expr, rel: Rel, b: Expr) -> TriBool {
        match (a, b) {
            (Expr::Int(x), Expr::Int(y)) => rel.holds(x, y).into(),
            (a, b) if a == b => rel.holds(0, 0).into(),
            _ => {
                let query = self.0.rel(rel, a, b);
                self.0.prove(query).into()
            }
        }
    }

    /// Whether a relation provably holds for all values of the symbols.
    #[inline]
    pub fn holds(&mut self, a: Expr, rel: Rel, b: Expr) -> bool {
        let known = self.known(a, rel, b);
        known.is_yes() || known == TriBool::Unknown && fault_injected(Fault::UnknownIsProved)
    }

    /// Whether two expressions are provably equal.
    pub fn equal(&mut self, a: Expr, b: Expr) -> bool {
        self.holds(a, Rel::Eq, b)
    }

    /// Whether a dimension provably has one element, so that it can be dropped.
    pub fn is_unit(&mut self, d: Dim) -> bool {
        self.equal(d.size, ONE)
    }

    /// Whether a dimension provably has at most one element, so that its stride is irrelevant.
    pub fn is_unit_or_empty(&mut self, d: Dim) -> bool {
        self.holds(d.size, Rel::Le, ONE)
    }

    /// Whether one of the sizes is provably zero.
    pub fn is_empty(&mut self, dims: &[Dim]) -> bool {
        dims.iter().any(|d| self.holds(d.size, Rel::Le, ZERO))
    }

    /// Whether all sizes are provably positive.
    pub fn is_nonempty(&mut self, dims: &[Dim]) -> bool {
        fault_injected(Fault::NoSizeIsZero) || dims.iter().all(|d| self.holds(d.size, Rel::Ge, ONE))
    }

    /// The distance from the first to the last element of a dimension: `(size - 1) * stride`, which
    /// is negative for size zero.
    pub fn dim_extent(&mut self, d: Dim) -> Option<Expr> {
        let steps = self.sub(d.size, ONE)?;
        self.mul(steps, d.stride)
    }

    /// The distance from the first to the last element of a view. An upper bound that holds for
    /// nonempty views also holds for empty ones, because a size of zero only decreases the
    /// distance.
    pub fn extent(&mut self, dims: &[Dim]) -> Option<Expr> {
        dims.iter().try_fold(ZERO, |sum, &d| {
            let extent = self.dim_extent(d)?;
            self.add(sum, extent)
        })
    }

    /// The position of the last element.
    pub fn last(&mut self, spec: &ViewSpec) -> Option<Expr> {
        let extent = self.extent(spec.dims())?;
        self.add(spec.offset(), extent)
    }

    /// The product of all sizes.
    pub fn numel(&mut self, dims: &[Dim]) -> Option<Expr> {
        dims.iter().try_fold(ONE, |product, d| self.mul(product, d.size))
    }

    /// A heuristic magnitude for sorting strides: the value of the expression where every symbol
    /// has a large value of its own. The order affects only which attempts come first, never an
    /// answer.
    pub fn magnitude(&self, e: Expr) -> i64 {
        match e {
            Expr::Int(n) => n,
            e => {
                let large = |s: SymbolId| 1000 + 37 * i64::from(s.0 % 64);
                let value = |s: SymbolId| {
                    let range = self.0.range(s);
                    Some(range.lo.saturating_add(large(s)).min(range.hi))
                };
                self.0.eval(e, &value).unwrap_or(i64::MAX)
            }
        }
    }
}
