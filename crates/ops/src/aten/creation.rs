//! Tensors from sizes and numbers.

use super::dims::format_strides;
use super::host::{self, typed};
use super::lowering::{self, Compute, Lowering, Metas, Strides};
use super::number::{filling, require_argument_fits, require_fits};
use super::table;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ir::{DType, Device, Layout, MemoryFormat, Scalar};
use maquette_kernels::{Class, Element as _};
use smallvec::smallvec;

/// The dtype of floats that nobody chose.
const DEFAULT: DType = DType::F32;

const fn filled(
    metas: fn(&crate::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: lowering::Class::Fill,
        strides: Strides::RowMajor,
        metas,
        run,
    })
}

fn nothing(_: &[Value], _: &[Tensor]) -> Result<()> {
    Ok(())
}

fn all(outs: &[Tensor], value: impl Into<Scalar>) -> Result<()> {
    let value = value.into();
    outs.iter().try_for_each(|t| cpu_exec::fill(t, value))
}

/// A fresh tensor by the options `dtype`, `layout`, `device` that start at argument `at`.
pub(super) fn factory(
    sizes: &[SymInt],
    args: &[Value],
    at: usize,
    dtype: DType,
    device: Device,
) -> Result<Meta> {
    if sizes.iter().any(|n| n.as_i64().is_some_and(|n| n < 0)) {
        return Err(Error::value(format!(
            "sizes must not be negative, found {}",
            dims_text(sizes)
        )));
    }
    if let Some(Value::Layout(l)) = args.get(at + 1)
        && *l != Layout::Strided
    {
        return Err(Error::value(format!("only the strided layout is supported, found {l}")));
    }
    let option = |i: usize| args.get(at + i).unwrap_or(&Value::None);
    let dtype = option(0).opt(Value::dtype)?.unwrap_or(dtype);
    let device = option(2).opt(Value::device)?.unwrap_or(device);
    Ok(Meta::contiguous(sizes, dtype).on(device))
}

fn sized(args: &[Value], at: usize, dtype: DType) -> Result<Metas> {
    Ok(smallvec![factory(args[0].ints()?, args, at, dtype, Device::Cpu)?])
}

/// Of the sizes in argument 1, like argument 0 otherwise.
fn new(args: &[Value], at: usize) -> Result<Metas> {
    let like = args[0].tensor()?;
    Ok(smallvec![factory(args[1].ints()?, args, at, like.dtype(), like.device())?])
}

/// Of the sizes, dtype, device and memory order of argument 0, unless the options say otherwise.
pub(super) fn like(args: &[Value], at: usize) -> Result<Metas> {
    let t = args[0].tensor()?;
    let format = args.get(at + 4).unwrap_or(&Value::None);
    let format = if let Value::MemoryFormat(m) = format { *m } else { MemoryFormat::Preserve };
    let strides = format_strides(format, t.sizes(), t.meta())?;
    Ok(smallvec![Meta { strides, ..factory(t.sizes(), args, at, t.dtype(), t.device())? }])
}

/// Metadata of tensors filled with the argument `name`, which must fit `dtype` of theirs.
fn filled_with(
    metas: Metas,
    name: &str,
    value: &Value,
    dtype: fn(DType) -> DType,
) -> Result<Metas> {
    metas.iter().try_for_each(|m| require_argument_fits(name, value, dtype(m.dtype)))?;
    Ok(metas)
}

/// Straight to the dtype of the tensor; others are as [`filling`] says.
const fn own(d: DType) -> DType {
    d
}

fn strided(sizes: &Value, strides: &Value, meta: Meta) -> Result<Metas> {
    let (sizes, strides): (Dims, Dims) = (sizes.ints()?.into(), strides.ints()?.into());
    if sizes.len() != strides.len() {
        return Err(Error::value(format!(
            "sizes {} and strides {} differ in length",
            dims_text(&sizes),
            dims_text(&strides)
        )));
    }
    Ok(smallvec![Meta { strides, ..meta }])
}

/// Strides such that dimension `order[i]` is the `i`-th in memory.
fn permuted(args: &[Value]) -> Result<Metas> {
    let mut meta = factory(args[0].ints()?, args, 2, DEFAULT, Device::Cpu)?;
    let order = args[1].ints_i64()?;
    let mut seen = vec![false; meta.rank()];
    let fresh = |&d: &i64| {
        usize::try_from(d)
            .ok()
            .and_then(|d| seen.get_mut(d))
            .is_some_and(|s| !std::mem::replace(s, true))
    };
    if order.len() != meta.rank() || !order.iter().all(fresh) {
        return Err(Error::value(format!(
            "physical_layout must name each of {} dimensions once, found {order:?}",
            meta.rank()
        )));
    }
    let sizes: Dims = order.iter().map(|&d| meta.sizes[d as usize]).collect();
    for (&d, s) in order.iter().zip(contiguous_strides(&sizes)) {
        meta.strides[d as usize] = s;
    }
    Ok(smallvec![meta])
}

