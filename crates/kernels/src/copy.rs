//! Copies, casts, fills and ranges.

use crate::element::{Element, dispatch, from_scalar};
use crate::error::{KernelError, Result};
use crate::layout::Loops;
use crate::pointwise::pointwise;
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::{DType, Scalar};

/// Copies `input`, broadcast to the output's sizes and cast to its dtype. Without a cast, the bits
/// are preserved.
pub fn copy(input: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    let input = input.expand(out.sizes())?;
    if input.dtype() != out.dtype() {
        return pointwise(
            &ScalarExpr::cast(input.dtype(), out.dtype()),
            &[input],
            &mut [out.reborrow()],
        );
    }
    let loops = Loops::new(out.sizes(), [out.strides(), input.strides()], true);
    dispatch!(size out.dtype(), T => {
        // SAFETY: the pointers are those of the two views, whose elements have the size of `T`, and
        // runs stay within the views.
        unsafe { copy_runs::<T>(&loops, out.as_ptr().cast_mut().cast(), input.as_ptr().cast()) }
    })
}

/// # Safety
/// Operand 0 of the loops must be valid for writes at `dst` and operand 1 for reads at `src`, both
/// with elements of `T`'s size and alignment.
unsafe fn copy_runs<T: Copy + Send + Sync>(
    loops: &Loops,
    dst: *mut T,
    src: *const T,
) -> Result<()> {
    let (dst, src) = (Ptr(dst), Ptr(src.cast_mut()));
    let (ds, ss) = (loops.inner_stride(0), loops.inner_stride(1));
    let other = (0..loops.sizes.len() - 1)
        .find(|&d| loops.strides[1][d] == 1 && loops.sizes[d] >= TILE as i64 / 2);
    if let (1, Some(d)) = (ds, other.filter(|_| loops.inner_size() >= TILE / 2)) {
        // SAFETY: the caller's promise; `d` is not the innermost dimension.
        return unsafe { copy_tiles(loops, d, dst, src) };
    }
    thread_pool::ranges(loops.numel(), thread_pool::GRAIN, 1024, &|from, to| {
        let mut src_at = loops.offset(1, from);
        loops.runs(0, from, to - from, |pos, at, len| {
            if pos > 0 {
                src_at = loops.offset(1, from + pos);
            }
            // SAFETY: see above.
            unsafe {
                match (ds, ss) {
                    (1, 1) => std::ptr::copy(
                        src.0.offset(src_at as isize),
                        dst.0.offset(at as isize),
                        len,
                    ),
                    (1, 0) => dst.slice_mut(at, len).fill(src.get(src_at)),
                    _ => {
                        (0..len as i64).for_each(|i| dst.set(at + i * ds, src.get(src_at + i * ss)))
                    }
                }
            }
        });
        Ok(())
    })
}

/// The number of rows and columns of a tile in a transposing copy.
const TILE: usize = 32;

/// A transposing copy: the source is contiguous along dimension `d`, the destination along the
/// innermost one. Square tiles of [`TILE`] (cache blocking) let both sides be accessed in whole
/// cache lines.
///
/// # Safety
/// As [`copy_runs`]; `d` is not the innermost dimension.
unsafe fn copy_tiles<T: Copy + Send + Sync>(
    loops: &Loops,
    d: usize,
    dst: Ptr<T>,
    src: Ptr<T>,
) -> Result<()> {
    let inner = loops.sizes.len() - 1;
    let (rows, columns) = (loops.sizes[d], loops.sizes[inner]);
    let (dst_row, src_column) = (loops.strides[0][d], loops.strides[1][inner]);
    let mut outer = loops.sizes.clone();
    (outer[d], outer[inner]) = (1, 1);
    let bands = (rows as usize).div_ceil(TILE);
    let least = (thread_pool::GRAIN / (TILE * columns as usize)).max(1);
    thread_pool::ranges(crate::view::numel(&outer) * bands, least, 1, &|from, to| {
        for unit in from..to {
            let first = (unit % bands * TILE) as i64;
            let n = (rows - first).min(TILE as i64) as usize;
            let dst_at =
                crate::layout::offset(&outer, &loops.strides[0], unit / bands) + first * dst_row;
            let src_at = crate::layout::offset(&outer, &loops.strides[1], unit / bands) + first;
            for column in (0..columns).step_by(TILE) {
                let m = (columns - column).min(TILE as i64) as usize;
                // SAFETY: rows `first..first + n` and columns `column..column + m` are in both
                // views, and this task's alone.
                unsafe {
                    let mut tile = [src.get(src_at + column * src_column); TILE * TILE];
                    for c in 0..m {
                        let run = src.slice(src_at + (column + c as i64) * src_column, n);
                        run.iter().enumerate().for_each(|(r, x)| tile[r * TILE + c] = *x);
                    }
                    for r in 0..n {
                        dst.slice_mut(dst_at + r as i64 * dst_row + column, m)
                            .copy_from_slice(&tile[r * TILE..r * TILE + m]);
                    }
                }
            }
        }
        Ok(())
    })
}

