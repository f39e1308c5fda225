//! Copies with given strides.

use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ir::view::StridedPositions;
use maquette_ops::{AccessError, Error, ErrorKind, Result, Tensor, mode};

/// A copy in new memory with given strides. If the strides map several elements to one position,
/// that position holds the last of them.
///
/// # Errors
/// The number of strides differs from the rank, or memory runs out.
pub fn copy_with_strides(t: &Tensor, strides: &[SymInt]) -> Result<Tensor> {
    copy_apart(t, strides)?.map_or_else(|| copy_overlapping(t, strides, 0), Ok)
}

/// A copy in new memory with given strides, unless these map several elements to one position.
fn copy_apart(t: &Tensor, strides: &[SymInt]) -> Result<Option<Tensor>> {
    let empty = || t.new_empty_strided(t.sizes(), strides, t.dtype());
    let out = mode::with_builtin_kernels(empty);
    match mode::with_builtin_kernels(|| out.copy_(t).ok().map(drop)) {
        Ok(_) => Ok(Some(out)),
        Err(e) if matches!(e.kind(), ErrorKind::Access(AccessError::SelfOverlap { .. })) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// A tensor with given strides: itself, or a copy in new memory.
///
/// # Errors
/// The number of strides differs from the rank, or memory runs out.
pub fn with_strides(t: Tensor, strides: &[i64]) -> Result<Tensor> {
    let is_same =
        |((a, b), n): ((&SymInt, &i64), &SymInt)| n.as_i64() == Some(1) || a.as_i64() == Some(*b);
    let same = t.strides().iter().zip(strides).zip(t.sizes()).all(is_same);
    // A tensor without elements may be declared with strides that no tensor has.
    let invalid = || strides.iter().any(|s| *s < 0);
    if same || invalid() && t.sizes().iter().any(|n| n.as_i64() == Some(0)) {
        return Ok(t);
    }
    let strides: Vec<SymInt> = strides.iter().map(|s| (*s).into()).collect();
    copy_with_strides(&t, &strides)
}

/// As [`copy_with_strides`], for strides that map several elements to one position, which `copy_`
/// refuses. `offset` is the storage offset of the result. Writes the elements through an index of
/// their positions.
///
/// # Errors
/// A size or a stride is symbolic, or memory runs out.
pub fn copy_overlapping(t: &Tensor, strides: &[SymInt], offset: i64) -> Result<Tensor> {
    let plain = |l: &[SymInt]| l.iter().map(|i| i.as_i64()).collect::<Option<Vec<i64>>>();
    let symbolic = || Error::msg("overlapping strides must be static");
    let (sizes, step_sizes) =
        (plain(t.sizes()).ok_or_else(symbolic)?, plain(strides).ok_or_else(symbolic)?);
    let positions: Vec<i64> = StridedPositions::new(offset, &sizes, &step_sizes).collect();
    let extent = positions.iter().max().map_or(0, |p| p + 1);
    let count = positions.len() as i64;
    mode::with_builtin_kernels(|| {
        let flat = t.new_zeros([extent], t.dtype());
        let positions = Tensor::from_vec(positions, [count]);
        flat.index_put_(&[Some(&positions)], &t.reshape([count]), false).ok()?;
        Ok(flat.as_strided(t.sizes(), strides, Some(offset.into())).ok()?.clone())
    })
}

/// A copy that can be written: with the strides of the tensor, or row-major if these map several
/// elements to one position.
///
/// # Errors
/// Memory runs out.
pub fn copy_for_write(t: &Tensor) -> Result<Tensor> {
    let row_major = || copy_with_strides(t, &contiguous_strides(t.sizes()));
    copy_apart(t, t.strides())?.map_or_else(row_major, Ok)
}
