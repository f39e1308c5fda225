//! Pointwise operators of one tensor.

use super::{pointwise, with_in_place};
use crate::grad;
use maquette_ir::DType;
use maquette_ops::operator::number::filling;
use maquette_ops::operator::pointwise::formula::{Formula, X};
use std::f64::consts::PI;

/// A rounding operator. Integers are returned unchanged.
fn rounded<'c>(f: &'c Formula<'c>, round: fn(X<'c>) -> X<'c>) -> X<'c> {
    f.refuse(f.dtype == DType::Bool, "rounding does not support bool");
    if f.dtype.is_float() { round(f.arg(0)) } else { f.arg(0) }
}

/// Rounds to a number of decimals. As in PyTorch, a negative number divides before it rounds.
fn round_decimals<'c>(f: &'c Formula<'c>) -> X<'c> {
    let decimals = f.float(1);
    if decimals == 0.0 {
        return rounded(f, X::round);
    }
    f.refuse(!f.dtype.is_float(), "rounding to decimals takes floats");
    let (x, scale) = (f.arg(0), 10f64.powf(decimals.abs()));
    if decimals < 0.0 { (x / scale).round() * scale } else { (x * scale).round() / scale }
}

fn sign_of_number<'c>(f: &'c Formula<'c>) -> X<'c> {
    if f.dtype == DType::Bool { f.arg(0) } else { f.arg(0).sign() }
}

fn inf_with_sign<'c>(f: &'c Formula<'c>, positive: bool) -> X<'c> {
    if !f.dtype.is_float() {
        return f.bool(false);
    }
    f.arg(0).eq(if positive { f64::INFINITY } else { f64::NEG_INFINITY })
}

/// `log(x / (1 - x))`, with `x` clamped to `[eps, 1 - eps]` if `eps` is present. As in PyTorch,
/// half precision rounds at every step.
fn logit<'c>(f: &'c Formula<'c>) -> X<'c> {
    let x = f.arg(0);
    let x = if f.has(1) {
        let (low, high) = (f.float(1), 1.0 - f.float(1));
        x.lt(low).select(low, x.gt(high).select(high, x))
    } else {
        x
    };
    let rest = f.narrow(f.c(1) - x);
    f.narrow(x / rest).log()
}

fn nan_to_num<'c>(f: &'c Formula<'c>) -> X<'c> {
    let Some(largest) = f.result.largest_float() else {
        return f.arg(0);
    };
    let or = |i: usize, otherwise: f64| if f.has(i) { f.float(i) } else { otherwise };
    let x = f.arg(0);
    let low = x.eq(f64::NEG_INFINITY).select(or(3, -largest), x);
    let high = x.eq(f64::INFINITY).select(or(2, largest), low);
    x.isnan().select(or(1, 0.0), high)
}

