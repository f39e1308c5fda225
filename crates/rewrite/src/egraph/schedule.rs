//! The chosen terms as a program again, in the order of the original one as far as what they need allows.

use super::bound::{Bound, SOON};
use super::extract::Selection;
use super::lang::{Data, Term};
use super::space::Space;
use crate::dag::{Dag, Id as New, Kind, Node, Origin, Session};
use crate::error::{Reason, Result};
use crate::lift::Lifted;
use crate::memory::{Final, Item, Memory, Owner};
use egg::{Id, Language};
use maquette_ir::fault_injection::fault_injected;
use rustc_hash::FxHashSet;

/// Where a class stands.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    Open,
    Done(New),
}

struct Schedule<'a, 'f> {
    space: &'a Space<'f>,
    chosen: &'a Selection,
    /// By class: the first node of the program in it.
    first: Vec<u32>,
    origins: &'a [Origin],
    bound: Bound,
    /// By class.
    marks: Vec<Mark>,
    stack: Vec<u32>,
    /// Nodes with the statement they come after.
    dag: Dag,
    after: Vec<u32>,
    /// The statements of calls whose place matters, in order.
    serial: Vec<u32>,
    /// The statement after which what is being made is asked for.
    by: u32,
}

/// `program` is what was put into the e-graph, `terms` are its nodes there.
pub(crate) fn schedule(space: Space<'_>, program: &Dag, terms: &[Id], chosen: &Selection, lifted: Lifted) -> Result<Lifted> {
    let Lifted { mut memory, outputs, mut finals } = lifted;
    let mut first = vec![u32::MAX; space.len()];
    for (i, id) in terms.iter().enumerate() {
        let first = &mut first[chosen.class_of(*id) as usize];
        *first = (*first).min(i as u32);
    }
    let mut s = Schedule {
        space: &space,
        chosen,
        first,
        origins: &program.origins,
        bound: Bound::of(&memory.items),
        marks: vec![Mark::New; space.len()],
        stack: Vec::new(),
        dag: Dag::with_capacity(chosen.classes),
        after: Vec::with_capacity(chosen.classes),
        serial: Vec::new(),
        by: 0,
    };
    for (by, id) in at_their_time(&space, program, terms, &memory.items) {
        s.by = by;
        s.make(id)?;
    }
    s.by = u32::MAX;
    each_wanted(&mut memory, &mut finals, &mut |id| {
        *id = s.make(terms[id.index()])?;
        Ok(())
    })?;
    let items = s.items(&memory.items);
    let dag = s.dag;
    memory.session = space.g.analysis.session;
    (memory.dag, memory.items) = (dag, items);
    Ok(Lifted { memory, outputs, finals })
}

/// The nodes of a program that are there whether or not they are used: inputs and constants; and calls with a place of their own, in their order.
pub(crate) fn staying<'a>(program: &'a Dag, session: &'a Session) -> impl Iterator<Item = usize> + 'a {
    let stays = |node: &Node| match node {
        Node::Input(_) | Node::Const(_) => true,
        Node::Call(call, _) => session.calls[call.index()].serial != 0,
        Node::View(..) | Node::Scatter(..) | Node::Proj(..) => false,
    };
    program.nodes.iter().enumerate().filter(move |(_, n)| stays(n)).map(|(i, _)| i)
}

/// What is needed at a time of its own, with the statement after which it is: what stays, and what symbols are bound from. In order, so that
/// nothing that is needed early was put where it is needed late.
fn at_their_time(space: &Space<'_>, program: &Dag, terms: &[Id], items: &[Item]) -> Vec<(u32, Id)> {
    let stays = staying(program, &space.g.analysis.session).map(|n| (program.origins[n].at, terms[n]));
    let binds = items.iter().filter_map(|item| match item {
        Item::Bind { value, at, .. } => Some((at.saturating_sub(1), terms[value.index()])),
        Item::Node(_) | Item::Assert { .. } => None,
    });
    let mut all: Vec<(u32, Id)> = stays.chain(binds).collect();
    all.sort_by_key(|(by, _)| *by);
    all
}

/// Every value that is asked for: by binds of symbols, as the contents of memory in the end, as an output.
pub(crate) fn each_wanted(memory: &mut Memory, finals: &mut [Final], f: &mut dyn FnMut(&mut New) -> Result<()>) -> Result<()> {
    for item in &mut memory.items {
        if let Item::Bind { value, .. } = item {
            f(value)?;
        }
    }
    let mut shared = FxHashSet::default();
    storages_of(finals, &mut shared);
    for (i, storage) in memory.storages.iter_mut().enumerate() {
        if storage.written.is_some() && storage.owner != Owner::Fresh || shared.contains(&i) {
            f(&mut storage.version)?;
        }
    }
    values_of(finals, f)
}

fn storages_of(finals: &[Final], storages: &mut FxHashSet<usize>) {
    for f in finals {
        match f {
            Final::Memory(t) => drop(storages.insert(t.storage)),
            Final::List(l) => storages_of(l, storages),
            Final::Value(_) | Final::Plain(_) => {}
        }
    }
}

