//! Slices along one dimension, selected by an index vector: `index_select`, `index_add`,
//! `index_copy`, `index_reduce`, `index_fill`. The updates are scatters whose index is expanded
//! over each slice.

use super::scatter::{Combine, SET, Scatter, ScatterSource, along, at_least_1d, gather, scatter};
use crate::shape::views;
use maquette_ir::DType;
use maquette_ir::loops::{Affine, IndexMap, named};
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder};
use maquette_ir::sym::{Expr, SymInt};
use maquette_kernels::{self as kernels, ScatterOp};
use maquette_ops::operator::cpu_exec::{self, input, output};
use maquette_ops::operator::dims::{
    fresh, fresh_like, require_index, require_rank, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{How, Lowering, Metas};
use maquette_ops::operator::number::require_argument_fits;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::operator::{require_equal, wrap_dim};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

/// Checks `index` and `source` of an update, and returns the metadata of `self`. The source has the
/// sizes of `self`, with the length of the index in dimension `dim`.
#[track_caller]
fn slices_meta(args: &[Value]) -> Result<Metas> {
    let (x, dim, index) = (args[0].tensor()?, args[1].int_i64()?, args[2].tensor()?);
    let d = wrap_dim(dim, x.dim())?;
    require_index("index", index)?;
    require_rank("index", index, 0..=1)?;
    let source = args.get(3).and_then(|v| v.tensors().next());
    if source.is_some_and(|s| s.dim() == 0) {
        require_equal(index.numel(), 1.into(), &|| {
            Error::value(format!(
                "argument `source` without dimensions is one slice, but argument `index` has {} \
                    elements",
                index.numel()
            ))
        })?;
    }
    if let Some(source) = source.filter(|s| s.dim() > 0 || x.dim() == 0) {
        require_same_dtype(("self", x), ("source", source))?;
        let mismatch = || {
            let (found, of) = (dims_text(source.sizes()), dims_text(x.sizes()));
            Error::value(format!(
                "argument `source` must have the sizes {of} of `self`, but {} in dimension {dim}, \
                    found sizes {found}",
                index.numel()
            ))
        };
        if source.dim() != x.dim() {
            return Err(mismatch());
        }
        for k in 0..x.dim() {
            let expected = if k == d { index.numel() } else { x.sizes()[k] };
            require_equal(expected, source.sizes()[k], &mismatch)?;
        }
    }
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
}

/// A scatter in which each index applies to a whole slice: the index is expanded with stride 0.
fn slices(args: &[Value], combine: Combine, include_self: bool) -> Result<Scatter<'_>> {
    let mut s = along(args, combine, include_self)?;
    let n = s.index.numel();
    let mut sizes: Dims = s.x.sizes().into();
    let mut strides: Dims = smallvec![SymInt::from(0); sizes.len()];
    if let (Some(size), Some(stride)) = (sizes.get_mut(s.dim), strides.get_mut(s.dim)) {
        *size = n;
        *stride = s.index.strides().first().copied().unwrap_or(0.into());
    } else {
        sizes = smallvec![n];
        strides = smallvec![s.index.strides().first().copied().unwrap_or(0.into())];
    }
    s.index = s.index.view_of(s.index.meta().with_dims(sizes, strides))?;
    // PyTorch adds slices as `scatter_add` does, but rounds after each element of a vector.
    s.once = s.x.dim() > 1;
    Ok(s)
}

fn slices_from(args: &[Value], out: &Tensor, combine: Combine, include_self: bool) -> Result<()> {
    slices(args, combine, include_self)?.run(out, &ScatterSource::Elements(args[3].tensor()?))
}

/// PyTorch rounds after every slice, and counts for means with `index_add`.
fn index_reduce(args: &[Value], out: &Tensor) -> Result<()> {
    let s = slices(args, Combine::parse(args[4].str()?)?, args[5].bool()?)?;
    let counts = if s.once || !out.dtype().is_float() { DType::I64 } else { out.dtype() };
    Scatter { once: false, counts, ..s }.run(out, &ScatterSource::Elements(args[3].tensor()?))
}

fn index_select_meta(args: &[Value]) -> Result<Metas> {
    let (x, index) = (args[0].tensor()?, args[2].tensor()?);
    let d = wrap_dim(args[1].int_i64()?, x.dim())?;
    require_index("index", index)?;
    require_rank("index", index, 0..=1)?;
    let mut sizes: Dims = x.sizes().into();
    if let Some(n) = sizes.get_mut(d) {
        *n = index.numel();
    }
    Ok(smallvec![fresh(x, sizes, x.dtype())])
}

/// An index without dimensions is one index. A 0-d tensor has one element, which any number of
/// indices may select.
fn index_select(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let is_0d = cx.args()[0].tensor()?.dim() == 0;
    let x = cx.view(at_least_1d)?;
    let index = cx.view(|a| at_least_1d(&a[2..]))?;
    let dim = wrap_dim(cx.int(1)?, x.axes.len())?;
    let slices = named::select(&mut cx.nest, &x, dim, &index)?;
    if !is_0d {
        return Ok(smallvec![slices.into()]);
    }
    let at = IndexMap::from(Affine::from(Expr::Int(0)));
    Ok(smallvec![cx.nest.map(&[], |s| s.load(x.id, at))?.into()])
}

