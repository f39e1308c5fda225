//! Gathering and scattering along one dimension.

use super::dims::{fresh, fresh_like, require, require_index, require_rank, require_same_dtype};
use super::host::{self, Num, data, fill_with, separable, typed};
use super::lower::{Class, Compute, Lowering, Metas};
use super::{table, views};
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::meta::{Dims, Meta};
use crate::shape::{require_equal, wrap_dim};
use crate::tensor::{Tensor, dims_text};
use crate::value::Value;
use maquette_kernels::KernelError;
use smallvec::smallvec;

const fn gather(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>, run: fn(&[Value], &[Tensor]) -> Result<()>) -> Lowering {
    Lowering::Compute(Compute { class: Class::Gather, metas, run })
}

const fn scatter(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>, run: fn(&[Value], &[Tensor]) -> Result<()>) -> Lowering {
    Lowering::Compute(Compute { class: Class::Scatter, metas, run })
}

/// A position from 0 or, where allowed, from the end.
fn position(i: i64, n: usize, dim: usize, from_end: bool) -> Result<usize> {
    let wrapped = if i < 0 && from_end { i + n as i64 } else { i };
    if (0..n as i64).contains(&wrapped) { Ok(wrapped as usize) } else { Err(KernelError::IndexOutOfRange { index: i, size: n as i64, dim }.into()) }
}

/// A 0-d tensor counts as one element along dimension 0.
fn at_least_1d(sizes: Vec<usize>) -> Vec<usize> {
    if sizes.is_empty() { vec![1] } else { sizes }
}

/// The row-major position in a tensor of `sizes` of each element of a box at its origin, without what dimension `skip` adds.
fn bases(inner: &[usize], sizes: &[usize], skip: Option<usize>) -> Vec<usize> {
    let mut strides = vec![1usize; sizes.len()];
    for d in (1..sizes.len()).rev() {
        strides[d - 1] = strides[d] * sizes[d];
    }
    let mut out = Vec::new();
    host::each_index(inner, |i| out.push((0..i.len()).filter(|&d| Some(d) != skip).map(|d| i[d] * strides[d]).sum()));
    out
}

fn stride_of(sizes: &[usize], dim: usize) -> usize {
    sizes[dim + 1..].iter().product()
}

/// An index of the tensor's own rank, no larger than it except along `dim`.
#[track_caller]
fn check_index(x: &Tensor, dim: i64, index: &Tensor, bound: &Tensor, bound_name: &str, whole: bool) -> Result<()> {
    let d = wrap_dim(dim, x.dim())?;
    require_index("index", index)?;
    let misfit = || {
        let (expected, found) = (dims_text(bound.sizes()), dims_text(index.sizes()));
        format!("argument `index` must have at most the sizes {expected} of `{bound_name}`, dimension {dim} aside, found sizes {found}")
    };
    if index.dim().max(1) != bound.dim().max(1) {
        return Err(Error::value(misfit()));
    }
    for (k, (&i, &n)) in index.sizes().iter().zip(bound.sizes()).enumerate() {
        if k != d || whole {
            require(i.le(n), misfit)?;
        }
    }
    Ok(())
}

fn gather_run(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, index) = (args[0].tensor()?, args[2].tensor()?);
    let d = wrap_dim(args[1].int_i64()?, x.dim())?;
    let (sizes, inner) = (at_least_1d(host::sizes(x)?), at_least_1d(host::sizes(index)?));
    let step = stride_of(&sizes, d);
    let at = host::indices(index)?;
    let from: Vec<usize> = bases(&inner, &sizes, Some(d)).iter().zip(at).map(|(b, i)| Ok(b + position(i, sizes[d], d, false)? * step)).collect::<Result<_>>()?;
    typed!(x.dtype(), T => {
        let x = data::<T>(x)?;
        fill_with::<T>(out, |o| { o.iter_mut().zip(from).for_each(|(o, p)| *o = x[p]); Ok(()) })
    })
}

/// How scattered elements meet what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    Set,
    Sum,
    Product,
    Mean,
    Max,
    Min,
}

impl Combine {
    fn parse(name: &str) -> Result<Combine> {
        Ok(match name {
            "add" | "sum" => Combine::Sum,
            "multiply" | "prod" => Combine::Product,
            "mean" => Combine::Mean,
            "amax" => Combine::Max,
            "amin" => Combine::Min,
            other => return Err(Error::value(format!("`reduce` must be sum, prod, mean, amax or amin (scatter: add, multiply), found {other:?}"))),
        })
    }
}

