//! Rewriting by equality saturation: the lifted program goes into an e-graph, rules add what is equal, and the cheapest program comes out.
//!
//! Everything is bounded by counts, never by time, and ordered by position in the program: the same program gives the same graph.

mod extract;
mod lang;
mod rules;
mod schedule;
mod twins;

use crate::dag::{Id as Old, Node};
use crate::error::{Reason, Result};
use crate::functional::Stats;
use crate::lift::Lifted;
use egg::{EGraph, Id};
use lang::{Cx, Data, Egraph, Term};
use maquette_ir::graph::OpFacts;
use rules::{Found, RULES};
use rustc_hash::FxHashSet;

pub(crate) use rules::Rule;

/// Rounds of rules.
const ROUNDS: usize = 8;

/// The rules, for whoever wants to know.
pub(crate) fn rules() -> &'static [Rule] {
    RULES
}

/// Rewrites a lifted program. `stop_at`: how often a rule may add something.
pub(crate) fn optimize(lifted: Lifted, facts: &dyn OpFacts, stop_at: Option<u64>) -> Result<(Lifted, Stats)> {
    let Lifted { mut memory, outputs, finals } = lifted;
    let dag = std::mem::take(&mut memory.dag);
    let session = std::mem::replace(&mut memory.session, crate::dag::Session::new(Default::default()));
    let kinds = |input: bool| -> Vec<crate::dag::Kind> {
        let of = |n: &Node| matches!(n, Node::Input(_)) && input || matches!(n, Node::Const(_)) && !input;
        dag.nodes.iter().zip(&dag.origins).filter(|(n, _)| of(n)).map(|(_, o)| o.kind).collect()
    };
    let cx = Cx { session, facts, inputs: kinds(true), consts: kinds(false), unsound: false };
    let mut g: Egraph<'_> = EGraph::new(cx);
    let mut classes: Vec<Id> = Vec::with_capacity(dag.nodes.len());
    let mut originals: FxHashSet<Term> = FxHashSet::default();
    for node in &dag.nodes {
        let at = |id: &Old| classes[id.index()];
        let term = match node {
            Node::Input(i) => Term::Input(*i),
            Node::Const(i) => Term::Const(*i),
            Node::View(s, b) => {
                let b = at(b);
                Term::View([g.add(Term::Spec(*s)), b])
            }
            Node::Scatter(s, b, x) => {
                let (b, x) = (at(b), at(x));
                Term::Scatter([g.add(Term::Spec(*s)), b, x])
            }
            Node::Call(call, of) => Term::Call(*call, of.iter().map(at).collect()),
            Node::Proj(i, of) => Term::Proj(*i, [at(of)]),
        };
        originals.insert(term.clone());
        classes.push(g.add(term));
    }
    g.rebuild();
    let stats = saturate(&mut g, stop_at);
    if g.analysis.unsound {
        return Err(Reason::Internal("a rule merged values of different kinds").into());
    }
    let chosen = extract::extract(&g, &|t| originals.contains(t));
    memory.dag = dag;
    let lifted = schedule::schedule(g, &classes, &chosen, Lifted { memory, outputs, finals })?;
    Ok((lifted, stats))
}

/// Applies the rules until they add nothing, or a bound is met.
fn saturate(g: &mut Egraph<'_>, stop_at: Option<u64>) -> Stats {
    let limit = 4 * g.total_size() + 1000;
    let mut stats = Stats { before: g.total_size(), stopped: "rounds", ..Stats::default() };
    let mut settled: FxHashSet<Term> = FxHashSet::default();
    'rounds: for _ in 0..ROUNDS {
        stats.rounds += 1;
        let interesting = |t: &Term| matches!(t, Term::View(_) | Term::Scatter(_) | Term::Call(..));
        let work: Vec<(Id, Term)> =
            g.classes().flat_map(|c| c.nodes.iter().filter(|t| interesting(t)).map(|t| (c.id, t.clone()))).collect();
        let mut added = 0;
        for (id, term) in &work {
            let call = matches!(term, Term::Call(..));
            let again = call && !settled.insert(term.clone());
            for (number, rule) in RULES.iter().enumerate().filter(|(_, r)| r.once == call && !again) {
                let mut found = Found::new();
                (rule.apply)(g, *id, term, &mut found);
                for equal in found {
                    if g.find(equal) == g.find(*id) || !same_kind(g, equal, *id) {
                        continue;
                    }
                    if stop_at.is_some_and(|n| stats.applied >= n) {
                        stats.stopped = "the number of steps asked for";
                        break 'rounds;
                    }
                    g.union(*id, equal);
                    added += 1;
                    stats.applied += 1;
                    stats.count(number, rule.name);
                }
            }
            if g.total_size() > limit {
                stats.stopped = "size";
                break 'rounds;
            }
        }
        g.rebuild();
        if added == 0 {
            stats.stopped = "nothing left to do";
            break;
        }
    }
    g.rebuild();
    stats.after = g.total_size();
    stats.classes = g.number_of_classes();
    stats
}

/// A rule that finds a value of other sizes or another dtype has found nothing: expressions that are equal may be spelled differently.
fn same_kind(g: &Egraph<'_>, a: Id, b: Id) -> bool {
    !matches!(g[a].data, Data::Spec(_)) && g[a].data == g[b].data
}
