//! Shape rules that several operators share.

use crate::error::{Error, Result};
use crate::tensor::dims_text;
use maquette_ir::sym::{SymBool, SymInt};

/// Requires equal sizes. Backed symbols are decided by a guard, data-dependent ones by a deferred
/// assertion.
#[track_caller]
pub(crate) fn require_same(
    expected: &[SymInt],
    found: &[SymInt],
    what: impl Fn() -> String,
) -> Result<()> {
    let mismatch = || {
        Error::value(format!(
            "{} sizes {}, found sizes {}",
            what(),
            dims_text(expected),
            dims_text(found)
        ))
    };
    if expected.len() != found.len() {
        return Err(mismatch());
    }
    for (&e, &f) in expected.iter().zip(found) {
        require_equal(e, f, &mismatch)?;
    }
    Ok(())
}

/// Requires two sizes to be equal, as [`require_same`].
#[track_caller]
pub(crate) fn require_equal(a: SymInt, b: SymInt, mismatch: &dyn Fn() -> Error) -> Result<()> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return if a == b { Ok(()) } else { Err(mismatch()) };
    }
    demand(a.eq(b), &|| format!("sizes {a} and {b} must be equal"), mismatch)
}

/// Requires a condition: an error where it is known to fail, a guard on backed symbols, a deferred
/// assertion on data-dependent ones. Where it fails only by what was asserted of data, the error
/// names that.
#[track_caller]
pub(crate) fn demand(
    b: SymBool,
    assertion: &dyn Fn() -> String,
    failed: &dyn Fn() -> Error,
) -> Result<()> {
    let holds = match b.statically_known() {
        Some(known) => known,
        None if b.is_data_dependent() => return Ok(b.check(&assertion())?),
        None => b.guard()?,
    };
    if holds { Ok(()) } else { Err(b.excluded().map_or_else(failed, Error::from)) }
}

/// A dimension counted from the end where negative.
pub(crate) fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    // a 0-d tensor takes 0 and -1, as PyTorch's does
    let n = (rank as i64).max(1);
    let i = if dim < 0 { dim + n } else { dim };
    if (0..n).contains(&i) {
        Ok(i as usize)
    } else {
        Err(Error::value(format!(
            "dimension {dim} is out of range for a tensor of {rank} dimensions (expected {} to {})",
            -n,
            n - 1
        )))
    }
}
