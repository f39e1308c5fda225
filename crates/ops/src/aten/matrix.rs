//! Matrix products that are one call of the GEMM kernel: `mm`, `bmm`, `addmm`, `baddbmm`, `mv`,
//! `dot`, `addmv`. Composites of them are in `matmul`.

use super::dims::{fresh, require_rank, require_same_dtype};
use super::lowering::{Class, Compute, Lowering, Metas, Strides, wide};
use super::number::require_argument_fits;
use super::{table, views};
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::require_equal;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::{DType, Scalar};
use maquette_kernels::Epilogue;
use smallvec::smallvec;

const fn gemm(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Gemm, strides: Strides::RowMajor, metas, run })
}

/// Two operands with their argument names.
pub(super) type Pair<'a> = [(&'static str, &'a Tensor); 2];

/// The dtype and sizes of an operand, for errors.
fn describe(t: &Tensor) -> String {
    format!("{}{}", t.dtype(), dims_text(t.sizes()))
}

/// The error for two operands that cannot be multiplied.
pub(super) fn mismatch([a, b]: Pair<'_>, why: &str) -> Error {
    Error::value(format!(
        "cannot multiply arguments `{}` {} and `{}` {}: {why}",
        a.0,
        describe(a.1),
        b.0,
        describe(b.1)
    ))
}

/// The metadata of a product of matrices (`rank` 2) or of equal batches of matrices (`rank` 3).
#[track_caller]
pub(super) fn product_meta(pair: Pair<'_>, rank: usize) -> Result<Meta> {
    let [(a_name, a), (b_name, b)] = pair;
    require_rank(a_name, a, rank..=rank)?;
    require_rank(b_name, b, rank..=rank)?;
    if a.dtype() == DType::Bool {
        return Err(mismatch(pair, "matrix products do not support bool"));
    }
    if a.dtype() != b.dtype() {
        return Err(mismatch(pair, "their dtypes differ"));
    }
    let (x, y) = (a.sizes(), b.sizes());
    for d in 0..rank - 2 {
        require_equal(x[d], y[d], &|| {
            mismatch(pair, &format!("the batch sizes {} and {} differ", x[d], y[d]))
        })?;
    }
    let (k, l) = (x[rank - 1], y[rank - 2]);
    require_equal(k, l, &|| mismatch(pair, &format!("{k} columns do not match {l} rows")))?;
    let mut sizes: Dims = x[..rank - 1].into();
    sizes.push(y[rank - 1]);
    Ok(fresh(a, sizes, a.dtype()))
}

/// [`product_meta`] of arguments 1 and 2, after a check that argument 0 expands to it.
#[track_caller]
fn added_meta(args: &[Value], names: [&'static str; 2], rank: usize) -> Result<Metas> {
    let bias = args[0].tensor()?;
    let pair = [(names[0], args[1].tensor()?), (names[1], args[2].tensor()?)];
    let m = product_meta(pair, rank)?;
    require_same_dtype(("self", bias), pair[0])?;
    require_argument_fits("beta", &args[3], wide(m.dtype))?;
    require_argument_fits("alpha", &args[4], wide(m.dtype))?;
    views::expand(bias.meta(), &m.sizes).map_err(|_| {
        Error::value(format!(
            "argument `self` {} does not expand to the product's sizes {}",
            describe(bias),
            dims_text(&m.sizes)
        ))
    })?;
    Ok(smallvec![m])
}

/// `out = epilogue(a @ b)`, for matrices or batches.
fn multiply(a: &Tensor, b: &Tensor, out: &Tensor, epilogue: &Epilogue<'_>) -> Result<()> {
    let (a, b, mut out) = (cpu_exec::input(a)?, cpu_exec::input(b)?, cpu_exec::output(out)?);
    Ok(maquette_kernels::product(&a, &b, epilogue, &mut out)?)
}

/// The epilogue `beta * self + alpha * product` of the arguments 0, 3 and 4. As in BLAS, a `beta`
/// of 0 ignores `self`, NaN included.
fn scaled_addend(args: &[Value]) -> Result<Epilogue<'_>> {
    Ok(Epilogue {
        alpha: args[4].scalar()?,
        beta: args[3].scalar()?,
        addend: Some(cpu_exec::input(args[0].tensor()?)?),
        ..Epilogue::default()
    })
}

fn add_product(args: &[Value], out: &Tensor) -> Result<()> {
    multiply(args[1].tensor()?, args[2].tensor()?, out, &scaled_addend(args)?)
}

/// As [`add_product`], but an `alpha` of 0 ignores the product, NaN included. PyTorch does this for
/// matrices in `f32` and `f64`, not for batches or half precision.
fn add_matrix_product(args: &[Value], out: &Tensor) -> Result<()> {
    let epilogue = scaled_addend(args)?;
    let (a, b) = counted(args[1].tensor()?, args[2].tensor()?, epilogue.alpha)?;
    multiply(&a, &b, out, &epilogue)
}

/// The operands of a product that `alpha` scales. For an `alpha` of 0 the inner dimension is empty,
/// so that the kernel reads no element.
fn counted(a: &Tensor, b: &Tensor, alpha: Scalar) -> Result<(Tensor, Tensor)> {
    if alpha.to_bool() || !matches!(a.dtype(), DType::F32 | DType::F64) {
        return Ok((a.clone(), b.clone()));
    }
    let none = |t: &Tensor, dim| t.view_of(views::narrow(t.meta(), dim, 0.into(), 0.into())?);
    Ok((none(a, 1)?, none(b, 0)?))
}

