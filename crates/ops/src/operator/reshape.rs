//! `view`: whether the elements can be seen under other sizes without a copy, and with which
//! strides.
//!
//! [`view_strides`] is the algorithm of PyTorch's `computeStride`. Consecutive dimensions that are
//! contiguous with one another form a run. A view exists if the new sizes split each run exactly.
//! The cost is linear in the number of dimensions. With symbolic sizes, the comparisons become
//! guards, unless the tensor is provably contiguous.

use super::dims::{decide, is_open, known_equal, product, require};
use crate::error::{Error, Result};
use crate::tensor::dims_text;
use crate::tensor::meta::{Dims, Meta};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use smallvec::smallvec;

/// Replaces a size of -1 by the quotient of `numel` and the other sizes. Requires the product of
/// the sizes to be `numel`.
#[track_caller]
pub fn infer_sizes(wanted: &[SymInt], numel: SymInt) -> Result<Dims> {
    let mut sizes: Dims = wanted.into();
    let mut free: Option<usize> = None;
    let mut known = SymInt::from(1);
    for (d, n) in wanted.iter().enumerate() {
        match n.as_i64() {
            _ if is_open(*n)? && free.is_none() => free = Some(d),
            _ if is_open(*n)? => {
                return Err(Error::value(format!(
                    "only one size can be -1, found sizes {}",
                    dims_text(wanted)
                )));
            }
            Some(n) if n < 0 => {
                return Err(Error::value(format!(
                    "sizes must not be negative, found {n} in {}",
                    dims_text(wanted)
                )));
            }
            _ => known *= *n,
        }
    }
    let mismatch =
        || format!("sizes {} do not hold the {numel} elements of the tensor", dims_text(wanted));
    match free {
        None => require(known.eq(numel), mismatch)?,
        Some(d) => {
            if known.as_i64() == Some(0) {
                return Err(Error::value(format!(
                    "cannot infer the size -1 in {}, because another size is 0",
                    dims_text(wanted)
                )));
            }
            if !known_equal(known, numel) && known.as_i64() != Some(1) {
                require(known.ne(0), || {
                    format!("cannot infer the size -1 in {} if {known} is 0", dims_text(wanted))
                })?;
                require(numel.modulo(known).eq(0), mismatch)?;
            }
            sizes[d] = numel.floor_div(known);
        }
    }
    Ok(sizes)
}

/// Whether a tensor is contiguous, for all values of its symbols. It then has a contiguous view of
/// any sizes.
pub fn is_known_contiguous(m: &Meta) -> bool {
    let expected = contiguous_strides(&m.sizes);
    let strides = expected.iter().zip(&m.strides);
    m.sizes.iter().any(|n| n.as_i64() == Some(0))
        || m.sizes
            .iter()
            .zip(strides)
            .all(|(n, (&a, &b))| n.as_i64() == Some(1) || known_equal(a, b))
}

/// The strides with which the elements of `from` appear under `sizes`, which have the same product.
/// `None` if only a copy has these sizes.
#[track_caller]
pub fn view_strides(from: &Meta, sizes: &[SymInt]) -> Result<Option<Dims>> {
    let (old, strides) = (from.sizes.as_slice(), from.strides.as_slice());
    if old.len() == sizes.len() && old.iter().zip(sizes).all(|(&a, &b)| known_equal(a, b)) {
        return Ok(Some(strides.into()));
    }
    // This case needs no guard, and symbolic sizes rarely need another.
    if is_known_contiguous(from) {
        return Ok(Some(contiguous_strides(sizes)));
    }
    let mut out: Dims = smallvec![SymInt::from(1); sizes.len()];
    let mut next = sizes.len();
    let mut base = strides[old.len() - 1];
    let mut have = SymInt::from(1);
    for d in (0..old.len()).rev() {
        have *= old[d];
        // A run ends where the stride of the next outer dimension does not continue it.
        let ends = d == 0 || !(continues(old[d - 1], strides[d - 1], have * base)?);
        if !ends {
            continue;
        }
        let mut taken = SymInt::from(1);
        while next > 0
            && (sizes[next - 1].as_i64() == Some(1)
                || (!known_equal(taken, have) && decide(taken.lt(have))?))
        {
            next -= 1;
            out[next] = taken * base;
            taken *= sizes[next];
        }
        if !known_equal(taken, have) && !decide(taken.eq(have))? {
            // An empty tensor has a view of any sizes.
            return Ok(if decide(product(old).eq(0))? {
                Some(contiguous_strides(sizes))
            } else {
                None
            });
        }
        if d > 0 {
            base = strides[d - 1];
            have = SymInt::from(1);
        } else {
            // The numbers of elements agree, so the remaining sizes are 1.
            out[..next].fill(taken * base);
        }
    }
    Ok(Some(out))
}