/// The number that an argument is; a 0-d tensor counts as its element.
fn number(v: &Value) -> Result<Scalar> {
    match v {
        Value::Tensor(t) if !t.dtype().is_float() => {
            Ok(Scalar::Int(cpu_exec::cast(t, DType::I64)?.item()?))
        }
        Value::Tensor(t) => Ok(Scalar::Float(cpu_exec::cast(t, DType::F64)?.item()?)),
        other => other.scalar(),
    }
}

// ---- ranges

/// `start`, `end` and `step`, as an overload of `arange` gives them.
fn bounds(args: &[Value], count: usize) -> (Value, Value, Value) {
    let one = Value::from(1);
    match count {
        1 => (Value::from(0), args[0].clone(), one),
        2 => (args[0].clone(), args[1].clone(), one),
        _ => (args[0].clone(), args[1].clone(), args[2].clone()),
    }
}

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

/// How many steps lie in `[start, end)`.
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
    // integers are counted exactly
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

/// Evenly spaced from both ends, so that both are met exactly; `map` is applied to each.
fn spaced(args: &[Value], outs: &[Tensor], map: impl Fn(f64) -> f64) -> Result<()> {
    let (start, end, n) = (number(&args[0])?, number(&args[1])?, args[2].int_i64()?);
    let out = &outs[0];
    // one step is the start, none are nothing
    for (name, x) in
        [("start", start), ("end", end)].into_iter().take(usize::try_from(n).unwrap_or(0))
    {
        require_fits(name, x, out.dtype())?;
    }
    let whole = out.dtype().is_int();
    // the ends are those of the result's dtype
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

fn eye(outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    cpu_exec::fill(out, 0)?;
    let c = out.meta().concrete().ok_or_else(|| Error::value("the sizes are symbolic"))?;
    let n = c.sizes[0].min(c.sizes[1]);
    let diagonal = out.view_of(
        out.meta().with_dims(smallvec![n.into()], smallvec![(c.strides[0] + c.strides[1]).into()]),
    )?;
    cpu_exec::fill(&diagonal, 1)
}

macro_rules! options {
    ($head:literal $($more:literal)?) => {
        concat!(
            "aten::", $head, ", *, ScalarType? dtype=None, Layout? layout=None, \
            Device? device=None, bool? pin_memory=None", $($more,)? ") -> Tensor"
        )
    };
    (like $head:literal) => { options!($head ", MemoryFormat? memory_format=None") };
}
pub(super) use options;

table! {
    /// Tensors from sizes and numbers.
    pub(super) static TABLE = {
        General options!(like "empty.memory_format(SymInt[] size") =>
            filled(
                |_, a| {
                    let metas = sized(a, 1, DEFAULT)?;
                    let format = if let Value::MemoryFormat(m) = a[5] {
                        m
                    } else {
                        MemoryFormat::Contiguous
                    };
                    metas
                        .into_iter()
                        .map(|m| Ok(Meta { strides: format_strides(format, &m.sizes, &m)?, ..m }))
                        .collect()
                },
                nothing,
            ),
        General options!("empty_strided(SymInt[] size, SymInt[] stride") =>
            filled(
                |_, a| strided(&a[0], &a[1], factory(a[0].ints()?, a, 2, DEFAULT, Device::Cpu)?),
                nothing,
            ),
        General options!("empty_permuted(SymInt[] size, int[] physical_layout") =>
            filled(|_, a| permuted(a), nothing),
        General options!("zeros(SymInt[] size") => filled(|_, a| sized(a, 1, DEFAULT), nothing),
        General options!("ones(SymInt[] size") =>
            filled(|_, a| sized(a, 1, DEFAULT), |_, o| all(o, 1)),
        General options!("full(SymInt[] size, Scalar fill_value") =>
            filled(
                |_, a| filled_with(sized(a, 2, a[1].scalar()?.dtype())?, "fill_value", &a[1], own),
                |a, o| all(o, a[1].scalar()?),
            ),
        General options!("scalar_tensor(Scalar s") =>
            filled(
                |_, a| {
                    filled_with(
                        smallvec![factory(&[], a, 1, DEFAULT, Device::Cpu)?],
                        "s",
                        &a[0],
                        filling,
                    )
                },
                |a, o| all(o, a[0].scalar()?),
            ),
        General options!(like "empty_like(Tensor self") => filled(|_, a| like(a, 1), nothing),
        IgnoresContents options!(like "zeros_like(Tensor self") =>
            filled(|_, a| like(a, 1), nothing),
        IgnoresContents options!(like "ones_like(Tensor self") =>
            filled(|_, a| like(a, 1), |_, o| all(o, 1)),
        IgnoresContents options!(like "full_like(Tensor self, Scalar fill_value") =>
            filled(
                |_, a| filled_with(like(a, 2)?, "fill_value", &a[1], filling),
                |a, o| all(o, a[1].scalar()?),
            ),
        General options!("new_empty(Tensor self, SymInt[] size") =>
            filled(|_, a| new(a, 2), nothing),
        General options!("new_zeros(Tensor self, SymInt[] size") =>
            filled(|_, a| new(a, 2), nothing),
        General options!("new_ones(Tensor self, SymInt[] size") =>
            filled(|_, a| new(a, 2), |_, o| all(o, 1)),
        General options!("new_full(Tensor self, SymInt[] size, Scalar fill_value") =>
            filled(
                |_, a| filled_with(new(a, 3)?, "fill_value", &a[2], own),
                |a, o| all(o, a[2].scalar()?),
            ),
        General options!("new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride") =>
            filled(
                |_, a| {
                    let t = a[0].tensor()?;
                    strided(&a[1], &a[2], factory(a[1].ints()?, a, 3, t.dtype(), t.device())?)
                },
                nothing,
            ),
        General options!("arange(Scalar end") =>
            filled(|_, a| arange_meta(a, 1), |a, o| arange(a, o, 1)),
        General options!("arange.start(Scalar start, Scalar end") =>
            filled(|_, a| arange_meta(a, 2), |a, o| arange(a, o, 2)),
        General options!("arange.start_step(Scalar start, Scalar end, Scalar step=1") =>
            filled(|_, a| arange_meta(a, 3), |a, o| arange(a, o, 3)),
        General options!("linspace(Scalar start, Scalar end, int steps") =>
            filled(|_, a| spaced_meta(a, 3), |a, o| spaced(a, o, |x| x)),
        General options!("linspace.Tensor_Tensor(Tensor start, Tensor end, int steps") =>
            filled(|_, a| spaced_meta(a, 3), |a, o| spaced(a, o, |x| x)),
        General options!("linspace.Tensor_Scalar(Tensor start, Scalar end, int steps") =>
            filled(|_, a| spaced_meta(a, 3), |a, o| spaced(a, o, |x| x)),
        General options!("linspace.Scalar_Tensor(Scalar start, Tensor end, int steps") =>
            filled(|_, a| spaced_meta(a, 3), |a, o| spaced(a, o, |x| x)),
        General options!("logspace(Scalar start, Scalar end, int steps, float base=10.") =>
            filled(
                |_, a| spaced_meta(a, 4),
                |a, o| {
                    let b = a[3].float()?;
                    spaced(a, o, |x| b.powf(x))
                },
            ),
        General options!("logspace.Tensor_Tensor(Tensor start, Tensor end, int steps, \
            float base=10.") =>
            filled(
                |_, a| spaced_meta(a, 4),
                |a, o| {
                    let b = a[3].float()?;
                    spaced(a, o, |x| b.powf(x))
                },
            ),
        General options!("logspace.Tensor_Scalar(Tensor start, Scalar end, int steps, \
            float base=10.") =>
            filled(
                |_, a| spaced_meta(a, 4),
                |a, o| {
                    let b = a[3].float()?;
                    spaced(a, o, |x| b.powf(x))
                },
            ),
        General options!("logspace.Scalar_Tensor(Scalar start, Tensor end, int steps, \
            float base=10.") =>
            filled(
                |_, a| spaced_meta(a, 4),
                |a, o| {
                    let b = a[3].float()?;
                    spaced(a, o, |x| b.powf(x))
                },
            ),
        General options!("eye(SymInt n") =>
            filled(
                |_, a| {
                    let n = a[0].int()?;
                    Ok(smallvec![factory(&[n, n], a, 1, DEFAULT, Device::Cpu)?])
                },
                |_, o| eye(o),
            ),
        General options!("eye.m(SymInt n, SymInt m") =>
            filled(
                |_, a| {
                    Ok(smallvec![factory(&[a[0].int()?, a[1].int()?], a, 2, DEFAULT, Device::Cpu)?])
                },
                |_, o| eye(o),
            ),
        General "aten::lift_fresh(Tensor(a) self) -> Tensor(a)" =>
            Lowering::View(|_, a| Ok(smallvec![a[0].tensor()?.meta().clone()])),
        General "aten::lift_fresh_copy(Tensor self) -> Tensor" =>
            Lowering::Compute(Compute {
                class: lowering::Class::Copy,
                strides: Strides::FromOperands,
                metas: |_, a| like(a, 1),
                run: |a, o| cpu_exec::copy(a[0].tensor()?, &o[0]),
            }),
    }
}
