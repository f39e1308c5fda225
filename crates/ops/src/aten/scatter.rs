//! Gathering and scattering along one dimension.

use super::dims::{fresh, fresh_like, require, require_index, require_rank, require_same_dtype};
use super::host::{self, fill_with};
use super::lowering::{Class, Compute, Lowering, Metas, Strides};
use super::norm::compute_dtype;
use super::number::require_argument_fits;
use super::{table, views};
use crate::dispatch::cpu_exec::{self, input, output};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::{require_equal, wrap_dim};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder, cast_scalar};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Scalar};
use maquette_kernels::{self as kernels, ScatterOp, Source};
use smallvec::smallvec;

const fn gather(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Gather, strides: Strides::RowMajor, metas, run })
}

const fn scatter(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Scatter, strides: Strides::RowMajor, metas, run })
}

/// An index of the tensor's own rank, no larger than it except along `dim`.
#[track_caller]
fn check_index(
    x: &Tensor,
    dim: i64,
    index: &Tensor,
    bound: &Tensor,
    bound_name: &str,
    whole: bool,
) -> Result<()> {
    let d = wrap_dim(dim, x.dim())?;
    // an index without elements may have any dtype and rank, as PyTorch's may; whether it has any
    // is worth a guard only then
    let usual = require_index("index", index).is_ok() && index.dim().max(1) == bound.dim().max(1);
    if index.numel().as_i64() == Some(0) || !usual && index.numel().eq(0).guard()? {
        return Ok(());
    }
    require_index("index", index)?;
    let misfit = || {
        let (expected, found) = (dims_text(bound.sizes()), dims_text(index.sizes()));
        format!(
            "argument `index` must have at most the sizes {expected} of `{bound_name}`, except in \
                dimension {dim}, found sizes {found}"
        )
    };
    if index.dim().max(1) != bound.dim().max(1) {
        return Err(Error::value(misfit()));
    }
    for (k, (&i, &n)) in index.sizes().iter().zip(bound.sizes()).enumerate() {
        if k == d && !whole {
            continue;
        }
        if let Err(e) = require(i.le(n), misfit) {
            // too large, unless it has no elements
            return if index.numel().eq(0).guard().unwrap_or(false) { Ok(()) } else { Err(e) };
        }
    }
    Ok(())
}

/// How scattered elements meet what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    With(ScatterOp),
    Mean,
}

impl Combine {
    fn parse(name: &str) -> Result<Combine> {
        Ok(Combine::With(match name {
            "add" | "sum" => ScatterOp::Add,
            "multiply" | "prod" => ScatterOp::Mul,
            "amax" => ScatterOp::Max,
            "amin" => ScatterOp::Min,
            "mean" => return Ok(Combine::Mean),
            other => {
                return Err(Error::value(format!(
                    "`reduce` must be sum, prod, mean, amax or amin (scatter: add, multiply), \
                        found {other:?}"
                )));
            }
        }))
    }

    /// What leaves every element as it is.
    fn identity(self, dtype: DType) -> Scalar {
        match self {
            Combine::With(ScatterOp::Mul) => Scalar::Int(1),
            Combine::With(ScatterOp::Max) => extreme(dtype, false),
            Combine::With(ScatterOp::Min) => extreme(dtype, true),
            _ => Scalar::Int(0),
        }
    }
}

/// The greatest or least element of a dtype.
fn extreme(dtype: DType, greatest: bool) -> Scalar {
    match dtype {
        d if d.is_float() => {
            Scalar::Float(if greatest { f64::INFINITY } else { f64::NEG_INFINITY })
        }
        d => d.int_range().map_or(Scalar::Bool(greatest), |(least, most)| {
            Scalar::Int(if greatest { most } else { least })
        }),
    }
}

/// StorageCloner `self`, and combines the source into it at the index along a dimension.
struct Scatter<'a> {
    x: &'a Tensor,
    dim: usize,
    index: Tensor,
    combine: Combine,
    include_self: bool,
    /// Whether half precision is rounded once, after all that falls on an element; else after each,
    /// as PyTorch does in places.
    once: bool,
    /// What a mean counts in: PyTorch adds up ones of the element's own dtype where it would
    /// elements.
    counts: DType,
}

/// What is scattered.
enum From<'a> {
    Elements(&'a Tensor),
    Number(Scalar),
}

