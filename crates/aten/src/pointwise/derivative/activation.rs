//! Derivatives of activations and of choices, with PyTorch's conventions at kinks.

use crate::grad::rule;
use maquette_ops::operator::Saved::{Input, Output};
use maquette_ops::operator::{Backward, Derivative, aten};
use maquette_ops::{Result, Tensor};

/// The gradient where `mask` is true.
fn kept(b: &Backward<'_>, mask: &Tensor) -> Tensor {
    mask.where_(b.grad(), 0.0)
}

/// The operand strictly between two bounds.
fn inside(b: &Backward<'_>, low: f64, high: f64) -> Tensor {
    let x = b.input(0);
    x.gt(low).logical_and(x.lt(high))
}

pub(crate) const RELU6: Derivative =
    rule!([Input(0)], |b| b.set(0, || kept(b, &inside(b, 0.0, 6.0))));

pub(crate) const HARDTANH: Derivative = rule!([Input(0)], |b| {
    let (low, high) = (b.arg(1).scalar()?.to_f64(), b.arg(2).scalar()?.to_f64());
    b.set(0, || kept(b, &inside(b, low, high)))
});

pub(crate) const HARDSIGMOID: Derivative =
    rule!([Input(0)], |b| b.set(0, || kept(b, &inside(b, -3.0, 3.0)) / 6.0));

/// The expression has a kink at 0, which the function has not.
pub(crate) const LOG_SIGMOID: Derivative =
    rule!([Input(0)], |b| b.set(0, || b.grad() * (-b.input(0)).sigmoid()));

pub(crate) const HARDSWISH: Derivative = rule!([Input(0)], |b| b.set(0, || {
    let x = b.input(0);
    let slope = b.grad() * (&x / 3.0 + 0.5);
    x.le(-3.0).where_(0.0, x.lt(3.0).where_(slope, b.grad()))
}));

/// The exponential linear unit with the factors `alpha`, `scale` and `input_scale`. The second
/// derivative at 0 is 0.
fn exponential(b: &Backward<'_>, alpha: f64, scale: f64, input_scale: f64) -> Result<()> {
    b.set(0, || {
        let x = b.input(0);
        let below = x.lt(0.0).where_(&x, 0.0) * input_scale;
        let slope = b.grad() * (alpha * scale * input_scale) * below.exp();
        x.gt(0.0).where_(b.grad() * scale, slope)
    })
}

pub(crate) const ELU: Derivative = rule!([Input(0)], |b| {
    let factor = |i: usize| b.arg(i).scalar().map(|s| s.to_f64());
    exponential(b, factor(1)?, factor(2)?, factor(3)?)
});

pub(crate) const SELU: Derivative =
    rule!([Input(0)], |b| exponential(b, 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0));

pub(crate) const CELU: Derivative = rule!([Input(0)], |b| {
    let alpha = b.arg(1).scalar()?.to_f64();
    exponential(b, alpha, 1.0, 1.0 / alpha)
});

/// The gradient where `all` is true, and half of it where `half` is.
fn weighted(b: &Backward<'_>, all: &Tensor, half: &Tensor) -> Tensor {
    all.where_(b.grad(), half.where_(b.grad() * 0.5, 0.0))
}

/// The gradient passes strictly between the bounds, so that they have none of their own.
pub(crate) const CLAMP: Derivative = rule!([Input(0)], |b| {
    let x = b.input(0);
    let mask = match (b.arg(1).is_none(), b.arg(2).is_none()) {
        (false, false) => x.gt(b.arg(1).scalar()?).logical_and(x.lt(b.arg(2).scalar()?)),
        (false, true) => x.gt(b.arg(1).scalar()?),
        _ => x.lt(b.arg(2).scalar()?),
    };
    b.set(0, || kept(b, &mask))
});

pub(crate) const CLAMP_MIN: Derivative = rule!([Input(0)], |b| {
    let mask = b.input(0).gt(b.arg(1).scalar()?);
    b.set(0, || kept(b, &mask))
});

