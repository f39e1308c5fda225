//! Softmax and its logarithm along a dimension.
//!
//! The greatest element of a row is subtracted first, so that no exponential overflows. Every step
//! rounds in the class (`f32` or `f64`), and sums have the order of [`reduce`](crate::reduce()).

use crate::copy::{check_dim, same_dtype, same_sizes};
use crate::element::{Element, dispatch};
use crate::error::Result;
use crate::isa::{Each, Isa, Map};
use crate::math::Float;
use crate::pointwise::ops::{Add, Max};
use crate::reduce::lanes::{row, row_into, row_of};
use crate::row_loops::{DenseRows, RowLoops};
use crate::view::{Ptr, View, ViewMut};

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
    same_dtype(kernel, "the output", input.dtype(), out.dtype())?;
    same_sizes(kernel, "the output", input.sizes(), out.sizes())?;
    if let Some(rows) = dense_rows(input, dim, out)
        && !out.overlaps(input)
    {
        return dispatch!(float kernel, "the input", input.dtype(), T => {
            let addresses = [input.typed::<T>(), out.typed::<T>()].map(|p| Ptr(p.0.cast()));
            // SAFETY: the views have these rows, whose type is the class.
            unsafe { dense::<<T as Element>::Class>(Isa::detect(), rows, addresses, log) }
        });
    }
    let rows = RowLoops::new(kernel, input, out, |d| d == dim)?;
    dispatch!(float kernel, "the input", input.dtype(), T => {
        rows.each::<T>(kernel, input, out, |isa, _, xs, ys| softmax_row(isa, xs, ys, log))
    })
}

/// The rows, if they are dense.
pub(crate) fn dense_rows(input: &View<'_>, dim: usize, out: &ViewMut<'_>) -> Option<DenseRows> {
    DenseRows::of(input, dim, out).filter(|_| dim + 1 == input.rank())
}

/// The softmax of dense rows, or its logarithm.
///
/// # Safety
/// As [`DenseRows::each`].
pub(crate) unsafe fn dense<A: Float>(
    isa: Isa,
    rows: DenseRows,
    addresses: [Ptr<A>; 2],
    log: bool,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { rows.each(addresses, |_, xs, ys| softmax_row(isa, xs, ys, log)) }
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
