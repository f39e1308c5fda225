//! Strides of dense tensors, and tests for dense tensors.
//!
//! The functions with suffix `_i64` take plain numbers. The others take symbolic sizes; a decision
//! is proved if possible and guarded otherwise.

use super::{Dims, DimsI64, plain};
use crate::sym::{SymError, SymInt};
use smallvec::SmallVec;
use std::convert::Infallible;

/// Writes the strides of a dense tensor, in any arithmetic. Along `inner_to_outer`, a permutation
/// of the dimensions, each stride is the previous one times the previous size. `one` is the
/// innermost stride, and `times(stride, size)` the product.
///
/// PyTorch's strides count a size of 0 as 1, so there `times` multiplies by `max(size, 1)`. The
/// outermost size is a factor of no stride and is not multiplied, so only a stride overflows. As in
/// PyTorch (`TensorImpl::empty_tensor_restride`), this is an error: a wrapped stride could equal
/// the stride of another tensor.
///
/// # Errors
/// The first error of `times`.
pub fn fill_dense_strides<T: Copy, E>(
    sizes: &[T],
    strides: &mut [T],
    inner_to_outer: impl IntoIterator<Item = usize>,
    one: T,
    mut times: impl FnMut(T, T) -> Result<T, E>,
) -> Result<(), E> {
    let mut next = one;
    let mut inner = None;
    for dim in inner_to_outer {
        if let (Some(stride), Some(&size)) = (strides.get_mut(dim), sizes.get(dim)) {
            if let Some(inner) = inner.replace(size) {
                next = times(next, inner)?;
            }
            *stride = next;
        }
    }
    Ok(())
}

/// The row-major strides of a tensor with these sizes, or `None` if one overflows. A size of 0
/// counts as 1, as in PyTorch.
pub fn contiguous_strides_i64(sizes: &[i64]) -> Option<DimsI64> {
    dense_strides_i64(sizes, (0..sizes.len()).rev())
}

/// The row-major strides of a tensor with these sizes. A size of 0 counts as 1, as in PyTorch. A
/// stride that overflows is poisoned.
pub fn contiguous_strides(sizes: &[SymInt]) -> Dims {
    dense_strides(sizes, (0..sizes.len()).rev())
}

/// The strides of a dense tensor whose dimensions have the memory order `inner_to_outer`, a
/// permutation, or `None` if one overflows. A size of 0 counts as 1. Channels-last is the order
/// 1, 3, 2, 0.
pub fn dense_strides_i64(
    sizes: &[i64],
    inner_to_outer: impl IntoIterator<Item = usize>,
) -> Option<DimsI64> {
    let mut strides = DimsI64::from_elem(1, sizes.len());
    let times = |stride: i64, size: i64| stride.checked_mul(size.max(1)).ok_or(());
    fill_dense_strides(sizes, &mut strides, inner_to_outer, 1, times).ok()?;
    Some(strides)
}

/// The strides of a dense tensor whose dimensions have the memory order `inner_to_outer`, a
/// permutation. A size of 0 counts as 1. A stride that overflows is poisoned.
pub fn dense_strides(sizes: &[SymInt], inner_to_outer: impl IntoIterator<Item = usize>) -> Dims {
    let one = SymInt::from(1);
    let mut strides = Dims::from_elem(one, sizes.len());
    let times = |stride: SymInt, size: SymInt| Ok::<_, Infallible>(times_extent(stride, size));
    let Ok(()) = fill_dense_strides(sizes, &mut strides, inner_to_outer, one, times);
    strides
}

/// `stride * max(size, 1)`, without symbolic arithmetic on plain numbers.
fn times_extent(stride: SymInt, size: SymInt) -> SymInt {
    match (stride.as_i64(), size.as_i64()) {
        (Some(n), Some(size)) => n
            .checked_mul(size.max(1))
            .map_or_else(|| stride * SymInt::from(size.max(1)), SymInt::from),
        _ => stride * size.max(1),
    }
}

