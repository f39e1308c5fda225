//! The functions, with their references in `f64`.
//!
//! A reference is the platform's `f64` function (the `libm` crate's for the error functions, which
//! are checked against arbitrary precision like all of `f64`). Those are within 1 ULP of `f64`,
//! which is 2^-29 ULP of `f32`: no figure of an `f32` function is off by more than 0.000 000 01 for
//! it.

use super::Op;
use maquette_ir::scalar_expr::BinaryOp::{Atan2, Fmod, Hypot, Pow, Remainder};
use maquette_ir::scalar_expr::UnaryOp::{self, *};

/// What `f(-x)` says of `f(x)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// `f(-x) = -f(x)`.
    Odd,
    /// `f(-x) = f(x)`.
    Even,
    /// Nothing.
    Neither,
}

/// A function of one argument.
#[derive(Clone, Copy, Debug)]
pub struct Unary {
    /// The operation.
    pub op: UnaryOp,
    /// Its symmetry, which halves the work of the reference.
    pub parity: Parity,
    /// Its reference.
    pub exact: fn(f64) -> f64,
}

/// A function of two arguments.
#[derive(Clone, Copy, Debug)]
pub struct Binary {
    /// The operation.
    pub op: Op,
    /// Its reference.
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

/// Every elementary function of one argument.
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

/// Every elementary function of two arguments.
pub const BINARY: &[Binary] = &[
    Binary { op: Op::Binary(Pow), exact: f64::powf },
    Binary { op: Op::Binary(Atan2), exact: f64::atan2 },
    Binary { op: Op::Binary(Hypot), exact: f64::hypot },
    Binary { op: Op::Binary(Fmod), exact: |x, y| x % y },
    Binary { op: Op::Binary(Remainder), exact: remainder },
];

/// Without overflow where the result is small.
fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

fn remainder(x: f64, y: f64) -> f64 {
    let r = x % y;
    if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
}
