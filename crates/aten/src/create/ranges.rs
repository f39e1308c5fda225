//! Evenly spaced numbers: `arange`, `linspace`, `logspace`.

use super::creation::{DEFAULT, factory, filled, options};
use maquette_ir::loops::named::{Input, Number};
use maquette_ir::loops::{Index, IndexMap, LoopError, ScalarId, StageBuilder};
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, Reg};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::{DType, Device, Scalar};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::require;
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{How, Lowering, Metas};
use maquette_ops::operator::number::{fits, require_fits};
use maquette_ops::operator::{cpu_exec, dims_text, table};
use maquette_ops::{Error, Result, Value};
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
            let step = s.checked_abs().ok_or_else(|| Error::value("`step` is out of range"))?;
            (if step == 1 { span } else { (span + (step - 1)).floor_div(step) }).max(0)
        }
        (_, _, step) => {
            let start = start.scalar()?;
            let n = steps_between(start, end.scalar()?, step)?;
            // The elements of integers are computed from these in i64.
            if meta.dtype.is_int() {
                require_fits("start", start, DType::I64)?;
                require_fits("step", step, DType::I64)?;
            }
            SymInt::from(n)
        }
    };
    meta.sizes = smallvec![n];
    Ok(smallvec![meta])
}

/// The number of steps from `start` to below `end`, counted from the numbers as they are given,
/// whatever the dtype of the result.
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

/// `start + i * step`: in `i64` for integers, else in `f64`. As in PyTorch, `start` and `step` are
/// converted first, so that an integer range with a step of 0.5 repeats its start. `count` is that
/// of [`bounds`].
fn arange(cx: &mut NestCx<'_>, count: usize) -> Result<NestResults> {
    let (over, out) = (cx.result_axes(0), cx.result_dtype(0));
    let wide = if out.is_int() { DType::I64 } else { DType::F64 };
    let start = match count {
        1 => Number::Constant(Scalar::Int(0)),
        _ => Number::Launch(cx.number(0, wide)?),
    };
    let step = match count {
        3 => Number::Launch(cx.number(2, wide)?),
        _ => Number::Constant(Scalar::Int(1)),
    };
    let range = cx.nest.map(&over, |s| {
        let (start, step, i) = (s.number(start, wide)?, s.number(step, wide)?, s.coord(over[0]));
        let i = s.expr.cast(i, wide)?;
        let distance = s.expr.binary(BinaryOp::Mul, step, i)?;
        let value = s.expr.binary(BinaryOp::Add, start, distance)?;
        Ok(s.expr.cast(value, out)?)
    })?;
    Ok(smallvec![range.into()])
}

fn spaced_meta(args: &[Value], at: usize) -> Result<Metas> {
    for (name, end) in [("start", &args[0]), ("end", &args[1])] {
        if let Value::Tensor(t) = end {
            require(t.numel().eq(1), || {
                let sizes = dims_text(t.sizes());
                format!("argument `{name}` must have one element, found sizes {sizes}")
            })?;
        }
    }
    let n = args[2].int()?;
    if n.as_i64().is_some_and(|n| n < 0) {
        return Err(Error::value(format!("`steps` must not be negative, found {n}")));
    }
    let meta = factory(&[n], args, at, DEFAULT, Device::Cpu)?;
    // With one step only `start` is used, and with none neither end. The kernel checks tensors.
    let used = usize::try_from(n.as_i64().unwrap_or(0)).unwrap_or(0);
    for (name, end) in [("start", &args[0]), ("end", &args[1])].into_iter().take(used) {
        if !matches!(end, Value::Tensor(_)) {
            require_fits(name, end.scalar()?, meta.dtype)?;
        }
    }
    Ok(smallvec![meta])
}

/// The dtype of the result of a call whose ends are in arguments 0 and 1, and whose options begin
/// at argument `at`.
fn spaced_dtype(args: &[Value], at: usize) -> Result<DType> {
    Ok(spaced_meta(args, at)?.first().map_or(DType::F32, |meta| meta.dtype))
}

