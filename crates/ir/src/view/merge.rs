//! Reduction of a set of positions, given as sums of steps, to fewer steps.
//!
//! Two steps merge into one if the outer stride continues the inner progression. Sorted by stride,
//! one pass over neighbouring steps suffices.

use super::arith::{ONE, SymArith, ZERO};
use super::canonical::join;
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::Rel;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// The set of numbers `Σ stride * i` with `0 <= i < size`. The order of the steps is irrelevant to
/// the set; they are sorted by decreasing stride.
pub(super) type Steps = SmallVec<[Dim; 8]>;

/// The steps that may be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// Steps that tile exactly, without overlap. The set is unchanged.
    Tiles,
    /// Also steps that overlap. The set is unchanged if no size is zero, and may grow otherwise.
    Overlaps,
}

/// Sorts the steps by decreasing stride and merges neighbours.
pub(super) fn normalise(cx: &mut SymArith, mut steps: Steps, merge: Merge) -> Steps {
    steps.retain(|d| !(cx.is_unit(*d) || merge == Merge::Overlaps && d.stride == ZERO));
    steps.sort_by_key(|d| Reverse(cx.magnitude(d.stride)));
    let mut out = Steps::new();
    while let Some(next) = steps.pop() {
        // Steps are taken in order of increasing stride.
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

/// Merges two steps; the outer one has the longer stride.
fn merged(cx: &mut SymArith, outer: Dim, inner: Dim, merge: Merge) -> Option<Dim> {
    if let Some(tiled) = join(cx, outer, inner) {
        return Some(tiled);
    }
    if merge == Merge::Tiles { None } else { overlapping(cx, outer, inner) }
}

/// Merges overlapping or adjacent windows: the outer stride is a multiple of the inner stride and
/// at most one window long.
fn overlapping(cx: &mut SymArith, outer: Dim, inner: Dim) -> Option<Dim> {
    let (times, ZERO) = cx.divide(outer.stride, inner.stride)? else { return None };
    if !cx.holds(times, Rel::Ge, ONE)
        || !cx.holds(times, Rel::Le, inner.size) && !fault_injected(Fault::MergeWindowsWithGaps)
    {
        return None;
    }
    let windows = cx.sub(outer.size, ONE)?;
    Some(Dim { size: cx.mul_add(inner.size, windows, times)?, stride: inner.stride })
}

/// The view of the same set of elements in the order of the base, as far as merging finds it. With
/// [`Merge::Overlaps`], the view must not be empty.
pub(super) fn footprint(cx: &mut SymArith, spec: &ViewSpec, merge: Merge) -> ViewSpec {
    let dims: Dims =
        normalise(cx, spec.dims.iter().copied().collect(), merge).into_iter().collect();
    ViewSpec { offset: spec.offset, dims }
}