/// Adds the slices, multiplied by `alpha`.
fn index_add(args: &[Value], out: &Tensor) -> Result<()> {
    let (source, alpha) = (args[3].tensor()?, args[4].scalar()?);
    let add = Combine::With(ScatterOp::Add);
    if alpha.to_f64() == 1.0 {
        return slices_from(args, out, add, true);
    }
    let scaled = Tensor::allocate(fresh(source, source.sizes().into(), source.dtype()))?;
    let mut b = ExprBuilder::new();
    let (x, by) = (b.input(source.dtype()), b.constant(alpha, source.dtype()));
    let product = b.binary(BinaryOp::Mul, x, by).map_err(Error::other)?;
    let expr = b.finish(&[product]).map_err(Error::other)?;
    kernels::pointwise(&expr, &[input(source)?], std::slice::from_mut(&mut output(&scaled)?))?;
    slices(args, add, true)?.run(out, &ScatterSource::Elements(&scaled))
}

/// Uses advanced indexing, because only this operator of the family accepts negative indices.
fn index_fill(args: &[Value], out: &Tensor) -> Result<()> {
    let s = slices(args, SET, true)?;
    let value = match &args[3] {
        Value::Tensor(t) => cpu_exec::cast(t, s.x.dtype())?,
        number => {
            let value = Tensor::allocate(fresh(s.x, smallvec![], s.x.dtype()))?;
            host::fill(&value, number.scalar()?)?;
            value
        }
    };
    cpu_exec::copy(s.x, out)?;
    if s.index.numel().as_i64() == Some(0) {
        return Ok(());
    }
    let whole = value.view_of(views::expand(value.meta(), s.index.sizes())?)?;
    let line = |t: &Tensor| {
        if t.dim() == 0 { t.view_of(views::unsqueeze(t.meta(), 0)?) } else { Ok(t.clone()) }
    };
    let (target, index) = (line(out)?, line(args[2].tensor()?)?);
    let mut indices = vec![None; s.dim];
    indices.push(Some(input(&index)?));
    Ok(kernels::index_put(&mut output(&target)?, &indices, &input(&whole)?, false)?)
}

fn fill_meta(args: &[Value]) -> Result<Metas> {
    if let Some(t) = args[3].tensors().next() {
        require_rank("value", t, 0..=0)?;
    }
    slices_meta(&args[..3])?;
    let x = args[0].tensor()?;
    require_argument_fits("value", &args[3], x.dtype())?;
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

table! {
    /// Selections of and updates to slices.
    static TABLE = {
        "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor" => {
            role: General,
            lowering: gather(
                |_, a| index_select_meta(a),
                How::Loops(index_select),
            ),
            vjp: crate::grad::INDEX_SELECT,
        },
        "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, \
            Scalar alpha=1) -> Tensor" => {
            role: General,
            lowering: scatter(
                |_, a| {
                    require_argument_fits("alpha", &a[4], a[0].tensor()?.dtype())?;
                    slices_meta(a)
                },
                |a, out| index_add(a, &out[0]),
            ),
            vjp: crate::grad::INDEX_ADD,
        },
        "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, \
            Scalar alpha=1) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::index_add"),
        },
        "aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor" => {
            role: General,
            lowering: scatter(|_, a| slices_meta(a), |a, out| slices_from(a, &out[0], SET, true)),
            vjp: crate::grad::INDEX_COPY,
        },
        "aten::index_copy_(Tensor(a!) self, int dim, Tensor index, \
            Tensor source) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::index_copy"),
        },
        "aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, \
            *, bool include_self=True) -> Tensor" => {
            role: General,
            lowering: scatter(|_, a| slices_meta(a), |a, out| index_reduce(a, &out[0])),
            vjp: crate::grad::INDEX_REDUCE,
        },
        "aten::index_reduce_(Tensor(a!) self, int dim, Tensor index, Tensor source, \
            str reduce, *, bool include_self=True) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::index_reduce"),
        },
        "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, \
            Scalar value) -> Tensor" => {
            role: TakesHostNumbers,
            lowering: scatter(|_, a| fill_meta(a), |a, out| index_fill(a, &out[0])),
            vjp: crate::grad::INDEX_FILL,
        },
        "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, \
            Tensor value) -> Tensor" => {
            role: TakesHostNumbers,
            lowering: scatter(|_, a| fill_meta(a), |a, out| index_fill(a, &out[0])),
            vjp: crate::grad::INDEX_FILL,
        },
        "aten::index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, \
            Scalar value) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::index_fill.int_Scalar"),
        },
        "aten::index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, \
            Tensor value) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::index_fill.int_Tensor"),
        },
    }
}