/// Whether a dimension continues the run that is inside it.
#[track_caller]
fn continues(size: SymInt, stride: SymInt, expected: SymInt) -> Result<bool> {
    if known_equal(stride, expected) || size.as_i64() == Some(1) {
        return Ok(true);
    }
    Ok(decide(stride.eq(expected))? || decide(size.eq(1))?)
}

/// The metadata of a view under other sizes, of which one may be -1.
#[track_caller]
pub fn view(from: &Meta, wanted: &[SymInt]) -> Result<Meta> {
    let sizes = infer_sizes(wanted, product(&from.sizes))?;
    match view_strides(from, &sizes)? {
        Some(strides) => Ok(from.with_dims(sizes, strides)),
        None => Err(Error::value(format!(
            "a view of sizes {} is not possible for a tensor of sizes {} and strides {}: a \
                dimension would span two regions of memory; use `reshape`, which copies if \
                necessary",
            dims_text(&sizes),
            dims_text(&from.sizes),
            dims_text(&from.strides)
        ))),
    }
}

/// The metadata of a view as another dtype. The last dimension and the strides scale with the ratio
/// of the element widths.
#[track_caller]
pub fn view_dtype(from: &Meta, dtype: maquette_ir::DType) -> Result<Meta> {
    use maquette_ir::DType::Bool;
    if dtype == from.dtype {
        return Ok(from.clone());
    }
    if dtype == Bool || from.dtype == Bool {
        return Err(Error::value(format!(
            "bytes of {} cannot be viewed as {dtype}: not every byte is a bool; use `to_dtype`",
            from.dtype
        )));
    }
    let (old, new) = (from.dtype.size() as i64, dtype.size() as i64);
    let mut meta = Meta { dtype, ..from.with_dims(from.sizes.clone(), from.strides.clone()) };
    if old == new {
        return Ok(meta);
    }
    let Some(last) = from.rank().checked_sub(1) else {
        return Err(Error::value(format!(
            "a 0-d tensor of {} cannot be viewed as {dtype}, which has another element size",
            from.dtype
        )));
    };
    require(from.strides[last].eq(1), || {
        format!(
            "the last dimension must have stride 1 to be viewed as {dtype}, found {}",
            from.strides[last]
        )
    })?;
    if old > new {
        let k = old / new;
        meta.sizes[last] *= k;
        meta.strides[..last].iter_mut().for_each(|s| *s *= k);
        meta.offset *= k;
    } else {
        let k = new / old;
        for (what, n) in [("last size", from.sizes[last]), ("offset", from.offset)]
            .into_iter()
            .chain(from.strides[..last].iter().map(|&s| ("stride", s)))
        {
            require(n.modulo(k).eq(0), || {
                format!(
                    "the {what} {n} must be divisible by {k} for elements of {} to be viewed as \
                        {dtype}",
                    from.dtype
                )
            })?;
        }
        meta.sizes[last] = meta.sizes[last].floor_div(k);
        meta.strides[..last].iter_mut().for_each(|s| *s = s.floor_div(k));
        meta.offset = meta.offset.floor_div(k);
    }
    Ok(meta)
}