impl Scatter<'_> {
    fn run(&self, out: &Tensor, source: &From<'_>) -> Result<()> {
        let combines = self.combine != SET && self.index.numel().as_i64() != Some(0);
        let wide = if combines && self.once { compute_dtype(out.dtype()) } else { out.dtype() };
        if wide == out.dtype() || !out.dtype().is_float() {
            return self.run_in(out, source);
        }
        let work = Tensor::allocate(fresh(out, out.sizes().into(), wide))?;
        let number = |x: &Scalar| From::Number(cast_scalar(*x, out.dtype()));
        match source {
            From::Elements(t) => self.run_in(&work, &From::Elements(&cpu_exec::cast(t, wide)?))?,
            From::Number(x) => self.run_in(&work, &number(x))?,
        }
        cpu_exec::copy(&work, out)
    }

    /// In the dtype of `out`.
    fn run_in(&self, out: &Tensor, source: &From<'_>) -> Result<()> {
        cpu_exec::copy(self.x, out)?;
        if self.index.numel().as_i64() == Some(0) {
            return Ok(());
        }
        let source = &match source {
            From::Elements(t) => Source::Tensor(input(t)?),
            From::Number(x) => Source::Value(*x),
        };
        let index = input(&self.index)?;
        let put = |to: &Tensor, source: &Source<'_>, op| -> Result<()> {
            Ok(kernels::scatter(&mut output(to)?, self.dim, &index, source, op)?)
        };
        if !self.include_self {
            put(out, &Source::Value(self.combine.identity(out.dtype())), ScatterOp::Replace)?;
        }
        match self.combine {
            Combine::With(op) => put(out, source, op),
            Combine::Mean => {
                put(out, source, ScatterOp::Add)?;
                let count = Tensor::allocate(fresh(self.x, self.x.sizes().into(), self.counts))?;
                host::fill(&count, Scalar::Int(i64::from(self.include_self)))?;
                put(&count, &Source::Value(Scalar::Int(1)), ScatterOp::Add)?;
                divide(out, &host::data::<i64>(&cpu_exec::cast(&count, DType::I64)?)?)
            }
        }
    }
}

/// Divides by counts of at least 1, integers rounding down; elsewhere leaves elements as they are.
fn divide(out: &Tensor, by: &[i64]) -> Result<()> {
    let wide = cpu_exec::cast(out, if out.dtype().is_float() { DType::F64 } else { DType::I64 })?;
    if out.dtype().is_float() {
        fill_with::<f64>(&wide, |o| {
            o.iter_mut().zip(by).for_each(|(o, &n)| *o /= n.max(1) as f64)
        })?;
    } else {
        fill_with::<i64>(&wide, |o| {
            o.iter_mut().zip(by).for_each(|(o, &n)| *o = o.div_euclid(n.max(1)))
        })?;
    }
    cpu_exec::copy(&wide, out)
}

fn along(args: &[Value], combine: Combine, include_self: bool) -> Result<Scatter<'_>> {
    let x = args[0].tensor()?;
    let dim = wrap_dim(args[1].int_i64()?, x.dim())?;
    Ok(Scatter {
        x,
        dim,
        index: args[2].tensor()?.clone(),
        combine,
        include_self,
        once: true,
        counts: DType::I64,
    })
}

const SET: Combine = Combine::With(ScatterOp::Replace);

fn scatter_src(args: &[Value], out: &Tensor, combine: Combine, include_self: bool) -> Result<()> {
    along(args, combine, include_self)?.run(out, &From::Elements(args[3].tensor()?))
}

fn scatter_value(args: &[Value], out: &Tensor, combine: Combine) -> Result<()> {
    along(args, combine, true)?.run(out, &From::Number(args[3].scalar()?))
}

fn scatter_meta(args: &[Value]) -> Result<Metas> {
    let (x, dim, index) = (args[0].tensor()?, args[1].int_i64()?, args[2].tensor()?);
    check_index(x, dim, index, x, "self", false)?;
    if index.numel().as_i64() != Some(0) {
        require_argument_fits("value", &args[3], x.dtype())?;
    }
    if let Value::Tensor(src) = &args[3] {
        check_index(x, dim, index, src, "src", true)?;
        require_same_dtype(("self", x), ("src", src))?;
    }
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
}

