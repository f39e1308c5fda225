//! Views of views.

use super::arith::{ONE, SymArith, ZERO};
use super::concrete::{ConcreteView, MAX_ENUMERATED};
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::fault_injected;
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;

/// Coefficients of a position, one for each dimension.
pub(super) type Digits = SmallVec<[Expr; 4]>;

/// What is known of the positions an inner view has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InBounds {
    /// They are positions of the outer view.
    Assumed,
    /// That has to be proved.
    MustProve,
}

/// A mixed-radix number system for positions in row-major order: the dimensions, and the weight of
/// each in the flat order.
pub(super) struct MixedRadix {
    dims: Dims,
    weights: Digits,
}

impl ViewSpec {
    /// The view of this view's flat value that `inner` is, as a view of the base; with the sizes of
    /// `inner`. `None` where no single spec says it, or none is known to: the flat order of a
    /// transposed matrix is not strided.
    ///
    /// The positions of `inner` are positions of this view: the caller has checked its bounds.
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

/// The last position is surely not one of the outer view.
fn is_beyond(cx: &mut SymArith, outer: &ViewSpec, inner: &ViewSpec) -> bool {
    match (cx.numel(&outer.dims), cx.last(inner)) {
        (Some(numel), Some(last)) => cx.holds(last, Rel::Ge, numel),
        _ => false,
    }
}

/// The composition where moving along a dimension of `inner` moves each digit of the position
/// evenly, without a carry. `outer` is canonical.
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
    let unproved = if in_bounds == InBounds::Assumed { 1 } else { 0 };
    for (i, &d) in radix.dims.iter().enumerate().skip(unproved) {
        let along = |digits: &Digits| digits.get(i).copied().unwrap_or(ZERO);
        let ways = inner
            .dims
            .iter()
            .zip(&deltas)
            .map(|(dim, digits)| Dim { size: dim.size, stride: along(digits) });
        let (least, most) = span(cx, along(&start), ways)?;
        // A digit of zero fits, if there are any: in an empty outer view, an inner one that lies in
        // it is empty too.
        let fits = cx.holds(most, Rel::Lt, d.size)
            || in_bounds == InBounds::Assumed && cx.holds(most, Rel::Le, ZERO);
        if (!fits || !cx.holds(least, Rel::Ge, ZERO)) && !fault_injected("compose: digits carry") {
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

/// The least and greatest value of a digit that starts somewhere and moves in these ways.
fn span(cx: &mut SymArith, start: Expr, ways: impl Iterator<Item = Dim>) -> Option<(Expr, Expr)> {
    let (mut least, mut most) = (start, start);
    for way in ways.filter(|way| way.stride != ZERO) {
        let extent = cx.dim_extent(way)?;
        if cx.holds(way.stride, Rel::Ge, ZERO) {
            most = cx.add(most, extent)?;
        } else if cx.holds(way.stride, Rel::Le, ZERO) {
            least = cx.add(least, extent)?;
        } else {
            return None;
        }
    }
    Some((least, most))
}

/// The composition by trying every element; of plain numbers and few elements only. `outer` is
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
    /// The dimensions of a canonical view; a single element counts as a dimension of size one.
    pub fn new(cx: &mut SymArith, spec: &ViewSpec) -> Option<MixedRadix> {
        let mut dims = spec.dims.clone();
        if dims.is_empty() {
            dims.push(Dim { size: ONE, stride: ZERO });
        }
        let mut weights = Digits::from_elem(ONE, dims.len());
        let mut next = ONE;
        for (weight, d) in weights.iter_mut().zip(&dims).rev() {
            *weight = next;
            next = cx.mul(next, d.size)?;
        }
        Some(MixedRadix { dims, weights })
    }

    /// The digits of a flat position. They add up to it; whether each lies within its dimension is
    /// for the caller to see.
    fn decompose(&self, cx: &mut SymArith, flat: Expr) -> Option<Digits> {
        let mut rest = flat;
        let mut digits = Digits::new();
        for &weight in &self.weights {
            let (digit, less) = cx.digit(rest, weight).unwrap_or((ZERO, rest));
            digits.push(digit);
            rest = less;
        }
        (rest == ZERO).then_some(digits)
    }

    /// How the digits move with a step along a dimension that starts at a position with digits
    /// `start`.
    fn digit_delta(
        &self,
        cx: &mut SymArith,
        offset: Expr,
        start: &Digits,
        d: Dim,
    ) -> Option<Digits> {
        if cx.is_unit_or_empty(d) || d.stride == ZERO {
            return Some(Digits::from_elem(ZERO, self.dims.len()));
        }
        // A symbolic weight is what it is, though division might not find it.
        if let (Expr::Id(_), Some(i)) =
            (d.stride, self.weights.iter().position(|&weight| weight == d.stride))
        {
            return Some((0..self.dims.len()).map(|j| if i == j { ONE } else { ZERO }).collect());
        }
        let second = cx.add(offset, d.stride)?;
        let second = self.decompose(cx, second)?;
        second.iter().zip(start).map(|(&to, &from)| cx.sub(to, from)).collect()
    }

    /// `origin + Σ digit * stride`
    fn position(&self, cx: &mut SymArith, origin: Expr, digits: &[Expr]) -> Option<Expr> {
        self.dims
            .iter()
            .zip(digits)
            .try_fold(origin, |sum, (d, &digit)| cx.mul_add(sum, d.stride, digit))
    }

    /// The flat position of digits.
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