/// Whether a tensor is row-major and dense. An empty tensor is; strides of dimensions of size 1 are
/// irrelevant.
pub fn is_contiguous_i64(sizes: &[i64], strides: &[i64]) -> bool {
    is_dense_in_order(sizes, strides, (0..sizes.len()).rev())
}

/// Whether a tensor of four dimensions is dense in channels-last order.
pub(super) fn is_channels_last_i64(sizes: &[i64], strides: &[i64]) -> bool {
    // PyTorch does not exempt empty tensors here. The difference affects no stride that can be
    // observed.
    sizes.len() == 4 && is_dense_in_order(sizes, strides, [1, 3, 2, 0])
}

/// Whether a tensor is dense with this memory order of its dimensions.
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

/// [`is_contiguous_i64`] for symbolic sizes. A tensor of sizes from data, whose strides are not
/// those of rows, is not row-major, although it may have no elements.
///
/// # Errors
/// [`SymError::DataDependent`] if the answer depends on data.
#[track_caller]
pub fn is_contiguous(sizes: &[SymInt], strides: &[SymInt]) -> Result<bool, SymError> {
    if let (Some(sizes), Some(strides)) = (plain(sizes), plain(strides)) {
        return Ok(is_contiguous_i64(&sizes, &strides));
    }
    let is_dense = is_dense_in_sym_order(sizes, strides, (0..sizes.len()).rev())?;
    Ok(is_dense || counts_as_empty(sizes))
}

/// [`is_dense_in_order`] for symbolic sizes.
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

/// Whether a tensor has no elements: proved, or guarded. Sizes from data cannot be guarded, and
/// count as not 0.
#[track_caller]
pub fn counts_as_empty(sizes: &[SymInt]) -> bool {
    sizes.iter().any(|size| size.eq(0).guard().unwrap_or(false))
}

/// Whether a tensor is provably row-major and dense; never guards.
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

/// The expected stride of the next dimension of a dense tensor: the product of the inner sizes,
/// once with 0 counted as 1 and once exactly. The two differ only for empty tensors, whose strides
/// are irrelevant, so a stride may equal either.
struct Expected {
    positive: SymInt,
    exact: SymInt,
}

impl Expected {
    fn new() -> Expected {
        Expected { positive: SymInt::from(1), exact: SymInt::from(1) }
    }

    /// Whether the stride is provably as expected, or provably irrelevant because the size is 1.
    fn is_surely(&self, size: SymInt, stride: SymInt) -> bool {
        let surely = |b: crate::sym::SymBool| b.statically_known() == Some(true);
        surely(stride.eq(self.positive)) || surely(stride.eq(self.exact)) || surely(size.eq(1))
    }

    /// Multiplies the expectation by the size of a dimension.
    fn push(&mut self, size: SymInt) {
        self.positive *= size.max(1);
        self.exact *= size;
    }
}

/// Whether a tensor is dense and no two elements share a position, for some order of its
/// dimensions.
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

/// [`is_non_overlapping_and_dense_i64`] for symbolic sizes.
///
/// # Errors
/// [`SymError::DataDependent`] if the answer depends on data.
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

/// Whether `a <= b` for two strides of one tensor. If neither is provably a multiple of the other,
/// the comparison is guarded. No guard is recorded to determine whether a size is 0.
#[track_caller]
pub(super) fn is_at_most(a: SymInt, b: SymInt) -> Result<bool, SymError> {
    match is_surely_at_most(a, b) {
        Some(known) => Ok(known),
        None => a.le(b).guard(),
    }
}

/// Whether `a <= b` for two strides of one tensor, if that follows without a guard.
pub(super) fn is_surely_at_most(a: SymInt, b: SymInt) -> Option<bool> {
    if let Some(known) = a.le(b).statically_known() {
        return Some(known);
    }
    // A nonzero multiple of a positive number is at least as large. A multiple is 0 only if a size
    // is 0, and then strides are irrelevant.
    let is_multiple = |x: SymInt, of: SymInt| (x % of).eq(0).statically_known() == Some(true);
    match (is_multiple(b, a), is_multiple(a, b)) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}
