//! General matrix products with arbitrary strides: `C = beta C + alpha A B`.
//!
//! Floats use the `gemm` crate, which blocks for caches and packs its operands. This module splits
//! C into panels along its longer dimension and makes one single-threaded call per panel on this
//! crate's pool. Each element sums over k within one call, so the bits do not depend on the number
//! of threads. `f16` and `bf16` are widened, accumulate in `f32` and round once. Integers use a
//! plain triple loop and wrap.

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
    let with = |x: i64, y: i64| batch.iter().copied().chain([x, y]).collect::<Dims>();
    same_sizes(KERNEL, "a", &with(m, k), a.sizes())?;
    same_sizes(KERNEL, "b", &with(k, n), b.sizes())?;
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

/// A type in which matrix products are computed.
pub(crate) trait Product: Class {
    /// # Safety
    /// The pointers and strides must describe matrices in live memory; `c` is not touched
    /// otherwise.
    #[allow(clippy::too_many_arguments)]
    unsafe fn product(
        m: usize,
        n: usize,
        k: usize,
        c: Mat<Self>,
        a: Mat<Self>,
        b: Mat<Self>,
        alpha: Self,
        beta: Self,
    );
    fn is_zero(self) -> bool;
    fn scale(self, by: Self) -> Self;
}

/// A matrix in memory: the address of element (0, 0), the row stride and the column stride.
#[derive(Clone, Copy)]
pub(crate) struct Mat<T>(pub Ptr<T>, pub isize, pub isize);

macro_rules! float_product {
    ($($t:ident)*) => {
        $(impl Product for $t {
            #[inline]
            unsafe fn product(
                m: usize,
                n: usize,
                k: usize,
                c: Mat<Self>,
                a: Mat<Self>,
                b: Mat<Self>,
                alpha: Self,
                beta: Self,
            ) {
                // The crate names them the other way round: its alpha scales C, its beta the
                // product. SAFETY: the caller's promise.
                unsafe {
                    gemm::gemm(
                        m, n, k, c.0.0, c.2, c.1, beta != 0.0, a.0.0, a.2, a.1, b.0.0, b.2, b.1,
                        beta, alpha, false, false, false,
                        gemm::Parallelism::None,
                    )
                }
            }
            fn is_zero(self) -> bool { self == 0.0 }
            fn scale(self, by: Self) -> Self { self * by }
        })*
    };
}
float_product!(f32 f64);

impl Product for i64 {
    unsafe fn product(
        m: usize,
        n: usize,
        k: usize,
        c: Mat<Self>,
        a: Mat<Self>,
        b: Mat<Self>,
        alpha: Self,
        beta: Self,
    ) {
        let at = |x: Mat<i64>, i: usize, j: usize| (i as isize * x.1 + j as isize * x.2) as i64;
        let mut row = vec![0i64; n];
        for i in 0..m {
            row.fill(0);
            for p in 0..k {
                // SAFETY: indices are within the matrices.
                let x = unsafe { a.0.get(at(a, i, p)) };
                // SAFETY: as above.
                (0..n).for_each(|j| {
                    row[j] = row[j].wrapping_add(x.wrapping_mul(unsafe { b.0.get(at(b, p, j)) }))
                });
            }
            for (j, r) in row.iter().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let old = if beta == 0 { 0 } else { c.0.get(at(c, i, j)).wrapping_mul(beta) };
                    c.0.set(at(c, i, j), old.wrapping_add(r.wrapping_mul(alpha)));
                }
            }
        }
    }
    fn is_zero(self) -> bool {
        self == 0
    }
    fn scale(self, by: Self) -> Self {
        self.wrapping_mul(by)
    }
}

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
        // the stride of a size-1 dimension has no meaning, and must not influence the choice of
        // code path and thus the bits
        let (rows, cols) = (v.sizes()[r], v.sizes()[r + 1]);
        let row_stride = if rows == 1 { cols } else { v.strides()[r] };
        let col_stride = if cols == 1 { 1 } else { v.strides()[r + 1] };
        Mat(
            Ptr(v.typed::<T>().0.wrapping_offset(at as isize)),
            row_stride as isize,
            col_stride as isize,
        )
    };
    let batches = crate::view::numel(&c.sizes()[..r]);
    // SAFETY: sizes were checked against each other; matrices of C are disjoint.
    unsafe {
        products(batches, [m, n, k], &|i| [mat(c, i), mat(a, i), mat(b, i)], alpha, beta, true)
    }
}

/// `c[m, n] = a[m, k] b[k, n]`, on the thread pool if `parallel`; the bits are the same either way.
///
/// # Safety
/// The matrices are in live memory, and `c` is not touched otherwise.
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
    // Splitting into panels does not change bits, since every element sums over k in one call.
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
        let [mut z, mut x, mut y] = mats(batch);
        let (mut rows, mut cols) = (m, n);
        if wide {
            (y.0, z.0, cols) = (advance(y, from, false), advance(z, from, false), len);
        } else {
            (x.0, z.0, rows) = (advance(x, from, true), advance(z, from, true), len);
        }
        // SAFETY: the caller's promise; panels of C are disjoint.
        unsafe {
            if k == 0 {
                for i in 0..rows as i64 {
                    for j in 0..cols as i64 {
                        let at = i * z.1 as i64 + j * z.2 as i64;
                        let old =
                            if beta.is_zero() { T::default() } else { z.0.get(at).scale(beta) };
                        z.0.set(at, old);
                    }
                }
            } else {
                T::product(rows, cols, k, z, x, y, alpha, beta);
            }
        }
        Ok(())
    })
}

pub(crate) fn advance<T>(x: Mat<T>, by: usize, rows: bool) -> Ptr<T> {
    Ptr(x.0.0.wrapping_offset(by as isize * if rows { x.1 } else { x.2 }))
}

/// Computes the product in a wider type, on contiguous widened copies, and casts the result back.
fn narrow<T: Product>(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: T,
    beta: T,
) -> Result<()> {
    let (x, y) = (to_vec::<T>(a)?, to_vec::<T>(b)?);
    let mut z = if beta.is_zero() { filled(KERNEL, T::default(), c.numel())? } else { to_vec(c)? };
    let sizes = Dims::from_slice(c.sizes());
    let fit = || KernelError::argument(KERNEL, "the sizes overflow");
    let va = View::from_slice_sized(&x, a.sizes()).ok_or_else(fit)?;
    let vb = View::from_slice_sized(&y, b.sizes()).ok_or_else(fit)?;
    let mut vc = ViewMut::from_slice_sized(&mut z, &sizes).ok_or_else(fit)?;
    run::<T>(&va, &vb, &mut vc, alpha, beta)?;
    copy(&vc, c)
}
