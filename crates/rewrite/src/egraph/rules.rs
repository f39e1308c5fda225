//! The rules, all exact: for every content of memory both sides are the same bits.
//!
//! A rule is given a term and its class, and finds terms that are equal to it. Writing one: state the equation and why it holds in its entry
//! below; use only what the [algebra](crate::algebra) answers with `Yes` or a view (it proves, never guesses); never look at or make a
//! call that has an effect, and never merge calls except by congruence; go towards fewer or smaller stores, or prove that the rule cannot
//! undo another; and give it a test that shows it, and one where its condition fails.

use super::lang::{Data, Egraph, Term};
use super::twins;
use crate::dag::{Kind, MetaId, Slot, SpecId};
use egg::Id;
use maquette_ir::mutant::mutant;
use maquette_ir::view::Tri;
use smallvec::SmallVec;

/// Stores that a view is moved past in one go.
const WALK: usize = 64;
/// Terms of a class that a rule looks at.
const LOOKED_AT: usize = 8;

/// A rule by name, with the equation.
pub(crate) struct Rule {
    pub name: &'static str,
    /// The equation, and why it holds.
    pub law: &'static str,
    /// The term alone decides: once is enough.
    pub once: bool,
    pub apply: fn(&mut Egraph<'_>, Id, &Term, &mut Found),
}

/// Classes that are equal to the one looked at.
pub(crate) type Found = SmallVec<[Id; 2]>;

/// Every rule, in the order in which they are tried.
pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "twin",
        law: "op_(x, …) leaves in x what op(x, …) returns, in x's dtype: so the operator is defined",
        once: true,
        apply: twins::twin,
    },
    Rule {
        name: "same-elements",
        law: "clone(x) = x, and reshape(x) = view(all of x, x): values have no memory",
        once: true,
        apply: same_elements,
    },
    Rule { name: "whole-view", law: "view(all of b, b) = b", once: false, apply: whole_view },
    Rule { name: "view-view", law: "view(v, view(w, b)) = view(w∘v, b): composition is by definition", once: false, apply: view_view },
    Rule {
        name: "forward",
        law: "view(v, scatter(w, b, x)) = view(v/w, x) where v lies in w: only stored elements are seen",
        once: false,
        apply: forward,
    },
    Rule {
        name: "past",
        law: "view(v, scatter(w, b, x)) = view(v, b) where v and w are disjoint: no stored element is seen",
        once: false,
        apply: past,
    },
    Rule {
        name: "push-in",
        law: "view(v, scatter(w, b, x)) = scatter(w/v, view(v, b), x) where w lies in v and v repeats nothing",
        once: false,
        apply: push_in,
    },
    Rule {
        name: "whole-store",
        law: "scatter(v, b, x) = view(v⁻¹, x) where v names every element of b once: nothing of b is left",
        once: false,
        apply: whole_store,
    },
    Rule { name: "no-op-store", law: "scatter(v, b, view(v, b)) = b: what is there is stored again", once: false, apply: noop_store },
    Rule {
        name: "dead-store",
        law: "scatter(v, scatter(w, b, x), y) = scatter(v, b, y) where w lies in v: nothing of x is left",
        once: false,
        apply: dead_store,
    },
    Rule {
        name: "store-into",
        law: "scatter(v, scatter(w, b, x), y) = scatter(w, b, scatter(v/w, x, y)) where v lies in w",
        once: false,
        apply: store_into,
    },
    Rule {
        name: "nested-store",
        law: "scatter(v, b, scatter(w, view(v, b), x)) = scatter(v∘w, b, x): the rest of v is as it was",
        once: false,
        apply: nested,
    },
];

pub(super) fn spec_of(g: &Egraph<'_>, id: Id) -> Option<SpecId> {
    if let Data::Spec(s) = g[id].data { Some(s) } else { None }
}

pub(super) fn meta_of(g: &Egraph<'_>, id: Id) -> Option<MetaId> {
    if let Data::Value(Kind::Tensor(m)) = g[id].data { Some(m) } else { None }
}

/// A view of a class.
pub(super) fn view(g: &mut Egraph<'_>, spec: SpecId, base: Id) -> Id {
    let s = g.add(Term::Spec(spec));
    g.add(Term::View([s, base]))
}

fn scatter(g: &mut Egraph<'_>, spec: SpecId, base: Id, from: Id) -> Id {
    let s = g.add(Term::Spec(spec));
    g.add(Term::Scatter([s, base, from]))
}

/// The stores in a class: spec, base, source.
fn stores(g: &Egraph<'_>, id: Id) -> SmallVec<[(SpecId, Id, Id); 2]> {
    let store = |t: &Term| if let Term::Scatter([s, b, x]) = t { Some((spec_of(g, *s)?, *b, *x)) } else { None };
    g[id].nodes.iter().filter_map(store).take(LOOKED_AT).collect()
}

/// The views in a class: spec, base.
fn views(g: &Egraph<'_>, id: Id) -> SmallVec<[(SpecId, Id); 2]> {
    let view = |t: &Term| if let Term::View([s, b]) = t { Some((spec_of(g, *s)?, *b)) } else { None };
    g[id].nodes.iter().filter_map(view).take(LOOKED_AT).collect()
}

