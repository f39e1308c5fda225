//! Equality saturation over the lifted program.
//!
//! **Problem.** In a lifted program every load is a `view` of a storage's current version, and
//! every store is a `scatter` that makes a new version. Forwarding stores to loads, removing dead
//! stores, replacing mutating operators by functional variants and simplifying views enable each
//! other in every order, so no fixed order of passes finds all of them. An example, with the
//! version of a storage on the left:
//!
//! ```text
//! x[0:4] = y         %m1 = scatter(0:4, %m0, %y)
//! z = relu(x[0:4])   %v  = view(0:4, %m1)          store-to-load:  %v  = %y
//! x[:] = w           %m2 = scatter(all, %m1, %w)   whole-store:    %m2 = %w
//! ```
//!
//! Both rules fire. Nothing uses `%m1` any more, so extraction drops the first store.
//!
//! **Algorithm.** Equality saturation (Tate et al., "Equality Saturation: A New Approach to
//! Optimization", 2009) on an e-graph of the [`egg`] library (Willsey et al., 2021). An e-graph is
//! a set of *classes* of equal *terms*. A rule never replaces a term: it adds an equal one and
//! merges the two classes, so the order of rules does not matter. The stages:
//!
//! 1. [`worklist`] inserts the nodes in program order. Each new term is offered to every one of the
//!    [`rules`] at once, as in cranelift's acyclic e-graphs. Operands went through the rules before
//!    their users, so one pass finds nearly everything. Terms whose operand classes gain memory
//!    terms are visited again.
//! 2. Congruence closure (`rebuild`) merges terms whose operands have become equal, and the
//!    affected terms are visited again, for at most `MAX_ROUNDS` rounds.
//! 3. [`availability`] excludes terms that could be computed only too late.
//! 4. [`extract_tree`] selects the cheapest term of each class, and [`extract_dag`] improves the
//!    selection where terms are shared.
//! 5. [`linearize`] turns the selection into a program again.
//!
//! **Invariant.** All terms of a class are the same bits for every content of memory, and have the
//! same metadata; effects and random numbers are never duplicated, merged or dropped.
//!
//! **Cost.** For n nodes, at most 16 n + 1000 visits; rules about memory stop at 4 n + 1000 terms;
//! a rule examines a bounded number of terms of a class. Every limit is a count and every order is
//! that of the program, so equal programs give equal graphs.

mod availability;
mod extract_dag;
mod extract_tree;
mod fact_query;
mod functional_variant;
mod lang;
mod linearize;
mod op_semantics;
mod rules;
mod worklist;

use crate::Options;
use crate::error::{Reason, Result};
use crate::functionalize::lift::Lifted;
use crate::functionalize::value_graph::{Interner, Kind, Node, ValueGraph};
use egg::Id;
use lang::{Cx, Term};
use maquette_ir::functional_program::RewriteStats;
use maquette_ir::graph::OpFacts;
use op_semantics::CallSite;
use rules::{Apply, Found, RULES, Store, View};
use rustc_hash::FxHashMap;
use worklist::Worklist;

pub(crate) use rules::Rule;

/// The maximum number of rounds of congruence closure and revisits.
const MAX_ROUNDS: u64 = 8;

/// All rules, in the order in which they are tried.
pub(crate) fn rules() -> &'static [Rule] {
    RULES
}

