//! Composites of matrix products: `matmul`, `linear`, `addbmm`, `outer`, `addr`.

use super::matrix::{Pair, mismatch, product_meta};
use maquette_ir::scalar_expr::cast_scalar;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{Operand, OperandKind, broadcast, promote};
use maquette_ir::{DType, MemoryFormat, Scalar};
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::dims::{done, known_equal, product, require_rank, require_same_dtype};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::number::require_argument_fits;
use maquette_ops::operator::reshape::is_known_contiguous;
use maquette_ops::operator::{require_equal, table};
use maquette_ops::{Dims, Error, IntoDims, Result, Tensor, Value};

/// The operand with other sizes. With symbolic sizes it is copied unless it is contiguous: a guard
/// on whether a view exists would be unnecessary, because no result aliases the operand.
#[track_caller]
pub(crate) fn folded(t: &Tensor, sizes: impl IntoDims) -> Tensor {
    match t.meta().concrete() {
        Some(_) => t.reshape(sizes),
        None if is_known_contiguous(t.meta()) => t.view(sizes),
        None => t.clone_as(MemoryFormat::Contiguous).view(sizes),
    }
}

/// `matmul`: vectors, matrices, and batches that broadcast. A batch times one matrix is one large
/// product.
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
        // One matrix for the whole batch: the batch is folded into the rows.
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

/// The product of batches, which broadcast to one batch dimension for `bmm`.
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
        // One matrix is repeated without a copy, for any sizes of the batch.
        if t.dim() == 2 {
            return t.expand([count, rows[0], rows[1]]);
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

/// `x @ wᵀ + bias`. The leading dimensions of `x` are folded into rows, so that one `addmm` adds
/// the bias.
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

/// `beta * self + alpha * sum over the batch of batch1 @ batch2`. The batch is folded into the
/// inner dimension, so the sum is one product.
fn addbmm(args: &[Value]) -> Result<Tensor> {
    let (x, y) = (args[1].tensor()?, args[2].tensor()?);
    let m = product_meta([("batch1", x), ("batch2", y)], 3)?;
    let (rows, cols) = (m.sizes[1], m.sizes[2]);
    let inner = x.sizes()[0] * x.sizes()[2];
    let side = x.permute([1i64, 0, 2]).reshape([rows, inner]);
    Ok(args[0].tensor()?.addmm_scaled(
        &side,
        &y.reshape([inner, cols]),
        args[3].scalar()?,
        args[4].scalar()?,
    ))
}

fn outer(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    require_rank("self", a, 1..=1)?;
    require_rank("vec2", b, 1..=1)?;
    Ok(a.unsqueeze(1) * b)
}

/// A factor of `addr` as a number of the common dtype.
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

/// `beta * self + alpha * outer(vec1, vec2)` in the common dtype. A `beta` of 0 ignores `self`.
fn addr(args: &[Value]) -> Result<Tensor> {
    let (x, u, v) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    require_rank("vec1", u, 1..=1)?;
    require_rank("vec2", v, 1..=1)?;
    // `self` promotes as the matrix that it is expanded to, also if it is 0-d.
    let dtype = promote([x, u, v].map(|t| Operand { dtype: t.dtype(), kind: OperandKind::Tensor }));
    let (beta, alpha) = (factor("beta", &args[3], dtype)?, factor("alpha", &args[4], dtype)?);
    let common = |t: &Tensor| if t.dtype() == dtype { t.clone() } else { t.to_dtype(dtype) };
    let scaled = |t: &Tensor, by: Scalar| if by.to_f64() == 1.0 { t.clone() } else { t * by };
    let whole = common(x).expand([u.sizes()[0], v.sizes()[0]]);
    whole.ok()?;
    let product = outer(&scaled(&common(u), alpha), &common(v))?;
    Ok(if beta.to_f64() == 0.0 { product } else { scaled(&whole, beta) + product })
}

table! {
    /// Composites of matrix products.
    static TABLE = {
        "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(addbmm(a)?)),
        },
        "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(addr(a)?)),
        },
        "aten::outer(Tensor self, Tensor vec2) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(outer(a[0].tensor()?, a[1].tensor()?)?)),
        },
        "aten::matmul(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(matmul(a[0].tensor()?, a[1].tensor()?)?)),
        },
        "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(linear(a[0].tensor()?, a[1].tensor()?, a[2].opt_tensor()?)?)
            }),
        },
    }
}