/// The error of an end in a tensor that the dtype of the result does not have.
fn unfit_end(args: &[Value], at: usize) -> Result<Error> {
    let dtype = spaced_dtype(args, at)?;
    for (name, end) in [("start", &args[0]), ("end", &args[1])] {
        if let Err(e) = require_fits(name, number(end)?, dtype) {
            return Ok(e);
        }
    }
    Ok(Error::value(format!("an end must be in the range of {dtype}")))
}

/// An end of [`spaced`]: rounded to the result's dtype, as in PyTorch, then an `f64`.
enum End {
    Number(Number),
    Element(Input),
}

impl End {
    /// The end in argument `arg`, a number or a tensor of one element.
    fn of(cx: &mut NestCx<'_>, arg: usize, rounded: DType) -> Result<End> {
        Ok(match cx.args()[arg] {
            Value::Tensor(_) => End::Element(cx.input(arg)?),
            _ => End::Number(Number::Launch(cx.number(arg, rounded)?)),
        })
    }

    fn value(&self, s: &mut StageBuilder<'_>, rounded: DType) -> Result<Reg, LoopError> {
        let end = match self {
            End::Number(end) => s.number(*end, rounded)?,
            End::Element(x) => {
                let element = Self::element(x, s)?;
                s.expr.cast(element, rounded)?
            }
        };
        Ok(s.expr.cast(end, DType::F64)?)
    }

    fn element(x: &Input, s: &mut StageBuilder<'_>) -> Result<Reg, LoopError> {
        let at: IndexMap = x.axes.iter().map(|_| Index::from(Expr::Int(0))).collect();
        s.load(x.id, at)
    }

    /// Asserts that an element is in the range of the result's dtype, unless there are so few steps
    /// that the end is not used.
    fn assert_fits(
        &self,
        s: &mut StageBuilder<'_>,
        out: DType,
        (count, unused_up_to): (ScalarId, i64),
        message: u32,
    ) -> Result<(), LoopError> {
        let End::Element(x) = self else { return Ok(()) };
        let element = Self::element(x, s)?;
        let Some(fits) = fits(&mut s.expr, element, out)? else { return Ok(()) };
        let (count, most) = (s.launch(count)?, s.expr.constant(unused_up_to, DType::I64));
        let is_unused = s.expr.compare(CmpOp::Le, count, most)?;
        let holds = s.expr.binary(BinaryOp::Or, is_unused, fits)?;
        s.expr.assert(holds, message)?;
        Ok(())
    }
}

/// Evenly spaced numbers; if there is a base, in argument 3, its powers. Numbers are counted from
/// the nearer end, so that both ends are exact, as in PyTorch.
fn spaced(cx: &mut NestCx<'_>, has_base: bool) -> Result<NestResults> {
    let (over, out) = (cx.result_axes(0), cx.result_dtype(0));
    let rounded = match out {
        d if d.is_int() => DType::I64,
        DType::F16 | DType::BF16 => out,
        _ => DType::F64,
    };
    let ends = [End::of(cx, 0, rounded)?, End::of(cx, 1, rounded)?];
    let base = if has_base { Some(cx.number(3, DType::F64)?) } else { None };
    cx.explain(if has_base { |a| unfit_end(a, 4) } else { |a| unfit_end(a, 3) });
    let message = cx.nest.message("the ends must be in the range of the result's dtype");
    let extent = cx.nest.nest().extent(over[0]);
    let count = cx.nest.size(extent);
    let step = cx.nest.map(&[], |s| {
        for (end, unused_up_to) in ends.iter().zip(0..) {
            end.assert_fits(s, out, (count, unused_up_to), message)?;
        }
        let (start, end) = (ends[0].value(s, rounded)?, ends[1].value(s, rounded)?);
        let span = s.expr.binary(BinaryOp::Sub, end, start)?;
        let (n, one) = (s.launch(count)?, s.expr.constant(1, DType::I64));
        let steps = s.expr.binary(BinaryOp::Sub, n, one)?;
        let steps = s.expr.binary(BinaryOp::Max, steps, one)?;
        let steps = s.expr.cast(steps, DType::F64)?;
        Ok(s.expr.binary(BinaryOp::Div, span, steps)?)
    })?;
    let spaced = cx.nest.map(&over, |s| {
        let (start, end) = (ends[0].value(s, rounded)?, ends[1].value(s, rounded)?);
        let step = s.load(step, IndexMap::default())?;
        let (i, n) = (s.coord(over[0]), s.launch(count)?);
        let (one, two) = (s.expr.constant(1, DType::I64), s.expr.constant(2, DType::I64));
        let half = s.expr.binary(BinaryOp::FloorDiv, n, two)?;
        let is_one = s.expr.compare(CmpOp::Eq, n, one)?;
        let is_before = s.expr.compare(CmpOp::Lt, i, half)?;
        let is_nearer = s.expr.binary(BinaryOp::Or, is_one, is_before)?;
        let last = s.expr.binary(BinaryOp::Sub, n, one)?;
        let left = s.expr.binary(BinaryOp::Sub, last, i)?;
        let mut from = |end: Reg, op: BinaryOp, count: Reg| -> Result<Reg, LoopError> {
            let count = s.expr.cast(count, DType::F64)?;
            let distance = s.expr.binary(BinaryOp::Mul, step, count)?;
            Ok(s.expr.binary(op, end, distance)?)
        };
        let (before, after) = (from(start, BinaryOp::Add, i)?, from(end, BinaryOp::Sub, left)?);
        let value = s.expr.select(is_nearer, before, after)?;
        let value = match base {
            Some(base) => {
                let base = s.launch(base)?;
                s.expr.binary(BinaryOp::Pow, base, value)?
            }
            None => value,
        };
        Ok(s.expr.cast(value, out)?)
    })?;
    Ok(smallvec![spaced.into()])
}

