//! Pointwise operators of two operands.

use super::{pointwise, with_in_place};
use crate::grad;
use maquette_ir::{DType, Scalar};
use maquette_ops::operator::Lowering;
use maquette_ops::operator::pointwise::formula::{Formula, X};

fn difference<'c>(f: &'c Formula<'c>, a: X<'c>, b: X<'c>) -> X<'c> {
    f.refuse(
        f.dtype == DType::Bool,
        "subtraction does not support bool; use `logical_xor` (`^`), or `logical_not` to invert a \
            mask",
    );
    a - b
}

fn divided<'c>(f: &'c Formula<'c>) -> X<'c> {
    let (a, b) = (f.arg(0), f.exact(1));
    match f.text(2, "true") {
        "true" => a / b,
        // PyTorch truncates a quotient of tensors after rounding it to the dtype, and a quotient by
        // a number before.
        "trunc" if f.dtype.is_float() => {
            let quotient = a / b;
            (if f.is_tensor(1) { f.narrow(quotient) } else { quotient }).trunc()
        }
        "trunc" => a.trunc_div(b),
        "floor" => a.floor_div(b),
        _ => {
            f.refuse(true, "`rounding_mode` must be absent, `trunc` or `floor`");
            a
        }
    }
}

/// The quotient rounded down. As in other quotients, a number is not rounded to a dtype of floats.
fn floor_divided<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.arg(0).floor_div(if f.dtype.is_float() { f.exact(1) } else { f.arg(1) })
}

/// `x ^ exponent`. As in PyTorch, some exponents are computed with products and square roots.
fn power_of_scalar<'c>(f: &'c Formula<'c>) -> X<'c> {
    let (x, exponent) = (f.arg(0), f.scalar(1));
    if !f.dtype.is_float() {
        f.refuse(
            exponent.to_f64() < 0.0,
            "negative powers of integers are not supported; convert to floats first",
        );
        return x.pow(f.number(1));
    }
    match exponent.to_f64() {
        0.5 => x.sqrt(),
        2.0 => x * x,
        3.0 => x * x * x,
        -0.5 => x.sqrt().reciprocal(),
        -1.0 => x.reciprocal(),
        -2.0 => (x * x).reciprocal(),
        _ => x.pow(f.arg(1)),
    }
}

/// The larger or smaller operand. NaN is returned only if both are NaN.
fn ignoring_nan<'c>(f: &'c Formula<'c>, pick: fn(X<'c>, X<'c>) -> X<'c>) -> X<'c> {
    let (a, b) = (f.arg(0), f.arg(1));
    if !f.dtype.is_float() {
        return pick(a, b);
    }
    a.isnan().select(b, b.isnan().select(a, pick(a, b)))
}

/// `max(a, b) + log(1 + base^-|a - b|)`. Equal infinities are returned as they are, since their
/// difference is NaN.
fn log_add<'c>(f: &'c Formula<'c>, exp: fn(X<'c>) -> X<'c>, log: fn(X<'c>) -> X<'c>) -> X<'c> {
    let (a, b) = (f.arg(0), f.arg(1));
    f.refuse(!f.dtype.is_float(), "the logarithm of a sum takes floats");
    a.isinf().and(a.eq(b)).select(a, a.max(b) + log(exp(-(a - b).abs())))
}

fn shift<'c>(f: &'c Formula<'c>, left: bool) -> X<'c> {
    if left { f.arg(0).shl(f.arg(1)) } else { f.arg(0).shr(f.arg(1)) }
}

