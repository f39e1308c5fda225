//! The choice among the paths of a product, and those that need no blocks: tiny products, and dot
//! products of long vectors.

use super::blocks::{Blocks, ROWS_IN_STRIPS, accumulate};
use super::epilogue::{Operand, Output};
use super::pack::Factor;
use super::small::SmallProduct;
use super::visitor::VisitedParts;
use super::{Float, KERNEL, Mat, SEGMENT};
use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::scratch::{Scratch, with_scratch};
use crate::thread_pool;
use crate::view::Ptr;

/// Products of at most this many multiply-adds and elements are computed element by element.
const TINY: usize = 256;
/// The most elements of a product that is computed as dot products.
const DOTS: usize = 4;
/// The segments of one task of a dot product.
const TASK_SEGMENTS: usize = 64;

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Tiny,
    Dots,
    /// By blocks of the transposed product.
    Transposed,
    Blocks,
}

/// The path of a product of matrices with any strides, not empty.
pub(super) fn path<F: Float>(
    isa: Isa,
    [m, n, k]: [usize; 3],
    a: &Operand<F>,
    b: &Operand<F>,
) -> Path {
    let work = m.saturating_mul(n).saturating_mul(k);
    match (a.mat(), b.mat()) {
        (Some(_), Some(_)) if work <= TINY && m.saturating_mul(n) <= TINY => Path::Tiny,
        (Some(x), Some(y))
            if m.saturating_mul(n) <= DOTS && x.column_stride == 1 && y.row_stride == 1 =>
        {
            Path::Dots
        }
        // The longer dimension lies along the vectors, if the shorter cannot fill them.
        _ if n < m && 2 * n <= F::kernels(isa).lanes => Path::Transposed,
        _ => Path::Blocks,
    }
}

/// Computes a product of matrices with any strides, not empty.
///
/// # Safety
/// The matrices are in live memory, and nothing else accesses C during the call, except that the
/// addend and the residual may be C itself.
pub(super) unsafe fn product<F: Float>(
    isa: Isa,
    threads: usize,
    [m, n, k]: [usize; 3],
    a: Operand<F>,
    b: Operand<F>,
    out: Output<F>,
) -> Result<()> {
    let sizes = [m, n, k];
    if let Some((a, b)) = a.mat().zip(b.mat())
        && let Some((small, matrices)) = SmallProduct::with_output(isa, sizes, (a, b), &out)
    {
        // SAFETY: the caller's promise.
        unsafe { small.run(matrices) }
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (path(isa, sizes, &a, &b), a.mat(), b.mat()) {
            (Path::Tiny, Some(a), Some(b)) => {
                isa.dispatch(Tiny { isa, sizes, a, b, out: &out });
                Ok(())
            }
            (Path::Dots, Some(a), Some(b)) => dots(isa, threads, sizes, a, b, &out),
            (Path::Transposed, ..) => {
                let (a, b) = (b.transposed(), a.transposed());
                by_blocks(isa, threads, [n, m, k], a, b, out.transposed(), None)
            }
            _ => by_blocks(isa, threads, sizes, a, b, out, None),
        }
    }
}

/// # Safety
/// As [`product`].
pub(super) unsafe fn by_blocks<F: Float>(
    isa: Isa,
    threads: usize,
    sizes: [usize; 3],
    a: Operand<F>,
    b: Operand<F>,
    out: Output<F>,
    visited: Option<VisitedParts<'_>>,
) -> Result<()> {
    let factor = Factor { kernels: F::kernels(isa), b };
    let f = &|a: Mat<F>| {
        let blocks = Blocks { visited, ..Blocks::new(isa, sizes, a, factor.right(), out) };
        // SAFETY: the caller's promise.
        unsafe { blocks.run(threads) }
    };
    // SAFETY: the caller's promise.
    unsafe { with_rows_or_strips(isa, threads, sizes, a, f) }
}

/// As [`with_rows`], for products that pack their right factor: their tasks pack the columns of A,
/// too, where these are contiguous.
///
/// # Safety
/// As [`product`], for A.
pub(super) unsafe fn with_rows_or_strips<F: Float>(
    isa: Isa,
    threads: usize,
    sizes: [usize; 3],
    a: Operand<F>,
    f: &dyn Fn(Mat<F>) -> Result<()>,
) -> Result<()> {
    match a.mat().filter(|a| a.row_stride == 1 && sizes[0] >= ROWS_IN_STRIPS) {
        Some(a) => f(a),
        // SAFETY: the caller's promise.
        None => unsafe { with_rows(isa, threads, sizes, a, f) },
    }
}

/// Calls `f` with A as a matrix of its class whose rows are contiguous: itself or a copy.
///
/// # Safety
/// As [`product`], for A.
pub(super) unsafe fn with_rows<F: Float>(
    isa: Isa,
    threads: usize,
    [m, _, k]: [usize; 3],
    a: Operand<F>,
    f: &dyn Fn(Mat<F>) -> Result<()>,
) -> Result<()> {
    if let Some(mat) = a.mat()
        && (mat.column_stride == 1 || k <= 1)
    {
        return f(mat);
    }
    const ROWS: usize = 64;
    let kernels = F::kernels(isa);
    let copy = |to: Ptr<F>| {
        let is_parallel = threads > 1 && m * k > thread_pool::GRAIN;
        thread_pool::try_for(m.div_ceil(ROWS), is_parallel, &|t| {
            let part = t * ROWS..m.min((t + 1) * ROWS);
            // SAFETY: the caller's promise; the rows of the copy are this task's alone.
            unsafe {
                match a.mat() {
                    Some(mat) if mat.row_stride == 1 => {
                        let from = mat.skip_rows(part.start).start.0;
                        let sizes = [part.len(), k, k];
                        kernels.pack_columns(from, mat.column_stride, sizes, to.at(part.start * k));
                    }
                    _ => {
                        for row in part {
                            a.read_row(isa, row, 0, to.slice_mut((row * k) as i64, k));
                        }
                    }
                }
            }
            Ok(())
        })
    };
    with_scratch(KERNEL, m.saturating_mul(k), |rows: &mut [F]| {
        let to = Ptr(rows.as_mut_ptr());
        copy(to)?;
        f(Mat::row_major(to, k))
    })?
}

