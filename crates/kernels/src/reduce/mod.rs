//! Reductions over any dimensions: sums, products, extremes, norms, moments, and positions of
//! extremes.
//!
//! [`lanes`] defines the order in which elements are combined, and [`walk`] traverses the input in
//! that order. Results have the same bits for every layout, instruction set and number of threads.
//! A NaN result is always the same NaN.

mod arg;
mod columns;
mod dense;
pub(crate) mod lanes;
mod moments;
pub(crate) mod rows;
mod shape;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use arg::better;
pub use arg::{argminmax, minmax_with_index};

use crate::copy::same_dtype;
use crate::element::Class;
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::pointwise::steps::{Kind, class_of};
use crate::view::{Ptr, View, ViewMut};
pub(crate) use dense::DenseReduction;
use maquette_ir::DType;
use moments::moments;
use shape::Shape;
use walk::run;

const KERNEL: &str = "reduce";

/// The operation of a reduction. `f64`, and the variance of every float dtype, accumulates in
/// `f64`. Other floats accumulate in `f32`, integers in `i64` with wrapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReduceOp {
    /// The sum, computed in the output's class; 0 of no elements.
    Sum,
    /// The product, computed in the output's class; 1 of no elements.
    Prod,
    /// The least element; NaN if any element is NaN.
    Min,
    /// The greatest element; NaN if any element is NaN.
    Max,
    /// Whether any element is nonzero. The output is `bool` or `u8`.
    Any,
    /// Whether all elements are nonzero. The output is `bool` or `u8`.
    All,
    /// The sum divided by the number of elements. Floats.
    Mean,
    /// The norm `(sum |x|^p)^(1/p)`. With p = 0 it is the number of nonzero elements, with infinite
    /// p the greatest or least magnitude. Floats.
    Norm(f64),
    /// The sum of squared deviations from the mean, divided by `count - correction`. Floats.
    Var {
        /// 1 for the unbiased estimate.
        correction: f64,
    },
    /// The square root of [`ReduceOp::Var`].
    Std {
        /// 1 for the unbiased estimate.
        correction: f64,
    },
    /// The position of the first NaN, or else of the first least element. Positions are row-major
    /// over `dims`. The output is `i64`.
    ArgMin,
    /// The position of the first NaN, or else of the first greatest element. The output is `i64`.
    ArgMax,
}

/// Reduces `input` over `dims` into `out`. The output has the input's sizes with these dimensions
/// removed, or of size 1. An empty `dims` reduces no dimension.
pub fn reduce(op: ReduceOp, input: &View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<()> {
    reduce_on(Isa::detect(), op, input, dims, out)
}

/// The mean of floats, accumulated in `f64` and cast to the output's dtype.
pub(crate) fn mean_by_f64(
    isa: Isa,
    input: &View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    moments::<f64>(ReduceOp::Mean, &Shape::new(isa, input, dims, out)?, input, out)
}

/// As [`reduce`], on a given instruction set.
pub fn reduce_on(
    isa: Isa,
    op: ReduceOp,
    input: &View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if let Some(dense) = DenseReduction::of(op, input, dims, out) {
        let addresses = [input.as_ptr().cast_mut(), out.as_ptr().cast_mut()].map(Ptr);
        // SAFETY: the addresses are those of the views.
        return unsafe { dense.run(isa, addresses) };
    }
    let shape = Shape::new(isa, input, dims, out)?;
    match op {
        ReduceOp::ArgMin | ReduceOp::ArgMax => {
            arg::run(op == ReduceOp::ArgMax, input, &shape, None, Some(out))
        }
        ReduceOp::Any | ReduceOp::All => {
            if !matches!(out.dtype(), DType::Bool | DType::U8) {
                return Err(dtype_error("the output", "bool or u8", out.dtype()));
            }
            match op {
                ReduceOp::Any => run::<bool, Max>(&shape, input, out, false, None, &|x| x),
                _ => run::<bool, Min>(&shape, input, out, true, None, &|x| x),
            }
        }
        ReduceOp::Min | ReduceOp::Max => {
            same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
            if shape.extent() == 0 && out.numel() > 0 {
                return Err(KernelError::EmptyReduction { kernel: KERNEL });
            }
            match class_of(out.dtype()) {
                Kind::F32 => {
                    min_or_max::<f32>(op, &shape, input, out, f32::NEG_INFINITY, f32::INFINITY)
                }
                Kind::F64 => {
                    min_or_max::<f64>(op, &shape, input, out, f64::NEG_INFINITY, f64::INFINITY)
                }
                Kind::I64 => min_or_max::<i64>(op, &shape, input, out, i64::MIN, i64::MAX),
                Kind::Bool => min_or_max::<bool>(op, &shape, input, out, false, true),
            }
        }
        ReduceOp::Sum | ReduceOp::Prod => match class_of(out.dtype()) {
            Kind::F32 => sum_or_product::<f32>(op, &shape, input, out, 1.0),
            Kind::F64 => sum_or_product::<f64>(op, &shape, input, out, 1.0),
            // A sum of bools counts the true elements.
            Kind::I64 | Kind::Bool => sum_or_product::<i64>(op, &shape, input, out, 1),
        },
        ReduceOp::Mean | ReduceOp::Norm(_) | ReduceOp::Var { .. } | ReduceOp::Std { .. } => {
            match class_of(out.dtype()) {
                _ if !input.dtype().is_float() => {
                    Err(dtype_error("the input", "a float", input.dtype()))
                }
                Kind::I64 | Kind::Bool => Err(dtype_error("the output", "a float", out.dtype())),
                // A variance of f32 accumulates in f64: the sum of squared deviations may overflow
                // f32 although the standard deviation does not.
                Kind::F32 if matches!(op, ReduceOp::Mean | ReduceOp::Norm(_)) => {
                    moments::<f32>(op, &shape, input, out)
                }
                Kind::F32 | Kind::F64 => moments::<f64>(op, &shape, input, out),
            }
        }
    }
}

fn dtype_error(operand: &'static str, expected: &str, found: DType) -> KernelError {
    KernelError::DType { kernel: KERNEL, operand, expected: expected.into(), found }
}

/// [`ReduceOp::Sum`] and [`ReduceOp::Prod`] in class `A`.
fn sum_or_product<A: Class>(
    op: ReduceOp,
    shape: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    one: A,
) -> Result<()>
where
    Add: Op2<A, A>,
    Mul: Op2<A, A>,
{
    match op {
        ReduceOp::Sum => run::<A, Add>(shape, input, out, A::default(), None, &|x| x),
        _ => run::<A, Mul>(shape, input, out, one, None, &|x| x),
    }
}

/// [`ReduceOp::Min`] and [`ReduceOp::Max`] in class `A`, whose range is `least..=greatest`.
fn min_or_max<A: Class>(
    op: ReduceOp,
    shape: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    least: A,
    greatest: A,
) -> Result<()>
where
    Min: Op2<A, A>,
    Max: Op2<A, A>,
{
    match op {
        ReduceOp::Max => run::<A, Max>(shape, input, out, least, None, &|x| x),
        _ => run::<A, Min>(shape, input, out, greatest, None, &|x| x),
    }
}
