//! Relations of two views: disjointness, containment and equality; and injectivity.
//!
//! Each reduces to the bounded Diophantine equation of [`has_solution`]; see the [module
//! documentation](super). Queries that remain undecided are enumerated for small views of plain
//! numbers.

use super::arith::{ONE, SymArith, ZERO};
use super::concrete::ConcreteView;
use super::diophantine::has_solution;
use super::merge::{Merge, Steps, footprint, normalise};
use super::relative::relative;
use super::{Dim, TriBool, ViewSpec};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;

impl ViewSpec {
    /// Whether no element of the base is in both views. Empty views are disjoint from every view.
    pub fn disjoint(&self, other: &ViewSpec, symbols: &mut SymTable) -> TriBool {
        let cx = &mut SymArith(symbols);
        if cx.is_empty(&self.dims) || cx.is_empty(&other.dims) {
            return TriBool::Yes;
        }
        let overlaps = overlaps(cx, self, other)
            .or_else(|| overlaps(cx, other, self))
            .or_else(|| shares_endpoint(cx, self, other));
        let answer = match overlaps {
            TriBool::Yes if !(cx.is_nonempty(&self.dims) && cx.is_nonempty(&other.dims)) => {
                TriBool::Unknown
            }
            overlaps => !overlaps,
        };
        // If one of the views is empty the answer is `Yes`, so a second attempt may assume that all
        // sizes are positive.
        let sizes = || self.sizes().chain(other.sizes()).collect::<SmallVec<[Expr; 8]>>();
        answer
            .or_else(|| {
                match (self.given_positive(&sizes(), cx.0), other.given_positive(&sizes(), cx.0)) {
                    (None, None) => TriBool::Unknown,
                    (a, b) => {
                        a.as_ref().unwrap_or(self).disjoint(b.as_ref().unwrap_or(other), cx.0)
                    }
                }
            })
            .or_else(|| {
                enumerate(self, other, |a, b| !a.iter().any(|p| b.binary_search(p).is_ok()))
            })
    }

    /// The view under the assumption that these sizes are positive; `None` if that changes nothing.
    fn given_positive(&self, sizes: &[Expr], symbols: &mut SymTable) -> Option<ViewSpec> {
        let mut simplify =
            |e: Expr| if let Expr::Id(_) = e { symbols.given_positive(e, sizes) } else { e };
        let dims =
            self.dims.iter().map(|d| Dim { size: d.size, stride: simplify(d.stride) }).collect();
        let simplified = ViewSpec { offset: simplify(self.offset), dims };
        (simplified != *self).then_some(simplified)
    }

    /// Whether every element of this view is in `inside`. Empty views are contained in every view.
    pub fn contained_in(&self, inside: &ViewSpec, symbols: &mut SymTable) -> TriBool {
        let cx = &mut SymArith(symbols);
        if cx.is_empty(&self.dims) {
            return TriBool::Yes;
        }
        if self.normalized(cx).provably_equals(&inside.normalized(cx), cx)
            || covers(cx, inside, self)
        {
            return TriBool::Yes;
        }
        if cx.is_nonempty(&self.dims) && has_element_outside(cx, self, inside) {
            return TriBool::No;
        }
        enumerate(self, inside, |a, b| a.iter().all(|p| b.binary_search(p).is_ok()))
    }

    /// Whether every element of the view is provably in the other view of the same base, by a proof
    /// that [`ViewSpec::contained_in`] does not attempt: an empty view has no element that could be
    /// elsewhere, so each size of the view may be taken to be positive. Then `max(1, n)`, which
    /// row-major strides have for a size `n`, is `n`. The facts are assumed in a copy of the table.
    pub fn contained_in_unless_empty(&self, inside: &ViewSpec, symbols: &SymTable) -> bool {
        let mut symbols = symbols.clone();
        for d in &self.dims {
            let positive = symbols.rel(Rel::Ge, d.size, ONE);
            if symbols.assume(positive).is_err() {
                return true;
            }
        }
        let mut resolved = |spec: &ViewSpec| {
            let mut part = |e| {
                let e = symbols.simplify(e);
                symbols.with_proved_extrema(e)
            };
            let dims = spec.dims.iter().map(|d| Dim { size: part(d.size), stride: part(d.stride) });
            let dims = dims.collect();
            ViewSpec { offset: part(spec.offset), dims }
        };
        let (view, inside) = (resolved(self), resolved(inside));
        view.contained_in(&inside, &mut symbols).is_yes()
    }

