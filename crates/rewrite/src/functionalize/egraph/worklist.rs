//! The e-graph as rules see it: classes with lists of their terms, and the terms that are still to
//! be looked at.

use super::lang::{Cx, Data, Egraph, Operands, Term};
use crate::functionalize::value_graph::{CallId, MetaId, SpecId};
use egg::{EGraph, Id, Language};
use maquette_ir::DType;
use maquette_ir::fault_injection::{Fault, fault_injected};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Views and stores of a class that a rule looks at.
const MAX_CANDIDATES: usize = 8;
/// Terms of a class among which they are looked for: classes may have as many terms as the program.
const MAX_SCANNED_TERMS: usize = 32;

/// The stores in a class: spec, base, source.
pub(crate) type Stores = SmallVec<[(SpecId, Id, Id); 2]>;
/// The views in a class: spec, base.
pub(crate) type Views = SmallVec<[(SpecId, Id); 2]>;

fn is_memory(t: &Term) -> bool {
    matches!(t, Term::View(..) | Term::Scatter(..))
}

/// The e-graph, in which every term is looked at when it is made, and again when a class it takes
/// gets terms.
pub(crate) struct Worklist<'f> {
    pub g: Egraph<'f>,
    /// For each term the next one of its class, in a ring.
    next: Vec<u32>,
    /// Terms up to here were looked at.
    visited: usize,
    revisit: VecDeque<u32>,
    queued: Vec<bool>,
    /// The number of a walk, and of the last one that came through each class.
    walk: u32,
    walked: Vec<u32>,
    /// Terms of the program, and of the operators that take the place of those that mutate.
    plain: Vec<bool>,
    from: Vec<u32>,
    /// Classes have terms besides those.
    choices: bool,
    /// Terms were made that name a class by an id it no longer has.
    stale: bool,
}

impl<'f> Worklist<'f> {
    /// For about so many terms.
    pub fn new(cx: Cx<'f>, terms: usize) -> Worklist<'f> {
        let (next, plain, from) =
            (Vec::with_capacity(terms), Vec::with_capacity(terms), Vec::with_capacity(terms));
        let (revisit, queued, walked) = Default::default();
        Worklist {
            g: EGraph::new(cx),
            next,
            visited: 0,
            revisit,
            queued,
            walk: 0,
            walked,
            plain,
            from,
            choices: false,
            stale: false,
        }
    }

    pub fn cx(&mut self) -> &mut Cx<'f> {
        &mut self.g.analysis
    }

