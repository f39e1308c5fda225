//! The rewrite rules. Each is exact: for every content of memory, both sides of its equation are
//! the same bits.
//!
//! In the equations `b` is a base (a version of a storage, or any value), `x` and `y` are stored
//! values, and `v` and `w` are view specs. `view(v, b)` is a load and `scatter(v, b, x)` is a
//! store. `v/w` is `v` relative to `w` (a view of `w`'s value that names `v`'s elements), and `w∘v`
//! is the view `v` of the view `w`.
//!
//! A rule is given a term, and pushes terms that are equal to it. A new rule needs:
//! - its equation, and the reason why it holds, in its entry below;
//! - conditions that are proofs: only a `Yes` or a view from the [view
//!   queries](crate::functionalize::view_queries), since `Unknown` proves nothing;
//! - no effects: it neither inspects nor makes a call with an effect, and it merges calls by
//!   congruence only;
//! - termination: it leads to fewer or smaller stores, or provably does not undo another rule;
//! - two tests: one where it applies, and one where its condition fails.

use super::op_semantics::{self, CallSite};
use super::worklist::{Stores, Views, Worklist};
use crate::functionalize::value_graph::{Interner, MetaId, SpecId};
use egg::Id;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

/// The maximum number of disjoint stores that one view is moved past.
const MAX_PASSED_STORES: usize = 64;

/// The maximum number of stores that together replace a whole value.
const MAX_COVER_STORES: usize = 16;

/// A rule, identified by its name.
pub(crate) struct Rule {
    pub name: &'static str,
    /// The equation, and the reason why it holds.
    pub equation: &'static str,
    /// The rule finds the program's own term but for mutation, and never a costlier one.
    /// [Extraction](super::extract_tree::extract) is never worse than plain terms alone.
    pub plain: bool,
    pub apply: Apply,
}

