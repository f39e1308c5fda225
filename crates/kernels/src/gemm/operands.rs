//! Matrices in memory, and products of them for kernels that are built on products.

use super::epilogue::{Operand, Output};
use super::pack::Right;
use super::{Float, Kernels, blocks, special};
use crate::conv::Pixels;
use crate::element::Class;
use crate::error::Result;
use crate::isa::Isa;
use crate::load_store::Reader;
use crate::view::Ptr;

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

    /// The elements of one column, one for each row, for all columns.
    pub fn column(start: Ptr<T>) -> Mat<T> {
        Mat { start, row_stride: 1, column_stride: 0 }
    }

    pub fn transposed(self) -> Mat<T> {
        Mat { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    /// The matrix without its first `n` rows.
    #[inline(always)]
    pub fn skip_rows(self, n: usize) -> Mat<T> {
        Mat { start: Ptr(self.start.0.wrapping_offset(n as isize * self.row_stride)), ..self }
    }

    /// The matrix without its first `n` columns.
    #[inline(always)]
    pub fn skip_columns(self, n: usize) -> Mat<T> {
        Mat { start: Ptr(self.start.0.wrapping_offset(n as isize * self.column_stride)), ..self }
    }

    /// The offset of an element from `start`.
    #[inline(always)]
    pub fn offset(&self, row: usize, column: usize) -> i64 {
        (row as isize * self.row_stride + column as isize * self.column_stride) as i64
    }
}

impl<F: Class> Operand<F> {
    /// A matrix of the class itself.
    pub fn of_mat(mat: Mat<F>) -> Operand<F> {
        Operand {
            reader: Reader::of_class(mat.start),
            direct: mat.start,
            at: 0,
            strides: [mat.row_stride as i64, mat.column_stride as i64],
        }
    }
}

/// The operands of one product: `c[m, n] = alpha a[m, k] b[k, n] + addend`.
#[derive(Clone, Copy)]
pub(crate) struct Gemm<'a, T> {
    /// m, n and k.
    pub sizes: [usize; 3],
    pub c: Mat<T>,
    pub a: Mat<T>,
    pub b: Right<'a, T>,
    pub alpha: T,
    pub addend: Option<Mat<T>>,
}

/// A class in which matrix products are computed.
pub(crate) trait Product: Class {
    /// Computes a product, on the thread pool if `threads` is more than one.
    ///
    /// # Safety
    /// The matrices must be in live memory, and nothing else accesses C during the call.
    unsafe fn product(isa: Isa, threads: usize, gemm: Gemm<'_, Self>) -> Result<()>;

    /// Computes a convolution as a product of pixels; `None`, with nothing written, if this class
    /// or these sizes have no such product.
    ///
    /// # Safety
    /// The operands are in live memory of these sizes, and nothing else accesses the output.
    unsafe fn convolve(_: Pixels<'_, Self>) -> Option<Result<()>> {
        None
    }

    /// The microkernels of floats.
    fn microkernels(_: Isa) -> Option<&'static Kernels<Self>> {
        None
    }

    /// `a * b + c` in work that is dispatched on `isa`. Floats are rounded once, integers wrap.
    fn multiply_add(isa: Isa, a: Self, b: Self, c: Self) -> Self;
}

/// # Safety
/// As [`Product::product`].
unsafe fn float_product<F: Float>(isa: Isa, threads: usize, gemm: Gemm<'_, F>) -> Result<()> {
    let Gemm { sizes, c, a, b, alpha, addend } = gemm;
    if sizes[0] == 0 || sizes[1] == 0 {
        return Ok(());
    }
    let plain = Output::plain(c, if sizes[2] == 0 { F::ONE } else { alpha });
    let output = Output { addend: addend.map(Operand::of_mat), ..plain };
    // SAFETY: the caller's promise.
    unsafe {
        match b {
            Right::InPlace(b) => special::product(
                isa,
                threads,
                sizes,
                Operand::of_mat(a),
                Operand::of_mat(b),
                output,
            ),
            _ => special::with_rows(isa, threads, sizes, Operand::of_mat(a), &|a| {
                let blocks = blocks::Blocks::new(isa, sizes, a, b, output);
                blocks.run(threads)
            }),
        }
    }
}

impl Product for f32 {
    unsafe fn product(isa: Isa, threads: usize, gemm: Gemm<'_, f32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { float_product(isa, threads, gemm) }
    }

    unsafe fn convolve(of: Pixels<'_, f32>) -> Option<Result<()>> {
        // SAFETY: the caller's promise.
        unsafe { of.run() }
    }

    fn microkernels(isa: Isa) -> Option<&'static Kernels<f32>> {
        Some(<f32 as Float>::kernels(isa))
    }

    #[inline(always)]
    fn multiply_add(isa: Isa, a: f32, b: f32, c: f32) -> f32 {
        special::fma(isa, a, b, c)
    }
}

impl Product for f64 {
    unsafe fn product(isa: Isa, threads: usize, gemm: Gemm<'_, f64>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { float_product(isa, threads, gemm) }
    }

    unsafe fn convolve(of: Pixels<'_, f64>) -> Option<Result<()>> {
        // SAFETY: the caller's promise.
        unsafe { of.run() }
    }

    fn microkernels(isa: Isa) -> Option<&'static Kernels<f64>> {
        Some(<f64 as Float>::kernels(isa))
    }

    #[inline(always)]
    fn multiply_add(isa: Isa, a: f64, b: f64, c: f64) -> f64 {
        special::fma(isa, a, b, c)
    }
}