with_in_place! {
    /// Operators of two operands, with broadcasting.
    static TABLE = {
        "add" ".Tensor" ", Tensor other, *, Scalar alpha=1" => {
            role: ArithUnlessScaled(Add),
            types: Promote,
            formula: |f| f.arg(0) + f.scaled(1, 2),
            vjp: grad::ADD,
        },
        "add" ".Scalar" ", Scalar other, Scalar alpha=1" => {
            role: ArithUnlessScaled(Add),
            types: Promote,
            formula: |f| f.arg(0) + f.scaled(1, 2),
            vjp: grad::IDENTITY,
        },
        "sub" ".Tensor" ", Tensor other, *, Scalar alpha=1" => {
            role: ArithUnlessScaled(Sub),
            types: Promote,
            formula: |f| difference(f, f.arg(0), f.scaled(1, 2)),
            vjp: grad::SUB,
        },
        "sub" ".Scalar" ", Scalar other, Scalar alpha=1" => {
            role: ArithUnlessScaled(Sub),
            types: Promote,
            formula: |f| difference(f, f.arg(0), f.scaled(1, 2)),
            vjp: grad::IDENTITY,
        },
        "mul" ".Tensor" ", Tensor other" => {
            role: Arith(Mul),
            types: Promote,
            formula: |f| f.arg(0) * f.exact(1),
            vjp: grad::MUL,
        },
        "mul" ".Scalar" ", Scalar other" => {
            role: Arith(Mul),
            types: Promote,
            formula: |f| f.arg(0) * f.exact(1),
            vjp: grad::MUL_SCALAR,
        },
        "div" ".Tensor" ", Tensor other" => {
            role: Arith(Div),
            types: Float,
            formula: |f| f.arg(0) / f.exact(1),
            vjp: grad::DIV,
        },
        "div" ".Scalar" ", Scalar other" => {
            role: Arith(Div),
            types: Float,
            formula: |f| f.arg(0) / f.exact(1),
            vjp: grad::DIV_SCALAR,
        },
        "div" ".Tensor_mode" ", Tensor other, *, str? rounding_mode" => {
            role: General,
            types: FloatIfNone(2),
            formula: |f| divided(f),
        },
        "div" ".Scalar_mode" ", Scalar other, *, str? rounding_mode" => {
            role: General,
            types: FloatIfNone(2),
            formula: |f| divided(f),
        },
        "remainder" ".Tensor" ", Tensor other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).remainder(f.arg(1)),
        },
        "remainder" ".Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).remainder(f.arg(1)),
        },
        "fmod" ".Tensor" ", Tensor other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).fmod(f.arg(1)),
        },
        "fmod" ".Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).fmod(f.arg(1)),
        },
        "atan2" "" ", Tensor other" => {
            role: General,
            types: Float,
            formula: |f| f.arg(0).atan2(f.arg(1)),
        },
        "hypot" "" ", Tensor other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).hypot(f.arg(1)),
            vjp: crate::grad::HYPOT,
        },
        "copysign" ".Tensor" ", Tensor other" => {
            role: General,
            types: Float,
            formula: |f| f.arg(0).copysign(f.arg(1)),
            vjp: crate::grad::COPYSIGN,
        },
        "copysign" ".Scalar" ", Scalar other" => {
            role: General,
            types: Float,
            formula: |f| f.arg(0).copysign(f.arg(1)),
            vjp: crate::grad::COPYSIGN,
        },
        "heaviside" "" ", Tensor values" => {
            role: General,
            types: Promote,
            formula: |f| {
                let x = f.arg(0);
                if f.dtype == DType::Bool {
                    return x.or(f.arg(1));
                }
                x.eq(0).select(f.arg(1), x.gt(0).select(1, 0))
            },
        },
        "bitwise_and" ".Tensor" ", Tensor other" => {
            role: Arith(And),
            types: Promote,
            formula: |f| f.arg(0).and(f.arg(1)),
        },
        "bitwise_and" ".Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).and(f.arg(1)),
        },
        "bitwise_or" ".Tensor" ", Tensor other" => {
            role: Arith(Or),
            types: Promote,
            formula: |f| f.arg(0).or(f.arg(1)),
        },
        "bitwise_or" ".Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).or(f.arg(1)),
        },
        "bitwise_xor" ".Tensor" ", Tensor other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).xor(f.arg(1)),
        },
        "bitwise_xor" ".Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0).xor(f.arg(1)),
        },
        "bitwise_left_shift" ".Tensor" ", Tensor other" => {
            role: General,
            types: Promote,
            formula: |f| shift(f, true),
        },
        "bitwise_left_shift" ".Tensor_Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| shift(f, true),
        },
        "bitwise_right_shift" ".Tensor" ", Tensor other" => {
            role: General,
            types: Promote,
            formula: |f| shift(f, false),
        },
        "bitwise_right_shift" ".Tensor_Scalar" ", Scalar other" => {
            role: General,
            types: Promote,
            formula: |f| shift(f, false),
        },
        ;
        "aten::floor_divide(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| floor_divided(f)),
        },
        "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| floor_divided(f)),
        },
        "aten::floor_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::floor_divide"),
        },
        "aten::floor_divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::floor_divide.Scalar"),
        },
        "aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).remainder(f.arg(1))),
        },
        // `other` is the first operand of the subtraction, so its layout decides the result's.
        "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call(
                    "aten::sub.Tensor",
                    maquette_ops::args![a[1].clone(), a[0].clone(), a[2].clone()],
                )
            }),
        },
        "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| difference(f, f.arg(1), f.scaled(0, 2))),
        },
        "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).pow(f.arg(1))),
            vjp: crate::grad::POW,
        },
        "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| power_of_scalar(f)),
        },
        "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor" => {
            role: General,
            lowering: pointwise!(PromoteContiguous, |f| match f.scalar(0) {
                Scalar::Int(2) | Scalar::Float(2.0) if f.dtype.is_float() => f.arg(1).exp2(),
                _ => f.arg(0).pow(f.arg(1)),
            }),
            vjp: crate::grad::POW,
        },
        "aten::pow_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::pow.Tensor_Tensor"),
        },
        "aten::pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::pow.Tensor_Scalar"),
        },
        "aten::maximum(Tensor self, Tensor other) -> Tensor" => {
            role: Arith(Max),
            lowering: pointwise!(Promote, |f| f.arg(0).max(f.arg(1))),
        },
        "aten::minimum(Tensor self, Tensor other) -> Tensor" => {
            role: Arith(Min),
            lowering: pointwise!(Promote, |f| f.arg(0).min(f.arg(1))),
        },
        "aten::max.other(Tensor self, Tensor other) -> Tensor" => {
            role: Arith(Max),
            lowering: pointwise!(Promote, |f| f.arg(0).max(f.arg(1))),
        },
        "aten::min.other(Tensor self, Tensor other) -> Tensor" => {
            role: Arith(Min),
            lowering: pointwise!(Promote, |f| f.arg(0).min(f.arg(1))),
        },
        "aten::fmax(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| ignoring_nan(f, |a, b| a.max(b))),
        },
        "aten::fmin(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| ignoring_nan(f, |a, b| a.min(b))),
        },
        "aten::logaddexp(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| log_add(f, X::exp, X::log1p)),
        },
        "aten::logaddexp2(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| log_add(f, X::exp2, |x| (x + 1).log2())),
        },
        "aten::bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shift(f, true)),
        },
        "aten::bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shift(f, false)),
        },
        "aten::bitwise_and.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).and(f.arg(1))),
        },
        "aten::bitwise_or.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).or(f.arg(1))),
        },
        "aten::bitwise_xor.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).xor(f.arg(1))),
        },
        "aten::__and__.Tensor(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).and(f.arg(1))),
        },
        "aten::__and__.Scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).and(f.arg(1))),
        },
        "aten::__or__.Tensor(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).or(f.arg(1))),
        },
        "aten::__or__.Scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).or(f.arg(1))),
        },
        "aten::__xor__.Tensor(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).xor(f.arg(1))),
        },
        "aten::__xor__.Scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| f.arg(0).xor(f.arg(1))),
        },
        "aten::__lshift__.Tensor(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shift(f, true)),
        },
        "aten::__lshift__.Scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shift(f, true)),
        },
        "aten::__rshift__.Tensor(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shift(f, false)),
        },
        "aten::__rshift__.Scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shift(f, false)),
        },
    }
}