/// `a * b + c`, rounded once, in work that is dispatched on `isa`. The bits are the same either
/// way: the baseline may lack the instruction, and other sets have it.
#[inline(always)]
pub(super) fn fma<F: Float>(isa: Isa, a: F, b: F, c: F) -> F {
    match isa {
        Isa::Scalar => F::fma(a, b, c),
        Isa::Avx2 | Isa::Avx512 => a.mul_add(b, c),
    }
}

/// A product computed element by element, with any epilogue.
struct Tiny<'a, F> {
    isa: Isa,
    sizes: [usize; 3],
    a: Mat<F>,
    b: Mat<F>,
    out: &'a Output<F>,
}

impl<F: Float> Simd for Tiny<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let [m, n, k] = self.sizes;
        let (a, b) = (self.a, self.b);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let mut sum = F::ZERO;
            for p in 0..k {
                // SAFETY: `special::product` was promised these elements. At most `TINY` products
                // are one segment.
                let (x, y) = unsafe { (a.start.get(a.offset(i, p)), b.start.get(b.offset(p, j))) };
                sum = fma(self.isa, x, y, sum);
            }
            // SAFETY: as above, for C.
            unsafe { self.out.row(self.isa, i, j, &mut [sum]) }
        }
    }
}

/// The sums of whole segments of two vectors, with segments side by side.
struct Segments<'a, F> {
    isa: Isa,
    a: *const F,
    b: *const F,
    sums: &'a mut [F],
}

impl<F: Float> Simd for Segments<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        /// Chains that hide the latency of each other.
        const CHAINS: usize = 8;
        for (first, sums) in (0..).step_by(CHAINS).zip(self.sums.chunks_mut(CHAINS)) {
            // A chain that is not there repeats the last.
            let last = sums.len() - 1;
            let at: [usize; CHAINS] = std::array::from_fn(|i| (first + i.min(last)) * SEGMENT);
            let mut chains = [F::ZERO; CHAINS];
            for p in 0..SEGMENT {
                for (chain, at) in chains.iter_mut().zip(at) {
                    // SAFETY: `dots` was promised the elements of whole segments.
                    let (x, y) = unsafe { (*self.a.add(at + p), *self.b.add(at + p)) };
                    *chain = fma(self.isa, x, y, *chain);
                }
            }
            sums.copy_from_slice(&chains[..=last]);
        }
    }
}

/// The sum of one segment of any length.
struct Chain<'a, F>(Isa, &'a [F], &'a [F]);

impl<F: Float> Simd for Chain<'_, F> {
    type Out = F;
    #[inline(always)]
    fn run(self) -> F {
        self.1.iter().zip(self.2).fold(F::ZERO, |sum, (x, y)| fma(self.0, *x, *y, sum))
    }
}

/// A few dot products of contiguous vectors. Tasks sum segments, which are then added in order.
///
/// # Safety
/// As [`product`].
unsafe fn dots<F: Float>(
    isa: Isa,
    threads: usize,
    [m, n, k]: [usize; 3],
    a: Mat<F>,
    b: Mat<F>,
    out: &Output<F>,
) -> Result<()> {
    let (whole, segments) = (k / SEGMENT, k.div_ceil(SEGMENT));
    let mut sums = Scratch::<F>::new(KERNEL, segments)?;
    let sums = Ptr(sums.get().as_mut_ptr());
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let (a, b) = (a.skip_rows(i).start, b.skip_columns(j).start);
        let is_parallel = threads > 1 && k > thread_pool::GRAIN;
        thread_pool::try_for(segments.div_ceil(TASK_SEGMENTS), is_parallel, &|t| {
            let first = t * TASK_SEGMENTS;
            let last = segments.min(first + TASK_SEGMENTS);
            // SAFETY: the caller's promise; the sums of these segments are this task's alone.
            unsafe {
                let full = whole.min(last).saturating_sub(first);
                let (kernels, mut done) = (F::kernels(isa), 0);
                while full - done >= kernels.lanes {
                    let at = (first + done) * SEGMENT;
                    kernels.dots(a.at(at), b.at(at), SEGMENT, sums.at(first + done));
                    done += kernels.lanes;
                }
                let at = (first + done) * SEGMENT;
                let found = sums.slice_mut((first + done) as i64, full - done);
                isa.dispatch(Segments { isa, a: a.at(at), b: b.at(at), sums: found });
                if last > whole {
                    let (at, n) = (whole * SEGMENT, k % SEGMENT);
                    let rest = Chain(isa, a.slice(at as i64, n), b.slice(at as i64, n));
                    sums.set(whole as i64, isa.dispatch(rest));
                }
            }
            Ok(())
        })?;
        let (mut group, mut total) = ([F::ZERO], [F::ZERO]);
        for s in 0..segments {
            // SAFETY: the tasks have written all sums; the element of C is this call's alone.
            let found = unsafe { sums.get(s as i64) };
            accumulate(s, segments, &[found], &mut group, &mut total);
        }
        // SAFETY: as above.
        unsafe { out.row(isa, i, j, &mut total) }
    }
    Ok(())
}
