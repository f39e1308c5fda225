//! Tree extraction: selects one term for each class, minimizing the cost of the expression tree.
//!
//! **Algorithm.** Knuth's generalization of Dijkstra's algorithm (D. E. Knuth, "A generalization of
//! Dijkstra's algorithm", 1977). The cost of a term is its own cost plus the costs of its operand
//! classes. Classes settle in order of cost: a term enters the heap once all its operand classes
//! are settled, and the first term of a class that leaves the heap is selected.
//!
//! **Invariant.** Every operand settles before its user, so a selection is acyclic. Ties are broken
//! by properties of terms and then by position in the program, so the result is deterministic.
//!
//! **Cost.** O(n log n) for n operand edges. A tree counts an operand once per user;
//! [`extract_dag`](super::extract_dag) then accounts for sharing.

use super::lang::{Data, Term};
use super::worklist::Worklist;
use crate::functionalize::value_graph::{Interner, Kind};
use egg::{Id, Language};
use maquette_ir::copy_cost::approximate_numel;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The cost of launching a kernel, in moved elements.
const LAUNCH_COST: u64 = 1000;
/// A class without a selected term.
pub(super) const NO_TERM: u32 = u32::MAX;

/// The selected term of each class.
pub(crate) struct Selection {
    /// For each term: its class.
    pub class: Vec<u32>,
    /// For each class: its selected term, or `NO_TERM`.
    pub term: Vec<u32>,
    /// For each class: the position in which it settled. Operands settle before their users.
    pub rank: Vec<u32>,
    /// How many classes have a selected term.
    pub classes: usize,
}

impl Selection {
    pub fn class_of(&self, id: Id) -> u32 {
        self.class[usize::from(id)]
    }

    /// The selected term of a class.
    pub fn term_of(&self, class: u32) -> Option<usize> {
        Some(self.term[class as usize]).filter(|t| *t != NO_TERM).map(|t| t as usize)
    }
}

/// About how many elements a value has.
fn elements(interner: &Interner, kind: Kind) -> u64 {
    let Kind::Tensor(m) = kind else { return 1 };
    approximate_numel(&interner.metas[m.index()].sizes)
}

/// The cost of a term without its operands, in moved elements. A call that mutates counts four
/// times, since it also copies the operands that it mutates.
pub(super) fn cost(worklist: &Worklist<'_>, term: &Term) -> u64 {
    let interner = &worklist.egraph.analysis.interner;
    match term {
        Term::Input(_) | Term::Const(_) => 0,
        Term::View(..) | Term::Proj(..) => 1,
        Term::Scatter(_, [_, x]) => {
            let Data::Value(k) = worklist.data(*x) else { return LAUNCH_COST };
            elements(interner, k).saturating_add(LAUNCH_COST)
        }
        Term::Call(call, _) => {
            let key = &interner.calls[call.index()];
            let work: u64 = key.kinds().map(|k| elements(interner, k)).fold(0, u64::saturating_add);
            work.saturating_add(LAUNCH_COST).saturating_mul(if key.mutates { 4 } else { 1 })
        }
    }
}

/// Lists of indices in compressed sparse row form: two allocations, however many lists there are.
struct Lists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Builds the lists from pairs of a list's number and an item; items keep their order. Calls
    /// `each` twice, to count and to fill, and it must produce the same pairs both times.
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

/// The classes of a term's operands, without duplicates.
pub(super) fn operand_classes(class: &[u32], t: &Term) -> SmallVec<[u32; 4]> {
    let mut classes = SmallVec::new();
    for c in t.children().iter().map(|c| class[usize::from(*c)]) {
        if !classes.contains(&c) {
            classes.push(c);
        }
    }
    classes
}

/// Selects a term for every class that has a finite tree of `allowed` terms. Ties prefer a term
/// that does not mutate, then a term of the program over a term that a rule added, then the earlier
/// term.
pub(super) fn cheapest_trees(
    worklist: &Worklist<'_>,
    program: &[Id],
    allowed: &dyn Fn(usize) -> bool,
) -> Selection {
    let nodes = worklist.egraph.nodes();
    let class: Vec<u32> =
        (0..nodes.len()).map(|i| usize::from(worklist.find(Id::from(i))) as u32).collect();
    let mut original = vec![false; nodes.len()];
    program.iter().for_each(|id| original[usize::from(*id)] = true);
    let users = Lists::new(nodes.len(), |each| {
        nodes.iter().enumerate().for_each(|(i, t)| {
            operand_classes(&class, t).into_iter().for_each(|c| each(c, i as u32))
        });
    });
    let mut waits: Vec<u32> =
        nodes.iter().map(|t| operand_classes(&class, t).len() as u32).collect();
    let mut costs: Vec<u64> = nodes.iter().map(|t| cost(worklist, t)).collect();
    let calls = &worklist.egraph.analysis.interner.calls;
    let mutates = |t: &Term| matches!(t, Term::Call(call, _) if calls[call.index()].mutates);
    // the costs of deep programs saturate at `u64::MAX`, so ties are common and must be ordered
    let key = |at: usize, cost: u64| Reverse((cost, mutates(&nodes[at]), !original[at], at as u32));
    let leaves = (0..nodes.len()).filter(|&i| waits[i] == 0 && allowed(i));
    let mut heap: BinaryHeap<Reverse<(u64, bool, bool, u32)>> =
        leaves.map(|i| key(i, costs[i])).collect();
    let (mut term, mut rank) = (vec![NO_TERM; nodes.len()], vec![NO_TERM; nodes.len()]);
    let mut classes = 0;
    while let Some(Reverse((total, .., at))) = heap.pop() {
        let settled = class[at as usize];
        if term[settled as usize] != NO_TERM {
            continue;
        }
        (term[settled as usize], rank[settled as usize]) = (at, classes);
        classes += 1;
        for &user in users.get(settled) {
            let user = user as usize;
            waits[user] -= 1;
            costs[user] = costs[user].saturating_add(total);
            if waits[user] == 0 && term[class[user] as usize] == NO_TERM && allowed(user) {
                heap.push(key(user, costs[user]));
            }
        }
    }
    Selection { class, term, rank, classes: classes as usize }
}

/// Selects a term for each class that `roots` need, and no term that is `unavailable`.
///
/// The DAG cost of the selection is at most that of the program as inserted with its functional
/// variants: the search is heuristic, so its result is compared with the extraction of the plain
/// terms alone.
pub(crate) fn extract(
    worklist: &Worklist<'_>,
    program: &[Id],
    roots: &[Id],
    unavailable: &[bool],
) -> Selection {
    let early = |term: usize| !unavailable.get(term).copied().unwrap_or(false);
    let seed = cheapest_trees(worklist, program, &early);
    if !worklist.has_choices() {
        return seed;
    }
    let (best, cost) = super::extract_dag::extract_dag(worklist, seed, roots, &early);
    let plain = cheapest_trees(worklist, program, &|term| worklist.is_plain(term) && early(term));
    if super::extract_dag::total(worklist, &plain, roots).is_some_and(|plain| plain < cost) {
        plain
    } else {
        best
    }
}
