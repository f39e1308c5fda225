//! Views that reorder, insert or remove dimensions: `permute`, `transpose`, `movedim`, `squeeze`,
//! `unsqueeze`.

use super::views::wrap_dims;
use maquette_ops::operator::dims::is_one;
use maquette_ops::operator::wrap_dim;
use maquette_ops::{Error, Meta, Result};
use smallvec::SmallVec;

/// The view whose dimension `i` is dimension `order[i]` of `m`.
pub(crate) fn permute(m: &Meta, order: &[usize]) -> Meta {
    m.with_dims(
        order.iter().map(|&d| m.sizes[d]).collect(),
        order.iter().map(|&d| m.strides[d]).collect(),
    )
}

/// Swaps two dimensions.
pub(crate) fn transpose(m: &Meta, a: i64, b: i64) -> Result<Meta> {
    let (a, b) = (wrap_dim(a, m.rank())?, wrap_dim(b, m.rank())?);
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    if m.rank() > 0 {
        out.sizes.swap(a, b);
        out.strides.swap(a, b);
    }
    Ok(out)
}

/// Moves the dimensions `from` to the positions `to`. The other dimensions keep their order.
pub(crate) fn movedim(m: &Meta, from: &[i64], to: &[i64]) -> Result<Meta> {
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

/// Removes dimensions of size 1: those in `only`, or all.
#[track_caller]
pub(crate) fn squeeze(m: &Meta, only: Option<&[usize]>) -> Result<Meta> {
    let mut kept: SmallVec<[usize; 6]> = SmallVec::new();
    for d in 0..m.rank() {
        if !only.is_none_or(|o| o.contains(&d)) || !is_one(m.sizes[d])? {
            kept.push(d);
        }
    }
    Ok(permute(m, &kept))
}

/// Inserts a dimension of size 1.
pub(crate) fn unsqueeze(m: &Meta, dim: i64) -> Result<Meta> {
    let d = wrap_dim(dim, m.rank() + 1)?;
    let stride = if d < m.rank() { m.sizes[d] * m.strides[d] } else { 1.into() };
    let mut out = m.with_dims(m.sizes.clone(), m.strides.clone());
    out.sizes.insert(d, 1.into());
    out.strides.insert(d, stride);
    Ok(out)
}
