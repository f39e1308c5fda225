//! Views: other metadata over the same storage. Rules hold for symbolic sizes as they do for plain
//! numbers.

use super::dims::{decide, div_ceil, done, is_one, known_equal, product, require};
use super::lowering::{Lowering, Metas};
use super::{reshape, table};
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::fake::FakeCtx;
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::wrap_dim;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::sym::{SymError, SymInt};
use smallvec::{SmallVec, smallvec};

pub(super) fn one(m: Meta) -> Result<Metas> {
    Ok(smallvec![m])
}

fn ints(i: impl Into<SymInt>) -> Result<Outputs> {
    Ok(smallvec![Value::Int(i.into())])
}

/// Wrapped dimensions, each named once.
pub(crate) fn wrap_dims(dims: &[i64], rank: usize) -> Result<SmallVec<[usize; 6]>> {
    let mut out: SmallVec<[usize; 6]> = SmallVec::new();
    for &d in dims {
        let w = wrap_dim(d, rank)?;
        if out.contains(&w) {
            return Err(Error::value(format!("duplicate dimension {d} in {dims:?}")));
        }
        out.push(w);
    }
    Ok(out)
}

pub(super) fn nonzero_rank(m: &Meta) -> Result<()> {
    if m.rank() == 0 { Err(Error::value("a 0-d tensor has no dimension to index")) } else { Ok(()) }
}

/// Whether a size is -1, which stands for one that the operator finds. Of a symbolic one it is
/// asked only where it may be negative.
#[track_caller]
pub(crate) fn is_open(n: SymInt) -> Result<bool> {
    match n.as_i64() {
        Some(n) => Ok(n == -1),
        None if super::dims::decide_or_deny(
            n.lt(0),
            n.ge(0),
            &format!("the size {n} must not be negative"),
        )? =>
        {
            decide(n.eq(-1))
        }
        None => Ok(false),
    }
}

#[track_caller]
pub(crate) fn expand(m: &Meta, wanted: &[SymInt]) -> Result<Meta> {
    let misfit = || {
        format!(
            "a tensor of sizes {} does not expand to sizes {}",
            dims_text(&m.sizes),
            dims_text(wanted)
        )
    };
    let lead = wanted.len().checked_sub(m.rank()).ok_or_else(|| Error::value(misfit()))?;
    let (mut sizes, mut strides): (Dims, Dims) =
        (wanted.into(), smallvec![SymInt::from(0); wanted.len()]);
    for d in (0..wanted.len()).rev() {
        let target = wanted[d];
        let kept = is_open(target)?;
        let Some(from) = d.checked_sub(lead) else {
            if kept {
                return Err(Error::value(format!(
                    "{}: a new dimension needs a size, found -1",
                    misfit()
                )));
            }
            require(target.ge(0), misfit)?;
            // a new dimension of size 1 has the stride of a step over all that follows, as
            // `unsqueeze` gives
            if target.as_i64() == Some(1) {
                strides[d] = sizes
                    .get(d + 1)
                    .zip(strides.get(d + 1))
                    .map_or(SymInt::from(1), |(&n, &s)| n * s);
            }
            continue;
        };
        let (n, s) = (m.sizes[from], m.strides[from]);
        if kept || known_equal(n, target) {
            (sizes[d], strides[d]) = (n, s);
        } else if n.as_i64() == Some(1) {
            require(target.ge(0), misfit)?;
        } else {
            let same = n.eq(target);
            if same.statically_known().is_none() && same.is_data_dependent() {
                match require(same, misfit) {
                    // what cannot be of that size is repeated
                    Err(e)
                        if matches!(e.kind(), ErrorKind::Guard(SymError::Contradiction { .. })) =>
                    {
                        require(n.eq(1), misfit)?
                    }
                    kept => {
                        kept?;
                        strides[d] = s;
                    }
                }
            } else if decide(same)? {
                strides[d] = s;
            } else if !decide(n.eq(1))? {
                return Err(Error::value(misfit()));
            }
        }
    }
    Ok(m.with_dims(sizes, strides))
}

fn permute(m: &Meta, order: &[usize]) -> Meta {
    m.with_dims(
        order.iter().map(|&d| m.sizes[d]).collect(),
        order.iter().map(|&d| m.strides[d]).collect(),
    )
}