    /// Whether no element of the base occurs twice in the view.
    pub fn injective(&self, symbols: &mut SymTable) -> TriBool {
        let cx = &mut SymArith(symbols);
        if cx.is_empty(&self.dims) {
            return TriBool::Yes;
        }
        let answer = match overlaps_itself(cx, self) {
            TriBool::Yes if !cx.is_nonempty(&self.dims) => TriBool::Unknown,
            overlaps_itself => !overlaps_itself,
        };
        answer.or_else(|| {
            enumerate(self, self, |a, _| a.windows(2).all(|pair| pair.first() != pair.last()))
        })
    }

    /// Whether both views have the same elements of the base in the same order. Their sizes may
    /// differ.
    pub fn same(&self, other: &ViewSpec, symbols: &mut SymTable) -> TriBool {
        let cx = &mut SymArith(symbols);
        let (a, b) = (self.normalized(cx), other.normalized(cx));
        if a.provably_equals(&b, cx) {
            return TriBool::Yes;
        }
        let plain = ConcreteView::new(&a).is_some() && ConcreteView::new(&b).is_some();
        if plain || differ(cx, &a, &b) { TriBool::No } else { TriBool::Unknown }
    }

    /// Whether both views provably have the same sizes, and the same strides along dimensions of
    /// more than one element.
    pub fn same_layout(&self, other: &ViewSpec, symbols: &mut SymTable) -> bool {
        let cx = &mut SymArith(symbols);
        let pairs = || self.dims.iter().zip(&other.dims);
        let same_sizes = self.dims.len() == other.dims.len()
            && pairs().all(|(d, e)| cx.holds(d.size, Rel::Eq, e.size));
        same_sizes
            && pairs()
                .all(|(d, e)| cx.holds(d.stride, Rel::Eq, e.stride) || cx.is_unit_or_empty(*d))
    }

    /// Whether the view is the whole of a base of `numel` elements, in order.
    pub fn is_full(&self, numel: Expr, symbols: &mut SymTable) -> TriBool {
        self.same(&ViewSpec::whole(numel), symbols)
    }

    /// Whether the view contains every element of a base of `numel` elements exactly once, in any
    /// order.
    pub fn is_permutation(&self, numel: Expr, symbols: &mut SymTable) -> TriBool {
        if self.inverse(numel, symbols).is_some() {
            return TriBool::Yes;
        }
        let all = self.contained_in(&ViewSpec::whole(numel), symbols);
        let counts = self
            .numel(symbols)
            .map_or(TriBool::Unknown, |n| SymArith(symbols).known(n, Rel::Eq, numel));
        all.and(|| counts).and(|| self.injective(symbols))
    }

    /// The view with known equalities applied; `None` if the result is not a view.
    pub fn simplified(&self, symbols: &mut SymTable) -> Option<ViewSpec> {
        let simplify_all = |symbols: &mut SymTable, part: fn(&Dim) -> Expr| -> Vec<Expr> {
            self.dims.iter().map(|d| symbols.simplify(part(d))).collect()
        };
        let (sizes, strides) =
            (simplify_all(symbols, |d| d.size), simplify_all(symbols, |d| d.stride));
        ViewSpec::strided(symbols.simplify(self.offset), &sizes, &strides, symbols).ok()
    }

    /// A base of `numel` elements, as a view.
    fn whole(numel: Expr) -> ViewSpec {
        ViewSpec { offset: ZERO, dims: [Dim { size: numel, stride: ONE }].into_iter().collect() }
    }
}