/// A view term's spec and base.
fn as_view(g: &Egraph<'_>, t: &Term) -> Option<(SpecId, Id)> {
    if let Term::View([s, b]) = t { Some((spec_of(g, *s)?, *b)) } else { None }
}

fn as_store(g: &Egraph<'_>, t: &Term) -> Option<(SpecId, Id, Id)> {
    if let Term::Scatter([s, b, x]) = t { Some((spec_of(g, *s)?, *b, *x)) } else { None }
}

fn same_elements(g: &mut Egraph<'_>, id: Id, t: &Term, found: &mut Found) {
    let Term::Call(call, operands) = t else { return };
    let template = &g.analysis.session.calls[call.index()];
    let (Some(&x), Some(result)) = (operands.first(), meta_of(g, id)) else { return };
    let first = matches!(template.args.first(), Some(Slot::Operand(0)));
    if template.mutates || template.serial != 0 || !first || !g.analysis.facts.keeps_elements(g.analysis.session.str(template.op)) {
        return;
    }
    let Some(source) = meta_of(g, x) else { return };
    if source == result {
        found.push(x);
        return;
    }
    let (from, to) = (&g.analysis.session.metas[source.index()], &g.analysis.session.metas[result.index()]);
    if (from.dtype, from.device, from.layout) == (to.dtype, to.device, to.layout)
        && let Some(all) = g.analysis.session.all(result)
    {
        found.push(view(g, all, x));
    }
}

fn whole_view(g: &mut Egraph<'_>, id: Id, t: &Term, found: &mut Found) {
    let Some((v, b)) = as_view(g, t) else { return };
    if let Some(meta) = meta_of(g, b)
        && meta_of(g, id) == Some(meta)
        && g.analysis.session.is_whole(v, meta)
    {
        found.push(b);
    }
}

fn view_view(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, base)) = as_view(g, t) else { return };
    for (w, b) in views(g, base) {
        if let Some(s) = g.analysis.session.compose(w, v) {
            found.push(view(g, s, b));
        }
    }
}

fn forward(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, base)) = as_view(g, t) else { return };
    for (w, _, x) in stores(g, base) {
        if v == w {
            found.push(x);
        } else if let Some(s) = g.analysis.session.relative(v, w) {
            found.push(view(g, s, x));
        }
    }
}

fn past(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, base)) = as_view(g, t) else { return };
    let mut at = base;
    for _ in 0..WALK {
        let next = stores(g, at).into_iter().find(|(w, ..)| {
            let partly = mutant("past: a store that overlaps in part") && g.analysis.session.relative(v, *w).is_none();
            g.analysis.session.disjoint(v, *w) == Tri::Yes || partly
        });
        let Some((_, b, _)) = next else { break };
        at = g.find(b);
    }
    if at != g.find(base) {
        found.push(view(g, v, at));
    }
}

fn push_in(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, base)) = as_view(g, t) else { return };
    for (w, b, x) in stores(g, base).into_iter().filter(|(w, ..)| *w != v) {
        if (g.analysis.session.injective(v) == Tri::Yes || mutant("push-in: into views that repeat elements"))
            && let Some(s) = g.analysis.session.relative(w, v)
        {
            let rest = view(g, v, b);
            found.push(scatter(g, s, rest, x));
        }
    }
}

fn whole_store(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, b, x)) = as_store(g, t) else { return };
    let (Some(base), Some(source)) = (meta_of(g, b), meta_of(g, x)) else { return };
    if base == source && g.analysis.session.is_whole(v, base) {
        found.push(x);
    } else if let Some(s) = g.analysis.session.inverse(v, base) {
        let s = if mutant("whole-store: not inverted") { v } else { s };
        found.push(view(g, s, x));
    }
}

fn noop_store(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, b, x)) = as_store(g, t) else { return };
    let version = |base: Id| g.find(base) == g.find(b) || mutant("no-op-store: of any version") && g[base].data == g[b].data;
    if views(g, x).iter().any(|(w, base)| *w == v && version(*base)) {
        found.push(b);
    }
}

fn dead_store(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, base, y)) = as_store(g, t) else { return };
    for (w, b, _) in stores(g, base) {
        let (inner, outer) = if mutant("dead-store: the other way round") { (v, w) } else { (w, v) };
        if g.analysis.session.inside(inner, outer) == Tri::Yes {
            found.push(scatter(g, v, b, y));
        }
    }
}

fn store_into(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, base, y)) = as_store(g, t) else { return };
    for (w, b, x) in stores(g, base).into_iter().filter(|(w, ..)| *w != v) {
        if let Some(s) = g.analysis.session.relative(v, w) {
            let stored = scatter(g, s, x, y);
            found.push(scatter(g, w, b, stored));
        }
    }
}

fn nested(g: &mut Egraph<'_>, _: Id, t: &Term, found: &mut Found) {
    let Some((v, b, stored)) = as_store(g, t) else { return };
    for (w, rest, x) in stores(g, stored) {
        if !views(g, rest).iter().any(|(s, base)| *s == v && g.find(*base) == g.find(b)) {
            continue;
        }
        if let Some(s) = g.analysis.session.compose(v, w) {
            let s = if mutant("nested-store: not placed") { w } else { s };
            found.push(scatter(g, s, b, x));
        }
    }
}
