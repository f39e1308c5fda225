//! `expand`: a view that broadcasts, with stride 0 in each repeated dimension.

use maquette_ir::sym::{SymError, SymInt};
use maquette_ops::operator::dims::{decide, is_open, known_equal, require};
use maquette_ops::operator::dims_text;
use maquette_ops::{Dims, Error, ErrorKind, Meta, Result};
use smallvec::smallvec;

/// The view of `m` that is broadcast to the sizes `wanted`. A size of -1 keeps the dimension.
#[track_caller]
pub(crate) fn expand(m: &Meta, wanted: &[SymInt]) -> Result<Meta> {
    let misfit = || {
        format!(
            "a tensor of sizes {} does not expand to sizes {}",
            dims_text(&m.sizes),
            dims_text(wanted)
        )
    };
    let lead = wanted.len().checked_sub(m.rank()).ok_or_else(|| Error::value(misfit()))?;
    let (mut sizes, mut strides): (Dims, Dims) =
        (wanted.into(), smallvec![SymInt::from(0); wanted.len()]);
    for d in (0..wanted.len()).rev() {
        let target = wanted[d];
        let kept = is_open(target)?;
        let Some(from) = d.checked_sub(lead) else {
            if kept {
                return Err(Error::value(format!(
                    "{}: a new dimension needs a size, found -1",
                    misfit()
                )));
            }
            require(target.ge(0), misfit)?;
            // PyTorch gives a new dimension of size 1 the stride that `unsqueeze` gives: the size
            // times the stride of the next dimension.
            if target.as_i64() == Some(1) {
                strides[d] = sizes
                    .get(d + 1)
                    .zip(strides.get(d + 1))
                    .map_or(SymInt::from(1), |(&n, &s)| n * s);
            }
            continue;
        };
        let (n, s) = (m.sizes[from], m.strides[from]);
        if kept || known_equal(n, target) {
            (sizes[d], strides[d]) = (n, s);
        } else if n.as_i64() == Some(1) {
            require(target.ge(0), misfit)?;
        } else {
            let (same, one) = (n.eq(target), n.eq(1));
            if same.statically_known().is_none() && same.is_data_dependent() {
                if !one.is_data_dependent() && decide(one)? {
                    require(target.ge(0), misfit)?;
                    continue;
                }
                match require(same, misfit) {
                    // The sizes cannot be equal, so the dimension must have size 1 and is repeated.
                    Err(e)
                        if matches!(e.kind(), ErrorKind::Guard(SymError::Contradiction { .. })) =>
                    {
                        require(one, misfit)?
                    }
                    kept => {
                        kept?;
                        strides[d] = s;
                    }
                }
            } else if decide(same)? {
                strides[d] = s;
            } else if !decide(one)? {
                return Err(Error::value(misfit()));
            }
        }
    }
    Ok(m.with_dims(sizes, strides))
}
