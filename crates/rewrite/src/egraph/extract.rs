//! Choosing one term of each class: the cheapest tree first (Knuth 1977, a generalisation of Dijkstra's algorithm), which cannot have cycles,
//! since a term settles after its operands.

use super::lang::{Data, Egraph, Term};
use crate::dag::{Kind, Session};
use egg::Id;
use maquette_ir::sym::Expr;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What starting a kernel costs, in elements moved.
const LAUNCH: u64 = 1000;
/// What a symbolic size counts as.
const SYMBOLIC: u64 = 64;

/// The chosen term of each class, by canonical id.
pub(crate) type Selection = Vec<Option<Term>>;

fn elements(session: &Session, kind: Kind) -> u64 {
    let Kind::Tensor(m) = kind else { return 1 };
    let size = |e: &Expr| if let Expr::Int(n) = e { u64::try_from(*n).unwrap_or(0) } else { SYMBOLIC };
    session.metas[m.index()].sizes.iter().map(size).fold(1, u64::saturating_mul)
}

/// What a term costs by itself, in elements moved. A call on copies costs the copies too.
fn cost(g: &Egraph<'_>, term: &Term) -> u64 {
    let session = &g.analysis.session;
    match term {
        Term::Input(_) | Term::Const(_) | Term::Spec(_) => 0,
        Term::View(_) | Term::Proj(..) => 1,
        Term::Scatter([.., x]) => {
            let Data::Value(k) = g[*x].data else { return LAUNCH };
            LAUNCH + elements(session, k)
        }
        Term::Call(call, _) => {
            let template = &session.calls[call.index()];
            let work: u64 = template.kinds().map(|k| elements(session, k)).fold(0, u64::saturating_add);
            (LAUNCH + work).saturating_mul(if template.mutates { 4 } else { 1 })
        }
    }
}

/// Chooses a term for every class that is reachable in finitely many steps. `first` gives the position in the program of the first term that was
/// in a class; of equal costs the earlier program wins, and a term of the program over a term of a rule.
pub(crate) fn extract(g: &Egraph<'_>, original: &dyn Fn(&Term) -> bool) -> Selection {
    struct Pending {
        class: Id,
        term: Term,
        waits: usize,
        cost: u64,
    }
    let mut pending: Vec<Pending> = Vec::new();
    let ids = g.nodes().len();
    let mut users: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); ids];
    let mut heap: BinaryHeap<Reverse<(u64, bool, usize)>> = BinaryHeap::new();
    for class in g.classes() {
        for term in &class.nodes {
            let at = pending.len();
            let mut operands: SmallVec<[Id; 4]> = egg::Language::children(term).iter().map(|c| g.find(*c)).collect();
            operands.sort_unstable();
            operands.dedup();
            operands.iter().for_each(|c| users[usize::from(*c)].push(at as u32));
            let own = cost(g, term);
            if operands.is_empty() {
                heap.push(Reverse((own, !original(term), at)));
            }
            pending.push(Pending { class: class.id, term: term.clone(), waits: operands.len(), cost: own });
        }
    }
    let mut chosen: Selection = vec![None; ids];
    while let Some(Reverse((total, _, at))) = heap.pop() {
        let class = pending[at].class;
        if chosen[usize::from(class)].is_some() {
            continue;
        }
        chosen[usize::from(class)] = Some(pending[at].term.clone());
        for &user in &users[usize::from(class)] {
            let user = user as usize;
            let p = &mut pending[user];
            p.waits -= 1;
            p.cost = p.cost.saturating_add(total);
            if p.waits == 0 && chosen[usize::from(p.class)].is_none() {
                heap.push(Reverse((p.cost, !original(&p.term), user)));
            }
        }
    }
    chosen
}
