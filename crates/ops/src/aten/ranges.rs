//! Evenly spaced numbers: `arange`, `linspace`, `logspace`.

use super::creation::{DEFAULT, factory, filled, options};
use super::host::{self, typed};
use super::lowering::{Lowering, Metas};
use super::number::require_fits;
use super::table;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Scalar};
use maquette_kernels::{Class, Element as _};
use smallvec::smallvec;

/// An argument as a number. A 0-d tensor stands for its element.
fn number(v: &Value) -> Result<Scalar> {
    match v {
        Value::Tensor(t) if !t.dtype().is_float() => {
            Ok(Scalar::Int(cpu_exec::cast(t, DType::I64)?.item()?))
        }
        Value::Tensor(t) => Ok(Scalar::Float(cpu_exec::cast(t, DType::F64)?.item()?)),
        other => other.scalar(),
    }
}

/// `start`, `end` and `step` of the overload of `arange` with `count` numbers.
fn bounds(args: &[Value], count: usize) -> (Value, Value, Value) {
    let one = Value::from(1);
    match count {
        1 => (Value::from(0), args[0].clone(), one),
        2 => (args[0].clone(), args[1].clone(), one),
        _ => (args[0].clone(), args[1].clone(), args[2].clone()),
    }
}

/// The metadata of `arange`. Its size may be symbolic if the numbers are integers.
fn arange_meta(args: &[Value], count: usize) -> Result<Metas> {
    let (start, end, step) = bounds(args, count);
    let whole = [&start, &end, &step].iter().all(|v| matches!(v, Value::Int(_) | Value::Bool(_)));
    let mut meta = factory(
        &[SymInt::from(0)],
        args,
        count,
        if whole { DType::I64 } else { DEFAULT },
        Device::Cpu,
    )?;
    if meta.dtype == DType::Bool {
        return Err(Error::value("`arange` does not support bool"));
    }
    let n = match (&start, &end, step.scalar()?) {
        (Value::Int(a), Value::Int(b), Scalar::Int(s))
            if a.as_i64().is_none() || b.as_i64().is_none() =>
        {
            if s == 0 {
                return Err(Error::value("`step` must not be 0"));
            }
            let span = if s > 0 { *b - *a } else { *a - *b };
            (if s.abs() == 1 { span } else { (span + (s.abs() - 1)).floor_div(s.abs()) }).max(0)
        }
        (_, _, step) => SymInt::from(steps_between(start.scalar()?, end.scalar()?, step)?),
    };
    meta.sizes = smallvec![n];
    Ok(smallvec![meta])
}

/// The number of steps from `start` to below `end`.
fn steps_between(start: Scalar, end: Scalar, step: Scalar) -> Result<i64> {
    let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
    if s == 0.0 || !s.is_finite() || !a.is_finite() || !b.is_finite() {
        return Err(Error::value(format!(
            "`start`, `end` and `step` must be finite and `step` not 0, found {start}, {end} and \
                {step}"
        )));
    }
    if (b - a) * s.signum() < 0.0 {
        return Err(Error::value(format!(
            "`step` {step} has the wrong sign for a range from {start} to {end}"
        )));
    }
    // Integers are counted exactly, in `i128`.
    let n = if let (Scalar::Int(a), Scalar::Int(b), Scalar::Int(s)) = (start, end, step) {
        let (a, b, s) = (i128::from(a), i128::from(b), i128::from(s));
        i64::try_from((b - a + s - s.signum()) / s).ok()
    } else {
        let n = ((b - a) / s).ceil();
        (n < 9e18).then_some(n as i64)
    };
    n.ok_or_else(|| {
        Error::value(format!(
            "a `step` of {step} gives too many elements between {start} and {end}"
        ))
    })
}

fn arange(args: &[Value], outs: &[Tensor], count: usize) -> Result<()> {
    let (start, _, step) = bounds(args, count);
    Ok(maquette_kernels::arange(&mut cpu_exec::output(&outs[0])?, start.scalar()?, step.scalar()?)?)
}