fn values_of(finals: &mut [Final], f: &mut dyn FnMut(&mut New) -> Result<()>) -> Result<()> {
    finals.iter_mut().try_for_each(|x| match x {
        Final::Value(id) => f(id),
        Final::List(l) => values_of(l, f),
        Final::Memory(_) | Final::Plain(_) => Ok(()),
    })
}

impl Schedule<'_, '_> {
    /// The node of a class, made after those it needs. Without recursion, since programs are long.
    fn make(&mut self, id: Id) -> Result<New> {
        let class = self.chosen.class_of(id);
        let space = self.space;
        self.stack.push(class);
        while let Some(&class) = self.stack.last() {
            if let Mark::Done(_) = self.marks[class as usize] {
                self.stack.pop();
                continue;
            }
            let term = self.chosen.term_of(class).ok_or(Reason::Internal("a value has no form without mutation"))?;
            let term = &space.g.nodes()[term];
            let again = std::mem::replace(&mut self.marks[class as usize], Mark::Open) == Mark::Open;
            let below = self.stack.len();
            for c in term.children().iter().rev() {
                let c = self.chosen.class_of(*c);
                match self.marks[c as usize] {
                    Mark::Done(_) => {}
                    Mark::Open if again => return Err(Reason::Internal("the chosen values depend on each other").into()),
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
            Mark::New | Mark::Open => Err(Reason::Internal("a value is needed before it is made").into()),
        }
    }

    fn add(&mut self, class: u32, term: &Term) -> Result<New> {
        let node = match term {
            Term::Input(i) => Node::Input(*i),
            Term::Const(i) => Node::Const(*i),
            Term::View(s, [b]) => Node::View(*s, self.done(*b)?),
            Term::Scatter(s, [b, x]) => Node::Scatter(*s, self.done(*b)?, self.done(*x)?),
            Term::Call(call, of) => Node::Call(*call, of.iter().map(|c| self.done(*c)).collect::<Result<_>>()?),
            Term::Proj(i, [of]) => Node::Proj(*i, self.done(*of)?),
        };
        let kind = match self.space.data(Id::from(class as usize)) {
            Data::Value(k) => k,
            Data::Tuple(_) => Kind::Tuple,
        };
        let of = |s: &Self, c: &Id| s.done(*c).ok().map(|n| s.after[n.index()]);
        let mut after = term.children().iter().filter_map(|c| of(self, c)).max().unwrap_or(0);
        // of the class, and of what the term was made of, which may be earlier: empty tensors that later statements make are equal; but no later
        // than it is asked for
        let first = self.origins.get(self.first[class as usize] as usize);
        let from = self.chosen.term_of(class).and_then(|t| self.origins.get(self.space.from(t) as usize));
        let at = first.into_iter().chain(from).map(|o| o.at).min().filter(|_| !fault_injected(SOON)).unwrap_or(0);
        after = after.max(at.min(self.by)).max(self.symbols_after(&node));
        if let Node::Call(call, _) = &node
            && self.space.g.analysis.session.calls[call.index()].serial != 0
        {
            after = after.max(self.serial.last().copied().unwrap_or(0));
            self.serial.push(after);
        }
        self.after.push(after);
        let loc = first.or(from).and_then(|o| o.loc);
        Ok(self.dag.add(node, Origin { kind, at: after, loc }))
    }

    /// The statement after which every symbol of a node is bound.
    fn symbols_after(&self, node: &Node) -> u32 {
        let session = &self.space.g.analysis.session;
        match node {
            Node::View(spec, _) | Node::Scatter(spec, ..) => self.bound.of_view(session, *spec),
            Node::Call(call, _) => self.bound.of_call(session, *call),
            Node::Input(_) | Node::Const(_) | Node::Proj(..) => 0,
        }
    }

    /// Nodes by the statement they come after, then in the order they were made; binds behind those of their statement. Assertions come as soon as
    /// calls with a place of their own allow, so that what they say holds where anything is computed from it.
    fn items(&self, old: &[Item]) -> Vec<Item> {
        let mut order: Vec<u32> = (0..self.dag.nodes.len() as u32).collect();
        order.sort_by_key(|&i| self.after[i as usize]);
        let mut order = order.into_iter().peekable();
        let mut items = Vec::with_capacity(old.len());
        let listed = |n: &Node| !matches!(n, Node::Input(_) | Node::Const(_) | Node::Proj(..));
        let mut until = |items: &mut Vec<Item>, limit: (u32, u32)| {
            while let Some(i) = order.next_if(|&i| (self.after[i as usize], i) <= limit) {
                if listed(&self.dag.nodes[i as usize]) {
                    items.push(Item::Node(New(i)));
                }
            }
        };
        for item in old {
            match *item {
                Item::Node(_) => {}
                Item::Bind { at, .. } => {
                    until(&mut items, (at.saturating_sub(1), u32::MAX));
                    items.push(*item);
                }
                Item::Assert { at, .. } => {
                    let before = self.serial.partition_point(|s| *s < at);
                    if let Some(&last) = self.serial[..before].last() {
                        until(&mut items, (last, u32::MAX));
                    }
                    items.push(*item);
                }
            }
        }
        until(&mut items, (u32::MAX, u32::MAX));
        items
    }
}
