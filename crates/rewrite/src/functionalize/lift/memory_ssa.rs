//! Memory SSA: the state of lifting.
//!
//! Each storage has a current *version*, an SSA value with all elements that the program accesses.
//! A write makes a new version, as a `MemoryDef` does in LLVM's MemorySSA; a read is a view of the
//! current version. A tensor of the program is a [`Handle`]: a storage and a view of its version.
//!
//! With `forward_stores`, a store to a part of a storage is first kept in [`LastStores`], and a
//! version that includes it is made only if something observes it. Loads of stored elements then
//! see the stored value itself.

use super::last_stores::{LastStores, PendingStore};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{
    Id, Interner, Kind, MetaId, Name, Node, NodeOrigin, SpecId, ValueGraph,
};
use maquette_ir::Loc;
use maquette_ir::copy_cost::CopyCost;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::SharedMemory;
use maquette_ir::graph::{Arg, BindSource, NodeId, TypeId, ValueId};
use maquette_ir::sym::{BoolExpr, SymbolId};
use maquette_ir::view::TriBool;
use rustc_hash::FxHashMap;

/// The origin of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageOrigin {
    Input(u32),
    Const(u32),
    /// Memory that several inputs share.
    Shared(u32),
    Fresh,
}

/// A storage, as the versions that it has had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub origin: StorageOrigin,
    /// The value that it was created for; none for memory that inputs share.
    pub made: Option<ValueId>,
    /// The current version, without pending stores (see [`MemorySsa::materialize`]). Its elements
    /// are those of `region`, in that order.
    pub version: Id,
    /// The views that turn the value as it was created into these elements, in order: one drops
    /// repetitions, one puts the elements in memory order. They are applied on first use, since
    /// their sizes may be bound only after the value is created.
    pub pending_views: [Option<(SpecId, MetaId)>; 2],
    /// The elements of the version in memory.
    pub region: SpecId,
    pub base: MetaId,
    /// The first statement that writes to the storage.
    pub written: Option<u32>,
}

/// A tensor of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    pub storage: usize,
    /// Its elements, as a view of the storage's version.
    pub spec: SpecId,
    pub meta: MetaId,
    pub ty: TypeId,
}

/// A statement of the lifted program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LiftedStmt {
    Node(Id),
    /// Binds a symbol. `statement` is the position in the original program.
    Bind {
        symbol: SymbolId,
        value: Id,
        source: BindSource,
        statement: u32,
    },
    /// Checks a condition. `statement` is the position in the original program.
    Assert {
        cond: BoolExpr,
        message: Option<Name>,
        statement: u32,
    },
}

/// An output of the program, by reference.
#[derive(Clone, Debug)]
pub(crate) enum OutputRef {
    Tensor(Handle),
    Number(Id),
    Plain(Arg),
    List(Vec<OutputRef>),
}

/// An output of the program, as its final value.
#[derive(Clone, Debug)]
pub(crate) enum OutputValue {
    Value(Id),
    /// A view of memory that the caller owns, or that several outputs share.
    Storage(Handle),
    Plain(Arg),
    List(Vec<OutputValue>),
}

/// The lifted program so far: the version of every storage, and every value in program order.
#[derive(Clone)]
pub(crate) struct MemorySsa {
    pub interner: Interner,
    pub value_graph: ValueGraph,
    pub stmts: Vec<LiftedStmt>,
    pub storages: Vec<Storage>,
    /// Memories that inputs share.
    pub shared: Vec<SharedMemory>,
    /// For each storage with pending stores: these stores. Empty without `forward_stores`.
    pub last_stores: FxHashMap<usize, LastStores>,
    forward_stores: bool,
    /// What eager execution of the program writes and copies.
    pub eager: CopyCost,
    /// The program uses offsets from the start of an input's storage.
    pub absolute_offsets: bool,
    /// The operators whose results became views, each with the line of its first call.
    pub viewers: Vec<(String, Option<Loc>)>,
    /// The statement that is being lifted, and the last call.
    pub statement: u32,
    pub call: Option<NodeId>,
}

