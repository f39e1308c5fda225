//! Derivatives of special functions.

use crate::grad::parts::parts;
use crate::grad::rule;
use crate::pointwise::derivative::activation::{first, second};
use maquette_ops::operator::Saved::{Input, Output};
use maquette_ops::operator::{Backward, Derivative, aten};
use maquette_ops::{AutogradError, Result, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_2_SQRT_PI, PI};

pub(crate) const LGAMMA: Derivative =
    rule!([Input(0)], |b| b.set(0, || b.grad() * b.input(0).digamma()));

pub(crate) const DIGAMMA: Derivative =
    rule!([Input(0)], |b| b.set(0, || b.grad() * b.input(0).polygamma(1)));

pub(crate) const POLYGAMMA: Derivative = rule!([Input(1)], |b| {
    let n = b.arg(0).int_i64()?;
    b.set(1, || b.grad() * b.input(1).polygamma(n.saturating_add(1)))
});

/// The in-place operator has its arguments in the other order.
pub(crate) const POLYGAMMA_IN_PLACE: Derivative = rule!([Input(0)], |b| {
    let n = b.arg(1).int_i64()?;
    b.set(0, || b.grad() * b.input(0).polygamma(n.saturating_add(1)))
});

pub(crate) const MVLGAMMA: Derivative = parts!(|a| {
    let (x, p) = (a[0].tensor()?, a[1].int_i64()?);
    let terms = (0..p).map(|i| (x - i as f64 / 2.0).lgamma());
    let sum = terms.reduce(|sum, term| sum + term);
    Ok(sum.into_iter().collect())
});

pub(crate) const ERFINV: Derivative = rule!([Output(0)], |b| b.set(0, || {
    let y = b.output(0);
    b.grad() * ((&y * &y).exp() / FRAC_2_SQRT_PI)
}));

pub(crate) const ERFCX: Derivative = rule!([Input(0), Output(0)], |b| {
    b.set(0, || b.grad() * (b.input(0) * 2.0 * b.output(0) - FRAC_2_SQRT_PI))
});

pub(crate) const NDTRI: Derivative = rule!([Output(0)], |b| b.set(0, || {
    let y = b.output(0);
    b.grad() * ((&y * &y / 2.0).exp() * (2.0 * PI).sqrt())
}));

pub(crate) const LOG_NDTR: Derivative = rule!([Input(0)], |b| {
    b.set(0, || b.grad() / (b.input(0) * -FRAC_1_SQRT_2).special_erfcx() * FRAC_2_PI.sqrt())
});

pub(crate) const I0: Derivative =
    rule!([Input(0)], |b| b.set(0, || b.grad() * b.input(0).special_i1()));

pub(crate) const I0E: Derivative = rule!([Input(0), Output(0)], |b| {
    let x = b.input(0);
    b.set(0, || b.grad() * (x.special_i1e() - x.sgn() * b.output(0)))
});

/// Near 0 the quotient of the result and the operand is 1/2.
pub(crate) const I1: Derivative = rule!([Input(0), Output(0)], |b| {
    let x = b.input(0);
    let tiny = x.abs().le(f64::EPSILON);
    let safe = x.masked_fill(&tiny, 1.0);
    b.set(0, || b.grad() * tiny.where_(0.5, safe.i0() - b.output(0) / &safe))
});

pub(crate) const I1E: Derivative = rule!([Input(0), Output(0)], |b| {
    let x = b.input(0);
    let tiny = x.abs().le(f64::EPSILON);
    let safe = x.masked_fill(&tiny, 1.0);
    let slope = safe.special_i0e() - b.output(0) * (safe.sgn() + safe.reciprocal());
    b.set(0, || b.grad() * tiny.where_(0.5, slope))
});

/// Of the second operand only.
/// The operands, if the first requires no gradient: a gradient of zeros would be wrong.
fn gamma_arguments(b: &Backward<'_>) -> Result<(Tensor, Tensor)> {
    refuse_first(b)?;
    Ok((b.input(0), b.input(1)))
}

/// Refuses a gradient of the first operand, as PyTorch does.
fn refuse_first(b: &Backward<'_>) -> Result<()> {
    if !b.needs(0) {
        return Ok(());
    }
    let why = "PyTorch has none with respect to `self`";
    Err(AutogradError::Refused { op: b.op().name().to_owned(), why }.into())
}

