//! Better choices than the cheapest trees, where terms share operands: what is shared is paid once.
//!
//! A class's term is exchanged for another of its terms if what then nobody needs any more costs
//! more than what is needed in addition: reference counts say so, as for the maximal fanout-free
//! cones of logic synthesis. First only operands that were chosen before the class are taken, so
//! that no cycle can come about; then, if a search finds none, any.

use super::extract_tree::{NONE, Selection, cost, operand_classes};
use super::worklist::Worklist;
use egg::Id;

/// Terms of a class that are tried.
const MAX_TRIED_TERMS: usize = 32;
/// Classes that a search for a cycle may visit.
const MAX_CYCLE_SEARCH: usize = 256;
/// Steps for each term there is.
const STEPS_PER_TERM: usize = 8;

struct DagExtractor<'a, 'f> {
    s: &'a Worklist<'f>,
    chosen: Selection,
    /// By class: how many chosen terms and roots take it.
    uses: Vec<u32>,
    /// What all that is used costs.
    total: u64,
    steps: usize,
}

/// What a selection costs, everything counted once; `None` if it lacks a term.
pub(super) fn total(s: &Worklist<'_>, chosen: &Selection, roots: &[Id]) -> Option<u64> {
    let mut seen = vec![false; s.len()];
    let mut stack: Vec<u32> = roots.iter().map(|r| chosen.class_of(*r)).collect();
    let mut sum = 0u64;
    while let Some(class) = stack.pop() {
        if !std::mem::replace(&mut seen[class as usize], true) {
            let term = &s.g.nodes()[chosen.term_of(class)?];
            sum = sum.saturating_add(cost(s, term));
            stack.extend(operand_classes(&chosen.class, term));
        }
    }
    Some(sum)
}

/// Exchanges terms while it pays. Gives the cost of the selection too.
pub(super) fn extract_dag(
    s: &Worklist<'_>,
    chosen: Selection,
    roots: &[Id],
    allowed: &dyn Fn(usize) -> bool,
) -> (Selection, u64) {
    let mut r = DagExtractor {
        s,
        uses: vec![0; s.len()],
        chosen,
        total: 0,
        steps: STEPS_PER_TERM * s.len() + 1000,
    };
    for root in roots {
        let class = r.chosen.class_of(*root);
        r.add_use(class);
    }
    let mut order: Vec<u32> = (0..s.len() as u32)
        .filter(|c| {
            r.chosen.term[*c as usize] != NONE && s.terms(Id::from(*c as usize)).nth(1).is_some()
        })
        .collect();
    order.sort_by_key(|c| std::cmp::Reverse(r.chosen.rank[*c as usize]));
    for searched in [false, true] {
        for &class in &order {
            r.improve(class, searched, allowed);
        }
    }
    (r.chosen, r.total)
}

impl DagExtractor<'_, '_> {
    fn term(&self, class: u32) -> Option<usize> {
        self.chosen.term_of(class)
    }

    fn cost(&self, term: usize) -> u64 {
        cost(self.s, &self.s.g.nodes()[term])
    }

    fn operands(&self, term: usize) -> impl Iterator<Item = u32> + use<> {
        operand_classes(&self.chosen.class, &self.s.g.nodes()[term]).into_iter()
    }

    /// One more takes a class.
    fn add_use(&mut self, class: u32) {
        let mut stack = vec![class];
        while let Some(class) = stack.pop() {
            self.uses[class as usize] += 1;
            self.steps = self.steps.saturating_sub(1);
            if self.uses[class as usize] == 1
                && let Some(term) = self.term(class)
            {
                self.total = self.total.saturating_add(self.cost(term));
                stack.extend(self.operands(term));
            }
        }
    }

    /// One less takes a class.
    fn remove_use(&mut self, class: u32) {
        let mut stack = vec![class];
        while let Some(class) = stack.pop() {
            self.uses[class as usize] -= 1;
            self.steps = self.steps.saturating_sub(1);
            if self.uses[class as usize] == 0
                && let Some(term) = self.term(class)
            {
                self.total = self.total.saturating_sub(self.cost(term));
                stack.extend(self.operands(term));
            }
        }
    }

    /// Exchanges the term of a class that is used.
    fn replace_term(&mut self, class: u32, from: usize, to: usize) {
        self.total = self.total.saturating_add(self.cost(to));
        self.operands(to).for_each(|c| self.add_use(c));
        self.chosen.term[class as usize] = to as u32;
        self.total = self.total.saturating_sub(self.cost(from));
        self.operands(from).for_each(|c| self.remove_use(c));
    }

    fn improve(&mut self, class: u32, searched: bool, allowed: &dyn Fn(usize) -> bool) {
        let others: Vec<usize> = self
            .s
            .terms(Id::from(class as usize))
            .take(MAX_TRIED_TERMS)
            .map(|(id, _)| usize::from(id))
            .collect();
        for other in others.into_iter().filter(|t| allowed(*t)) {
            let Some(now) = self.term(class).filter(|now| *now != other) else { continue };
            if self.uses[class as usize] == 0 || self.steps == 0 {
                return;
            }
            let rank = &self.chosen.rank;
            let before = self.operands(other).all(|c| rank[c as usize] < rank[class as usize]);
            let safe = if searched { !self.reaches(other, class) } else { before };
            if !safe {
                continue;
            }
            let old = self.total;
            self.replace_term(class, now, other);
            if self.total >= old {
                self.replace_term(class, other, now);
            }
        }
    }

    /// Whether a term needs a class, or is not known not to.
    fn reaches(&mut self, term: usize, class: u32) -> bool {
        let mut seen: Vec<u32> = self.operands(term).collect();
        let mut at = 0;
        while let Some(&next) = seen.get(at) {
            at += 1;
            self.steps = self.steps.saturating_sub(1);
            let Some(term) = self.term(next) else { return true };
            if next == class || at > MAX_CYCLE_SEARCH {
                return true;
            }
            for c in self.operands(term) {
                if !seen.contains(&c) {
                    seen.push(c);
                }
            }
        }
        false
    }
}