impl MemorySsa {
    /// The state before a program of about this many nodes. With `forward_stores`, loads see
    /// pending stores, and stores that nothing observes are dropped.
    pub fn new(interner: Interner, forward_stores: bool, nodes: usize) -> MemorySsa {
        MemorySsa {
            interner,
            value_graph: ValueGraph::with_capacity(nodes),
            stmts: Vec::with_capacity(nodes),
            storages: Vec::new(),
            shared: Vec::new(),
            last_stores: FxHashMap::default(),
            forward_stores,
            eager: CopyCost::default(),
            absolute_offsets: false,
            viewers: Vec::new(),
            statement: 0,
            call: None,
        }
    }

    /// Appends a node at the current statement.
    pub fn add(&mut self, node: Node, kind: Kind) -> Id {
        self.add_of(node, NodeOrigin { kind, statement: self.statement, call: self.call })
    }

    /// Appends a node. Inputs, constants and projections are no statements.
    fn add_of(&mut self, node: Node, origin: NodeOrigin) -> Id {
        let listed = !matches!(node, Node::Input(_) | Node::Const(_) | Node::Proj(..));
        let id = self.value_graph.add(node, origin);
        if listed {
            self.stmts.push(LiftedStmt::Node(id));
        }
        id
    }

    /// Whether a tensor is all of its storage's version, in order.
    pub fn is_whole(&mut self, t: Handle) -> bool {
        self.storages[t.storage].base == t.meta && self.interner.is_whole(t.spec, t.meta)
    }

    /// The version of a storage without its pending stores.
    fn version_before_stores(&mut self, storage: usize) -> Id {
        let Storage { mut version, pending_views, .. } = self.storages[storage];
        for (spec, meta) in pending_views.into_iter().flatten() {
            version = self.add(Node::View(spec, version), Kind::Tensor(meta));
        }
        let storage = &mut self.storages[storage];
        (storage.version, storage.pending_views) = (version, [None; 2]);
        version
    }

    /// The version of a storage with all pending stores, which are no longer pending.
    pub fn materialize(&mut self, storage: usize) -> Id {
        let version = match self.last_stores.get(&storage).map(|last| last.stores.len() - 1) {
            Some(last) => self.version_after_store(storage, last),
            None => self.version_before_stores(storage),
        };
        self.last_stores.remove(&storage);
        self.storages[storage].version = version;
        version
    }

    /// The version of a storage after a pending store, except for elements that later stores
    /// overwrite.
    fn version_after_store(&mut self, storage: usize, last: usize) -> Id {
        let (mut version, base) =
            (self.version_before_stores(storage), self.storages[storage].base);
        let Some(mut last_stores) = self.last_stores.remove(&storage) else { return version };
        let known = last_stores.stores[..=last].iter().rposition(|s| s.version.is_some());
        version = known.and_then(|i| last_stores.stores[i].version).unwrap_or(version);
        for store in &mut last_stores.stores[known.map_or(0, |i| i + 1)..=last] {
            if !store.dead {
                let PendingStore { statement, call, .. } = *store;
                let origin = NodeOrigin { kind: Kind::Tensor(base), statement, call };
                version = self.add_of(Node::Scatter(store.spec, version, store.value), origin);
            }
            store.version = Some(version);
        }
        self.last_stores.insert(storage, last_stores);
        version
    }

    /// The current value of a tensor.
    pub fn read(&mut self, t: Handle) -> Id {
        let last = self
            .last_stores
            .get(&t.storage)
            .map(|stores| (stores, stores.last_aliasing_store(&mut self.interner, t.spec)));
        let (spec, from) = match last {
            Some((last_stores, Some(i))) => {
                let PendingStore { spec, value, .. } = last_stores.stores[i];
                if spec == t.spec {
                    return value;
                }
                match self.interner.relative(t.spec, spec) {
                    Some(inner) => (inner, value),
                    None => (t.spec, self.version_after_store(t.storage, i)),
                }
            }
            Some((_, None)) | None => (t.spec, self.version_before_stores(t.storage)),
        };
        let whole =
            self.value_graph.meta(from) == Some(t.meta) && self.interner.is_whole(spec, t.meta);
        if whole { from } else { self.add(Node::View(spec, from), Kind::Tensor(t.meta)) }
    }