/// Rewrites a lifted program. Returns the cheapest equal program that the rules find.
///
/// # Errors
/// A rule merged values of different kinds, or a class has no acyclic term. Both are internal
/// errors.
pub(crate) fn optimize(
    lifted: Lifted,
    facts: &dyn OpFacts,
    options: &Options,
) -> Result<(Lifted, RewriteStats)> {
    let Lifted { mut memory, outputs, mut output_values } = lifted;
    let value_graph = std::mem::take(&mut memory.value_graph);
    let interner = std::mem::replace(&mut memory.interner, Interner::new(Default::default()));
    let kinds = |input: bool| -> Vec<Kind> {
        let of = |n: &Node| {
            matches!(n, Node::Input(_)) && input || matches!(n, Node::Const(_)) && !input
        };
        value_graph
            .nodes
            .iter()
            .zip(&value_graph.origins)
            .filter(|(n, _)| of(n))
            .map(|(_, o)| o.kind)
            .collect()
    };
    let (data, calls, leaves) = (
        Vec::with_capacity(2 * value_graph.nodes.len()),
        FxHashMap::default(),
        FxHashMap::default(),
    );
    let cx = Cx {
        interner,
        facts,
        inputs: kinds(true),
        consts: kinds(false),
        data,
        calls,
        leaves,
        no_signed_zeros: options.no_signed_zeros,
    };
    let mut saturation = Saturation {
        worklist: Worklist::new(cx, 2 * value_graph.nodes.len()),
        stop_at: options.stop_at,
        enabled: EnabledRules::of(options),
        applied_by_rule: vec![0; RULES.len()],
        stats: RewriteStats { stopped: "saturated", ..RewriteStats::default() },
    };
    let terms = saturation.insert(&value_graph);
    let Saturation { worklist, mut stats, applied_by_rule, .. } = saturation;
    if !worklist.is_sound() {
        return Err(Reason::Internal("a rule merged terms of different types").into());
    }
    let mut roots: Vec<Id> =
        linearize::pinned_nodes(&value_graph, &worklist.egraph.analysis.interner)
            .map(|i| terms[i])
            .collect();
    linearize::for_each_root(&mut memory, &mut output_values, &mut |id| {
        roots.push(terms[id.index()]);
        Ok(())
    })?;
    let unavailable = availability::Availability::of(&memory.stmts).unavailable(&worklist);
    let chosen = extract_tree::extract(&worklist, &terms, &roots, &unavailable);
    stats.after = worklist.len();
    stats.rules = RULES
        .iter()
        .zip(applied_by_rule)
        .filter(|(_, applied)| *applied > 0)
        .map(|(rule, applied)| (rule.name, applied))
        .collect();
    stats.classes = chosen.classes;
    let lifted = linearize::linearize(
        worklist,
        &value_graph,
        &terms,
        &chosen,
        Lifted { memory, outputs, output_values },
    )?;
    Ok((lifted, stats))
}

/// The rules that the options enable, by the kind of term that they apply to, as positions in
/// `RULES`.
struct EnabledRules {
    calls: Box<[usize]>,
    views: Box<[usize]>,
    stores: Box<[usize]>,
}

impl EnabledRules {
    fn of(options: &Options) -> EnabledRules {
        let is_enabled =
            |r: &Rule| options.only.as_ref().is_none_or(|only| only.iter().any(|n| n == r.name));
        let enabled = |applies: fn(&Apply) -> bool| {
            let rules = RULES.iter().enumerate();
            rules.filter(|(_, r)| applies(&r.apply) && is_enabled(r)).map(|(i, _)| i).collect()
        };
        EnabledRules {
            calls: enabled(|a| matches!(a, Apply::Call(_))),
            views: enabled(|a| matches!(a, Apply::View(_))),
            stores: enabled(|a| matches!(a, Apply::Store(_))),
        }
    }
}

/// A saturation in progress.
struct Saturation<'f> {
    worklist: Worklist<'f>,
    /// Stop after this many merges by rules, to bisect a wrong rewrite.
    stop_at: Option<u64>,
    enabled: EnabledRules,
    /// By rule.
    applied_by_rule: Vec<u64>,
    stats: RewriteStats,
}

