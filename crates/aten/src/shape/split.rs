//! Views that split a dimension into parts. The number of results must be known, so symbolic sizes
//! are guarded as far as they decide the number of parts.

use super::views::{meta, nonzero_rank, one, select, slice, view};
use maquette_ir::sym::SymInt;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::dims::{div_ceil, is_zero, require};
use maquette_ops::operator::lowering::Metas;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::operator::{require_equal, wrap_dim};
use maquette_ops::{Error, Meta, Result};

/// The views of consecutive parts of the given lengths.
fn pieces(m: &Meta, d: usize, lengths: impl Iterator<Item = SymInt>) -> Metas {
    let mut start = SymInt::from(0);
    lengths
        .map(|length| {
            let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
            out.sizes[d] = length;
            let out = out.with_offset(m.offset() + start * m.strides[d]);
            start += length;
            out
        })
        .collect()
}

/// The limit on the number of parts, against sizes that are mistakes.
const MOST_PIECES: i64 = 1 << 24;

fn piece_count(count: SymInt) -> Result<i64> {
    let count = count.as_i64().map_or_else(|| count.guard_int(), Ok)?.max(1);
    if count > MOST_PIECES {
        return Err(Error::value(format!(
            "{count} pieces exceed the limit of {MOST_PIECES} for a list"
        )));
    }
    Ok(count)
}

/// Parts of `size` elements. The last part may be shorter.
#[track_caller]
pub(crate) fn split(m: &Meta, size: SymInt, dim: i64) -> Result<Metas> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    let n = m.sizes[d];
    require(size.ge(0), || format!("`split_size` must not be negative, found {size}"))?;
    if is_zero(size)? {
        require(n.eq(0), || {
            format!("`split_size` can be 0 only if the dimension is empty, found size {n}")
        })?;
        return one(m.clone());
    }
    let count = div_ceil(n, size);
    if count.as_i64().is_some() {
        require(size.gt(0), || {
            format!("`split_size` can be 0 only if the dimension is empty, found size {n}")
        })?;
    }
    let count = piece_count(count)?;
    let last = n - size * (count - 1);
    Ok(pieces(m, d, (0..count).map(|i| if i + 1 < count { size } else { last })))
}

/// Parts of the given lengths, which must add up to the size of the dimension.
#[track_caller]
pub(crate) fn split_with_sizes(m: &Meta, lengths: &[SymInt], dim: i64) -> Result<Metas> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    let total = lengths.iter().fold(SymInt::from(0), |n, &l| n + l);
    for &l in lengths {
        require(l.ge(0), || {
            format!("`split_sizes` must not be negative, found {}", dims_text(lengths))
        })?;
    }
    let mismatch = || {
        Error::value(format!(
            "`split_sizes` {} must add up to {}, the size of dimension {dim}",
            dims_text(lengths),
            m.sizes[d]
        ))
    };
    require_equal(total, m.sizes[d], &mismatch)?;
    Ok(pieces(m, d, lengths.iter().copied()))
}

/// At most `chunks` parts of equal length. The last part may be shorter.
#[track_caller]
pub(crate) fn chunk(m: &Meta, chunks: i64, dim: i64) -> Result<Metas> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    if chunks < 1 {
        return Err(Error::value(format!("`chunks` must be positive, found {chunks}")));
    }
    let n = m.sizes[d];
    if is_zero(n)? {
        return Ok(pieces(m, d, (0..piece_count(chunks.into())?).map(|_| 0.into())));
    }
    split(m, div_ceil(n, chunks.into()), dim)
}

/// `sections` parts, whose lengths differ by at most 1. The longer parts come first.
#[track_caller]
fn tensor_split(m: &Meta, sections: SymInt, dim: i64) -> Result<Metas> {
    nonzero_rank(m)?;
    let d = wrap_dim(dim, m.rank())?;
    let count = sections.as_i64().map_or_else(|| sections.guard_int(), Ok)?;
    if count < 1 {
        return Err(Error::value(format!("`sections` must be positive, found {count}")));
    }
    let n = m.sizes[d];
    Ok(pieces(
        m,
        d,
        (0..piece_count(count.into())?).map(|i| (n + (count - 1 - i)).floor_div(count)),
    ))
}