pub(crate) fn transpose(m: &Meta, a: i64, b: i64) -> Result<Meta> {
    let (a, b) = (wrap_dim(a, m.rank())?, wrap_dim(b, m.rank())?);
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    if m.rank() > 0 {
        out.sizes.swap(a, b);
        out.strides.swap(a, b);
    }
    Ok(out)
}

fn movedim(m: &Meta, from: &[i64], to: &[i64]) -> Result<Meta> {
    if from.len() != to.len() {
        return Err(Error::value(format!(
            "`source` and `destination` must have the same length, found {from:?} and {to:?}"
        )));
    }
    let (from, to) = (wrap_dims(from, m.rank())?, wrap_dims(to, m.rank())?);
    let mut rest = (0..m.rank()).filter(|d| !from.contains(d));
    let order: SmallVec<[usize; 6]> = (0..m.rank())
        .filter_map(|d| to.iter().position(|&t| t == d).map(|i| from[i]).or_else(|| rest.next()))
        .collect();
    Ok(permute(m, &order))
}

/// An index or a slice bound counted from the end where it is negative.
#[track_caller]
fn from_end(i: SymInt, n: SymInt) -> Result<SymInt> {
    let negative = match i.as_i64() {
        Some(i) => i < 0,
        None => super::dims::decide_or_deny(
            i.lt(0),
            i.ge(0),
            &format!("the index {i} must not be negative"),
        )?,
    };
    Ok(if negative { i + n } else { i })
}

#[track_caller]
pub(crate) fn select(m: &Meta, dim: i64, index: SymInt) -> Result<Meta> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    let n = m.sizes[d];
    let out_of_range = || {
        format!(
            "index {index} is out of range for dimension {dim} of size {n} in sizes {}",
            dims_text(&m.sizes)
        )
    };
    let i = from_end(index, n)?;
    require(i.ge(0), out_of_range)?;
    require(i.lt(n), out_of_range)?;
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    out.sizes.remove(d);
    let stride = out.strides.remove(d);
    out.offset = m.offset + i * stride;
    Ok(out)
}

/// `lo` where it is statically not above `hi`, else the smaller.
fn at_most(lo: SymInt, hi: SymInt) -> SymInt {
    match lo.le(hi).statically_known() {
        Some(true) => lo,
        Some(false) => hi,
        None => lo.min(hi),
    }
}

#[track_caller]
pub(crate) fn slice(
    m: &Meta,
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
) -> Result<Meta> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    require(step.gt(0), || format!("`step` must be positive, found {step}"))?;
    let n = m.sizes[d];
    let zero = SymInt::from(0);
    let bound = |i: SymInt| -> Result<SymInt> {
        let i = from_end(i, n)?;
        let i = if i.ge(0).statically_known() == Some(true) { i } else { i.max(0) };
        Ok(at_most(i, n))
    };
    let start = start.map_or(Ok(zero), bound)?;
    let end = match end {
        Some(end) if end.as_i64() != Some(i64::MAX) => bound(end)?,
        _ => n,
    };
    let end = if start.le(end).statically_known() == Some(true) { end } else { end.max(start) };
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    let length = end - start;
    out.sizes[d] = if step.as_i64() == Some(1) { length } else { div_ceil(length, step) };
    out.offset = m.offset + start * m.strides[d];
    out.strides[d] = m.strides[d] * step;
    Ok(out)
}

#[track_caller]
pub(crate) fn narrow(m: &Meta, dim: i64, start: SymInt, length: SymInt) -> Result<Meta> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    let n = m.sizes[d];
    let misfit = || {
        format!(
            "start {start} and length {length} exceed dimension {dim} of size {n} in sizes {}",
            dims_text(&m.sizes)
        )
    };
    let start = from_end(start, n)?;
    require(start.ge(0), misfit)?;
    require(length.ge(0), misfit)?;
    require((start + length).le(n), misfit)?;
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    out.sizes[d] = length;
    out.offset = m.offset + start * m.strides[d];
    Ok(out)
}

#[track_caller]
fn squeeze(m: &Meta, only: Option<&[usize]>) -> Result<Meta> {
    let mut kept: SmallVec<[usize; 6]> = SmallVec::new();
    for d in 0..m.rank() {
        if !only.is_none_or(|o| o.contains(&d)) || !is_one(m.sizes[d])? {
            kept.push(d);
        }
    }
    Ok(permute(m, &kept))
}