pub(crate) const CLAMP_MAX: Derivative = rule!([Input(0)], |b| {
    let mask = b.input(0).lt(b.arg(1).scalar()?);
    b.set(0, || kept(b, &mask))
});

/// A bound that is a tensor shares the gradient at equal elements; a number has none.
pub(crate) const CLAMP_MIN_TENSOR: Derivative =
    rule!([Input(0), Input(1)], |b| bounded(b, 1, Bound::Lower));

pub(crate) const CLAMP_MAX_TENSOR: Derivative =
    rule!([Input(0), Input(1)], |b| bounded(b, 1, Bound::Upper));

/// Which side of an operand a bound is on.
#[derive(Clone, Copy)]
enum Bound {
    Lower,
    Upper,
}

/// The gradients of an operand and of its only bound, in argument `at`. A bound that is a number
/// keeps the gradient of the operand strictly inside. Of a tensor and its bound, the one that the
/// result is not gets 0. Equal elements share the gradient. Beside NaN, both get all of it, as in
/// PyTorch.
fn bounded(b: &Backward<'_>, at: usize, bound: Bound) -> Result<()> {
    let x = b.input(0);
    if b.tensors(at) == 0 {
        let bound_of_all = number_or_input(b, at);
        let inside = match bound {
            Bound::Lower => x.gt(bound_of_all),
            Bound::Upper => x.lt(bound_of_all),
        };
        return b.set(0, || kept(b, &inside));
    }
    let y = b.input(at);
    let (outside, inside) = match bound {
        Bound::Lower => (x.lt(&y), x.gt(&y)),
        Bound::Upper => (x.gt(&y), x.lt(&y)),
    };
    let shared = x.eq(&y).where_(b.grad() * 0.5, b.grad());
    b.set(0, || shared.masked_fill(&outside, 0.0))?;
    b.set(at, || shared.masked_fill(&inside, 0.0))
}

/// The gradients of an operand and of its two bounds, as [`bounded`] has them for one.
pub(crate) const CLAMP_TENSOR: Derivative = rule!([Input(0), Input(1), Input(2)], |b| {
    let is_absent = |at| b.tensors(at) == 0 && b.arg(at).is_none();
    match (is_absent(1), is_absent(2)) {
        (true, _) => return bounded(b, 2, Bound::Upper),
        (_, true) => return bounded(b, 1, Bound::Lower),
        _ => {}
    }
    let x = b.input(0);
    let (low, high) = (number_or_input(b, 1), number_or_input(b, 2));
    let apart = low.lt(&high);
    let (at_low, at_high) = (x.eq(&low).logical_and(&apart), x.eq(&high).logical_and(&apart));
    let strictly = x.gt(&low).logical_and(x.lt(&high));
    let (inside, shared) = match (b.tensors(1) > 0, b.tensors(2) > 0) {
        (true, true) => {
            let all_equal = x.eq(&low).logical_and(x.eq(&high));
            (strictly.logical_or(all_equal), at_low.logical_or(&at_high))
        }
        (true, false) => (strictly, at_low.clone()),
        (false, true) => (strictly, at_high.clone()),
        (false, false) => return b.set(0, || kept(b, &strictly)),
    };
    b.set(0, || weighted(b, &inside, &shared))?;
    b.set(1, || weighted(b, &x.lt(&low).logical_and(low.le(&high)), &at_low))?;
    b.set(2, || weighted(b, &x.gt(&high).logical_or(high.lt(&low)), &at_high))
});

pub(crate) const WHERE: Derivative = rule!([Input(0)], |b| {
    b.set(1, || kept(b, &b.input(0)))?;
    b.set(2, || b.input(0).where_(0.0, b.grad()))
});

pub(crate) const MASKED_FILL: Derivative = rule!([Input(1)], |b| {
    b.set(0, || b.grad().masked_fill(&b.input(1), 0.0))?;
    b.set(2, || b.input(1).where_(b.grad(), 0.0).sum())
});

/// The result is the value of the second operand everywhere.
pub(crate) const FILL: Derivative = rule!([], |b| {
    b.set(0, || b.grad().zeros_like())?;
    b.set(1, || b.grad().sum())
});