/// One scatter: `x` with the elements of `source` combined into it at `index` along a dimension.
struct Scatter<'a> {
    x: &'a Tensor,
    dim: usize,
    /// Positions along `dim`, and the sizes of the box they fill.
    index: Vec<i64>,
    inner: Vec<usize>,
    combine: Combine,
    include_self: bool,
    from_end: bool,
}

impl Scatter<'_> {
    /// `source(k)`: the element that goes where the `k`-th index says.
    fn run<T: Num>(&self, out: &Tensor, source: impl Fn(usize) -> T) -> Result<()> {
        let sizes = at_least_1d(host::sizes(self.x)?);
        let step = stride_of(&sizes, self.dim);
        let targets: Vec<usize> = bases(&self.inner, &sizes, Some(self.dim))
            .iter()
            .zip(&self.index)
            .map(|(b, &i)| Ok(b + position(i, sizes[self.dim], self.dim, self.from_end)? * step))
            .collect::<Result<_>>()?;
        let from = data::<T>(self.x)?;
        fill_with::<T>(out, |o| {
            o.copy_from_slice(&from);
            if self.combine == Combine::Set {
                targets.iter().enumerate().for_each(|(k, &p)| o[p] = source(k));
                return Ok(());
            }
            let mut held: Vec<T::Acc> = from.iter().map(|x| x.load()).collect();
            let mut count = vec![i64::from(self.include_self); held.len()];
            for (k, &p) in targets.iter().enumerate() {
                let value = source(k);
                let v = value.load();
                let first = count[p] == 0;
                count[p] += 1;
                let h = held[p];
                // a NaN compares with nothing, itself included
                let (new_nan, old_nan) = (value.is_nan(), h.partial_cmp(&h).is_none());
                held[p] = match self.combine {
                    _ if first => v,
                    Combine::Sum | Combine::Mean => h + v,
                    Combine::Product => h * v,
                    Combine::Max if new_nan || (!old_nan && v > h) => v,
                    Combine::Min if new_nan || (!old_nan && v < h) => v,
                    Combine::Max | Combine::Min | Combine::Set => h,
                };
            }
            for &p in &targets {
                o[p] = if self.combine == Combine::Mean { T::divide(held[p], count[p]) } else { T::store(held[p]) };
            }
            Ok(())
        })
    }

    /// From a tensor that is at least as large as the index.
    fn run_tensor(&self, out: &Tensor, source: &Tensor) -> Result<()> {
        let at = bases(&self.inner, &at_least_1d(host::sizes(source)?), None);
        typed!(self.x.dtype(), T => {
            let source = data::<T>(source)?;
            self.run::<T>(out, |k| source[at[k]])
        })
    }
}

fn along<'a>(args: &'a [Value], combine: Combine, include_self: bool) -> Result<Scatter<'a>> {
    let (x, index) = (args[0].tensor()?, args[2].tensor()?);
    let dim = wrap_dim(args[1].int_i64()?, x.dim())?;
    Ok(Scatter { x, dim, index: host::indices(index)?, inner: at_least_1d(host::sizes(index)?), combine, include_self, from_end: false })
}

fn scatter_src(args: &[Value], out: &Tensor, combine: Combine, include_self: bool) -> Result<()> {
    along(args, combine, include_self)?.run_tensor(out, args[3].tensor()?)
}

fn scatter_value(args: &[Value], out: &Tensor, combine: Combine) -> Result<()> {
    let (s, value) = (along(args, combine, true)?, args[3].scalar()?);
    typed!(s.x.dtype(), T => { let v = T::number(value); s.run::<T>(out, |_| v) })
}

