//! The chosen terms as a program again, in the order of the original one as far as what they need
//! allows.

use super::availability::Availability;
use super::extract_tree::Selection;
use super::lang::{Data, Term};
use super::worklist::Worklist;
use crate::error::{Reason, Result};
use crate::functionalize::lift::Lifted;
use crate::functionalize::lift::memory_ssa::{LiftedStmt, MemorySsa, OutputValue, StorageOrigin};
use crate::functionalize::value_graph::{Id as New, Interner, Kind, Node, NodeOrigin, ValueGraph};
use egg::{Id, Language};
use maquette_ir::fault_injection::{Fault, fault_injected};
use rustc_hash::FxHashSet;

/// Where a class stands.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    Open,
    Done(New),
}

struct Linearizer<'a, 'f> {
    worklist: &'a Worklist<'f>,
    chosen: &'a Selection,
    /// By class: the first node of the program in it.
    first: Vec<u32>,
    origins: &'a [NodeOrigin],
    availability: Availability,
    /// By class.
    marks: Vec<Mark>,
    stack: Vec<u32>,
    /// Nodes with the statement they come after.
    value_graph: ValueGraph,
    after: Vec<u32>,
    /// The statements of calls whose place matters, in order.
    serial: Vec<u32>,
    /// The statement after which what is being made is asked for.
    by: u32,
}

/// `program` is what was put into the e-graph, `terms` are its nodes there.
pub(crate) fn linearize(
    worklist: Worklist<'_>,
    program: &ValueGraph,
    terms: &[Id],
    chosen: &Selection,
    lifted: Lifted,
) -> Result<Lifted> {
    let Lifted { mut memory, outputs, mut output_values } = lifted;
    let mut first = vec![u32::MAX; worklist.len()];
    for (i, id) in terms.iter().enumerate() {
        let first = &mut first[chosen.class_of(*id) as usize];
        *first = (*first).min(i as u32);
    }
    let mut s = Linearizer {
        worklist: &worklist,
        chosen,
        first,
        origins: &program.origins,
        availability: Availability::of(&memory.stmts),
        marks: vec![Mark::New; worklist.len()],
        stack: Vec::new(),
        value_graph: ValueGraph::with_capacity(chosen.classes),
        after: Vec::with_capacity(chosen.classes),
        serial: Vec::new(),
        by: 0,
    };
    for (by, id) in timed_roots(&worklist, program, terms, &memory.stmts) {
        s.by = by;
        s.make(id)?;
    }
    s.by = u32::MAX;
    for_each_root(&mut memory, &mut output_values, &mut |id| {
        *id = s.make(terms[id.index()])?;
        Ok(())
    })?;
    let stmts = s.stmts(&memory.stmts);
    let value_graph = s.value_graph;
    memory.interner = worklist.g.analysis.interner;
    (memory.value_graph, memory.stmts) = (value_graph, stmts);
    Ok(Lifted { memory, outputs, output_values })
}

/// The nodes of a program that are there whether or not they are used: inputs and constants; and
/// calls with a place of their own, in their order.
pub(crate) fn pinned_nodes<'a>(
    program: &'a ValueGraph,
    interner: &'a Interner,
) -> impl Iterator<Item = usize> + 'a {
    let is_pinned = |node: &Node| match node {
        Node::Input(_) | Node::Const(_) => true,
        Node::Call(call, _) => interner.calls[call.index()].serial != 0,
        Node::View(..) | Node::Scatter(..) | Node::Proj(..) => false,
    };
    program.nodes.iter().enumerate().filter(move |(_, n)| is_pinned(n)).map(|(i, _)| i)
}

