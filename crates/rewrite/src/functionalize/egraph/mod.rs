//! Rewriting by equality saturation: the lifted program goes into an e-graph, rules add what is
//! equal, and the cheapest program comes out.
//!
//! Rules are tried on each term when it is made, on operands that went through them before, so that
//! one pass over the program does nearly all; terms whose operands turn out to be more than was
//! known are looked at again. Everything is bounded by counts, never by time, and ordered by
//! position in the program: the same program gives the same graph.

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

/// How often what follows from equal operands is looked for.
const ROUNDS: u64 = 8;

/// The rules, for whoever wants to know.
pub(crate) fn rules() -> &'static [Rule] {
    RULES
}

/// Rewrites a lifted program.
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
    let used = RULES
        .iter()
        .map(|r| options.only.as_ref().is_none_or(|only| only.iter().any(|n| n == r.name)))
        .collect();
    let mut saturation = Saturation {
        worklist: Worklist::new(cx, 2 * value_graph.nodes.len()),
        stop_at: options.stop_at,
        used,
        applied_by_rule: vec![0; RULES.len()],
        stats: RewriteStats { stopped: "nothing left to do", ..RewriteStats::default() },
    };
    let terms = saturation.insert(&value_graph);
    let Saturation { worklist, mut stats, applied_by_rule, .. } = saturation;
    if !worklist.is_sound() {
        return Err(Reason::Internal("a rule merged values of different kinds").into());
    }
    let mut roots: Vec<Id> = linearize::pinned_nodes(&value_graph, &worklist.g.analysis.interner)
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

struct Saturation<'f> {
    worklist: Worklist<'f>,
    stop_at: Option<u64>,
    /// By rule.
    used: Vec<bool>,
    /// By rule.
    applied_by_rule: Vec<u64>,
    stats: RewriteStats,
}

impl Saturation<'_> {
    /// Puts a program in, and everything that is equal to its parts. Gives each node's term.
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
            // each node still to come, and the functional variant of each, with a conversion and an
            // expansion, fits under the bound
            self.drain(4 * (done + 1) + 1000, 16 * total as u64 + 1000);
        }
        self.stats.before = total;
        self.stats.rounds = 1;
        while self.stats.rounds < ROUNDS && self.worklist.rebuild() {
            self.stats.rounds += 1;
            self.drain(4 * total + 1000, 16 * total as u64 + 1000);
        }
        self.worklist.rebuild();
        terms
    }

    /// Looks at what there is to look at. Rules about memory make no more terms than `terms`; no
    /// more than `visits` terms are looked at.
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
                    self.each(id, |rule, s, found| {
                        if let Apply::Call(f) = rule {
                            f(s, &site, found)
                        }
                    });
                }
                Term::View(..) | Term::Scatter(..) if self.worklist.len() > terms => {
                    self.stats.stopped = "size"
                }
                Term::View(v, [b]) => {
                    let Some(view) = View::new(&self.worklist, id, v, b) else { continue };
                    self.each(id, |rule, s, found| {
                        if let Apply::View(f) = rule {
                            f(s, &view, found)
                        }
                    });
                }
                Term::Scatter(v, [b, x]) => {
                    let store = Store::new(&self.worklist, v, b, x);
                    self.each(id, |rule, s, found| {
                        if let Apply::Store(f) = rule {
                            f(s, &store, found)
                        }
                    });
                }
                Term::Input(_) | Term::Const(_) | Term::Proj(..) => {}
            }
        }
    }

    /// Tries each rule on a term, and merges what it finds with the term's class.
    fn each(&mut self, id: Id, mut apply: impl FnMut(&Apply, &mut Worklist<'_>, &mut Found)) {
        let mut found = Found::new();
        let from = self.worklist.from(usize::from(id));
        for (number, rule) in RULES.iter().enumerate().filter(|(n, _)| self.used[*n]) {
            apply(&rule.apply, &mut self.worklist, &mut found);
            self.worklist.mark(rule.plain, from);
            for equal in found.drain(..) {
                if self.stop_at.is_some_and(|n| self.stats.applied >= n) {
                    self.stats.stopped = "the number of steps asked for";
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
