//! Strides of pointwise results.

use super::strides::{is_at_most, is_channels_last_i64, is_surely_contiguous};
use super::{Dims, DimsI64, TypingError, contiguous_strides, dense_strides_i64};
use super::{is_non_overlapping_and_dense_i64, plain, symbolic};
use crate::sym::{SymError, SymInt};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The strides of a freshly made result of a pointwise operator, as PyTorch's `TensorIterator`
/// chooses them.
///
/// `out_sizes` is what the operands' sizes broadcast to. An operand is its sizes and strides; a
/// number counts, and is a pair of empty slices. If all operands have the result's shape and are
/// all contiguous, or all channels-last, or are dense with the same strides, so is the result.
/// Otherwise the result is dense, in the order of the operands' strides, the first operand that
/// tells two dimensions apart deciding.
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
            && sizes.iter().zip(out_sizes).all(|(&a, &b)| surely_equal(a, b))
    };
    let contiguous = contiguous_strides(out_sizes);
    let as_made =
        |strides: &[SymInt]| strides.iter().zip(&contiguous).all(|(&a, &b)| surely_equal(a, b));
    if operands.iter().all(|(sizes, strides)| {
        same_shape(sizes) && (as_made(strides) || is_surely_contiguous(sizes, strides))
    }) {
        return Ok(contiguous);
    }
    let numbers = |sides: &(&[SymInt], &[SymInt])| Some((plain(sides.0)?, plain(sides.1)?));
    if let (Some(out), Some(operands)) =
        (plain(out_sizes), operands.iter().map(numbers).collect::<Option<SmallVec<[_; 3]>>>())
    {
        return Ok(symbolic(&on_numbers(&out, &operands)?));
    }
    on_symbols(out_sizes, operands)
}

fn surely_equal(a: SymInt, b: SymInt) -> bool {
    a.eq(b).statically_known() == Some(true)
}

/// The rules on numbers, after the one for contiguous operands.
fn on_numbers(out: &DimsI64, operands: &[(DimsI64, DimsI64)]) -> Result<DimsI64, SymError> {
    if operands.iter().all(|(sizes, _)| sizes == out) {
        let all = |dense: fn(&[i64], &[i64]) -> bool| {
            operands.iter().all(|(sizes, strides)| dense(sizes, strides))
        };
        if all(is_channels_last_i64) {
            return Ok(dense_strides_i64(out, [1, 3, 2, 0]));
        }
        if let [(_, first), rest @ ..] = operands
            && rest.iter().all(|(_, strides)| strides == first)
            && all(is_non_overlapping_and_dense_i64)
        {
            return Ok(first.clone());
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
    Ok(dense_strides_i64(out, order))
}

/// The same on symbolic sizes. There a size is 1 only if that is proved, which is so for every size
/// that was stretched. Where elements of an operand are repeated, or share their place, so that its
/// strides do not order all dimensions, others of size 1 show: then it is a guard.
#[track_caller]
fn on_symbols(out: &[SymInt], operands: &[(&[SymInt], &[SymInt])]) -> Result<Dims, TypingError> {
    let orders_all = |(sizes, strides): &(&[SymInt], &[SymInt])| {
        let long: SmallVec<[SymInt; 6]> = sizes
            .iter()
            .zip(*strides)
            .filter(|(n, _)| !surely_equal(**n, 1.into()))
            .map(|(_, &s)| s)
            .collect();
        let tie = |i: usize, s: SymInt| long.iter().take(i).any(|&other| surely_equal(s, other));
        !long.iter().enumerate().any(|(i, &s)| s.as_i64() == Some(0) || tie(i, s))
    };
    let shows = out.len() > 2 && !operands.iter().all(orders_all);
    let mut aligned: SmallVec<[Dims; 3]> = SmallVec::new();
    for (sizes, strides) in operands {
        let mut own = Dims::from_elem(SymInt::from(0), out.len());
        let offset = out.len() - sizes.len();
        for ((to, &size), &stride) in own.iter_mut().skip(offset).zip(*sizes).zip(*strides) {
            let one = size.eq(1);
            let asks = shows && stride.as_i64() != Some(0) && !one.is_data_dependent();
            let is_one = if asks { one.guard()? } else { one.statically_known() == Some(true) };
            *to = if is_one { 0.into() } else { stride };
        }
        aligned.push(own);
    }
    let order = memory_order(&Aligned { out, operands: aligned })?;
    Ok(super::dense_strides(out, order))
}

/// How two dimensions, of which the first now is further in, are to be ordered.
enum Order {
    Keep,
    Swap,
    Either,
}

/// The result's sizes and the operands' strides, which are 0 where an operand is stretched, or has
/// one element: such strides are not seen, and so decide nothing. (In PyTorch they do, where a
/// comparison with another dimension is undecided.)
struct Aligned<'a, T> {
    out: &'a [T],
    operands: SmallVec<[SmallVec<[T; 4]>; 3]>,
}

/// A trait, where a closure would do but for the caller's line.
trait Compare {
    fn rank(&self) -> usize;
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
            if !surely_equal(a, b) {
                return Ok(if is_at_most(a, b)? { Order::Keep } else { Order::Swap });
            }
            // only an operand that overlaps itself has such dimensions, unless one of them is of
            // size 1: then their order does not show
            let larger = self.out[inner].gt(self.out[outer]);
            let shows = !surely_equal(self.out[inner], 1.into())
                && !surely_equal(self.out[outer], 1.into());
            if larger
                .statically_known()
                .map_or_else(|| if shows { larger.guard() } else { Ok(false) }, Ok)?
            {
                return Ok(Order::Swap);
            }
        }
        Ok(Order::Either)
    }
}

/// The dimensions from inner to outer. An insertion sort from row-major order, because the
/// comparison may be undecided for two neighbours and decided for their neighbours.
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
