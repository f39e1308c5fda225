//! Tensor factories: `empty`, `zeros`, `full`, `eye` and their `new_` and `_like` variants.

use super::copies::COPY;
use maquette_ir::loops::named::{self, Number};
use maquette_ir::scalar_expr::CmpOp;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ir::{DType, Device, Layout, MemoryFormat, Scalar};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::format_strides;
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{self, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::number::{filling, require_argument_fits};
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Result, Value};
use smallvec::smallvec;

/// The default float dtype.
pub(crate) const DEFAULT: DType = DType::F32;

/// A factory.
pub(crate) const fn filled(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute {
        class: lowering::Class::Fill,
        strides: Strides::RowMajor,
        metas,
        how,
    })
}

/// Every element is the number.
fn all(cx: &mut NestCx<'_>, value: Number) -> Result<NestResults> {
    let (over, dtype) = (cx.result_axes(0), cx.result_dtype(0));
    Ok(smallvec![named::fill(&mut cx.nest, &over, value, dtype)?.into()])
}

const ONES: How = How::Loops(|cx| all(cx, Number::Constant(Scalar::Int(1))));

/// Every element is the number in argument `arg`.
fn all_of(cx: &mut NestCx<'_>, arg: usize) -> Result<NestResults> {
    let value = cx.number(arg, cx.result_dtype(0))?;
    all(cx, Number::Launch(value))
}

/// The metadata of a fresh tensor. The options `dtype`, `layout` and `device` start at argument
/// `at`, and default to `dtype` and `device`.
pub(crate) fn factory(
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

/// The metadata of a factory whose argument 0 is the sizes.
fn sized(args: &[Value], at: usize, dtype: DType) -> Result<Metas> {
    Ok(smallvec![factory(args[0].ints()?, args, at, dtype, Device::Cpu)?])
}

/// The metadata of a `new_` factory: the sizes are argument 1, and dtype and device default to
/// those of argument 0.
fn new(args: &[Value], at: usize) -> Result<Metas> {
    let like = args[0].tensor()?;
    Ok(smallvec![factory(args[1].ints()?, args, at, like.dtype(), like.device())?])
}

/// The metadata of a `_like` factory: sizes, dtype, device and memory format default to those of
/// argument 0.
pub(crate) fn like(args: &[Value], at: usize) -> Result<Metas> {
    let t = args[0].tensor()?;
    let format = args.get(at + 4).unwrap_or(&Value::None);
    let format = if let Value::MemoryFormat(m) = format { *m } else { MemoryFormat::Preserve };
    let strides = format_strides(format, t.sizes(), t.meta())?;
    Ok(smallvec![factory(t.sizes(), args, at, t.dtype(), t.device())?.with_strides(strides)])
}

/// Requires the fill value `name` to fit the dtype of each tensor, as widened by `dtype`.
fn filled_with(
    metas: Metas,
    name: &str,
    value: &Value,
    dtype: fn(DType) -> DType,
) -> Result<Metas> {
    metas.iter().try_for_each(|m| require_argument_fits(name, value, dtype(m.dtype)))?;
    Ok(metas)
}

/// A fill value is converted to the tensor's dtype directly. For other operators see [`filling`].
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
    Ok(smallvec![meta.with_strides(strides)])
}

/// The metadata of `empty_permuted`: dimension `order[i]` is the `i`-th in memory.
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

/// The identity matrix.
const EYE: How = How::Loops(|cx| {
    let (over, dtype) = (cx.result_axes(0), cx.result_dtype(0));
    let eye = cx.nest.map(&over, |s| {
        let (row, column) = (s.coord(over[0]), s.coord(over[1]));
        let is_diagonal = s.expr.compare(CmpOp::Eq, row, column)?;
        Ok(s.expr.cast(is_diagonal, dtype)?)
    })?;
    Ok(smallvec![eye.into()])
});

macro_rules! options {
    ($head:literal $($more:literal)?) => {
        concat!(
            "aten::", $head, ", *, ScalarType? dtype=None, Layout? layout=None, \
            Device? device=None, bool? pin_memory=None", $($more,)? ") -> Tensor"
        )
    };
    (like $head:literal) => { options!($head ", MemoryFormat? memory_format=None") };
}
pub(crate) use options;

