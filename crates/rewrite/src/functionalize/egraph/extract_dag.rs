//! DAG extraction: improves a tree extraction by counting shared terms once.
//!
//! **Problem.** Tree extraction charges a shared operand once for each user, so it may prefer two
//! cheap copies to one shared value. Extracting the DAG of minimum cost is NP-hard, so this pass is
//! a local search that starts from the tree extraction.
//!
//! **Algorithm.** For each class with several terms, try to exchange the chosen term for another
//! one and keep the exchange if the total cost of the selected DAG falls. Reference counts give the
//! difference in cost. The operands of the new term gain a use; a class that goes from zero uses to
//! one adds its cost and its own operands. The operands of the old term lose a use; a class that
//! goes from one use to zero removes its cost and its own operands. The classes that a removal
//! frees are the maximum fanout-free cone of the old term (the notion of logic synthesis, as in
//! DAG-aware AIG rewriting, Mishchenko et al. 2006). Users are visited before their operands,
//! twice: the first pass takes only terms whose operands settled before the class in the tree
//! extraction; the second takes any term for which a bounded search finds no path back to the
//! class.
//!
//! **Invariant.** The selection stays acyclic, and its cost never rises.
//!
//! **Cost.** At most `STEPS_PER_TERM` reference-count updates and search steps for each term of the
//! e-graph, plus a constant; at most `MAX_TRIED_TERMS` terms of a class.

use super::extract_tree::{NO_TERM, Selection, cost, operand_classes};
use super::worklist::Worklist;
use egg::Id;

/// The maximum number of terms of one class that are tried.
const MAX_TRIED_TERMS: usize = 32;
/// The maximum number of classes that one search for a cycle visits.
const MAX_CYCLE_SEARCH: usize = 256;
/// The step budget for each term of the e-graph.
const STEPS_PER_TERM: usize = 8;

/// The state of the local search.
struct DagExtractor<'a, 'f> {
    worklist: &'a Worklist<'f>,
    chosen: Selection,
    /// For each class, how many selected terms and roots use it.
    uses: Vec<u32>,
    /// The cost of the selected DAG: the costs of all classes with a use.
    total: u64,
    /// The steps that are left of the budget.
    steps: usize,
}

/// The cost of the selected DAG, with every class counted once; `None` if a class that is used has
/// no selected term.
pub(super) fn total(worklist: &Worklist<'_>, chosen: &Selection, roots: &[Id]) -> Option<u64> {
    let mut seen = vec![false; worklist.len()];
    let mut stack: Vec<u32> = roots.iter().map(|root| chosen.class_of(*root)).collect();
    let mut sum = 0u64;
    while let Some(class) = stack.pop() {
        if !std::mem::replace(&mut seen[class as usize], true) {
            let term = &worklist.egraph.nodes()[chosen.term_of(class)?];
            sum = sum.saturating_add(cost(worklist, term));
            stack.extend(operand_classes(&chosen.class, term));
        }
    }
    Some(sum)
}

/// Exchanges terms while the cost falls. Returns the selection and its cost.
pub(super) fn extract_dag(
    worklist: &Worklist<'_>,
    chosen: Selection,
    roots: &[Id],
    allowed: &dyn Fn(usize) -> bool,
) -> (Selection, u64) {
    let mut extractor = DagExtractor {
        worklist,
        uses: vec![0; worklist.len()],
        chosen,
        total: 0,
        steps: STEPS_PER_TERM * worklist.len() + 1000,
    };
    for root in roots {
        let class = extractor.chosen.class_of(*root);
        extractor.add_use(class);
    }
    let mut order: Vec<u32> = (0..worklist.len() as u32)
        .filter(|c| {
            extractor.chosen.term[*c as usize] != NO_TERM
                && worklist.terms(Id::from(*c as usize)).nth(1).is_some()
        })
        .collect();
    order.sort_by_key(|c| std::cmp::Reverse(extractor.chosen.rank[*c as usize]));
    for searched in [false, true] {
        for &class in &order {
            extractor.improve(class, searched, allowed);
        }
    }
    (extractor.chosen, extractor.total)
}

impl DagExtractor<'_, '_> {
    fn term(&self, class: u32) -> Option<usize> {
        self.chosen.term_of(class)
    }

    fn cost(&self, term: usize) -> u64 {
        cost(self.worklist, &self.worklist.egraph.nodes()[term])
    }

    fn operands(&self, term: usize) -> impl Iterator<Item = u32> + use<> {
        operand_classes(&self.chosen.class, &self.worklist.egraph.nodes()[term]).into_iter()
    }

    /// Adds a use of a class. A first use adds the class's cost and uses of its operands.
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

    /// Removes a use of a class. The last use takes the class's cost and the uses of its operands
    /// with it.
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

    /// Exchanges the selected term of a class in use. The new operands gain their use first, so
    /// that an operand of both terms is not freed in between.
    fn replace_term(&mut self, class: u32, from: usize, to: usize) {
        self.total = self.total.saturating_add(self.cost(to));
        self.operands(to).for_each(|c| self.add_use(c));
        self.chosen.term[class as usize] = to as u32;
        self.total = self.total.saturating_sub(self.cost(from));
        self.operands(from).for_each(|c| self.remove_use(c));
    }

    /// Tries the other terms of a class. `searched`: prove acyclicity by a search; otherwise by the
    /// order in which classes settled.
    fn improve(&mut self, class: u32, searched: bool, allowed: &dyn Fn(usize) -> bool) {
        let others: Vec<usize> = self
            .worklist
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

    /// Whether a term depends on a class through selected terms. True as well if the search exceeds
    /// its bound, since an exchange must never close a cycle.
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
