//! Bounded linear Diophantine equations: does `target = Σ stride * i` have a solution with
//! `0 <= i < size` for each step? Disjointness, membership and injectivity of views reduce to this
//! question; see the [module documentation](super).
//!
//! The tests are those of array dependence analysis in loop compilers:
//!
//! - bounds (Banerjee): the target is outside `[0, Σ stride * (size - 1)]`;
//! - gcd: a common divisor of the strides does not divide the target;
//! - exhaustive search, for plain numbers, within its budget;
//! - delinearization (Maslov 1992): multiples of a stride `t` and the other steps are separate
//!   equations for the quotient and the remainder of the target by `t`.
//!
//! Example: a row of length 8 in a matrix of row stride `s`: `s * i + j = 3 * s + 5` with
//! `j < 8 <= s` splits at `s` into `i = 3` and `j = 5`.
//!
//! An answer is exact; [`TriBool::Unknown`] means that no test decides. Delinearization recurses
//! into both parts, with at most [`BUDGET`] equations for one answer.

use super::arith::{ONE, SymArith, ZERO};
use super::merge::{Merge, Steps, normalise};
use super::search::{Search, represent};
use super::{Dim, TriBool};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::{Expr, Rel, gcd};

/// The most equations examined for one answer.
const BUDGET: u32 = 64;

/// Whether `target = Σ stride * i` has a solution with `0 <= i < size` for all steps. `Yes` is
/// valid only if no size is zero; `No` is always valid.
pub(super) fn has_solution(cx: &mut SymArith, target: Expr, steps: Steps) -> TriBool {
    let steps = normalise(cx, steps, Merge::Overlaps);
    solve(cx, target, &steps, &mut { BUDGET })
}

/// Solves for merged steps, sorted by decreasing stride.
fn solve(cx: &mut SymArith, target: Expr, steps: &Steps, budget: &mut u32) -> TriBool {
    if *budget == 0 {
        return TriBool::Unknown;
    }
    *budget -= 1;
    let Some(total) = cx.extent(steps) else { return TriBool::Unknown };
    if is_outside(cx, target, total) {
        return TriBool::No;
    }
    if target == ZERO || target == total {
        // The solutions are all counts zero, or all counts at their maximum.
        return TriBool::Yes;
    }
    match steps.as_slice() {
        [] => return cx.known(target, Rel::Eq, ZERO),
        [unit] if unit.stride == ONE => {
            return (cx.holds(target, Rel::Ge, ZERO) && cx.holds(target, Rel::Le, total))
                .then_some(true)
                .into();
        }
        _ => {}
    }
    match represent(target, steps) {
        Search::Found(_) => return TriBool::Yes,
        Search::Absent => return TriBool::No,
        Search::GaveUp if is_residue(cx, target, steps) => return TriBool::No,
        Search::GaveUp => {}
    }
    // Tries to split at each stride until a split decides.
    steps.iter().fold(TriBool::Unknown, |answer, d| {
        answer.or_else(|| split(cx, target, steps, d.stride, budget))
    })
}

/// Bounds test: whether the target is less than the least sum or greater than the greatest.
fn is_outside(cx: &mut SymArith, target: Expr, total: Expr) -> bool {
    let beyond =
        if fault_injected(Fault::ViewsThatShareEndsAreDisjoint) { Rel::Ge } else { Rel::Gt };
    cx.holds(target, Rel::Lt, ZERO) || cx.holds(target, beyond, total)
}

/// Gcd test: whether a common divisor of all strides provably does not divide the target.
fn is_residue(cx: &mut SymArith, target: Expr, steps: &Steps) -> bool {
    let content = |cx: &SymArith, e| match e {
        Expr::Int(n) => n.unsigned_abs(),
        e => cx.0.content_of(e),
    };
    let common = steps.iter().fold(0, |g, d| gcd(g, content(cx, d.stride)));
    match (i64::try_from(common), target) {
        (Ok(0 | 1) | Err(_), _) => false,
        (Ok(g), Expr::Int(n)) => n % g != 0,
        (Ok(g), target) => {
            cx.0.modulo(target, Expr::Int(g)).is_ok_and(|r| cx.holds(r, Rel::Ne, ZERO))
        }
    }
}

/// Delinearization at the stride `t`. The target is `t * q + r`; steps whose stride is a multiple
/// of `t` sum to `t * coarse`, the other steps sum to `fine`. If `|fine - r| < t` for every
/// possible `fine`, then the sums are equal exactly if `coarse = q` and `fine = r`.
fn split(
    cx: &mut SymArith,
    target: Expr,
    steps: &Steps,
    stride: Expr,
    budget: &mut u32,
) -> TriBool {
    if stride == ONE {
        return TriBool::Unknown;
    }
    let (mut coarse, mut fine) = (Steps::new(), Steps::new());
    for &step in steps {
        match cx.divide(step.stride, stride) {
            Some((times, ZERO)) => coarse.push(Dim { stride: times, ..step }),
            _ => fine.push(step),
        }
    }
    let (Some((q, r)), Some(total)) = (cx.divide(target, stride), cx.extent(&fine)) else {
        return TriBool::Unknown;
    };
    match unique_decomposition(cx, q, r, stride, total) {
        Some((q, r)) => solve(cx, q, &coarse, budget).and(|| solve(cx, r, &fine, budget)),
        None => TriBool::Unknown,
    }
}

/// The decomposition `t * q + r` of a number such that every sum in `[0, total]` is less than `t`
/// away from `r`: the given one, or the one with `q - 1`. `None` if neither is provable.
fn unique_decomposition(
    cx: &mut SymArith,
    q: Expr,
    r: Expr,
    t: Expr,
    total: Expr,
) -> Option<(Expr, Expr)> {
    let fits = |cx: &mut SymArith, r| {
        let above = cx.sub(total, r)?;
        Some(cx.holds(r, Rel::Lt, t) && cx.holds(above, Rel::Lt, t))
    };
    if fits(cx, r)? || fault_injected(Fault::RemainderLongerThanStride) {
        return Some((q, r));
    }
    // For numbers, `r` is the least nonnegative remainder, and a larger one cannot fit.
    if r.as_i64().is_some() && t.as_i64().is_some() {
        return None;
    }
    let next = (cx.sub(q, ONE)?, cx.add(r, t)?);
    fits(cx, next.1)?.then_some(next)
}
