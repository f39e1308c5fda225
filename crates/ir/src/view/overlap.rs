//! How two views lie to each other.

use super::arith::{ONE, SymArith, ZERO};
use super::concrete::ConcreteView;
use super::diophantine::has_solution;
use super::merge::{Merge, Steps, footprint, normalise};
use super::relative::relative;
use super::{Dim, TriBool, ViewSpec};
use crate::fault_injection::fault_injected;
use crate::sym::{Expr, Rel, SymTable};
use smallvec::SmallVec;

impl ViewSpec {
    /// Whether no element of the base is in both. Empty views are disjoint from all.
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

    /// The view where none of these sizes is 0, if that changes it.
    fn given_positive(&self, sizes: &[Expr], symbols: &mut SymTable) -> Option<ViewSpec> {
        let mut of =
            |e: Expr| if let Expr::Id(_) = e { symbols.given_positive(e, sizes) } else { e };
        let dims = self.dims.iter().map(|d| Dim { size: d.size, stride: of(d.stride) }).collect();
        let there = ViewSpec { offset: of(self.offset), dims };
        (there != *self).then_some(there)
    }

    /// Whether every element of this view is in the other one. Empty views are in all.
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

    /// Whether no element of the base is in it twice.
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

    /// Whether both have the same elements of the base in the same order. Sizes may differ.
    pub fn same(&self, other: &ViewSpec, symbols: &mut SymTable) -> TriBool {
        let cx = &mut SymArith(symbols);
        let (a, b) = (self.normalized(cx), other.normalized(cx));
        if a.provably_equals(&b, cx) {
            return TriBool::Yes;
        }
        let plain = ConcreteView::new(&a).is_some() && ConcreteView::new(&b).is_some();
        if plain || differ(cx, &a, &b) { TriBool::No } else { TriBool::Unknown }
    }

    /// Whether both are known to have the same sizes, and the same strides along dimensions of more
    /// than one element.
    pub fn same_layout(&self, other: &ViewSpec, symbols: &mut SymTable) -> bool {
        let cx = &mut SymArith(symbols);
        let pairs = || self.dims.iter().zip(&other.dims);
        let alike = self.dims.len() == other.dims.len()
            && pairs().all(|(d, e)| cx.holds(d.size, Rel::Eq, e.size));
        alike
            && pairs()
                .all(|(d, e)| cx.holds(d.stride, Rel::Eq, e.stride) || cx.is_unit_or_empty(*d))
    }

    /// Whether the view is a base of `numel` elements, all of it and in order.
    pub fn is_full(&self, numel: Expr, symbols: &mut SymTable) -> TriBool {
        self.same(&ViewSpec::whole(numel), symbols)
    }

    /// Whether the view has every element of a base of `numel` elements once, in any order.
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

    /// The same view with known equalities applied; none if that makes no view.
    pub fn simplified(&self, symbols: &mut SymTable) -> Option<ViewSpec> {
        let of = |symbols: &mut SymTable, part: fn(&Dim) -> Expr| -> Vec<Expr> {
            self.dims.iter().map(|d| symbols.simplify(part(d))).collect()
        };
        let (sizes, strides) = (of(symbols, |d| d.size), of(symbols, |d| d.stride));
        ViewSpec::strided(symbols.simplify(self.offset), &sizes, &strides, symbols).ok()
    }

    /// A base of so many elements, as a view.
    fn whole(numel: Expr) -> ViewSpec {
        ViewSpec { offset: ZERO, dims: [Dim { size: numel, stride: ONE }].into_iter().collect() }
    }
}