/// Sets every element to a scalar, cast to the output's dtype.
pub fn fill(out: &mut ViewMut<'_>, value: Scalar) -> Result<()> {
    if out.is_contiguous() {
        // A few elements take less time than loops to prepare.
        return dispatch!(out.dtype(), T => {
            let (base, x) = (out.typed::<T>(), from_scalar::<T>(value));
            thread_pool::ranges(out.numel(), thread_pool::GRAIN, 1024, &|from, to| {
                // SAFETY: these are elements of the view, and this task's own.
                unsafe { base.slice_mut(from as i64, to - from).fill(x) }
                Ok(())
            })
        });
    }
    let zero = Loops::new(out.sizes(), [out.strides()], true);
    dispatch!(out.dtype(), T => {
        let (base, stride, x) = (out.typed::<T>(), zero.inner_stride(0), from_scalar::<T>(value));
        thread_pool::ranges(zero.numel(), thread_pool::GRAIN, 1024, &|from, to| {
            zero.runs(0, from, to - from, |_, at, len| {
                // SAFETY: runs stay within the view, and tasks within their own elements.
                unsafe {
                    match stride {
                        1 => base.slice_mut(at, len).fill(x),
                        _ => (0..len as i64).for_each(|i| base.set(at + i * stride, x)),
                    }
                }
            });
            Ok(())
        })
    })
}

/// A contiguous copy of a view, cast to `T`, for kernels that take plain slices.
pub(crate) fn to_vec<T: Element + Default>(input: &View<'_>) -> Result<Vec<T>> {
    let mut out = filled("copy", T::default(), input.numel())?;
    let view = ViewMut::from_slice_sized(&mut out, input.sizes());
    copy(input, &mut view.ok_or_else(|| KernelError::argument("copy", "the sizes overflow"))?)?;
    Ok(out)
}

/// Fails unless the dtypes agree.
pub(crate) fn same_dtype(
    kernel: &'static str,
    operand: &'static str,
    expected: DType,
    found: DType,
) -> Result<()> {
    if expected == found {
        Ok(())
    } else {
        Err(KernelError::DType { kernel, operand, expected: expected.to_string(), found })
    }
}

/// Fails unless the sizes agree.
pub(crate) fn same_sizes(
    kernel: &'static str,
    operand: &'static str,
    expected: &[i64],
    found: &[i64],
) -> Result<()> {
    if expected == found {
        Ok(())
    } else {
        Err(KernelError::Shape {
            kernel,
            operand,
            expected: expected.to_vec(),
            found: found.to_vec(),
        })
    }
}

/// Fails unless `dim` is a dimension; rank 0 counts as rank 1, as in PyTorch.
pub(crate) fn check_dim(kernel: &'static str, dim: usize, rank: usize) -> Result<()> {
    if dim < rank.max(1) { Ok(()) } else { Err(KernelError::Dim { kernel, dim, rank }) }
}