    pub fn find(&self, id: Id) -> Id {
        self.g.find(id)
    }

    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.g.nodes().len()
    }

    pub fn meta(&self, id: Id) -> Option<MetaId> {
        self.g.analysis.meta(id)
    }

    /// The id of a term itself, which is one of the ids of its class.
    pub fn add(&mut self, term: Term) -> Id {
        let id = self.g.add_uncanonical(term);
        while self.next.len() < self.len() {
            self.next.push(self.next.len() as u32);
        }
        id
    }

    /// Says of terms made since the last time whether they are the program's, and the node that
    /// they are or come from.
    pub fn mark(&mut self, plain: bool, from: u32) {
        self.plain.resize(self.len(), plain);
        self.from.resize(self.len(), from);
    }

    /// The node of the program that a term is, or that a rule made it for.
    pub fn from(&self, term: usize) -> u32 {
        self.from.get(term).copied().unwrap_or(u32::MAX)
    }

    pub fn is_plain(&self, term: usize) -> bool {
        self.plain.get(term).copied().unwrap_or(false)
    }

    /// Whether classes have terms that a rule found, besides those that take the place of operators
    /// that mutate.
    pub fn has_choices(&self) -> bool {
        self.choices
    }

    pub fn found_choice(&mut self) {
        self.choices = true;
    }

    /// The class of a term, if there is one.
    pub fn lookup(&self, term: Term) -> Option<Id> {
        self.g.lookup(term)
    }

    pub fn dtype(&mut self, id: Id) -> Option<DType> {
        let meta = self.meta(id)?;
        Some(self.cx().interner.metas[meta.index()].dtype)
    }

    /// A view of a class.
    pub fn view(&mut self, spec: SpecId, base: Id) -> Id {
        self.add(Term::View(spec, [base]))
    }

    pub fn scatter(&mut self, spec: SpecId, base: Id, from: Id) -> Id {
        self.add(Term::Scatter(spec, [base, from]))
    }

    /// The terms of a class, and their ids. Their operands may be named by ids that classes no
    /// longer have.
    pub fn terms(&self, id: Id) -> impl Iterator<Item = (Id, &Term)> {
        let first = usize::from(id);
        let after = move |&i: &usize| Some(self.next[i] as usize).filter(|&n| n != first);
        std::iter::successors(Some(first), after).map(|i| (Id::from(i), &self.g.nodes()[i]))
    }

    pub fn stores(&self, id: Id) -> Stores {
        let store = |(_, t): (Id, &Term)| {
            if let Term::Scatter(s, [b, x]) = t { Some((*s, *b, *x)) } else { None }
        };
        self.terms(id).take(MAX_SCANNED_TERMS).filter_map(store).take(MAX_CANDIDATES).collect()
    }

    pub fn views(&self, id: Id) -> Views {
        let view =
            |(_, t): (Id, &Term)| if let Term::View(s, [b]) = t { Some((*s, *b)) } else { None };
        self.terms(id).take(MAX_SCANNED_TERMS).filter_map(view).take(MAX_CANDIDATES).collect()
    }

    pub fn calls(&self, id: Id) -> SmallVec<[(CallId, Operands); 2]> {
        let call = |(_, t): (Id, &Term)| {
            if let Term::Call(c, of) = t { Some((*c, of.clone())) } else { None }
        };
        self.terms(id).take(MAX_SCANNED_TERMS).filter_map(call).take(MAX_CANDIDATES).collect()
    }

    /// A class has a view of another.
    pub fn has_view(&self, id: Id, spec: SpecId, base: Id) -> bool {
        let base = self.find(base);
        let data = |id: Id| self.g.analysis.data[usize::from(id)];
        let version = |b: Id| {
            self.find(b) == base
                || fault_injected(Fault::NoOpStoreOfAnyVersion) && data(self.find(b)) == data(base)
        };
        self.terms(id)
            .take(MAX_SCANNED_TERMS)
            .any(|(_, t)| matches!(t, Term::View(s, [b]) if *s == spec && version(*b)))
    }

    /// Merges two classes. A rule that finds a value of other sizes or another dtype has found
    /// nothing: expressions that are equal may be spelled differently. Returns whether they were
    /// two.
    pub fn union(&mut self, a: Id, b: Id) -> bool {
        let data = |id: Id| self.g.analysis.data[usize::from(id)];
        let (a, b) = (self.find(a), self.find(b));
        if a == b || data(a) != data(b) {
            return false;
        }
        // The older class keeps its id, as egg prefers the first: were it the newer, ids would lead
        // to classes by ever longer ways.
        let (a, b) = (a.min(b), a.max(b));
        let has_parents = |id: Id| self.g[id].parents().next().is_some();
        self.stale |= has_parents(a) && has_parents(b);
        let reached =
            |other: Id| self.terms(other).take(MAX_SCANNED_TERMS).any(|(_, t)| is_memory(t));
        let reached = [(a, reached(b)), (b, reached(a))];
        self.enqueue_users(reached.into_iter().filter(|(_, reached)| *reached).map(|(id, _)| id));
        self.g.union(a, b);
        self.next.swap(usize::from(a), usize::from(b));
        true
    }

    /// Classes got views or stores: the terms that take them are to be looked at again; so, one
    /// step further, are those that take a store among them.
    fn enqueue_users(&mut self, classes: impl Iterator<Item = Id>) {
        self.walk += 1;
        for class in classes {
            for parent in self.parents(class) {
                if !self.enqueue(parent)
                    || !matches!(self.g.nodes()[usize::from(parent)], Term::Scatter(..))
                {
                    continue;
                }
                // a class may have many terms that take the same ones
                let store = usize::from(self.find(parent));
                self.walked.resize(self.walked.len().max(store + 1), 0);
                if std::mem::replace(&mut self.walked[store], self.walk) != self.walk {
                    for further in self.parents(parent) {
                        self.enqueue(further);
                    }
                }
            }
        }
    }

    fn parents(&self, class: Id) -> SmallVec<[Id; 4]> {
        self.g[class].parents().collect()
    }

    /// Enqueues a term to be visited again. Returns whether it is one that does.
    fn enqueue(&mut self, id: Id) -> bool {
        let at = usize::from(id);
        if at >= self.visited || !is_memory(&self.g.nodes()[at]) {
            return false;
        }
        self.queued.resize(self.queued.len().max(at + 1), false);
        if !std::mem::replace(&mut self.queued[at], true) {
            self.revisit.push_back(at as u32);
        }
        true
    }

    /// The next term to be looked at: new ones, in the order they were made, then those whose
    /// operands got terms.
    pub fn pop(&mut self) -> Option<(Id, Term)> {
        let at = match self.g.nodes().get(self.visited) {
            Some(_) => {
                self.visited += 1;
                self.visited - 1
            }
            None => {
                let at = self.revisit.pop_front()? as usize;
                self.queued[at] = false;
                at
            }
        };
        let mut term = self.g.nodes()[at].clone();
        term.update_children(|id| self.g.find(id));
        Some((Id::from(at), term))
    }

    /// Merges what is equal because its operands are. Returns whether anything is to be visited
    /// again.
    pub fn rebuild(&mut self) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let before: Vec<Id> = (0..self.len()).map(|i| self.find(Id::from(i))).collect();
        if self.g.rebuild() == 0 {
            return false;
        }
        let mut last: Vec<Option<u32>> = vec![None; self.len()];
        let (mut changed, mut is_changed) = (Vec::new(), vec![false; self.len()]);
        for (i, &old) in before.iter().enumerate() {
            let class = self.find(Id::from(i));
            match last[usize::from(class)].replace(i as u32) {
                None => self.next[i] = i as u32,
                Some(l) => self.next[i] = std::mem::replace(&mut self.next[l as usize], i as u32),
            }
            if class != old && !std::mem::replace(&mut is_changed[usize::from(class)], true) {
                changed.push(class);
            }
        }
        self.enqueue_users(changed.into_iter());
        true
    }

    /// Whether the terms of each class are values of one kind. Where they are not, a rule is at
    /// fault.
    pub fn is_sound(&self) -> bool {
        (0..self.len()).map(Id::from).all(|id| self.data(id) == self.data(self.find(id)))
    }

    /// What is known of a class.
    pub fn data(&self, id: Id) -> Data {
        self.g.analysis.data[usize::from(id)]
    }
}
