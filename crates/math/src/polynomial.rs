//! Polynomials by Horner's rule.

use crate::algebra::Real;

/// A polynomial, from the highest coefficient.
#[inline(always)]
pub(crate) fn polynomial<F: Real>(coefficients: &[F::Number], x: F) -> F {
    let mut p = F::constant(coefficients[0]);
    for c in &coefficients[1..] {
        p = p.mul_add(x, F::constant(*c));
    }
    p
}
