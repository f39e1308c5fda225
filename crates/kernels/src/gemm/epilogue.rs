//! From the sums of a product to its result: factors, addend, activation, residual, rounding.

use super::kernel::Finish;
use super::{Float, Mat};
use crate::element::Class;
use crate::isa::{Each, Isa, Simd};
use crate::load_store::{Reader, Writer};
use crate::view::{Ptr, View};
use maquette_ir::Scalar;

/// How a product's sums become its result:
/// `residual + activation(alpha * sum + beta * addend)`.
///
/// Every operation rounds once, from left to right. Half precision is computed in `f32` and rounded
/// at the end.
#[derive(Clone, Debug)]
pub struct Epilogue<'a> {
    /// The factor of the sums. The sum of no products is not multiplied.
    pub alpha: Scalar,
    /// The factor of the addend. With 0 the addend is not read, even where it is NaN.
    pub beta: Scalar,
    /// Added after both factors; it expands to the result. A bias is a row or a column.
    pub addend: Option<View<'a>>,
    /// Applied to the sum of both.
    pub activation: Option<Activation>,
    /// Added last; it expands to the result.
    pub residual: Option<View<'a>>,
}

impl Default for Epilogue<'_> {
    /// The product alone.
    fn default() -> Self {
        Epilogue {
            alpha: Scalar::Int(1),
            beta: Scalar::Int(1),
            addend: None,
            activation: None,
            residual: None,
        }
    }
}

/// A function that an [`Epilogue`] applies to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x * (1 + erf(x / √2)) / 2`.
    Gelu,
    /// `x * sigmoid(x)`.
    Silu,
    /// `tanh(x)`.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// A matrix to read, of any dtype.
#[derive(Clone, Copy)]
pub(super) struct Operand<F> {
    pub reader: Reader<F>,
    /// The memory itself, if its dtype is `F`, otherwise null.
    pub direct: Ptr<F>,
    /// The offset of element (0, 0) from the reader's base, and the strides.
    pub at: i64,
    pub strides: [i64; 2],
}

impl<F: Class> Operand<F> {
    /// The matrix in the last two dimensions of a view, in the batch at offset `at`.
    pub fn new(v: &View<'_>, at: i64) -> Operand<F> {
        let rank = v.rank();
        let direct = if v.dtype() == F::DTYPE { v.typed::<F>().0 } else { std::ptr::null_mut() };
        Operand {
            reader: Reader::new(v),
            direct: Ptr(direct),
            at,
            strides: [v.strides()[rank - 2], v.strides()[rank - 1]],
        }
    }

    pub fn transposed(self) -> Self {
        Operand { strides: [self.strides[1], self.strides[0]], ..self }
    }

    /// The matrix in memory, if its dtype is `F`.
    pub fn mat(&self) -> Option<Mat<F>> {
        (!self.direct.0.is_null()).then(|| Mat {
            start: Ptr(self.direct.0.wrapping_offset(self.at as isize)),
            row_stride: self.strides[0] as isize,
            column_stride: self.strides[1] as isize,
        })
    }

    /// Reads elements `(row, column)`, `(row, column + 1)`, ….
    ///
    /// # Safety
    /// The elements are in the matrix.
    pub unsafe fn read_row(&self, isa: Isa, row: usize, column: usize, out: &mut [F]) {
        let at = self.at + row as i64 * self.strides[0] + column as i64 * self.strides[1];
        // SAFETY: the caller's promise.
        unsafe { self.reader.read(isa, at, self.strides[1], out) }
    }
}

/// The matrix that a product writes, and how.
#[derive(Clone, Copy)]
pub(super) struct Output<F> {
    pub writer: Writer<F>,
    /// The memory itself, if its dtype is `F`, otherwise null.
    pub direct: Ptr<F>,
    pub at: i64,
    pub strides: [i64; 2],
    pub alpha: F,
    pub beta: F,
    pub addend: Option<Operand<F>>,
    pub activation: Option<Activation>,
    pub residual: Option<Operand<F>>,
}

/// The most columns of a tile.
pub(super) const COLUMNS: usize = 64;

