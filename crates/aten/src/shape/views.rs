//! The table of views: operators whose results are other metadata over the same storage. The rules
//! are in `expand`, `permute`, `slicing`, `reshape` and, for `as_strided`, here. They serve
//! constant and symbolic sizes alike.

use super::permute::{movedim, permute, squeeze};
use super::slicing::unfold;
use crate::grad;
use maquette_ir::sym::SymInt;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{decide, done, product, require};
use maquette_ops::operator::lowering::{Lowering, Metas};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, reshape, table};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

pub(crate) use super::expand::expand;
pub(crate) use super::permute::{transpose, unsqueeze};
pub(crate) use super::slicing::{diagonal, narrow, select, slice};

pub(crate) fn one(m: Meta) -> Result<Metas> {
    Ok(smallvec![m])
}

fn ints(i: impl Into<SymInt>) -> Result<Outputs> {
    Ok(smallvec![Value::Int(i.into())])
}

/// Wraps negative dimensions. Each dimension may occur only once.
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

/// Requires at least one dimension.
pub(crate) fn nonzero_rank(m: &Meta) -> Result<()> {
    if m.rank() == 0 { Err(Error::value("a 0-d tensor has no dimension to index")) } else { Ok(()) }
}

/// The view with the given sizes, strides and absolute offset; without an offset, with that of `t`.
///
/// # Errors
/// An element of the view lies outside the storage. A fake tensor has no storage to check.
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
    // The symbolic offset of an empty tensor may be wrong (see `diagonal`), so a guard decides
    // whether the tensor is empty.
    if offset.is_none() && m.offset().as_i64().is_none() {
        decide(t.numel().eq(0))?;
    }
    let out = m.with_dims(sizes.into(), strides.into()).with_offset(offset.unwrap_or(m.offset()));
    if !t.is_fake()
        && let Some(c) = out.concrete().filter(|c| c.numel() != Some(0))
    {
        let bytes = t.own_storage()?.len();
        // An end that overflows `i64` lies outside the storage too.
        if c.span().and_then(|(_, end)| usize::try_from(end).ok()).is_none_or(|end| end > bytes) {
            let (sizes, strides) = (dims_text(sizes), dims_text(strides));
            return Err(maquette_ops::AccessError::OutOfBounds {
                sizes,
                strides,
                offset: out.offset().to_string(),
                bytes,
            }
            .into());
        }
    }
    Ok(out)
}

/// Merges the dimensions `start..=end`.
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

/// Splits a dimension into `sizes`, of which one may be -1.
fn unflatten(x: &Tensor, dim: i64, sizes: &[SymInt]) -> Result<Tensor> {
    nonzero_rank(x.meta())?;
    let d = wrap_dim(dim, x.dim())?;
    let mut all: Dims = x.sizes()[..d].into();
    all.extend(reshape::infer_sizes(sizes, x.sizes()[d])?);
    all.extend_from_slice(&x.sizes()[d + 1..]);
    Ok(x.view(all))
}

/// A view if the layout permits one, else a copy.
fn reshape_or_copy(x: &Tensor, wanted: &[SymInt]) -> Result<Tensor> {
    let sizes = reshape::infer_sizes(wanted, x.numel())?;
    Ok(match reshape::view_strides(x.meta(), &sizes)? {
        Some(_) => x.view(sizes),
        None => x.contiguous().view(sizes),
    })
}

pub(crate) const fn view(f: fn(&FakeCtx, &[Value]) -> Result<Metas>) -> Lowering {
    Lowering::View(f)
}

const fn number(
    f: fn(&[Value]) -> Result<Outputs>,
    fake: fn(&FakeCtx, &[Value]) -> Result<Outputs>,
) -> Lowering {
    Lowering::Dynamic { observes_strides: true, fake, run: f }
}

pub(crate) fn meta(args: &[Value]) -> Result<&Meta> {
    Ok(args[0].tensor()?.meta())
}

fn dim_of(args: &[Value], of: fn(&Meta) -> &Dims) -> Result<Outputs> {
    let m = meta(args)?;
    nonzero_rank(m)?;
    ints(of(m)[wrap_dim(args[1].int_i64()?, m.rank())?])
}