/// `linspace` over any combination of tensor and scalar ends.
const fn linspace() -> Lowering {
    filled(|_, a| spaced_meta(a, 3), How::Loops(|cx| spaced(cx, false)))
}

/// `logspace`: the base in argument 3, raised to evenly spaced exponents.
const fn logspace() -> Lowering {
    filled(|_, a| spaced_meta(a, 4), How::Loops(|cx| spaced(cx, true)))
}

table! {
    /// `arange`, `linspace` and `logspace`.
    static TABLE = {
        options!("arange(Scalar end") => {
            role: General,
            lowering: filled(|_, a| arange_meta(a, 1), How::Loops(|cx| arange(cx, 1))),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("arange.start(Scalar start, Scalar end") => {
            role: General,
            lowering: filled(|_, a| arange_meta(a, 2), How::Loops(|cx| arange(cx, 2))),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("arange.start_step(Scalar start, Scalar end, Scalar step=1") => {
            role: General,
            lowering: filled(|_, a| arange_meta(a, 3), How::Loops(|cx| arange(cx, 3))),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("linspace(Scalar start, Scalar end, int steps") => {
            role: General,
            lowering: linspace(),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("linspace.Tensor_Tensor(Tensor start, Tensor end, int steps") => {
            role: General,
            lowering: linspace(),
            vjp: Derivative::Refused("the bounds are read as numbers"),
        },
        options!("linspace.Tensor_Scalar(Tensor start, Scalar end, int steps") => {
            role: General,
            lowering: linspace(),
            vjp: Derivative::Refused("the bounds are read as numbers"),
        },
        options!("linspace.Scalar_Tensor(Scalar start, Tensor end, int steps") => {
            role: General,
            lowering: linspace(),
            vjp: Derivative::Refused("the bounds are read as numbers"),
        },
        options!("logspace(Scalar start, Scalar end, int steps, float base=10.") => {
            role: General,
            lowering: logspace(),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("logspace.Tensor_Tensor(Tensor start, Tensor end, int steps, \
            float base=10.") => {
            role: General,
            lowering: logspace(),
            vjp: Derivative::Refused("the bounds are read as numbers"),
        },
        options!("logspace.Tensor_Scalar(Tensor start, Scalar end, int steps, \
            float base=10.") => {
            role: General,
            lowering: logspace(),
            vjp: Derivative::Refused("the bounds are read as numbers"),
        },
        options!("logspace.Scalar_Tensor(Scalar start, Tensor end, int steps, \
            float base=10.") => {
            role: General,
            lowering: logspace(),
            vjp: Derivative::Refused("the bounds are read as numbers"),
        },
    }
}
