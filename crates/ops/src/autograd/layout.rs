//! Whether elements of a layout share memory, also with symbolic sizes.
//!
//! The gradient of a view lies as the base does if no two elements share a place, and else in rows.
//! So a trace must decide as eager execution does, at all sizes for which it holds.
//!
//! A dimension repeats if its stride is 0, or reaches from one element of another dimension to the
//! next, as windows do. A layout is nested if each dimension steps over everything that those of
//! smaller strides reach: then no two elements meet. Both are first asked of what is known of the
//! symbols, and then of the sizes of the trace, with a guard for each answer. The guards of a
//! nested layout hold for most sizes; the others tell windows from distant elements, or fix the
//! layout. A layout of `n` dimensions takes up to `n²` comparisons.
//!
//! A dimension of one element repeats nothing, whatever its stride. So a size that is not known
//! decides nothing, where guards can. Where they cannot, since the size is from data, the size
//! counts as greater than 1: elements are then added up by their positions, which is right for
//! every size.

use crate::tensor::meta::{Concrete, Dims};
use crate::tensor::overlap;
use maquette_ir::sym::{SymBool, SymInt};
use maquette_ir::typing::contiguous_strides;
use smallvec::SmallVec;

/// A size, and its stride.
type Dimension = (SymInt, SymInt);

/// Whether two elements of a layout may share a place. With symbolic sizes: whether they are known
/// to, if no size is 1 that is not known to be 1.
pub(super) fn may_repeat(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    answer(sizes, strides, is_known, |_| true) == Some(true)
}

/// Whether two elements of a layout share a place, as far as this is known.
fn known_to_repeat(sizes: &[SymInt], strides: &[SymInt]) -> Option<bool> {
    answer(sizes, strides, is_known, |n| is_known(n.gt(1)))
}

/// Whether two elements of a layout are known to share a place.
pub(super) fn surely_repeats(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    known_to_repeat(sizes, strides) == Some(true)
}

/// Whether two elements of a layout share a place, decided by guards where the symbols leave it
/// open. Sizes from data have no guards, and count as greater than 1.
pub fn repeats(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    if let Some(repeats) = known_to_repeat(sizes, strides) {
        return repeats;
    }
    if is_in_rows(sizes, strides) {
        return false;
    }
    let hints = |all: &[SymInt]| all.iter().map(|n| n.hint()).collect::<Option<_>>();
    let (Some(own_sizes), Some(own_strides)) = (hints(sizes), hints(strides)) else {
        return may_repeat(sizes, strides);
    };
    let own = Concrete { sizes: own_sizes, strides: own_strides, offset: 0, width: 1 };
    let guarded = |condition: SymBool| condition.guard().unwrap_or(false);
    if overlap::is_nested(&own) && is_nested(dimensions(sizes, strides), guarded) {
        return false;
    }
    let fixed = |all: &[SymInt]| -> Option<Dims> {
        all.iter().map(|n| n.guard_int().ok().map(SymInt::from)).collect()
    };
    let is_several = |n: SymInt| guarded(n.gt(1));
    answer(sizes, strides, guarded, is_several).unwrap_or_else(|| {
        match (fixed(sizes), fixed(strides)) {
            (Some(sizes), Some(strides)) => may_repeat(&sizes, &strides),
            _ => false,
        }
    })
}

fn dimensions(sizes: &[SymInt], strides: &[SymInt]) -> impl Iterator<Item = Dimension> {
    sizes.iter().copied().zip(strides.iter().copied())
}

fn is_known(condition: SymBool) -> bool {
    condition.statically_known() == Some(true)
}

/// Whether strides are known to be those of rows without gaps.
pub(super) fn is_in_rows(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    let mut expected = SymInt::from(1);
    let new = contiguous_strides(sizes);
    sizes.iter().zip(strides).zip(new).rev().all(|((n, stride), new)| {
        let is_equal = |expected| is_known(stride.eq(expected));
        let fits = n.as_i64() == Some(1) || is_equal(new) || is_equal(expected);
        expected *= *n;
        fits
    })
}

/// Whether elements share a place, if this can be told by conditions that hold. `is_several` tells
/// whether a size, which does not hold to be 1, is greater than 1.
fn answer(
    sizes: &[SymInt],
    strides: &[SymInt],
    holds: impl Fn(SymBool) -> bool,
    is_several: impl Fn(SymInt) -> bool,
) -> Option<bool> {
    let concrete = |all: &[SymInt]| all.iter().map(|n| n.as_i64()).collect::<Option<_>>();
    if let (Some(sizes), Some(strides)) = (concrete(sizes), concrete(strides)) {
        return Some(overlap::may_self_overlap(&Concrete { sizes, strides, offset: 0, width: 1 }));
    }
    if sizes.iter().any(|n| holds(n.eq(0))) {
        return Some(false);
    }
    // A dimension of size 1 that is not seen to be one would count as a window into another.
    let dims: SmallVec<[Dimension; 6]> =
        dimensions(sizes, strides).filter(|(n, _)| !holds(n.eq(1))).collect();
    let reaches_next = |(i, (n, inner)): (usize, &Dimension)| {
        let mut others = dims.iter().enumerate().filter(|(j, _)| *j != i);
        inner.as_i64() == Some(0) && is_several(*n)
            || others.any(|(_, (other, outer))| {
                holds(inner.le(*outer)) && holds(outer.le(*inner * (*n - 1))) && is_several(*other)
            })
    };
    if dims.iter().enumerate().any(reaches_next) {
        return Some(true);
    }
    is_nested(dims.into_iter(), holds).then_some(false)
}

/// Whether each dimension steps over everything that those before it reach, in the order of their
/// strides in the trace.
fn is_nested(dims: impl Iterator<Item = Dimension>, holds: impl Fn(SymBool) -> bool) -> bool {
    let mut dims: SmallVec<[Dimension; 6]> = dims.collect();
    dims.sort_by_key(|(n, stride)| (stride.hint(), n.hint()));
    let mut reach = SymInt::from(0);
    dims.iter().all(|&(n, stride)| {
        let is_clear = holds(stride.gt(reach));
        reach += stride * (n - 1);
        is_clear
    })
}
