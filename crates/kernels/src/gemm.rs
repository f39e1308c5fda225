//! General matrix products with arbitrary strides: `C = beta C + alpha A B`.
//!
//! Floats use the `gemm` crate, which blocks for caches and packs its operands. This module splits
//! C into panels along its longer dimension and makes one single-threaded call per panel on this
//! crate's pool. `f16` and `bf16` are widened, accumulate in `f32` and round once. Integers use a
//! plain triple loop and wrap.
//!
//! Each element of C sums over k in one call, so the bits do not depend on the number of threads.
//! They do depend on the instruction set, which the `gemm` crate selects itself.

use crate::copy::{copy, same_dtype, same_sizes, to_vec};
use crate::element::Class;
use crate::error::{KernelError, Result};
use crate::layout;
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut};
use maquette_ir::{DType, Scalar};

const KERNEL: &str = "gemm";
/// Products of at most this many multiply-adds stay on the caller's thread.
const SMALL: usize = 64 * 64 * 64;
/// The width of a panel of C is a multiple of this, except that of the last.
pub(crate) const PANEL: usize = 64;

/// `c[m, n] = beta c + alpha a[m, k] b[k, n]`, all of one dtype; the factors are cast to the dtype
/// of the computation. With `beta` 0 the contents of `c` are ignored, even NaN.
pub fn gemm(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: impl Into<Scalar>,
    beta: impl Into<Scalar>,
) -> Result<()> {
    if a.rank() != 2 || b.rank() != 2 || c.rank() != 2 {
        let found = [a.rank(), b.rank(), c.rank()].into_iter().find(|r| *r != 2).unwrap_or(2);
        return Err(KernelError::Count { kernel: KERNEL, what: "dimensions", expected: 2, found });
    }
    batched_gemm(a, b, c, alpha, beta)
}

/// [`gemm()`] over the last two dimensions, with equal leading sizes as batch dimensions; a stride
/// of 0 shares a matrix between batches.
pub fn batched_gemm(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: impl Into<Scalar>,
    beta: impl Into<Scalar>,
) -> Result<()> {
    let (alpha, beta): (Scalar, Scalar) = (alpha.into(), beta.into());
    let rank = c.rank();
    if rank < 2 || a.rank() != rank || b.rank() != rank {
        let found = if rank < 2 {
            rank
        } else if a.rank() != rank {
            a.rank()
        } else {
            b.rank()
        };
        return Err(KernelError::Count {
            kernel: KERNEL,
            what: "dimensions",
            expected: rank.max(2),
            found,
        });
    }
    let batch = Dims::from_slice(&c.sizes()[..rank - 2]);
    let (m, n, k) = (c.sizes()[rank - 2], c.sizes()[rank - 1], a.sizes()[rank - 1]);
    let batch_of =
        |rows: i64, columns: i64| batch.iter().copied().chain([rows, columns]).collect::<Dims>();
    same_sizes(KERNEL, "a", &batch_of(m, k), a.sizes())?;
    same_sizes(KERNEL, "b", &batch_of(k, n), b.sizes())?;
    same_dtype(KERNEL, "a", c.dtype(), a.dtype())?;
    same_dtype(KERNEL, "b", c.dtype(), b.dtype())?;
    match c.dtype() {
        DType::F32 => run::<f32>(a, b, c, alpha.to_f64() as f32, beta.to_f64() as f32),
        DType::F64 => run::<f64>(a, b, c, alpha.to_f64(), beta.to_f64()),
        DType::F16 | DType::BF16 => narrow(a, b, c, alpha.to_f64() as f32, beta.to_f64() as f32),
        DType::Bool => Err(KernelError::DType {
            kernel: KERNEL,
            operand: "c",
            expected: "a number".into(),
            found: DType::Bool,
        }),
        _ => narrow(a, b, c, alpha.to_i64(), beta.to_i64()),
    }
}

/// A matrix in memory. Strides are in elements.
#[derive(Clone, Copy)]
pub(crate) struct Mat<T> {
    /// The address of element (0, 0).
    pub start: Ptr<T>,
    pub row_stride: isize,
    pub column_stride: isize,
}

impl<T> Mat<T> {
    /// A contiguous row-major matrix.
    pub fn row_major(start: Ptr<T>, columns: usize) -> Mat<T> {
        Mat { start, row_stride: columns as isize, column_stride: 1 }
    }

