//! Special functions that have short formulas. Those with series or tables are in `special`.

use super::{pointwise, with_in_place};
use maquette_ops::operator::pointwise::formula::{Formula, X};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `x log(y)`: 0 if `x` is 0, unless `y` is NaN. `log` may be another logarithm.
fn times_log<'c>(f: &'c Formula<'c>, log: fn(X<'c>) -> X<'c>) -> X<'c> {
    let (x, y) = (f.arg(0), f.arg(1));
    y.isnan().select(f64::NAN, x.eq(0).select(0, x * log(y)))
}

with_in_place! {
    /// Special functions of one or two operands, elementwise.
    static TABLE = {
        "xlogy" ".Tensor" ", Tensor other" => {
            role: General,
            types: Float,
            formula: |f| times_log(f, X::log),
            vjp: crate::grad::XLOGY,
        },
        "xlogy" ".Scalar_Other" ", Scalar other" => {
            role: General,
            types: Float,
            formula: |f| times_log(f, X::log),
            vjp: crate::grad::XLOGY,
        },
        "conj_physical" "" "" => { role: General, types: Promote, formula: |f| f.arg(0) },
        ;
        "aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| times_log(f, X::log)),
            vjp: crate::grad::XLOGY,
        },
        "aten::special_xlog1py(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| times_log(f, X::log1p)),
            vjp: crate::grad::XLOG1PY,
        },
        "aten::special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| times_log(f, X::log1p)),
            vjp: crate::grad::XLOG1PY,
        },
        "aten::special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| times_log(f, X::log1p)),
            vjp: crate::grad::XLOG1PY,
        },
        "aten::special_entr(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| {
                let x = f.arg(0);
                x.gt(0)
                    .select(-x * x.log(), x.eq(0).select(0, x.isnan().select(x, f64::NEG_INFINITY)))
            }),
            vjp: crate::grad::ENTR,
        },
        "aten::special_ndtr(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| (f.arg(0) * -FRAC_1_SQRT_2).erfc() * 0.5),
        },
        "aten::angle(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| {
                let x = f.arg(0);
                x.isnan().select(x, x.lt(0).select(PI, 0))
            }),
        },
    }
}
