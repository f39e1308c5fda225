//! Layer normalization over the last dimensions.
//!
//! Mean and variance of a row are those of [`Fold::Moments`](maquette_ir::loops::fold#moments).
//! Every step rounds in the class (`f32` or `f64`), and sums have the order of
//! [`reduce`](crate::reduce()).

use crate::copy::{copy, same_sizes, to_vec};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::isa::Simd;
use crate::math::Float;
use crate::reduce::lanes::moments;
use crate::row_loops::RowLoops;
use crate::scratch::filled;
use crate::view::{Ptr, View, ViewMut};

/// The optional operands of [`layer_norm`].
#[derive(Debug, Default)]
pub struct LayerNorm<'a> {
    /// The scale, with the normalized sizes and the input's dtype.
    pub weight: Option<View<'a>>,
    /// The shift, with the normalized sizes and the input's dtype.
    pub bias: Option<View<'a>>,
    /// Receives the means: any float dtype, with an element for each row in row-major order.
    pub mean: Option<ViewMut<'a>>,
    /// Receives `1 / sqrt(var + eps)`, in the same form.
    pub rstd: Option<ViewMut<'a>>,
}

/// Computes `(x - mean) * rstd * weight + bias` over the last `normalized` dimensions, for floats.
/// The input may be the output itself.
pub fn layer_norm(
    input: &View<'_>,
    normalized: usize,
    eps: f64,
    operands: LayerNorm<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    const KERNEL: &str = "layer_norm";
    let Some(first) = input.rank().checked_sub(normalized) else {
        return Err(KernelError::Dim { kernel: KERNEL, dim: normalized, rank: input.rank() });
    };
    for (name, v) in [("weight", &operands.weight), ("bias", &operands.bias)] {
        if let Some(v) = v {
            same_sizes(KERNEL, name, &input.sizes()[first..], v.sizes())?;
        }
    }
    let rows = RowLoops::new(KERNEL, input, out, |d| d >= first)?;
    dispatch!(float KERNEL, "the input", input.dtype(), T => {
        layer_norm_rows::<T, <T as Element>::Class>(&rows, input, eps, operands, out)
    })
}

fn layer_norm_rows<T: Element<Class = A>, A: Float>(
    rows: &RowLoops,
    input: &View<'_>,
    eps: f64,
    operands: LayerNorm<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    // The defaults 1 and -0 change no bit of `x * weight + bias`.
    let or = |v: &Option<View<'_>>, none: A| {
        v.as_ref().map_or_else(|| filled("layer_norm", none, rows.n), to_vec::<A>)
    };
    let (weight, bias) = (or(&operands.weight, A::ONE)?, or(&operands.bias, -A::ZERO)?);
    let count = rows.outer.numel();
    let (mut means, mut rstds) =
        (filled("layer_norm", A::ZERO, count)?, filled("layer_norm", A::ZERO, count)?);
    let (mp, rp) = (Ptr(means.as_mut_ptr()), Ptr(rstds.as_mut_ptr()));
    let n = A::from_f64(rows.n as f64);
    rows.each::<T>("layer_norm", input, out, |isa, r, xs, ys| {
        let [mean, squares] = moments(isa, xs);
        let variance = squares / n;
        let rstd = A::ONE / (variance + A::from_f64(eps)).sqrt();
        isa.dispatch(Normalize { xs, ys, mean, rstd, weight: &weight, bias: &bias });
        // SAFETY: `r` is below `count`, and a row belongs to one task.
        unsafe {
            mp.set(r as i64, mean);
            rp.set(r as i64, rstd);
        }
    })?;
    for (values, out) in [(&means, operands.mean), (&rstds, operands.rstd)] {
        if let Some(mut out) = out {
            let sizes = out.as_view().sizes();
            let values = View::from_slice_sized(values, sizes).ok_or_else(|| {
                let (expected, found) = (vec![count as i64], sizes.to_vec());
                KernelError::Shape {
                    kernel: "layer_norm",
                    operand: "the statistics",
                    expected,
                    found,
                }
            })?;
            copy(&values, &mut out)?;
        }
    }
    Ok(())
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