/// A product with a vector as a product of matrices: the metadata of both operands as matrices, and
/// the sizes of the result.
fn vector_product(pair: Pair<'_>) -> Result<(Meta, Meta, Dims)> {
    let [(a_name, a), (b_name, b)] = pair;
    require_rank(b_name, b, 1..=1)?;
    require_rank(a_name, a, 1..=2)?;
    if a.dtype() != b.dtype() {
        return Err(mismatch(pair, "their dtypes differ"));
    }
    let rows = if a.dim() == 2 { a.meta().clone() } else { views::unsqueeze(a.meta(), 0)? };
    let (k, l) = (rows.sizes[1], b.sizes()[0]);
    require_equal(k, l, &|| mismatch(pair, &format!("{k} elements do not match {l}")))?;
    let sizes = a.sizes()[..a.dim() - 1].into();
    Ok((rows, views::unsqueeze(b.meta(), 1)?, sizes))
}

fn multiply_vector(pair: Pair<'_>, out: &Tensor, epilogue: &Epilogue<'_>) -> Result<()> {
    let (a, b, sizes) = vector_product(pair)?;
    let mut matrix = views::unsqueeze(out.meta(), -1)?;
    if sizes.is_empty() {
        matrix = views::unsqueeze(&matrix, 0)?;
    }
    multiply(&pair[0].1.view_of(a)?, &pair[1].1.view_of(b)?, &out.view_of(matrix)?, epilogue)
}

fn mv_pair(args: &[Value]) -> Result<Pair<'_>> {
    let a = args[0].tensor()?;
    require_rank("self", a, 2..=2)?;
    Ok([("self", a), ("vec", args[1].tensor()?)])
}

fn dot_pair(args: &[Value]) -> Result<Pair<'_>> {
    let a = args[0].tensor()?;
    require_rank("self", a, 1..=1)?;
    Ok([("self", a), ("tensor", args[1].tensor()?)])
}

fn addmv_pair(args: &[Value]) -> Result<Pair<'_>> {
    let a = args[1].tensor()?;
    require_rank("mat", a, 2..=2)?;
    Ok([("mat", a), ("vec", args[2].tensor()?)])
}

fn vector_meta(pair: Pair<'_>) -> Result<Metas> {
    let (.., sizes) = vector_product(pair)?;
    Ok(smallvec![fresh(pair[0].1, sizes, pair[0].1.dtype())])
}

table! {
    /// Matrix products.
    pub(super) static TABLE = {
        General "aten::mm(Tensor self, Tensor mat2) -> Tensor" =>
            gemm(
                |_, a| {
                    Ok(smallvec![product_meta(
                        [("self", a[0].tensor()?), ("mat2", a[1].tensor()?)],
                        2
                    )?])
                },
                |a, out| multiply(a[0].tensor()?, a[1].tensor()?, &out[0], &Epilogue::default()),
            ),
        General "aten::bmm(Tensor self, Tensor mat2) -> Tensor" =>
            gemm(
                |_, a| {
                    Ok(smallvec![product_meta(
                        [("self", a[0].tensor()?), ("mat2", a[1].tensor()?)],
                        3
                    )?])
                },
                |a, out| multiply(a[0].tensor()?, a[1].tensor()?, &out[0], &Epilogue::default()),
            ),
        General "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" =>
            gemm(
                |_, a| added_meta(a, ["mat1", "mat2"], 2),
                |a, out| add_matrix_product(a, &out[0]),
            ),
        General "aten::addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" =>
            Lowering::InPlace("aten::addmm"),
        General "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" =>
            gemm(|_, a| added_meta(a, ["batch1", "batch2"], 3), |a, out| add_product(a, &out[0])),
        General "aten::baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" =>
            Lowering::InPlace("aten::baddbmm"),
        General "aten::mv(Tensor self, Tensor vec) -> Tensor" =>
            gemm(
                |_, a| vector_meta(mv_pair(a)?),
                |a, out| multiply_vector(mv_pair(a)?, &out[0], &Epilogue::default()),
            ),
        General "aten::dot(Tensor self, Tensor tensor) -> Tensor" =>
            gemm(
                |_, a| vector_meta(dot_pair(a)?),
                |a, out| multiply_vector(dot_pair(a)?, &out[0], &Epilogue::default()),
            ),
        General "aten::vdot(Tensor self, Tensor other) -> Tensor" =>
            gemm(
                |_, a| vector_meta(dot_pair(a)?),
                |a, out| multiply_vector(dot_pair(a)?, &out[0], &Epilogue::default()),
            ),
        General "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" =>
            gemm(
                |_, a| {
                    let metas = vector_meta(addmv_pair(a)?)?;
                    require_same_dtype(("self", a[0].tensor()?), ("mat", a[1].tensor()?))?;
                    require_argument_fits("beta", &a[3], wide(metas[0].dtype))?;
                    require_argument_fits("alpha", &a[4], wide(metas[0].dtype))?;
                    views::expand(a[0].tensor()?.meta(), &metas[0].sizes)?;
                    Ok(metas)
                },
                |a, out| {
                    let mut epilogue = scaled_addend(a)?;
                    // The result is a matrix of one column, and so is the addend.
                    let addend = a[0].tensor()?;
                    let addend = addend.view_of(views::unsqueeze(addend.meta(), -1)?)?;
                    epilogue.addend = Some(cpu_exec::input(&addend)?);
                    let [(of, x), (by, y)] = addmv_pair(a)?;
                    let (x, y) = counted(x, y, epilogue.alpha)?;
                    multiply_vector([(of, &x), (by, &y)], &out[0], &epilogue)
                },
            ),
        General "aten::addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" =>
            Lowering::InPlace("aten::addmv"),
    }
}
