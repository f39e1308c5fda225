//! The e-graph with a worklist of terms that rules have still to visit.
//!
//! egg's own `Runner` searches the whole e-graph for every rule in every round. This worklist is
//! incremental instead: it visits each term when it is added, and again only when a class that the
//! term uses gains views or stores. Rules about memory match two levels deep (a view of a store, a
//! store of a store of a view), so users of an affected store are visited too.
//!
//! **Data structures.** egg's `EGraph` keeps the union-find and the hash-cons table. Beside it,
//! each class is a circular linked list of its terms, `next`; swapping two successors splices two
//! lists in O(1). All terms have increasing ids, so the terms below `visited` are those that have
//! been visited.
//!
//! **Invariant.** Merged classes have equal metadata. Congruence is restored only by
//! [`Worklist::rebuild`] (egg's deferred rebuilding); until then two congruent terms may be in
//! different classes, which loses rewrites but is sound.

use super::lang::{Cx, Data, Egraph, Operands, Term};
use crate::functionalize::value_graph::{CallId, MetaId, SpecId};
use egg::{EGraph, Id, Language};
use maquette_ir::DType;
use maquette_ir::fault_injection::{Fault, fault_injected};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The maximum number of views, stores or calls of a class that a rule considers.
const MAX_CANDIDATES: usize = 8;
/// The maximum number of terms of a class that are searched for them: a class may have as many
/// terms as the program.
const MAX_SCANNED_TERMS: usize = 32;

/// The stores in a class: spec, base, source.
pub(crate) type Stores = SmallVec<[(SpecId, Id, Id); 2]>;
/// The views in a class: spec, base.
pub(crate) type Views = SmallVec<[(SpecId, Id); 2]>;

/// Whether a term is a view or a store, and so may be visited again.
fn is_memory(t: &Term) -> bool {
    matches!(t, Term::View(..) | Term::Scatter(..))
}

/// The e-graph, the terms of each class, and the terms that are to be visited.
pub(crate) struct Worklist<'f> {
    pub egraph: Egraph<'f>,
    /// For each term, the next term of its class, in a circular list.
    next: Vec<u32>,
    /// The number of terms that have been visited: all with smaller ids.
    visited: usize,
    /// The terms to be visited again, oldest first.
    revisit: VecDeque<u32>,
    /// For each term: whether it is in `revisit`.
    queued: Vec<bool>,
    /// The number of the current traversal of users.
    walk: u32,
    /// For each class: the last traversal that expanded it.
    walked: Vec<u32>,
    /// For each term: whether it is the program's own but for mutation (see
    /// [`Rule::plain`](super::Rule)).
    plain: Vec<bool>,
    /// For each term: the node of the program that it is, or was derived from.
    origins: Vec<u32>,
    /// Whether some class has a term that is not plain.
    choices: bool,
    /// Whether merges may have left congruent terms in different classes.
    stale: bool,
}

impl<'f> Worklist<'f> {
    /// An empty e-graph with capacity for this many terms.
    pub fn new(cx: Cx<'f>, terms: usize) -> Worklist<'f> {
        let (next, plain, origins) =
            (Vec::with_capacity(terms), Vec::with_capacity(terms), Vec::with_capacity(terms));
        let (revisit, queued, walked) = Default::default();
        Worklist {
            egraph: EGraph::new(cx),
            next,
            visited: 0,
            revisit,
            queued,
            walk: 0,
            walked,
            plain,
            origins,
            choices: false,
            stale: false,
        }
    }

    pub fn cx(&mut self) -> &mut Cx<'f> {
        &mut self.egraph.analysis
    }

    /// The canonical id of a term's class.
    pub fn find(&self, id: Id) -> Id {
        self.egraph.find(id)
    }

    /// The number of terms.
    pub fn len(&self) -> usize {
        self.egraph.nodes().len()
    }

    /// The metadata of a class if it is a tensor.
    pub fn meta(&self, id: Id) -> Option<MetaId> {
        self.egraph.analysis.meta(id)
    }

