//! The values of a program's memory, as lifting makes them.

use crate::dag::{Dag, Id, Kind, MetaId, Name, Node, Origin, Session, SpecId};
use crate::error::{Reason, Result};
use crate::functional::SharedMemory;
use crate::writers::{Write, Writers};
use maquette_ir::Loc;
use maquette_ir::graph::{Arg, BindSource, TypeId, ValueId};
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::sym::{BoolExpr, SymbolId};
use maquette_ir::copy_cost::CopyCost;
use maquette_ir::view::TriBool;
use rustc_hash::FxHashMap;

/// Where a storage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Input(u32),
    Const(u32),
    /// Memory that inputs share.
    Memory(u32),
    Fresh,
}

/// Memory, as the values it has had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub owner: Owner,
    /// What it was made for; none where inputs share it.
    pub made: Option<ValueId>,
    /// The value now. Its elements are those that `place` names, in that order; see [`Memory::base`].
    pub version: Id,
    /// Its elements in that order, where the version is still the value as it was made. Sizes of that view may be bound after it.
    pub pending: Option<SpecId>,
    /// The version's elements in memory.
    pub place: SpecId,
    pub base: MetaId,
    /// The statement that writes to it first.
    pub written: Option<u32>,
}

/// A tensor of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    pub storage: usize,
    /// Its elements among those of the storage's version.
    pub spec: SpecId,
    pub meta: MetaId,
    pub ty: TypeId,
}

/// A statement of the functional program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Node(Id),
    /// At a statement of the original program.
    Bind {
        symbol: SymbolId,
        value: Id,
        source: BindSource,
        at: u32,
    },
    Assert {
        cond: BoolExpr,
        message: Option<Name>,
        at: u32,
    },
}

/// An output of the program.
#[derive(Clone, Debug)]
pub(crate) enum Leaving {
    Tensor(Handle),
    Number(Id),
    Plain(Arg),
    List(Vec<Leaving>),
}

/// An output's value in the end.
#[derive(Clone, Debug)]
pub(crate) enum Final {
    Value(Id),
    /// Memory that the caller has, or that several outputs see.
    Memory(Handle),
    Plain(Arg),
    List(Vec<Final>),
}

/// The program so far: every storage with its version, every value in the order of the program.
#[derive(Clone)]
pub(crate) struct Memory {
    pub session: Session,
    pub dag: Dag,
    pub items: Vec<Item>,
    pub storages: Vec<Storage>,
    /// Memory that inputs share.
    pub shared: Vec<SharedMemory>,
    /// By storage: its writes since its version. Only if loads are to see them.
    pub writers: FxHashMap<usize, Writers>,
    forwards: bool,
    /// What the program writes as it is.
    pub eager: CopyCost,
    /// Places were asked for by offsets from the start of inputs' storages.
    pub absolute: bool,
    /// The statement that is being lifted, and its line.
    pub at: u32,
    pub loc: Option<Loc>,
}

impl Memory {
    /// Of a program of about so many nodes. Loads see the stores before them, if `forwards`, and stores that nobody sees are none.
    pub fn new(session: Session, forwards: bool, nodes: usize) -> Memory {
        Memory {
            session,
            dag: Dag::with_capacity(nodes),
            items: Vec::with_capacity(nodes),
            storages: Vec::new(),
            shared: Vec::new(),
            writers: FxHashMap::default(),
            forwards,
            eager: CopyCost::default(),
            absolute: false,
            at: 0,
            loc: None,
        }
    }

    pub fn add(&mut self, node: Node, kind: Kind) -> Id {
        self.add_of(node, Origin { kind, at: self.at, loc: self.loc })
    }

    fn add_of(&mut self, node: Node, origin: Origin) -> Id {
        let listed = !matches!(node, Node::Input(_) | Node::Const(_) | Node::Proj(..));
        let id = self.dag.add(node, origin);
        if listed {
            self.items.push(Item::Node(id));
        }
        id
    }

    /// Whether a tensor is its storage's version as it is.
    pub fn is_whole(&mut self, t: Handle) -> bool {
        self.storages[t.storage].base == t.meta && self.session.is_whole(t.spec, t.meta)
    }

    /// The value of a storage as it was before the writes that are kept apart.
    fn before(&mut self, storage: usize) -> Id {
        let Storage { version, pending, base, .. } = self.storages[storage];
        let Some(there) = pending else { return version };
        let version = self.add(Node::View(there, version), Kind::Tensor(base));
        (self.storages[storage].version, self.storages[storage].pending) = (version, None);
        version
    }

    /// The value of a storage now.
    pub fn base(&mut self, storage: usize) -> Id {
        let version = match self.writers.get(&storage).map(|w| w.writes.len() - 1) {
            Some(last) => self.after(storage, last),
            None => self.before(storage),
        };
        self.writers.remove(&storage);
        self.storages[storage].version = version;
        version
    }

