//! Matrix products, and the composites that are made of them.

use super::dims::{done, fresh, known_equal, product, require_rank, require_same_dtype};
use super::lowering::{Class, Compute, Lowering, Metas, Strides, wide};
use super::number::require_argument_fits;
use super::{table, views};
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::tensor::meta::{Dims, IntoDims, Meta};
use crate::tensor::shape::require_equal;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::scalar_expr::cast_scalar;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{Operand, OperandKind, broadcast, promote};
use maquette_ir::{DType, MemoryFormat, Scalar};
use smallvec::smallvec;

const fn gemm(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Gemm, strides: Strides::RowMajor, metas, run })
}

/// Two operands by name.
type Pair<'a> = [(&'static str, &'a Tensor); 2];

fn describe(t: &Tensor) -> String {
    format!("{}{}", t.dtype(), dims_text(t.sizes()))
}

fn mismatch([a, b]: Pair<'_>, why: &str) -> Error {
    Error::value(format!(
        "cannot multiply arguments `{}` {} and `{}` {}: {why}",
        a.0,
        describe(a.1),
        b.0,
        describe(b.1)
    ))
}

/// The sizes of a product of matrices or equal batches of them, in the last two dimensions of
/// operands of `rank`.
#[track_caller]
fn product_meta(pair: Pair<'_>, rank: usize) -> Result<Meta> {
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

/// [`product_meta`] of arguments 1 and 2, plus argument 0, which expands to it.
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

/// `out = beta out + alpha a b`, of matrices or batches.
fn multiply(
    a: &Tensor,
    b: &Tensor,
    out: &Tensor,
    alpha: impl Into<Scalar>,
    beta: impl Into<Scalar>,
) -> Result<()> {
    let (a, b, mut out) = (cpu_exec::input(a)?, cpu_exec::input(b)?, cpu_exec::output(out)?);
    Ok(maquette_kernels::batched_gemm(&a, &b, &mut out, alpha, beta)?)
}

/// `beta` and `alpha`, of which `out` then holds what the first scales.
fn scales(args: &[Value], out: &Tensor) -> Result<(Scalar, Scalar)> {
    let (beta, alpha) = (args[3].scalar()?, args[4].scalar()?);
    // a factor of 0 ignores what it multiplies, NaN included
    if beta.to_bool() {
        cpu_exec::copy(args[0].tensor()?, out)?;
    }
    Ok((beta, alpha))
}

fn add_product(args: &[Value], out: &Tensor) -> Result<()> {
    let (beta, alpha) = scales(args, out)?;
    multiply(args[1].tensor()?, args[2].tensor()?, out, alpha, beta)
}

/// As [`add_product`], where a factor of 0 ignores the product, NaN included. PyTorch does so for
/// matrices, not for batches nor in half precision.
fn add_matrix_product(args: &[Value], out: &Tensor) -> Result<()> {
    let (beta, alpha) = scales(args, out)?;
    let (a, b) = counted(args[1].tensor()?, args[2].tensor()?, alpha)?;
    multiply(&a, &b, out, alpha, beta)
}

/// Operands of a product that `alpha` scales: without their inner dimension where nothing of it
/// counts.
fn counted(a: &Tensor, b: &Tensor, alpha: Scalar) -> Result<(Tensor, Tensor)> {
    if alpha.to_bool() || !matches!(a.dtype(), DType::F32 | DType::F64) {
        return Ok((a.clone(), b.clone()));
    }
    let none = |t: &Tensor, dim| t.view_of(views::narrow(t.meta(), dim, 0.into(), 0.into())?);
    Ok((none(a, 1)?, none(b, 0)?))
}

/// The product of a matrix and a vector, or of two vectors, as one of matrices.
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

fn multiply_vector(
    pair: Pair<'_>,
    out: &Tensor,
    alpha: impl Into<Scalar>,
    beta: impl Into<Scalar>,
) -> Result<()> {
    let (a, b, sizes) = vector_product(pair)?;
    let mut matrix = views::unsqueeze(out.meta(), -1)?;
    if sizes.is_empty() {
        matrix = views::unsqueeze(&matrix, 0)?;
    }
    multiply(&pair[0].1.view_of(a)?, &pair[1].1.view_of(b)?, &out.view_of(matrix)?, alpha, beta)
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

/// An operand under other sizes. Whether that is a view or a copy shows in no result, so symbolic
/// sizes need not decide it.
#[track_caller]
pub(super) fn folded(t: &Tensor, sizes: impl IntoDims) -> Tensor {
    match t.meta().concrete() {
        Some(_) => t.reshape(sizes),
        None => t.clone_as(MemoryFormat::Contiguous).view(sizes),
    }
}

/// PyTorch's `matmul`: vectors, matrices, and batches that broadcast.
#[track_caller]
fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let pair = [("self", a), ("other", b)];
    if a.dtype() != b.dtype() {
        return Err(mismatch(pair, "their dtypes differ"));
    }
    Ok(match (a.dim(), b.dim()) {
        (0, _) | (_, 0) => return Err(mismatch(pair, "use `*` for 0-d tensors")),
        (1, 1) => a.dot(b),
        (2, 1) => a.mv(b),
        (1, 2) => a.unsqueeze(0).mm(b).squeeze_dim(0),
        (2, 2) => a.mm(b),
        // one matrix for the whole batch: one large product
        (n, 1 | 2) if n > 2 => {
            let (k, rows) = (a.sizes()[n - 1], b.sizes()[0]);
            require_equal(k, rows, &|| {
                mismatch(pair, &format!("{k} columns do not match {rows} rows"))
            })?;
            let mut sizes: Dims = a.sizes()[..n - 1].into();
            let flat = folded(a, [product(&sizes), k]);
            if b.dim() == 1 {
                flat.mv(b).view(sizes)
            } else {
                sizes.push(b.sizes()[1]);
                flat.mm(b).view(sizes)
            }
        }
        _ => {
            let a2 = if a.dim() == 1 { a.unsqueeze(0) } else { a.clone() };
            let b2 = if b.dim() == 1 { b.unsqueeze(1) } else { b.clone() };
            let out = batched(&a2, &b2, pair)?;
            if a.dim() == 1 {
                out.squeeze_dim(-2)
            } else if b.dim() == 1 {
                out.squeeze_dim(-1)
            } else {
                out
            }
        }
    })
}

#[track_caller]
fn batched(a: &Tensor, b: &Tensor, pair: Pair<'_>) -> Result<Tensor> {
    let (n, m) = (a.dim(), b.dim());
    let (x, y) = (&a.sizes()[n - 2..], &b.sizes()[m - 2..]);
    require_equal(x[1], y[0], &|| {
        mismatch(pair, &format!("{} columns do not match {} rows", x[1], y[0]))
    })?;
    let batch = broadcast(&[&a.sizes()[..n - 2], &b.sizes()[..m - 2]])
        .map_err(|_| mismatch(pair, "their batch dimensions do not broadcast"))?;
    let count = product(&batch);
    let flat = |t: &Tensor, rows: &[SymInt]| {
        if t.dim() == 3 && known_equal(t.sizes()[0], count) {
            return t.clone();
        }
        let mut sizes: Dims = batch.clone();
        sizes.extend_from_slice(rows);
        folded(&t.expand(sizes), [count, rows[0], rows[1]])
    };
    let out = flat(a, x).bmm(&flat(b, y));
    if batch.len() == 1 {
        return Ok(out);
    }
    let mut sizes = batch.clone();
    sizes.extend([x[0], y[1]]);
    Ok(out.view(sizes))
}

#[track_caller]
fn linear(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    require_rank("weight", w, 1..=2)?;
    require_rank("input", x, 1..=64)?;
    let pair = [("input", x), ("weight", w)];
    if x.dtype() != w.dtype() {
        return Err(mismatch(pair, "their dtypes differ"));
    }
    let (k, l) = (x.sizes()[x.dim() - 1], w.sizes()[w.dim() - 1]);
    require_equal(k, l, &|| {
        mismatch(
            pair,
            &format!("the last dimension of `input` is {k}, but that of `weight` is {l}"),
        )
    })?;
    if w.dim() == 1 {
        let out = matmul(x, w)?;
        return Ok(bias.map_or(out.clone(), |b| out + b));
    }
    let t = w.t();
    let Some(bias) = bias else { return matmul(x, &t) };
    require_same_dtype(("bias", bias), pair[0])?;
    if bias.dim() > 1 {
        return Ok(matmul(x, &t)? + bias);
    }
    if x.dim() == 2 {
        return Ok(bias.addmm(x, &t));
    }
    let mut sizes: Dims = x.sizes()[..x.dim() - 1].into();
    let flat = folded(x, [product(&sizes), k]);
    sizes.push(w.sizes()[0]);
    Ok(bias.addmm(&flat, &t).view(sizes))
}

/// The sum over the batch of [`Tensor::bmm`], scaled, plus `self`: one product of the batch laid
/// side by side.
fn addbmm(a: &[Value]) -> Result<Tensor> {
    let (x, y) = (a[1].tensor()?, a[2].tensor()?);
    let m = product_meta([("batch1", x), ("batch2", y)], 3)?;
    let (rows, cols) = (m.sizes[1], m.sizes[2]);
    let inner = x.sizes()[0] * x.sizes()[2];
    let side = x.permute([1i64, 0, 2]).reshape([rows, inner]);
    Ok(a[0].tensor()?.addmm_scaled(
        &side,
        &y.reshape([inner, cols]),
        a[3].scalar()?,
        a[4].scalar()?,
    ))
}

fn outer(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    require_rank("self", a, 1..=1)?;
    require_rank("vec2", b, 1..=1)?;
    Ok(a.unsqueeze(1) * b)
}

/// A factor of a sum in the common dtype of its terms.
#[track_caller]
fn factor(name: &str, v: &Value, dtype: DType) -> Result<Scalar> {
    let x = v.scalar()?;
    let expected = match x {
        Scalar::Float(_) if !dtype.is_float() => "an integer",
        Scalar::Bool(_) if dtype != DType::Bool => "a number",
        _ => {
            require_argument_fits(name, v, dtype)?;
            return Ok(cast_scalar(x, dtype));
        }
    };
    Err(Error::value(format!(
        "argument `{name}` must be {expected} where the common dtype is {dtype}, found {x}"
    )))
}

/// `beta self + alpha vec1 vec2ᵀ`, all in the common dtype; `beta` 0 ignores `self`.
fn addr(a: &[Value]) -> Result<Tensor> {
    let (x, u, v) = (a[0].tensor()?, a[1].tensor()?, a[2].tensor()?);
    require_rank("vec1", u, 1..=1)?;
    require_rank("vec2", v, 1..=1)?;
    // `self` counts as the matrix that it is expanded to
    let dtype = promote([x, u, v].map(|t| Operand { dtype: t.dtype(), kind: OperandKind::Tensor }));
    let (beta, alpha) = (factor("beta", &a[3], dtype)?, factor("alpha", &a[4], dtype)?);
    let common = |t: &Tensor| if t.dtype() == dtype { t.clone() } else { t.to_dtype(dtype) };
    let scaled = |t: &Tensor, by: Scalar| if by.to_f64() == 1.0 { t.clone() } else { t * by };
    let whole = common(x).expand([u.sizes()[0], v.sizes()[0]]);
    whole.ok()?;
    let product = outer(&scaled(&common(u), alpha), &common(v))?;
    Ok(if beta.to_f64() == 0.0 { product } else { scaled(&whole, beta) + product })
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        General "aten::mm(Tensor self, Tensor mat2) -> Tensor" =>
            gemm(
                |_, a| {
                    Ok(smallvec![product_meta(
                        [("self", a[0].tensor()?), ("mat2", a[1].tensor()?)],
                        2
                    )?])
                },
                |a, out| multiply(a[0].tensor()?, a[1].tensor()?, &out[0], 1.0, 0.0),
            ),
        General "aten::bmm(Tensor self, Tensor mat2) -> Tensor" =>
            gemm(
                |_, a| {
                    Ok(smallvec![product_meta(
                        [("self", a[0].tensor()?), ("mat2", a[1].tensor()?)],
                        3
                    )?])
                },
                |a, out| multiply(a[0].tensor()?, a[1].tensor()?, &out[0], 1.0, 0.0),
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
        General "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" =>
            Lowering::Composite(|a| done(addbmm(a)?)),
        General "aten::mv(Tensor self, Tensor vec) -> Tensor" =>
            gemm(
                |_, a| vector_meta(mv_pair(a)?),
                |a, out| multiply_vector(mv_pair(a)?, &out[0], 1.0, 0.0),
            ),
        General "aten::dot(Tensor self, Tensor tensor) -> Tensor" =>
            gemm(
                |_, a| vector_meta(dot_pair(a)?),
                |a, out| multiply_vector(dot_pair(a)?, &out[0], 1.0, 0.0),
            ),
        General "aten::vdot(Tensor self, Tensor other) -> Tensor" =>
            gemm(
                |_, a| vector_meta(dot_pair(a)?),
                |a, out| multiply_vector(dot_pair(a)?, &out[0], 1.0, 0.0),
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
                    let (beta, alpha) = scales(a, &out[0])?;
                    let [(of, x), (by, y)] = addmv_pair(a)?;
                    let (x, y) = counted(x, y, alpha)?;
                    multiply_vector([(of, &x), (by, &y)], &out[0], alpha, beta)
                },
            ),
        General "aten::addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" =>
            Lowering::InPlace("aten::addmv"),
        General "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" =>
            Lowering::Composite(|a| done(addr(a)?)),
        General "aten::outer(Tensor self, Tensor vec2) -> Tensor" =>
            Lowering::Composite(|a| done(outer(a[0].tensor()?, a[1].tensor()?)?)),
        General "aten::matmul(Tensor self, Tensor other) -> Tensor" =>
            Lowering::Composite(|a| done(matmul(a[0].tensor()?, a[1].tensor()?)?)),
        General "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor" =>
            Lowering::Composite(|a| {
                done(linear(a[0].tensor()?, a[1].tensor()?, a[2].opt_tensor()?)?)
            }),
    }
}
