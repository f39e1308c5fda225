//! Sets of positions as sums of steps, with few steps.

use super::arith::{ONE, SymArith, ZERO};
use super::canonical::join;
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::fault_injected;
use crate::sym::Rel;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Numbers `Σ stride * i` with `0 <= i < size`: a set, so that the order of steps does not matter.
/// Long strides come first.
pub(super) type Steps = SmallVec<[Dim; 8]>;

/// Which steps may be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// Those that meet without overlap. The set stays what it is.
    Tiles,
    /// Those that overlap as well. The set stays what it is if no size is zero; otherwise it may
    /// grow.
    Overlaps,
}

/// Sorts and merges until nothing changes.
pub(super) fn normalise(cx: &mut SymArith, mut steps: Steps, merge: Merge) -> Steps {
    steps.retain(|d| !(cx.is_unit(*d) || merge == Merge::Overlaps && d.stride == ZERO));
    steps.sort_by_key(|d| Reverse(cx.magnitude(d.stride)));
    let mut out = Steps::new();
    while let Some(next) = steps.pop() {
        // Strides grow from here on.
        match out.last_mut() {
            Some(inner) => match merged(cx, next, *inner, merge) {
                Some(both) => *inner = both,
                None => out.push(next),
            },
            None => out.push(next),
        }
    }
    out.reverse();
    out
}

/// One step for two, of which the outer one has the longer stride.
fn merged(cx: &mut SymArith, outer: Dim, inner: Dim, merge: Merge) -> Option<Dim> {
    if let Some(tiled) = join(cx, outer, inner) {
        return Some(tiled);
    }
    if merge == Merge::Tiles { None } else { overlapping(cx, outer, inner) }
}

/// Windows that reach into each other, or touch: the outer stride is a multiple of the inner one,
/// and no longer than a window.
fn overlapping(cx: &mut SymArith, outer: Dim, inner: Dim) -> Option<Dim> {
    let (times, ZERO) = cx.divide(outer.stride, inner.stride)? else { return None };
    if !cx.holds(times, Rel::Ge, ONE)
        || !cx.holds(times, Rel::Le, inner.size)
            && !fault_injected("merge: windows with gaps between them")
    {
        return None;
    }
    let windows = cx.sub(outer.size, ONE)?;
    Some(Dim { size: cx.mul_add(inner.size, windows, times)?, stride: inner.stride })
}

/// A view with the same set of elements in the order of the base, as far as that is known. With
/// [`Merge::Overlaps`] only for views that are not empty.
pub(super) fn footprint(cx: &mut SymArith, spec: &ViewSpec, merge: Merge) -> ViewSpec {
    let dims: Dims =
        normalise(cx, spec.dims.iter().copied().collect(), merge).into_iter().collect();
    ViewSpec { offset: spec.offset, dims }
}
