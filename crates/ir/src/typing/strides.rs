//! Strides of dense tensors, and whether a tensor is dense.

use super::{Dims, DimsI64, plain, symbolic};
use crate::sym::{SymError, SymInt};
use smallvec::SmallVec;

/// The row-major strides of a tensor of these sizes; a size of 0 counts as 1, as in PyTorch. Wraps
/// if the tensor is too large to exist.
pub fn contiguous_strides_i64(sizes: &[i64]) -> DimsI64 {
    dense_strides_i64(sizes, (0..sizes.len()).rev())
}

/// The row-major strides of a tensor of these sizes; a size of 0 counts as 1, as in PyTorch.
pub fn contiguous_strides(sizes: &[SymInt]) -> Dims {
    let mut strides = Dims::from_elem(SymInt::from(1), sizes.len());
    let mut next = 1i64;
    for (stride, size) in strides.iter_mut().zip(sizes).rev() {
        let Some(size) = size.as_i64() else { return dense_strides(sizes, (0..sizes.len()).rev()) };
        *stride = SymInt::from(next);
        next = next.wrapping_mul(size.max(1));
    }
    strides
}

/// The strides of a dense tensor whose dimensions lie in memory in the order `inner_to_outer`, a
/// permutation; a size of 0 counts as 1. Channels-last is the order 1, 3, 2, 0.
pub fn dense_strides_i64(
    sizes: &[i64],
    inner_to_outer: impl IntoIterator<Item = usize>,
) -> DimsI64 {
    let mut strides = DimsI64::from_elem(1, sizes.len());
    let mut next = 1i64;
    for dim in inner_to_outer {
        if let (Some(stride), Some(&size)) = (strides.get_mut(dim), sizes.get(dim)) {
            *stride = next;
            next = next.wrapping_mul(size.max(1));
        }
    }
    strides
}

/// The strides of a dense tensor whose dimensions lie in memory in the order `inner_to_outer`, a
/// permutation; a size of 0 counts as 1.
pub fn dense_strides(sizes: &[SymInt], inner_to_outer: impl IntoIterator<Item = usize>) -> Dims {
    if let Some(sizes) = plain(sizes) {
        return symbolic(&dense_strides_i64(&sizes, inner_to_outer));
    }
    let mut strides = Dims::from_elem(SymInt::from(1), sizes.len());
    let mut next = SymInt::from(1);
    let mut inner: Option<SymInt> = None;
    for dim in inner_to_outer {
        if let (Some(stride), Some(&size)) = (strides.get_mut(dim), sizes.get(dim)) {
            // the outermost size takes part in no stride
            if let Some(inner) = inner.replace(size) {
                next *= inner.max(1);
            }
            *stride = next;
        }
    }
    strides
}

/// Row-major without gaps. Empty tensors are; strides of dimensions of size 1 do not matter.
pub fn is_contiguous_i64(sizes: &[i64], strides: &[i64]) -> bool {
    is_dense_in_order(sizes, strides, (0..sizes.len()).rev())
}

/// [`is_contiguous_i64`] of channels-last order; only for four dimensions.
pub(super) fn is_channels_last_i64(sizes: &[i64], strides: &[i64]) -> bool {
    // PyTorch does not exempt empty tensors here, which shows in no stride that can be observed.
    sizes.len() == 4 && is_dense_in_order(sizes, strides, [1, 3, 2, 0])
}

fn is_dense_in_order(
    sizes: &[i64],
    strides: &[i64],
    inner_to_outer: impl IntoIterator<Item = usize>,
) -> bool {
    let mut expected = 1i64;
    let mut dims =
        inner_to_outer.into_iter().filter_map(|d| Some((*sizes.get(d)?, *strides.get(d)?)));
    sizes.contains(&0)
        || dims.all(|(size, stride)| {
            let fits = size == 1 || stride == expected;
            expected = expected.wrapping_mul(size);
            fits
        })
}

/// Row-major without gaps: [`is_contiguous_i64`] on symbolic sizes. What cannot be proved is
/// guarded, or an error if it depends on data.
#[track_caller]
pub fn is_contiguous(sizes: &[SymInt], strides: &[SymInt]) -> Result<bool, SymError> {
    if let (Some(sizes), Some(strides)) = (plain(sizes), plain(strides)) {
        return Ok(is_contiguous_i64(&sizes, &strides));
    }
    is_dense_in_sym_order(sizes, strides, (0..sizes.len()).rev())
}

