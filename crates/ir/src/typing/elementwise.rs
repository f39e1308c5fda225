//! Strides of pointwise results, as PyTorch's `TensorIterator` computes them.
//!
//! If all operands have the shape of the result and the same dense layout, the result has this
//! layout (the fast setup of `TensorIterator`). Otherwise the dimensions are sorted by the
//! operands' strides with an insertion sort (`reorder_dimensions`), and the result is dense in this
//! order. On symbolic sizes, the same comparisons are proved if possible and guarded otherwise.

use super::strides::{is_channels_last_i64, is_surely_at_most, is_surely_contiguous};
use super::{Dims, DimsI64, TypingError, contiguous_strides, dense_strides};
use super::{is_non_overlapping_and_dense_i64, plain, symbolic};
use crate::sym::{SymError, SymInt};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The strides of a newly allocated result of a pointwise operator.
///
/// `out_sizes` is the shape to which the operands broadcast. An operand is its sizes and strides; a
/// number also counts as an operand, with empty slices. If all operands have the result's shape and
/// all are contiguous, or all are channels-last, or all are dense with the same strides, the result
/// has these strides. Otherwise the result is dense in the order of the operands' strides; the
/// first operand that orders two dimensions decides.
///
/// # Errors
/// [`TypingError::Rank`] if an operand's sizes and strides differ in number or exceed the result's.
#[track_caller]
pub fn elementwise_strides(
    out_sizes: &[SymInt],
    operands: &[(&[SymInt], &[SymInt])],
) -> Result<Dims, TypingError> {
    for (operand, (sizes, strides)) in operands.iter().enumerate() {
        if sizes.len() != strides.len() || sizes.len() > out_sizes.len() {
            return Err(TypingError::Rank {
                operand,
                sizes: sizes.len(),
                strides: strides.len(),
                out: out_sizes.len(),
            });
        }
    }
    let same_shape = |sizes: &[SymInt]| {
        sizes.len() == out_sizes.len()
            && sizes.iter().zip(out_sizes).all(|(&a, &b)| provably_equal(a, b))
    };
    let contiguous = contiguous_strides(out_sizes);
    let has_contiguous_strides =
        |strides: &[SymInt]| strides.iter().zip(&contiguous).all(|(&a, &b)| provably_equal(a, b));
    if operands.iter().all(|(sizes, strides)| {
        same_shape(sizes)
            && (has_contiguous_strides(strides) || is_surely_contiguous(sizes, strides))
    }) {
        return Ok(contiguous);
    }
    let numbers = |sides: &(&[SymInt], &[SymInt])| Some((plain(sides.0)?, plain(sides.1)?));
    if let (Some(out), Some(operands)) =
        (plain(out_sizes), operands.iter().map(numbers).collect::<Option<SmallVec<[_; 3]>>>())
    {
        return on_numbers(&out, &operands);
    }
    on_symbols(out_sizes, operands)
}

fn provably_equal(a: SymInt, b: SymInt) -> bool {
    a.eq(b).statically_known() == Some(true)
}

/// The rules for plain numbers, after the rule for contiguous operands.
fn on_numbers(out: &DimsI64, operands: &[(DimsI64, DimsI64)]) -> Result<Dims, TypingError> {
    let out_sizes = symbolic(out);
    if operands.iter().all(|(sizes, _)| sizes == out) {
        let all = |dense: fn(&[i64], &[i64]) -> bool| {
            operands.iter().all(|(sizes, strides)| dense(sizes, strides))
        };
        if all(is_channels_last_i64) {
            return Ok(dense_strides(&out_sizes, [1, 3, 2, 0]));
        }
        if let [(_, first), rest @ ..] = operands
            && rest.iter().all(|(_, strides)| strides == first)
            && all(is_non_overlapping_and_dense_i64)
        {
            return Ok(symbolic(first));
        }
    }
    let aligned: SmallVec<[DimsI64; 3]> = operands
        .iter()
        .map(|(sizes, strides)| {
            let mut aligned = DimsI64::from_elem(0, out.len());
            let offset = out.len() - sizes.len();
            for ((to, &size), &stride) in aligned.iter_mut().skip(offset).zip(sizes).zip(strides) {
                *to = if size == 1 { 0 } else { stride };
            }
            aligned
        })
        .collect();
    let order = memory_order(&Aligned { out: out.as_slice(), operands: aligned })?;
    Ok(dense_strides(&out_sizes, order))
}

/// The rules for symbolic sizes. A size counts as 1 only if this is proved, which holds for every
/// stretched size. If the order of the other dimensions depends on whether a size is 1, this is
/// guarded.
#[track_caller]
fn on_symbols(out: &[SymInt], operands: &[(&[SymInt], &[SymInt])]) -> Result<Dims, TypingError> {
    let affects_result = out.len() > 2
        && !operands.iter().all(|(sizes, strides)| is_surely_row_major(sizes, strides))
        && !one_operand_decides(out, operands);
    let mut aligned: SmallVec<[Dims; 3]> = SmallVec::new();
    for (sizes, strides) in operands {
        let mut own = Dims::from_elem(SymInt::from(0), out.len());
        let offset = out.len() - sizes.len();
        for ((to, &size), &stride) in own.iter_mut().skip(offset).zip(*sizes).zip(*strides) {
            let one = size.eq(1);
            let must_guard =
                affects_result && stride.as_i64() != Some(0) && !one.is_data_dependent();
            let is_one =
                if must_guard { one.guard()? } else { one.statically_known() == Some(true) };
            *to = if is_one { 0.into() } else { stride };
        }
        aligned.push(own);
    }
    let order = memory_order(&Aligned { out, operands: aligned })?;
    Ok(dense_strides(out, order))
}