/// Whether two nonempty views share an element. Counting `b` from its end, they do exactly if
/// `last(b) - first(a)` is a sum of steps of both.
fn overlaps(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> TriBool {
    let target = cx.last(b).and_then(|last| cx.sub(last, a.offset));
    let Some(target) = target else { return TriBool::Unknown };
    has_solution(cx, target, a.dims.iter().chain(&b.dims).copied().collect())
}

/// `Yes` if the first or last element of one view is in the other, for nonempty views; else
/// `Unknown`.
fn shares_endpoint(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> TriBool {
    let ends = |cx: &mut SymArith, spec: &ViewSpec| {
        [Some(spec.offset), cx.last(spec)].into_iter().flatten()
    };
    let shared = ends(cx, a).any(|p| member(cx, p, b).is_yes())
        || ends(cx, b).any(|p| member(cx, p, a).is_yes());
    if shared { TriBool::Yes } else { TriBool::Unknown }
}

/// Whether a position is in the view. `Yes` is valid only if the view is not empty.
fn member(cx: &mut SymArith, position: Expr, spec: &ViewSpec) -> TriBool {
    match cx.sub(position, spec.offset) {
        Some(from) => has_solution(cx, from, spec.dims.iter().copied().collect()),
        None => TriBool::Unknown,
    }
}

/// Whether an element of a nonempty view occurs twice.
fn overlaps_itself(cx: &mut SymArith, spec: &ViewSpec) -> TriBool {
    if fault_injected(Fault::EveryViewIsInjective) {
        return TriBool::No;
    }
    let steps: Steps = spec.dims.iter().filter(|d| !cx.is_unit_or_empty(**d)).copied().collect();
    let steps = normalise(cx, steps, Merge::Tiles);
    (0..steps.len()).fold(TriBool::No, |any, i| {
        any.or(|| steps.get(i..).map_or(TriBool::Unknown, |steps| steps_cancel(cx, steps)))
    })
}

/// Whether counts exist with `Σ stride * count = 0`, a positive count of the first step, and counts
/// of either sign of the others. Offsetting the other counts by their least values turns this into
/// a sum of nonnegative counts.
fn steps_cancel(cx: &mut SymArith, steps: &[Dim]) -> TriBool {
    let mut shifted = || {
        let (first, others) = steps.split_first()?;
        let least = cx.extent(others)?;
        let mut shifted = Steps::new();
        shifted.push(Dim { size: cx.sub(first.size, ONE)?, stride: first.stride });
        for step in others {
            let both = cx.add(step.size, step.size)?;
            shifted.push(Dim { size: cx.sub(both, ONE)?, stride: step.stride });
        }
        Some((cx.sub(least, first.stride)?, shifted))
    };
    let Some((target, shifted)) = shifted() else { return TriBool::Unknown };
    let possible = cx.is_nonempty(&shifted);
    match has_solution(cx, target, shifted) {
        TriBool::Yes if !possible => TriBool::Unknown,
        answer => answer,
    }
}

/// Whether every element of `a` is provably in `inside`. Both are reduced to their footprints in
/// the order of the base, and the question becomes whether one is a view of the other.
fn covers(cx: &mut SymArith, inside: &ViewSpec, a: &ViewSpec) -> bool {
    let merge = if cx.is_nonempty(&inside.dims) { Merge::Overlaps } else { Merge::Tiles };
    let inside = footprint(cx, inside, merge);
    let a = footprint(cx, a, Merge::Overlaps);
    relative(cx, &a, &inside).is_some()
}

/// Whether an element of the nonempty view `a` is provably not in `inside`. Tests the first and
/// last elements and the neighbours of the first.
fn has_element_outside(cx: &mut SymArith, a: &ViewSpec, inside: &ViewSpec) -> bool {
    let last = cx.last(a);
    [a.offset].into_iter().chain(last).any(|p| is_non_member(cx, p, inside))
        || a.dims.iter().any(|d| {
            let second = cx.add(a.offset, d.stride).filter(|_| cx.holds(d.size, Rel::Gt, ONE));
            second.is_some_and(|p| is_non_member(cx, p, inside))
        })
}

/// Whether a position is provably not in the view.
fn is_non_member(cx: &mut SymArith, position: Expr, spec: &ViewSpec) -> bool {
    cx.is_empty(&spec.dims) || member(cx, position, spec).is_no()
}

/// Whether two canonical views provably have different elements: a different number of them, or a
/// different first, second or last one.
fn differ(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> bool {
    let differ = |cx: &mut SymArith, x: Option<Expr>, y: Option<Expr>| {
        x.zip(y).is_some_and(|(x, y)| cx.holds(x, Rel::Ne, y))
    };
    let (numel_a, numel_b) = (cx.numel(&a.dims), cx.numel(&b.dims));
    if differ(cx, numel_a, numel_b) {
        return true;
    }
    // It suffices that one view is nonempty: if the other is empty, they differ as well.
    if !cx.is_nonempty(&a.dims) && !cx.is_nonempty(&b.dims) {
        return false;
    }
    let (last_a, last_b) = (cx.last(a), cx.last(b));
    let (second_a, second_b) = (second(cx, a), second(cx, b));
    cx.holds(a.offset, Rel::Ne, b.offset)
        || differ(cx, last_a, last_b)
        || differ(cx, second_a, second_b)
}

/// The position of the second element in flat order; `None` unless the innermost size is provably
/// greater than 1.
fn second(cx: &mut SymArith, spec: &ViewSpec) -> Option<Expr> {
    let inner = spec.dims.last().filter(|d| cx.holds(d.size, Rel::Gt, ONE))?;
    cx.add(spec.offset, inner.stride)
}

/// The answer of a predicate on the sorted positions of both views, for few elements of plain
/// numbers; else `Unknown`.
fn enumerate(
    a: &ViewSpec,
    b: &ViewSpec,
    predicate: impl FnOnce(&[i64], &[i64]) -> bool,
) -> TriBool {
    let sorted = |spec: &ViewSpec| ConcreteView::new(spec)?.sorted();
    match (sorted(a), sorted(b)) {
        (Some(a), Some(b)) => predicate(&a, &b).into(),
        _ => TriBool::Unknown,
    }
}
