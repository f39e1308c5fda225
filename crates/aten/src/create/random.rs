//! Random tensors, from the counter-based generator Philox (Salmon et al. 2011). Element `i` of a
//! result depends on the seed and the offset of the device at the call and on `i`, and on nothing
//! else. So the number of threads does not matter, and each call reserves its range of counters.

use super::creation::{factory, like, options};
use maquette_ir::{DType, Device, Scalar};
use maquette_kernels::ViewMut;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::number::require_fits;
use maquette_ops::operator::{cpu_exec, table};
use maquette_ops::random::{Philox, reserve};
use maquette_ops::{Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

const fn random(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Random,
        strides: Strides::RowMajor,
        metas,
        how: How::Host(run),
    })
}

/// Fills the output with random numbers, from counters that it reserves on the device.
fn draw(
    outs: &[Tensor],
    fill: impl FnOnce(&mut ViewMut<'_>, Philox) -> Result<(), maquette_kernels::KernelError>,
) -> Result<()> {
    let mut out = cpu_exec::output(&outs[0])?;
    let at = reserve(outs[0].device(), out.numel() as u64);
    Ok(fill(&mut out, at)?)
}

fn floats(metas: Metas, what: &str) -> Result<Metas> {
    match metas.iter().find(|m| !m.dtype.is_float()) {
        Some(m) => {
            Err(Error::value(format!("{what} numbers require a floating dtype, found {}", m.dtype)))
        }
        None => Ok(metas),
    }
}

fn sized(args: &[Value]) -> Result<Metas> {
    floats(smallvec![factory(args[0].ints()?, args, 1, DType::F32, Device::Cpu)?], "random")
}

fn uniform(outs: &[Tensor], low: f64, high: f64) -> Result<()> {
    draw(outs, |out, at| maquette_kernels::uniform(out, at, low, high))
}

fn normal(outs: &[Tensor], mean: f64, std: f64) -> Result<()> {
    draw(outs, |out, at| maquette_kernels::normal(out, at, mean, std))
}

/// Requires `[low, high)` to be nonempty and its integers to be in range of the dtype. Symbolic
/// bounds are not checked.
fn range_of(metas: Metas, low: &Value, high: &Value) -> Result<Metas> {
    let (Some(low), Some(high)) = (low.int()?.as_i64(), high.int()?.as_i64()) else {
        return Ok(metas);
    };
    if low >= high {
        return Err(Error::value(format!(
            "`low` must be less than `high`, found {low} and {high}"
        )));
    }
    for (name, x) in [("low", low), ("high` - 1 of `high", high - 1)] {
        for m in &metas {
            // A conversion wraps negative integers and maps all nonzero integers to `true`. As
            // bounds, such numbers are out of range.
            let beyond = match m.dtype {
                DType::U8 => x < 0,
                DType::Bool => !(0..=1).contains(&x),
                _ => false,
            };
            if beyond {
                return Err(Error::value(format!(
                    "argument `{name}` must be in the range of {}, found {x}",
                    m.dtype
                )));
            }
            require_fits(name, Scalar::Int(x), m.dtype)?;
        }
    }
    Ok(metas)
}

/// Requires `[low, high)` to be a range of finite numbers of the dtype, whose length is finite too.
fn interval(args: &[Value]) -> Result<Metas> {
    let (metas, low, high) =
        (floats(like(&args[..1], 1)?, "uniform")?, args[1].float()?, args[2].float()?);
    let largest = metas[0].dtype.largest_float().unwrap_or(f64::MAX);
    let finite = |x: f64| x.abs() <= largest;
    if finite(low) && finite(high) && low <= high && finite(high - low) {
        return Ok(metas);
    }
    Err(Error::value(format!(
        "`from` and `to` must bound a range of finite numbers of {}, found {low} and {high}",
        metas[0].dtype
    )))
}

fn deviating(args: &[Value]) -> Result<Metas> {
    let std = args[2].float()?;
    if std >= 0.0 {
        return floats(like(&args[..1], 1)?, "normal");
    }
    Err(Error::value(format!("`std` must not be negative, found {std}")))
}

fn integers(outs: &[Tensor], low: &Value, high: &Value) -> Result<()> {
    let (low, high) = (low.int_i64()?, high.int_i64()?);
    draw(outs, |out, at| maquette_kernels::randint(out, at, low, high))
}

/// Bernoulli draws: `u < p` for uniform `u`, elementwise.
fn chance(outs: &[Tensor], p: &Tensor) -> Result<()> {
    maquette_ops::operator::host::reals(p)?
        .into_iter()
        .try_for_each(|p| probability(p).map(drop))?;
    let out = &outs[0];
    let wide = maquette_ops::Meta::contiguous(out.sizes(), DType::F32)
        .on(out.device())
        .with_dtype(DType::F32);
    let draws = Tensor::allocate(wide)?;
    uniform(std::slice::from_ref(&draws), 0.0, 1.0)?;
    let p = cpu_exec::cast(p, DType::F32)?;
    cpu_exec::map_into(out, &[&draws, &p], |b, r| {
        let less = b.compare(maquette_ir::scalar_expr::CmpOp::Lt, r[0], r[1])?;
        b.cast(less, out.dtype())
    })
}

fn probability(p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        Ok(p)
    } else {
        Err(Error::value(format!("`p` must be a probability from 0 to 1, found {p}")))
    }
}

