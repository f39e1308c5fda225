//! Shape checks shared by several operators, on concrete and symbolic sizes.

use crate::error::{Error, Result};
use crate::tensor::dims_text;
use maquette_ir::sym::{SymBool, SymInt};

/// Requires two size lists to be equal. An equation over backed symbols becomes a guard; one over
/// data-dependent symbols becomes a deferred assertion.
#[track_caller]
pub fn require_same(
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

/// Requires two sizes to be equal, with guards and assertions as [`require_same`].
#[track_caller]
pub fn require_equal(a: SymInt, b: SymInt, mismatch: &dyn Fn() -> Error) -> Result<()> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return if a == b { Ok(()) } else { Err(mismatch()) };
    }
    demand(a.eq(b), &|| format!("sizes {a} and {b} must be equal"), mismatch)
}

/// Requires a condition. It is an error if the condition is known to be false, becomes a guard if
/// it is over backed symbols, and a deferred assertion if it is over data-dependent ones. If the
/// condition is false only because of an earlier assertion about data, the error names that
/// assertion.
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

/// Converts a dimension index in `-rank..rank` to `0..rank`.
pub fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    // a 0-d tensor accepts 0 and -1, as in PyTorch
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