    /// The value of a storage after a write, where what later writes left nothing of may be missing.
    fn after(&mut self, storage: usize, last: usize) -> Id {
        let (mut version, base) = (self.before(storage), self.storages[storage].base);
        let Some(mut writers) = self.writers.remove(&storage) else { return version };
        let made = writers.writes[..=last].iter().rposition(|w| w.version.is_some());
        version = made.and_then(|i| writers.writes[i].version).unwrap_or(version);
        for write in &mut writers.writes[made.map_or(0, |i| i + 1)..=last] {
            if !write.dead {
                let origin = Origin { kind: Kind::Tensor(base), at: write.at, loc: write.loc };
                version = self.add_of(Node::Scatter(write.spec, version, write.value), origin);
            }
            write.version = Some(version);
        }
        self.writers.insert(storage, writers);
        version
    }

    /// The value of a tensor now.
    pub fn read(&mut self, t: Handle) -> Id {
        let seen = self.writers.get(&t.storage).map(|w| (w, w.last(&mut self.session, t.spec)));
        let (spec, from) = match seen {
            Some((writers, Some(i))) => {
                let Write { spec, value, .. } = writers.writes[i];
                if spec == t.spec {
                    return value;
                }
                match self.session.relative(t.spec, spec) {
                    Some(inner) => (inner, value),
                    None => (t.spec, self.after(t.storage, i)),
                }
            }
            Some((_, None)) | None => (t.spec, self.before(t.storage)),
        };
        let whole = self.dag.meta(from) == Some(t.meta) && self.session.is_whole(spec, t.meta);
        if whole { from } else { self.add(Node::View(spec, from), Kind::Tensor(t.meta)) }
    }

    /// Gives a tensor a new value.
    pub fn write(&mut self, t: Handle, value: Id, op: &str) -> Result<()> {
        if self.session.injective(t.spec) == TriBool::No {
            let viewed = self.session.text(&self.session.specs[t.spec.index()]);
            return Err(Reason::WriteToOverlappingView { op: op.into(), viewed }.into());
        }
        let (version, base) = (self.before(t.storage), self.storages[t.storage].base);
        let whole = self.is_whole(t);
        if whole || !fault_injected("lift: a part of an input is written and not told") {
            self.storages[t.storage].written.get_or_insert(self.at);
        }
        if whole {
            self.writers.remove(&t.storage);
            self.storages[t.storage].version = value;
        } else if self.forwards {
            let (at, loc) = (self.at, self.loc);
            self.writers.entry(t.storage).or_default().push(&mut self.session, t.spec, value, at, loc);
        } else {
            self.storages[t.storage].version = self.add(Node::Scatter(t.spec, version, value), Kind::Tensor(base));
        }
        Ok(())
    }

    /// Stores what was written to memory from outside.
    pub fn settle(&mut self) {
        let written = |s: &Storage| s.written.is_some() && s.owner != Owner::Fresh;
        let storages: Vec<usize> = self.storages.iter().enumerate().filter(|(_, s)| written(s)).map(|(i, _)| i).collect();
        for i in storages {
            self.base(i);
        }
    }

    /// Reads the outputs that are memory of their own. Those of types that `repeats` elements are views of it.
    pub fn finals(&mut self, outputs: &[Leaving], repeats: &dyn Fn(TypeId) -> bool) -> Vec<Final> {
        fn count(o: &Leaving, seen: &mut FxHashMap<usize, usize>) {
            match o {
                Leaving::Tensor(t) => *seen.entry(t.storage).or_default() += 1,
                Leaving::List(l) => l.iter().for_each(|o| count(o, seen)),
                Leaving::Number(_) | Leaving::Plain(_) => {}
            }
        }
        let mut seen = FxHashMap::default();
        outputs.iter().for_each(|o| count(o, &mut seen));
        outputs.iter().map(|o| self.final_of(o, &seen, repeats)).collect()
    }

    fn final_of(&mut self, o: &Leaving, seen: &FxHashMap<usize, usize>, repeats: &dyn Fn(TypeId) -> bool) -> Final {
        let alone = |t: &Handle| seen.get(&t.storage) == Some(&1) || fault_injected("lift: outputs of one memory in several");
        match o {
            Leaving::Tensor(t) if self.storages[t.storage].owner != Owner::Fresh || !alone(t) || repeats(t.ty) => {
                self.base(t.storage);
                Final::Memory(*t)
            }
            Leaving::Tensor(t) => Final::Value(self.read(*t)),
            Leaving::Number(id) => Final::Value(*id),
            Leaving::Plain(arg) => Final::Plain(*arg),
            Leaving::List(l) => Final::List(l.iter().map(|o| self.final_of(o, seen, repeats)).collect()),
        }
    }
}
