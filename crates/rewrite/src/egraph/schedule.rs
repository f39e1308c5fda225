//! The chosen terms as a program again, in the order of the original one as far as what they need allows.

use super::extract::Selection;
use super::lang::{Data, Egraph, Term};
use crate::dag::{Dag, Id as New, Kind, Node, Origin, Slot, SpecId, Template};
use crate::error::{Reason, Result};
use crate::lift::Lifted;
use crate::memory::{Final, Item, Owner};
use egg::{Id, Language};
use maquette_ir::mutant::mutant;
use maquette_ir::sym::{Expr, SymbolId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A fault: see [`mutant`].
const SOON: &str = "schedule: as soon as operands are there";

/// Where a class stands.
#[derive(Clone, Copy)]
enum Mark {
    Open,
    Done(New),
}

struct Schedule<'a, 'f> {
    g: Egraph<'f>,
    chosen: &'a Selection,
    /// The first term of the program in a class.
    first: FxHashMap<Id, Origin>,
    /// The statement that binds a symbol.
    bound: FxHashMap<SymbolId, u32>,
    marks: FxHashMap<Id, Mark>,
    /// Nodes with the statement they come after.
    dag: Dag,
    after: Vec<u32>,
    /// The statement of the last call whose place matters.
    ordered: u32,
}

pub(crate) fn schedule(g: Egraph<'_>, classes: &[Id], chosen: &Selection, lifted: Lifted) -> Result<Lifted> {
    let Lifted { mut memory, outputs, mut finals } = lifted;
    let mut first: FxHashMap<Id, Origin> = FxHashMap::default();
    for (id, origin) in classes.iter().zip(&memory.dag.origins) {
        first.entry(g.find(*id)).or_insert(*origin);
    }
    let mut bound = FxHashMap::default();
    for item in &memory.items {
        if let Item::Bind { symbol, at, .. } = item {
            bound.insert(*symbol, *at);
        }
    }
    let mut s = Schedule { g, chosen, first, bound, marks: FxHashMap::default(), dag: Dag::default(), after: Vec::new(), ordered: 0 };
    // Inputs and constants are there whether or not they are used; calls with a place of their own happen in any case, in their order.
    let mut made: FxHashMap<crate::dag::Id, New> = FxHashMap::default();
    let old = |id: crate::dag::Id| classes[id.index()];
    for (i, node) in memory.dag.nodes.iter().enumerate() {
        let stays = match node {
            Node::Input(_) | Node::Const(_) => true,
            Node::Call(call, _) => s.g.analysis.session.calls[call.index()].serial != 0,
            _ => false,
        };
        if stays {
            s.make(classes[i])?;
        }
    }
    let mut want = |s: &mut Schedule<'_, '_>, id: crate::dag::Id| -> Result<New> {
        let new = s.make(old(id))?;
        made.insert(id, new);
        Ok(new)
    };
    for item in &mut memory.items {
        if let Item::Bind { value, .. } = item {
            *value = want(&mut s, *value)?;
        }
    }
    let shared: Vec<usize> = storages_of(&finals);
    for (i, storage) in memory.storages.iter_mut().enumerate() {
        if storage.written && storage.owner != Owner::Fresh || shared.contains(&i) {
            storage.version = want(&mut s, storage.version)?;
        }
    }
    finals.iter_mut().try_for_each(|f| remap(f, &mut |id| want(&mut s, id)))?;
    let items = s.items(&memory.items);
    let Schedule { g, dag, .. } = s;
    memory.session = g.analysis.session;
    (memory.dag, memory.items) = (dag, items);
    Ok(Lifted { memory, outputs, finals })
}

fn storages_of(finals: &[Final]) -> Vec<usize> {
    finals
        .iter()
        .flat_map(|f| match f {
            Final::Memory(t) => vec![t.storage],
            Final::List(l) => storages_of(l),
            Final::Value(_) | Final::Plain(_) => Vec::new(),
        })
        .collect()
}

fn remap(f: &mut Final, to: &mut dyn FnMut(crate::dag::Id) -> Result<New>) -> Result<()> {
    match f {
        Final::Value(id) => *id = to(*id)?,
        Final::List(l) => l.iter_mut().try_for_each(|f| remap(f, to))?,
        Final::Memory(_) | Final::Plain(_) => {}
    }
    Ok(())
}

impl Schedule<'_, '_> {
    /// The node of a class, made after those it needs. Without recursion, since programs are long.
    fn make(&mut self, class: Id) -> Result<New> {
        let mut stack: Vec<Id> = vec![self.g.find(class)];
        while let Some(&class) = stack.last() {
            if let Some(Mark::Done(_)) = self.marks.get(&class) {
                stack.pop();
                continue;
            }
            let term = self
                .chosen
                .get(usize::from(class))
                .and_then(Option::as_ref)
                .ok_or(Reason::Internal("a value has no form without mutation"))?
                .clone();
            let needed: SmallVec<[Id; 4]> = term.children().iter().map(|c| self.g.find(*c)).collect();
            let is_value = |s: &Self, c: &Id| !matches!(s.g[*c].data, Data::Spec(_));
            let open: SmallVec<[Id; 4]> =
                needed.iter().rev().filter(|c| is_value(self, c) && !matches!(self.marks.get(c), Some(Mark::Done(_)))).copied().collect();
            if open.is_empty() {
                let new = self.add(class, &term)?;
                self.marks.insert(class, Mark::Done(new));
                stack.pop();
                continue;
            }
            if self.marks.insert(class, Mark::Open).is_some() && open.iter().any(|c| matches!(self.marks.get(c), Some(Mark::Open))) {
                return Err(Reason::Internal("the chosen values depend on each other").into());
            }
            stack.extend(open);
        }
        match self.marks.get(&self.g.find(class)) {
            Some(Mark::Done(new)) => Ok(*new),
            _ => Err(Reason::Internal("a value was not made").into()),
        }
    }

    fn done(&self, class: Id) -> Result<New> {
        match self.marks.get(&self.g.find(class)) {
            Some(Mark::Done(new)) => Ok(*new),
            _ => Err(Reason::Internal("a value is needed before it is made").into()),
        }
    }

    fn spec(&self, id: Id) -> Result<SpecId> {
        if let Data::Spec(s) = self.g[id].data { Ok(s) } else { Err(Reason::Internal("a view without a spec").into()) }
    }

    fn add(&mut self, class: Id, term: &Term) -> Result<New> {
        let node = match term {
            Term::Input(i) => Node::Input(*i),
            Term::Const(i) => Node::Const(*i),
            Term::View([s, b]) => Node::View(self.spec(*s)?, self.done(*b)?),
            Term::Scatter([s, b, x]) => Node::Scatter(self.spec(*s)?, self.done(*b)?, self.done(*x)?),
            Term::Call(call, of) => Node::Call(*call, of.iter().map(|c| self.done(*c)).collect::<Result<_>>()?),
            Term::Proj(i, [of]) => Node::Proj(*i, self.done(*of)?),
            Term::Spec(_) => return Err(Reason::Internal("a spec is no value").into()),
        };
        let kind = match &self.g[class].data {
            Data::Value(k) => *k,
            Data::Tuple(_) => Kind::Tuple,
            Data::Spec(_) => return Err(Reason::Internal("a spec is no value").into()),
        };
        let of = |s: &Self, c: &Id| s.done(*c).ok().map(|n| s.after[n.index()]);
        let mut after = term.children().iter().filter_map(|c| of(self, c)).max().unwrap_or(0);
        let origin = self.first.get(&class).copied();
        after = after.max(origin.filter(|_| !mutant(SOON)).map_or(0, |o| o.at)).max(self.symbols_after(&node));
        if let Node::Call(call, _) = &node
            && self.g.analysis.session.calls[call.index()].serial != 0
        {
            after = after.max(self.ordered);
            self.ordered = after;
        }
        self.after.push(after);
        Ok(self.dag.add(node, Origin { kind, at: after, loc: origin.and_then(|o| o.loc) }))
    }

    /// The statement after which every symbol of a node is bound.
    fn symbols_after(&self, node: &Node) -> u32 {
        if self.bound.is_empty() || mutant(SOON) {
            return 0;
        }
        let session = &self.g.analysis.session;
        let mut exprs: Vec<Expr> = Vec::new();
        match node {
            Node::View(s, _) | Node::Scatter(s, ..) => {
                let spec = &session.specs[s.index()];
                exprs.push(spec.offset());
                exprs.extend(spec.dims().iter().flat_map(|d| [d.size, d.stride]));
            }
            Node::Call(call, _) => {
                let t: &Template = &session.calls[call.index()];
                t.args.iter().chain(t.kwargs.iter().map(|(_, s)| s)).for_each(|s| collect(s, &mut exprs));
                exprs.extend(t.layouts.iter().flatten().flat_map(|l| l.iter().copied()));
            }
            Node::Input(_) | Node::Const(_) | Node::Proj(..) => {}
        }
        let symbols = exprs.into_iter().flat_map(|e| session.symbols.free_symbols(e));
        symbols.filter_map(|s| self.bound.get(&s)).copied().max().unwrap_or(0)
    }

    /// Nodes by the statement they come after, then in the order they were made; binds and assertions behind those of their statement.
    fn items(&self, old: &[Item]) -> Vec<Item> {
        let mut order: Vec<u32> = (0..self.dag.nodes.len() as u32).collect();
        order.sort_by_key(|&i| self.after[i as usize]);
        let mut order = order.into_iter().peekable();
        let mut items = Vec::with_capacity(old.len());
        let listed = |n: &Node| !matches!(n, Node::Input(_) | Node::Const(_) | Node::Proj(..));
        let mut until = |items: &mut Vec<Item>, at: u32| {
            while let Some(i) = order.next_if(|&i| self.after[i as usize] <= at) {
                if listed(&self.dag.nodes[i as usize]) {
                    items.push(Item::Node(New(i)));
                }
            }
        };
        for item in old {
            match *item {
                Item::Node(_) => {}
                Item::Bind { value, at, .. } => {
                    until(&mut items, self.after[value.index()].max(at.saturating_sub(1)));
                    items.push(*item);
                }
                Item::Assert { .. } => items.push(*item),
            }
        }
        until(&mut items, u32::MAX);
        items
    }
}

fn collect(slot: &Slot, exprs: &mut Vec<Expr>) {
    match slot {
        Slot::Int(e) => exprs.push(*e),
        Slot::List(l) => l.iter().for_each(|s| collect(s, exprs)),
        _ => {}
    }
}