/// Dropout: in training, each element is zeroed with probability `p` and the others are scaled by
/// `1 / (1 - p)`. Otherwise the identity.
fn dropout(args: &[Value]) -> Result<Outputs> {
    let (x, p, train) = (args[0].tensor()?, probability(args[1].float()?)?, args[2].bool()?);
    if !train || p == 0.0 {
        return maquette_ops::call("aten::clone", maquette_ops::args![x]);
    }
    if p == 1.0 {
        return maquette_ops::call("aten::mul.Scalar", maquette_ops::args![x, 0]);
    }
    let kept = maquette_ops::call("aten::bernoulli.p", maquette_ops::args![x, 1.0 - p])?;
    let scale =
        maquette_ops::call("aten::div.Scalar", maquette_ops::args![kept[0].clone(), 1.0 - p])?;
    maquette_ops::call("aten::mul.Tensor", maquette_ops::args![x, scale[0].clone()])
}

fn dropout_in_place(args: &[Value]) -> Result<Outputs> {
    let (x, p) = (args[0].tensor()?, probability(args[1].float()?)?);
    if args[2].bool()? && p != 0.0 {
        let dropped = dropout(args)?;
        maquette_ops::call("aten::copy_", maquette_ops::args![x, dropped[0].clone()])?;
    }
    Ok(smallvec![Value::Tensor(x.clone())])
}

/// Dropout, and the mask of the kept elements.
fn native_dropout(args: &[Value]) -> Result<Outputs> {
    let (x, p) = (args[0].tensor()?, probability(args[1].float()?)?);
    if !args[2].opt(Value::bool)?.unwrap_or(true) {
        let mask = maquette_ops::call("aten::ones_like", maquette_ops::args![x, DType::Bool])?;
        return Ok(maquette_ops::call("aten::clone", maquette_ops::args![x])?
            .into_iter()
            .chain(mask)
            .collect());
    }
    let mask = maquette_ops::call("aten::bernoulli.p", maquette_ops::args![x, 1.0 - p])?;
    let mask = mask[0].tensor()?.to_dtype(DType::Bool);
    let out = x * &mask * if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    Ok(smallvec![Value::Tensor(out.ok()?.clone()), Value::Tensor(mask.ok()?.clone())])
}

macro_rules! integer_options {
    ($head:literal) => {
        concat!(
            "aten::",
            $head,
            ", *, ScalarType? dtype=4, Layout? layout=None, Device? \
            device=None, bool? pin_memory=None) -> Tensor"
        )
    };
}

