//! The rules, all exact: for every content of memory both sides are the same bits.
//!
//! A rule is given a term and its class, and finds terms that are equal to it. To add one: state
//! the equation and why it holds in its entry below; use only what the [view
//! queries](crate::functionalize::view_queries) answers with `Yes` or a view (it proves, never
//! guesses); never look at or make a call that has an effect, and never merge calls except by
//! congruence; go towards fewer or smaller stores, or prove that the rule cannot undo another; and
//! give it a test that shows it, and one where its condition fails.

use super::op_semantics::{self, CallSite};
use super::worklist::{Stores, Views, Worklist};
use crate::functionalize::value_graph::{Interner, MetaId, SpecId};
use egg::Id;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

/// Stores that a view is moved past in one go.
const MAX_SCAN: usize = 64;

/// Stores that may fill a value together.
const MAX_COVER_STORES: usize = 16;

/// A rule by name, with the equation.
pub(crate) struct Rule {
    pub name: &'static str,
    /// The equation, and why it holds.
    pub equation: &'static str,
    /// What it finds is as the program says it, but for mutation, and never costs more.
    pub plain: bool,
    pub apply: Apply,
}

/// What a rule is tried on.
pub(crate) enum Apply {
    Call(fn(&mut Worklist<'_>, &CallSite, &mut Found)),
    View(fn(&mut Worklist<'_>, &View, &mut Found)),
    Store(fn(&mut Worklist<'_>, &Store, &mut Found)),
}

/// `view(v, b)`.
pub(crate) struct View {
    v: SpecId,
    b: Id,
    /// The view's metadata.
    meta: MetaId,
    /// What else `b` is.
    stores: Stores,
    views: Views,
}

impl View {
    pub fn new(s: &Worklist<'_>, id: Id, v: SpecId, b: Id) -> Option<View> {
        Some(View { v, b, meta: s.meta(id)?, stores: s.stores(b), views: s.views(b) })
    }
}

/// `scatter(v, b, x)`.
pub(crate) struct Store {
    v: SpecId,
    b: Id,
    x: Id,
    /// What else `b` is.
    stores: Stores,
}

impl Store {
    pub fn new(s: &Worklist<'_>, v: SpecId, b: Id, x: Id) -> Store {
        Store { v, b, x, stores: s.stores(b) }
    }
}

/// Classes that are equal to the one looked at.
pub(crate) type Found = SmallVec<[Id; 2]>;

/// Every rule, in the order in which they are tried.
pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "functional-variant",
        equation: "op_(x, …) leaves in x what op(x, …) returns, in x's dtype, if that holds such \
            results: so the operator is defined",
        plain: true,
        apply: Apply::Call(op_semantics::functional_variant),
    },
    Rule {
        name: "same-elements",
        equation: "clone(x) = x, and reshape(x) = view(all of x, x): values have no memory",
        plain: false,
        apply: Apply::Call(op_semantics::same_elements_as),
    },
    Rule {
        name: "round-trip",
        equation: "convert(convert(x)) = x, in x's dtype, where the dtype between holds every \
            value of it",
        plain: false,
        apply: Apply::Call(op_semantics::round_trip),
    },
    Rule {
        name: "identity-operand",
        equation: "x * 1 = x / 1 = x - 0.0 = x + -0.0 = x, in x's dtype; of integers x + 0 too. x \
            + 0.0 is not: of -0.0 it is 0.0",
        plain: false,
        apply: Apply::Call(op_semantics::identity_operand),
    },
    Rule {
        name: "involution-or-idempotent",
        equation: "neg neg x = not not x = x; relu relu x = relu x; abs abs x = abs x; abs neg x \
            = abs x, but for unsigned numbers",
        plain: false,
        apply: Apply::Call(op_semantics::involution_or_idempotent),
    },
    Rule {
        name: "same-operands",
        equation: "max(x, x) = min(x, x) = x & x = x | x = x, NaN included",
        plain: false,
        apply: Apply::Call(op_semantics::same_operands),
    },
    Rule {
        name: "ignored-operand",
        equation: "fill(x, c) = fill(y, c) for every y of x's sizes and dtype: what x holds is \
            not looked at",
        plain: true,
        apply: Apply::Call(op_semantics::ignored_operand),
    },
    Rule {
        name: "commute",
        equation: "x + y = y + x, x * y = y * x, x & y = y & x, x | y = y | x, not of floats: of \
            two NaNs the first is the sum",
        plain: false,
        apply: Apply::Call(op_semantics::commute),
    },
    Rule {
        name: "whole-view",
        equation: "view(all of b, b) = b",
        plain: false,
        apply: Apply::View(whole_view),
    },
    Rule {
        name: "view-view",
        equation: "view(v, view(w, b)) = view(w∘v, b): composition is by definition",
        plain: false,
        apply: Apply::View(view_view),
    },
    Rule {
        name: "store-to-load",
        equation: "view(v, scatter(w, b, x)) = view(v/w, x) where v lies in w: only stored \
            elements are seen",
        plain: false,
        apply: Apply::View(store_to_load),
    },
    Rule {
        name: "load-past-disjoint-store",
        equation: "view(v, scatter(w, b, x)) = view(v, b) where v and w are disjoint: no stored \
            element is seen",
        plain: false,
        apply: Apply::View(load_past_disjoint_store),
    },
    Rule {
        name: "view-of-store",
        equation: "view(v, scatter(w, b, x)) = scatter(w/v, view(v, b), x) where w lies in v and \
            v repeats nothing",
        plain: false,
        apply: Apply::View(view_of_store),
    },
    Rule {
        name: "whole-store",
        equation: "scatter(v, b, x) = view(v⁻¹, x) where v names every element of b once: nothing \
            of b is left",
        plain: false,
        apply: Apply::Store(whole_store),
    },
    Rule {
        name: "idempotent-store",
        equation: "scatter(v, b, view(v, b)) = b: what is there is stored again",
        plain: false,
        apply: Apply::Store(idempotent_store),
    },
    Rule {
        name: "dead-store",
        equation: "scatter(v, scatter(w, b, x), y) = scatter(v, b, y) where w lies in v: nothing \
            of x is left",
        plain: false,
        apply: Apply::Store(dead_store),
    },
    Rule {
        name: "store-through-view",
        equation: "scatter(v, scatter(w, b, x), y) = scatter(w, b, scatter(v/w, x, y)) where v \
            lies in w",
        plain: false,
        apply: Apply::Store(store_through_view),
    },
    Rule {
        name: "nested-store",
        equation: "scatter(v, b, scatter(w, view(v, b), x)) = scatter(v∘w, b, x): the rest of v \
            is as it was",
        plain: false,
        apply: Apply::Store(nested_store),
    },
    Rule {
        name: "full-cover-stores",
        equation: "scatter(v, … scatter(w, b, x) …, y) is the same for every b where v, …, w meet \
            nowhere and leave nothing of b",
        plain: false,
        apply: Apply::Store(full_cover_stores),
    },
];

fn whole_view(s: &mut Worklist<'_>, t: &View, found: &mut Found) {
    if s.meta(t.b) == Some(t.meta) && s.cx().interner.is_whole(t.v, t.meta) {
        found.push(t.b);
    }
}

fn view_view(s: &mut Worklist<'_>, t: &View, found: &mut Found) {
    for &(w, b) in &t.views {
        if let Some(spec) = s.cx().interner.compose(w, t.v) {
            found.push(s.view(spec, b));
        }
    }
}

fn store_to_load(s: &mut Worklist<'_>, t: &View, found: &mut Found) {
    for &(w, _, x) in &t.stores {
        if t.v == w {
            found.push(x);
        } else if let Some(spec) = s.cx().interner.relative(t.v, w) {
            found.push(s.view(spec, x));
        }
    }
}

fn load_past_disjoint_store(s: &mut Worklist<'_>, t: &View, found: &mut Found) {
    let mut at = t.b;
    let mut stores = t.stores.clone();
    for _ in 0..MAX_SCAN {
        let next = stores.iter().find(|(w, ..)| {
            let interner = &mut s.cx().interner;
            let partly = fault_injected(Fault::LoadPastPartialOverlap)
                && interner.relative(t.v, *w).is_none();
            interner.disjoint(t.v, *w) == TriBool::Yes || partly
        });
        let Some(&(_, b, _)) = next else { break };
        at = s.find(b);
        stores = s.stores(at);
    }
    if at != t.b {
        found.push(s.view(t.v, at));
    }
}

fn view_of_store(s: &mut Worklist<'_>, t: &View, found: &mut Found) {
    for &(w, b, x) in t.stores.iter().filter(|(w, ..)| *w != t.v) {
        let interner = &mut s.cx().interner;
        if (interner.injective(t.v) == TriBool::Yes
            || fault_injected(Fault::ViewOfStoreIntoRepeats))
            && let Some(spec) = interner.relative(w, t.v)
        {
            let rest = s.view(t.v, b);
            found.push(s.scatter(spec, rest, x));
        }
    }
}

fn whole_store(s: &mut Worklist<'_>, t: &Store, found: &mut Found) {
    let (Some(base), Some(source)) = (s.meta(t.b), s.meta(t.x)) else { return };
    let interner = &mut s.cx().interner;
    if base == source && interner.is_whole(t.v, base) {
        found.push(t.x);
    } else if let Some(spec) = interner.inverse(t.v, base) {
        let spec = if fault_injected(Fault::WholeStoreNotInverted) { t.v } else { spec };
        found.push(s.view(spec, t.x));
    }
}

fn idempotent_store(s: &mut Worklist<'_>, t: &Store, found: &mut Found) {
    if s.has_view(t.x, t.v, t.b) {
        found.push(t.b);
    }
}

fn dead_store(s: &mut Worklist<'_>, t: &Store, found: &mut Found) {
    for &(w, b, _) in &t.stores {
        let (inner, outer) =
            if fault_injected(Fault::DeadStoreReversed) { (t.v, w) } else { (w, t.v) };
        if s.cx().interner.inside(inner, outer) == TriBool::Yes {
            found.push(s.scatter(t.v, b, t.x));
        }
    }
}

fn store_through_view(s: &mut Worklist<'_>, t: &Store, found: &mut Found) {
    for &(w, b, x) in t.stores.iter().filter(|(w, ..)| *w != t.v) {
        if let Some(spec) = s.cx().interner.relative(t.v, w) {
            let stored = s.scatter(spec, x, t.x);
            found.push(s.scatter(w, b, stored));
        }
    }
}

fn nested_store(s: &mut Worklist<'_>, t: &Store, found: &mut Found) {
    for (w, rest, x) in s.stores(t.x) {
        if s.has_view(rest, t.v, t.b)
            && let Some(spec) = s.cx().interner.compose(t.v, w)
        {
            let spec = if fault_injected(Fault::NestedStoreUnplaced) { w } else { spec };
            found.push(s.scatter(spec, t.b, x));
        }
    }
}

/// In the place of the base comes an element of what is stored, which costs nothing to have.
fn full_cover_stores(s: &mut Worklist<'_>, t: &Store, found: &mut Found) {
    let Some(meta) = s.meta(t.b) else { return };
    let interner = &mut s.cx().interner;
    let (Some(all), Some(mut left)) = (interner.all(meta), interner.count_of(meta)) else { return };
    let mut cover: SmallVec<[(SpecId, Id); MAX_COVER_STORES]> = SmallVec::new();
    let mut next = Some((t.v, t.b, t.x));
    while let Some((v, b, x)) = next.take() {
        let Some(size) = s
            .cx()
            .interner
            .count(v)
            .filter(|n| (1..=left).contains(n) && cover.len() < MAX_COVER_STORES)
        else {
            return;
        };
        cover.push((v, x));
        left -= size;
        if left > 0 {
            next = s.stores(b).first().copied();
        }
    }
    // as many elements as there are, none of them twice
    let interner = &mut s.cx().interner;
    let disjoint = |interner: &mut Interner, i: usize| {
        cover[..i].iter().all(|(w, _)| interner.disjoint(cover[i].0, *w) == TriBool::Yes)
    };
    if left > 0
        || (0..cover.len())
            .any(|i| interner.injective(cover[i].0) != TriBool::Yes || !disjoint(interner, i))
    {
        return;
    }
    let Some(&(_, x)) = cover.first().filter(|_| cover.len() > 1) else { return };
    let Some(one) = s.cx().interner.repeated(all) else { return };
    let mut base = s.view(one, x);
    for (v, x) in cover.into_iter().rev() {
        base = s.scatter(v, base, x);
    }
    found.push(base);
}
