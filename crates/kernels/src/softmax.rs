//! Softmax and its logarithm along a dimension.
//!
//! The greatest element of a row is subtracted first, so that no exponential overflows. Every step
//! rounds in the class (`f32` or `f64`), and sums have the order of [`reduce`](crate::reduce()).

use crate::copy::check_dim;
use crate::element::dispatch;
use crate::error::Result;
use crate::isa::{Each, Isa, Map};
use crate::math::Float;
use crate::pointwise::ops::{Add, Max};
use crate::reduce::lanes::{row, row_into, row_of};
use crate::row_loops::RowLoops;
use crate::view::{View, ViewMut};

/// Computes `exp(x - max) * (1 / sum)` along a dimension, for floats. The input may be the output
/// itself.
pub fn softmax(input: &View<'_>, dim: usize, out: &mut ViewMut<'_>) -> Result<()> {
    exponentials("softmax", input, dim, out, false)
}

/// Computes `x - max - log(sum(exp(x - max)))` along a dimension, for floats. The input may be the
/// output itself.
pub fn log_softmax(input: &View<'_>, dim: usize, out: &mut ViewMut<'_>) -> Result<()> {
    exponentials("log_softmax", input, dim, out, true)
}

fn exponentials(
    kernel: &'static str,
    input: &View<'_>,
    dim: usize,
    out: &mut ViewMut<'_>,
    log: bool,
) -> Result<()> {
    check_dim(kernel, dim, input.rank())?;
    let rows = RowLoops::new(kernel, input, out, |d| d == dim)?;
    dispatch!(float kernel, "the input", input.dtype(), T => {
        rows.each::<T>(kernel, input, out, |isa, _, xs, ys| softmax_row(isa, xs, ys, log))
    })
}

fn softmax_row<A: Float>(isa: Isa, xs: &[A], ys: &mut [A], log: bool) {
    let max = row::<A, Max>(isa, xs, -A::INFINITY);
    if log {
        let log = row_of::<A, Add, _>(isa, xs, A::ZERO, |x: A| (x - max).exp()).log();
        isa.dispatch(Map(xs, ys, |x: A| x - max - log));
    } else {
        let scale = A::ONE / row_into::<A, Add, _>(isa, xs, ys, A::ZERO, |x: A| (x - max).exp());
        isa.dispatch(Each(ys, |y: A| y * scale));
    }
}
