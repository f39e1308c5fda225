//! Representation of a number as a bounded sum of strides, by depth-first search with pruning:
//! bounds limit the count of each stride, and a residue (gcd) test rejects a target that no
//! combination reaches. With strides in decreasing order the search rarely backtracks; [`BUDGET`]
//! limits it in any case.

use super::Dim;
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::{Expr, gcd};
use smallvec::SmallVec;

/// The most counts tried in one search.
const BUDGET: u32 = 512;

/// The number of times each step is taken.
pub(super) type Counts = SmallVec<[i64; 8]>;

/// A step of plain numbers: its stride, and the number of allowed counts `0..size`.
#[derive(Clone, Copy, Debug)]
struct Step {
    stride: i64,
    size: i64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// A representation: the counts, in the order of the steps.
    Found(Counts),
    /// No representation exists.
    Absent,
    /// Undecided: not every operand is a number, a bound overflows, or the budget is spent.
    GaveUp,
}

/// Finds counts with `target = Σ stride * count` and `0 <= count < size`. Prefers large counts of
/// the first steps. Fast if the steps are sorted by decreasing stride.
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

/// Searches counts of `steps` that sum to the target and appends them; `None` if undecided.
fn descend(target: i64, steps: &[Step], counts: &mut Counts, budget: &mut u32) -> Option<bool> {
    let Some((first, rest)) = steps.split_first() else { return Some(target == 0) };
    if target < 0 || is_residue(target, steps) {
        return Some(false);
    }
    let Some((least, most)) = count_range(target, first, greatest_sum(rest)?) else {
        return Some(false);
    };
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

/// Residue test: whether all strides have a common divisor that does not divide the target.
fn is_residue(target: i64, steps: &[Step]) -> bool {
    let common =
        steps.iter().filter(|s| s.size > 1).fold(0, |g, s| match s.stride.unsigned_abs() {
            stride if fault_injected(Fault::ResiduesOfLongestStride) => stride.max(g),
            stride => gcd(g, stride),
        });
    // Without steps the gcd is zero, and only zero is a multiple of zero.
    !target.unsigned_abs().is_multiple_of(common)
}

/// The range of counts of a step after which the other steps, whose sum is at most `others_max`,
/// can still reach the target.
fn count_range(target: i64, step: &Step, others_max: i64) -> Option<(i64, i64)> {
    let last = step.size.checked_sub(1)?;
    if step.stride <= 0 {
        return (last >= 0).then_some((0, 0));
    }
    let missing = target.checked_sub(others_max)?.max(0);
    let least = missing.checked_add(step.stride - 1)? / step.stride;
    let most = last.min(target / step.stride);
    (least <= most).then_some((least, most))
}

/// The greatest sum of the steps.
fn greatest_sum(steps: &[Step]) -> Option<i64> {
    steps
        .iter()
        .try_fold(0i64, |sum, s| sum.checked_add(s.stride.checked_mul(s.size.checked_sub(1)?)?))
}