/// The parts between the indices, which are clamped as slice bounds are.
#[track_caller]
fn split_at(m: &Meta, indices: &[SymInt], dim: i64) -> Result<Metas> {
    let starts = std::iter::once(None).chain(indices.iter().copied().map(Some));
    let ends = indices.iter().copied().map(Some).chain([None]);
    starts.zip(ends).map(|(start, end)| slice(m, dim, start, end, 1.into())).collect()
}

/// The dimension that `hsplit`, `vsplit` and `dsplit` split: 1, 0 and 2. `hsplit` of a vector
/// splits dimension 0.
fn fixed_dim(m: &Meta, dim: usize) -> Result<i64> {
    let least = [2, 1, 3].get(dim).copied().unwrap_or(1);
    if m.rank() < least {
        return Err(Error::value(format!(
            "the tensor must have at least {least} dimensions, found sizes {}",
            dims_text(&m.sizes)
        )));
    }
    Ok(if m.rank() == 1 { 0 } else { dim as i64 })
}

/// `sections` parts of equal length.
#[track_caller]
fn split_evenly(m: &Meta, sections: i64, dim: usize) -> Result<Metas> {
    let dim = fixed_dim(m, dim)?;
    let n = m.sizes[wrap_dim(dim, m.rank())?];
    if sections < 1 {
        return Err(Error::value(format!("`sections` must be positive, found {sections}")));
    }
    require(n.modulo(sections).eq(0), || {
        format!("dimension {dim} of size {n} must be divisible into {sections} sections")
    })?;
    tensor_split(m, sections.into(), dim)
}

#[track_caller]
fn unbind(m: &Meta, dim: i64) -> Result<Metas> {
    nonzero_rank(m)?;
    let n = m.sizes[wrap_dim(dim, m.rank())?];
    let n = if is_zero(n)? { 0 } else { piece_count(n)? };
    (0..n).map(|i| select(m, dim, i.into())).collect()
}

table! {
    /// Splits of a dimension.
    static TABLE = {
        "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, \
            int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split(meta(a)?, a[1].int()?, a[2].int_i64()?)),
            vjp: crate::grad::PLACED,
        },
        "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, \
            int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_with_sizes(meta(a)?, a[1].ints()?, a[2].int_i64()?)),
            vjp: crate::grad::PLACED,
        },
        "aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| chunk(meta(a)?, a[1].int_i64()?, a[2].int_i64()?)),
            vjp: crate::grad::PLACED,
        },
        "aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, \
            int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| tensor_split(meta(a)?, a[1].int()?, a[2].int_i64()?)),
            vjp: crate::grad::PLACED,
        },
        "aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, \
            int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_at(meta(a)?, a[1].ints()?, a[2].int_i64()?)),
            vjp: crate::grad::PLACED,
        },
        "aten::vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_evenly(meta(a)?, a[1].int_i64()?, 0)),
            vjp: crate::grad::PLACED,
        },
        "aten::hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_evenly(meta(a)?, a[1].int_i64()?, 1)),
            vjp: crate::grad::PLACED,
        },
        "aten::dsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_evenly(meta(a)?, a[1].int_i64()?, 2)),
            vjp: crate::grad::PLACED,
        },
        "aten::vsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_at(meta(a)?, a[1].ints()?, fixed_dim(meta(a)?, 0)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::hsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_at(meta(a)?, a[1].ints()?, fixed_dim(meta(a)?, 1)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::dsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| split_at(meta(a)?, a[1].ints()?, fixed_dim(meta(a)?, 2)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: view(|_, a| unbind(meta(a)?, a[1].int_i64()?)),
            vjp: crate::grad::PLACED,
        },
    }
}