pub(crate) fn unsqueeze(m: &Meta, dim: i64) -> Result<Meta> {
    let d = wrap_dim(dim, m.rank() + 1)?;
    let stride = if d < m.rank() { m.sizes[d] * m.strides[d] } else { 1.into() };
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    out.sizes.insert(d, 1.into());
    out.strides.insert(d, stride);
    Ok(out)
}

pub(crate) fn diagonal(m: &Meta, offset: i64, dim1: i64, dim2: i64) -> Result<Meta> {
    let (a, b) = (wrap_dim(dim1, m.rank())?, wrap_dim(dim2, m.rank())?);
    if a == b {
        return Err(Error::value(format!(
            "`dim1` and `dim2` must differ, found {dim1} and {dim2}"
        )));
    }
    let (rows, cols) = if offset >= 0 {
        (m.sizes[a], m.sizes[b] - offset)
    } else {
        (m.sizes[a] + offset, m.sizes[b])
    };
    let n = at_most(rows, cols);
    let n = if n.ge(0).statically_known() == Some(true) { n } else { n.max(0) };
    let keep = |dims: &[SymInt]| {
        (0..m.rank()).filter(|d| *d != a && *d != b).map(|d| dims[d]).collect::<Dims>()
    };
    let (mut sizes, mut strides) = (keep(&m.sizes), keep(&m.strides));
    sizes.push(n);
    strides.push(m.strides[a] + m.strides[b]);
    let mut out = m.with_dims(sizes, strides);
    // what has no element begins where the tensor does; where the sample has some, others are taken
    // to
    if !(n.as_i64() == Some(0) || n.hint() == Some(0) && n.guard_int()? == 0) {
        out.offset =
            m.offset + if offset >= 0 { m.strides[b] * offset } else { m.strides[a] * -offset };
    }
    Ok(out)
}

#[track_caller]
fn unfold(m: &Meta, dim: i64, size: i64, step: i64) -> Result<Meta> {
    let d = wrap_dim(dim, m.rank())?;
    let n = m.sizes.get(d).copied().unwrap_or(1.into());
    require(n.ge(size), || format!("windows of size {size} exceed dimension {dim} of size {n}"))?;
    if step <= 0 || size < 0 {
        return Err(Error::value(format!(
            "`step` must be positive and `size` not negative, found step {step} and size {size}"
        )));
    }
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    let stride = m.strides.get(d).copied().unwrap_or(1.into());
    if d < m.rank() {
        out.sizes[d] = (n - size).floor_div(step) + 1;
        out.strides[d] = stride * step;
    }
    out.sizes.push(size.into());
    out.strides.push(stride);
    Ok(out)
}

#[track_caller]
pub(crate) fn as_strided(
    t: &Tensor,
    sizes: &[SymInt],
    strides: &[SymInt],
    offset: Option<SymInt>,
) -> Result<Meta> {
    let m = t.meta();
    if sizes.len() != strides.len() {
        return Err(Error::value(format!(
            "`size` {} and `stride` {} must have the same length",
            dims_text(sizes),
            dims_text(strides)
        )));
    }
    for (what, &i) in sizes
        .iter()
        .map(|i| ("size", i))
        .chain(strides.iter().map(|i| ("stride", i)))
        .chain(offset.iter().map(|i| ("offset", i)))
    {
        require(i.ge(0), || format!("`{what}` must not be negative, found {i}"))?;
    }
    // where a tensor without elements begins is not known from its symbols
    if offset.is_none() && m.offset.as_i64().is_none() {
        decide(t.numel().eq(0))?;
    }
    let out =
        Meta { offset: offset.unwrap_or(m.offset), ..m.with_dims(sizes.into(), strides.into()) };
    if !t.is_fake()
        && let Some(c) = out.concrete().filter(|c| c.numel() != Some(0))
    {
        let bytes = t.storage()?.len();
        // an end that overflows lies outside, too
        if c.span().and_then(|(_, end)| usize::try_from(end).ok()).is_none_or(|end| end > bytes) {
            let (sizes, strides) = (dims_text(sizes), dims_text(strides));
            return Err(crate::error::AccessError::OutOfBounds {
                sizes,
                strides,
                offset: out.offset.to_string(),
                bytes,
            }
            .into());
        }
    }
    Ok(out)
}

