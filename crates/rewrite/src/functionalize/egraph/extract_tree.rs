//! Choosing one term of each class: the cheapest tree first (Knuth 1977, a generalisation of
//! Dijkstra's algorithm), which cannot have cycles, since a term settles after its operands. Then
//! [`extract_dag`](super::extract_dag) counts what is shared once.

use super::lang::{Data, Term};
use super::worklist::Worklist;
use crate::functionalize::value_graph::{Interner, Kind};
use egg::{Id, Language};
use maquette_ir::copy_cost::approximate_numel;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What starting a kernel costs, in elements moved.
const LAUNCH: u64 = 1000;
/// No term.
pub(super) const NONE: u32 = u32::MAX;

/// The chosen term of each class.
pub(crate) struct Selection {
    /// By term: its class.
    pub class: Vec<u32>,
    /// By class.
    pub term: Vec<u32>,
    /// By class: when its term was chosen. Operands are chosen before what takes them.
    pub rank: Vec<u32>,
    pub classes: usize,
}

impl Selection {
    pub fn class_of(&self, id: Id) -> u32 {
        self.class[usize::from(id)]
    }

    pub fn term_of(&self, class: u32) -> Option<usize> {
        Some(self.term[class as usize]).filter(|t| *t != NONE).map(|t| t as usize)
    }
}

fn elements(interner: &Interner, kind: Kind) -> u64 {
    let Kind::Tensor(m) = kind else { return 1 };
    approximate_numel(&interner.metas[m.index()].sizes)
}

/// What a term costs by itself, in elements moved. A call on copies costs the copies too.
pub(super) fn cost(s: &Worklist<'_>, term: &Term) -> u64 {
    let interner = &s.g.analysis.interner;
    match term {
        Term::Input(_) | Term::Const(_) => 0,
        Term::View(..) | Term::Proj(..) => 1,
        Term::Scatter(_, [_, x]) => {
            let Data::Value(k) = s.data(*x) else { return LAUNCH };
            elements(interner, k).saturating_add(LAUNCH)
        }
        Term::Call(call, _) => {
            let key = &interner.calls[call.index()];
            let work: u64 = key.kinds().map(|k| elements(interner, k)).fold(0, u64::saturating_add);
            work.saturating_add(LAUNCH).saturating_mul(if key.mutates { 4 } else { 1 })
        }
    }
}

/// Lists in one piece.
struct Lists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// From pairs of a list's number and an item, which keep their order. `each` gives the same
    /// pairs twice.
    fn new(len: usize, each: impl Fn(&mut dyn FnMut(u32, u32))) -> Lists {
        let mut ends = vec![0u32; len + 1];
        each(&mut |list, _| ends[list as usize + 1] += 1);
        for i in 0..len {
            ends[i + 1] += ends[i];
        }
        let mut items = vec![0u32; ends[len] as usize];
        let mut at = ends.clone();
        each(&mut |list, item| {
            items[at[list as usize] as usize] = item;
            at[list as usize] += 1;
        });
        Lists { ends, items }
    }

    fn get(&self, list: u32) -> &[u32] {
        &self.items[self.ends[list as usize] as usize..self.ends[list as usize + 1] as usize]
    }
}

/// The classes of a term's operands, each once.
pub(super) fn operand_classes(class: &[u32], t: &Term) -> SmallVec<[u32; 4]> {
    let mut classes = SmallVec::new();
    for c in t.children().iter().map(|c| class[usize::from(*c)]) {
        if !classes.contains(&c) {
            classes.push(c);
        }
    }
    classes
}

/// Chooses a term for every class that is reachable in finitely many steps, among those `allowed`.
/// Of equal costs a term that does not mutate wins, then a term of the program over a term of a
/// rule, and then the earlier one.
pub(super) fn cheapest_trees(
    s: &Worklist<'_>,
    program: &[Id],
    allowed: &dyn Fn(usize) -> bool,
) -> Selection {
    let nodes = s.g.nodes();
    let class: Vec<u32> =
        (0..nodes.len()).map(|i| usize::from(s.find(Id::from(i))) as u32).collect();
    let mut original = vec![false; nodes.len()];
    program.iter().for_each(|id| original[usize::from(*id)] = true);
    let users = Lists::new(nodes.len(), |each| {
        nodes.iter().enumerate().for_each(|(i, t)| {
            operand_classes(&class, t).into_iter().for_each(|c| each(c, i as u32))
        });
    });
    let mut waits: Vec<u32> =
        nodes.iter().map(|t| operand_classes(&class, t).len() as u32).collect();
    let mut costs: Vec<u64> = nodes.iter().map(|t| cost(s, t)).collect();
    let calls = &s.g.analysis.interner.calls;
    let mutates = |t: &Term| matches!(t, Term::Call(call, _) if calls[call.index()].mutates);
    // costs of deep programs are all as large as can be
    let key = |at: usize, cost: u64| Reverse((cost, mutates(&nodes[at]), !original[at], at as u32));
    let leaves = (0..nodes.len()).filter(|&i| waits[i] == 0 && allowed(i));
    let mut heap: BinaryHeap<Reverse<(u64, bool, bool, u32)>> =
        leaves.map(|i| key(i, costs[i])).collect();
    let (mut term, mut rank) = (vec![NONE; nodes.len()], vec![NONE; nodes.len()]);
    let mut classes = 0;
    while let Some(Reverse((total, .., at))) = heap.pop() {
        let settled = class[at as usize];
        if term[settled as usize] != NONE {
            continue;
        }
        (term[settled as usize], rank[settled as usize]) = (at, classes);
        classes += 1;
        for &user in users.get(settled) {
            let user = user as usize;
            waits[user] -= 1;
            costs[user] = costs[user].saturating_add(total);
            if waits[user] == 0 && term[class[user] as usize] == NONE && allowed(user) {
                heap.push(key(user, costs[user]));
            }
        }
    }
    Selection { class, term, rank, classes: classes as usize }
}

/// Chooses a term of each class that `roots` need, and none that is `unavailable`. What comes out
/// costs no more than the program that was put in, with its variants.
pub(crate) fn extract(
    s: &Worklist<'_>,
    program: &[Id],
    roots: &[Id],
    unavailable: &[bool],
) -> Selection {
    let early = |term: usize| !unavailable.get(term).copied().unwrap_or(false);
    let seed = cheapest_trees(s, program, &early);
    if !s.has_choices() {
        return seed;
    }
    let (best, cost) = super::extract_dag::extract_dag(s, seed, roots, &early);
    let plain = cheapest_trees(s, program, &|term| s.is_plain(term) && early(term));
    if super::extract_dag::total(s, &plain, roots).is_some_and(|plain| plain < cost) {
        plain
    } else {
        best
    }
}