fn scatter_meta(args: &[Value]) -> Result<Metas> {
    let (x, dim, index) = (args[0].tensor()?, args[1].int_i64()?, args[2].tensor()?);
    check_index(x, dim, index, x, "self", false)?;
    if let Value::Tensor(src) = &args[3] {
        check_index(x, dim, index, src, "src", true)?;
        require_same_dtype(("self", x), ("src", src))?;
    }
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

/// The metadata of `source` for operators that take one index a slice along the dimension: `self`'s sizes, but for the index's length.
#[track_caller]
fn slices_meta(args: &[Value]) -> Result<Metas> {
    let (x, dim, index) = (args[0].tensor()?, args[1].int_i64()?, args[2].tensor()?);
    let d = wrap_dim(dim, x.dim())?;
    require_index("index", index)?;
    require_rank("index", index, 0..=1)?;
    if let Some(source) = args.get(3).and_then(|v| v.tensors().next()).filter(|s| s.dim() > 0 || x.dim() == 0) {
        require_same_dtype(("self", x), ("source", source))?;
        let mismatch = || {
            let (found, of) = (dims_text(source.sizes()), dims_text(x.sizes()));
            Error::value(format!("argument `source` must have the sizes {of} of `self`, but {} in dimension {dim}, found sizes {found}", index.numel()))
        };
        if source.dim() != x.dim() {
            return Err(mismatch());
        }
        for k in 0..x.dim() {
            let expected = if k == d { index.numel() } else { x.sizes()[k] };
            require_equal(expected, source.sizes()[k], &mismatch)?;
        }
    }
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

fn slices<'a>(args: &'a [Value], combine: Combine, include_self: bool) -> Result<Scatter<'a>> {
    let (x, index) = (args[0].tensor()?, args[2].tensor()?);
    let dim = wrap_dim(args[1].int_i64()?, x.dim())?;
    let list = host::indices(index)?;
    let mut inner = at_least_1d(host::sizes(x)?);
    inner[dim] = list.len();
    let mut at = Vec::new();
    host::each_index(&inner, |i| at.push(list[i[dim]]));
    Ok(Scatter { x, dim, index: at, inner, combine, include_self, from_end: combine == Combine::Set })
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

fn index_select(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let d = wrap_dim(args[1].int_i64()?, x.dim())?;
    let sizes = host::sizes(x)?;
    let n = sizes.get(d).copied().unwrap_or(1);
    let picked: Vec<usize> = host::indices(args[2].tensor()?)?.into_iter().map(|i| position(i, n, d, false)).collect::<Result<_>>()?;
    let mut tables: Vec<Vec<usize>> = sizes.iter().map(|&n| (0..n).collect()).collect();
    if let Some(t) = tables.get_mut(d) {
        *t = picked;
    }
    separable(x, out, &tables)
}

/// Row-major positions of the whole tensor, counted from the end where negative.
fn flat_positions(x: &Tensor, index: &Tensor) -> Result<Vec<usize>> {
    let n = host::sizes(x)?.iter().product();
    host::indices(index)?.into_iter().map(|i| position(i, n, 0, true)).collect()
}

fn take(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let at = flat_positions(x, args[1].tensor()?)?;
    typed!(x.dtype(), T => {
        let x = data::<T>(x)?;
        fill_with::<T>(out, |o| { o.iter_mut().zip(at).for_each(|(o, p)| *o = x[p]); Ok(()) })
    })
}

fn put(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, accumulate) = (args[0].tensor()?, args[3].bool()?);
    let at = flat_positions(x, args[1].tensor()?)?;
    typed!(x.dtype(), T => {
        let (from, source) = (data::<T>(x)?, data::<T>(args[2].tensor()?)?);
        fill_with::<T>(out, |o| {
            o.copy_from_slice(&from);
            for (&p, v) in at.iter().zip(source) {
                o[p] = if accumulate { T::store(o[p].load() + v.load()) } else { v };
            }
            Ok(())
        })
    })
}

