//! Views of views.

use super::arith::{Arith, ONE, ZERO};
use super::exact::{EXACT, Plain};
use super::{Dim, Dims, ViewSpec};
use crate::mutant::mutant;
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;

/// Coefficients of a position, one for each dimension of a frame.
pub(super) type Digits = SmallVec<[Expr; 4]>;

/// What is known of the positions an inner view has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    /// They are positions of the outer view.
    Given,
    /// That has to be proved.
    Proved,
}

/// A row-major frame: dimensions, and the weight of each in the flat order.
pub(super) struct Frame {
    dims: Dims,
    weights: Digits,
}

impl ViewSpec {
    /// The view of this view's flat value that `inner` is, as a view of the base; with the sizes of `inner`. `None` where no single spec
    /// says it, or none is known to: the flat order of a transposed matrix is not strided.
    ///
    /// The positions of `inner` are positions of this view: the caller has checked its bounds.
    pub fn compose(&self, inner: &ViewSpec, symbols: &mut SymTable) -> Option<ViewSpec> {
        let cx = &mut Arith(symbols);
        if cx.is_empty(&inner.dims) {
            return Some(ViewSpec::empty(inner.sizes()));
        }
        let outer = self.normal(cx);
        if is_beyond(cx, &outer, inner) {
            return None;
        }
        affine(cx, &outer, inner, Bounds::Given).or_else(|| enumerated(&outer, inner))
    }
}

/// The last position is surely not one of the outer view.
fn is_beyond(cx: &mut Arith, outer: &ViewSpec, inner: &ViewSpec) -> bool {
    match (cx.numel(&outer.dims), cx.last(inner)) {
        (Some(numel), Some(last)) => cx.holds(last, Rel::Ge, numel),
        _ => false,
    }
}

/// The composition where moving along a dimension of `inner` moves each digit of the position evenly, without a carry. `outer` is canonical.
pub(super) fn affine(cx: &mut Arith, outer: &ViewSpec, inner: &ViewSpec, bounds: Bounds) -> Option<ViewSpec> {
    let frame = Frame::new(cx, outer)?;
    let start = frame.place(cx, inner.offset)?;
    let mut moves: SmallVec<[Digits; 4]> = SmallVec::new();
    for &d in &inner.dims {
        moves.push(frame.movement(cx, inner.offset, &start, d)?);
    }
    let unproved = if bounds == Bounds::Given { 1 } else { 0 };
    for (i, &d) in frame.dims.iter().enumerate().skip(unproved) {
        let along = |digits: &Digits| digits.get(i).copied().unwrap_or(ZERO);
        let ways = inner.dims.iter().zip(&moves).map(|(dim, digits)| Dim { size: dim.size, stride: along(digits) });
        let (least, most) = span(cx, along(&start), ways)?;
        // A digit of zero fits, if there are any: in an empty outer view, an inner one that lies in it is empty too.
        let fits = cx.holds(most, Rel::Lt, d.size) || bounds == Bounds::Given && cx.holds(most, Rel::Le, ZERO);
        if (!fits || !cx.holds(least, Rel::Ge, ZERO)) && !mutant("compose: digits carry") {
            return None;
        }
    }
    let offset = frame.position(cx, outer.offset, &start)?;
    let mut dims = Dims::new();
    for (d, digits) in inner.dims.iter().zip(&moves) {
        let stride = frame.position(cx, ZERO, digits)?;
        if !cx.holds(stride, Rel::Ge, ZERO) {
            return None;
        }
        dims.push(Dim { size: d.size, stride });
    }
    Some(ViewSpec { offset, dims })
}

/// The least and greatest value of a digit that starts somewhere and moves in these ways.
fn span(cx: &mut Arith, start: Expr, ways: impl Iterator<Item = Dim>) -> Option<(Expr, Expr)> {
    let (mut least, mut most) = (start, start);
    for way in ways.filter(|way| way.stride != ZERO) {
        let reach = cx.reach(way)?;
        if cx.holds(way.stride, Rel::Ge, ZERO) {
            most = cx.add(most, reach)?;
        } else if cx.holds(way.stride, Rel::Le, ZERO) {
            least = cx.add(least, reach)?;
        } else {
            return None;
        }
    }
    Some((least, most))
}

/// The composition by trying every element; of plain numbers and few elements only. `outer` is canonical.
pub(super) fn enumerated(outer: &ViewSpec, inner: &ViewSpec) -> Option<ViewSpec> {
    let (outer, inner) = (Plain::new(outer)?, Plain::new(inner)?);
    if inner.numel()? > EXACT {
        return None;
    }
    let at = |flat: i64| outer.at(flat);
    let offset = at(inner.offset)?;
    let mut dims = Dims::new();
    for &(size, stride) in &inner.dims {
        let stride = if size > 1 { at(inner.offset.checked_add(stride)?)?.checked_sub(offset)? } else { 0 };
        dims.push(Dim { size: Expr::Int(size), stride: Expr::Int(stride) });
    }
    let candidate = ViewSpec { offset: Expr::Int(offset), dims };
    let wanted = Plain::new(&candidate)?;
    inner.positions().map(at).eq(wanted.positions().map(Some)).then_some(candidate)
}

impl Frame {
    /// The dimensions of a canonical view; a single element counts as a dimension of size one.
    pub fn new(cx: &mut Arith, spec: &ViewSpec) -> Option<Frame> {
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
        Some(Frame { dims, weights })
    }

    /// The digits of a flat position. They add up to it; whether each lies within its dimension is for the caller to see.
    fn place(&self, cx: &mut Arith, flat: Expr) -> Option<Digits> {
        let mut rest = flat;
        let mut digits = Digits::new();
        for &weight in &self.weights {
            let (digit, less) = cx.digit(rest, weight).unwrap_or((ZERO, rest));
            digits.push(digit);
            rest = less;
        }
        (rest == ZERO).then_some(digits)
    }

    /// How the digits move with a step along a dimension that starts at a position with digits `start`.
    fn movement(&self, cx: &mut Arith, offset: Expr, start: &Digits, d: Dim) -> Option<Digits> {
        if cx.is_short(d) || d.stride == ZERO {
            return Some(Digits::from_elem(ZERO, self.dims.len()));
        }
        // A symbolic weight is what it is, though division might not find it.
        if let (Expr::Id(_), Some(i)) = (d.stride, self.weights.iter().position(|&weight| weight == d.stride)) {
            return Some((0..self.dims.len()).map(|j| if i == j { ONE } else { ZERO }).collect());
        }
        let second = cx.add(offset, d.stride)?;
        let second = self.place(cx, second)?;
        second.iter().zip(start).map(|(&to, &from)| cx.sub(to, from)).collect()
    }

    /// `origin + Σ digit * stride`
    fn position(&self, cx: &mut Arith, origin: Expr, digits: &[Expr]) -> Option<Expr> {
        self.dims.iter().zip(digits).try_fold(origin, |sum, (d, &digit)| cx.mul_add(sum, d.stride, digit))
    }

    /// The flat position of digits.
    pub fn flat(&self, cx: &mut Arith, digits: &[Expr]) -> Option<Expr> {
        self.weights.iter().zip(digits).try_fold(ZERO, |sum, (&weight, &digit)| cx.mul_add(sum, weight, digit))
    }

    /// The weight of a dimension in the flat order.
    pub fn weight(&self, dim: usize) -> Option<Expr> {
        self.weights.get(dim).copied()
    }
}