table! {
    /// Factories.
    static TABLE = {
        options!(like "empty.memory_format(SymInt[] size") => {
            role: General,
            lowering: filled(
                |_, a| {
                    let metas = sized(a, 1, DEFAULT)?;
                    let format = if let Value::MemoryFormat(m) = a[5] {
                        m
                    } else {
                        MemoryFormat::Contiguous
                    };
                    let in_format = |m: Meta| -> Result<Meta> {
                        let strides = format_strides(format, &m.sizes, &m)?;
                        Ok(m.with_strides(strides))
                    };
                    metas.into_iter().map(in_format).collect()
                },
                How::Nothing,
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("empty_strided(SymInt[] size, SymInt[] stride") => {
            role: General,
            lowering: filled(
                |_, a| strided(&a[0], &a[1], factory(a[0].ints()?, a, 2, DEFAULT, Device::Cpu)?),
                How::Nothing,
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("empty_permuted(SymInt[] size, int[] physical_layout") => {
            role: General,
            lowering: filled(|_, a| permuted(a), How::Nothing),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("zeros(SymInt[] size") => {
            role: General,
            lowering: filled(|_, a| sized(a, 1, DEFAULT), How::Zeros),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("ones(SymInt[] size") => {
            role: General,
            lowering: filled(|_, a| sized(a, 1, DEFAULT), ONES),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("full(SymInt[] size, Scalar fill_value") => {
            role: General,
            lowering: filled(
                |_, a| filled_with(sized(a, 2, a[1].scalar()?.dtype())?, "fill_value", &a[1], own),
                How::Loops(|cx| all_of(cx, 1)),
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("scalar_tensor(Scalar s") => {
            role: General,
            lowering: filled(
                |_, a| {
                    filled_with(
                        smallvec![factory(&[], a, 1, DEFAULT, Device::Cpu)?],
                        "s",
                        &a[0],
                        filling,
                    )
                },
                How::Loops(|cx| all_of(cx, 0)),
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!(like "empty_like(Tensor self") => {
            role: General,
            lowering: filled(|_, a| like(a, 1), How::Nothing),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!(like "zeros_like(Tensor self") => {
            role: IgnoresContents,
            lowering: filled(|_, a| like(a, 1), How::Zeros),
        },
        options!(like "ones_like(Tensor self") => {
            role: IgnoresContents,
            lowering: filled(|_, a| like(a, 1), ONES),
        },
        options!(like "full_like(Tensor self, Scalar fill_value") => {
            role: IgnoresContents,
            lowering: filled(
                |_, a| filled_with(like(a, 2)?, "fill_value", &a[1], filling),
                How::Loops(|cx| all_of(cx, 1)),
            ),
        },
        options!("new_empty(Tensor self, SymInt[] size") => {
            role: General,
            lowering: filled(|_, a| new(a, 2), How::Nothing),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("new_zeros(Tensor self, SymInt[] size") => {
            role: General,
            lowering: filled(|_, a| new(a, 2), How::Zeros),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("new_ones(Tensor self, SymInt[] size") => {
            role: General,
            lowering: filled(|_, a| new(a, 2), ONES),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("new_full(Tensor self, SymInt[] size, Scalar fill_value") => {
            role: General,
            lowering: filled(
                |_, a| filled_with(new(a, 3)?, "fill_value", &a[2], own),
                How::Loops(|cx| all_of(cx, 2)),
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride") => {
            role: General,
            lowering: filled(
                |_, a| {
                    let t = a[0].tensor()?;
                    strided(&a[1], &a[2], factory(a[1].ints()?, a, 3, t.dtype(), t.device())?)
                },
                How::Nothing,
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("eye(SymInt n") => {
            role: General,
            lowering: filled(
                |_, a| {
                    let n = a[0].int()?;
                    Ok(smallvec![factory(&[n, n], a, 1, DEFAULT, Device::Cpu)?])
                },
                EYE,
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        options!("eye.m(SymInt n, SymInt m") => {
            role: General,
            lowering: filled(
                |_, a| {
                    Ok(smallvec![factory(&[a[0].int()?, a[1].int()?], a, 2, DEFAULT, Device::Cpu)?])
                },
                EYE,
            ),
            vjp: Derivative::None("the elements follow from numbers"),
        },
        "aten::lift_fresh(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::View(|_, a| Ok(smallvec![a[0].tensor()?.meta().clone()])),
            vjp: crate::grad::EXPANDED,
        },
        "aten::lift_fresh_copy(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: lowering::Class::Copy,
                strides: Strides::FromOperands,
                metas: |_, a| like(a, 1),
                how: COPY,
            }),
            vjp: crate::grad::IDENTITY,
        },
    }
}
