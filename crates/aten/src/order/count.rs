//! Counts and positions: `bincount`, `nonzero_static`, `one_hot`.

use super::{Keys, dynamic_size, integers, store_integers};
use crate::shape::views;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Scalar};
use maquette_kernels as kernels;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::cpu_exec::{input, output};
use maquette_ops::operator::dims::{decide, done, fresh, require};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

fn bincount_operands(args: &[Value]) -> Result<(&Tensor, Option<&Tensor>, SymInt)> {
    let (x, weights, least) = (args[0].tensor()?, args[1].opt_tensor()?, args[2].int()?);
    if x.dim() != 1 || x.dtype().is_float() || x.dtype() == DType::Bool {
        return Err(Error::value(format!(
            "argument `self` must hold integers in 1 dimension, found {}{}",
            x.dtype(),
            dims_text(x.sizes())
        )));
    }
    if let Some(w) = weights {
        require_same(x.sizes(), w.sizes(), || "argument `weights` must have".into())?;
    }
    require(least.ge(0), || format!("`minlength` must not be negative, found {least}"))?;
    Ok((x, weights, least))
}

fn bincount_dtype(x: &Tensor, weights: Option<&Tensor>) -> Result<DType> {
    Ok(match weights.map(Tensor::dtype) {
        // As in PyTorch, an empty tensor gives integer counts.
        Some(_) if decide(x.numel().eq(0))? => DType::I64,
        Some(DType::F32) => DType::F32,
        Some(_) => DType::F64,
        None => DType::I64,
    })
}

fn fake_bincount(cx: &FakeCtx, a: &[Value]) -> Result<Outputs> {
    let (x, weights, least) = bincount_operands(a)?;
    let dtype = bincount_dtype(x, weights)?;
    let n = if x.numel().as_i64() == Some(0) {
        least
    } else {
        dynamic_size(cx, least.max(x.numel().min(1)), i64::MAX.into())?
    };
    Ok(smallvec![Value::Tensor(Tensor::fake_of(fresh(x, smallvec![n], dtype)))])
}

/// The number, or the total weight, of the occurrences of each integer.
fn bincount(args: &[Value]) -> Result<Outputs> {
    let (x, weights, _) = bincount_operands(args)?;
    let values = integers(x)?;
    if let Some(bad) = values.iter().find(|v| **v < 0) {
        return Err(Error::value(format!(
            "argument `self` must hold no negative integers, found {bad}"
        )));
    }
    let own = values.iter().max().map_or(Some(0), |n| n.checked_add(1));
    let n = own
        .ok_or_else(|| {
            Error::value("argument `self` holds an integer that is too large to count up to")
        })?
        .max(args[2].int_i64()?);
    let out = Tensor::allocate(fresh(x, smallvec![n.into()], bincount_dtype(x, weights)?))?;
    let weighted = values
        .iter()
        .map(|v| *v as usize)
        .zip(weights.map(host::reals).transpose()?.unwrap_or_default());
    // Counts go directly to the output, which may be large.
    match out.dtype() {
        DType::F32 => {
            host::fill_with::<f32>(&out, |o| weighted.for_each(|(i, w)| o[i] += w as f32))?
        }
        DType::F64 => host::fill_with::<f64>(&out, |o| weighted.for_each(|(i, w)| o[i] += w))?,
        _ => host::fill_with::<i64>(&out, |o| values.iter().for_each(|v| o[*v as usize] += 1))?,
    }
    Ok(smallvec![Value::Tensor(out)])
}

fn nonzero_static_meta(args: &[Value]) -> Result<Metas> {
    let (x, size) = (args[0].tensor()?, args[1].int()?);
    require(size.ge(0), || format!("`size` must not be negative, found {size}"))?;
    Ok(smallvec![fresh(x, smallvec![size, x.dim().into()], DType::I64)])
}

/// The positions of the first nonzero elements, padded with rows of `fill_value`.
fn nonzero_static(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let (rank, wanted) = (x.dim(), host::count(&host::sizes(out)?));
    let sizes = host::sizes(x)?;
    let set = Keys::of(x)?.all.into_iter().enumerate().filter(|(_, k)| *k != 0).map(|(i, _)| i);
    let mut rows = Vec::new();
    for flat in set.take(wanted / rank.max(1)) {
        let (start, mut rest) = (rows.len(), flat);
        for n in sizes.iter().rev() {
            rows.push((rest % n) as i64);
            rest /= n;
        }
        rows[start..].reverse();
    }
    rows.resize(wanted, args[2].int_i64()?);
    store_integers(out, &rows)
}

/// The number of classes of `one_hot`: as given, or from the data.
fn classes(x: &Tensor, num_classes: &Value) -> Result<Option<i64>> {
    if x.dtype() != DType::I64 {
        return Err(Error::value(format!(
            "argument `self` must have dtype i64, found {}{}",
            x.dtype(),
            dims_text(x.sizes())
        )));
    }
    match num_classes.int_i64()? {
        -1 => Ok(None),
        n if n >= 1 => Ok(Some(n)),
        n => Err(Error::value(format!(
            "`num_classes` must be positive, or -1 to infer it from the data; found {n}"
        ))),
    }
}

fn one_hot_meta(x: &Tensor, n: SymInt) -> Meta {
    fresh(x, x.sizes().iter().copied().chain([n]).collect(), DType::I64)
}

/// Each integer as a row of zeros with a one in its column.
fn one_hot(args: &[Value]) -> Result<Outputs> {
    let x = args[0].tensor()?;
    let values = integers(x)?;
    let n = match (classes(x, &args[1])?, values.iter().max()) {
        (Some(n), _) => n,
        (None, Some(&greatest)) => greatest.max(0).checked_add(1).ok_or_else(|| {
            Error::value("`self` holds the largest i64, so the number of classes overflows")
        })?,
        (None, None) => {
            return Err(Error::value("cannot infer `num_classes` from a tensor without elements"));
        }
    };
    if let Some(bad) = values.iter().find(|v| !(0..n).contains(*v)) {
        return Err(Error::value(format!(
            "argument `self` must hold classes from 0 to {}, found {bad}",
            n - 1
        )));
    }
    let out = Tensor::allocate(one_hot_meta(x, n.into()))?;
    if !values.is_empty() {
        let index = x.view_of(views::unsqueeze(x.meta(), -1)?)?;
        let one = kernels::Source::Value(Scalar::Int(1));
        kernels::scatter(
            &mut output(&out)?,
            x.dim(),
            &input(&index)?,
            &one,
            kernels::ScatterOp::Replace,
        )?;
    }
    Ok(smallvec![Value::Tensor(out)])
}

table! {
    /// Counts and positions.
    static TABLE = {
        "aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: false,
                fake: fake_bincount,
                run: bincount,
            },
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Gather,
                strides: Strides::RowMajor,
                metas: |_, a| nonzero_static_meta(a),
                how: How::Host(|a, out| nonzero_static(a, &out[0])),
            }),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::argwhere(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(a[0].tensor()?.nonzero())),
        },
        "aten::one_hot(Tensor self, int num_classes=-1) -> Tensor" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: false,
                fake: |cx, a| {
                    let x = a[0].tensor()?;
                    let n = match classes(x, &a[1])? {
                        Some(n) => n.into(),
                        None => cx.new_dynamic_size_in(1, i64::MAX)?,
                    };
                    Ok(smallvec![Value::Tensor(Tensor::fake_of(one_hot_meta(x, n)))])
                },
                run: one_hot,
            },
            vjp: Derivative::None("the result is no float"),
        },
    }
}
