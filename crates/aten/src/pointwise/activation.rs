//! Activation functions.

#![expect(
    clippy::erasing_op,
    reason = "the operands are symbolic: `x * 0` is zero but for a NaN, which stays"
)]

use super::{pointwise, with_in_place};
use maquette_ir::DType;
use maquette_ops::operator::Lowering;
use maquette_ops::operator::pointwise::formula::{Formula, X};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

fn relu<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.refuse(f.dtype == DType::Bool, "`relu` does not support bool");
    f.arg(0).max(0)
}

/// `min(max(x + 3, 0), 6)`
fn hard_ramp<'c>(f: &'c Formula<'c>) -> X<'c> {
    (f.arg(0) + 3).max(0).min(6)
}

fn gelu<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.refuse(!f.dtype.is_float(), "`gelu` takes floats");
    let x = f.arg(0);
    match f.text(1, "none") {
        "none" => x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1),
        "tanh" => {
            let inner = (x + x * x * x * 0.044715) * (SQRT_2 * FRAC_2_SQRT_PI * 0.5);
            x * 0.5 * (inner.tanh() + 1)
        }
        _ => {
            f.refuse(true, "`approximate` must be `none` or `tanh`");
            x
        }
    }
}

fn elu<'c>(f: &'c Formula<'c>, alpha: f64, scale: f64, input_scale: f64) -> X<'c> {
    f.refuse(!f.dtype.is_float(), "`elu` takes floats");
    let x = f.arg(0);
    x.gt(0).select(x * scale, (x * input_scale).expm1() * (alpha * scale))
}

with_in_place! {
    /// Activation functions, elementwise.
    static TABLE = {
        "relu" "" "" => {
            role: Arith(Relu),
            types: Promote,
            formula: |f| relu(f),
            vjp: crate::grad::RELU,
        },
        "relu6" "" "" => {
            role: General,
            types: Promote,
            formula: |f| relu(f).min(6),
            vjp: crate::grad::RELU6,
        },
        "silu" "" "" => {
            role: General,
            types: Promote,
            formula: |f| {
                let x = f.arg(0);
                x / ((-x).exp() + 1)
            },
        },
        "mish" "" "" => {
            role: General,
            types: Promote,
            formula: |f| {
                let x = f.arg(0);
                x * x.exp().log1p().tanh()
            },
        },
        "gelu" "" ", *, str approximate=\"none\"" => {
            role: General,
            types: Promote,
            formula: |f| gelu(f),
        },
        "elu" "" ", Scalar alpha=1, Scalar scale=1, Scalar input_scale=1" => {
            role: General,
            types: Promote,
            formula: |f| elu(f, f.float(1), f.float(2), f.float(3)),
            vjp: crate::grad::ELU,
        },
        "selu" "" "" => {
            role: General,
            types: Promote,
            formula: |f| elu(f, 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0),
            vjp: crate::grad::SELU,
        },
        "celu" "" ", Scalar alpha=1." => {
            role: General,
            types: Promote,
            formula: |f| {
                f.refuse(f.float(1) == 0.0, "`alpha` must not be 0");
                elu(f, f.float(1), 1.0, 1.0 / f.float(1))
            },
            vjp: crate::grad::CELU,
        },
        "leaky_relu" "" ", Scalar negative_slope=0.01" => {
            role: General,
            types: Promote,
            formula: |f| {
                let x = f.arg(0);
                x.gt(0).select(x, x * f.number(1))
            },
        },
        "hardsigmoid" "" "" => {
            role: General,
            types: Promote,
            formula: |f| hard_ramp(f) / 6,
            vjp: crate::grad::HARDSIGMOID,
        },
        "hardswish" "" "" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0) * hard_ramp(f) / 6,
            vjp: crate::grad::HARDSWISH,
        },
        "hardtanh" "" ", Scalar min_val=-1, Scalar max_val=1" => {
            role: General,
            types: Promote,
            formula: |f| {
                f.refuse(f.dtype == DType::Bool, "`hardtanh` does not support bool");
                f.at_most(f.at_least(f.arg(0), 1), 2)
            },
            vjp: crate::grad::HARDTANH,
        },
        "threshold" "" ", Scalar threshold, Scalar value" => {
            role: General,
            types: Promote,
            formula: |f| {
                let x = f.arg(0);
                x.le(f.number_of(1, f.result)).select(f.number_of(2, f.result), x)
            },
        },
        ;
        "aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, \
            bool training=False, Generator? generator=None) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                f.refuse(
                    f.float(3) != 0.0,
                    "`training` must be false: random slopes are not \
                implemented",
                );
                let x = f.arg(0);
                x.gt(0).select(x, x * ((f.float(1) + f.float(2)) / 2.0))
            }),
        },
        "aten::rrelu_(Tensor(a!) self, Scalar lower=0.125, \
            Scalar upper=0.33333333333333331, bool training=False, \
            Generator? generator=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::rrelu"),
        },
        "aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                let x = f.arg(0);
                let scaled = x * f.number(1);
                scaled.gt(f.number(2)).select(x, scaled.exp().log1p() / f.number(1))
            }),
        },
        "aten::log_sigmoid(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(PromoteContiguous, |f| {
                let x = f.arg(0);
                x.min(0) - (-x.abs()).exp().log1p()
            }),
            vjp: crate::grad::LOG_SIGMOID,
        },
        "aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                let (x, l) = (f.arg(0), f.number_of(1, f.result));
                x.ge(-l).and(x.le(l)).select(0, x)
            }),
        },
        "aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                let (x, l) = (f.arg(0), f.number_of(1, f.result));
                f.refuse(f.float(1) < 0.0, "`lambd` must not be negative");
                // `x * 0` preserves NaN.
                x.gt(l).select(x - l, x.lt(-l).select(x + l, x * 0))
            }),
            vjp: crate::grad::SOFTSHRINK,
        },
    }
}
