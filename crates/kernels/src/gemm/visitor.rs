//! Products whose finished parts are passed on while they are in a near cache.
//!
//! An epilogue of any kind follows a product in this way, as the epilogue visitors of CUTLASS do on
//! a GPU. The visitor gets rectangles of finished sums, each once, from the thread that computed
//! them. A rectangle takes a task's rows or panels whole where it can, so that the visitor has long
//! rows. If nothing else needs the sums, they are in scratch memory of a rectangle.
//!
//! **Invariant:** the bits of a sum are those of [`product`](super::product()): the order of
//! summation does not depend on where sums are written, nor on rectangles.
//!
//! **Cost:** nothing beside the visits, but for products of a few elements, a few columns or long
//! dot products. Those are visited after the product.

use super::blocks::Blocks;
use super::epilogue::{Operand, Output};
use super::pack::Right;
use super::special::{self, Path};
use super::{Float, KERNEL, Mat, PackedMatrix};
use crate::error::Result;
use crate::isa::Isa;
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut};
use std::ops::Range;

/// Scratch memory is divided at multiples of this many elements.
pub(super) const ALIGN: usize = 16;
/// The elements of a rectangle of a product that is visited after it.
const VISITED_AFTER: usize = 8 << 10;

/// What follows a product.
pub(crate) trait EpilogueVisitor: Sync {
    /// The bytes of scratch memory for a rectangle of at most this many elements.
    fn scratch(&self, elements: usize) -> usize;

    /// Passes on the sums of a rectangle: the address of its first element, and the strides in
    /// elements. Sums in scratch memory are row-major.
    ///
    /// # Errors
    /// That of the epilogue, which the product returns.
    ///
    /// # Safety
    /// The sums can be read, and the scratch memory written, during the call. No other call has an
    /// element of the rectangle.
    unsafe fn visit(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        sums: (Ptr<u8>, [i64; 2]),
        scratch: Ptr<u8>,
    ) -> Result<()>;
}

/// The visitor of a product by blocks.
#[derive(Clone, Copy)]
pub(super) struct VisitedParts<'a> {
    visitor: &'a dyn EpilogueVisitor,
    /// Whether sums are in the scratch memory of a part, not in C.
    in_scratch: bool,
}