/// What is needed at a time of its own, with the statement after which it is: what is pinned, and
/// what symbols are bound from. In order, so that nothing that is needed early was put where it is
/// needed late.
fn timed_roots(
    worklist: &Worklist<'_>,
    program: &ValueGraph,
    terms: &[Id],
    stmts: &[LiftedStmt],
) -> Vec<(u32, Id)> {
    let is_pinned = pinned_nodes(program, &worklist.g.analysis.interner)
        .map(|n| (program.origins[n].at, terms[n]));
    let binds = stmts.iter().filter_map(|stmt| match stmt {
        LiftedStmt::Bind { value, at, .. } => Some((at.saturating_sub(1), terms[value.index()])),
        LiftedStmt::Node(_) | LiftedStmt::Assert { .. } => None,
    });
    let mut all: Vec<(u32, Id)> = is_pinned.chain(binds).collect();
    all.sort_by_key(|(by, _)| *by);
    all
}

/// Every value that is asked for: by binds of symbols, as the contents of memory in the end, as an
/// output.
pub(crate) fn for_each_root(
    memory: &mut MemorySsa,
    output_values: &mut [OutputValue],
    f: &mut dyn FnMut(&mut New) -> Result<()>,
) -> Result<()> {
    for stmt in &mut memory.stmts {
        if let LiftedStmt::Bind { value, .. } = stmt {
            f(value)?;
        }
    }
    let mut shared = FxHashSet::default();
    storages_of(output_values, &mut shared);
    for (i, storage) in memory.storages.iter_mut().enumerate() {
        if storage.written.is_some() && storage.origin != StorageOrigin::Fresh
            || shared.contains(&i)
        {
            f(&mut storage.version)?;
        }
    }
    values_of(output_values, f)
}

fn storages_of(output_values: &[OutputValue], storages: &mut FxHashSet<usize>) {
    for f in output_values {
        match f {
            OutputValue::Storage(t) => drop(storages.insert(t.storage)),
            OutputValue::List(l) => storages_of(l, storages),
            OutputValue::Value(_) | OutputValue::Plain(_) => {}
        }
    }
}

fn values_of(
    output_values: &mut [OutputValue],
    f: &mut dyn FnMut(&mut New) -> Result<()>,
) -> Result<()> {
    output_values.iter_mut().try_for_each(|x| match x {
        OutputValue::Value(id) => f(id),
        OutputValue::List(l) => values_of(l, f),
        OutputValue::Storage(_) | OutputValue::Plain(_) => Ok(()),
    })
}

impl Linearizer<'_, '_> {
    /// The node of a class, made after those it needs. Without recursion, since programs are long.
    fn make(&mut self, id: Id) -> Result<New> {
        let class = self.chosen.class_of(id);
        let worklist = self.worklist;
        self.stack.push(class);
        while let Some(&class) = self.stack.last() {
            if let Mark::Done(_) = self.marks[class as usize] {
                self.stack.pop();
                continue;
            }
            let term = self
                .chosen
                .term_of(class)
                .ok_or(Reason::Internal("a value has no form without mutation"))?;
            let term = &worklist.g.nodes()[term];
            let again =
                std::mem::replace(&mut self.marks[class as usize], Mark::Open) == Mark::Open;
            let below = self.stack.len();
            for c in term.children().iter().rev() {
                let c = self.chosen.class_of(*c);
                match self.marks[c as usize] {
                    Mark::Done(_) => {}
                    Mark::Open if again => {
                        return Err(
                            Reason::Internal("the chosen values depend on each other").into()
                        );
                    }
                    Mark::New | Mark::Open => self.stack.push(c),
                }
            }
            if self.stack.len() == below {
                let new = self.add(class, term)?;
                self.marks[class as usize] = Mark::Done(new);
                self.stack.pop();
            }
        }
        self.done(id)
    }

    fn done(&self, id: Id) -> Result<New> {
        match self.marks[self.chosen.class_of(id) as usize] {
            Mark::Done(new) => Ok(new),
            Mark::New | Mark::Open => {
                Err(Reason::Internal("a value is needed before it is made").into())
            }
        }
    }