#[track_caller]
fn is_dense_in_sym_order(
    sizes: &[SymInt],
    strides: &[SymInt],
    inner_to_outer: impl IntoIterator<Item = usize>,
) -> Result<bool, SymError> {
    if sizes.iter().any(|s| s.as_i64() == Some(0)) {
        return Ok(true);
    }
    let mut expected = Expected::new();
    for dim in inner_to_outer {
        let (Some(&size), Some(&stride)) = (sizes.get(dim), strides.get(dim)) else { continue };
        if !expected.is_surely(size, stride)
            && !expected.positive.eq(stride).or(size.eq(1)).guard()?
        {
            return Ok(false);
        }
        expected.push(size);
    }
    Ok(true)
}

/// Surely row-major without gaps; never guards.
pub(super) fn is_surely_contiguous(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    let mut expected = Expected::new();
    let empty = || sizes.iter().any(|size| size.as_i64() == Some(0));
    let mut inner: Option<SymInt> = None;
    let contiguous = sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
        if let Some(inner) = inner.replace(size) {
            expected.push(inner);
        }
        expected.is_surely(size, stride)
    });
    contiguous || empty()
}

/// The stride that the next dimension of a dense tensor has: a product of sizes, with and without
/// counting 0 as 1. The two differ only for empty tensors, so a stride that is either will do.
struct Expected {
    positive: SymInt,
    exact: SymInt,
}

impl Expected {
    fn new() -> Expected {
        Expected { positive: SymInt::from(1), exact: SymInt::from(1) }
    }

    fn is_surely(&self, size: SymInt, stride: SymInt) -> bool {
        let surely = |b: crate::sym::SymBool| b.statically_known() == Some(true);
        surely(stride.eq(self.positive)) || surely(stride.eq(self.exact)) || surely(size.eq(1))
    }

    fn push(&mut self, size: SymInt) {
        self.positive *= size.max(1);
        self.exact *= size;
    }
}

/// Each element has its own place and there are no gaps, in some order of the dimensions.
pub fn is_non_overlapping_and_dense_i64(sizes: &[i64], strides: &[i64]) -> bool {
    let mut dims: SmallVec<[(i64, i64); 4]> =
        strides.iter().copied().zip(sizes.iter().copied()).filter(|&(_, size)| size != 1).collect();
    dims.sort_unstable();
    let mut expected = 1i64;
    sizes.contains(&0)
        || dims.into_iter().all(|(stride, size)| {
            let fits = stride == expected;
            expected = expected.wrapping_mul(size);
            fits
        })
}

/// Each element has its own place and there are no gaps: [`is_non_overlapping_and_dense_i64`] on
/// symbolic sizes. What cannot be proved is guarded, or an error if it depends on data.
#[track_caller]
pub fn is_non_overlapping_and_dense(
    sizes: &[SymInt],
    strides: &[SymInt],
) -> Result<bool, SymError> {
    if let (Some(sizes), Some(strides)) = (plain(sizes), plain(strides)) {
        return Ok(is_non_overlapping_and_dense_i64(&sizes, &strides));
    }
    if is_surely_contiguous(sizes, strides) {
        return Ok(true);
    }
    let mut order: SmallVec<[usize; 4]> = SmallVec::new();
    for dim in (0..sizes.len().min(strides.len())).rev() {
        let mut at = order.len();
        while let Some(&before) = at.checked_sub(1).and_then(|i| order.get(i)) {
            if is_at_most(strides[before], strides[dim])? {
                break;
            }
            at -= 1;
        }
        order.insert(at, dim);
    }
    is_dense_in_sym_order(sizes, strides, order)
}

/// `a <= b` of two strides of one tensor, or one is a whole multiple of the other. Guards if it
/// must; never to tell a size of 0.
#[track_caller]
pub(super) fn is_at_most(a: SymInt, b: SymInt) -> Result<bool, SymError> {
    let le = a.le(b);
    if let Some(known) = le.statically_known() {
        return Ok(known);
    }
    // A multiple is at least as large unless it is 0, and then so is some size.
    let is_multiple = |x: SymInt, of: SymInt| (x % of).eq(0).statically_known() == Some(true);
    match (is_multiple(b, a), is_multiple(a, b)) {
        (true, _) => Ok(true),
        (false, true) => Ok(false),
        (false, false) => le.guard(),
    }
}