    /// Adds a term, or finds it. Returns the term's own id, which may not be its class's canonical
    /// one.
    pub fn add(&mut self, term: Term) -> Id {
        let id = self.egraph.add_uncanonical(term);
        while self.next.len() < self.len() {
            self.next.push(self.next.len() as u32);
        }
        id
    }

    /// Labels the terms that were added since the last call: whether they are plain, and the node
    /// of the program that they come from.
    pub fn mark(&mut self, plain: bool, origin: u32) {
        let terms = self.len();
        // most applications of rules add nothing
        if terms > self.plain.len() {
            self.plain.resize(terms, plain);
            self.origins.resize(terms, origin);
        }
    }

    /// The node of the program that a term is, or was derived from.
    pub fn origin(&self, term: usize) -> u32 {
        self.origins.get(term).copied().unwrap_or(u32::MAX)
    }

    /// Whether a term is the program's own but for mutation.
    pub fn is_plain(&self, term: usize) -> bool {
        self.plain.get(term).copied().unwrap_or(false)
    }

    /// Whether a rule added a term that is not plain, so that extraction has a choice.
    pub fn has_choices(&self) -> bool {
        self.choices
    }

    /// Records that a class has a term that is not plain.
    pub fn found_choice(&mut self) {
        self.choices = true;
    }

    /// The class of a term that exists.
    pub fn lookup(&self, term: Term) -> Option<Id> {
        self.egraph.lookup(term)
    }

    /// The dtype of a class if it is a tensor.
    pub fn dtype(&mut self, id: Id) -> Option<DType> {
        let meta = self.meta(id)?;
        Some(self.cx().interner.metas[meta.index()].dtype)
    }

    /// Adds a view of a class.
    pub fn view(&mut self, spec: SpecId, base: Id) -> Id {
        self.add(Term::View(spec, [base]))
    }

    /// Adds a store to a class.
    pub fn scatter(&mut self, spec: SpecId, base: Id, from: Id) -> Id {
        self.add(Term::Scatter(spec, [base, from]))
    }

    /// The terms of a class, with their ids. Operands may be named by ids that are no longer
    /// canonical.
    pub fn terms(&self, id: Id) -> impl Iterator<Item = (Id, &Term)> {
        let first = usize::from(id);
        let after = move |&i: &usize| Some(self.next[i] as usize).filter(|&n| n != first);
        std::iter::successors(Some(first), after).map(|i| (Id::from(i), &self.egraph.nodes()[i]))
    }

    /// The stores in a class, up to the limits.
    pub fn stores(&self, id: Id) -> Stores {
        let store = |(_, t): (Id, &Term)| {
            if let Term::Scatter(s, [b, x]) = t { Some((*s, *b, *x)) } else { None }
        };
        self.terms(id).take(MAX_SCANNED_TERMS).filter_map(store).take(MAX_CANDIDATES).collect()
    }

    /// The views in a class, up to the limits.
    pub fn views(&self, id: Id) -> Views {
        let view =
            |(_, t): (Id, &Term)| if let Term::View(s, [b]) = t { Some((*s, *b)) } else { None };
        self.terms(id).take(MAX_SCANNED_TERMS).filter_map(view).take(MAX_CANDIDATES).collect()
    }

    /// The calls in a class, up to the limits.
    pub fn calls(&self, id: Id) -> SmallVec<[(CallId, Operands); 2]> {
        let call = |(_, t): (Id, &Term)| {
            if let Term::Call(c, of) = t { Some((*c, of.clone())) } else { None }
        };
        self.terms(id).take(MAX_SCANNED_TERMS).filter_map(call).take(MAX_CANDIDATES).collect()
    }