/// The strides of the dimensions that take part in comparisons at some sizes.
fn ordered_strides(sizes: &[SymInt], strides: &[SymInt]) -> Dims {
    let dims = sizes.iter().zip(strides);
    dims.filter(|(size, stride)| stride.as_i64() != Some(0) && !provably_equal(**size, 1.into()))
        .map(|(_, &stride)| stride)
        .collect()
}

/// Whether every comparison keeps row-major order, with or without the sizes that may be 1.
fn is_surely_row_major(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    let ordered = ordered_strides(sizes, strides);
    let is_inside = |inner: SymInt, outer: SymInt| {
        !provably_equal(inner, outer) && is_surely_at_most(inner, outer) == Some(true)
    };
    (1..ordered.len()).all(|i| ordered[..i].iter().all(|&outer| is_inside(ordered[i], outer)))
}

/// Whether one operand orders all dimensions of the result, and no operand before it any two. A
/// size of 1 then does not stand between two other dimensions: the order of these is the operand's.
fn one_operand_decides(out: &[SymInt], operands: &[(&[SymInt], &[SymInt])]) -> bool {
    let ordered = |(sizes, strides): &(&[SymInt], &[SymInt])| ordered_strides(sizes, strides);
    let Some(first) = operands.iter().map(ordered).find(|strides| strides.len() > 1) else {
        return true;
    };
    let long = out.iter().filter(|n| !provably_equal(**n, 1.into())).count();
    let tie = |i: usize| first[..i].iter().any(|&other| provably_equal(first[i], other));
    first.len() == long && !(1..first.len()).any(tie)
}

/// The required order of two dimensions, the first of which is currently the inner one.
enum Order {
    Keep,
    Swap,
    Either,
}

/// The result's sizes and the operands' strides, aligned to the result. A stride is 0 where an
/// operand is stretched or has size 1; such a stride cannot be observed and takes no part in the
/// comparison. (PyTorch does compare it in a case that a comparison with another dimension leaves
/// undecided.)
struct Aligned<'a, T> {
    out: &'a [T],
    operands: SmallVec<[SmallVec<[T; 4]>; 3]>,
}

/// Comparison of dimensions. A trait instead of a closure, because a closure cannot pass on the
/// caller's location.
trait Compare {
    fn rank(&self) -> usize;
    /// The order that the operands' strides require of two dimensions.
    #[track_caller]
    fn compare(&self, inner: usize, outer: usize) -> Result<Order, SymError>;
}

impl Compare for Aligned<'_, i64> {
    fn rank(&self) -> usize {
        self.out.len()
    }

    fn compare(&self, inner: usize, outer: usize) -> Result<Order, SymError> {
        for strides in &self.operands {
            let (a, b) = (strides[inner], strides[outer]);
            match a.cmp(&b) {
                _ if a == 0 || b == 0 => {}
                Ordering::Less => return Ok(Order::Keep),
                Ordering::Greater => return Ok(Order::Swap),
                Ordering::Equal if self.out[inner] > self.out[outer] => return Ok(Order::Swap),
                Ordering::Equal => {}
            }
        }
        Ok(Order::Either)
    }
}

impl Compare for Aligned<'_, SymInt> {
    fn rank(&self) -> usize {
        self.out.len()
    }

    fn compare(&self, inner: usize, outer: usize) -> Result<Order, SymError> {
        for strides in &self.operands {
            let (a, b) = (strides[inner], strides[outer]);
            if a.as_i64() == Some(0) || b.as_i64() == Some(0) {
                continue;
            }
            // Strides of which one is a multiple of the other are equal where a size is 1, whose
            // order cannot be observed. Others may be equal in an operand that overlaps itself.
            let is_tie = provably_equal(a, b)
                || match is_surely_at_most(a, b) {
                    Some(true) => return Ok(Order::Keep),
                    Some(false) => return Ok(Order::Swap),
                    None if !a.le(b).guard()? => return Ok(Order::Swap),
                    None => a.eq(b).guard()?,
                };
            if !is_tie {
                return Ok(Order::Keep);
            }
            // Only an operand that overlaps itself has two equal strides, unless one of the
            // dimensions has size 1 and their order cannot be observed.
            let larger = self.out[inner].gt(self.out[outer]);
            let affects_result = !provably_equal(self.out[inner], 1.into())
                && !provably_equal(self.out[outer], 1.into());
            if larger
                .statically_known()
                .map_or_else(|| if affects_result { larger.guard() } else { Ok(false) }, Ok)?
            {
                return Ok(Order::Swap);
            }
        }
        Ok(Order::Either)
    }
}

/// The dimensions from innermost to outermost, by insertion sort from row-major order. The
/// comparison may be undecided for two neighbours and decided for dimensions further apart, so a
/// general sort would not be valid.
#[track_caller]
fn memory_order(dims: &impl Compare) -> Result<SmallVec<[usize; 4]>, SymError> {
    let mut order: SmallVec<[usize; 4]> = (0..dims.rank()).rev().collect();
    for i in 1..dims.rank() {
        let mut moving = i;
        for other in (0..i).rev() {
            match dims.compare(order[other], order[moving])? {
                Order::Keep => break,
                Order::Either => {}
                Order::Swap => {
                    order.swap(other, moving);
                    moving = other;
                }
            }
        }
    }
    Ok(order)
}
