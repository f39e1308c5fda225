//! Pointwise operators of two operands.

use super::{pointwise, with_in_place};
use crate::grad;
use maquette_ir::{DType, Scalar};
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
        ArithUnlessScaled(Add) "add" ".Tensor" ", Tensor other, *, Scalar alpha=1" =>
            Promote |f| f.arg(0) + f.scaled(1, 2)
                => grad::ADD;
        ArithUnlessScaled(Add) "add" ".Scalar" ", Scalar other, Scalar alpha=1" =>
            Promote |f| f.arg(0) + f.scaled(1, 2)
                => grad::IDENTITY;
        ArithUnlessScaled(Sub) "sub" ".Tensor" ", Tensor other, *, Scalar alpha=1" =>
            Promote |f| difference(f, f.arg(0), f.scaled(1, 2))
                => grad::SUB;
        ArithUnlessScaled(Sub) "sub" ".Scalar" ", Scalar other, Scalar alpha=1" =>
            Promote |f| difference(f, f.arg(0), f.scaled(1, 2))
                => grad::IDENTITY;
        Arith(Mul) "mul" ".Tensor" ", Tensor other" => Promote |f| f.arg(0) * f.exact(1)
                => grad::MUL;
        Arith(Mul) "mul" ".Scalar" ", Scalar other" => Promote |f| f.arg(0) * f.exact(1)
                => grad::MUL_SCALAR;
        Arith(Div) "div" ".Tensor" ", Tensor other" => Float |f| f.arg(0) / f.exact(1)
                => grad::DIV;
        Arith(Div) "div" ".Scalar" ", Scalar other" => Float |f| f.arg(0) / f.exact(1)
                => grad::DIV_SCALAR;
        General "div" ".Tensor_mode" ", Tensor other, *, str? rounding_mode" =>
            FloatIfNone(2) |f| divided(f);
        General "div" ".Scalar_mode" ", Scalar other, *, str? rounding_mode" =>
            FloatIfNone(2) |f| divided(f);
        General "remainder" ".Tensor" ", Tensor other" => Promote |f| f.arg(0).remainder(f.arg(1));
        General "remainder" ".Scalar" ", Scalar other" => Promote |f| f.arg(0).remainder(f.arg(1));
        General "fmod" ".Tensor" ", Tensor other" => Promote |f| f.arg(0).fmod(f.arg(1));
        General "fmod" ".Scalar" ", Scalar other" => Promote |f| f.arg(0).fmod(f.arg(1));
        General "atan2" "" ", Tensor other" => Float |f| f.arg(0).atan2(f.arg(1));
        General "hypot" "" ", Tensor other" => Promote |f| f.arg(0).hypot(f.arg(1))
            => crate::grad::HYPOT;
        General "copysign" ".Tensor" ", Tensor other" => Float |f| f.arg(0).copysign(f.arg(1))
            => crate::grad::COPYSIGN;
        General "copysign" ".Scalar" ", Scalar other" => Float |f| f.arg(0).copysign(f.arg(1))
            => crate::grad::COPYSIGN;
        General "heaviside" "" ", Tensor values" => Promote |f| {
            let x = f.arg(0);
            if f.dtype == DType::Bool {
                return x.or(f.arg(1));
            }
            x.eq(0).select(f.arg(1), x.gt(0).select(1, 0))
        };
        Arith(And) "bitwise_and" ".Tensor" ", Tensor other" => Promote |f| f.arg(0).and(f.arg(1));
        General "bitwise_and" ".Scalar" ", Scalar other" => Promote |f| f.arg(0).and(f.arg(1));
        Arith(Or) "bitwise_or" ".Tensor" ", Tensor other" => Promote |f| f.arg(0).or(f.arg(1));
        General "bitwise_or" ".Scalar" ", Scalar other" => Promote |f| f.arg(0).or(f.arg(1));
        General "bitwise_xor" ".Tensor" ", Tensor other" => Promote |f| f.arg(0).xor(f.arg(1));
        General "bitwise_xor" ".Scalar" ", Scalar other" => Promote |f| f.arg(0).xor(f.arg(1));
        General "bitwise_left_shift" ".Tensor" ", Tensor other" => Promote |f| shift(f, true);
        General "bitwise_left_shift" ".Tensor_Scalar" ", Scalar other" =>
            Promote |f| shift(f, true);
        General "bitwise_right_shift" ".Tensor" ", Tensor other" => Promote |f| shift(f, false);
        General "bitwise_right_shift" ".Tensor_Scalar" ", Scalar other" =>
            Promote |f| shift(f, false);
        ;
        General "aten::floor_divide(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| floor_divided(f)),
        General "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Promote, |f| floor_divided(f)),
        General "aten::floor_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" =>
            maquette_ops::operator::Lowering::InPlace("aten::floor_divide"),
        General "aten::floor_divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" =>
            maquette_ops::operator::Lowering::InPlace("aten::floor_divide.Scalar"),
        General "aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).remainder(f.arg(1))),
        // `other` is the first operand of the subtraction, so its layout decides the result's.
        General "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" =>
            maquette_ops::operator::Lowering::Composite(|a| {
                maquette_ops::call(
                    "aten::sub.Tensor",
                    maquette_ops::args![a[1].clone(), a[0].clone(), a[2].clone()],
                )
            }),
        General "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor" =>
            pointwise!(Promote, |f| difference(f, f.arg(1), f.scaled(0, 2))),
        General "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).pow(f.arg(1)))
                => crate::grad::POW,
        General "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor" =>
            pointwise!(Promote, |f| power_of_scalar(f)),
        General "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor" =>
            pointwise!(PromoteContiguous, |f| match f.scalar(0) {
                Scalar::Int(2) | Scalar::Float(2.0) if f.dtype.is_float() => f.arg(1).exp2(),
                _ => f.arg(0).pow(f.arg(1)),
            })
                => crate::grad::POW,
        General "aten::pow_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)" =>
            maquette_ops::operator::Lowering::InPlace("aten::pow.Tensor_Tensor"),
        General "aten::pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)" =>
            maquette_ops::operator::Lowering::InPlace("aten::pow.Tensor_Scalar"),
        Arith(Max) "aten::maximum(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).max(f.arg(1))),
        Arith(Min) "aten::minimum(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).min(f.arg(1))),
        Arith(Max) "aten::max.other(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).max(f.arg(1))),
        Arith(Min) "aten::min.other(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).min(f.arg(1))),
        General "aten::fmax(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| ignoring_nan(f, |a, b| a.max(b))),
        General "aten::fmin(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| ignoring_nan(f, |a, b| a.min(b))),
        General "aten::logaddexp(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| log_add(f, X::exp, X::log1p)),
        General "aten::logaddexp2(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| log_add(f, X::exp2, |x| (x + 1).log2())),
        General "aten::bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| shift(f, true)),
        General "aten::bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| shift(f, false)),
        General "aten::bitwise_and.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).and(f.arg(1))),
        General "aten::bitwise_or.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).or(f.arg(1))),
        General "aten::bitwise_xor.Scalar_Tensor(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).xor(f.arg(1))),
        General "aten::__and__.Tensor(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).and(f.arg(1))),
        General "aten::__and__.Scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).and(f.arg(1))),
        General "aten::__or__.Tensor(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).or(f.arg(1))),
        General "aten::__or__.Scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).or(f.arg(1))),
        General "aten::__xor__.Tensor(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).xor(f.arg(1))),
        General "aten::__xor__.Scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Promote, |f| f.arg(0).xor(f.arg(1))),
        General "aten::__lshift__.Tensor(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| shift(f, true)),
        General "aten::__lshift__.Scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Promote, |f| shift(f, true)),
        General "aten::__rshift__.Tensor(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Promote, |f| shift(f, false)),
        General "aten::__rshift__.Scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Promote, |f| shift(f, false)),
    }
}