impl<'a> VisitedParts<'a> {
    pub fn new(visitor: &'a dyn EpilogueVisitor, in_scratch: bool) -> VisitedParts<'a> {
        VisitedParts { visitor, in_scratch }
    }
    /// The elements of scratch memory for a part: for its sums, and for the visitor.
    pub fn scratch<F>(&self, elements: usize) -> [usize; 2] {
        let own = self.visitor.scratch(elements).div_ceil(size_of::<F>());
        [if self.in_scratch { elements.next_multiple_of(ALIGN) } else { 0 }, own]
    }

    /// Where the sums of a part are written. `own` is its scratch memory.
    pub fn out<F: Float>(
        &self,
        out: Output<F>,
        first_row: usize,
        columns: Range<usize>,
        own: *mut F,
    ) -> Output<F> {
        if !self.in_scratch {
            return out;
        }
        let stride = columns.len() as i64;
        let at = -(first_row as i64 * stride + columns.start as i64);
        Output { at, ..Output::plain(Mat::row_major(Ptr(own), columns.len()), out.alpha) }
    }

    /// Visits a part, whose sums are finished.
    ///
    /// # Safety
    /// As [`EpilogueVisitor::visit`], with the scratch memory of the part.
    pub unsafe fn visit<F: Float>(
        &self,
        out: &Output<F>,
        rows: Range<usize>,
        columns: Range<usize>,
        own: *mut F,
    ) -> Result<()> {
        let (sums, of_sums) = match self.in_scratch {
            true => {
                let n = (rows.len() * columns.len()).next_multiple_of(ALIGN);
                ((Ptr(own.cast()), [columns.len() as i64, 1]), n)
            }
            false => ((Ptr(out.address(rows.start, columns.start).cast()), out.strides), 0),
        };
        let scratch = Ptr(own.wrapping_add(of_sums).cast());
        // SAFETY: the caller's promise. A part is at most as large as that of the scratch memory.
        unsafe { self.visitor.visit(rows, columns, sums, scratch) }
    }
}

/// The right factor of a product.
#[derive(Clone, Copy)]
pub(crate) enum RightFactor<'a> {
    Matrix(&'a View<'a>),
    Packed(&'a PackedMatrix),
}

impl<'a> RightFactor<'a> {
    /// A matrix, read in its packed form if that is given.
    pub fn of(matrix: &'a View<'a>, packed: Option<&'a PackedMatrix>) -> RightFactor<'a> {
        packed.map_or(RightFactor::Matrix(matrix), RightFactor::Packed)
    }
}

/// `a[m, k] b[k, n]`, written to `out[m, n]` if it is given, and visited. `a` and `b` are of `F`,
/// or of a narrower dtype that is widened; `out` is of `F`. No size is 0, but for `k`.
///
/// # Errors
/// Scratch memory cannot be had, or that of the visitor.
///
/// # Safety
/// The sizes fit each other, and a packed matrix is of class `F`.
pub(crate) unsafe fn visited_product<F: Float>(
    isa: Isa,
    threads: usize,
    (a, b): (&View<'_>, RightFactor<'_>),
    [m, n, k]: [usize; 3],
    out: Option<&mut ViewMut<'_>>,
    visitor: Option<&dyn EpilogueVisitor>,
) -> Result<()> {
    let sizes = [m, n, k];
    let in_scratch = out.is_none();
    let (left, out) = (Operand::<F>::new(a, 0), output::<F>(out, n));
    let visited = visitor.map(|visitor| VisitedParts::new(visitor, in_scratch));
    let right = match b {
        RightFactor::Matrix(b) => Operand::<F>::new(b, 0),
        RightFactor::Packed(b) => {
            let Some(panels) = b.panels::<F>() else { return Ok(()) };
            // SAFETY: the caller's promise.
            return unsafe {
                special::with_rows(panels.isa, threads, sizes, left, &|a| {
                    let blocks = Blocks::new(panels.isa, sizes, a, Right::Packed(panels), out);
                    let blocks = Blocks { visited, ..blocks };
                    blocks.run(threads)
                })
            };
        }
    };
    // SAFETY: the caller's promise.
    unsafe {
        match (visited, special::path(isa, sizes, &left, &right)) {
            (None, _) => special::product(isa, threads, sizes, left, right, out),
            (Some(_), Path::Blocks) => {
                special::by_blocks(isa, threads, sizes, left, right, out, visited)
            }
            (Some(visited), _) => {
                let n = if in_scratch { m * n } else { 0 };
                with_scratch(KERNEL, n, |all: &mut [F]| {
                    let out = visited.out(out, 0, 0..sizes[1], all.as_mut_ptr());
                    special::product(isa, threads, sizes, left, right, out)?;
                    visit_after(threads, sizes, &out, visited.visitor)
                })?
            }
        }
    }
}

/// The sums of a product with `n` columns in memory, or nowhere.
pub(super) fn output<F: Float>(out: Option<&mut ViewMut<'_>>, n: usize) -> Output<F> {
    let c = match out {
        Some(out) => {
            let strides = out.strides();
            let (row_stride, column_stride) = (strides[0] as isize, strides[1] as isize);
            Mat { start: out.typed::<F>(), row_stride, column_stride }
        }
        None => Mat::row_major(Ptr(std::ptr::dangling_mut()), n),
    };
    Output::plain(c, F::ONE)
}

/// Visits a finished product.
///
/// # Safety
/// As [`visited_product`].
unsafe fn visit_after<F: Float>(
    threads: usize,
    [m, n, _]: [usize; 3],
    out: &Output<F>,
    visitor: &dyn EpilogueVisitor,
) -> Result<()> {
    let rows = (VISITED_AFTER / n).clamp(1, m);
    let parts = VisitedParts::new(visitor, false);
    let [_, scratch] = parts.scratch::<F>(rows * n);
    let is_parallel = threads > 1 && m * n > thread_pool::GRAIN;
    thread_pool::try_for(m.div_ceil(rows), is_parallel, &|part| {
        let rows = part * rows..m.min((part + 1) * rows);
        with_scratch(KERNEL, scratch, |own: &mut [F]| {
            // SAFETY: the caller's promise; tasks visit their own rows.
            unsafe { parts.visit(out, rows, 0..n, own.as_mut_ptr()) }
        })?
    })
}
