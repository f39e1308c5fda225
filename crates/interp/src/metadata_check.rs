//! Whether a real tensor has the metadata that a fake kernel promised. The sizes may be in any
//! language that the caller can evaluate: a graph's expressions, or a running trace's symbols.

use maquette_ir::{DType, Device, Layout};
use maquette_ops::{Result, Tensor};

/// How much of a tensor's layout is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutPromise {
    /// Nothing: any strides are right.
    Nothing,
    /// Its strides.
    Strides,
    /// Its strides, and its offset in its storage.
    StridesAndOffset,
}

/// The metadata promised of a tensor, its sizes in some language `E`.
pub struct ExpectedMeta<'a, E> {
    /// Its element type.
    pub dtype: DType,
    /// Its device.
    pub device: Device,
    /// Its layout.
    pub layout: Layout,
    /// Its sizes.
    pub sizes: &'a [E],
    /// Its strides.
    pub strides: &'a [E],
    /// Its offset.
    pub offset: E,
    /// Whether strides and offset are promised too.
    pub promise: LayoutPromise,
}

/// A property of a tensor that is not the promised one.
pub struct MetadataMismatch<E> {
    /// The property that differs.
    pub what: String,
    /// Its promised value.
    pub expected: String,
    /// Its value.
    pub found: String,
    /// The expression behind the expected number.
    pub expr: Option<E>,
}

/// The first mismatch, and whether everything could be compared.
pub type CheckResult<E> = (Option<MetadataMismatch<E>>, bool);

pub(crate) fn mismatch<E>(
    what: impl Into<String>,
    expected: impl ToString,
    found: impl ToString,
) -> Option<MetadataMismatch<E>> {
    Some(MetadataMismatch {
        what: what.into(),
        expected: expected.to_string(),
        found: found.to_string(),
        expr: None,
    })
}

/// Compares a real tensor. `known` evaluates a size, as far as its symbols are known. `begins_at`
/// says whether another tensor of this storage, from which the promised offset may be counted,
/// begins at an offset.
///
/// # Errors
/// The tensor is poisoned, or `known` fails.
pub fn check_metadata<E: Copy>(
    expected_meta: &ExpectedMeta<'_, E>,
    t: &Tensor,
    begins_at: impl Fn(i64) -> bool,
    known: impl Fn(E) -> Result<Option<i64>>,
) -> Result<CheckResult<E>> {
    t.ok()?;
    let rank = expected_meta.sizes.len();
    let fixed = None
        .or_else(|| {
            (expected_meta.dtype != t.dtype())
                .then(|| mismatch("dtype", expected_meta.dtype, t.dtype()))
        })
        .or_else(|| {
            (expected_meta.device != t.device())
                .then(|| mismatch("device", expected_meta.device, t.device()))
        })
        .or_else(|| {
            (expected_meta.layout != t.layout())
                .then(|| mismatch("layout", expected_meta.layout, t.layout()))
        })
        .or_else(|| (rank != t.dim()).then(|| mismatch("rank", rank, t.dim())));
    if let Some(d) = fixed {
        return Ok((d, true));
    }
    let mut complete = true;
    let mut check_expr = |what: &dyn Fn() -> String,
                          e: E,
                          found: Option<i64>|
     -> Result<Option<MetadataMismatch<E>>> {
        let Some(expected) = known(e)? else {
            complete = false;
            return Ok(None);
        };
        if found == Some(expected) {
            return Ok(None);
        }
        let found = found.map_or_else(|| "a symbol".to_owned(), |f| f.to_string());
        Ok(mismatch(what(), expected, found).map(|d| MetadataMismatch { expr: Some(e), ..d }))
    };
    for (d, (&e, n)) in expected_meta.sizes.iter().zip(t.sizes()).enumerate() {
        if let Some(d) = check_expr(&|| format!("size {d}"), e, n.as_i64())? {
            return Ok((Some(d), true));
        }
    }
    // no element is found through the strides of an empty tensor, or that of a dimension of size 1
    let is_empty = t.sizes().iter().any(|n| n.as_i64() == Some(0));
    if expected_meta.promise == LayoutPromise::Nothing || is_empty {
        return Ok((None, complete));
    }
    for (d, ((&e, s), n)) in
        expected_meta.strides.iter().zip(t.strides()).zip(t.sizes()).enumerate()
    {
        if n.as_i64() != Some(1)
            && let Some(d) = check_expr(&|| format!("stride {d}"), e, s.as_i64())?
        {
            return Ok((Some(d), true));
        }
    }
    if expected_meta.promise == LayoutPromise::Strides {
        return Ok((None, complete));
    }
    let found = t.storage_offset().as_i64();
    let offset = check_expr(&|| "offset".to_owned(), expected_meta.offset, found)?;
    let start = known(expected_meta.offset)?.zip(found).map(|(expected, found)| found - expected);
    Ok((offset.filter(|_| !start.is_some_and(begins_at)), complete))
}
