//! Pointwise operators of one tensor.

use super::{pointwise, with_in_place};
use crate::grad;
use maquette_ir::DType;
use maquette_ops::operator::Lowering;
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
        "abs" "" "" => {
            role: Arith(Abs),
            types: Promote,
            formula: |f| if f.dtype == DType::Bool { f.arg(0) } else { f.arg(0).abs() },
        },
        "neg" "" "" => {
            role: Arith(Neg),
            types: Promote,
            formula: |f| {
                f.refuse(
                    f.dtype == DType::Bool,
                    "negation does not support bool; to invert a mask use `logical_not` or the `!` \
                        operator",
                );
                -f.arg(0)
            },
            vjp: grad::NEG,
        },
        "sign" "" "" => {
            role: General,
            types: Promote,
            formula: |f| sign_of_number(f),
            vjp: grad::ZERO,
        },
        "sgn" "" "" => {
            role: General,
            types: Promote,
            formula: |f| sign_of_number(f),
            vjp: grad::ZERO,
        },
        "floor" "" "" => {
            role: General,
            types: Promote,
            formula: |f| rounded(f, X::floor),
            vjp: grad::ZERO,
        },
        "ceil" "" "" => {
            role: General,
            types: Promote,
            formula: |f| rounded(f, X::ceil),
            vjp: grad::ZERO,
        },
        "round" "" "" => {
            role: General,
            types: Promote,
            formula: |f| rounded(f, X::round),
            vjp: grad::ZERO,
        },
        "round" ".decimals" ", *, int decimals" => {
            role: General,
            types: Promote,
            formula: |f| round_decimals(f),
        },
        "trunc" "" "" => {
            role: General,
            types: Promote,
            formula: |f| rounded(f, X::trunc),
            vjp: grad::ZERO,
        },
        "frac" "" "" => {
            role: General,
            types: Promote,
            formula: |f| {
                let x = f.arg(0);
                x - x.trunc()
            },
        },
        "sqrt" "" "" => {
            role: General,
            types: Float,
            formula: |f| f.arg(0).sqrt(),
            vjp: grad::SQRT,
        },
        "rsqrt" "" "" => { role: General, types: Float, formula: |f| f.arg(0).rsqrt() },
        "reciprocal" "" "" => { role: General, types: Float, formula: |f| f.arg(0).reciprocal() },
        "exp" "" "" => { role: General, types: Float, formula: |f| f.arg(0).exp(), vjp: grad::EXP },
        "exp2" "" "" => { role: General, types: Float, formula: |f| f.arg(0).exp2() },
        "expm1" "" "" => { role: General, types: Float, formula: |f| f.arg(0).expm1() },
        "log" "" "" => { role: General, types: Float, formula: |f| f.arg(0).log() },
        "log2" "" "" => { role: General, types: Float, formula: |f| f.arg(0).log2() },
        "log10" "" "" => { role: General, types: Float, formula: |f| f.arg(0).log10() },
        "log1p" "" "" => { role: General, types: Float, formula: |f| f.arg(0).log1p() },
        "sin" "" "" => { role: General, types: Float, formula: |f| f.arg(0).sin() },
        "cos" "" "" => { role: General, types: Float, formula: |f| f.arg(0).cos() },
        "tan" "" "" => { role: General, types: Float, formula: |f| f.arg(0).tan() },
        "asin" "" "" => { role: General, types: Float, formula: |f| f.arg(0).asin() },
        "acos" "" "" => { role: General, types: Float, formula: |f| f.arg(0).acos() },
        "atan" "" "" => { role: General, types: Float, formula: |f| f.arg(0).atan() },
        "sinh" "" "" => { role: General, types: Float, formula: |f| f.arg(0).sinh() },
        "cosh" "" "" => { role: General, types: Float, formula: |f| f.arg(0).cosh() },
        "tanh" "" "" => {
            role: General,
            types: Float,
            formula: |f| f.arg(0).tanh(),
            vjp: grad::TANH,
        },
        "asinh" "" "" => { role: General, types: Float, formula: |f| f.arg(0).asinh() },
        "acosh" "" "" => { role: General, types: Float, formula: |f| f.arg(0).acosh() },
        "atanh" "" "" => { role: General, types: Float, formula: |f| f.arg(0).atanh() },
        "erf" "" "" => { role: General, types: Float, formula: |f| f.arg(0).erf() },
        "erfc" "" "" => { role: General, types: Float, formula: |f| f.arg(0).erfc() },
        "sigmoid" "" "" => {
            role: General,
            types: Float,
            formula: |f| f.arg(0).sigmoid(),
            vjp: grad::SIGMOID,
        },
        "logit" "" ", float? eps=None" => {
            role: General,
            types: Float,
            formula: |f| logit(f),
            vjp: crate::grad::LOGIT,
        },
        "sinc" "" "" => {
            role: General,
            types: Float,
            formula: |f| {
                let x = f.arg(0) * PI;
                x.eq(0).select(1, x.sin() / x)
            },
            vjp: crate::grad::SINC,
        },
        "deg2rad" "" "" => { role: General, types: Float, formula: |f| f.arg(0) * (PI / 180.0) },
        "rad2deg" "" "" => { role: General, types: Float, formula: |f| f.arg(0) * (180.0 / PI) },
        "nan_to_num" "" ", float? nan=None, float? posinf=None, float? neginf=None" => {
            role: General,
            types: Promote,
            formula: |f| nan_to_num(f),
            vjp: grad::NAN_TO_NUM,
        },
        "logical_not" "" "" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).truth().not(),
        },
        "bitwise_not" "" "" => { role: Arith(Not), types: Promote, formula: |f| f.arg(0).not() },
        "zero" "" "" => {
            role: IgnoresContents,
            types: First,
            formula: |f| f.c(0),
            vjp: grad::ZERO,
        },
        "fill" ".Scalar" ", Scalar value" => {
            role: IgnoresContents,
            types: First,
            formula: |f| f.number_of(1, filling(f.dtype)),
            vjp: grad::ZERO,
        },
        "fill" ".Tensor" ", Tensor value" => {
            role: IgnoresContents,
            types: First,
            formula: |f| f.element(1),
            vjp: crate::grad::FILL,
        },
        ;
        // As `pow`, the square of bools has dtype i64.
        "aten::square(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call("aten::pow.Tensor_Scalar", maquette_ops::args![a[0].clone(), 2])
            }),
        },
        "aten::square_(Tensor(a!) self) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call("aten::pow_.Scalar", maquette_ops::args![a[0].clone(), 2])
            }),
        },
        "aten::positive(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::View(|_, args| {
                Ok(smallvec::smallvec![args[0].tensor()?.meta().clone()])
            }),
            vjp: crate::grad::EXPANDED,
        },
        "aten::isreal(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| f.bool(true)),
        },
        "aten::isnan(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| if f.dtype.is_float() {
                f.arg(0).isnan()
            } else {
                f.bool(false)
            }),
        },
        "aten::isinf(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| if f.dtype.is_float() {
                f.arg(0).isinf()
            } else {
                f.bool(false)
            }),
        },
        "aten::isfinite(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| if f.dtype.is_float() {
                f.arg(0).abs().lt(f64::INFINITY)
            } else {
                f.bool(true)
            }),
        },
        "aten::isposinf(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| inf_with_sign(f, true)),
        },
        "aten::isneginf(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| inf_with_sign(f, false)),
        },
        "aten::signbit(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Compare, |f| match f.dtype {
                DType::Bool => f.bool(false),
                d if d.is_float() => f.c(1).copysign(f.arg(0)).lt(0),
                _ => f.arg(0).lt(0),
            }),
        },
    }
}
