//! Reductions over any dimensions. See [`lanes`] for the order of summation, which is the same for
//! every layout, instruction set and number of threads. A result that is NaN is always the same
//! NaN.

mod arg;
pub(crate) mod lanes;
mod moments;
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
use crate::view::{View, ViewMut};
use maquette_ir::DType;
use moments::moments;
use walk::{Shape, run};

const KERNEL: &str = "reduce";

/// What a reduction computes. Floats accumulate in `f32` (`f64` for `f64`, and in variances),
/// integers in `i64`, wrapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReduceOp {
    /// The sum, in the output's class; 0 of nothing.
    Sum,
    /// The product, in the output's class; 1 of nothing.
    Prod,
    /// The least; NaN if there is one.
    Min,
    /// The greatest; NaN if there is one.
    Max,
    /// Whether any element is nonzero; the output is bool or u8.
    Any,
    /// Whether all elements are nonzero; the output is bool or u8.
    All,
    /// The sum over the count; floats.
    Mean,
    /// `(sum |x|^p)^(1/p)`; p of 0 counts the nonzero, infinities give the greatest and least
    /// magnitude; floats.
    Norm(f64),
    /// The sum of squared deviations from the mean over `count - correction`; floats.
    Var {
        /// 1 for the unbiased estimate.
        correction: f64,
    },
    /// The square root of [`ReduceOp::Var`].
    Std {
        /// 1 for the unbiased estimate.
        correction: f64,
    },
    /// The first index of the least, or of the first NaN; over all of `dims` flattened in order;
    /// the output is i64.
    ArgMin,
    /// The first index of the greatest, or of the first NaN; the output is i64.
    ArgMax,
}

/// Reduces `input` over `dims` (none: no dimension) into `out`, whose sizes are the input's with
/// those dimensions removed, or 1.
pub fn reduce(op: ReduceOp, input: &View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<()> {
    reduce_on(Isa::detect(), op, input, dims, out)
}

/// As [`reduce`], on a chosen instruction set.
pub fn reduce_on(
    isa: Isa,
    op: ReduceOp,
    input: &View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let shape = Shape::new(isa, input, dims, out)?;
    match op {
        ReduceOp::ArgMin | ReduceOp::ArgMax => {
            arg::run(op == ReduceOp::ArgMax, input, &shape, None, Some(out))
        }
        ReduceOp::Any | ReduceOp::All => {
            if !matches!(out.dtype(), DType::Bool | DType::U8) {
                return Err(wrong("the output", "bool or u8", out.dtype()));
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
                    extremes::<f32>(op, &shape, input, out, f32::NEG_INFINITY, f32::INFINITY)
                }
                Kind::F64 => {
                    extremes::<f64>(op, &shape, input, out, f64::NEG_INFINITY, f64::INFINITY)
                }
                Kind::I64 => extremes::<i64>(op, &shape, input, out, i64::MIN, i64::MAX),
                Kind::Bool => extremes::<bool>(op, &shape, input, out, false, true),
            }
        }
        ReduceOp::Sum | ReduceOp::Prod => match class_of(out.dtype()) {
            Kind::F32 => totals::<f32>(op, &shape, input, out, 1.0),
            Kind::F64 => totals::<f64>(op, &shape, input, out, 1.0),
            // Bool counts.
            Kind::I64 | Kind::Bool => totals::<i64>(op, &shape, input, out, 1),
        },
        ReduceOp::Mean | ReduceOp::Norm(_) | ReduceOp::Var { .. } | ReduceOp::Std { .. } => {
            match class_of(out.dtype()) {
                _ if !input.dtype().is_float() => Err(wrong("the input", "a float", input.dtype())),
                Kind::I64 | Kind::Bool => Err(wrong("the output", "a float", out.dtype())),
                // squares of deviations leave the range of `f32` long before their mean's root does
                Kind::F32 if matches!(op, ReduceOp::Mean | ReduceOp::Norm(_)) => {
                    moments::<f32>(op, &shape, input, out)
                }
                Kind::F32 | Kind::F64 => moments::<f64>(op, &shape, input, out),
            }
        }
    }
}

fn wrong(operand: &'static str, expected: &str, found: DType) -> KernelError {
    KernelError::DType { kernel: KERNEL, operand, expected: expected.into(), found }
}

fn totals<A: Class>(
    op: ReduceOp,
    s: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    one: A,
) -> Result<()>
where
    Add: Op2<A, A>,
    Mul: Op2<A, A>,
{
    match op {
        ReduceOp::Sum => run::<A, Add>(s, input, out, A::default(), None, &|x| x),
        _ => run::<A, Mul>(s, input, out, one, None, &|x| x),
    }
}

fn extremes<A: Class>(
    op: ReduceOp,
    s: &Shape,
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
        ReduceOp::Max => run::<A, Max>(s, input, out, least, None, &|x| x),
        _ => run::<A, Min>(s, input, out, greatest, None, &|x| x),
    }
}
