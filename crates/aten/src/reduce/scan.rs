//! Scans along one dimension: `cumsum`, `cumprod`, `cummax`, `cummin`.

use super::accumulated;
use maquette_ir::DType;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named;
use maquette_ops::operator::loops::{BuildNest, NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{table, wrap_dim};
use maquette_ops::{Meta, Result, Value};
use smallvec::smallvec;

const fn scanning(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    build: BuildNest,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Scan,
        strides: Strides::RowMajor,
        metas,
        how: How::Loops(build),
    })
}

/// The dimension of argument 0 that argument `i` names.
pub(crate) fn dim(args: &[Value], i: usize) -> Result<usize> {
    wrap_dim(args[i].int_i64()?, args[0].tensor()?.dim())
}

/// Row-major metadata with the sizes of argument 0. Checks the dimension that argument `i` names.
pub(crate) fn same_sizes(args: &[Value], i: usize, dtype: DType) -> Result<Meta> {
    dim(args, i)?;
    let x = args[0].tensor()?;
    Ok(Meta::contiguous(x.sizes(), dtype).on(x.device()))
}

fn scan_meta(args: &[Value]) -> Result<Metas> {
    Ok(smallvec![same_sizes(args, 1, accumulated(args[0].tensor()?, &args[2])?)?])
}

fn scan(cx: &mut NestCx<'_>, fold: Fold) -> Result<NestResults> {
    let x = cx.input(0)?;
    let (along, out) = (cx.axis(&x, 1)?, cx.result_dtype(0));
    Ok(smallvec![named::scan(&mut cx.nest, &x, along, fold, out)?])
}

fn extreme_meta(args: &[Value]) -> Result<Metas> {
    let values = same_sizes(args, 1, args[0].tensor()?.dtype())?;
    Ok(smallvec![values.clone(), values.with_dtype(DType::I64)])
}

fn extreme(cx: &mut NestCx<'_>, max: bool) -> Result<NestResults> {
    let x = cx.input(0)?;
    let along = cx.axis(&x, 1)?;
    Ok(named::cumulative_extreme(&mut cx.nest, &x, along, max)?.into())
}

table! {
    /// Cumulative sums, products and extrema.
    static TABLE = {
        "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: scanning(|_, a| scan_meta(a),
                |cx| scan(cx, Fold::Sum),
            ),
            vjp: crate::grad::CUMSUM,
        },
        "aten::cumsum_(Tensor(a!) self, int dim, *, \
            ScalarType? dtype=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::cumsum"),
        },
        "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: scanning(|_, a| scan_meta(a),
                |cx| scan(cx, Fold::Prod),
            ),
            vjp: crate::grad::CUMPROD,
        },
        "aten::cumprod_(Tensor(a!) self, int dim, *, \
            ScalarType? dtype=None) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::cumprod"),
        },
        "aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: scanning(|_, a| extreme_meta(a),
                |cx| extreme(cx, true),
            ),
            vjp: crate::grad::SORT,
        },
        "aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: scanning(|_, a| extreme_meta(a),
                |cx| extreme(cx, false),
            ),
            vjp: crate::grad::SORT,
        },
    }
}
