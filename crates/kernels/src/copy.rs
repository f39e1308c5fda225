//! Copies, casts, fills and ranges.

use crate::element::{Element, dispatch, from_scalar};
use crate::error::{KernelError, Result};
use crate::layout::Loops;
use crate::pointwise::{PointwisePlan, pointwise};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::{DType, Scalar};
use std::borrow::Cow;

/// Copies `input`, broadcast to the output's sizes and cast to its dtype. Without a cast, the bits
/// are preserved.
pub fn copy(input: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    if input.dtype() != out.dtype() {
        return pointwise(
            &ScalarExpr::cast(input.dtype(), out.dtype()),
            &[input.expand(out.sizes())?],
            &mut [out.reborrow()],
        );
    }
    let moves = Moves::new(input, out)?;
    // SAFETY: the addresses are those of the views.
    unsafe { (moves.run)(&moves.loops, out.as_ptr().cast_mut(), input.as_ptr()) }
}

/// A copy for operands of given layouts. It has no address, so that one plan serves every launch
/// with these layouts, on any thread.
pub struct CopyPlan(Kind);

enum Kind {
    Moves(Box<Moves>),
    Cast(Box<PointwisePlan>),
}

impl CopyPlan {
    /// The plan for operands of the layouts of these, whose memory is not accessed.
    ///
    /// # Errors
    /// As for [`copy`].
    pub fn new(input: &View<'_>, out: &ViewMut<'_>) -> Result<CopyPlan> {
        Ok(CopyPlan(match input.dtype() == out.dtype() {
            true => Kind::Moves(Box::new(Moves::new(input, out)?)),
            false => {
                let expr = ScalarExpr::cast(input.dtype(), out.dtype());
                let input = input.expand(out.sizes())?;
                let plan = PointwisePlan::new(&expr, &[input], std::slice::from_ref(out), &[])?;
                Kind::Cast(Box::new(plan))
            }
        }))
    }

    /// Copies between these addresses of element 0.
    ///
    /// # Errors
    /// As for [`copy`].
    ///
    /// # Safety
    /// With the layouts of the plan, the addresses satisfy the contracts of [`View::from_raw`] and
    /// [`ViewMut::from_raw`] during the call. The output does not overlap the input.
    pub unsafe fn run_at(&self, input: *const u8, out: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.0 {
                Kind::Moves(moves) => (moves.run)(&moves.loops, out, input),
                Kind::Cast(plan) => plan.run_at(&[input.cast_mut(), out]),
            }
        }
    }
}

/// The loops of a copy without a cast, and the function that runs them on the output and the input.
struct Moves {
    loops: Loops,
    run: unsafe fn(&Loops, *mut u8, *const u8) -> Result<()>,
}

impl Moves {
    fn new(input: &View<'_>, out: &ViewMut<'_>) -> Result<Moves> {
        let input = input.expand(out.sizes())?;
        let loops = Loops::new(out.sizes(), [out.strides(), input.strides()], true);
        Ok(Moves { loops, run: dispatch!(size out.dtype(), T => copy_runs::<T>) })
    }
}

/// # Safety
/// Operand 0 of the loops must be valid for writes at `dst` and operand 1 for reads at `src`, both
/// with elements of `T`'s size and alignment.
unsafe fn copy_runs<T: Copy + Send + Sync>(
    loops: &Loops,
    dst: *mut u8,
    src: *const u8,
) -> Result<()> {
    let (dst, src) = (Ptr(dst.cast::<T>()), Ptr(src.cast_mut().cast::<T>()));
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
    if let Some(dense) = DenseFill::of(out) {
        // SAFETY: the address is that of the view.
        return unsafe { dense.run_at(out.as_ptr().cast_mut(), value) };
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

/// A fill of elements that follow each other: a few of them take less time than loops to prepare.
#[derive(Clone, Copy, Debug)]
pub struct DenseFill {
    run: unsafe fn(*mut u8, usize, Scalar) -> Result<()>,
    n: usize,
}

impl DenseFill {
    /// The fill of an output of this layout, whose memory is not accessed; `None` if its elements
    /// do not follow each other.
    pub fn of(out: &ViewMut<'_>) -> Option<DenseFill> {
        let run = dispatch!(out.dtype(), T => fill_dense::<T>);
        out.is_contiguous().then(|| DenseFill { run, n: out.numel() })
    }

    /// Sets the elements from this address.
    ///
    /// # Errors
    /// The error of a task.
    ///
    /// # Safety
    /// With the layout of the view, the address satisfies the contract of [`ViewMut::from_raw`].
    pub unsafe fn run_at(&self, out: *mut u8, value: Scalar) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (self.run)(out, self.n, value) }
    }
}

/// # Safety
/// As [`DenseFill::run_at`], for `n` elements of `T`.
unsafe fn fill_dense<T: Element>(out: *mut u8, n: usize, value: Scalar) -> Result<()> {
    let (base, x) = (Ptr(out.cast::<T>()), from_scalar::<T>(value));
    thread_pool::ranges(n, thread_pool::GRAIN, 1024, &|from, to| {
        // SAFETY: these are elements of the view, and this task's own.
        unsafe { base.slice_mut(from as i64, to - from).fill(x) }
        Ok(())
    })
}

/// A contiguous copy of a view, cast to `T`, for kernels that take plain slices.
pub(crate) fn to_vec<T: Element + Default>(input: &View<'_>) -> Result<Vec<T>> {
    let mut out = filled("copy", T::default(), input.numel())?;
    let view = ViewMut::from_slice_sized(&mut out, input.sizes());
    copy(input, &mut view.ok_or_else(|| KernelError::argument("copy", "the sizes overflow"))?)?;
    Ok(out)
}

/// The elements of a view in row-major order, cast to `T`: where they are, if they are so in
/// memory.
pub(crate) fn elements<'a, T: Element + Default>(input: &'a View<'_>) -> Result<Cow<'a, [T]>> {
    if input.dtype() != T::DTYPE || !input.is_contiguous() {
        return to_vec::<T>(input).map(Cow::Owned);
    }
    // SAFETY: these are the elements of the view, which nothing writes.
    Ok(Cow::Borrowed(unsafe { input.typed::<T>().slice(0, input.numel()) }))
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
