//! The gradients of a layer normalization, in one pass over the rows.
//!
//! With `z = (x - mean) rstd` and `s = g weight`, for a row of `n` elements:
//!
//! ```text
//! dx = (s - Σ s / n - z (Σ s z / n)) rstd        dweight = Σ_rows g z        dbias = Σ_rows g
//! ```
//!
//! Every step rounds. Sums along a row have the order of [`reduce`](crate::reduce()). Sums over
//! rows add the rows of a block of [`ROWS`] in order, then the blocks in order: the bits do not
//! depend on the number of threads. The scratch is two rows for each block.

use super::KERNEL;
use crate::copy::{elements, same_dtype, same_sizes};
use crate::element::Element;
use crate::error::{KernelError, Result};
use crate::isa::{Isa, Simd};
use crate::math::Float;
use crate::pointwise::ops::Add;
use crate::reduce::lanes;
use crate::scratch::{Scratch, with_scratch};
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut, numel};
use maquette_ir::DType;
use std::borrow::Cow;

/// The rows of a block.
const ROWS: usize = 32;

/// The operands of [`layer_norm_backward`], all of `f32` or all of `f64`.
#[derive(Debug)]
pub struct LayerNormBackward<'v> {
    /// The gradient of the result, with the sizes of the input.
    pub grad: &'v View<'v>,
    /// The input of the layer norm.
    pub input: &'v View<'v>,
    /// The means and the reciprocal standard deviations: an element for each row, in row-major
    /// order.
    pub statistics: [&'v View<'v>; 2],
    /// The scale, with the normalized sizes.
    pub weight: Option<&'v View<'v>>,
}

/// The gradients of the input, of the weight and of the bias of a
/// [`layer_norm`](super::layer_norm()) over the last `normalized` dimensions. The results are
/// row-major.
///
/// # Errors
/// The sizes or the dtypes do not fit, or there is not enough memory.
pub fn layer_norm_backward(
    operands: &LayerNormBackward<'_>,
    normalized: usize,
    outs: [&mut ViewMut<'_>; 3],
) -> Result<()> {
    let LayerNormBackward { grad, input, statistics, weight } = operands;
    let Some(first) = input.rank().checked_sub(normalized) else {
        return Err(KernelError::Dim { kernel: KERNEL, dim: normalized, rank: input.rank() });
    };
    let own = &input.sizes()[first..];
    let of_rows = numel(&input.sizes()[..first]);
    let operands = [("the gradient", *grad, input.sizes())].into_iter();
    for (name, view, sizes) in operands
        .chain([("the gradient of the input", outs[0].as_view(), input.sizes())])
        .chain(outs[1..].iter().map(|out| ("a gradient of the parameters", out.as_view(), own)))
        .chain(weight.iter().map(|w| ("weight", *w, own)))
    {
        same_sizes(KERNEL, name, sizes, view.sizes())?;
        same_dtype(KERNEL, name, input.dtype(), view.dtype())?;
    }
    for view in statistics {
        same_dtype(KERNEL, "the statistics", input.dtype(), view.dtype())?;
        if view.numel() != of_rows {
            let (expected, found) = (vec![of_rows as i64], view.sizes().to_vec());
            return Err(KernelError::Shape {
                kernel: KERNEL,
                operand: "the statistics",
                expected,
                found,
            });
        }
    }
    if !outs.iter().all(|out| out.as_view().is_contiguous()) {
        return Err(KernelError::argument(KERNEL, "the gradients must be row-major"));
    }
    match input.dtype() {
        DType::F32 => typed::<f32>(operands_of(grad, input, statistics, *weight)?, own, outs),
        DType::F64 => typed::<f64>(operands_of(grad, input, statistics, *weight)?, own, outs),
        found => {
            let expected = "f32 or f64".into();
            Err(KernelError::DType { kernel: KERNEL, operand: "the input", expected, found })
        }
    }
}

/// The elements of an operand in row-major order.
struct Rows<'a, A: Clone> {
    grad: Cow<'a, [A]>,
    input: Cow<'a, [A]>,
    mean: Cow<'a, [A]>,
    rstd: Cow<'a, [A]>,
    weight: Option<Cow<'a, [A]>>,
}

fn operands_of<'a, A: Element + Default>(
    grad: &'a View<'_>,
    input: &'a View<'_>,
    statistics: &[&'a View<'_>; 2],
    weight: Option<&'a View<'_>>,
) -> Result<Rows<'a, A>> {
    Ok(Rows {
        grad: elements(grad)?,
        input: elements(input)?,
        mean: elements(statistics[0])?,
        rstd: elements(statistics[1])?,
        weight: weight.map(elements).transpose()?,
    })
}

