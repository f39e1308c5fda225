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
use std::borrow::Cow;

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
    let or = |v: &Option<View<'_>>, none: A| match v {
        None => filled("layer_norm", none, rows.n).map(Cow::Owned),
        Some(v) if v.dtype() == A::DTYPE && v.is_contiguous() && v.numel() == rows.n => {
            // SAFETY: these are the elements of the view, which nothing writes.
            Ok(Cow::Borrowed(unsafe { v.typed::<A>().slice(0, rows.n) }))
        }
        Some(v) => to_vec::<A>(v).map(Cow::Owned),
    };
    let (weight, bias) = (or(&operands.weight, A::ONE)?, or(&operands.bias, -A::ZERO)?);
    let count = rows.outer.numel();
    let (mut mean, mut rstd) = (operands.mean, operands.rstd);
    let mut means = Statistics::new(mean.as_mut(), count)?;
    let mut rstds = Statistics::new(rstd.as_mut(), count)?;
    let (mp, rp) = (means.first(), rstds.first());
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
    means.finish(mean)?;
    rstds.finish(rstd)
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
            _ => filled("layer_norm", A::ZERO, count).map(Statistics::Buffer),
        }
    }

    fn first(&mut self) -> Ptr<A> {
        match self {
            Statistics::InPlace(first) => *first,
            Statistics::Buffer(values) => Ptr(values.as_mut_ptr()),
        }
    }

    /// Writes the numbers to their result, if they are not there.
    fn finish(self, out: Option<ViewMut<'_>>) -> Result<()> {
        let (Statistics::Buffer(values), Some(mut out)) = (self, out) else { return Ok(()) };
        let sizes = out.as_view().sizes();
        let view = View::from_slice_sized(&values, sizes).ok_or_else(|| KernelError::Shape {
            kernel: "layer_norm",
            operand: "the statistics",
            expected: vec![values.len() as i64],
            found: sizes.to_vec(),
        })?;
        copy(&view, &mut out)
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