fn spaced_meta(args: &[Value], at: usize) -> Result<Metas> {
    let n = args[2].int()?;
    if n.as_i64().is_some_and(|n| n < 0) {
        return Err(Error::value(format!("`steps` must not be negative, found {n}")));
    }
    Ok(smallvec![factory(&[n], args, at, DEFAULT, Device::Cpu)?])
}

/// Fills the output with evenly spaced numbers, mapped by `map`. Numbers are counted from the
/// nearer end, so that both ends are exact, as in PyTorch.
fn spaced(args: &[Value], outs: &[Tensor], map: impl Fn(f64) -> f64) -> Result<()> {
    let (start, end, n) = (number(&args[0])?, number(&args[1])?, args[2].int_i64()?);
    let out = &outs[0];
    // With one step only `start` is used, and with none neither end.
    for (name, x) in
        [("start", start), ("end", end)].into_iter().take(usize::try_from(n).unwrap_or(0))
    {
        require_fits(name, x, out.dtype())?;
    }
    let whole = out.dtype().is_int();
    // PyTorch rounds the ends to the result's dtype first.
    let end_of = |s: Scalar| match out.dtype() {
        _ if whole => s.to_i64() as f64,
        DType::BF16 => half::bf16::from_f64(s.to_f64()).to_f64(),
        DType::F16 => half::f16::from_f64(s.to_f64()).to_f64(),
        _ => s.to_f64(),
    };
    let (a, b) = (end_of(start), end_of(end));
    let step = (b - a) / (n - 1).max(1) as f64;
    let value = |i: i64| {
        map(if n == 1 || i < n / 2 { a + step * i as f64 } else { b - step * (n - 1 - i) as f64 })
    };
    typed!(out.dtype(), T => host::fill_with::<T>(out, |o| {
        (0..).zip(o).for_each(|(i, o)| *o = T::store(Class::cast(value(i))));
    }))
}

/// `linspace` over any combination of tensor and scalar ends.
const fn linspace() -> Lowering {
    filled(|_, a| spaced_meta(a, 3), |a, o| spaced(a, o, |x| x))
}

/// `logspace`: the base in argument 3, raised to evenly spaced exponents.
const fn logspace() -> Lowering {
    filled(
        |_, a| spaced_meta(a, 4),
        |a, o| {
            let base = a[3].float()?;
            spaced(a, o, |exponent| base.powf(exponent))
        },
    )
}

table! {
    /// `arange`, `linspace` and `logspace`.
    pub(super) static TABLE = {
        General options!("arange(Scalar end") =>
            filled(|_, a| arange_meta(a, 1), |a, o| arange(a, o, 1)),
        General options!("arange.start(Scalar start, Scalar end") =>
            filled(|_, a| arange_meta(a, 2), |a, o| arange(a, o, 2)),
        General options!("arange.start_step(Scalar start, Scalar end, Scalar step=1") =>
            filled(|_, a| arange_meta(a, 3), |a, o| arange(a, o, 3)),
        General options!("linspace(Scalar start, Scalar end, int steps") =>
            linspace(),
        General options!("linspace.Tensor_Tensor(Tensor start, Tensor end, int steps") =>
            linspace(),
        General options!("linspace.Tensor_Scalar(Tensor start, Scalar end, int steps") =>
            linspace(),
        General options!("linspace.Scalar_Tensor(Scalar start, Tensor end, int steps") =>
            linspace(),
        General options!("logspace(Scalar start, Scalar end, int steps, float base=10.") =>
            logspace(),
        General options!("logspace.Tensor_Tensor(Tensor start, Tensor end, int steps, \
            float base=10.") =>
            logspace(),
        General options!("logspace.Tensor_Scalar(Tensor start, Scalar end, int steps, \
            float base=10.") =>
            logspace(),
        General options!("logspace.Scalar_Tensor(Scalar start, Tensor end, int steps, \
            float base=10.") =>
            logspace(),
    }
}
