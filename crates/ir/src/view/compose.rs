//! Composition of views: a view of a view as a view of the base.
//!
//! A position in the flat order of the outer view is a number in the mixed-radix system of its
//! sizes: its digits are the indices along the dimensions. A step along a dimension of the inner
//! view changes each digit by a constant if no digit carries into the next. In that case the
//! composition is strided, and its strides are the digit changes times the outer strides. The proof
//! that no digit carries bounds each digit over all indices. Views of plain numbers for which the
//! proof fails are composed by enumeration of at most [`MAX_ENUMERATED`] elements.
//!
//! For example, `v = 1 + (3, 4) (2, 2)` has the radices 3 and 2. The inner view `0 + (3, 2)` starts
//! at digits (0, 0), and a step of 2 adds (1, 0). The composition is `1 + (3, 4)`.

use super::arith::{ONE, SymArith, ZERO};
use super::concrete::{ConcreteView, MAX_ENUMERATED};
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;

/// Digits of a position, one for each dimension.
pub(super) type Digits = SmallVec<[Expr; 4]>;

/// Whether the positions of the inner view are known to be in the outer view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InBounds {
    /// The caller guarantees it.
    Assumed,
    /// The composition has to prove it.
    MustProve,
}

/// The mixed-radix number system of flat positions: the dimensions, and the weight of each, which
/// is the product of the sizes of the dimensions inside it.
pub(super) struct MixedRadix {
    dims: Dims,
    weights: Digits,
}

impl ViewSpec {
    /// Composes `inner`, a view of this view's flat order, with this view: the result is a view of
    /// the base with the sizes of `inner`. `None` if no single spec expresses it or none can be
    /// proved to; for example, the flat order of a transposed matrix is not strided.
    ///
    /// All positions of `inner` must be in bounds of this view; the caller checks them.
    pub fn compose(&self, inner: &ViewSpec, symbols: &mut SymTable) -> Option<ViewSpec> {
        let cx = &mut SymArith(symbols);
        if cx.is_empty(&inner.dims) {
            return Some(ViewSpec::empty(inner.sizes()));
        }
        let outer = self.normalized(cx);
        if is_beyond(cx, &outer, inner) {
            return None;
        }
        affine(cx, &outer, inner, InBounds::Assumed).or_else(|| enumerated(&outer, inner))
    }
}

/// Whether the last position of `inner` is provably out of bounds.
fn is_beyond(cx: &mut SymArith, outer: &ViewSpec, inner: &ViewSpec) -> bool {
    match (cx.numel(&outer.dims), cx.last(inner)) {
        (Some(numel), Some(last)) => cx.holds(last, Rel::Ge, numel),
        _ => false,
    }
}

/// The composition if no digit provably carries. `outer` is canonical.
pub(super) fn affine(
    cx: &mut SymArith,
    outer: &ViewSpec,
    inner: &ViewSpec,
    in_bounds: InBounds,
) -> Option<ViewSpec> {
    let radix = MixedRadix::new(cx, outer)?;
    let start = radix.decompose(cx, inner.offset)?;
    let mut deltas: SmallVec<[Digits; 4]> = SmallVec::new();
    for &d in &inner.dims {
        deltas.push(radix.digit_delta(cx, inner.offset, &start, d)?);
    }
    // If the position is in bounds and no lower digit carries, the outermost digit is in bounds as
    // well.
    let skipped = if in_bounds == InBounds::Assumed { 1 } else { 0 };
    for (i, &d) in radix.dims.iter().enumerate().skip(skipped) {
        let digit_of = |digits: &Digits| digits.get(i).copied().unwrap_or(ZERO);
        let moves = inner
            .dims
            .iter()
            .zip(&deltas)
            .map(|(dim, digits)| Dim { size: dim.size, stride: digit_of(digits) });
        let (least, most) = span(cx, digit_of(&start), moves)?;
        // A digit of zero is below any positive size. If a size is zero the outer view is empty,
        // and then an inner view that is in bounds is empty too.
        let fits = cx.holds(most, Rel::Lt, d.size)
            || in_bounds == InBounds::Assumed && cx.holds(most, Rel::Le, ZERO);
        if (!fits || !cx.holds(least, Rel::Ge, ZERO)) && !fault_injected(Fault::ComposedDigitsCarry)
        {
            return None;
        }
    }
    let offset = radix.position(cx, outer.offset, &start)?;
    let mut dims = Dims::new();
    for (d, digits) in inner.dims.iter().zip(&deltas) {
        let stride = radix.position(cx, ZERO, digits)?;
        if !cx.holds(stride, Rel::Ge, ZERO) {
            return None;
        }
        dims.push(Dim { size: d.size, stride });
    }
    Some(ViewSpec { offset, dims })
}

