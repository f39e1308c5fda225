//! Views of some of the elements along a dimension: `select`, `slice`, `narrow`, `diagonal`,
//! `unfold`. The same rules serve constant and symbolic sizes.

use super::views::nonzero_rank;
use maquette_ir::sym::SymInt;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::dims::{decide, decide_or_deny, div_ceil, is_zero, require};
use maquette_ops::operator::{dims_text, wrap_dim};
use maquette_ops::{Dims, Error, Meta, Result};

/// An index or slice bound that counts from the end if it is negative. A data-dependent one is
/// asserted not to be negative.
#[track_caller]
fn from_end(i: SymInt, n: SymInt) -> Result<SymInt> {
    let negative = match i.as_i64() {
        Some(i) => i < 0,
        None => decide_or_deny(i.lt(0), i.ge(0), &format!("the index {i} must not be negative"))?,
    };
    Ok(if negative { i + n } else { i })
}

/// The view of one index of a dimension, without the dimension.
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
    Ok(out.with_offset(m.offset() + i * stride))
}

/// `min(lo, hi)`, which stays free of `min` if the order is provable.
fn at_most(lo: SymInt, hi: SymInt) -> SymInt {
    match lo.le(hi).statically_known() {
        Some(true) => lo,
        Some(false) => hi,
        None => lo.min(hi),
    }
}

/// The view of the indices `start, start + step, …` below `end`. As in Python, bounds are clamped.
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
    out.strides[d] = m.strides[d] * step;
    Ok(out.with_offset(m.offset() + start * m.strides[d]))
}

/// The view of `length` indices from `start`.
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
    Ok(out.with_offset(m.offset() + start * m.strides[d]))
}

/// The view of a diagonal of two dimensions, as a new last dimension.
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
    let out = m.with_dims(sizes, strides);
    // PyTorch does not move the offset of an empty diagonal. A size that is 0 in the sample is
    // guarded to be 0; any other symbolic size is taken as nonzero.
    if is_zero(n)? {
        return Ok(out);
    }
    let moved =
        if offset >= 0 { m.strides[b] * offset } else { m.strides[a] * (SymInt::from(0) - offset) };
    Ok(out.with_offset(m.offset() + moved))
}

/// Windows of `size` elements, `step` apart, as a new last dimension.
#[track_caller]
pub(crate) fn unfold(m: &Meta, dim: i64, size: i64, step: i64) -> Result<Meta> {
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
    // The positions of a second window would not fit `i64` if the step is very long. A guard says
    // that there is none.
    const LONG: i64 = 1 << 48;
    let is_one_window = step >= LONG && decide((n - size).lt(step))?;
    if d < m.rank() {
        out.sizes[d] = if is_one_window { 1.into() } else { (n - size).floor_div(step) + 1 };
        out.strides[d] = stride * step;
    }
    out.sizes.push(size.into());
    out.strides.push(stride);
    Ok(out)
}