fn flatten(x: &Tensor, start: i64, end: i64) -> Result<Tensor> {
    let (a, b) = (wrap_dim(start, x.dim())?, wrap_dim(end, x.dim())?);
    if a > b {
        return Err(Error::value(format!(
            "`start_dim` {start} must not come after `end_dim` {end}"
        )));
    }
    if x.dim() == 0 {
        return Ok(x.reshape([1i64]));
    }
    if a == b {
        return Ok(x.clone());
    }
    let mut sizes: Dims = x.sizes()[..a].into();
    sizes.push(product(&x.sizes()[a..=b]));
    sizes.extend_from_slice(&x.sizes()[b + 1..]);
    Ok(x.reshape(sizes))
}

fn unflatten(x: &Tensor, dim: i64, sizes: &[SymInt]) -> Result<Tensor> {
    nonzero_rank(x.meta())?;
    let d = wrap_dim(dim, x.dim())?;
    let mut all: Dims = x.sizes()[..d].into();
    all.extend(reshape::infer_sizes(sizes, x.sizes()[d])?);
    all.extend_from_slice(&x.sizes()[d + 1..]);
    Ok(x.view(all))
}

fn reshape_or_copy(x: &Tensor, wanted: &[SymInt]) -> Result<Tensor> {
    let sizes = reshape::infer_sizes(wanted, x.numel())?;
    Ok(match reshape::view_strides(x.meta(), &sizes)? {
        Some(_) => x.view(sizes),
        None => x.contiguous().view(sizes),
    })
}

pub(super) const fn view(f: fn(&FakeCtx, &[Value]) -> Result<Metas>) -> Lowering {
    Lowering::View(f)
}

const fn number(
    f: fn(&[Value]) -> Result<Outputs>,
    fake: fn(&FakeCtx, &[Value]) -> Result<Outputs>,
) -> Lowering {
    Lowering::Dynamic { observes_strides: true, fake, run: f }
}

pub(super) fn meta(args: &[Value]) -> Result<&Meta> {
    Ok(args[0].tensor()?.meta())
}

