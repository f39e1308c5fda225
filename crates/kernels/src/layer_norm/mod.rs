//! Layer normalization over the last dimensions.
//!
//! Mean and variance of a row are those of [`Fold::Moments`](maquette_ir::loops::fold#moments).
//! Every step rounds in the class (`f32` or `f64`), and sums have the order of
//! [`reduce`](crate::reduce()).

mod backward;

pub use backward::{LayerNormBackward, layer_norm_backward};

use crate::copy::{copy, elements, same_dtype, same_sizes};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::isa::{Isa, Simd};
use crate::math::Float;
use crate::reduce::lanes::moments;
use crate::row_loops::{DenseRows, RowLoops};
use crate::scratch::filled;
use crate::view::{Ptr, View, ViewMut, numel};
use std::borrow::Cow;

const KERNEL: &str = "layer_norm";

/// The optional operands of [`layer_norm`].
#[derive(Debug, Default)]
pub struct LayerNorm<'v, 'm> {
    /// The scale, with the normalized sizes and the input's dtype.
    pub weight: Option<&'v View<'v>>,
    /// The shift, with the normalized sizes and the input's dtype.
    pub bias: Option<&'v View<'v>>,
    /// Receives the means: any float dtype, with an element for each row in row-major order.
    pub mean: Option<&'v mut ViewMut<'m>>,
    /// Receives `1 / sqrt(var + eps)`, in the same form.
    pub rstd: Option<&'v mut ViewMut<'m>>,
}

/// Computes `(x - mean) * rstd * weight + bias` over the last `normalized` dimensions, for floats.
/// The input may be the output itself.
pub fn layer_norm(
    input: &View<'_>,
    normalized: usize,
    eps: f64,
    operands: LayerNorm<'_, '_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let Some(first) = input.rank().checked_sub(normalized) else {
        return Err(KernelError::Dim { kernel: KERNEL, dim: normalized, rank: input.rank() });
    };
    for (name, v) in [("weight", operands.weight), ("bias", operands.bias)] {
        if let Some(v) = v {
            same_sizes(KERNEL, name, &input.sizes()[first..], v.sizes())?;
        }
    }
    same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
    same_sizes(KERNEL, "the output", input.sizes(), out.sizes())?;
    dispatch!(float KERNEL, "the input", input.dtype(), T => {
        layer_norm_rows::<T, <T as Element>::Class>(input, first, eps, operands, out)
    })
}

fn layer_norm_rows<T: Element<Class = A>, A: Float>(
    input: &View<'_>,
    first: usize,
    eps: f64,
    operands: LayerNorm<'_, '_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let [count, n] = [&input.sizes()[..first], &input.sizes()[first..]].map(numel);
    let LayerNorm { weight, bias, mut mean, mut rstd } = operands;
    // The defaults 1 and -0 change no bit of `x * weight + bias`.
    let parameters = match (weight, bias) {
        (None, None) => None,
        _ => Some((elements_or(weight, A::ONE, n)?, elements_or(bias, -A::ZERO, n)?)),
    };
    let mut means = Statistics::new(mean.as_deref_mut(), count)?;
    let mut rstds = Statistics::new(rstd.as_deref_mut(), count)?;
    let norm = RowNorm {
        isa: Isa::detect(),
        eps: A::from_f64(eps),
        parameters: parameters.as_ref().map(|(weight, bias)| (&weight[..], &bias[..])),
        statistics: [means.first(), rstds.first()],
    };
    match DenseRows::of(input, first, out).filter(|_| !out.overlaps(input)) {
        Some(rows) => {
            let addresses = [input.typed::<T>(), out.typed::<T>()].map(|p| Ptr(p.0.cast()));
            // SAFETY: the views have these rows, whose type is the class, and the statistics have
            // an element for each.
            unsafe { norm.dense(rows, addresses)? }
        }
        None => {
            let rows = RowLoops::new(KERNEL, input, out, |d| d >= first)?;
            rows.each::<T>(KERNEL, input, out, |_, r, xs, ys| {
                // SAFETY: `r` is below the number of rows, and a row belongs to one task.
                unsafe { norm.row(r, xs, ys) }
            })?;
        }
    }
    means.finish(mean)?;
    rstds.finish(rstd)
}

