//! Scans along one dimension: `cumsum`, `cumprod`, `cummax`, `cummin`.

use super::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use super::reduce::accumulated;
use super::table;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use crate::tensor::shape::wrap_dim;
use maquette_ir::DType;
use maquette_kernels::ScanOp;
use smallvec::smallvec;

const fn scanning(
    metas: fn(&crate::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Scan,
        strides: Strides::RowMajor,
        metas,
        how: How::Host(run),
    })
}

/// The dimension of argument 0 that argument `i` names.
pub(super) fn dim(args: &[Value], i: usize) -> Result<usize> {
    wrap_dim(args[i].int_i64()?, args[0].tensor()?.dim())
}

/// Row-major metadata with the sizes of argument 0. Checks the dimension that argument `i` names.
pub(super) fn same_sizes(args: &[Value], i: usize, dtype: DType) -> Result<Meta> {
    dim(args, i)?;
    let x = args[0].tensor()?;
    Ok(Meta::contiguous(x.sizes(), dtype).on(x.device()))
}

fn scan_meta(args: &[Value]) -> Result<Metas> {
    Ok(smallvec![same_sizes(args, 1, accumulated(args[0].tensor()?, &args[2])?)?])
}

fn scan(args: &[Value], outs: &[Tensor], op: ScanOp) -> Result<()> {
    let x = cpu_exec::cast(args[0].tensor()?, outs[0].dtype())?;
    Ok(maquette_kernels::scan(
        op,
        &cpu_exec::input(&x)?,
        dim(args, 1)?,
        &mut cpu_exec::output(&outs[0])?,
    )?)
}

fn extreme_meta(args: &[Value]) -> Result<Metas> {
    let values = same_sizes(args, 1, args[0].tensor()?.dtype())?;
    Ok(smallvec![values.clone(), Meta { dtype: DType::I64, ..values }])
}

fn extreme(args: &[Value], outs: &[Tensor], max: bool) -> Result<()> {
    let (values, indices) = (&mut cpu_exec::output(&outs[0])?, &mut cpu_exec::output(&outs[1])?);
    Ok(maquette_kernels::cumulative_extreme(
        max,
        &cpu_exec::input(args[0].tensor()?)?,
        dim(args, 1)?,
        values,
        indices,
    )?)
}

table! {
    /// Cumulative sums, products and extrema.
    pub(super) static TABLE = {
        General "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor" =>
            scanning(|_, a| scan_meta(a),
                |a, o| scan(a, o, ScanOp::Sum),
            ),
        General "aten::cumsum_(Tensor(a!) self, int dim, *, \
            ScalarType? dtype=None) -> Tensor(a!)" =>
            Lowering::InPlace("aten::cumsum"),
        General "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor" =>
            scanning(|_, a| scan_meta(a),
                |a, o| scan(a, o, ScanOp::Prod),
            ),
        General "aten::cumprod_(Tensor(a!) self, int dim, *, \
            ScalarType? dtype=None) -> Tensor(a!)" =>
            Lowering::InPlace("aten::cumprod"),
        General "aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)" =>
            scanning(|_, a| extreme_meta(a),
                |a, o| extreme(a, o, true),
            ),
        General "aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)" =>
            scanning(|_, a| extreme_meta(a),
                |a, o| extreme(a, o, false),
            ),
    }
}
