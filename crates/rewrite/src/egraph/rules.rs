//! The rules, all exact: for every content of memory both sides are the same bits.
//!
//! A rule is given a term and its class, and finds terms that are equal to it. Writing one: state the equation and why it holds in its entry
//! below; use only what the [algebra](crate::algebra) answers with `Yes` or a view (it proves, never guesses); never look at or make a
//! call that has an effect, and never merge calls except by congruence; go towards fewer or smaller stores, or prove that the rule cannot
//! undo another; and give it a test that shows it, and one where its condition fails.

use super::calls::{self, Site};
use super::space::{Space, Stores, Views};
use crate::dag::{MetaId, Session, SpecId};
use egg::Id;
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

/// Stores that a view is moved past in one go.
const WALK: usize = 64;

/// Stores that may fill a value together.
const TILES: usize = 16;

/// A rule by name, with the equation.
pub(crate) struct Rule {
    pub name: &'static str,
    /// The equation, and why it holds.
    pub law: &'static str,
    /// What it finds is as the program says it, but for mutation, and never costs more.
    pub plain: bool,
    pub apply: Apply,
}

/// What a rule is tried on.
pub(crate) enum Apply {
    Call(fn(&mut Space<'_>, &Site, &mut Found)),
    View(fn(&mut Space<'_>, &View, &mut Found)),
    Store(fn(&mut Space<'_>, &Store, &mut Found)),
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
    pub fn new(s: &Space<'_>, id: Id, v: SpecId, b: Id) -> Option<View> {
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
    pub fn new(s: &Space<'_>, v: SpecId, b: Id, x: Id) -> Store {
        Store { v, b, x, stores: s.stores(b) }
    }
}

/// Classes that are equal to the one looked at.
pub(crate) type Found = SmallVec<[Id; 2]>;

/// Every rule, in the order in which they are tried.
pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "twin",
        law: "op_(x, …) leaves in x what op(x, …) returns, in x's dtype, if that holds such results: so the operator is defined",
        plain: true,
        apply: Apply::Call(calls::twin),
    },
    Rule {
        name: "same-elements",
        law: "clone(x) = x, and reshape(x) = view(all of x, x): values have no memory",
        plain: false,
        apply: Apply::Call(calls::same_elements_as),
    },
    Rule {
        name: "round-trip",
        law: "convert(convert(x)) = x, in x's dtype, where the dtype between holds every value of it",
        plain: false,
        apply: Apply::Call(calls::round_trip),
    },
    Rule {
        name: "neutral",
        law: "x * 1 = x / 1 = x - 0.0 = x + -0.0 = x, in x's dtype; of integers x + 0 too. x + 0.0 is not: of -0.0 it is 0.0",
        plain: false,
        apply: Apply::Call(calls::neutral),
    },
    Rule {
        name: "twice",
        law: "neg neg x = not not x = x; relu relu x = relu x; abs abs x = abs x; abs neg x = abs x, but for unsigned numbers",
        plain: false,
        apply: Apply::Call(calls::twice),
    },
    Rule {
        name: "same-operands",
        law: "max(x, x) = min(x, x) = x & x = x | x = x, NaN included",
        plain: false,
        apply: Apply::Call(calls::same_operands),
    },
    Rule {
        name: "unseen",
        law: "fill(x, c) = fill(y, c) for every y of x's sizes and dtype: what x holds is not looked at",
        plain: true,
        apply: Apply::Call(calls::unseen),
    },
    Rule {
        name: "commute",
        law: "x + y = y + x, x * y = y * x, x & y = y & x, x | y = y | x, not of floats: of two NaNs the first is the sum",
        plain: false,
        apply: Apply::Call(calls::commute),
    },
    Rule { name: "whole-view", law: "view(all of b, b) = b", plain: false, apply: Apply::View(whole_view) },
    Rule {
        name: "view-view",
        law: "view(v, view(w, b)) = view(w∘v, b): composition is by definition",
        plain: false,
        apply: Apply::View(view_view),
    },
    Rule {
        name: "forward",
        law: "view(v, scatter(w, b, x)) = view(v/w, x) where v lies in w: only stored elements are seen",
        plain: false,
        apply: Apply::View(forward),
    },
    Rule {
        name: "past",
        law: "view(v, scatter(w, b, x)) = view(v, b) where v and w are disjoint: no stored element is seen",
        plain: false,
        apply: Apply::View(past),
    },
    Rule {
        name: "push-in",
        law: "view(v, scatter(w, b, x)) = scatter(w/v, view(v, b), x) where w lies in v and v repeats nothing",
        plain: false,
        apply: Apply::View(push_in),
    },
    Rule {
        name: "whole-store",
        law: "scatter(v, b, x) = view(v⁻¹, x) where v names every element of b once: nothing of b is left",
        plain: false,
        apply: Apply::Store(whole_store),
    },
    Rule {
        name: "no-op-store",
        law: "scatter(v, b, view(v, b)) = b: what is there is stored again",
        plain: false,
        apply: Apply::Store(noop_store),
    },
    Rule {
        name: "dead-store",
        law: "scatter(v, scatter(w, b, x), y) = scatter(v, b, y) where w lies in v: nothing of x is left",
        plain: false,
        apply: Apply::Store(dead_store),
    },
    Rule {
        name: "store-into",
        law: "scatter(v, scatter(w, b, x), y) = scatter(w, b, scatter(v/w, x, y)) where v lies in w",
        plain: false,
        apply: Apply::Store(store_into),
    },
    Rule {
        name: "nested-store",
        law: "scatter(v, b, scatter(w, view(v, b), x)) = scatter(v∘w, b, x): the rest of v is as it was",
        plain: false,
        apply: Apply::Store(nested),
    },
    Rule {
        name: "tile",
        law: "scatter(v, … scatter(w, b, x) …, y) is the same for every b where v, …, w meet nowhere and leave nothing of b",
        plain: false,
        apply: Apply::Store(tile),
    },
];

fn whole_view(s: &mut Space<'_>, t: &View, found: &mut Found) {
    if s.meta(t.b) == Some(t.meta) && s.cx().session.is_whole(t.v, t.meta) {
        found.push(t.b);
    }
}

fn view_view(s: &mut Space<'_>, t: &View, found: &mut Found) {
    for &(w, b) in &t.views {
        if let Some(spec) = s.cx().session.compose(w, t.v) {
            found.push(s.view(spec, b));
        }
    }
}

fn forward(s: &mut Space<'_>, t: &View, found: &mut Found) {
    for &(w, _, x) in &t.stores {
        if t.v == w {
            found.push(x);
        } else if let Some(spec) = s.cx().session.relative(t.v, w) {
            found.push(s.view(spec, x));
        }
    }
}

fn past(s: &mut Space<'_>, t: &View, found: &mut Found) {
    let mut at = t.b;
    let mut stores = t.stores.clone();
    for _ in 0..WALK {
        let next = stores.iter().find(|(w, ..)| {
            let session = &mut s.cx().session;
            let partly = fault_injected("past: a store that overlaps in part") && session.relative(t.v, *w).is_none();
            session.disjoint(t.v, *w) == TriBool::Yes || partly
        });
        let Some(&(_, b, _)) = next else { break };
        at = s.find(b);
        stores = s.stores(at);
    }
    if at != t.b {
        found.push(s.view(t.v, at));
    }
}

fn push_in(s: &mut Space<'_>, t: &View, found: &mut Found) {
    for &(w, b, x) in t.stores.iter().filter(|(w, ..)| *w != t.v) {
        let session = &mut s.cx().session;
        if (session.injective(t.v) == TriBool::Yes || fault_injected("push-in: into views that repeat elements"))
            && let Some(spec) = session.relative(w, t.v)
        {
            let rest = s.view(t.v, b);
            found.push(s.scatter(spec, rest, x));
        }
    }
}

fn whole_store(s: &mut Space<'_>, t: &Store, found: &mut Found) {
    let (Some(base), Some(source)) = (s.meta(t.b), s.meta(t.x)) else { return };
    let session = &mut s.cx().session;
    if base == source && session.is_whole(t.v, base) {
        found.push(t.x);
    } else if let Some(spec) = session.inverse(t.v, base) {
        let spec = if fault_injected("whole-store: not inverted") { t.v } else { spec };
        found.push(s.view(spec, t.x));
    }
}

fn noop_store(s: &mut Space<'_>, t: &Store, found: &mut Found) {
    if s.has_view(t.x, t.v, t.b) {
        found.push(t.b);
    }
}

fn dead_store(s: &mut Space<'_>, t: &Store, found: &mut Found) {
    for &(w, b, _) in &t.stores {
        let (inner, outer) = if fault_injected("dead-store: the other way round") { (t.v, w) } else { (w, t.v) };
        if s.cx().session.inside(inner, outer) == TriBool::Yes {
            found.push(s.scatter(t.v, b, t.x));
        }
    }
}

fn store_into(s: &mut Space<'_>, t: &Store, found: &mut Found) {
    for &(w, b, x) in t.stores.iter().filter(|(w, ..)| *w != t.v) {
        if let Some(spec) = s.cx().session.relative(t.v, w) {
            let stored = s.scatter(spec, x, t.x);
            found.push(s.scatter(w, b, stored));
        }
    }
}

fn nested(s: &mut Space<'_>, t: &Store, found: &mut Found) {
    for (w, rest, x) in s.stores(t.x) {
        if s.has_view(rest, t.v, t.b)
            && let Some(spec) = s.cx().session.compose(t.v, w)
        {
            let spec = if fault_injected("nested-store: not placed") { w } else { spec };
            found.push(s.scatter(spec, t.b, x));
        }
    }
}

/// In the place of the base comes an element of what is stored, which costs nothing to have.
fn tile(s: &mut Space<'_>, t: &Store, found: &mut Found) {
    let Some(meta) = s.meta(t.b) else { return };
    let session = &mut s.cx().session;
    let (Some(all), Some(mut left)) = (session.all(meta), session.count_of(meta)) else { return };
    let mut tiles: SmallVec<[(SpecId, Id); TILES]> = SmallVec::new();
    let mut next = Some((t.v, t.b, t.x));
    while let Some((v, b, x)) = next.take() {
        let Some(size) = s.cx().session.count(v).filter(|n| (1..=left).contains(n) && tiles.len() < TILES) else { return };
        tiles.push((v, x));
        left -= size;
        if left > 0 {
            next = s.stores(b).first().copied();
        }
    }
    // as many elements as there are, none of them twice
    let session = &mut s.cx().session;
    let apart = |session: &mut Session, i: usize| tiles[..i].iter().all(|(w, _)| session.disjoint(tiles[i].0, *w) == TriBool::Yes);
    if left > 0 || (0..tiles.len()).any(|i| session.injective(tiles[i].0) != TriBool::Yes || !apart(session, i)) {
        return;
    }
    let Some(&(_, x)) = tiles.first().filter(|_| tiles.len() > 1) else { return };
    let Some(one) = s.cx().session.repeated(all) else { return };
    let mut base = s.view(one, x);
    for (v, x) in tiles.into_iter().rev() {
        base = s.scatter(v, base, x);
    }
    found.push(base);
}
