//! The measured functions, with their `f64` references.
//!
//! A reference is the platform's `f64` function, or that of the `libm` crate for the error
//! functions; like all `f64` functions, they are checked against arbitrary precision. Their error
//! is below 1 ULP of `f64`, which is 2^-29 ULP of `f32`, so it affects the figures of `f32`
//! functions by less than 0.00000001.

use super::Op;
use maquette_ir::scalar_expr::BinaryOp::{Atan2, Fmod, Hypot, Pow, Remainder};
use maquette_ir::scalar_expr::UnaryOp::{self, *};

/// The symmetry of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// `f(-x) = -f(x)`.
    Odd,
    /// `f(-x) = f(x)`.
    Even,
    /// No symmetry.
    Neither,
}

/// A function with one argument.
#[derive(Clone, Copy, Debug)]
pub struct Unary {
    /// The operation.
    pub op: UnaryOp,
    /// The symmetry, which halves the number of reference evaluations.
    pub parity: Parity,
    /// The `f64` reference.
    pub exact: fn(f64) -> f64,
}

/// A function with two arguments.
#[derive(Clone, Copy, Debug)]
pub struct Binary {
    /// The operation.
    pub op: Op,
    /// The `f64` reference.
    pub exact: fn(f64, f64) -> f64,
}

const fn odd(op: UnaryOp, exact: fn(f64) -> f64) -> Unary {
    Unary { op, parity: Parity::Odd, exact }
}
const fn even(op: UnaryOp, exact: fn(f64) -> f64) -> Unary {
    Unary { op, parity: Parity::Even, exact }
}
const fn plain(op: UnaryOp, exact: fn(f64) -> f64) -> Unary {
    Unary { op, parity: Parity::Neither, exact }
}

/// All elementary functions with one argument.
pub const UNARY: &[Unary] = &[
    plain(Exp, f64::exp),
    plain(Exp2, f64::exp2),
    plain(Expm1, f64::exp_m1),
    plain(Log, f64::ln),
    plain(Log2, f64::log2),
    plain(Log10, f64::log10),
    plain(Log1p, f64::ln_1p),
    odd(Sin, f64::sin),
    even(Cos, f64::cos),
    odd(Tan, f64::tan),
    odd(Asin, f64::asin),
    plain(Acos, f64::acos),
    odd(Atan, f64::atan),
    odd(Sinh, f64::sinh),
    even(Cosh, f64::cosh),
    odd(Tanh, f64::tanh),
    odd(Asinh, f64::asinh),
    plain(Acosh, f64::acosh),
    odd(Atanh, f64::atanh),
    odd(Erf, libm::erf),
    plain(Erfc, libm::erfc),
    plain(Sigmoid, sigmoid),
    plain(Sqrt, f64::sqrt),
    plain(Rsqrt, |x| 1.0 / x.sqrt()),
    odd(Reciprocal, |x| 1.0 / x),
];

/// All elementary functions with two arguments.
pub const BINARY: &[Binary] = &[
    Binary { op: Op::Binary(Pow), exact: f64::powf },
    Binary { op: Op::Binary(Atan2), exact: f64::atan2 },
    Binary { op: Op::Binary(Hypot), exact: f64::hypot },
    Binary { op: Op::Binary(Fmod), exact: |x, y| x % y },
    Binary { op: Op::Binary(Remainder), exact: remainder },
];

/// The logistic function, without overflow where the result is small.
fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

fn remainder(x: f64, y: f64) -> f64 {
    let r = x % y;
    if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
}
