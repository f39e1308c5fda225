//! Matrix products that are one call of the GEMM kernel: `mm`, `bmm`, `addmm`, `baddbmm`, `mv`,
//! `dot`, `addmv`. Composites of them are in `matmul`.

use crate::grad;
use crate::shape::views;
use maquette_ir::DType;
use maquette_ir::loops::named::{self, Addend, Product};
use maquette_ir::scalar_expr::BinaryOp;
use maquette_ops::operator::dims::{fresh, require_rank, require_same_dtype};
use maquette_ops::operator::loops::{BuildNest, NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides, wide};
use maquette_ops::operator::number::require_argument_fits;
use maquette_ops::operator::require_equal;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Result, Tensor, Value};
use smallvec::smallvec;

const fn gemm(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>, build: BuildNest) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Gemm,
        strides: Strides::RowMajor,
        metas,
        how: How::Loops(build),
    })
}

/// Two operands with their argument names.
pub(crate) type Pair<'a> = [(&'static str, &'a Tensor); 2];

/// The dtype and sizes of an operand, for errors.
fn describe(t: &Tensor) -> String {
    format!("{}{}", t.dtype(), dims_text(t.sizes()))
}

/// The error for two operands that cannot be multiplied.
pub(crate) fn mismatch([a, b]: Pair<'_>, why: &str) -> Error {
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
pub(crate) fn product_meta(pair: Pair<'_>, rank: usize) -> Result<Meta> {
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

/// The nest of a product of arguments `a` and `b` with this many batch dimensions.
fn product(cx: &mut NestCx<'_>, [a, b]: [usize; 2], batch: usize) -> Result<NestResults> {
    let (a, b, out) = (cx.input(a)?, cx.input(b)?, cx.result_dtype(0));
    let of = Product { a: &a, b: &b, batch, alpha: None, addend: None, out };
    Ok(smallvec![named::product(&mut cx.nest, &of)?])
}

/// The nest of `beta * self + alpha * product`, of arguments 0 to 4.
///
/// As in BLAS, a `beta` of 0 ignores `self`, and an `alpha` of 0 the product, NaN included. PyTorch
/// does the latter for matrices in `f32` and `f64`, not for batches or half precision.
fn add_product(cx: &mut NestCx<'_>, batch: usize) -> Result<NestResults> {
    let (a, b) = (cx.input(1)?, cx.input(2)?);
    let out = cx.result_dtype(0);
    let wide = wide(out).accumulator();
    let of = Product { a: &a, b: &b, batch, alpha: None, addend: None, out };
    let axes = of.axes();
    let no_products = cx.has_size(1, a.axes.len() - 1, 0)?;
    let is_scaled = cx.is_zero(4)? && batch == 0 && matches!(out, DType::F32 | DType::F64);
    let ignored = no_products || is_scaled;
    let alpha = if ignored { None } else { Some(cx.number(4, wide)?) };
    let added = if cx.is_zero(3)? { None } else { Some((cx.input(0)?, cx.number(3, wide)?)) };
    let addend = added.as_ref().map(|(of, beta)| Addend { beta: *beta, of });
    if !ignored {
        let of = Product { alpha, addend, ..of };
        return Ok(smallvec![named::product(&mut cx.nest, &of)?]);
    }
    // The sum of no products is +0.
    let addend = match addend {
        Some(addend) => Some((addend, cx.nest.broadcast_to(addend.of, &axes)?)),
        None => None,
    };
    let sum = cx.nest.map(&axes, |s| {
        let mut y = s.expr.constant(0, wide);
        if let Some((Addend { beta, of }, at)) = addend {
            let (beta, x) = (s.launch(beta)?, s.load(of.id, at)?);
            let x = s.expr.cast(x, wide)?;
            let scaled = s.expr.binary(BinaryOp::Mul, beta, x)?;
            y = s.expr.binary(BinaryOp::Add, y, scaled)?;
        }
        Ok(s.expr.cast(y, out)?)
    })?;
    Ok(smallvec![sum.into()])
}

/// The sizes of a product with a vector.
fn vector_product(pair: Pair<'_>) -> Result<Dims> {
    let [(a_name, a), (b_name, b)] = pair;
    require_rank(b_name, b, 1..=1)?;
    require_rank(a_name, a, 1..=2)?;
    if a.dtype() == DType::Bool {
        return Err(mismatch(pair, "matrix products do not support bool"));
    }
    if a.dtype() != b.dtype() {
        return Err(mismatch(pair, "their dtypes differ"));
    }
    let (k, l) = (a.sizes()[a.dim() - 1], b.sizes()[0]);
    require_equal(k, l, &|| mismatch(pair, &format!("{k} elements do not match {l}")))?;
    Ok(a.sizes()[..a.dim() - 1].into())
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
    let sizes = vector_product(pair)?;
    Ok(smallvec![fresh(pair[0].1, sizes, pair[0].1.dtype())])
}

table! {
    /// Matrix products.
    static TABLE = {
        "aten::mm(Tensor self, Tensor mat2) -> Tensor" => {
            role: General,
            lowering: gemm(
                |_, a| {
                    Ok(smallvec![product_meta(
                        [("self", a[0].tensor()?), ("mat2", a[1].tensor()?)],
                        2
                    )?])
                },
                |cx| product(cx, [0, 1], 0),
            ),
            vjp: grad::MM,
        },
        "aten::bmm(Tensor self, Tensor mat2) -> Tensor" => {
            role: General,
            lowering: gemm(
                |_, a| {
                    Ok(smallvec![product_meta(
                        [("self", a[0].tensor()?), ("mat2", a[1].tensor()?)],
                        3
                    )?])
                },
                |cx| product(cx, [0, 1], 1),
            ),
            vjp: grad::BMM,
        },
        "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: gemm(|_, a| added_meta(a, ["mat1", "mat2"], 2), |cx| add_product(cx, 0)),
            vjp: crate::grad::ADDMM,
        },
        "aten::addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::addmm"),
        },
        "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: gemm(|_, a| added_meta(a, ["batch1", "batch2"], 3), |cx| add_product(cx, 1)),
            vjp: crate::grad::BADDBMM,
        },
        "aten::baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::baddbmm"),
        },
        "aten::mv(Tensor self, Tensor vec) -> Tensor" => {
            role: General,
            lowering: gemm(|_, a| vector_meta(mv_pair(a)?), |cx| product(cx, [0, 1], 0)),
            vjp: crate::grad::MV,
        },
        "aten::dot(Tensor self, Tensor tensor) -> Tensor" => {
            role: General,
            lowering: gemm(|_, a| vector_meta(dot_pair(a)?), |cx| product(cx, [0, 1], 0)),
            vjp: crate::grad::DOT,
        },
        "aten::vdot(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: gemm(|_, a| vector_meta(dot_pair(a)?), |cx| product(cx, [0, 1], 0)),
            vjp: crate::grad::DOT,
        },
        "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: gemm(
                |_, a| {
                    let metas = vector_meta(addmv_pair(a)?)?;
                    require_same_dtype(("self", a[0].tensor()?), ("mat", a[1].tensor()?))?;
                    require_argument_fits("beta", &a[3], wide(metas[0].dtype))?;
                    require_argument_fits("alpha", &a[4], wide(metas[0].dtype))?;
                    views::expand(a[0].tensor()?.meta(), &metas[0].sizes)?;
                    Ok(metas)
                },
                |cx| add_product(cx, 0),
            ),
            vjp: crate::grad::ADDMV,
        },
        "aten::addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::addmv"),
        },
    }
}
