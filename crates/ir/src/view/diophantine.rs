//! Whether a number is a sum of steps: the question behind disjointness, membership and
//! injectivity.

use super::arith::{ONE, SymArith, ZERO};
use super::merge::{Merge, Steps, normalise};
use super::search::{Search, represent};
use super::{Dim, TriBool};
use crate::fault_injection::fault_injected;
use crate::sym::{Expr, Rel, gcd};

/// Questions asked for one answer.
const BUDGET: u32 = 64;

/// Whether `target` is `Σ stride * i` with `0 <= i < size` for all steps. Yes supposes that no size
/// is zero; no holds in any case.
pub(super) fn has_solution(cx: &mut SymArith, target: Expr, steps: Steps) -> TriBool {
    let steps = normalise(cx, steps, Merge::Overlaps);
    solve(cx, target, &steps, &mut { BUDGET })
}

/// Of merged steps, long strides first.
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
        // None of the steps, or all of them.
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
    // One after the other, until one decides.
    steps.iter().fold(TriBool::Unknown, |answer, d| {
        answer.or_else(|| split(cx, target, steps, d.stride, budget))
    })
}

/// Before the least sum, or after the greatest.
fn is_outside(cx: &mut SymArith, target: Expr, total: Expr) -> bool {
    let beyond = if fault_injected("disjoint: views that share their ends are apart") {
        Rel::Ge
    } else {
        Rel::Gt
    };
    cx.holds(target, Rel::Lt, ZERO) || cx.holds(target, beyond, total)
}

/// All steps are multiples of a number that surely does not divide the target.
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

/// Splits at the stride `t`: the target is `t * q + r`, the sums of the multiples of `t` are `t *
/// coarse`, those of the other steps `fine`. As `fine - r` is less than `t` either way, both are
/// equal exactly if `coarse` is `q` and `fine` is `r`.
fn split(cx: &mut SymArith, target: Expr, steps: &Steps, t: Expr, budget: &mut u32) -> TriBool {
    if t == ONE {
        return TriBool::Unknown;
    }
    let (mut coarse, mut fine) = (Steps::new(), Steps::new());
    for &d in steps {
        match cx.divide(d.stride, t) {
            Some((times, ZERO)) => coarse.push(Dim { stride: times, ..d }),
            _ => fine.push(d),
        }
    }
    let (Some((q, r)), Some(total)) = (cx.divide(target, t), cx.extent(&fine)) else {
        return TriBool::Unknown;
    };
    match digits_of(cx, q, r, t, total) {
        Some((q, r)) => solve(cx, q, &coarse, budget).and(|| solve(cx, r, &fine, budget)),
        None => TriBool::Unknown,
    }
}

/// The spelling `t * q + r` of a number for which no sum up to `total` is `t` or more away from
/// `r`.
fn digits_of(cx: &mut SymArith, q: Expr, r: Expr, t: Expr, total: Expr) -> Option<(Expr, Expr)> {
    let fits = |cx: &mut SymArith, r| {
        let above = cx.sub(total, r)?;
        Some(cx.holds(r, Rel::Lt, t) && cx.holds(above, Rel::Lt, t))
    };
    if fits(cx, r)? || fault_injected("diophantine: a remainder may be longer than the stride") {
        return Some((q, r));
    }
    // Between numbers the remainder is the least there is.
    if r.as_i64().is_some() && t.as_i64().is_some() {
        return None;
    }
    let next = (cx.sub(q, ONE)?, cx.add(r, t)?);
    fits(cx, next.1)?.then_some(next)
}