    fn add(&mut self, class: u32, term: &Term) -> Result<New> {
        let node = match term {
            Term::Input(i) => Node::Input(*i),
            Term::Const(i) => Node::Const(*i),
            Term::View(s, [b]) => Node::View(*s, self.done(*b)?),
            Term::Scatter(s, [b, x]) => Node::Scatter(*s, self.done(*b)?, self.done(*x)?),
            Term::Call(call, of) => {
                Node::Call(*call, of.iter().map(|c| self.done(*c)).collect::<Result<_>>()?)
            }
            Term::Proj(i, [of]) => Node::Proj(*i, self.done(*of)?),
        };
        let kind = match self.worklist.data(Id::from(class as usize)) {
            Data::Value(k) => k,
            Data::Tuple(_) => Kind::Tuple,
        };
        let of = |s: &Self, c: &Id| s.done(*c).ok().map(|n| s.after[n.index()]);
        let mut after = term.children().iter().filter_map(|c| of(self, c)).max().unwrap_or(0);
        // of the class, and of what the term was made of, which may be earlier: empty tensors that
        // later statements make are equal; but no later than it is asked for
        let first = self.origins.get(self.first[class as usize] as usize);
        let from = self
            .chosen
            .term_of(class)
            .and_then(|t| self.origins.get(self.worklist.from(t) as usize));
        let at = first
            .into_iter()
            .chain(from)
            .map(|o| o.at)
            .min()
            .filter(|_| !fault_injected(Fault::ScheduleAsSoonAsReady))
            .unwrap_or(0);
        after = after.max(at.min(self.by)).max(self.symbols_after(&node));
        if let Node::Call(call, _) = &node
            && self.worklist.g.analysis.interner.calls[call.index()].serial != 0
        {
            after = after.max(self.serial.last().copied().unwrap_or(0));
            self.serial.push(after);
        }
        self.after.push(after);
        let loc = first.or(from).and_then(|o| o.loc);
        Ok(self.value_graph.add(node, NodeOrigin { kind, at: after, loc }))
    }

    /// The statement after which every symbol of a node is bound.
    fn symbols_after(&self, node: &Node) -> u32 {
        let interner = &self.worklist.g.analysis.interner;
        match node {
            Node::View(spec, _) | Node::Scatter(spec, ..) => {
                self.availability.of_view(interner, *spec)
            }
            Node::Call(call, _) => self.availability.of_call(interner, *call),
            Node::Input(_) | Node::Const(_) | Node::Proj(..) => 0,
        }
    }

    /// Nodes by the statement they come after, then in the order they were made; binds behind those
    /// of their statement. Assertions come as soon as calls with a place of their own allow, so
    /// that what they say holds where anything is computed from it.
    fn stmts(&self, old: &[LiftedStmt]) -> Vec<LiftedStmt> {
        let mut order: Vec<u32> = (0..self.value_graph.nodes.len() as u32).collect();
        order.sort_by_key(|&i| self.after[i as usize]);
        let mut order = order.into_iter().peekable();
        let mut stmts = Vec::with_capacity(old.len());
        let listed = |n: &Node| !matches!(n, Node::Input(_) | Node::Const(_) | Node::Proj(..));
        let mut until = |stmts: &mut Vec<LiftedStmt>, limit: (u32, u32)| {
            while let Some(i) = order.next_if(|&i| (self.after[i as usize], i) <= limit) {
                if listed(&self.value_graph.nodes[i as usize]) {
                    stmts.push(LiftedStmt::Node(New(i)));
                }
            }
        };
        for stmt in old {
            match *stmt {
                LiftedStmt::Node(_) => {}
                LiftedStmt::Bind { at, .. } => {
                    until(&mut stmts, (at.saturating_sub(1), u32::MAX));
                    stmts.push(*stmt);
                }
                LiftedStmt::Assert { at, .. } => {
                    let before = self.serial.partition_point(|s| *s < at);
                    if let Some(&last) = self.serial[..before].last() {
                        until(&mut stmts, (last, u32::MAX));
                    }
                    stmts.push(*stmt);
                }
            }
        }
        until(&mut stmts, (u32::MAX, u32::MAX));
        stmts
    }
}
