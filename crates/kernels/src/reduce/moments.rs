//! Means, norms and variances: reductions of mapped elements, followed by a function of the result.
//!
//! The variance takes two passes, one for the means and one for the squared deviations. A one-pass
//! formula would be faster, but loses precision if the mean is large.

use super::shape::Shape;
use super::walk::{Map, run};
use super::{KERNEL, ReduceOp};
use crate::error::{KernelError, Result};
use crate::isa::{Each, Isa};
use crate::math::Float;
use crate::pointwise::ops::{Add, Max, Min, Op2};
use crate::scratch::filled;
use crate::view::{View, ViewMut};

/// `|x|^p`, or `|x|` for infinite p.
struct Power<A>(A);

impl<A: Float> Map<A> for Power<A> {
    fn row(&self, isa: Isa, _: usize, xs: &mut [A]) {
        let p = self.0;
        if p == A::ONE || p.abs() == A::INFINITY {
            isa.dispatch(Each(xs, |x: A| x.abs()));
        } else if p == A::ONE + A::ONE {
            isa.dispatch(Each(xs, |x: A| x * x));
        } else if p == A::ZERO {
            isa.dispatch(Each(xs, |x: A| if x == A::ZERO { A::ZERO } else { A::ONE }));
        } else {
            isa.dispatch(Each(xs, |x: A| x.abs().pow(p)));
        }
    }
    fn columns(&self, isa: Isa, _: usize, xs: &mut [A]) {
        self.row(isa, 0, xs);
    }
}

/// `(x - mean)^2`, with one mean per output.
struct Deviation<A>(Vec<A>);

impl<A: Float> Map<A> for Deviation<A> {
    fn row(&self, isa: Isa, out: usize, xs: &mut [A]) {
        let mean = self.0.get(out).copied().unwrap_or(A::ZERO);
        isa.dispatch(Each(xs, |x: A| (x - mean) * (x - mean)));
    }
    fn columns(&self, _: Isa, first: usize, xs: &mut [A]) {
        for (x, mean) in xs.iter_mut().zip(self.0.iter().skip(first)) {
            *x = (*x - *mean) * (*x - *mean);
        }
    }
}

/// A mean, norm, variance or standard deviation, accumulated in `A`.
pub(super) fn moments<A: Float>(
    op: ReduceOp,
    shape: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()>
where
    Add: Op2<A, A>,
{
    let count = A::from_f64(shape.extent() as f64);
    match op {
        ReduceOp::Mean => run::<A, Add>(shape, input, out, A::ZERO, None, &|x| x / count),
        ReduceOp::Norm(p) => {
            // The norm of one element is its magnitude. Its power could overflow.
            let p = if shape.extent() == 1 && p != 0.0 { f64::INFINITY } else { p };
            let (p, map) = (A::from_f64(p), Power(A::from_f64(p)));
            if p == A::INFINITY {
                run::<A, Max>(shape, input, out, A::ZERO, Some(&map), &|x| x)
            } else if p == -A::INFINITY {
                run::<A, Min>(shape, input, out, A::INFINITY, Some(&map), &|x| x)
            } else if p == A::ZERO || p == A::ONE {
                run::<A, Add>(shape, input, out, A::ZERO, Some(&map), &|x| x)
            } else if p == A::ONE + A::ONE {
                run::<A, Add>(shape, input, out, A::ZERO, Some(&map), &|x| x.sqrt())
            } else {
                run::<A, Add>(shape, input, out, A::ZERO, Some(&map), &|x| x.pow(A::ONE / p))
            }
        }
        ReduceOp::Var { correction } | ReduceOp::Std { correction } => {
            let mut means = filled(KERNEL, A::ZERO, shape.outputs())?;
            // With a divisor of 0 the result is NaN or infinite, as in PyTorch.
            let divisor = A::from_f64((shape.extent() as f64 - correction).max(0.0));
            let flat = shape.flat();
            if let Some(mut out) = ViewMut::from_slice_sized(&mut means, &[shape.outputs() as i64])
            {
                run::<A, Add>(&flat, input, &mut out, A::ZERO, None, &|x| x / count)?;
            }
            let map = Deviation(means);
            match op {
                ReduceOp::Std { .. } => {
                    run::<A, Add>(shape, input, out, A::ZERO, Some(&map), &|x| (x / divisor).sqrt())
                }
                _ => run::<A, Add>(shape, input, out, A::ZERO, Some(&map), &|x| x / divisor),
            }
        }
        _ => Err(KernelError::argument(KERNEL, "not a moment")),
    }
}