/// The function of a rule, by the kind of term that it applies to.
pub(crate) enum Apply {
    Call(fn(&mut Worklist<'_>, &CallSite, &mut Found)),
    View(fn(&mut Worklist<'_>, &View, &mut Found)),
    Store(fn(&mut Worklist<'_>, &Store, &mut Found)),
}

/// `view(v, b)`: a load.
pub(crate) struct View {
    v: SpecId,
    b: Id,
    /// The metadata of the view.
    meta: MetaId,
    /// The stores in the class of `b`.
    stores: Stores,
    /// The views in the class of `b`.
    views: Views,
}

impl View {
    pub fn new(worklist: &Worklist<'_>, id: Id, v: SpecId, b: Id) -> Option<View> {
        Some(View {
            v,
            b,
            meta: worklist.meta(id)?,
            stores: worklist.stores(b),
            views: worklist.views(b),
        })
    }
}

/// `scatter(v, b, x)`: a store.
pub(crate) struct Store {
    v: SpecId,
    b: Id,
    x: Id,
    /// The stores in the class of `b`.
    stores: Stores,
}

impl Store {
    pub fn new(worklist: &Worklist<'_>, v: SpecId, b: Id, x: Id) -> Store {
        Store { v, b, x, stores: worklist.stores(b) }
    }
}

/// The terms that a rule found equal to the one it was given.
pub(crate) type Found = SmallVec<[Id; 2]>;

/// All rules, in the order in which they are tried.
pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "functional-variant",
        equation: "op_(x, …) stores op(x, …) in x, converted to x's dtype, if that conversion is \
            allowed: the definition of an in-place operator",
        plain: true,
        apply: Apply::Call(op_semantics::functional_variant),
    },
    Rule {
        name: "same-elements",
        equation: "clone(x) = x, and reshape(x) = view(all of x, x): copies are equal as values",
        plain: false,
        apply: Apply::Call(op_semantics::same_elements_as),
    },
    Rule {
        name: "round-trip",
        equation: "convert(convert(x)) = x, in x's dtype, if the intermediate dtype represents \
            every value of x's dtype",
        plain: false,
        apply: Apply::Call(op_semantics::round_trip),
    },
    Rule {
        name: "identity-operand",
        equation: "x * 1 = x / 1 = x - 0.0 = x + -0.0 = x, in x's dtype; x + 0 = x for integers \
            only, since -0.0 + 0.0 is 0.0",
        plain: false,
        apply: Apply::Call(op_semantics::identity_operand),
    },
    Rule {
        name: "involution-or-idempotent",
        equation: "neg neg x = not not x = x; relu relu x = relu x; abs abs x = abs x; abs neg x = \
            abs x, except for unsigned dtypes",
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
        equation: "fill(x, c) = fill(y, c) for every y of x's sizes and dtype: the operator does \
            not read x",
        plain: true,
        apply: Apply::Call(op_semantics::ignored_operand),
    },
    Rule {
        name: "commute",
        equation: "x + y = y + x, x * y = y * x, x & y = y & x, x | y = y | x, except for floats: \
            the sum of two NaNs is the first one",
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
        equation: "view(v, view(w, b)) = view(w∘v, b): the definition of composition",
        plain: false,
        apply: Apply::View(view_view),
    },
    Rule {
        name: "store-to-load",
        equation: "view(v, scatter(w, b, x)) = view(v/w, x) if w contains v: the load reads only \
            stored elements",
        plain: false,
        apply: Apply::View(store_to_load),
    },
    Rule {
        name: "load-past-disjoint-store",
        equation: "view(v, scatter(w, b, x)) = view(v, b) if v and w are disjoint: the load reads \
            no stored element",
        plain: false,
        apply: Apply::View(load_past_disjoint_store),
    },
    Rule {
        name: "view-of-store",
        equation: "view(v, scatter(w, b, x)) = scatter(w/v, view(v, b), x) if v contains w and is \
            injective",
        plain: false,
        apply: Apply::View(view_of_store),
    },
    Rule {
        name: "whole-store",
        equation: "scatter(v, b, x) = view(v⁻¹, x) if v names every element of b exactly once: the \
            store overwrites all of b",
        plain: false,
        apply: Apply::Store(whole_store),
    },
    Rule {
        name: "idempotent-store",
        equation: "scatter(v, b, view(v, b)) = b: the store writes the values that b already has",
        plain: false,
        apply: Apply::Store(idempotent_store),
    },
    Rule {
        name: "dead-store",
        equation: "scatter(v, scatter(w, b, x), y) = scatter(v, b, y) if v contains w: the second \
            store overwrites all of x",
        plain: false,
        apply: Apply::Store(dead_store),
    },
    Rule {
        name: "store-through-view",
        equation: "scatter(v, scatter(w, b, x), y) = scatter(w, b, scatter(v/w, x, y)) if w \
            contains v",
        plain: false,
        apply: Apply::Store(store_through_view),
    },
    Rule {
        name: "nested-store",
        equation: "scatter(v, b, scatter(w, view(v, b), x)) = scatter(v∘w, b, x): the other \
            elements of v do not change",
        plain: false,
        apply: Apply::Store(nested_store),
    },
    Rule {
        name: "full-cover-stores",
        equation: "scatter(v, … scatter(w, b, x) …, y) does not depend on b if v, …, w are \
            disjoint and cover all of b",
        plain: false,
        apply: Apply::Store(full_cover_stores),
    },
];

fn whole_view(worklist: &mut Worklist<'_>, view: &View, found: &mut Found) {
    if worklist.meta(view.b) == Some(view.meta)
        && worklist.cx().interner.is_whole(view.v, view.meta)
    {
        found.push(view.b);
    }
}

fn view_view(worklist: &mut Worklist<'_>, view: &View, found: &mut Found) {
    for &(w, b) in &view.views {
        if let Some(spec) = worklist.cx().interner.compose(w, view.v) {
            found.push(worklist.view(spec, b));
        }
    }
}

fn store_to_load(worklist: &mut Worklist<'_>, view: &View, found: &mut Found) {
    for &(w, _, x) in &view.stores {
        if view.v == w {
            found.push(x);
        } else if let Some(spec) = worklist.cx().interner.relative(view.v, w) {
            found.push(worklist.view(spec, x));
        }
    }
}

fn load_past_disjoint_store(worklist: &mut Worklist<'_>, view: &View, found: &mut Found) {
    let mut base = view.b;
    let mut stores = view.stores.clone();
    for _ in 0..MAX_PASSED_STORES {
        let next = stores.iter().find(|(w, ..)| {
            let interner = &mut worklist.cx().interner;
            let partly = fault_injected(Fault::LoadPastPartialOverlap)
                && interner.relative(view.v, *w).is_none();
            interner.disjoint(view.v, *w) == TriBool::Yes || partly
        });
        let Some(&(_, b, _)) = next else { break };
        base = worklist.find(b);
        stores = worklist.stores(base);
    }
    if base != view.b {
        found.push(worklist.view(view.v, base));
    }
}

fn view_of_store(worklist: &mut Worklist<'_>, view: &View, found: &mut Found) {
    for &(w, b, x) in view.stores.iter().filter(|(w, ..)| *w != view.v) {
        let interner = &mut worklist.cx().interner;
        if (interner.injective(view.v) == TriBool::Yes
            || fault_injected(Fault::ViewOfStoreIntoRepeats))
            && let Some(spec) = interner.relative(w, view.v)
        {
            let rest = worklist.view(view.v, b);
            found.push(worklist.scatter(spec, rest, x));
        }
    }
}

fn whole_store(worklist: &mut Worklist<'_>, store: &Store, found: &mut Found) {
    let (Some(base), Some(source)) = (worklist.meta(store.b), worklist.meta(store.x)) else {
        return;
    };
    let interner = &mut worklist.cx().interner;
    if base == source && interner.is_whole(store.v, base) {
        found.push(store.x);
    } else if let Some(spec) = interner.inverse(store.v, base) {
        let spec = if fault_injected(Fault::WholeStoreNotInverted) { store.v } else { spec };
        found.push(worklist.view(spec, store.x));
    }
}

fn idempotent_store(worklist: &mut Worklist<'_>, store: &Store, found: &mut Found) {
    if worklist.has_view(store.x, store.v, store.b) {
        found.push(store.b);
    }
}

fn dead_store(worklist: &mut Worklist<'_>, store: &Store, found: &mut Found) {
    for &(w, b, _) in &store.stores {
        let (inner, outer) =
            if fault_injected(Fault::DeadStoreReversed) { (store.v, w) } else { (w, store.v) };
        if worklist.cx().interner.contained_in(inner, outer) == TriBool::Yes {
            found.push(worklist.scatter(store.v, b, store.x));
        }
    }
}

fn store_through_view(worklist: &mut Worklist<'_>, store: &Store, found: &mut Found) {
    for &(w, b, x) in store.stores.iter().filter(|(w, ..)| *w != store.v) {
        if let Some(spec) = worklist.cx().interner.relative(store.v, w) {
            let stored = worklist.scatter(spec, x, store.x);
            found.push(worklist.scatter(w, b, stored));
        }
    }
}

fn nested_store(worklist: &mut Worklist<'_>, store: &Store, found: &mut Found) {
    for (w, rest, x) in worklist.stores(store.x) {
        if worklist.has_view(rest, store.v, store.b)
            && let Some(spec) = worklist.cx().interner.compose(store.v, w)
        {
            let spec = if fault_injected(Fault::NestedStoreUnplaced) { w } else { spec };
            found.push(worklist.scatter(spec, store.b, x));
        }
    }
}

/// If the stores cover the whole base, the base does not matter: it is replaced by a broadcast of
/// one stored element, which costs nothing, so that the old base may become dead.
fn full_cover_stores(worklist: &mut Worklist<'_>, store: &Store, found: &mut Found) {
    let Some(meta) = worklist.meta(store.b) else { return };
    let interner = &mut worklist.cx().interner;
    let (Some(all), Some(mut left)) = (interner.all(meta), interner.count_of(meta)) else { return };
    let mut cover: SmallVec<[(SpecId, Id); MAX_COVER_STORES]> = SmallVec::new();
    let mut next = Some((store.v, store.b, store.x));
    while let Some((v, b, x)) = next.take() {
        let Some(size) = worklist
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
            next = worklist.stores(b).first().copied();
        }
    }
    // The counts add up to the base's, so pairwise disjoint and injective stores cover all of it.
    let interner = &mut worklist.cx().interner;
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
    let Some(one) = worklist.cx().interner.repeated(all) else { return };
    let mut base = worklist.view(one, x);
    for (v, x) in cover.into_iter().rev() {
        base = worklist.scatter(v, base, x);
    }
    found.push(base);
}
