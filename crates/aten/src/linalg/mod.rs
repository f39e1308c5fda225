//! Linear algebra for f32 and f64. Dense algorithms run on one matrix at a time and compute in f64.
//! They are simple rather than fast.

mod chain;
mod dense;
pub(crate) mod derivative;
mod factor;
mod norms;
mod solve;

use crate::shape::views;
use dense::Matrix;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{broadcast, contiguous_strides};
use maquette_ops::operator::dims::{fresh, require, require_rank, require_same_dtype};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, host};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Result, Tensor, Value};

const fn dense(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Linalg,
        strides: Strides::RowMajor,
        metas,
        how: How::Host(run),
    })
}

/// Result `i` of a call.
pub(super) fn tensor(out: &[Value], i: usize) -> Result<&Tensor> {
    out.get(i).ok_or_else(|| Error::value(format!("there is no result {i}")))?.tensor()
}

/// Requires a tensor argument to have dtype f32 or f64.
fn require_wide(name: &str, t: &Tensor) -> Result<()> {
    match t.dtype() {
        DType::F32 | DType::F64 => Ok(()),
        found => Err(Error::value(format!(
            "linear algebra takes f32 and f64, found `{name}` {found}{}",
            dims_text(t.sizes())
        ))),
    }
}

/// The batch sizes, rows and columns of an argument that holds matrices of f32 or f64.
fn matrix<'a>(name: &str, t: &'a Tensor) -> Result<(&'a [SymInt], SymInt, SymInt)> {
    require_wide(name, t)?;
    shape(name, t)
}

/// As [`matrix`], for any dtype.
fn shape<'a>(name: &str, t: &'a Tensor) -> Result<(&'a [SymInt], SymInt, SymInt)> {
    require_rank(name, t, 2..=64)?;
    let (batch, last) = t.sizes().split_at(t.dim() - 2);
    Ok((batch, last[0], last[1]))
}

/// The batch sizes and the order of an argument that holds square matrices.
fn square<'a>(name: &str, t: &'a Tensor) -> Result<(&'a [SymInt], SymInt)> {
    let (batch, n, m) = matrix(name, t)?;
    require(n.eq(m), || {
        format!("argument `{name}` must hold square matrices, found sizes {}", dims_text(t.sizes()))
    })?;
    Ok((batch, n))
}

/// The batch to which two arguments of the same dtype broadcast.
fn common_batch(a: (&str, &Tensor), b: (&str, &Tensor)) -> Result<Dims> {
    require_same_dtype(a, b)?;
    Ok(broadcast(&[shape(a.0, a.1)?.0, shape(b.0, b.1)?.0])?)
}

fn sizes(batch: &[SymInt], rest: &[SymInt]) -> Dims {
    batch.iter().chain(rest).copied().collect()
}

/// The metadata of a fresh batch of column-major matrices, as LAPACK stores them.
fn columns(like: &Tensor, sizes: Dims) -> Meta {
    let mut strides: Dims = sizes.clone();
    if let [.., r, c] = strides.as_mut_slice() {
        std::mem::swap(r, c);
    }
    strides = contiguous_strides(&strides);
    if let [.., r, c] = strides.as_mut_slice() {
        std::mem::swap(r, c);
    }
    fresh(like, sizes, like.dtype()).with_strides(strides)
}

/// The matrices of an argument, expanded to a batch.
fn load(t: &Tensor, batch: &[SymInt]) -> Result<Vec<Matrix>> {
    let (_, r, c) = shape("self", t)?;
    let t = t.view_of(views::expand(t.meta(), &sizes(batch, &[r, c]))?)?;
    let [.., rows, cols] = *host::sizes(&t)? else {
        return Err(Error::value("argument `self` must have at least 2 dimensions"));
    };
    let data = host::reals(&t)?;
    let count = host::count(&host::sizes(&t)?[..batch.len()]);
    host::gather(
        count,
        DType::F64,
        (0..count)
            .map(|i| Matrix::new(rows, cols, data[i * rows * cols..][..rows * cols].to_vec())),
    )
}

/// The vectors along the last dimension of an argument.
fn load_rows(t: &Tensor) -> Result<Vec<Vec<f64>>> {
    let sizes = host::sizes(t)?;
    let data = host::reals(t)?;
    let width = sizes.last().copied().unwrap_or(1);
    let count = host::count(&sizes[..sizes.len().saturating_sub(1)]);
    host::gather(count, DType::F64, (0..count).map(|i| data[i * width..][..width].to_vec()))
}

fn store<'a>(out: &Tensor, matrices: impl IntoIterator<Item = &'a Matrix>) -> Result<()> {
    host::store_reals(
        out,
        &matrices.into_iter().flat_map(|m| m.data().iter().copied()).collect::<Vec<f64>>(),
    )
}