fn put_meta(args: &[Value]) -> Result<Metas> {
    let (x, index, source) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    require_index("index", index)?;
    require_same_dtype(("self", x), ("source", source))?;
    let mismatch = || Error::value(format!("`index` {} and `source` {} must hold equally many elements", dims_text(index.sizes()), dims_text(source.sizes())));
    require_equal(index.numel(), source.numel(), &mismatch)?;
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

/// Adds the slices times `alpha`, which the accumulator multiplies.
fn index_add(args: &[Value], out: &Tensor) -> Result<()> {
    let (s, source) = (slices(args, Combine::Sum, true)?, args[3].tensor()?);
    let at = bases(&s.inner, &at_least_1d(host::sizes(source)?), None);
    let alpha = args[4].scalar()?;
    typed!(s.x.dtype(), T => {
        let (source, alpha) = (data::<T>(source)?, T::number(alpha).load());
        s.run::<T>(out, |k| T::store(source[at[k]].load() * alpha))
    })
}

fn index_fill(args: &[Value], out: &Tensor) -> Result<()> {
    let s = slices(args, Combine::Set, true)?;
    typed!(s.x.dtype(), T => {
        let v = match &args[3] {
            Value::Tensor(t) => data::<T>(&crate::eager::cast(t, s.x.dtype())?)?.first().copied().unwrap_or_default(),
            number => T::number(number.scalar()?),
        };
        s.run::<T>(out, |_| v)
    })
}

fn fill_meta(args: &[Value]) -> Result<Metas> {
    if let Some(t) = args[3].tensors().next() {
        require_rank("value", t, 0..=0)?;
    }
    slices_meta(&args[..3])
}

fn like_index(args: &[Value], index: &Tensor) -> Result<Meta> {
    let x = args[0].tensor()?;
    require_index("index", index)?;
    Ok(fresh(x, index.sizes().into(), x.dtype()))
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor" => gather(|_, a| {
            let (x, index) = (a[0].tensor()?, a[2].tensor()?);
            check_index(x, a[1].int_i64()?, index, x, "self", false)?;
            Ok(smallvec![like_index(a, index)?])
        }, |a, out| gather_run(a, &out[0])),
        "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor" => gather(|_, a| index_select_meta(a), |a, out| index_select(a, &out[0])),
        "aten::take(Tensor self, Tensor index) -> Tensor" => gather(|_, a| Ok(smallvec![like_index(a, a[1].tensor()?)?]), |a, out| take(a, &out[0])),
        "aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor" => scatter(|_, a| put_meta(a), |a, out| put(a, &out[0])),
        "aten::put_(Tensor(a!) self, Tensor index, Tensor source, bool accumulate=False) -> Tensor(a!)" => Lowering::InPlace("aten::put"),
        "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor" => scatter(|_, a| scatter_meta(a), |a, out| scatter_src(a, &out[0], Combine::Set, true)),
        "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor" => scatter(|_, a| scatter_meta(a), |a, out| scatter_value(a, &out[0], Combine::Set)),
        "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor" =>
            scatter(|_, a| scatter_meta(a), |a, out| scatter_src(a, &out[0], Combine::parse(a[4].str()?)?, true)),
        "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor" =>
            scatter(|_, a| scatter_meta(a), |a, out| scatter_value(a, &out[0], Combine::parse(a[4].str()?)?)),
        "aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor" => scatter(|_, a| scatter_meta(a), |a, out| scatter_src(a, &out[0], Combine::Sum, true)),
        "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor" =>
            scatter(|_, a| scatter_meta(a), |a, out| scatter_src(a, &out[0], Combine::parse(a[4].str()?)?, a[5].bool()?)),
        "aten::scatter_.src(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)" => Lowering::InPlace("aten::scatter.src"),
        "aten::scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)" => Lowering::InPlace("aten::scatter.value"),
        "aten::scatter_.reduce(Tensor(a!) self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor(a!)" => Lowering::InPlace("aten::scatter.reduce"),
        "aten::scatter_.value_reduce(Tensor(a!) self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor(a!)" => Lowering::InPlace("aten::scatter.value_reduce"),
        "aten::scatter_add_(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)" => Lowering::InPlace("aten::scatter_add"),
        "aten::scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor(a!)" =>
            Lowering::InPlace("aten::scatter_reduce.two"),
        "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor" => scatter(|_, a| slices_meta(a), |a, out| index_add(a, &out[0])),
        "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)" => Lowering::InPlace("aten::index_add"),
        "aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor" =>
            scatter(|_, a| slices_meta(a), |a, out| slices(a, Combine::Set, true)?.run_tensor(&out[0], a[3].tensor()?)),
        "aten::index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)" => Lowering::InPlace("aten::index_copy"),
        "aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor" =>
            scatter(|_, a| slices_meta(a), |a, out| slices(a, Combine::parse(a[4].str()?)?, a[5].bool()?)?.run_tensor(&out[0], a[3].tensor()?)),
        "aten::index_reduce_(Tensor(a!) self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor(a!)" => Lowering::InPlace("aten::index_reduce"),
        "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor" => scatter(|_, a| fill_meta(a), |a, out| index_fill(a, &out[0])),
        "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor" => scatter(|_, a| fill_meta(a), |a, out| index_fill(a, &out[0])),
        "aten::index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)" => Lowering::InPlace("aten::index_fill.int_Scalar"),
        "aten::index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, Tensor value) -> Tensor(a!)" => Lowering::InPlace("aten::index_fill.int_Tensor"),
    }
}

/// Rows of a table, one for each index.
pub(super) fn rows_meta(weight: &Tensor, index: &Tensor) -> Result<Metas> {
    require_rank("weight", weight, 2..=2)?;
    require_index("indices", index)?;
    let mut sizes: Dims = index.sizes().into();
    sizes.push(weight.sizes()[1]);
    Ok(smallvec![fresh(weight, sizes, weight.dtype())])
}

/// See [`rows_meta`].
pub(super) fn rows(weight: &Tensor, index: &Tensor, out: &Tensor) -> Result<()> {
    let sizes = host::sizes(weight)?;
    let at: Vec<usize> = host::indices(index)?.into_iter().map(|i| position(i, sizes[0], 0, false)).collect::<Result<_>>()?;
    let n = at.len() as i64;
    let flat = out.view_of(Meta { offset: out.storage_offset(), ..Meta::contiguous(vec![n, sizes[1] as i64], out.dtype()) })?;
    separable(weight, &flat, &[at, (0..sizes[1]).collect()])
}