    /// Whether a class contains this view of `base`.
    pub fn has_view(&self, id: Id, spec: SpecId, base: Id) -> bool {
        let base = self.find(base);
        let data = |id: Id| self.egraph.analysis.data[usize::from(id)];
        let version = |b: Id| {
            self.find(b) == base
                || fault_injected(Fault::NoOpStoreOfAnyVersion) && data(self.find(b)) == data(base)
        };
        self.terms(id)
            .take(MAX_SCANNED_TERMS)
            .any(|(_, t)| matches!(t, Term::View(s, [b]) if *s == spec && version(*b)))
    }

    /// Merges two classes and returns whether they were different. Classes with different metadata
    /// are not merged: a rule's conditions hold, but two expressions for one size may not have been
    /// proved equal, and the classes' data must agree.
    pub fn union(&mut self, a: Id, b: Id) -> bool {
        let data = |id: Id| self.egraph.analysis.data[usize::from(id)];
        let (a, b) = (self.find(a), self.find(b));
        if a == b || data(a) != data(b) {
            return false;
        }
        // The older class stays canonical, as egg keeps the first argument's id: if the newer one
        // did, chains of the union-find would grow with the program.
        let (a, b) = (a.min(b), a.max(b));
        let has_parents = |id: Id| self.egraph[id].parents().next().is_some();
        self.stale |= has_parents(a) && has_parents(b);
        let reached =
            |other: Id| self.terms(other).take(MAX_SCANNED_TERMS).any(|(_, t)| is_memory(t));
        let reached = [(a, reached(b)), (b, reached(a))];
        self.enqueue_users(reached.into_iter().filter(|(_, reached)| *reached).map(|(id, _)| id));
        self.egraph.union(a, b);
        self.next.swap(usize::from(a), usize::from(b));
        true
    }

    /// Enqueues the users of classes that gained views or stores, and the users of the stores among
    /// these: rules match two levels of memory terms.
    fn enqueue_users(&mut self, classes: impl Iterator<Item = Id>) {
        self.walk += 1;
        for class in classes {
            for parent in self.parents(class) {
                if !self.enqueue(parent)
                    || !matches!(self.egraph.nodes()[usize::from(parent)], Term::Scatter(..))
                {
                    continue;
                }
                // expand each class of stores once per traversal, since many terms may share their
                // users
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

    /// The terms that use a class.
    fn parents(&self, class: Id) -> SmallVec<[Id; 4]> {
        self.egraph[class].parents().collect()
    }

    /// Enqueues a term to be visited again. Returns whether the term has been visited and is a view
    /// or a store; a term that is still unvisited needs no second entry.
    fn enqueue(&mut self, id: Id) -> bool {
        let at = usize::from(id);
        if at >= self.visited || !is_memory(&self.egraph.nodes()[at]) {
            return false;
        }
        self.queued.resize(self.queued.len().max(at + 1), false);
        if !std::mem::replace(&mut self.queued[at], true) {
            self.revisit.push_back(at as u32);
        }
        true
    }

    /// The next term to visit, with canonical operands: new terms in the order in which they were
    /// added, then the terms to be visited again.
    pub fn pop(&mut self) -> Option<(Id, Term)> {
        let at = match self.egraph.nodes().get(self.visited) {
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
        let mut term = self.egraph.nodes()[at].clone();
        term.update_children(|id| self.egraph.find(id));
        Some((Id::from(at), term))
    }

    /// Restores congruence: merges the terms whose operands have been merged. Returns whether any
    /// classes were merged; the users of these are enqueued.
    pub fn rebuild(&mut self) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let before: Vec<Id> = (0..self.len()).map(|i| self.find(Id::from(i))).collect();
        if self.egraph.rebuild() == 0 {
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

    /// Whether all terms of each class have the same data. If not, a rule is wrong.
    pub fn is_sound(&self) -> bool {
        (0..self.len()).map(Id::from).all(|id| self.data(id) == self.data(self.find(id)))
    }

    /// The data of a class.
    pub fn data(&self, id: Id) -> Data {
        self.egraph.analysis.data[usize::from(id)]
    }
}
