//! Products of integers: a plain loop in `i64` that wraps.

use super::epilogue::Epilogue;
use super::operands::{Gemm, Mat, Product};
use super::pack::Right;
use super::{Expanded, KERNEL};
use crate::copy::{copy, to_vec};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut};

/// The columns that are multiplied at a time.
const COLUMNS: usize = 64;

impl Product for i64 {
    unsafe fn product(isa: Isa, threads: usize, gemm: Gemm<'_, i64>) -> Result<()> {
        let Gemm { sizes: [m, n, k], c, a, b, alpha, addend, .. } = gemm;
        let work = m.saturating_mul(n).saturating_mul(k);
        let is_parallel = threads > 1 && work > thread_pool::GRAIN;
        thread_pool::try_for(n.div_ceil(COLUMNS), is_parallel, &|p| {
            let columns = p * COLUMNS..n.min((p + 1) * COLUMNS);
            let width = columns.len();
            let mut packed = match b {
                Right::Source(_) => filled(KERNEL, 0i64, k * width)?,
                _ => Vec::new(),
            };
            let b = match b {
                Right::InPlace(b) => b.skip_columns(columns.start),
                Right::Source(source) => {
                    // SAFETY: the buffer has room for these columns.
                    unsafe { source.pack(isa, 0..k, columns.clone(), width, packed.as_mut_ptr()) }
                    Mat::row_major(Ptr(packed.as_mut_ptr()), width)
                }
                Right::Packed(_) => {
                    return Err(KernelError::argument(KERNEL, "integers are not packed ahead"));
                }
            };
            let mut row = [0i64; COLUMNS];
            for i in 0..m {
                let row = &mut row[..width];
                row.fill(0);
                for p in 0..k {
                    // SAFETY: the positions are within the matrices; these columns of C belong to
                    // this task.
                    let x = unsafe { a.start.get(a.offset(i, p)) };
                    for (j, sum) in row.iter_mut().enumerate() {
                        // SAFETY: as above.
                        let y = unsafe { b.start.get(b.offset(p, j)) };
                        *sum = sum.wrapping_add(x.wrapping_mul(y));
                    }
                }
                for (j, sum) in row.iter().enumerate() {
                    let column = columns.start + j;
                    // SAFETY: as above.
                    unsafe {
                        let old = addend.map_or(0, |x| x.start.get(x.offset(i, column)));
                        let sum = old.wrapping_add(sum.wrapping_mul(alpha));
                        c.start.set(c.offset(i, column), sum);
                    }
                }
            }
            Ok(())
        })
    }

    #[inline(always)]
    fn multiply_add(_: Isa, a: i64, b: i64, c: i64) -> i64 {
        c.wrapping_add(a.wrapping_mul(b))
    }
}

/// The batched product of operands of an integer dtype, on contiguous copies in `i64`.
pub(super) fn run(
    a: &View<'_>,
    b: &View<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    if epilogue.activation.is_some() || epilogue.residual.is_some() {
        let message = "integers take neither an activation nor a residual";
        return Err(KernelError::argument(KERNEL, message));
    }
    let r = c.rank() - 2;
    let [m, n, k] = [c.sizes()[r], c.sizes()[r + 1], a.sizes()[r + 1]].map(|x| x as usize);
    let (wide_a, wide_b) = (to_vec::<i64>(a)?, to_vec::<i64>(b)?);
    let mut sums = match Expanded::new(epilogue, c)?.addend {
        None => filled(KERNEL, 0, c.numel())?,
        Some(addend) => to_vec::<i64>(&addend)?,
    };
    let (alpha, beta) = (epilogue.alpha.to_i64(), epilogue.beta.to_i64());
    sums.iter_mut().for_each(|x| *x = x.wrapping_mul(beta));
    let sizes = Dims::from_slice(c.sizes());
    for i in 0..crate::view::numel(&sizes[..r]) {
        let c = Mat::row_major(Ptr(sums.as_mut_ptr().wrapping_add(i * m * n)), n);
        let a = Mat::row_major(Ptr(wide_a.as_ptr().wrapping_add(i * m * k).cast_mut()), k);
        let b = Mat::row_major(Ptr(wide_b.as_ptr().wrapping_add(i * k * n).cast_mut()), n);
        let addend = Some(c);
        let gemm = Gemm { sizes: [m, n, k], c, a, b: Right::InPlace(b), alpha, addend };
        // SAFETY: the copies have the sizes of the operands.
        unsafe { i64::product(Isa::detect(), thread_pool::num_threads(), gemm)? }
    }
    let sums = View::from_slice_sized(&sums, &sizes)
        .ok_or_else(|| KernelError::argument(KERNEL, "the sizes overflow"))?;
    copy(&sums, c)
}