pub(crate) const GLU: Derivative = rule!([Input(0)], |b| {
    let dim = b.arg(1).int_i64()?;
    let halves = b.input(0).chunk(2, dim)?;
    let [value, gate] = halves.as_slice() else { return Ok(()) };
    let open = gate.sigmoid();
    let of_value = b.grad() * &open;
    let of_gate = b.grad() * value * &open * (1.0 - &open);
    b.set(0, || Tensor::cat([&of_value, &of_gate], dim))
});

/// The logarithm of the odds: NaN beside the unit interval, or 0 beside the clamped one.
pub(crate) const LOGIT: Derivative = rule!([Input(0)], |b| {
    let eps = b.arg(1).opt(|v| v.float())?;
    b.set(0, || {
        let x = b.input(0);
        let low = eps.unwrap_or(0.0);
        let outside = x.lt(low).logical_or(x.gt(1.0 - low));
        let slope = b.grad() / (&x * (1.0 - &x));
        outside.where_(if eps.is_some() { 0.0 } else { f64::NAN }, slope)
    })
});

/// The expression has a product with 0, and that of an infinite gradient would be NaN.
pub(crate) const SOFTSHRINK: Derivative = rule!([Input(0)], |b| {
    b.set(0, || aten!("softshrink_backward", b.loc(); b.grad(), b.input(0), b.arg(1).clone()))
});

/// A product, so that an infinite gradient is NaN where the operand was replaced, as in PyTorch.
pub(crate) const NAN_TO_NUM: Derivative = rule!([Input(0)], |b| {
    b.set(0, || b.grad() * b.input(0).isfinite().to_dtype(b.grad().dtype()))
});

pub(crate) const HYPOT: Derivative = rule!([Input(0), Input(1), Output(0)], |b| {
    b.set(0, || b.grad() * b.input(0) / b.output(0))?;
    b.set(1, || b.grad() * b.input(1) / b.output(0))
});

pub(crate) const COPYSIGN: Derivative = rule!([Input(0), Output(0)], |b| {
    b.set(0, || {
        let x = b.input(0);
        b.grad() * (b.output(0) / &x).masked_fill(&x.eq(0.0), 0.0)
    })?;
    b.set(1, || b.grad().zeros_like())
});

pub(crate) const SINC: Derivative = rule!([Input(0)], |b| b.set(0, || {
    let x = b.input(0) * std::f64::consts::PI;
    let square = &x * b.input(0);
    let slope = (&x * x.cos() - x.sin()) / &square;
    square.eq(0.0).where_(0.0, b.grad() * slope)
}));

/// The first operand decides, and the second is linear. A gradient of 0 stays 0 where the logarithm
/// is infinite.
pub(crate) const XLOGY: Derivative = rule!([Input(0), Input(1)], |b| {
    b.set(0, || {
        let (x, y) = (b.input(0), second(b));
        x.eq(0.0).logical_and(y.le(0.0)).where_(0.0, b.grad().xlogy(y))
    })?;
    b.set(1, || b.grad() * first(b) / b.input(1))
});

pub(crate) const XLOG1PY: Derivative = rule!([Input(0), Input(1)], |b| {
    b.set(0, || {
        let (x, y) = (b.input(0), second(b));
        x.eq(0.0).logical_and(y.le(-1.0)).where_(0.0, b.grad().special_xlog1py(y))
    })?;
    b.set(1, || b.grad() * first(b) / (b.input(1) + 1.0))
});

/// The first operand of a binary operator, which may be a number.
pub(crate) fn first(b: &Backward<'_>) -> Tensor {
    number_or_input(b, 0)
}

/// As [`first`], for the second.
pub(crate) fn second(b: &Backward<'_>) -> Tensor {
    number_or_input(b, 1)
}

fn number_or_input(b: &Backward<'_>, argument: usize) -> Tensor {
    match (b.tensors(argument), b.arg(argument).scalar()) {
        (0, Ok(number)) => b.grad().detach().new_full([0i64; 0], number, b.grad().dtype()),
        _ => b.input(argument),
    }
}
