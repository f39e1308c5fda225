//! Linearization: turns the selected terms back into a program, in the original statement order as
//! far as dependences allow.
//!
//! **Problem.** Extraction selects a DAG without positions. The emitted program must define each
//! value before its uses and each data-dependent symbol before the values that mention it, keep
//! serial calls (effects, random numbers, runtime checks) in their order, and keep assertions
//! before the code that relies on them. Beyond that, nodes stay at the statement of the original
//! program that they come from.
//!
//! **Algorithm.** Roots are visited in the order of their deadlines (the statement that needs
//! them). A depth-first traversal with an explicit stack emits each term after its operands
//! (postorder), since programs may be deeper than the call stack. Each node gets an anchor, the
//! statement that it follows:
//!
//! anchor = max(anchors of operands, binds of its symbols and of its operands' sizes,
//!              min(original statement, deadline))
//!
//! A serial call also follows the serial call before it. A stable sort by anchor then gives
//! the statements.
//!
//! **Invariant.** An operand's anchor is at most its user's anchor and it is emitted earlier, so
//! definitions precede uses. The extraction is acyclic; a cycle is an internal error, not an
//! endless loop.
//!
//! **Cost.** O(n log n) for n selected terms.

use super::availability::Availability;
use super::extract_tree::Selection;
use super::lang::{Data, Term};
use super::worklist::Worklist;
use crate::error::{Reason, Result};
use crate::functionalize::lift::Lifted;
use crate::functionalize::lift::memory_ssa::{LiftedStmt, MemorySsa, OutputValue, StorageOrigin};
use crate::functionalize::value_graph::{
    Id as NodeId, Interner, Kind, Node, NodeOrigin, ValueGraph,
};
use egg::{Id, Language};
use maquette_ir::fault_injection::{Fault, fault_injected};
use rustc_hash::FxHashSet;

/// The state of a class during the traversal.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Unvisited,
    InProgress,
    Done(NodeId),
}

/// The state of the traversal.
struct Linearizer<'a, 'f> {
    worklist: &'a Worklist<'f>,
    chosen: &'a Selection,
    /// For each class: the first node of the original program in it, or `u32::MAX`.
    first_node: Vec<u32>,
    origins: &'a [NodeOrigin],
    availability: Availability,
    /// For each class: its state.
    marks: Vec<Mark>,
    stack: Vec<u32>,
    /// The emitted nodes, and below, for each, the statement that it follows.
    value_graph: ValueGraph,
    after: Vec<u32>,
    /// The anchors of serial calls, in their order.
    serial: Vec<u32>,
    /// The deadline of the current root: the first statement that needs it.
    deadline: u32,
}

/// Linearizes the selected terms. `program` is the graph that was inserted into the e-graph;
/// `terms` maps its nodes to their terms.
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
    let mut linearizer = Linearizer {
        worklist: &worklist,
        chosen,
        first_node: first,
        origins: &program.origins,
        availability: Availability::of(&memory.stmts),
        marks: vec![Mark::Unvisited; worklist.len()],
        stack: Vec::new(),
        value_graph: ValueGraph::with_capacity(chosen.classes),
        after: Vec::with_capacity(chosen.classes),
        serial: Vec::new(),
        deadline: 0,
    };
    for (deadline, id) in timed_roots(&worklist, program, terms, &memory.stmts) {
        linearizer.deadline = deadline;
        linearizer.emit(id)?;
    }
    linearizer.deadline = u32::MAX;
    for_each_root(&mut memory, &mut output_values, &mut |id| {
        *id = linearizer.emit(terms[id.index()])?;
        Ok(())
    })?;
    let stmts = linearizer.stmts(&memory.stmts);
    let value_graph = linearizer.value_graph;
    memory.interner = worklist.egraph.analysis.interner;
    (memory.value_graph, memory.stmts) = (value_graph, stmts);
    Ok(Lifted { memory, outputs, output_values })
}

/// The nodes of a program that are emitted whether or not they are used: inputs, constants, and
/// serial calls in their order.
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

/// The values with a deadline, each with the statement that it follows at the latest: pinned nodes,
/// and the values that symbols are bound from. Sorted by deadline: the first visit of a term fixes
/// its anchor, so the earliest deadline must come first.
fn timed_roots(
    worklist: &Worklist<'_>,
    program: &ValueGraph,
    terms: &[Id],
    stmts: &[LiftedStmt],
) -> Vec<(u32, Id)> {
    let is_pinned = pinned_nodes(program, &worklist.egraph.analysis.interner)
        .map(|n| (program.origins[n].statement, terms[n]));
    let binds = stmts.iter().filter_map(|stmt| match stmt {
        LiftedStmt::Bind { value, statement, .. } => {
            Some((statement.saturating_sub(1), terms[value.index()]))
        }
        LiftedStmt::Node(_) | LiftedStmt::Assert { .. } => None,
    });
    let mut all: Vec<(u32, Id)> = is_pinned.chain(binds).collect();
    all.sort_by_key(|(deadline, _)| *deadline);
    all
}

