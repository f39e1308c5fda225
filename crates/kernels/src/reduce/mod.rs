//! Reductions over any dimensions. See [`lanes`] for the order of summation, which is the same for every layout,
//! instruction set and number of threads.

mod arg;
pub(crate) mod lanes;
mod moments;
#[cfg(test)]
mod tests;
mod walk;

pub use arg::{argminmax, minmax_with_index};

use crate::copy::same_dtype;
use crate::element::{Class, Element, dispatch};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::view::{View, ViewMut};
use maquette_ir::DType;
use moments::moments;
use walk::{Shape, run};

const KERNEL: &str = "reduce";

/// What a reduction computes. Floats accumulate in `f32` (`f64` for `f64`), integers in `i64`, wrapping.
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
    /// `(sum |x|^p)^(1/p)`; p of 0 counts the nonzero, infinities give the greatest and least magnitude; floats.
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
    /// The first index of the least, or of the first NaN; over all of `dims` flattened in order; the output is i64.
    ArgMin,
    /// The first index of the greatest, or of the first NaN; the output is i64.
    ArgMax,
}

/// Reduces `input` over `dims` (none: no dimension) into `out`, whose sizes are the input's with those dimensions removed, or 1.
pub fn reduce(op: ReduceOp, input: &View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<()> {
    reduce_on(Isa::detect(), op, input, dims, out)
}

/// As [`reduce`], on a chosen instruction set.
pub fn reduce_on(isa: Isa, op: ReduceOp, input: &View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<()> {
    let shape = Shape::new(isa, input, dims, out)?;
    match op {
        ReduceOp::ArgMin | ReduceOp::ArgMax => arg::run(op == ReduceOp::ArgMax, input, &shape, None, Some(out)),
        ReduceOp::Any | ReduceOp::All => {
            if !matches!(out.dtype(), DType::Bool | DType::U8) {
                return Err(wrong("the output", "bool or u8", out.dtype()));
            }
            dispatch!(input.dtype(), T => dispatch!(out.dtype(), R => match op {
                ReduceOp::Any => run::<T, bool, R, Max>(&shape, input, out, false, None, |x| x),
                _ => run::<T, bool, R, Min>(&shape, input, out, true, None, |x| x),
            }))
        }
        ReduceOp::Min | ReduceOp::Max => {
            same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
            if shape.extent() == 0 && out.numel() > 0 {
                return Err(KernelError::EmptyReduction { kernel: KERNEL });
            }
            minmax(op == ReduceOp::Max, &shape, input, out)
        }
        ReduceOp::Sum | ReduceOp::Prod => dispatch!(out.dtype(), R => dispatch!(input.dtype(), T => sum_prod::<T, R>(op, &shape, input, out))),
        _ => dispatch!(float KERNEL, "the output", out.dtype(), R => dispatch!(float KERNEL, "the input", input.dtype(), T =>
            moments::<T, <R as Element>::Class, R>(op, &shape, input, out))),
    }
}

fn wrong(operand: &'static str, expected: &str, found: DType) -> KernelError {
    KernelError::DType { kernel: KERNEL, operand, expected: expected.into(), found }
}

/// Sums accumulate in the output's class, except that bool counts as an integer.
trait Summed: Class {
    type Acc: Class;
}
impl Summed for f32 {
    type Acc = f32;
}
impl Summed for f64 {
    type Acc = f64;
}
impl Summed for i64 {
    type Acc = i64;
}
impl Summed for bool {
    type Acc = i64;
}

fn sum_prod<T: Element, R: Element<Class: Summed>>(op: ReduceOp, s: &Shape, input: &View<'_>, out: &mut ViewMut<'_>) -> Result<()>
where
    Add: Op2<<R::Class as Summed>::Acc, <R::Class as Summed>::Acc>,
    Mul: Op2<<R::Class as Summed>::Acc, <R::Class as Summed>::Acc>,
{
    type Acc<R> = <<R as Element>::Class as Summed>::Acc;
    match op {
        ReduceOp::Sum => run::<T, Acc<R>, R, Add>(s, input, out, Acc::<R>::default(), None, |x| x),
        _ => run::<T, Acc<R>, R, Mul>(s, input, out, Class::cast(1i64), None, |x| x),
    }
}

fn minmax(max: bool, s: &Shape, input: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    macro_rules! both {
        ($A:ty, $T:ty, $low:expr, $high:expr) => {
            if max { run::<$T, $A, $T, Max>(s, input, out, $low, None, |x| x) } else { run::<$T, $A, $T, Min>(s, input, out, $high, None, |x| x) }
        };
    }
    match input.dtype() {
        DType::Bool => both!(bool, bool, false, true),
        DType::U8 => both!(i64, u8, i64::MIN, i64::MAX),
        DType::I8 => both!(i64, i8, i64::MIN, i64::MAX),
        DType::I16 => both!(i64, i16, i64::MIN, i64::MAX),
        DType::I32 => both!(i64, i32, i64::MIN, i64::MAX),
        DType::I64 => both!(i64, i64, i64::MIN, i64::MAX),
        DType::F16 => both!(f32, half::f16, f32::NEG_INFINITY, f32::INFINITY),
        DType::BF16 => both!(f32, half::bf16, f32::NEG_INFINITY, f32::INFINITY),
        DType::F32 => both!(f32, f32, f32::NEG_INFINITY, f32::INFINITY),
        DType::F64 => both!(f64, f64, f64::NEG_INFINITY, f64::INFINITY),
    }
}