impl Saturation<'_> {
    /// Inserts a program and saturates. Returns each node's term.
    fn insert(&mut self, value_graph: &ValueGraph) -> Vec<Id> {
        let total = value_graph.nodes.len();
        let mut terms: Vec<Id> = Vec::with_capacity(total);
        for (done, node) in value_graph.nodes.iter().enumerate() {
            let at =
                |id: &crate::functionalize::value_graph::Id| self.worklist.find(terms[id.index()]);
            let term = match node {
                Node::Input(i) => Term::Input(*i),
                Node::Const(i) => Term::Const(*i),
                Node::View(s, b) => Term::View(*s, [at(b)]),
                Node::Scatter(s, b, x) => Term::Scatter(*s, [at(b), at(x)]),
                Node::Call(call, of) => Term::Call(*call, of.iter().map(at).collect()),
                Node::Proj(i, of) => Term::Proj(*i, [at(of)]),
            };
            terms.push(self.worklist.add(term));
            self.worklist.mark(true, done as u32);
            // the limit leaves room for every node still to come, for its functional variant, and
            // for that variant's conversion and expansion
            self.drain(4 * (done + 1) + 1000, 16 * total as u64 + 1000);
        }
        self.stats.before = total;
        self.stats.rounds = 1;
        while self.stats.rounds < MAX_ROUNDS && self.worklist.rebuild() {
            self.stats.rounds += 1;
            self.drain(4 * total + 1000, 16 * total as u64 + 1000);
        }
        self.worklist.rebuild();
        terms
    }

    /// Applies rules to the pending terms. Rules about memory stop once there are more than `terms`
    /// terms. After `visits` visits, pending terms are discarded.
    fn drain(&mut self, terms: usize, visits: u64) {
        while let Some((id, term)) = self.worklist.pop() {
            self.stats.visits += 1;
            if self.stats.visits > visits {
                self.stats.stopped = "visits";
                continue;
            }
            match term {
                Term::Call(call, operands) => {
                    let site = CallSite::new(&mut self.worklist, call, operands);
                    self.each(
                        id,
                        |e| &e.calls,
                        |rule, s, found| {
                            if let Apply::Call(f) = rule {
                                f(s, &site, found)
                            }
                        },
                    );
                }
                Term::View(..) | Term::Scatter(..) if self.worklist.len() > terms => {
                    self.stats.stopped = "size"
                }
                Term::View(v, [b]) => {
                    let Some(view) = View::new(&self.worklist, id, v, b) else { continue };
                    self.each(
                        id,
                        |e| &e.views,
                        |rule, s, found| {
                            if let Apply::View(f) = rule {
                                f(s, &view, found)
                            }
                        },
                    );
                }
                Term::Scatter(v, [b, x]) => {
                    let store = Store::new(&self.worklist, v, b, x);
                    self.each(
                        id,
                        |e| &e.stores,
                        |rule, s, found| {
                            if let Apply::Store(f) = rule {
                                f(s, &store, found)
                            }
                        },
                    );
                }
                Term::Input(_) | Term::Const(_) | Term::Proj(..) => {}
            }
        }
    }

    /// Applies the enabled rules of one kind to a term, and merges the terms that they find with
    /// the term's class.
    fn each(
        &mut self,
        id: Id,
        kind: impl Fn(&EnabledRules) -> &[usize],
        mut apply: impl FnMut(&Apply, &mut Worklist<'_>, &mut Found),
    ) {
        let mut found = Found::new();
        let from = self.worklist.origin(usize::from(id));
        for &number in kind(&self.enabled) {
            let rule = &RULES[number];
            apply(&rule.apply, &mut self.worklist, &mut found);
            self.worklist.mark(rule.plain, from);
            for equal in found.drain(..) {
                if self.stop_at.is_some_and(|n| self.stats.applied >= n) {
                    self.stats.stopped = "step limit";
                    return;
                }
                if self.worklist.union(id, equal) {
                    if !rule.plain {
                        self.worklist.found_choice();
                    }
                    self.stats.applied += 1;
                    self.applied_by_rule[number] += 1;
                }
            }
        }
    }
}
