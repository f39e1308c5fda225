//! Means, norms and variances: sums of mapped elements, and what follows the sum.

use super::walk::{Map, Shape, run};
use super::{KERNEL, ReduceOp};
use crate::error::{KernelError, Result};
use crate::isa::{Each, Isa};
use crate::math::Float;
use crate::pointwise::ops::{Add, Max, Min, Op2};
use crate::scratch::filled;
use crate::view::{View, ViewMut};

/// |x|^p; for infinite p, |x|.
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

/// `(x - mean)^2`, with a mean per output.
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

/// Mean, norm, variance or standard deviation, accumulated in `A`.
pub(super) fn moments<A: Float>(
    op: ReduceOp,
    s: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()>
where
    Add: Op2<A, A>,
{
    let count = A::from_f64(s.extent() as f64);
    match op {
        ReduceOp::Mean => run::<A, Add>(s, input, out, A::ZERO, None, &|x| x / count),
        ReduceOp::Norm(p) => {
            // the norm of one element is its magnitude, whatever its powers would be
            let p = if s.extent() == 1 && p != 0.0 { f64::INFINITY } else { p };
            let (p, map) = (A::from_f64(p), Power(A::from_f64(p)));
            if p == A::INFINITY {
                run::<A, Max>(s, input, out, A::ZERO, Some(&map), &|x| x)
            } else if p == -A::INFINITY {
                run::<A, Min>(s, input, out, A::INFINITY, Some(&map), &|x| x)
            } else if p == A::ZERO || p == A::ONE {
                run::<A, Add>(s, input, out, A::ZERO, Some(&map), &|x| x)
            } else if p == A::ONE + A::ONE {
                run::<A, Add>(s, input, out, A::ZERO, Some(&map), &|x| x.sqrt())
            } else {
                run::<A, Add>(s, input, out, A::ZERO, Some(&map), &|x| x.pow(A::ONE / p))
            }
        }
        ReduceOp::Var { correction } | ReduceOp::Std { correction } => {
            let mut means = filled(KERNEL, A::ZERO, s.outputs())?;
            let by = s.extent() as f64 - correction;
            let by = A::from_f64(if by > 0.0 { by } else { 0.0 });
            let flat = s.flat();
            if let Some(mut m) = ViewMut::from_slice_sized(&mut means, &[s.outputs() as i64]) {
                run::<A, Add>(&flat, input, &mut m, A::ZERO, None, &|x| x / count)?;
            }
            let map = Deviation(means);
            match op {
                ReduceOp::Std { .. } => {
                    run::<A, Add>(s, input, out, A::ZERO, Some(&map), &|x| (x / by).sqrt())
                }
                _ => run::<A, Add>(s, input, out, A::ZERO, Some(&map), &|x| x / by),
            }
        }
        _ => Err(KernelError::argument(KERNEL, "not a moment")),
    }
}