/// The elements of a row of parameters, or `n` copies of a default.
fn elements_or<'a, A: Element + Float>(
    v: Option<&'a View<'_>>,
    none: A,
    n: usize,
) -> Result<Cow<'a, [A]>> {
    v.map_or_else(|| filled(KERNEL, none, n).map(Cow::Owned), elements::<A>)
}

/// The norms of rows.
pub(crate) struct RowNorm<'a, A> {
    pub isa: Isa,
    pub eps: A,
    /// The scale and the shift, with the elements of a row.
    pub parameters: Option<(&'a [A], &'a [A])>,
    /// Where the means go, and the reciprocal standard deviations.
    pub statistics: [Ptr<A>; 2],
}

impl<A: Float> RowNorm<'_, A> {
    /// Normalizes dense rows.
    ///
    /// # Safety
    /// As [`DenseRows::each`]; the statistics have an element for each row.
    pub unsafe fn dense(&self, rows: DenseRows, addresses: [Ptr<A>; 2]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { rows.each(addresses, |r, xs, ys| self.row(r, xs, ys)) }
    }

    /// Normalizes row `r`.
    ///
    /// # Safety
    /// The statistics have an element `r`, which no other task writes.
    unsafe fn row(&self, r: usize, xs: &[A], ys: &mut [A]) {
        let RowNorm { isa, eps, parameters, statistics } = self;
        let [mean, squares] = moments(*isa, xs);
        let variance = squares / A::from_f64(xs.len() as f64);
        let rstd = A::ONE / (variance + *eps).sqrt();
        match *parameters {
            None => isa.dispatch(Standardize { xs, ys, mean, rstd }),
            Some((weight, bias)) => isa.dispatch(Normalize { xs, ys, mean, rstd, weight, bias }),
        }
        for (to, x) in statistics.iter().zip([mean, rstd]) {
            // SAFETY: the caller's promise.
            unsafe { to.set(r as i64, x) }
        }
    }
}

/// Where a number for each row is computed: in the memory of its result, if that has the form, or
/// else in a buffer.
enum Statistics<A> {
    InPlace(Ptr<A>),
    Buffer(Vec<A>),
}

impl<A: Float> Statistics<A> {
    fn new(out: Option<&mut ViewMut<'_>>, count: usize) -> Result<Statistics<A>> {
        match out {
            Some(v) if v.dtype() == A::DTYPE && v.is_contiguous() && v.numel() == count => {
                Ok(Statistics::InPlace(v.typed::<A>()))
            }
            _ => filled(KERNEL, A::ZERO, count).map(Statistics::Buffer),
        }
    }

    fn first(&mut self) -> Ptr<A> {
        match self {
            Statistics::InPlace(first) => *first,
            Statistics::Buffer(values) => Ptr(values.as_mut_ptr()),
        }
    }

    /// Writes the numbers to their result, if they are not there.
    fn finish(self, out: Option<&mut ViewMut<'_>>) -> Result<()> {
        let (Statistics::Buffer(values), Some(out)) = (self, out) else { return Ok(()) };
        let sizes = out.as_view().sizes();
        let view = View::from_slice_sized(&values, sizes).ok_or_else(|| KernelError::Shape {
            kernel: KERNEL,
            operand: "the statistics",
            expected: vec![values.len() as i64],
            found: sizes.to_vec(),
        })?;
        copy(&view, out)
    }
}

/// `y = (x - mean) * rstd`, rounded at each step.
struct Standardize<'a, A> {
    xs: &'a [A],
    ys: &'a mut [A],
    mean: A,
    rstd: A,
}

impl<A: Float> Simd for Standardize<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (y, x) in self.ys.iter_mut().zip(self.xs) {
            *y = (*x - self.mean) * self.rstd;
        }
    }
}

/// `y = (x - mean) * rstd * weight + bias`, rounded at each step.
struct Normalize<'a, A> {
    xs: &'a [A],
    ys: &'a mut [A],
    mean: A,
    rstd: A,
    weight: &'a [A],
    bias: &'a [A],
}

impl<A: Float> Simd for Normalize<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (((y, x), w), b) in self.ys.iter_mut().zip(self.xs).zip(self.weight).zip(self.bias) {
            *y = (*x - self.mean) * self.rstd * *w + *b;
        }
    }
}