/// Every value that the program needs beside the pinned nodes: the sources of binds, the final
/// contents of memory that is external or returned, and the outputs.
pub(crate) fn for_each_root(
    memory: &mut MemorySsa,
    output_values: &mut [OutputValue],
    f: &mut dyn FnMut(&mut NodeId) -> Result<()>,
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

/// The storages that output values are views of.
fn storages_of(output_values: &[OutputValue], storages: &mut FxHashSet<usize>) {
    for f in output_values {
        match f {
            OutputValue::Storage(t) => drop(storages.insert(t.storage)),
            OutputValue::List(l) => storages_of(l, storages),
            OutputValue::Value(_) | OutputValue::Plain(_) => {}
        }
    }
}

/// Calls `f` with every output value that is not memory.
fn values_of(
    output_values: &mut [OutputValue],
    f: &mut dyn FnMut(&mut NodeId) -> Result<()>,
) -> Result<()> {
    output_values.iter_mut().try_for_each(|x| match x {
        OutputValue::Value(id) => f(id),
        OutputValue::List(l) => values_of(l, f),
        OutputValue::Storage(_) | OutputValue::Plain(_) => Ok(()),
    })
}

impl Linearizer<'_, '_> {
    /// Emits a class and everything that it depends on, and returns its node. The stack is
    /// explicit, since programs are long.
    fn emit(&mut self, id: Id) -> Result<NodeId> {
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
                .ok_or(Reason::Internal("no term was extracted for a value"))?;
            let term = &worklist.egraph.nodes()[term];
            let again = std::mem::replace(&mut self.marks[class as usize], Mark::InProgress)
                == Mark::InProgress;
            let below = self.stack.len();
            for c in term.children().iter().rev() {
                let c = self.chosen.class_of(*c);
                match self.marks[c as usize] {
                    Mark::Done(_) => {}
                    Mark::InProgress if again => {
                        return Err(Reason::Internal("the extracted terms form a cycle").into());
                    }
                    Mark::Unvisited | Mark::InProgress => self.stack.push(c),
                }
            }
            if self.stack.len() == below {
                let new = self.emit_term(class, term)?;
                self.marks[class as usize] = Mark::Done(new);
                self.stack.pop();
            }
        }
        self.done(id)
    }

    /// The node of a class that has been emitted.
    fn done(&self, id: Id) -> Result<NodeId> {
        match self.marks[self.chosen.class_of(id) as usize] {
            Mark::Done(new) => Ok(new),
            Mark::Unvisited | Mark::InProgress => {
                Err(Reason::Internal("a term is used before it is emitted").into())
            }
        }
    }

    /// Emits a term whose operands have been emitted, and computes its anchor.
    fn emit_term(&mut self, class: u32, term: &Term) -> Result<NodeId> {
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
        let of = |s: &Self, c: &Id| {
            let interner = &s.worklist.egraph.analysis.interner;
            let bound = s.availability.of_value(interner, s.worklist.data(s.worklist.find(*c)));
            s.done(*c).ok().map(|n| s.after[n.index()].max(bound))
        };
        let mut after = term.children().iter().filter_map(|c| of(self, c)).max().unwrap_or(0);
        // The original position is that of the class, or that of the node that the selected term
        // was derived from if that is earlier: the class's first node may be late, since empty
        // tensors of different statements are equal. The deadline bounds both.
        let first = self.origins.get(self.first_node[class as usize] as usize);
        let from = self
            .chosen
            .term_of(class)
            .and_then(|t| self.origins.get(self.worklist.origin(t) as usize));
        let original = first
            .into_iter()
            .chain(from)
            .map(|o| o.statement)
            .min()
            .filter(|_| !fault_injected(Fault::ScheduleAsSoonAsReady))
            .unwrap_or(0);
        after = after.max(original.min(self.deadline)).max(self.symbols_after(&node));
        if let Node::Call(call, _) = &node
            && self.worklist.egraph.analysis.interner.calls[call.index()].serial != 0
        {
            after = after.max(self.serial.last().copied().unwrap_or(0));
            self.serial.push(after);
        }
        self.after.push(after);
        // An error names the call that fails. A node that rewriting created comes from no call, and
        // gets the call of its class.
        let call = from.and_then(|o| o.call).or(first.and_then(|o| o.call));
        Ok(self.value_graph.add(node, NodeOrigin { kind, statement: after, call }))
    }

    /// The statement that binds the last of a node's symbols.
    fn symbols_after(&self, node: &Node) -> u32 {
        let interner = &self.worklist.egraph.analysis.interner;
        match node {
            Node::View(spec, _) | Node::Scatter(spec, ..) => {
                self.availability.of_view(interner, *spec)
            }
            Node::Call(call, _) => self.availability.of_call(interner, *call),
            Node::Input(_) | Node::Const(_) | Node::Proj(..) => 0,
        }
    }

    /// The statements: nodes by anchor, then in the order of emission; binds after the nodes of
    /// their statement. Assertions come as early as the serial calls before them allow, so that
    /// the condition is established before code that relies on it.
    fn stmts(&self, old: &[LiftedStmt]) -> Vec<LiftedStmt> {
        let mut order: Vec<u32> = (0..self.value_graph.nodes.len() as u32).collect();
        order.sort_by_key(|&i| self.after[i as usize]);
        let mut order = order.into_iter().peekable();
        let mut stmts = Vec::with_capacity(old.len());
        let listed = |n: &Node| !matches!(n, Node::Input(_) | Node::Const(_) | Node::Proj(..));
        let mut until = |stmts: &mut Vec<LiftedStmt>, limit: (u32, u32)| {
            while let Some(i) = order.next_if(|&i| (self.after[i as usize], i) <= limit) {
                if listed(&self.value_graph.nodes[i as usize]) {
                    stmts.push(LiftedStmt::Node(NodeId(i)));
                }
            }
        };
        for stmt in old {
            match *stmt {
                LiftedStmt::Node(_) => {}
                LiftedStmt::Bind { statement, .. } => {
                    until(&mut stmts, (statement.saturating_sub(1), u32::MAX));
                    stmts.push(*stmt);
                }
                LiftedStmt::Assert { statement, .. } => {
                    let before = self.serial.partition_point(|s| *s < statement);
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