impl<F: Float> Output<F> {
    /// The product alone, written to memory.
    pub fn plain(c: Mat<F>, alpha: F) -> Output<F> {
        Output {
            writer: Writer::of_class(c.start),
            direct: c.start,
            at: 0,
            strides: [c.row_stride as i64, c.column_stride as i64],
            alpha,
            beta: F::ONE,
            addend: None,
            activation: None,
            residual: None,
        }
    }

    pub fn transposed(self) -> Self {
        Output {
            strides: [self.strides[1], self.strides[0]],
            addend: self.addend.map(Operand::transposed),
            residual: self.residual.map(Operand::transposed),
            ..self
        }
    }

    /// The address of an element.
    pub fn address(&self, row: usize, column: usize) -> *mut F {
        let at = self.at + row as i64 * self.strides[0] + column as i64 * self.strides[1];
        self.direct.0.wrapping_offset(at as isize)
    }

    /// The part of the epilogue that the kernels do, if they can do all of it.
    pub fn in_kernel(&self) -> Option<Finish<F>> {
        let is_simple = !self.direct.0.is_null()
            && self.strides[1] == 1
            && self.activation.is_none()
            && self.residual.is_none();
        let mut finish = Finish {
            alpha: self.alpha,
            beta: self.beta,
            addend: Ptr(std::ptr::null_mut()),
            addend_stride: 0,
            addend_repeats: false,
        };
        if let Some(addend) = &self.addend {
            let mat = addend.mat().filter(|m| m.column_stride == 1 || m.column_stride == 0)?;
            finish.addend = mat.start;
            finish.addend_stride = mat.row_stride;
            finish.addend_repeats = mat.column_stride == 0;
        }
        is_simple.then_some(finish)
    }

    /// Finishes and writes the elements from `(row, column)` whose sums are `sums`.
    ///
    /// # Safety
    /// The elements are in C, and this task's alone.
    pub unsafe fn row(&self, isa: Isa, row: usize, column: usize, sums: &mut [F]) {
        let mut other = [F::default(); COLUMNS];
        let (alpha, beta) = (self.alpha, self.beta);
        for (first, xs) in (column..).step_by(COLUMNS).zip(sums.chunks_mut(COLUMNS)) {
            isa.dispatch(Each(xs, |x: F| x * alpha));
            let mut add = |xs: &mut [F], operand: &Option<Operand<F>>, factor: F| {
                let Some(operand) = operand else { return };
                let ys = &mut other[..xs.len()];
                // SAFETY: the operands expand to C.
                unsafe { operand.read_row(isa, row, first, ys) }
                isa.dispatch(AddScaled(xs, ys, factor));
            };
            add(xs, &self.addend, beta);
            if let Some(f) = self.activation {
                isa.dispatch(Activate(xs, f));
            }
            add(xs, &self.residual, F::ONE);
            isa.dispatch(Each(xs, |x: F| x.one_nan()));
            let at = self.at + row as i64 * self.strides[0] + first as i64 * self.strides[1];
            // SAFETY: the caller's promise.
            unsafe { self.writer.write_run(isa, at, self.strides[1], xs) }
        }
    }
}

/// `x = x + y * factor` with two roundings.
struct AddScaled<'a, F>(&'a mut [F], &'a [F], F);

impl<F: Float> Simd for AddScaled<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (x, y) in self.0.iter_mut().zip(self.1) {
            *x = *x + *y * self.2;
        }
    }
}

struct Activate<'a, F>(&'a mut [F], Activation);

impl<F: Float> Simd for Activate<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let half = F::from_f64(0.5);
        let xs = self.0.iter_mut();
        match self.1 {
            Activation::Relu => xs.for_each(|x| *x = if *x < F::ZERO { F::ZERO } else { *x }),
            Activation::Gelu => {
                let scale = F::from_f64(std::f64::consts::FRAC_1_SQRT_2);
                xs.for_each(|x| *x = *x * half * (F::ONE + (*x * scale).erf()));
            }
            Activation::Silu => xs.for_each(|x| *x = *x * x.sigmoid()),
            Activation::Tanh => xs.for_each(|x| *x = x.tanh()),
            Activation::Sigmoid => xs.for_each(|x| *x = x.sigmoid()),
        }
    }
}