/// The metadata of `source` for operators that take one index a slice along the dimension: `self`'s
/// sizes, but for the index's length.
#[track_caller]
fn slices_meta(args: &[Value]) -> Result<Metas> {
    let (x, dim, index) = (args[0].tensor()?, args[1].int_i64()?, args[2].tensor()?);
    let d = wrap_dim(dim, x.dim())?;
    require_index("index", index)?;
    require_rank("index", index, 0..=1)?;
    if let Some(source) =
        args.get(3).and_then(|v| v.tensors().next()).filter(|s| s.dim() > 0 || x.dim() == 0)
    {
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

/// One index a slice: the same for all elements of it.
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
    // PyTorch adds slices as `scatter_add` does, but to a line one element at a time
    s.once = s.x.dim() > 1;
    Ok(s)
}

fn slices_from(args: &[Value], out: &Tensor, combine: Combine, include_self: bool) -> Result<()> {
    slices(args, combine, include_self)?.run(out, &From::Elements(args[3].tensor()?))
}

/// PyTorch rounds after every slice; the counts of means it adds up with `index_add`.
fn index_reduce(args: &[Value], out: &Tensor) -> Result<()> {
    let s = slices(args, Combine::parse(args[4].str()?)?, args[5].bool()?)?;
    let counts = if s.once || !out.dtype().is_float() { DType::I64 } else { out.dtype() };
    Scatter { once: false, counts, ..s }.run(out, &From::Elements(args[3].tensor()?))
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

/// A tensor's elements in row-major order, as one dimension.
fn flat(t: &Tensor) -> Result<Tensor> {
    let whole = if super::dims::is_contiguous(t.sizes(), t.strides())? {
        t.clone()
    } else {
        {
            let out = Tensor::allocate(fresh(t, t.sizes().into(), t.dtype()))?;
            cpu_exec::copy(t, &out)?;
            out
        }
    };
    let m = Meta::contiguous(vec![t.numel()], t.dtype());
    whole.view_of(Meta { offset: whole.storage_offset(), ..m })
}

fn take(args: &[Value], out: &Tensor) -> Result<()> {
    let x = flat(args[0].tensor()?)?;
    if out.numel().as_i64() == Some(0) {
        return Ok(());
    }
    Ok(kernels::index(&input(&x)?, &[Some(input(args[1].tensor()?)?)], &mut output(out)?)?)
}

fn put(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let work = Tensor::allocate(fresh(x, x.sizes().into(), x.dtype()))?;
    cpu_exec::copy(x, &work)?;
    let (index, source) = (flat(args[1].tensor()?)?, flat(args[2].tensor()?)?);
    if index.numel().as_i64() != Some(0) {
        kernels::index_put(
            &mut output(&flat(&work)?)?,
            &[Some(input(&index)?)],
            &input(&source)?,
            args[3].bool()?,
        )?;
    }
    cpu_exec::copy(&work, out)
}

fn put_meta(args: &[Value]) -> Result<Metas> {
    let (x, index, source) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    require_index("index", index)?;
    require_same_dtype(("self", x), ("source", source))?;
    let mismatch = || {
        Error::value(format!(
            "`index` {} and `source` {} must have the same number of elements",
            dims_text(index.sizes()),
            dims_text(source.sizes())
        ))
    };
    require_equal(index.numel(), source.numel(), &mismatch)?;
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

/// Adds the slices times `alpha`.
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
    slices(args, add, true)?.run(out, &From::Elements(&scaled))
}

/// By advanced indexing, since here alone in the family negative indices count from the end.
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

fn take_meta(x: &Tensor, index: &Tensor) -> Result<Metas> {
    require_index("index", index)?;
    Ok(smallvec![fresh(x, index.sizes().into(), x.dtype())])
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        General "aten::gather(Tensor self, int dim, Tensor index, *, \
            bool sparse_grad=False) -> Tensor" =>
            gather(
                |_, a| {
                    let (x, index) = (a[0].tensor()?, a[2].tensor()?);
                    check_index(x, a[1].int_i64()?, index, x, "self", false)?;
                    Ok(smallvec![fresh(x, index.sizes().into(), x.dtype())])
                },
                |a, out| {
                    if out[0].numel().as_i64() == Some(0) {
                        return Ok(());
                    }
                    let dim = wrap_dim(a[1].int_i64()?, a[0].tensor()?.dim())?;
                    Ok(kernels::gather(
                        &input(a[0].tensor()?)?,
                        dim,
                        &input(a[2].tensor()?)?,
                        &mut output(&out[0])?,
                    )?)
                },
            ),
        General "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor" =>
            gather(
                |_, a| index_select_meta(a),
                |a, out| {
                    let dim = wrap_dim(a[1].int_i64()?, a[0].tensor()?.dim())?;
                    Ok(kernels::index_select(
                        &input(a[0].tensor()?)?,
                        dim,
                        &input(a[2].tensor()?)?,
                        &mut output(&out[0])?,
                    )?)
                },
            ),
        General "aten::take(Tensor self, Tensor index) -> Tensor" =>
            gather(|_, a| take_meta(a[0].tensor()?, a[1].tensor()?), |a, out| take(a, &out[0])),
        General "aten::put(Tensor self, Tensor index, Tensor source, \
            bool accumulate=False) -> Tensor" =>
            scatter(|_, a| put_meta(a), |a, out| put(a, &out[0])),
        General "aten::put_(Tensor(a!) self, Tensor index, Tensor source, \
            bool accumulate=False) -> Tensor(a!)" =>
            Lowering::InPlace("aten::put"),
        General "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor" =>
            scatter(|_, a| scatter_meta(a), |a, out| scatter_src(a, &out[0], SET, true)),
        General "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor" =>
            scatter(|_, a| scatter_meta(a), |a, out| scatter_value(a, &out[0], SET)),
        General "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, \
            str reduce) -> Tensor" =>
            scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_src(a, &out[0], Combine::parse(a[4].str()?)?, true),
            ),
        General "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, \
            str reduce) -> Tensor" =>
            scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_value(a, &out[0], Combine::parse(a[4].str()?)?),
            ),
        General "aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor" =>
            scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_src(a, &out[0], Combine::With(ScatterOp::Add), true),
            ),
        General "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, \
            str reduce, *, bool include_self=True) -> Tensor" =>
            scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_src(a, &out[0], Combine::parse(a[4].str()?)?, a[5].bool()?),
            ),
        General "aten::scatter_.src(Tensor(a!) self, int dim, Tensor index, \
            Tensor src) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter.src"),
        General "aten::scatter_.value(Tensor(a!) self, int dim, Tensor index, \
            Scalar value) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter.value"),
        General "aten::scatter_.reduce(Tensor(a!) self, int dim, Tensor index, Tensor src, *, \
            str reduce) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter.reduce"),
        General "aten::scatter_.value_reduce(Tensor(a!) self, int dim, Tensor index, Scalar value, \
            *, str reduce) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter.value_reduce"),
        General "aten::scatter_add_(Tensor(a!) self, int dim, Tensor index, \
            Tensor src) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter_add"),
        General "aten::scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, \
            str reduce, *, bool include_self=True) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter_reduce.two"),
        General "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, \
            Scalar alpha=1) -> Tensor" =>
            scatter(
                |_, a| {
                    require_argument_fits("alpha", &a[4], a[0].tensor()?.dtype())?;
                    slices_meta(a)
                },
                |a, out| index_add(a, &out[0]),
            ),
        General "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, \
            Scalar alpha=1) -> Tensor(a!)" =>
            Lowering::InPlace("aten::index_add"),
        General "aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor" =>
            scatter(|_, a| slices_meta(a), |a, out| slices_from(a, &out[0], SET, true)),
        General "aten::index_copy_(Tensor(a!) self, int dim, Tensor index, \
            Tensor source) -> Tensor(a!)" =>
            Lowering::InPlace("aten::index_copy"),
        General "aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, \
            *, bool include_self=True) -> Tensor" =>
            scatter(|_, a| slices_meta(a), |a, out| index_reduce(a, &out[0])),
        General "aten::index_reduce_(Tensor(a!) self, int dim, Tensor index, Tensor source, \
            str reduce, *, bool include_self=True) -> Tensor(a!)" =>
            Lowering::InPlace("aten::index_reduce"),
        TakesHostNumbers "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, \
            Scalar value) -> Tensor" =>
            scatter(|_, a| fill_meta(a), |a, out| index_fill(a, &out[0])),
        TakesHostNumbers "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, \
            Tensor value) -> Tensor" =>
            scatter(|_, a| fill_meta(a), |a, out| index_fill(a, &out[0])),
        General "aten::index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, \
            Scalar value) -> Tensor(a!)" =>
            Lowering::InPlace("aten::index_fill.int_Scalar"),
        General "aten::index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, \
            Tensor value) -> Tensor(a!)" =>
            Lowering::InPlace("aten::index_fill.int_Tensor"),
    }
}