fn typed<A: Element + Float>(
    operands: Rows<'_, A>,
    own: &[i64],
    [dx, dweight, dbias]: [&mut ViewMut<'_>; 3],
) -> Result<()> {
    let (n, count) = (numel(own), operands.mean.len());
    if n == 0 {
        return Ok(());
    }
    let isa = Isa::detect();
    let blocks = count.div_ceil(ROWS);
    let mut sums = Scratch::<A>::new(KERNEL, blocks.saturating_mul(2 * n))?;
    let (sums, dx) = (Ptr(sums.get().as_mut_ptr()), dx.typed::<A>());
    let blocks_of_task = (thread_pool::GRAIN / (ROWS * n)).max(1);
    thread_pool::ranges(blocks, blocks_of_task, 1, &|from, to| {
        with_scratch(KERNEL, 3 * n, |scratch: &mut [A]| {
            for block in from..to {
                // SAFETY: a block's sums, and its rows of the result, are this task's alone.
                let sums = unsafe { sums.slice_mut((block * 2 * n) as i64, 2 * n) };
                for row in block * ROWS..count.min((block + 1) * ROWS) {
                    let at = row * n..(row + 1) * n;
                    // SAFETY: as above.
                    let dx = unsafe { dx.slice_mut(at.start as i64, n) };
                    let (mean, rstd) = (operands.mean[row], operands.rstd[row]);
                    let (standard, rest) = scratch.split_at_mut(n);
                    let (scaled, products) = rest.split_at_mut(n);
                    let (of_weight, of_bias) = sums.split_at_mut(n);
                    isa.dispatch(Gather {
                        grad: &operands.grad[at.clone()],
                        input: &operands.input[at],
                        weight: operands.weight.as_deref(),
                        statistics: [mean, rstd],
                        rows: [&mut *standard, &mut *scaled, &mut *products],
                        sums: [of_weight, of_bias],
                        is_first: row == block * ROWS,
                    });
                    let over = A::from_f64(n as f64);
                    let of = |row: &[A]| lanes::row::<A, Add>(isa, row, A::ZERO) / over;
                    let [average, slope] = [of(scaled), of(products)];
                    isa.dispatch(OfInput { dx, scaled, standard, average, slope, rstd });
                }
            }
        })
    })?;
    let outs = [dweight, dbias].map(|out| out.typed::<A>());
    let columns_of_task = (thread_pool::GRAIN / blocks.max(1)).max(1);
    thread_pool::ranges(n, columns_of_task, 64, &|from, to| {
        for (i, out) in outs.iter().enumerate() {
            // SAFETY: tasks write their own columns; the sums are finished.
            let out = unsafe { out.slice_mut(from as i64, to - from) };
            out.fill(A::ZERO);
            for block in 0..blocks {
                let at = ((2 * block + i) * n + from) as i64;
                // SAFETY: as above.
                let found = unsafe { sums.slice(at, to - from) };
                isa.dispatch(AddTo { out, found, is_first: block == 0 });
            }
        }
        Ok(())
    })
}

/// The standardized elements of a row, the scaled gradients, and their products; adds the row to
/// the sums of its block, or begins these with it.
struct Gather<'a, A> {
    grad: &'a [A],
    input: &'a [A],
    weight: Option<&'a [A]>,
    /// The mean and the reciprocal standard deviation.
    statistics: [A; 2],
    rows: [&'a mut [A]; 3],
    sums: [&'a mut [A]; 2],
    is_first: bool,
}

impl<A: Float> Simd for Gather<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Gather { grad, input, weight, statistics, rows, sums, is_first } = self;
        let ([mean, rstd], n) = (statistics, grad.len());
        let [standard, scaled, products] = rows.map(|row| &mut row[..n]);
        let [of_weight, of_bias] = sums.map(|sum| &mut sum[..n]);
        let input = &input[..n];
        for i in 0..n {
            standard[i] = (input[i] - mean) * rstd;
        }
        match weight {
            Some(weight) => scaled.iter_mut().zip(grad.iter().zip(weight)).for_each(
                #[inline(always)]
                |(s, (g, w))| *s = *g * *w,
            ),
            None => scaled.copy_from_slice(grad),
        }
        for i in 0..n {
            products[i] = scaled[i] * standard[i];
        }
        if is_first {
            for i in 0..n {
                of_weight[i] = grad[i] * standard[i];
            }
            of_bias.copy_from_slice(grad);
            return;
        }
        for i in 0..n {
            of_weight[i] = of_weight[i] + grad[i] * standard[i];
            of_bias[i] = of_bias[i] + grad[i];
        }
    }
}

/// The gradient of a row of the input.
struct OfInput<'a, A> {
    dx: &'a mut [A],
    scaled: &'a [A],
    standard: &'a [A],
    average: A,
    slope: A,
    rstd: A,
}

impl<A: Float> Simd for OfInput<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let OfInput { dx, scaled, standard, average, slope, rstd } = self;
        for (dx, (s, z)) in dx.iter_mut().zip(scaled.iter().zip(standard)) {
            *dx = (*s - average - *z * slope) * rstd;
        }
    }
}

/// Adds a block's sums to those before, or begins with them.
struct AddTo<'a, A> {
    out: &'a mut [A],
    found: &'a [A],
    is_first: bool,
}

impl<A: Float> Simd for AddTo<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let AddTo { out, found, is_first } = self;
        if is_first {
            return out.copy_from_slice(found);
        }
        for (out, x) in out.iter_mut().zip(found) {
            *out = *out + *x;
        }
    }
}
