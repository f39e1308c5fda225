//! The inverse of composition: a view of the base expressed as a view of another view, and the
//! inverse of a permutation view.
//!
//! [`ViewSpec::relative`] decomposes the first element of the view, and the next element along each
//! dimension, into digits over the strides of the containing view. The digits give a candidate,
//! which is returned only if composing it with the containing view gives the view back. The
//! decomposition can therefore be heuristic without being unsound. The cost is linear in the
//! product of both ranks, plus the bounded search for digits.

use super::arith::{SymArith, ZERO};
use super::compose::{Digits, InBounds, MixedRadix, affine, enumerated};
use super::search::{Search, represent};
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Indices of dimensions, in some order.
type Order = SmallVec<[usize; 4]>;

impl ViewSpec {
    /// Expresses this view as a view of the flat order of `inside`: the spec `r` with the sizes of
    /// this view for which `inside.compose(r)` has the elements of this view. `None` if an element
    /// is not in `inside`, if no single spec expresses the view, or if none can be proved to.
    ///
    /// If `inside` contains an element twice, several specs may exist; any one or none is returned.
    pub fn relative(&self, inside: &ViewSpec, symbols: &mut SymTable) -> Option<ViewSpec> {
        relative(&mut SymArith(symbols), self, inside)
    }

    /// The inverse of a view that contains every element of a base of `numel` elements exactly
    /// once: the view of its flat order that is the base in order. `None` if the view is not such a
    /// permutation or cannot be proved to be one.
    pub fn inverse(&self, numel: Expr, symbols: &mut SymTable) -> Option<ViewSpec> {
        let cx = &mut SymArith(symbols);
        let own = self.normalized(cx);
        let radix = MixedRadix::new(cx, &own)?;
        let sorted: Dims = by_stride(cx, &own.dims)
            .iter()
            .filter_map(|&i| Some(Dim { size: own.dims.get(i)?.size, stride: radix.weight(i)? }))
            .collect();
        let inverse = ViewSpec { offset: ZERO, dims: sorted };
        let back = self.compose(&inverse, cx.0)?;
        back.is_full(numel, cx.0).is_yes().then_some(inverse)
    }
}

/// [`ViewSpec::relative`].
pub(super) fn relative(cx: &mut SymArith, a: &ViewSpec, inside: &ViewSpec) -> Option<ViewSpec> {
    if cx.is_empty(&a.dims) {
        return Some(ViewSpec::empty(a.sizes()));
    }
    let inside = inside.normalized(cx);
    if a.normalized(cx).provably_equals(&inside, cx) {
        let sizes: Digits = a.sizes().collect();
        return ViewSpec::contiguous(&sizes, cx.0).ok();
    }
    let candidate = candidate(cx, a, &inside)?;
    let back = affine(cx, &inside, &candidate, InBounds::MustProve)
        .or_else(|| enumerated(&inside, &candidate))?;
    (fault_injected(Fault::RelativeViewUnconfirmed) || is_equivalent(cx, &back, a))
        .then_some(candidate)
}

/// Whether two specs of equal sizes provably view the same elements; strides of dimensions with at
/// most one element are irrelevant.
fn is_equivalent(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> bool {
    cx.equal(a.offset, b.offset)
        && a.dims
            .iter()
            .zip(&b.dims)
            .all(|(x, y)| cx.equal(x.stride, y.stride) || cx.is_unit_or_empty(*x))
}

/// The view of the canonical `inside` that has the same first element as `a` and the same next
/// element along each dimension. If `inside` is injective, no other view can be the answer.
fn candidate(cx: &mut SymArith, a: &ViewSpec, inside: &ViewSpec) -> Option<ViewSpec> {
    let radix = MixedRadix::new(cx, inside)?;
    let order = by_stride(cx, &inside.dims);
    let flat = |cx: &mut SymArith, position| {
        let digits = digits(cx, position, &inside.dims, &order)?;
        radix.linearize(cx, &digits)
    };
    let first = cx.sub(a.offset, inside.offset)?;
    let offset = flat(cx, first)?;
    let mut dims = Dims::new();
    for &dim in &a.dims {
        let stride = if cx.is_unit_or_empty(dim) || dim.stride == ZERO {
            ZERO
        } else {
            let second = cx.add(first, dim.stride)?;
            let second = flat(cx, second)?;
            cx.sub(second, offset)?
        };
        if !cx.holds(stride, Rel::Ge, ZERO) {
            return None;
        }
        dims.push(Dim { size: dim.size, stride });
    }
    Some(ViewSpec { offset, dims })
}

/// The indices of the dimensions by decreasing stride.
fn by_stride(cx: &SymArith, dims: &[Dim]) -> Order {
    let mut order: Order = (0..dims.len()).collect();
    order.sort_by_key(|&i| Reverse(dims.get(i).map(|d| cx.magnitude(d.stride))));
    order
}

/// Decomposes a position into a sum of strides: how often each stride is taken. An exhaustive
/// search decides plain numbers; otherwise each stride is divided off in turn.
fn digits(cx: &mut SymArith, position: Expr, dims: &[Dim], order: &Order) -> Option<Digits> {
    let sorted: SmallVec<[Dim; 4]> = order.iter().filter_map(|&i| dims.get(i).copied()).collect();
    let found: Digits = match represent(position, &sorted) {
        Search::Found(counts) => counts.into_iter().map(Expr::Int).collect(),
        Search::Absent => return None,
        Search::GaveUp => greedy_digits(cx, position, &sorted)?,
    };
    let mut digits = Digits::from_elem(ZERO, dims.len());
    for (&i, digit) in order.iter().zip(found) {
        *digits.get_mut(i)? = digit;
    }
    Some(digits)
}

/// Divides the position by each stride in turn, the longest first; `None` if a remainder is left.
fn greedy_digits(cx: &mut SymArith, position: Expr, sorted: &[Dim]) -> Option<Digits> {
    let mut remaining = position;
    let mut digits = Digits::new();
    for dim in sorted {
        let (digit, remainder) = cx.digit(remaining, dim.stride).unwrap_or((ZERO, remaining));
        digits.push(digit);
        remaining = remainder;
    }
    (remaining == ZERO).then_some(digits)
}