    /// Gives a tensor a new value.
    ///
    /// # Errors
    /// The tensor provably names an element twice (PyTorch refuses to write to expanded tensors).
    pub fn write(&mut self, t: Handle, value: Id, op: &str) -> Result<()> {
        if self.interner.injective(t.spec) == TriBool::No {
            let viewed = self.interner.text(&self.interner.specs[t.spec.index()]);
            return Err(Reason::WriteToOverlappingView { op: op.into(), viewed }.into());
        }
        let (version, base) =
            (self.version_before_stores(t.storage), self.storages[t.storage].base);
        let whole = self.is_whole(t);
        if whole || !fault_injected(Fault::PartialInputWriteUnreported) {
            self.storages[t.storage].written.get_or_insert(self.statement);
        }
        if whole {
            self.last_stores.remove(&t.storage);
            self.storages[t.storage].version = value;
        } else if self.forward_stores {
            let (statement, call) = (self.statement, self.call);
            self.last_stores.entry(t.storage).or_default().push(
                &mut self.interner,
                t.spec,
                value,
                statement,
                call,
            );
        } else {
            self.storages[t.storage].version =
                self.add(Node::Scatter(t.spec, version, value), Kind::Tensor(base));
        }
        Ok(())
    }

    /// Materializes external storages that were written.
    pub fn flush_external_stores(&mut self) {
        let written = |s: &Storage| s.written.is_some() && s.origin != StorageOrigin::Fresh;
        let storages: Vec<usize> =
            self.storages.iter().enumerate().filter(|(_, s)| written(s)).map(|(i, _)| i).collect();
        for i in storages {
            self.materialize(i);
        }
    }

    /// The final values of the outputs. An output is a value if its memory is its own; it is a view
    /// of memory if the caller or another output shares the memory, or if its type repeats
    /// elements.
    pub fn output_values(
        &mut self,
        outputs: &[OutputRef],
        repeats: &dyn Fn(TypeId) -> bool,
    ) -> Vec<OutputValue> {
        fn count(o: &OutputRef, seen: &mut FxHashMap<usize, usize>) {
            match o {
                OutputRef::Tensor(t) => *seen.entry(t.storage).or_default() += 1,
                OutputRef::List(l) => l.iter().for_each(|o| count(o, seen)),
                OutputRef::Number(_) | OutputRef::Plain(_) => {}
            }
        }
        let mut seen = FxHashMap::default();
        outputs.iter().for_each(|o| count(o, &mut seen));
        outputs.iter().map(|o| self.output_value(o, &seen, repeats)).collect()
    }

    /// The final value of one output; `seen` counts the outputs of each storage.
    fn output_value(
        &mut self,
        o: &OutputRef,
        seen: &FxHashMap<usize, usize>,
        repeats: &dyn Fn(TypeId) -> bool,
    ) -> OutputValue {
        let alone = |t: &Handle| {
            seen.get(&t.storage) == Some(&1) || fault_injected(Fault::SharedOutputsSplit)
        };
        match o {
            OutputRef::Tensor(t)
                if self.storages[t.storage].origin != StorageOrigin::Fresh
                    || !alone(t)
                    || repeats(t.ty) =>
            {
                self.materialize(t.storage);
                OutputValue::Storage(*t)
            }
            OutputRef::Tensor(t) => OutputValue::Value(self.read(*t)),
            OutputRef::Number(id) => OutputValue::Value(*id),
            OutputRef::Plain(arg) => OutputValue::Plain(*arg),
            OutputRef::List(l) => {
                OutputValue::List(l.iter().map(|o| self.output_value(o, seen, repeats)).collect())
            }
        }
    }
}
