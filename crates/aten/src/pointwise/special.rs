//! Special functions that have short formulas. Those with series or tables are in `aten/special`.

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
        General "xlogy" ".Tensor" ", Tensor other" => Float |f| times_log(f, X::log)
            => crate::grad::XLOGY;
        General "xlogy" ".Scalar_Other" ", Scalar other" => Float |f| times_log(f, X::log)
            => crate::grad::XLOGY;
        General "conj_physical" "" "" => Promote |f| f.arg(0);
        ;
        General "aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Float, |f| times_log(f, X::log))
                => crate::grad::XLOGY,
        General "aten::special_xlog1py(Tensor self, Tensor other) -> Tensor" =>
            pointwise!(Float, |f| times_log(f, X::log1p))
                => crate::grad::XLOG1PY,
        General "aten::special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor" =>
            pointwise!(Float, |f| times_log(f, X::log1p))
                => crate::grad::XLOG1PY,
        General "aten::special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor" =>
            pointwise!(Float, |f| times_log(f, X::log1p))
                => crate::grad::XLOG1PY,
        General "aten::special_entr(Tensor self) -> Tensor" =>
            pointwise!(Float, |f| {
                let x = f.arg(0);
                x.gt(0)
                    .select(-x * x.log(), x.eq(0).select(0, x.isnan().select(x, f64::NEG_INFINITY)))
            })
                => crate::grad::ENTR,
        General "aten::special_ndtr(Tensor self) -> Tensor" =>
            pointwise!(Float, |f| (f.arg(0) * -FRAC_1_SQRT_2).erfc() * 0.5),
        General "aten::angle(Tensor self) -> Tensor" =>
            pointwise!(Float, |f| {
                let x = f.arg(0);
                x.isnan().select(x, x.lt(0).select(PI, 0))
            }),
    }
}