table! {
    /// Random tensors.
    static TABLE = {
        options!("rand(SymInt[] size") => {
            role: General,
            lowering: random(|_, a| sized(a), |_, o| uniform(o, 0.0, 1.0)),
            vjp: Derivative::None("the elements are random"),
        },
        options!("randn(SymInt[] size") => {
            role: General,
            lowering: random(|_, a| sized(a), |_, o| normal(o, 0.0, 1.0)),
            vjp: Derivative::None("the elements are random"),
        },
        options!(like "rand_like(Tensor self") => {
            role: General,
            lowering: random(|_, a| floats(like(a, 1)?, "random"), |_, o| uniform(o, 0.0, 1.0)),
            vjp: Derivative::None("the elements are random"),
        },
        options!(like "randn_like(Tensor self") => {
            role: General,
            lowering: random(|_, a| floats(like(a, 1)?, "random"), |_, o| normal(o, 0.0, 1.0)),
            vjp: Derivative::None("the elements are random"),
        },
        integer_options!("randint(SymInt high, SymInt[] size") => {
            role: General,
            lowering: random(
                |_, a| {
                    range_of(
                        smallvec![factory(a[1].ints()?, a, 2, DType::I64, Device::Cpu)?],
                        &Value::from(0),
                        &a[0],
                    )
                },
                |a, o| integers(o, &Value::from(0), &a[0]),
            ),
            vjp: Derivative::None("the elements are random"),
        },
        integer_options!("randint.low(SymInt low, SymInt high, SymInt[] size") => {
            role: General,
            lowering: random(
                |_, a| {
                    range_of(
                        smallvec![factory(a[2].ints()?, a, 3, DType::I64, Device::Cpu)?],
                        &a[0],
                        &a[1],
                    )
                },
                |a, o| integers(o, &a[0], &a[1]),
            ),
            vjp: Derivative::None("the elements are random"),
        },
        options!(like "randint_like(Tensor self, SymInt high") => {
            role: General,
            lowering: random(
                |_, a| range_of(like(a, 2)?, &Value::from(0), &a[1]),
                |a, o| integers(o, &Value::from(0), &a[1]),
            ),
            vjp: Derivative::None("the elements are random"),
        },
        options!(like "randint_like.low_dtype(Tensor self, SymInt low, SymInt high") => {
            role: General,
            lowering: random(
                |_,
                a| range_of(like(a, 3)?, &a[1], &a[2]),
                |a,
                o| integers(o, &a[1], &a[2]),
            ),
            vjp: Derivative::None("the elements are random"),
        },
        "aten::uniform(Tensor self, float from=0., float to=1., *, \
            Generator? generator=None) -> Tensor" => {
            role: General,
            lowering: random(|_, a| interval(a), |a, o| uniform(o, a[1].float()?, a[2].float()?)),
            vjp: crate::grad::ZERO,
        },
        "aten::uniform_(Tensor(a!) self, float from=0., float to=1., *, \
            Generator? generator=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::uniform"),
        },
        "aten::normal_functional(Tensor self, float mean=0., float std=1., *, \
            Generator? generator=None) -> Tensor" => {
            role: General,
            lowering: random(|_, a| deviating(a), |a, o| normal(o, a[1].float()?, a[2].float()?)),
            vjp: crate::grad::ZERO,
        },
        "aten::normal_(Tensor(a!) self, float mean=0., float std=1., *, \
            Generator? generator=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::normal_functional"),
        },
        "aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor" => {
            role: General,
            lowering: random(
                |_,
                a| floats(like(&a[..1], 1)?, "bernoulli"),
                |a,
                o| chance(o, a[0].tensor()?),
            ),
            vjp: crate::grad::ZERO,
        },
        "aten::bernoulli.Tensor(Tensor self, Tensor p, *, \
            Generator? generator=None) -> Tensor" => {
            role: General,
            lowering: random(
                |_, a| {
                    crate::shape::views::expand(a[1].tensor()?.meta(), a[0].tensor()?.sizes())?;
                    like(&a[..1], 1)
                },
                |a, o| chance(o, a[1].tensor()?),
            ),
            vjp: crate::grad::ZERO,
        },
        "aten::bernoulli_.Tensor(Tensor(a!) self, Tensor p, *, \
            Generator? generator=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bernoulli.Tensor"),
        },
        "aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor" => {
            role: General,
            lowering: random(
                |_, a| {
                    probability(a[1].float()?)?;
                    like(&a[..1], 1)
                },
                |a, o| chance(o, &Tensor::adopt(vec![a[1].float()? as f32], [0i64; 0])?),
            ),
            vjp: crate::grad::ZERO,
        },
        "aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, \
            Generator? generator=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bernoulli.p"),
        },
        "aten::dropout(Tensor input, float p, bool train) -> Tensor" => {
            role: General,
            lowering: Lowering::RandomComposite(dropout),
        },
        "aten::dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::RandomComposite(dropout_in_place),
        },
        "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::RandomComposite(native_dropout),
        },
    }
}