    pub fn transposed(self) -> Mat<T> {
        Mat { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    /// The matrix without its first `n` rows.
    pub fn skip_rows(self, n: usize) -> Mat<T> {
        Mat { start: Ptr(self.start.0.wrapping_offset(n as isize * self.row_stride)), ..self }
    }

    /// The matrix without its first `n` columns.
    pub fn skip_columns(self, n: usize) -> Mat<T> {
        Mat { start: Ptr(self.start.0.wrapping_offset(n as isize * self.column_stride)), ..self }
    }

    /// The offset of an element from `start`.
    fn offset(&self, row: usize, column: usize) -> i64 {
        (row as isize * self.row_stride + column as isize * self.column_stride) as i64
    }
}

/// The operands of one product: `c[m, n] = beta c + alpha a[m, k] b[k, n]`.
#[derive(Clone, Copy)]
pub(crate) struct Gemm<T> {
    /// m, n and k.
    pub sizes: [usize; 3],
    pub c: Mat<T>,
    pub a: Mat<T>,
    pub b: Mat<T>,
    pub alpha: T,
    pub beta: T,
}

/// A type in which matrix products are computed.
pub(crate) trait Product: Class {
    /// Computes a product on the calling thread. With `beta` 0, C is not read.
    ///
    /// # Safety
    /// The matrices must be in live memory, and nothing else accesses C during the call.
    unsafe fn product(gemm: Gemm<Self>);

    fn scale(self, by: Self) -> Self;

    fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// # Safety
/// As [`Product::product`].
#[inline]
unsafe fn float_product<T: Product + 'static>(Gemm { sizes, c, a, b, alpha, beta }: Gemm<T>) {
    let [m, n, k] = sizes;
    let (conj_c, conj_a, conj_b) = (false, false, false);
    // The crate takes column strides before row strides. Its factors have the names exchanged: its
    // alpha scales C, its beta the product.
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.start.0,
            c.column_stride,
            c.row_stride,
            !beta.is_zero(),
            a.start.0,
            a.column_stride,
            a.row_stride,
            b.start.0,
            b.column_stride,
            b.row_stride,
            beta,
            alpha,
            conj_c,
            conj_a,
            conj_b,
            gemm::Parallelism::None,
        )
    }
}

impl Product for f32 {
    #[inline]
    unsafe fn product(gemm: Gemm<f32>) {
        // SAFETY: the caller's promise.
        unsafe { float_product(gemm) }
    }

    fn scale(self, by: f32) -> f32 {
        self * by
    }
}

impl Product for f64 {
    #[inline]
    unsafe fn product(gemm: Gemm<f64>) {
        // SAFETY: the caller's promise.
        unsafe { float_product(gemm) }
    }

    fn scale(self, by: f64) -> f64 {
        self * by
    }
}

impl Product for i64 {
    unsafe fn product(Gemm { sizes: [m, n, k], c, a, b, alpha, beta }: Gemm<i64>) {
        let mut row = vec![0i64; n];
        for i in 0..m {
            row.fill(0);
            for p in 0..k {
                // SAFETY: the position is within the matrix.
                let x = unsafe { a.start.get(a.offset(i, p)) };
                for (j, sum) in row.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let y = unsafe { b.start.get(b.offset(p, j)) };
                    *sum = sum.wrapping_add(x.wrapping_mul(y));
                }
            }
            for (j, sum) in row.iter().enumerate() {
                let at = c.offset(i, j);
                // SAFETY: as above.
                unsafe {
                    let old = if beta == 0 { 0 } else { c.start.get(at).wrapping_mul(beta) };
                    c.start.set(at, old.wrapping_add(sum.wrapping_mul(alpha)));
                }
            }
        }
    }

    fn scale(self, by: i64) -> i64 {
        self.wrapping_mul(by)
    }
}

/// Multiplies C by `beta`: the product of empty sums.
///
/// # Safety
/// As [`Product::product`], for C alone.
unsafe fn scale_matrix<T: Product>(c: Mat<T>, rows: usize, columns: usize, beta: T) {
    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
        let at = c.offset(i, j);
        // SAFETY: the position is within the matrix. With `beta` 0, even NaN must become 0.
        unsafe {
            let x = if beta.is_zero() { T::default() } else { c.start.get(at).scale(beta) };
            c.start.set(at, x);
        }
    }
}

