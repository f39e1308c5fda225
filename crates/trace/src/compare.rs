//! Whether a real tensor has the metadata that was promised, whoever can tell what the promised sizes are.

use maquette_ir::{DType, Device, Layout};
use maquette_ops::{Result, Tensor};

/// The metadata promised of a tensor, its sizes in some language `E`.
pub(crate) struct Described<'a, E> {
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) layout: Layout,
    pub(crate) sizes: &'a [E],
    pub(crate) strides: &'a [E],
    pub(crate) offset: E,
    /// Whether strides and offset are promised too.
    pub(crate) placed: bool,
}

/// A difference: what, expected, found.
pub(crate) struct Difference<E> {
    pub(crate) what: String,
    pub(crate) expected: String,
    pub(crate) found: String,
    /// The expression behind the expected number.
    pub(crate) expr: Option<E>,
}

/// The first difference, and whether everything could be compared.
pub(crate) type Verdict<E> = (Option<Difference<E>>, bool);

pub(crate) fn difference<E>(what: impl Into<String>, expected: impl ToString, found: impl ToString) -> Option<Difference<E>> {
    Some(Difference { what: what.into(), expected: expected.to_string(), found: found.to_string(), expr: None })
}

/// Compares a real tensor. `known` evaluates a size, as far as its symbols are known. `starts` are the offsets of other tensors of this storage
/// from which the promised one may be counted.
pub(crate) fn compare<E: Copy>(
    promised: &Described<'_, E>,
    t: &Tensor,
    starts: impl Iterator<Item = i64>,
    known: impl Fn(E) -> Result<Option<i64>>,
) -> Result<Verdict<E>> {
    t.ok()?;
    let rank = promised.sizes.len();
    let fixed = None
        .or_else(|| (promised.dtype != t.dtype()).then(|| difference("dtype", promised.dtype, t.dtype())))
        .or_else(|| (promised.device != t.device()).then(|| difference("device", promised.device, t.device())))
        .or_else(|| (promised.layout != t.layout()).then(|| difference("layout", promised.layout, t.layout())))
        .or_else(|| (rank != t.dim()).then(|| difference("rank", rank, t.dim())));
    if let Some(d) = fixed {
        return Ok((d, true));
    }
    let mut complete = true;
    let mut compare = |what: &dyn Fn() -> String, e: E, found: Option<i64>| -> Result<Option<Difference<E>>> {
        let Some(expected) = known(e)? else {
            complete = false;
            return Ok(None);
        };
        if found == Some(expected) {
            return Ok(None);
        }
        let found = found.map_or_else(|| "a symbol".to_owned(), |f| f.to_string());
        Ok(difference(what(), expected, found).map(|d| Difference { expr: Some(e), ..d }))
    };
    for (d, (&e, n)) in promised.sizes.iter().zip(t.sizes()).enumerate() {
        if let Some(d) = compare(&|| format!("size {d}"), e, n.as_i64())? {
            return Ok((Some(d), true));
        }
    }
    // no element is found through the strides of an empty tensor, or that of a dimension of size 1
    if !promised.placed || t.sizes().iter().any(|n| n.as_i64() == Some(0)) {
        return Ok((None, complete));
    }
    for (d, ((&e, s), n)) in promised.strides.iter().zip(t.strides()).zip(t.sizes()).enumerate() {
        if n.as_i64() != Some(1)
            && let Some(d) = compare(&|| format!("stride {d}"), e, s.as_i64())?
        {
            return Ok((Some(d), true));
        }
    }
    let found = t.storage_offset().as_i64();
    for start in starts {
        if compare(&|| "offset".to_owned(), promised.offset, found.map(|o| o - start))?.is_none() {
            return Ok((None, complete));
        }
    }
    let offset = compare(&|| "offset".to_owned(), promised.offset, found)?;
    Ok((offset, complete))
}