/// The least and greatest value of a digit that starts at `start` and changes by the given moves.
fn span(cx: &mut SymArith, start: Expr, moves: impl Iterator<Item = Dim>) -> Option<(Expr, Expr)> {
    let (mut least, mut most) = (start, start);
    for step in moves.filter(|step| step.stride != ZERO) {
        let extent = cx.dim_extent(step)?;
        if cx.holds(step.stride, Rel::Ge, ZERO) {
            most = cx.add(most, extent)?;
        } else if cx.holds(step.stride, Rel::Le, ZERO) {
            least = cx.add(least, extent)?;
        } else {
            return None;
        }
    }
    Some((least, most))
}

/// The composition by enumeration of every element, for few elements of plain numbers. `outer` is
/// canonical.
pub(super) fn enumerated(outer: &ViewSpec, inner: &ViewSpec) -> Option<ViewSpec> {
    let (outer, inner) = (ConcreteView::new(outer)?, ConcreteView::new(inner)?);
    if inner.numel()? > MAX_ENUMERATED {
        return None;
    }
    let at = |flat: i64| outer.at(flat);
    let offset = at(inner.offset)?;
    let mut dims = Dims::new();
    for &(size, stride) in &inner.dims {
        let stride =
            if size > 1 { at(inner.offset.checked_add(stride)?)?.checked_sub(offset)? } else { 0 };
        dims.push(Dim { size: Expr::Int(size), stride: Expr::Int(stride) });
    }
    let candidate = ViewSpec { offset: Expr::Int(offset), dims };
    let wanted = ConcreteView::new(&candidate)?;
    inner.positions().map(at).eq(wanted.positions().map(Some)).then_some(candidate)
}

impl MixedRadix {
    /// The number system of a canonical view. A view without dimensions counts as one of size one.
    pub fn new(cx: &mut SymArith, spec: &ViewSpec) -> Option<MixedRadix> {
        let mut dims = spec.dims.clone();
        if dims.is_empty() {
            dims.push(Dim { size: ONE, stride: ZERO });
        }
        let mut weights = Digits::from_elem(ONE, dims.len());
        let sizes: Digits = dims.iter().map(|d| d.size).collect();
        cx.fill_row_major(&sizes, &mut weights)?;
        Some(MixedRadix { dims, weights })
    }

    /// Decomposes a flat position into digits. Their weighted sum is the position; the caller
    /// proves that each digit is within its dimension.
    fn decompose(&self, cx: &mut SymArith, flat: Expr) -> Option<Digits> {
        let mut remaining = flat;
        let mut digits = Digits::new();
        for &weight in &self.weights {
            let (digit, remainder) = cx.digit(remaining, weight).unwrap_or((ZERO, remaining));
            // The size of a dropped dimension, for example. Left as it is, it would be a factor of
            // the stride, and one more of the stride of each view of this view.
            let is_one = matches!(digit, Expr::Id(_)) && cx.equal(digit, ONE);
            digits.push(if is_one { ONE } else { digit });
            remaining = remainder;
        }
        (remaining == ZERO).then_some(digits)
    }

    /// The change of the digits by one step along dimension `d`, from a position with digits
    /// `start`.
    fn digit_delta(
        &self,
        cx: &mut SymArith,
        offset: Expr,
        start: &Digits,
        dim: Dim,
    ) -> Option<Digits> {
        if cx.is_unit_or_empty(dim) || dim.stride == ZERO {
            return Some(Digits::from_elem(ZERO, self.dims.len()));
        }
        // A stride equal to a symbolic weight changes that digit by one. Symbolic division might
        // not find this decomposition.
        if let (Expr::Id(_), Some(i)) =
            (dim.stride, self.weights.iter().position(|&weight| weight == dim.stride))
        {
            return Some((0..self.dims.len()).map(|j| if i == j { ONE } else { ZERO }).collect());
        }
        let second = cx.add(offset, dim.stride)?;
        let second = self.decompose(cx, second)?;
        second.iter().zip(start).map(|(&to, &from)| cx.sub(to, from)).collect()
    }

    /// The base position `origin + Σ digit * stride`.
    fn position(&self, cx: &mut SymArith, origin: Expr, digits: &[Expr]) -> Option<Expr> {
        self.dims
            .iter()
            .zip(digits)
            .try_fold(origin, |sum, (d, &digit)| cx.mul_add(sum, d.stride, digit))
    }

    /// The flat position with these digits.
    pub fn linearize(&self, cx: &mut SymArith, digits: &[Expr]) -> Option<Expr> {
        self.weights
            .iter()
            .zip(digits)
            .try_fold(ZERO, |sum, (&weight, &digit)| cx.mul_add(sum, weight, digit))
    }

    /// The weight of a dimension in the flat order.
    pub fn weight(&self, dim: usize) -> Option<Expr> {
        self.weights.get(dim).copied()
    }
}