pub(crate) const IGAMMA: Derivative = rule!([Input(0), Input(1)], |b| {
    let (a, x) = gamma_arguments(b)?;
    b.set(1, || b.grad() * ((&a - 1.0) * x.log() - &x - a.lgamma()).exp())
});

pub(crate) const IGAMMAC: Derivative = rule!([Input(0), Input(1)], |b| {
    let (a, x) = gamma_arguments(b)?;
    b.set(1, || -b.grad() * ((&a - 1.0) * x.log() - &x - a.lgamma()).exp())
});

pub(crate) const ZETA: Derivative = rule!([Input(0), Input(1)], |b| {
    refuse_first(b)?;
    let (x, q) = (first(b), second(b));
    b.set(1, || b.grad() * -&x * (&x + 1.0).special_zeta(q))
});

pub(crate) const ENTR: Derivative =
    rule!([Input(0)], |b| b.set(0, || b.grad() * (-b.input(0).log() - 1.0)));

pub(crate) const LDEXP: Derivative = parts!(|a| {
    let (x, e) = (a[0].tensor()?, a[1].tensor()?);
    // A float keeps its dtype: the operand's may be that of integers, or narrower.
    let e = if e.dtype().is_float() { e.clone() } else { e.to_dtype(x.dtype()) };
    let power = aten!("pow.Scalar", maquette_ir::Loc::caller(); 2.0, e);
    Ok(vec![x * power])
});

pub(crate) const FREXP: Derivative = rule!([Output(1)], |b| {
    b.set(0, || {
        let exponent = b.output(1).to_dtype(b.grad().dtype());
        b.grad() / aten!("exp2", b.loc(); exponent)
    })
});

pub(crate) const BESSEL_J0: Derivative =
    rule!([Input(0)], |b| b.set(0, || -b.grad() * b.input(0).special_bessel_j1()));

/// `c0 * f0(x) - f1(x) / x`, the derivative of a Bessel function of order 1; 1/2 at 0, where the
/// quotient is undefined.
macro_rules! bessel_1 {
    ($of_order_0:expr, $sign:literal) => {
        rule!([Input(0), Output(0)], |b| {
            let x = b.input(0);
            let tiny = x.abs().le(f64::EPSILON);
            let safe = x.masked_fill(&tiny, 1.0);
            let slope = $of_order_0(&safe) * $sign - b.output(0) / &safe;
            b.set(0, || b.grad() * tiny.where_(0.5, slope))
        })
    };
}

pub(crate) const BESSEL_J1: Derivative = bessel_1!(Tensor::special_bessel_j0, 1.0);
pub(crate) const BESSEL_Y1: Derivative = bessel_1!(Tensor::special_bessel_y0, 1.0);
pub(crate) const MODIFIED_I1: Derivative = bessel_1!(Tensor::special_modified_bessel_i0, 1.0);
pub(crate) const MODIFIED_K1: Derivative = bessel_1!(Tensor::special_modified_bessel_k0, -1.0);

pub(crate) const BESSEL_Y0: Derivative =
    rule!([Input(0)], |b| b.set(0, || -b.grad() * b.input(0).special_bessel_y1()));

pub(crate) const MODIFIED_I0: Derivative =
    rule!([Input(0)], |b| b.set(0, || b.grad() * b.input(0).special_modified_bessel_i1()));

pub(crate) const MODIFIED_K0: Derivative =
    rule!([Input(0)], |b| b.set(0, || -b.grad() * b.input(0).special_modified_bessel_k1()));

/// Of the Bessel functions times `exp(x)`.
pub(crate) const SCALED_K0: Derivative = rule!([Input(0), Output(0)], |b| {
    b.set(0, || b.grad() * (b.output(0) - b.input(0).special_scaled_modified_bessel_k1()))
});

pub(crate) const SCALED_K1: Derivative = rule!([Input(0), Output(0)], |b| {
    let (x, y) = (b.input(0), b.output(0));
    b.set(0, || b.grad() * (&y - x.special_scaled_modified_bessel_k0() - &y / &x))
});
