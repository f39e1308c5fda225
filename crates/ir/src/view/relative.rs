//! Views inside views, and inverses.

use super::arith::{SymArith, ZERO};
use super::compose::{Digits, InBounds, MixedRadix, affine, enumerated};
use super::search::{Search, represent};
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::fault_injected;
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Positions in a list of dimensions.
type Order = SmallVec<[usize; 4]>;

impl ViewSpec {
    /// This view as a view of the flat value of `inside`: the spec `r`, with this view's sizes, for
    /// which `inside.compose(r)` has the elements of this view. `None` where an element lies
    /// outside, or no single spec says it, or none is known to.
    ///
    /// Where `inside` has an element twice there may be several; one may then be found, or none.
    pub fn relative(&self, inside: &ViewSpec, symbols: &mut SymTable) -> Option<ViewSpec> {
        relative(&mut SymArith(symbols), self, inside)
    }

    /// For a view that has every element of a base of `numel` elements once: the view of its flat
    /// value that is the base in order. `None` where the view is not such a one, or is not known to
    /// be.
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
    (fault_injected("relative: not confirmed") || is_equivalent(cx, &back, a)).then_some(candidate)
}

/// Whether two specs of the same sizes are surely the same where it matters.
fn is_equivalent(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> bool {
    cx.equal(a.offset, b.offset)
        && a.dims
            .iter()
            .zip(&b.dims)
            .all(|(x, y)| cx.equal(x.stride, y.stride) || cx.is_unit_or_empty(*x))
}

/// The view of the canonical `inside` that has the first element of `a` and its neighbours right.
/// Only it can be the answer, if `inside` has no element twice and digits were found as they are.
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
    for &d in &a.dims {
        let stride = if cx.is_unit_or_empty(d) || d.stride == ZERO {
            ZERO
        } else {
            let second = cx.add(first, d.stride)?;
            let second = flat(cx, second)?;
            cx.sub(second, offset)?
        };
        if !cx.holds(stride, Rel::Ge, ZERO) {
            return None;
        }
        dims.push(Dim { size: d.size, stride });
    }
    Some(ViewSpec { offset, dims })
}

/// The dimensions by stride, the longest first.
fn by_stride(cx: &SymArith, dims: &[Dim]) -> Order {
    let mut order: Order = (0..dims.len()).collect();
    order.sort_by_key(|&i| Reverse(dims.get(i).map(|d| cx.magnitude(d.stride))));
    order
}

/// A position as a sum of strides: how much of each. Found by search between numbers; otherwise
/// each stride is greedy_digits by in turn.
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

fn greedy_digits(cx: &mut SymArith, position: Expr, sorted: &[Dim]) -> Option<Digits> {
    let mut rest = position;
    let mut digits = Digits::new();
    for d in sorted {
        let (digit, less) = cx.digit(rest, d.stride).unwrap_or((ZERO, rest));
        digits.push(digit);
        rest = less;
    }
    (rest == ZERO).then_some(digits)
}
