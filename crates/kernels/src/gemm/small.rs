//! Products of a few elements: without blocks, panels, scratch memory or threads. All that depends
//! on layouts is found once, so that a launch takes addresses alone.
//!
//! Where rows are contiguous and not too short, a tile has some rows and all columns; otherwise
//! elements are computed one by one. Either way an element is one chain of fused multiply-adds, so
//! the bits are those of a large product's path.

use super::epilogue::Output;
use super::kernel::{Finish, Kernels, Tile};
use super::special::fma;
use super::{Float, Mat, SEGMENT};
use crate::isa::{Isa, Simd};
use crate::view::Ptr;

/// Products of at most this many multiply-adds and elements are computed element by element.
const FEW: usize = 256;
/// Products of at most this many multiply-adds are computed in vectors.
const SOME: usize = 4096;
/// Rows of fewer elements are not worth a vector.
const LEAST_COLUMNS: usize = 4;

/// The product of matrices of given sizes and strides, whose dtype is the class:
/// `alpha * sum + beta * addend`.
#[derive(Clone, Copy)]
pub(crate) struct SmallProduct<F: 'static> {
    isa: Isa,
    /// The kernels of tiles, unless elements are computed one by one.
    kernels: Option<&'static Kernels<F>>,
    /// m, n and k.
    sizes: [usize; 3],
    /// The strides of the rows and columns of A, B, C and the addend.
    strides: [[isize; 2]; 4],
    factors: [F; 2],
}

/// The matrices of a small product in memory.
#[derive(Clone, Copy)]
pub(crate) struct SmallMatrices<F> {
    pub a: *const F,
    pub b: *const F,
    pub c: *mut F,
    /// Null if there is none. It may be C itself.
    pub addend: *const F,
}

impl<F: Float> SmallProduct<F> {
    /// The product, if it is small. `strides` are those of A, B, C and the addend, and `factors`
    /// are `alpha` and `beta`. No size is 0.
    pub fn of(
        isa: Isa,
        sizes: [usize; 3],
        strides: [[isize; 2]; 4],
        factors: [F; 2],
    ) -> Option<SmallProduct<F>> {
        let [m, n, k] = sizes;
        let elements = m.saturating_mul(n);
        let work = elements.saturating_mul(k);
        let kernels = F::kernels(isa);
        let [_, _, _, of_addend] = strides;
        let in_rows = (strides[0][1] == 1 || k == 1)
            && strides[1][1] == 1
            && strides[2][1] == 1
            && matches!(of_addend[1], 0 | 1);
        let in_vectors = in_rows
            && (LEAST_COLUMNS..=kernels.vectors_of_few() * kernels.lanes).contains(&n)
            && work <= SOME
            && k <= SEGMENT;
        let is_small = in_vectors || elements <= FEW && work <= FEW;
        let kernels = in_vectors.then_some(kernels);
        is_small.then_some(SmallProduct { isa, kernels, sizes, strides, factors })
    }

    /// The product of two matrices, if it is small and the output has no other epilogue.
    pub(super) fn with_output(
        isa: Isa,
        sizes: [usize; 3],
        (a, b): (Mat<F>, Mat<F>),
        out: &Output<F>,
    ) -> Option<(SmallProduct<F>, SmallMatrices<F>)> {
        let of_mat = |m: &Mat<F>| [m.row_stride, m.column_stride];
        let addend = match &out.addend {
            Some(addend) => Some(addend.mat()?),
            None => None,
        };
        if out.direct.0.is_null() || out.activation.is_some() || out.residual.is_some() {
            return None;
        }
        let strides = [
            of_mat(&a),
            of_mat(&b),
            out.strides.map(|s| s as isize),
            addend.as_ref().map_or([0; 2], of_mat),
        ];
        let product = SmallProduct::of(isa, sizes, strides, [out.alpha, out.beta])?;
        let matrices = SmallMatrices {
            a: a.start.0,
            b: b.start.0,
            c: out.address(0, 0),
            addend: addend.map_or(std::ptr::null(), |m| m.start.0),
        };
        Some((product, matrices))
    }

    /// Computes the product.
    ///
    /// # Safety
    /// The matrices are in live memory with the strides of the product, and nothing else accesses C
    /// during the call.
    #[inline]
    pub unsafe fn run(&self, matrices: SmallMatrices<F>) {
        match self.kernels {
            // SAFETY: the caller's promise.
            Some(kernels) => unsafe { self.tiles(kernels, matrices) },
            None => self.isa.dispatch_inline(Elements { product: self, matrices }),
        }
    }

