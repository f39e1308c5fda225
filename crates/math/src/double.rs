//! The functions of `f64`. The exponential, the logarithm, tanh and sigmoid vectorise; the other
//! functions are those of `libm`.

use crate::algebra::{Double, Libm, Libm2};
pub use crate::exp::{exp, sigmoid, tanh_double as tanh};
pub use crate::log::log;
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};

by_libm! { Double, Double::libm;
    /// `2^x`.
    exp2 => Exp2;
    /// `e^x - 1`, without cancellation.
    expm1 => Expm1;
    /// The logarithm to base 2.
    log2 => Log2;
    /// The logarithm to base 10.
    log10 => Log10;
    /// `log(1 + x)`, without cancellation.
    log1p => Log1p;
    /// The sine.
    sin => Sin;
    /// The cosine.
    cos => Cos;
    /// The tangent.
    tan => Tan;
    /// The inverse sine.
    asin => Asin;
    /// The inverse cosine.
    acos => Acos;
    /// The inverse tangent.
    atan => Atan;
    /// The hyperbolic sine.
    sinh => Sinh;
    /// The hyperbolic cosine.
    cosh => Cosh;
    /// The inverse hyperbolic sine.
    asinh => Asinh;
    /// The inverse hyperbolic tangent.
    atanh => Atanh;
    /// The error function.
    erf => Erf;
    /// `1 - erf(x)`, without cancellation.
    erfc => Erfc;
}

/// The inverse hyperbolic cosine: that of `libm`, and NaN for arguments below 1, for which `libm`
/// may return a number.
#[inline(always)]
pub fn acosh<D: Double>(x: D) -> D {
    let x = D::select(x.lt(D::constant(1.0)), D::constant(f64::NAN), x);
    D::libm(Libm::Acosh, x)
}

/// `x^y`.
#[inline(always)]
pub fn pow<D: Double>(x: D, y: D) -> D {
    D::libm2(Libm2::Pow, x, y)
}

/// The angle of the point `(x, y)` to the axis of `x`.
#[inline(always)]
pub fn atan2<D: Double>(y: D, x: D) -> D {
    D::libm2(Libm2::Atan2, y, x)
}

/// `sqrt(x^2 + y^2)`, without overflow.
#[inline(always)]
pub fn hypot<D: Double>(x: D, y: D) -> D {
    D::libm2(Libm2::Hypot, x, y)
}

/// An elementary function: one of [`UnaryOp::Exp`] to [`UnaryOp::Sigmoid`]. `None` for the others,
/// which are single operations.
#[inline(always)]
pub fn unary<D: Double>(op: UnaryOp, x: D) -> Option<D> {
    Some(crate::functions!(double, op, x, return None))
}

/// The value of [`BinaryOp::Pow`], [`BinaryOp::Atan2`] or [`BinaryOp::Hypot`]. `None` for the
/// others, which are single operations.
#[inline(always)]
pub fn binary<D: Double>(op: BinaryOp, x: D, y: D) -> Option<D> {
    crate::functions2!(double, op, x, y)
}
