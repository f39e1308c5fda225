//! Compares the metadata of a real tensor with the metadata that a graph declares or that a fake
//! kernel promised.
//!
//! Expected sizes may be of any type `E` that the caller can evaluate: expressions of a graph, or
//! symbolic integers of a running trace. Runs, traces with real tensors, opcheck and the tests of
//! wrong calls all use [`check_metadata`].

use maquette_ir::graph::TensorType;
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::{DType, Device, Layout};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Meta, Result, Tensor};

/// The part of a tensor's layout that a promise includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutPromise {
    /// Neither strides nor offset.
    Nothing,
    /// The strides.
    Strides,
    /// The strides, and the offset in the storage.
    StridesAndOffset,
}

/// The promised metadata of a tensor, with sizes of type `E`.
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
    /// The part of the layout that is promised.
    pub promise: LayoutPromise,
}

impl<'a> ExpectedMeta<'a, SymInt> {
    /// All the metadata of a fake tensor.
    pub fn of(meta: &'a Meta) -> ExpectedMeta<'a, SymInt> {
        ExpectedMeta {
            dtype: meta.dtype,
            device: meta.device,
            layout: meta.layout,
            sizes: &meta.sizes,
            strides: &meta.strides,
            offset: meta.offset(),
            promise: LayoutPromise::StridesAndOffset,
        }
    }
}

impl<'a> ExpectedMeta<'a, Expr> {
    /// The metadata that a graph declares for a tensor.
    pub fn declared(ty: &'a TensorType, promise: LayoutPromise) -> ExpectedMeta<'a, Expr> {
        ExpectedMeta {
            dtype: ty.dtype,
            device: ty.device,
            layout: ty.layout,
            sizes: &ty.sizes,
            strides: &ty.strides,
            offset: ty.offset,
            promise,
        }
    }
}

/// A property of a tensor that differs from the promise.
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

/// The first mismatch, and whether all properties could be compared.
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

/// How a promised number compares with the real one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberCheck {
    /// The numbers are equal, as far as the promise is known.
    Holds,
    /// A symbol of the promise has no value yet.
    Unknown,
    /// The numbers differ. The text is the promised number.
    Differs(String),
}

impl NumberCheck {
    /// Compares the promised number, if it is known, with the real one, if that is a plain number.
    pub fn of(promised: Option<i64>, found: Option<i64>) -> NumberCheck {
        match promised {
            None => NumberCheck::Unknown,
            Some(promised) if found == Some(promised) => NumberCheck::Holds,
            Some(promised) => NumberCheck::Differs(promised.to_string()),
        }
    }
}

/// Compares a real tensor with its expected metadata. `check` compares a promised number with the
/// real one. The promised offset may be relative to the storage, or to another tensor of the same
/// storage: `counts_from_other` tells whether the promised offset is relative to such a tensor, for
/// a real offset.
///
/// # Errors
/// The tensor is poisoned, or `check` or `counts_from_other` fails.
pub fn check_metadata<E: Copy>(
    expected_meta: &ExpectedMeta<'_, E>,
    t: &Tensor,
    counts_from_other: impl Fn(E, i64) -> Result<bool>,
    check: impl Fn(E, Option<i64>) -> Result<NumberCheck>,
) -> Result<CheckResult<E>> {
    t.ok()?;
    let rank = expected_meta.sizes.len();
    let constant_mismatch = None
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
    if let Some(mismatch) = constant_mismatch {
        return Ok((mismatch, true));
    }
    let mut complete = true;
    let mut check_expr = |what: &dyn Fn() -> String,
                          e: E,
                          found: Option<i64>|
     -> Result<Option<MetadataMismatch<E>>> {
        let expected = match check(e, found)? {
            NumberCheck::Holds => return Ok(None),
            NumberCheck::Unknown => {
                complete = false;
                return Ok(None);
            }
            NumberCheck::Differs(expected) => expected,
        };
        let found = found.map_or_else(|| "a symbol".to_owned(), |f| f.to_string());
        Ok(mismatch(what(), expected, found).map(|d| MetadataMismatch { expr: Some(e), ..d }))
    };
    for (d, (&e, n)) in expected_meta.sizes.iter().zip(t.sizes()).enumerate() {
        if let Some(mismatch) = check_expr(&|| format!("size {d}"), e, n.as_i64())? {
            return Ok((Some(mismatch), true));
        }
    }
    // The strides of an empty tensor, and the stride of a dimension of size 1, address no element:
    // kernels may choose them freely.
    let is_empty = t.sizes().iter().any(|n| n.as_i64() == Some(0));
    if expected_meta.promise == LayoutPromise::Nothing || is_empty {
        return Ok((None, complete));
    }
    for (d, ((&e, s), n)) in
        expected_meta.strides.iter().zip(t.strides()).zip(t.sizes()).enumerate()
    {
        if n.as_i64() != Some(1)
            && let Some(mismatch) = check_expr(&|| format!("stride {d}"), e, s.as_i64())?
        {
            return Ok((Some(mismatch), true));
        }
    }
    if expected_meta.promise == LayoutPromise::Strides {
        return Ok((None, complete));
    }
    let found = t.meta().offset().as_i64();
    let offset = check_expr(&|| "offset".to_owned(), expected_meta.offset, found)?;
    match (offset, found) {
        (Some(_), Some(found)) if counts_from_other(expected_meta.offset, found)? => {
            Ok((None, complete))
        }
        (offset, _) => Ok((offset, complete)),
    }
}
