//! Numbers as sums of steps, by exhaustive search.

use super::Dim;
use crate::fault_injection::fault_injected;
use crate::sym::{Expr, gcd};
use smallvec::SmallVec;

/// Steps tried for one question.
const BUDGET: u32 = 512;

/// How often each step is taken.
pub(super) type Counts = SmallVec<[i64; 8]>;

/// A step of plain numbers: its length, and how many counts it has from zero on.
#[derive(Clone, Copy, Debug)]
struct Step {
    stride: i64,
    size: i64,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// The counts, in the order of the steps.
    Found(Counts),
    /// There are none.
    Absent,
    /// There is no answer: not everything is a number, or the budget was spent.
    GaveUp,
}

/// Counts with `target = Σ stride * count` and `0 <= count < size`, the greatest counts of the
/// first steps first. Quick if long strides come first.
pub(super) fn represent(target: Expr, steps: &[Dim]) -> Search {
    let plain = |d: &Dim| Some(Step { stride: d.stride.as_i64()?, size: d.size.as_i64()? });
    let all: Option<SmallVec<[Step; 8]>> = steps.iter().map(plain).collect();
    let (Some(target), Some(all)) = (target.as_i64(), all) else { return Search::GaveUp };
    let mut counts = Counts::new();
    match descend(target, &all, &mut counts, &mut { BUDGET }) {
        Some(true) => Search::Found(counts),
        Some(false) => Search::Absent,
        None => Search::GaveUp,
    }
}

/// Whether the steps make the target, appending their counts; `None` without an answer.
fn descend(target: i64, steps: &[Step], counts: &mut Counts, budget: &mut u32) -> Option<bool> {
    let Some((first, rest)) = steps.split_first() else { return Some(target == 0) };
    if target < 0 || is_residue(target, steps) {
        return Some(false);
    }
    let Some((least, most)) = counts_of(target, first, extent(rest)?) else { return Some(false) };
    for count in (least..=most).rev() {
        *budget = budget.checked_sub(1)?;
        counts.push(count);
        if descend(target.checked_sub(count.checked_mul(first.stride)?)?, rest, counts, budget)? {
            return Some(true);
        }
        counts.pop();
    }
    Some(false)
}

/// Whether all steps are multiples of a number that does not divide the target.
fn is_residue(target: i64, steps: &[Step]) -> bool {
    let common =
        steps.iter().filter(|s| s.size > 1).fold(0, |g, s| match s.stride.unsigned_abs() {
            stride if fault_injected("residues: of the longest stride") => stride.max(g),
            stride => gcd(g, stride),
        });
    // Without steps only zero is made, and zero is a multiple of zero.
    !target.unsigned_abs().is_multiple_of(common)
}

/// The least and greatest count of a step after which the rest, up to `beyond`, can still make the
/// target.
fn counts_of(target: i64, step: &Step, beyond: i64) -> Option<(i64, i64)> {
    let last = step.size.checked_sub(1)?;
    if step.stride <= 0 {
        return (last >= 0).then_some((0, 0));
    }
    let missing = target.checked_sub(beyond)?.max(0);
    let least = missing.checked_add(step.stride - 1)? / step.stride;
    let most = last.min(target / step.stride);
    (least <= most).then_some((least, most))
}

fn extent(steps: &[Step]) -> Option<i64> {
    steps
        .iter()
        .try_fold(0i64, |sum, s| sum.checked_add(s.stride.checked_mul(s.size.checked_sub(1)?)?))
}