/// Whether the views share an element, if both have elements: counting `b` from its end, positions
/// are equal where `last(b) - first(a)` is a sum of steps of both.
fn overlaps(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> TriBool {
    let target = cx.last(b).and_then(|last| cx.sub(last, a.offset));
    let Some(target) = target else { return TriBool::Unknown };
    has_solution(cx, target, a.dims.iter().chain(&b.dims).copied().collect())
}

/// Yes if the first or last element of one is one of the other; for views with elements.
fn shares_endpoint(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> TriBool {
    let ends = |cx: &mut SymArith, spec: &ViewSpec| {
        [Some(spec.offset), cx.last(spec)].into_iter().flatten()
    };
    let shared = ends(cx, a).any(|p| member(cx, p, b).is_yes())
        || ends(cx, b).any(|p| member(cx, p, a).is_yes());
    if shared { TriBool::Yes } else { TriBool::Unknown }
}

/// Whether a position is one of the view's. Yes supposes that it has elements.
fn member(cx: &mut SymArith, position: Expr, spec: &ViewSpec) -> TriBool {
    match cx.sub(position, spec.offset) {
        Some(from) => has_solution(cx, from, spec.dims.iter().copied().collect()),
        None => TriBool::Unknown,
    }
}

/// Whether an element occurs twice, if there are elements.
fn overlaps_itself(cx: &mut SymArith, spec: &ViewSpec) -> TriBool {
    if fault_injected("injective: every view") {
        return TriBool::No;
    }
    let steps: Steps = spec.dims.iter().filter(|d| !cx.is_unit_or_empty(**d)).copied().collect();
    let steps = normalise(cx, steps, Merge::Tiles);
    (0..steps.len()).fold(TriBool::No, |any, i| {
        any.or(|| steps.get(i..).map_or(TriBool::Unknown, |steps| steps_cancel(cx, steps)))
    })
}

/// Whether a way that begins with at least one of the first step leads back to where it began, with
/// any of the others forwards or backwards: `Σ stride * count = 0`. Counting the others from their
/// least count makes this a sum of steps.
fn steps_cancel(cx: &mut SymArith, steps: &[Dim]) -> TriBool {
    let mut ways = || {
        let (first, others) = steps.split_first()?;
        let back = cx.extent(others)?;
        let mut ways = Steps::new();
        ways.push(Dim { size: cx.sub(first.size, ONE)?, stride: first.stride });
        for d in others {
            let both = cx.add(d.size, d.size)?;
            ways.push(Dim { size: cx.sub(both, ONE)?, stride: d.stride });
        }
        Some((cx.sub(back, first.stride)?, ways))
    };
    let Some((target, ways)) = ways() else { return TriBool::Unknown };
    let possible = cx.is_nonempty(&ways);
    match has_solution(cx, target, ways) {
        TriBool::Yes if !possible => TriBool::Unknown,
        answer => answer,
    }
}

/// Whether every element of `a` is surely in `inside`: as a view of it, both in the order of the
/// base.
fn covers(cx: &mut SymArith, inside: &ViewSpec, a: &ViewSpec) -> bool {
    let merge = if cx.is_nonempty(&inside.dims) { Merge::Overlaps } else { Merge::Tiles };
    let inside = footprint(cx, inside, merge);
    let a = footprint(cx, a, Merge::Overlaps);
    relative(cx, &a, &inside).is_some()
}

/// Whether an element of `a`, which is not empty, is surely not in `inside`: its first or last one,
/// or a neighbour of the first.
fn has_element_outside(cx: &mut SymArith, a: &ViewSpec, inside: &ViewSpec) -> bool {
    let last = cx.last(a);
    [a.offset].into_iter().chain(last).any(|p| is_non_member(cx, p, inside))
        || a.dims.iter().any(|d| {
            let second = cx.add(a.offset, d.stride).filter(|_| cx.holds(d.size, Rel::Gt, ONE));
            second.is_some_and(|p| is_non_member(cx, p, inside))
        })
}

/// Whether a position is surely not one of the view's.
fn is_non_member(cx: &mut SymArith, position: Expr, spec: &ViewSpec) -> bool {
    cx.is_empty(&spec.dims) || member(cx, position, spec).is_no()
}

/// Whether two canonical views surely have different elements: in number, or the first, second or
/// last of them.
fn differ(cx: &mut SymArith, a: &ViewSpec, b: &ViewSpec) -> bool {
    let differ = |cx: &mut SymArith, x: Option<Expr>, y: Option<Expr>| {
        x.zip(y).is_some_and(|(x, y)| cx.holds(x, Rel::Ne, y))
    };
    let (m, n) = (cx.numel(&a.dims), cx.numel(&b.dims));
    if differ(cx, m, n) {
        return true;
    }
    // One of them empty, the other one not, would do as well.
    if !cx.is_nonempty(&a.dims) && !cx.is_nonempty(&b.dims) {
        return false;
    }
    let (p, q) = (cx.last(a), cx.last(b));
    let (second, other) = (second(cx, a), second(cx, b));
    cx.holds(a.offset, Rel::Ne, b.offset) || differ(cx, p, q) || differ(cx, second, other)
}

/// The position of the second element in flat order, if there surely is one unless the view is
/// empty.
fn second(cx: &mut SymArith, spec: &ViewSpec) -> Option<Expr> {
    let inner = spec.dims.last().filter(|d| cx.holds(d.size, Rel::Gt, ONE))?;
    cx.add(spec.offset, inner.stride)
}

/// The answer by all positions of both, each in ascending order; of plain numbers and few elements
/// only.
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
