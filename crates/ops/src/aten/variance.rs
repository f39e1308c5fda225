//! Variances and standard deviations: `var`, `std`, `var_mean`, `std_mean`. The divisor is `n -
//! correction`; the older overloads with `unbiased` have a correction of 0 or 1.

use super::lowering::{How, Lowering, Metas};
use super::reduce::{averaged, every, fold, listed, reduced, reduction, t};
use super::table;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::{DType, Scalar};
use maquette_kernels::ReduceOp;
use smallvec::{SmallVec, smallvec};

/// The operand, dimensions and correction of a call. `dims` is the index of the argument `dim`,
/// which `correction` follows.
fn variance_args(args: &[Value], dims: usize) -> Result<(&Tensor, SmallVec<[usize; 6]>, f64)> {
    let x = args[0].tensor()?;
    if !x.dtype().is_float() {
        return Err(Error::value(format!(
            "the standard deviation and variance take floats, found {}",
            x.dtype()
        )));
    }
    let correction = args[dims + 1].opt(Value::scalar)?.map_or(1.0, Scalar::to_f64);
    Ok((x, listed(x, &args[dims])?, correction))
}

/// The metadata of the `count` outputs of `self, dim, *, correction, keepdim`.
fn variance_meta(args: &[Value], count: usize) -> Result<Metas> {
    let (x, dims, _) = variance_args(args, 1)?;
    Ok(SmallVec::from_elem(reduced(x, &dims, args[3].bool()?, x.dtype()), count))
}

/// Computes the variance, or its root, and the mean if there is a second output. As in PyTorch, a
/// divisor that is not positive gives NaN or infinity.
fn run_variance(args: &[Value], outs: &[Tensor], root: bool) -> Result<()> {
    let (x, dims, correction) = variance_args(args, 1)?;
    fold(
        if root { ReduceOp::Std { correction } } else { ReduceOp::Var { correction } },
        x,
        &dims,
        &outs[0],
    )?;
    let Some(out) = outs.get(1) else { return Ok(()) };
    // The variance is accumulated in `f64`, so the mean is too.
    let mean = Tensor::allocate(Meta { dtype: DType::F64, ..out.meta().clone() })?;
    fold(ReduceOp::Mean, x, &dims, &mean)?;
    cpu_exec::copy(&mean, out)
}

fn legacy_variance(args: &[Value], unbiased: usize) -> Result<ReduceOp> {
    Ok(ReduceOp::Var { correction: f64::from(u8::from(args[unbiased].bool()?)) })
}

/// Calls the overload with `correction`: `unbiased` is a correction of 1.
fn by_correction(
    op: &str,
    x: &Value,
    dims: Option<&Value>,
    unbiased: &Value,
    keepdim: bool,
) -> Result<Outputs> {
    let correction = i64::from(unbiased.bool()?);
    crate::call(
        op,
        crate::args![x.clone(), dims.cloned().unwrap_or(Value::None), correction, keepdim],
    )
}

table! {
    /// Variances and standard deviations.
    pub(super) static TABLE = {
        General "aten::var(Tensor self, bool unbiased=True) -> Tensor" =>
            reduction(
                |_, a| {
                    Ok(smallvec![reduced(
                        t(a)?,
                        &every(t(a)?),
                        false,
                        averaged(t(a)?, &Value::None, "the variance")?
                    )])
                },
                How::Host(|a, o| fold(legacy_variance(a, 1)?, t(a)?, &every(t(a)?), &o[0])),
            ),
        General "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> Tensor" =>
            reduction(
                |_, a| {
                    Ok(smallvec![reduced(
                        t(a)?,
                        &listed(t(a)?, &a[1])?,
                        a[3].bool()?,
                        averaged(t(a)?, &Value::None, "the variance")?
                    )])
                },
                How::Host(|a, o| fold(legacy_variance(a, 2)?, t(a)?, &listed(t(a)?, &a[1])?, &o[0])),
            ),
        General "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, \
            bool keepdim=False) -> Tensor" =>
            reduction(|_, a| variance_meta(a, 1), How::Host(|a, o| run_variance(a, o, false))),
        General "aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, \
            bool keepdim=False) -> Tensor" =>
            reduction(|_, a| variance_meta(a, 1), How::Host(|a, o| run_variance(a, o, true))),
        General "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, \
            Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)" =>
            reduction(|_, a| variance_meta(a, 2), How::Host(|a, o| run_variance(a, o, false))),
        General "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, \
            Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)" =>
            reduction(|_, a| variance_meta(a, 2), How::Host(|a, o| run_variance(a, o, true))),
        General "aten::std(Tensor self, bool unbiased=True) -> Tensor" =>
            Lowering::Composite(|a| {
                by_correction("aten::std.correction", &a[0], None, &a[1], false)
            }),
        General "aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> Tensor" =>
            Lowering::Composite(|a| {
                by_correction("aten::std.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        General "aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::std_mean.correction", &a[0], None, &a[1], false)
            }),
        General "aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::std_mean.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        General "aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::var_mean.correction", &a[0], None, &a[1], false)
            }),
        General "aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::var_mean.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
    }
}
