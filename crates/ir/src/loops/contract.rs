//! The sum of products of a contraction; [`fold`](super::fold#contractions) defines its order.

use super::array::Array;
use crate::scalar_expr::{BinaryOp, EvalError, StdFunctions, binary};
use crate::{DType, Scalar};

/// The products of one chain.
pub const SEGMENT: usize = 512;
/// The segments of a group.
pub const GROUP: usize = 64;

/// The sum of the products of factors of this dtype.
pub(super) fn sum_of_products(
    dtype: DType,
    factors: &[(Scalar, Scalar)],
) -> Result<Scalar, EvalError> {
    if !dtype.is_float() {
        return factors.iter().try_fold(Scalar::Int(0), |sum, &(a, b)| {
            let product = binary(BinaryOp::Mul, a, b, dtype, &StdFunctions)?;
            binary(BinaryOp::Add, sum, product, dtype, &StdFunctions)
        });
    }
    let chain = |segment: &[(Scalar, Scalar)]| {
        segment.iter().fold(0.0, |sum, (a, b)| fma(dtype, a.to_f64(), b.to_f64(), sum))
    };
    let plus = |a: f64, b: f64| match dtype {
        DType::F64 => a + b,
        _ => f64::from(a as f32 + b as f32),
    };
    let group = |group: &[(Scalar, Scalar)]| group.chunks(SEGMENT).map(chain).reduce(plus);
    let sum = factors.chunks(SEGMENT * GROUP).filter_map(group).reduce(plus);
    Ok(Array::one_nan(Scalar::Float(sum.unwrap_or(0.0))))
}

/// `a * b + c`, rounded once to `f64`, or to `f32` for every other dtype.
fn fma(dtype: DType, a: f64, b: f64, c: f64) -> f64 {
    match dtype {
        DType::F64 => a.mul_add(b, c),
        _ => f64::from((a as f32).mul_add(b as f32, c as f32)),
    }
}
