//! The elementary functions of Maquette, each written once for every device.
//!
//! A function is branch-free text over an [`algebra`]: a few correctly rounded operations, and no
//! others. Fused multiply-add is one of these and is always requested explicitly. What the text
//! computes depends on the types that it is given:
//!
//! | with | the text |
//! |---|---|
//! | `f32`, `f64` | computes. The code vectorises for every instruction set, with the same bits |
//! | [`record::Value`] | records its operations as a [`record::Program`], which prints as C |
//!
//! So a device that compiles text at run time can compute the bits of the CPU: no second text
//! exists that could differ. Where a result is NaN, it is NaN on every device; the bits of a NaN
//! are no part of this promise.
//!
//! Functions that are not in this form come from the `libm` crate, and a recorded program calls
//! them by name ([`algebra::Libm`]). [`record::LIBM_C`] has them as C, with the same bits.
//! `docs/accuracy.md` lists the error of each function.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// Functions of a class of floats that are functions of `libm`.
macro_rules! by_libm {
    ($class:ident, $call:path; $($(#[$doc:meta])* $name:ident => $function:ident;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name<F: $class>(x: F) -> F {
            $call(Libm::$function, x)
        })*
    };
}

/// The function of a class of floats that an operator names; `$other` if the operator is a single
/// operation.
macro_rules! functions {
    ($class:ident, $op:expr, $x:expr, $other:expr) => {{
        let x = $x;
        match $op {
            UnaryOp::Exp => crate::$class::exp(x),
            UnaryOp::Exp2 => crate::$class::exp2(x),
            UnaryOp::Expm1 => crate::$class::expm1(x),
            UnaryOp::Log => crate::$class::log(x),
            UnaryOp::Log2 => crate::$class::log2(x),
            UnaryOp::Log10 => crate::$class::log10(x),
            UnaryOp::Log1p => crate::$class::log1p(x),
            UnaryOp::Sin => crate::$class::sin(x),
            UnaryOp::Cos => crate::$class::cos(x),
            UnaryOp::Tan => crate::$class::tan(x),
            UnaryOp::Asin => crate::$class::asin(x),
            UnaryOp::Acos => crate::$class::acos(x),
            UnaryOp::Atan => crate::$class::atan(x),
            UnaryOp::Sinh => crate::$class::sinh(x),
            UnaryOp::Cosh => crate::$class::cosh(x),
            UnaryOp::Tanh => crate::$class::tanh(x),
            UnaryOp::Asinh => crate::$class::asinh(x),
            UnaryOp::Acosh => crate::$class::acosh(x),
            UnaryOp::Atanh => crate::$class::atanh(x),
            UnaryOp::Erf => crate::$class::erf(x),
            UnaryOp::Erfc => crate::$class::erfc(x),
            UnaryOp::Sigmoid => crate::$class::sigmoid(x),
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sign
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Reciprocal
            | UnaryOp::IsNan
            | UnaryOp::IsInf
            | UnaryOp::Not => $other,
        }
    }};
}
use functions;

/// The function of two arguments of a class of floats that an operator names.
macro_rules! functions2 {
    ($class:ident, $op:expr, $x:expr, $y:expr) => {
        match $op {
            BinaryOp::Pow => Some(crate::$class::pow($x, $y)),
            BinaryOp::Atan2 => Some(crate::$class::atan2($x, $y)),
            BinaryOp::Hypot => Some(crate::$class::hypot($x, $y)),
            _ => None,
        }
    };
}
use functions2;

pub mod algebra;
pub mod double;
pub mod erf;
pub mod exp;
pub mod log;
mod numbers;
mod polynomial;
pub mod record;
pub mod single;
mod trig;