with_in_place! {
    /// Operators of one tensor, elementwise.
    static TABLE = {
        Arith(Abs) "abs" "" "" =>
            Promote |f| if f.dtype == DType::Bool { f.arg(0) } else { f.arg(0).abs() };
        Arith(Neg) "neg" "" "" => Promote |f| {
            f.refuse(
                f.dtype == DType::Bool,
                "negation does not support bool; to invert a mask use `logical_not` or the `!` \
                    operator",
            );
            -f.arg(0)
        } => grad::NEG;
        General "sign" "" "" => Promote |f| sign_of_number(f) => grad::ZERO;
        General "sgn" "" "" => Promote |f| sign_of_number(f) => grad::ZERO;
        General "floor" "" "" => Promote |f| rounded(f, X::floor) => grad::ZERO;
        General "ceil" "" "" => Promote |f| rounded(f, X::ceil) => grad::ZERO;
        General "round" "" "" => Promote |f| rounded(f, X::round) => grad::ZERO;
        General "round" ".decimals" ", *, int decimals" => Promote |f| round_decimals(f);
        General "trunc" "" "" => Promote |f| rounded(f, X::trunc) => grad::ZERO;
        General "frac" "" "" => Promote |f| {
            let x = f.arg(0);
            x - x.trunc()
        };
        General "sqrt" "" "" => Float |f| f.arg(0).sqrt() => grad::SQRT;
        General "rsqrt" "" "" => Float |f| f.arg(0).rsqrt();
        General "reciprocal" "" "" => Float |f| f.arg(0).reciprocal();
        General "exp" "" "" => Float |f| f.arg(0).exp() => grad::EXP;
        General "exp2" "" "" => Float |f| f.arg(0).exp2();
        General "expm1" "" "" => Float |f| f.arg(0).expm1();
        General "log" "" "" => Float |f| f.arg(0).log();
        General "log2" "" "" => Float |f| f.arg(0).log2();
        General "log10" "" "" => Float |f| f.arg(0).log10();
        General "log1p" "" "" => Float |f| f.arg(0).log1p();
        General "sin" "" "" => Float |f| f.arg(0).sin();
        General "cos" "" "" => Float |f| f.arg(0).cos();
        General "tan" "" "" => Float |f| f.arg(0).tan();
        General "asin" "" "" => Float |f| f.arg(0).asin();
        General "acos" "" "" => Float |f| f.arg(0).acos();
        General "atan" "" "" => Float |f| f.arg(0).atan();
        General "sinh" "" "" => Float |f| f.arg(0).sinh();
        General "cosh" "" "" => Float |f| f.arg(0).cosh();
        General "tanh" "" "" => Float |f| f.arg(0).tanh() => grad::TANH;
        General "asinh" "" "" => Float |f| f.arg(0).asinh();
        General "acosh" "" "" => Float |f| f.arg(0).acosh();
        General "atanh" "" "" => Float |f| f.arg(0).atanh();
        General "erf" "" "" => Float |f| f.arg(0).erf();
        General "erfc" "" "" => Float |f| f.arg(0).erfc();
        General "sigmoid" "" "" => Float |f| f.arg(0).sigmoid() => grad::SIGMOID;
        General "logit" "" ", float? eps=None" => Float |f| logit(f) => crate::grad::LOGIT;
        General "sinc" "" "" => Float |f| {
            let x = f.arg(0) * PI;
            x.eq(0).select(1, x.sin() / x)
        } => crate::grad::SINC;
        General "deg2rad" "" "" => Float |f| f.arg(0) * (PI / 180.0);
        General "rad2deg" "" "" => Float |f| f.arg(0) * (180.0 / PI);
        General "nan_to_num" "" ", float? nan=None, float? posinf=None, float? neginf=None" =>
            Promote |f| nan_to_num(f) => grad::NAN_TO_NUM;
        General "logical_not" "" "" => Compare |f| f.arg(0).truth().not();
        Arith(Not) "bitwise_not" "" "" => Promote |f| f.arg(0).not();
        IgnoresContents "zero" "" "" => First |f| f.c(0) => grad::ZERO;
        IgnoresContents "fill" ".Scalar" ", Scalar value" =>
            First |f| f.number_of(1, filling(f.dtype)) => grad::ZERO;
        IgnoresContents "fill" ".Tensor" ", Tensor value" => First |f| f.element(1) => crate::grad::FILL;
        ;
        // As `pow`, the square of bools has dtype i64.
        General "aten::square(Tensor self) -> Tensor" =>
            maquette_ops::operator::Lowering::Composite(|a| {
                maquette_ops::call("aten::pow.Tensor_Scalar", maquette_ops::args![a[0].clone(), 2])
            }),
        General "aten::square_(Tensor(a!) self) -> Tensor(a!)" =>
            maquette_ops::operator::Lowering::Composite(|a| {
                maquette_ops::call("aten::pow_.Scalar", maquette_ops::args![a[0].clone(), 2])
            }),
        General "aten::positive(Tensor(a) self) -> Tensor(a)" =>
            maquette_ops::operator::Lowering::View(|_, args| {
                Ok(smallvec::smallvec![args[0].tensor()?.meta().clone()])
            })
                => crate::grad::EXPANDED,
        General "aten::isreal(Tensor self) -> Tensor" => pointwise!(Compare, |f| f.bool(true)),
        General "aten::isnan(Tensor self) -> Tensor" =>
            pointwise!(Compare, |f| if f.dtype.is_float() {
                f.arg(0).isnan()
            } else {
                f.bool(false)
            }),
        General "aten::isinf(Tensor self) -> Tensor" =>
            pointwise!(Compare, |f| if f.dtype.is_float() {
                f.arg(0).isinf()
            } else {
                f.bool(false)
            }),
        General "aten::isfinite(Tensor self) -> Tensor" =>
            pointwise!(Compare, |f| if f.dtype.is_float() {
                f.arg(0).abs().lt(f64::INFINITY)
            } else {
                f.bool(true)
            }),
        General "aten::isposinf(Tensor self) -> Tensor" =>
            pointwise!(Compare, |f| inf_with_sign(f, true)),
        General "aten::isneginf(Tensor self) -> Tensor" =>
            pointwise!(Compare, |f| inf_with_sign(f, false)),
        General "aten::signbit(Tensor self) -> Tensor" =>
            pointwise!(Compare, |f| match f.dtype {
                DType::Bool => f.bool(false),
                d if d.is_float() => f.c(1).copysign(f.arg(0)).lt(0),
                _ => f.arg(0).lt(0),
            }),
    }
}