/// The batched product of operands of `T`'s own dtype.
fn run<T: Product>(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: T,
    beta: T,
) -> Result<()> {
    let r = c.rank() - 2;
    let (m, n, k) = (c.sizes()[r] as usize, c.sizes()[r + 1] as usize, a.sizes()[r + 1] as usize);
    let mat = |v: &View<'_>, batch: usize| {
        let at = layout::offset(&v.sizes()[..r], &v.strides()[..r], batch);
        // The stride of a dimension of size 1 has no meaning. It is normalized, because the crate
        // would choose its code path by it, and thereby the bits.
        let (rows, columns) = (v.sizes()[r], v.sizes()[r + 1]);
        let row_stride = if rows == 1 { columns } else { v.strides()[r] };
        let column_stride = if columns == 1 { 1 } else { v.strides()[r + 1] };
        Mat {
            start: Ptr(v.typed::<T>().0.wrapping_offset(at as isize)),
            row_stride: row_stride as isize,
            column_stride: column_stride as isize,
        }
    };
    let batches = crate::view::numel(&c.sizes()[..r]);
    // SAFETY: the sizes were checked against each other; the matrices of C are disjoint.
    unsafe {
        products(batches, [m, n, k], &|i| [mat(c, i), mat(a, i), mat(b, i)], alpha, beta, true)
    }
}

/// `c[m, n] = a[m, k] b[k, n]`, on the thread pool if `parallel`; the bits are the same either way.
///
/// # Safety
/// The matrices must be in live memory, and nothing else accesses `c` during the call.
pub(crate) unsafe fn spread<T: Product>(
    sizes: [usize; 3],
    c: Mat<T>,
    a: Mat<T>,
    b: Mat<T>,
    parallel: bool,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { products(1, sizes, &|_| [c, a, b], T::cast(1i64), T::default(), parallel) }
}

/// Computes `batches` products; `mats` returns the matrices C, A and B of a batch.
///
/// # Safety
/// As [`Product::product`], for every batch; no two batches share elements of C.
unsafe fn products<T: Product>(
    batches: usize,
    [m, n, k]: [usize; 3],
    mats: &(dyn Fn(usize) -> [Mat<T>; 3] + Sync),
    alpha: T,
    beta: T,
    parallel: bool,
) -> Result<()> {
    if m == 0 || n == 0 || batches == 0 {
        return Ok(());
    }
    // Panels do not change bits, because every element of C sums over k in one call.
    let work = m.saturating_mul(n).saturating_mul(k);
    let threads = thread_pool::num_threads();
    let wide = n >= m;
    let extent = if wide { n } else { m };
    let panels = if !parallel || work <= SMALL || batches >= 2 * threads {
        1
    } else {
        extent.div_ceil(PANEL).min(threads)
    };
    let step = extent.div_ceil(panels).next_multiple_of(PANEL);
    // The last panel takes the remainder: a thin panel of its own would take another code path in
    // the crate and produce other bits.
    let panels = (extent / step).max(1);
    let parallel = parallel && work.saturating_mul(batches) > SMALL;
    thread_pool::try_for(batches * panels, parallel, &|t| {
        let (batch, from) = (t / panels, (t % panels) * step);
        let len = if t % panels + 1 == panels { extent - from } else { step };
        let [mut c, mut a, mut b] = mats(batch);
        let (mut rows, mut columns) = (m, n);
        if wide {
            (b, c, columns) = (b.skip_columns(from), c.skip_columns(from), len);
        } else {
            (a, c, rows) = (a.skip_rows(from), c.skip_rows(from), len);
        }
        // SAFETY: the caller's promise; panels of C are disjoint.
        unsafe {
            match k {
                0 => scale_matrix(c, rows, columns, beta),
                _ => T::product(Gemm { sizes: [rows, columns, k], c, a, b, alpha, beta }),
            }
        }
        Ok(())
    })
}

/// Computes the product in a wider type, on contiguous widened copies, and casts the result back.
fn narrow<T: Product>(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: T,
    beta: T,
) -> Result<()> {
    let (wide_a, wide_b) = (to_vec::<T>(a)?, to_vec::<T>(b)?);
    let mut wide_c =
        if beta.is_zero() { filled(KERNEL, T::default(), c.numel())? } else { to_vec(c)? };
    let sizes = Dims::from_slice(c.sizes());
    let overflow = || KernelError::argument(KERNEL, "the sizes overflow");
    let wide_a = View::from_slice_sized(&wide_a, a.sizes()).ok_or_else(overflow)?;
    let wide_b = View::from_slice_sized(&wide_b, b.sizes()).ok_or_else(overflow)?;
    let mut wide_c = ViewMut::from_slice_sized(&mut wide_c, &sizes).ok_or_else(overflow)?;
    run::<T>(&wide_a, &wide_b, &mut wide_c, alpha, beta)?;
    copy(&wide_c, c)
}