fn dim_of(args: &[Value], of: fn(&Meta) -> &Dims) -> Result<Outputs> {
    let m = meta(args)?;
    nonzero_rank(m)?;
    ints(of(m)[wrap_dim(args[1].int_i64()?, m.rank())?])
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        General "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)" =>
            view(|_, a| one(reshape::view(meta(a)?, a[1].ints()?)?)),
        General "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)" =>
            view(|_, a| one(reshape::view_dtype(meta(a)?, a[1].dtype()?)?)),
        // its schema says that the result is fresh, so it is
        General "aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor" =>
            super::copies::unsafe_view(),
        PreservesElements "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)" =>
            Lowering::Composite(|a| done(reshape_or_copy(a[0].tensor()?, a[1].ints()?)?)),
        PreservesElements "aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)" =>
            Lowering::Composite(|a| done(reshape_or_copy(a[0].tensor()?, a[1].tensor()?.sizes())?)),
        General "aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)" =>
            Lowering::Composite(|a| done(a[0].tensor()?.view(a[1].tensor()?.sizes()))),
        PreservesElements "aten::flatten.using_ints(Tensor(a) self, int start_dim=0, \
            int end_dim=-1) -> Tensor(a)" =>
            Lowering::Composite(|a| {
                done(flatten(a[0].tensor()?, a[1].int_i64()?, a[2].int_i64()?)?)
            }),
        General "aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)" =>
            Lowering::Composite(|a| {
                done(unflatten(a[0].tensor()?, a[1].int_i64()?, a[2].ints()?)?)
            }),
        General "aten::expand(Tensor(a) self, SymInt[] size, *, \
            bool implicit=False) -> Tensor(a)" =>
            view(|_, a| one(expand(meta(a)?, a[1].ints()?)?)),
        General "aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)" =>
            Lowering::Composite(|a| done(a[0].tensor()?.expand(a[1].tensor()?.sizes()))),
        General "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)" =>
            view(|_, a| {
                let (m, dims) = (meta(a)?, a[1].ints_i64()?);
                if dims.len() != m.rank() {
                    return Err(Error::value(format!(
                        "`dims` must name all {} dimensions, found \
                    {dims:?}",
                        m.rank()
                    )));
                }
                one(permute(m, &wrap_dims(&dims, m.rank())?))
            }),
        General "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)" =>
            view(|_, a| one(transpose(meta(a)?, a[1].int_i64()?, a[2].int_i64()?)?)),
        General "aten::t(Tensor(a) self) -> Tensor(a)" =>
            view(|_, a| {
                super::dims::require_rank("self", a[0].tensor()?, 0..=2)?;
                let m = meta(a)?;
                one(if m.rank() == 2 { transpose(m, 0, 1)? } else { m.clone() })
            }),
        General "aten::movedim.intlist(Tensor(a) self, int[] source, \
            int[] destination) -> Tensor(a)" =>
            view(|_, a| one(movedim(meta(a)?, &a[1].ints_i64()?, &a[2].ints_i64()?)?)),
        General "aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)" =>
            view(|_, a| one(movedim(meta(a)?, &[a[1].int_i64()?], &[a[2].int_i64()?])?)),
        General "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)" =>
            view(|_, a| one(select(meta(a)?, a[1].int_i64()?, a[2].int()?)?)),
        General "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, \
            SymInt? end=None, SymInt step=1) -> Tensor(a)" =>
            view(|_, a| {
                one(slice(
                    meta(a)?,
                    a[1].int_i64()?,
                    a[2].opt(Value::int)?,
                    a[3].opt(Value::int)?,
                    a[4].int()?,
                )?)
            }),
        General "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)" =>
            view(|_, a| one(narrow(meta(a)?, a[1].int_i64()?, a[2].int()?, a[3].int()?)?)),
        General "aten::squeeze(Tensor(a) self) -> Tensor(a)" =>
            view(|_, a| one(squeeze(meta(a)?, None)?)),
        General "aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)" =>
            view(|_, a| {
                one(squeeze(meta(a)?, Some(&[wrap_dim(a[1].int_i64()?, meta(a)?.rank())?]))?)
            }),
        General "aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)" =>
            view(|_, a| {
                one(squeeze(meta(a)?, Some(&wrap_dims(&a[1].ints_i64()?, meta(a)?.rank())?))?)
            }),
        General "aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)" =>
            view(|_, a| one(unsqueeze(meta(a)?, a[1].int_i64()?)?)),
        General "aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, \
            int dim2=1) -> Tensor(a)" =>
            view(|_, a| {
                one(diagonal(meta(a)?, a[1].int_i64()?, a[2].int_i64()?, a[3].int_i64()?)?)
            }),
        General "aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)" =>
            view(|_, a| one(unfold(meta(a)?, a[1].int_i64()?, a[2].int_i64()?, a[3].int_i64()?)?)),
        AddressesStorage "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, \
            SymInt? storage_offset=None) -> Tensor(a)" =>
            view(|_, a| {
                one(as_strided(a[0].tensor()?, a[1].ints()?, a[2].ints()?, a[3].opt(Value::int)?)?)
            }),
        General "aten::alias(Tensor(a) self) -> Tensor(a)" => view(|_, a| one(meta(a)?.clone())),
        General "aten::detach(Tensor(a) self) -> Tensor(a)" =>
            view(|_, a| one(Meta { requires_grad: false, ..meta(a)?.clone() })),
        MetadataQuery "aten::sym_size.int(Tensor self, int dim) -> SymInt" =>
            number(|a| dim_of(a, |m| &m.sizes), |_, a| dim_of(a, |m| &m.sizes)),
        MetadataQuery "aten::sym_stride.int(Tensor self, int dim) -> SymInt" =>
            number(|a| dim_of(a, |m| &m.strides), |_, a| dim_of(a, |m| &m.strides)),
        MetadataQuery "aten::sym_numel(Tensor self) -> SymInt" =>
            number(|a| ints(meta(a)?.numel()), |_, a| ints(meta(a)?.numel())),
        ObservesStorage "aten::sym_storage_offset(Tensor self) -> SymInt" =>
            number(
                |a| ints(meta(a)?.offset),
                |_, _| {
                    Err(Error::value(
                        "the storage offset of a tensor is not known while tracing: \
                an input may begin anywhere in its storage",
                    ))
                },
            ),
    }
}