    /// Computes the product in tiles of all columns.
    ///
    /// # Safety
    /// As [`SmallProduct::run`].
    unsafe fn tiles(&self, kernels: &Kernels<F>, matrices: SmallMatrices<F>) {
        let SmallProduct { sizes: [m, n, k], strides, factors: [alpha, beta], .. } = *self;
        let [of_a, of_b, of_c, of_addend] = strides;
        let vectors = if n <= kernels.lanes { 1 } else { 2 };
        let most = kernels.rows_of_few(vectors);
        let mut done = 0;
        while done < m {
            let (rows, first) = (most.min(m - done), done as isize);
            let addend = match matrices.addend.is_null() {
                true => std::ptr::null_mut(),
                false => matrices.addend.wrapping_offset(first * of_addend[0]).cast_mut(),
            };
            let tile = Tile {
                k,
                a: matrices.a.wrapping_offset(first * of_a[0]),
                a_stride: of_a[0],
                b: matrices.b,
                b_stride: of_b[0],
                copy: std::ptr::null_mut(),
                sums: [std::ptr::null(); 2],
                sums_stride: 0,
                out: matrices.c.wrapping_offset(first * of_c[0]),
                out_stride: of_c[0],
                last_columns: n - (vectors - 1) * kernels.lanes,
                finish: Some(Finish {
                    alpha,
                    beta,
                    addend: Ptr(addend),
                    addend_stride: of_addend[0],
                    addend_repeats: of_addend[1] == 0,
                }),
                fetch: std::ptr::null(),
                fetch_lines: 0,
                fetch_stride: 0,
            };
            // SAFETY: the caller's promise; the kernels are those of an instruction set that the
            // machine has.
            unsafe { kernels.few(&tile, rows, vectors) }
            done += rows;
        }
    }
}

/// A product computed element by element.
struct Elements<'a, F: 'static> {
    product: &'a SmallProduct<F>,
    matrices: SmallMatrices<F>,
}

impl<F: Float> Simd for Elements<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let SmallProduct { isa, sizes: [m, n, k], strides, factors: [alpha, beta], .. } =
            *self.product;
        let SmallMatrices { a, b, c, addend } = self.matrices;
        let [of_a, of_b, of_c, of_addend] = strides;
        for i in 0..m as isize {
            for j in 0..n as isize {
                let (mut x, mut y) =
                    (a.wrapping_offset(i * of_a[0]), b.wrapping_offset(j * of_b[1]));
                let at = |[row, column]: [isize; 2]| i * row + j * column;
                let mut sum = F::ZERO;
                // SAFETY: `SmallProduct::run` was promised these elements. So few products are one
                // segment.
                unsafe {
                    for _ in 0..k {
                        sum = fma(isa, *x, *y, sum);
                        x = x.wrapping_offset(of_a[1]);
                        y = y.wrapping_offset(of_b[0]);
                    }
                    let mut value = sum * alpha;
                    if !addend.is_null() {
                        value = value + *addend.wrapping_offset(at(of_addend)) * beta;
                    }
                    *c.wrapping_offset(at(of_c)) = value.one_nan();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_multiply_adds_are_small() {
        let of = |sizes, strides| SmallProduct::<f32>::of(Isa::Scalar, sizes, strides, [1.0; 2]);
        let columns = [[1, 2]; 4];
        assert!(of([2, 2, 2], columns).is_some_and(|small| small.kernels.is_none()));
        assert!(of([4, 4, 16], columns).is_some());
        assert!(of([4, 4, 17], columns).is_none() && of([257, 1, 1], columns).is_none());
        assert!(of([usize::MAX, usize::MAX, usize::MAX], columns).is_none());
        let rows = [[16, 1]; 4];
        assert!(of([2, 2, 2], rows).is_some_and(|small| small.kernels.is_none()));
        for sizes in [[2, 4, 2], [8, 8, 8], [16, 16, 16], [1, 7, 500]] {
            assert!(of(sizes, rows).is_some_and(|small| small.kernels.is_some()), "{sizes:?}");
        }
        assert!(of([16, 17, 16], rows).is_none() && of([1, 5, 513], rows).is_none());
    }
}