table! {
    /// Views, and queries of metadata.
    static TABLE = {
        "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(reshape::view(meta(a)?, a[1].ints()?)?)),
            vjp: grad::RESHAPED,
        },
        "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(reshape::view_dtype(meta(a)?, a[1].dtype()?)?)),
            vjp: Derivative::None("the bits have another meaning"),
        },
        // The schema declares a fresh result, so this operator copies.
        "aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor" => {
            role: General,
            lowering: crate::create::copies::unsafe_view(),
            vjp: crate::grad::RESHAPED,
        },
        "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| done(reshape_or_copy(a[0].tensor()?, a[1].ints()?)?)),
        },
        "aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(
                |a| done(reshape_or_copy(a[0].tensor()?, a[1].tensor()?.sizes())?),
            ),
        },
        "aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| done(a[0].tensor()?.view(a[1].tensor()?.sizes()))),
        },
        "aten::flatten.using_ints(Tensor(a) self, int start_dim=0, \
            int end_dim=-1) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                done(flatten(a[0].tensor()?, a[1].int_i64()?, a[2].int_i64()?)?)
            }),
        },
        "aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(unflatten(a[0].tensor()?, a[1].int_i64()?, a[2].ints()?)?)
            }),
        },
        "aten::expand(Tensor(a) self, SymInt[] size, *, \
            bool implicit=False) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(expand(meta(a)?, a[1].ints()?)?)),
            vjp: grad::EXPANDED,
        },
        "aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| done(a[0].tensor()?.expand(a[1].tensor()?.sizes()))),
        },
        "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| {
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
            vjp: grad::PERMUTED,
        },
        "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(transpose(meta(a)?, a[1].int_i64()?, a[2].int_i64()?)?)),
            vjp: grad::TRANSPOSED,
        },
        "aten::t(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| {
                maquette_ops::operator::dims::require_rank("self", a[0].tensor()?, 0..=2)?;
                let m = meta(a)?;
                one(if m.rank() == 2 { transpose(m, 0, 1)? } else { m.clone() })
            }),
            vjp: grad::T,
        },
        "aten::movedim.intlist(Tensor(a) self, int[] source, \
            int[] destination) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(movedim(meta(a)?, &a[1].ints_i64()?, &a[2].ints_i64()?)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(movedim(meta(a)?, &[a[1].int_i64()?], &[a[2].int_i64()?])?)),
            vjp: crate::grad::PLACED,
        },
        "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(select(meta(a)?, a[1].int_i64()?, a[2].int()?)?)),
            vjp: grad::PLACED,
        },
        "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, \
            SymInt? end=None, SymInt step=1) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| {
                one(slice(
                    meta(a)?,
                    a[1].int_i64()?,
                    a[2].opt(Value::int)?,
                    a[3].opt(Value::int)?,
                    a[4].int()?,
                )?)
            }),
            vjp: grad::PLACED,
        },
        "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)" => {
            role: General,
            lowering: view(
                |_,
                a| one(narrow(meta(a)?, a[1].int_i64()?, a[2].int()?, a[3].int()?)?),
            ),
            vjp: grad::PLACED,
        },
        "aten::squeeze(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(squeeze(meta(a)?, None)?)),
            vjp: grad::RESHAPED,
        },
        "aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| {
                one(squeeze(meta(a)?, Some(&[wrap_dim(a[1].int_i64()?, meta(a)?.rank())?]))?)
            }),
            vjp: grad::RESHAPED,
        },
        "aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| {
                one(squeeze(meta(a)?, Some(&wrap_dims(&a[1].ints_i64()?, meta(a)?.rank())?))?)
            }),
            vjp: grad::RESHAPED,
        },
        "aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(unsqueeze(meta(a)?, a[1].int_i64()?)?)),
            vjp: grad::RESHAPED,
        },
        "aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, \
            int dim2=1) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| {
                one(diagonal(meta(a)?, a[1].int_i64()?, a[2].int_i64()?, a[3].int_i64()?)?)
            }),
            vjp: grad::PLACED,
        },
        "aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)" => {
            role: General,
            lowering: view(
                |_,
                a| one(unfold(meta(a)?, a[1].int_i64()?, a[2].int_i64()?, a[3].int_i64()?)?),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, \
            SymInt? storage_offset=None) -> Tensor(a)" => {
            role: AddressesStorage,
            lowering: view(|_, a| {
                one(as_strided(a[0].tensor()?, a[1].ints()?, a[2].ints()?, a[3].opt(Value::int)?)?)
            }),
            vjp: crate::grad::STRIDED,
        },
        "aten::alias(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: view(|_, a| one(meta(a)?.clone())),
            vjp: grad::EXPANDED,
        },
        "aten::detach(Tensor(a) self) -> Tensor(a)" => {
            role: Detaches,
            lowering: view(|_, a| one(meta(a)?.clone())),
            vjp: Derivative::None("it cuts the history"),
        },
        "aten::sym_size.int(Tensor self, int dim) -> SymInt" => {
            role: MetadataQuery,
            lowering: number(|a| dim_of(a, |m| &m.sizes), |_, a| dim_of(a, |m| &m.sizes)),
        },
        "aten::sym_stride.int(Tensor self, int dim) -> SymInt" => {
            role: MetadataQuery,
            lowering: number(|a| dim_of(a, |m| &m.strides), |_, a| dim_of(a, |m| &m.strides)),
        },
        "aten::sym_numel(Tensor self) -> SymInt" => {
            role: MetadataQuery,
            lowering: number(|a| ints(meta(a)?.numel()), |_, a| ints(meta(a)?.numel())),
        },
        "aten::sym_storage_offset(Tensor self) -> SymInt" => {
            role: ObservesStorage,
            lowering: number(
                |a| ints(meta(a)?.offset()),
                |_, _| {
                    Err(Error::value(
                        "the storage offset of a tensor is not known while tracing: \
                an input may begin anywhere in its storage",
                    ))
                },
            ),
            vjp: Derivative::None("a number has no history"),
        },
    }
}
