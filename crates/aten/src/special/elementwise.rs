//! Elementwise operators that apply a function of plain numbers. Dtypes, broadcasting and strides
//! are those of pointwise operators. Values are computed in `f64` one at a time, and rounded once.

use maquette_ir::sym::SymInt;
use maquette_ir::typing::{broadcast, elementwise_strides, promote};
use maquette_ir::{Category, DType};
use maquette_ops::operator::lowering::{Metas, operand};
use maquette_ops::operator::{cpu_exec, host};
use maquette_ops::{Error, Meta, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

/// The dtypes that an operator accepts, and the dtype in which it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// All dtypes. Integers and bools are converted to the default float.
    Numbers,
    /// As `Numbers`, but without f16 and bf16.
    Wide,
    /// Floats.
    Floats,
    /// Integers.
    Integers,
}

impl Takes {
    /// The dtype of the computation and the result, for operands of these dtypes.
    pub(super) fn dtype(self, operands: &[Value]) -> Result<DType> {
        let promoted = promote(operands.iter().map(operand));
        let refused = |what: &str| {
            Err(Error::value(format!("the operands must be {what}, found {promoted}")))
        };
        match (self, promoted) {
            (Takes::Wide, DType::F16 | DType::BF16) => refused("f32, f64, integers or bools"),
            (Takes::Numbers | Takes::Wide, d) if d.category() != Category::Float => Ok(DType::F32),
            (Takes::Floats, d) if d.category() != Category::Float => refused("floats"),
            (Takes::Integers, d) if d.category() != Category::Int => refused("integers"),
            (_, d) => Ok(d),
        }
    }
}

/// The metadata of an elementwise result with this dtype.
pub(super) fn meta(operands: &[Value], dtype: DType) -> Result<Meta> {
    let tensors: SmallVec<[&Tensor; 2]> = operands
        .iter()
        .filter_map(|v| match v {
            Value::Tensor(t) => Some(t),
            _ => None,
        })
        .collect();
    let first = tensors
        .first()
        .ok_or_else(|| Error::value("an elementwise operator needs a tensor among its operands"))?;
    if let Some(other) = tensors.iter().find(|t| t.device() != first.device()) {
        return Err(Error::value(format!(
            "the operands must be on one device, found {} and {}",
            first.device(),
            other.device()
        )));
    }
    let shapes: SmallVec<[&[SymInt]; 2]> = tensors.iter().map(|t| t.sizes()).collect();
    let sizes = broadcast(&shapes)?;
    let layouts: SmallVec<[(&[SymInt], &[SymInt]); 2]> =
        tensors.iter().map(|t| (t.sizes(), t.strides())).collect();
    let strides = elementwise_strides(&sizes, &layouts)?;
    Ok(Meta::contiguous(sizes, dtype).on(first.device()).with_strides(strides))
}

/// The metadata of the one output of an operator with these operands.
pub(super) fn metas(operands: &[Value], takes: Takes) -> Result<Metas> {
    Ok(smallvec![meta(operands, takes.dtype(operands)?)?])
}

/// An operand, converted to a dtype and broadcast to the sizes of `out`, in row-major order.
fn spread(v: &Value, dtype: DType, out: &Tensor) -> Result<Tensor> {
    let t = Tensor::allocate(Meta::contiguous(out.sizes(), dtype).on(out.device()))?;
    match v {
        Value::Tensor(x) => cpu_exec::copy(x, &t)?,
        number => cpu_exec::fill(&t, number.scalar()?)?,
    }
    Ok(t)
}

/// The elements of [`spread`], as `f64`.
pub(super) fn values(v: &Value, dtype: DType, out: &Tensor) -> Result<Vec<f64>> {
    host::reals(&spread(v, dtype, out)?)
}

/// Computes `out = f(x)`.
pub(super) fn unary(x: &Value, outs: &[Tensor], f: &dyn Fn(f64) -> f64) -> Result<()> {
    let [out] = outs else { return Err(one_output(outs)) };
    let y: Vec<f64> = values(x, out.dtype(), out)?.into_iter().map(f).collect();
    host::store_reals(out, &y)
}

/// Computes `out = f(a, b)`.
pub(super) fn binary(
    a: &Value,
    b: &Value,
    outs: &[Tensor],
    f: &dyn Fn(f64, f64) -> f64,
) -> Result<()> {
    let [out] = outs else { return Err(one_output(outs)) };
    let (a, b) = (values(a, out.dtype(), out)?, values(b, out.dtype(), out)?);
    let y: Vec<f64> = a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect();
    host::store_reals(out, &y)
}

/// Computes `out = f(a, b)` for integers. Results wrap into the dtype.
pub(super) fn integers(
    a: &Value,
    b: &Value,
    outs: &[Tensor],
    f: &dyn Fn(i64, i64) -> i64,
) -> Result<()> {
    let [out] = outs else { return Err(one_output(outs)) };
    let read =
        |v: &Value| host::data::<i64>(&cpu_exec::cast(&spread(v, out.dtype(), out)?, DType::I64)?);
    let (a, b) = (read(a)?, read(b)?);
    let y = Tensor::allocate(Meta::contiguous(out.sizes(), DType::I64).on(out.device()))?;
    host::fill_with::<i64>(&y, |y| {
        y.iter_mut().zip(a.iter().zip(&b)).for_each(|(y, (a, b))| *y = f(*a, *b))
    })?;
    cpu_exec::copy(&y, out)
}

fn one_output(outs: &[Tensor]) -> Error {
    Error::value(format!("an elementwise function has one output, found {}", outs.len()))
}

/// The function that rounds to a float dtype.
pub(super) fn round_to(dtype: DType) -> fn(f64) -> f64 {
    match dtype {
        DType::F16 => |x| half::f16::from_f64(x).to_f64(),
        DType::BF16 => |x| half::bf16::from_f64(x).to_f64(),
        DType::F32 => |x| f64::from(x as f32),
        _ => |x| x,
    }
}
