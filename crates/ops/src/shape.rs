//! Shape rules that several operators share.

use crate::error::{Error, Result};
use crate::tensor::dims_text;
use maquette_ir::sym::SymInt;

/// Requires equal sizes. Backed symbols are decided by a guard, data-dependent ones by a deferred assertion.
#[track_caller]
pub(crate) fn require_same(expected: &[SymInt], found: &[SymInt], what: impl Fn() -> String) -> Result<()> {
    let mismatch = || Error::value(format!("{} sizes {}, found sizes {}", what(), dims_text(expected), dims_text(found)));
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
    let equal = a.eq(b);
    match equal.statically_known() {
        Some(true) => Ok(()),
        Some(false) => Err(mismatch()),
        None if equal.is_data_dependent() => Ok(equal.check(&format!("sizes {a} and {b} must be equal"))?),
        None => {
            if equal.guard()? {
                Ok(())
            } else {
                Err(mismatch())
            }
        }
    }
}

/// A dimension counted from the end where negative.
pub(crate) fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    // a 0-d tensor takes 0 and -1, as PyTorch's does
    let n = (rank as i64).max(1);
    let i = if dim < 0 { dim + n } else { dim };
    if (0..n).contains(&i) {
        Ok(i as usize)
    } else {
        Err(Error::value(format!("dimension {dim} is out of range for a tensor of {rank} dimensions (expected {} to {})", -n, n - 1)))
    }
}
