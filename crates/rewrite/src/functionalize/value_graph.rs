//! A functional program as a value graph: what the passes work on between two
//! [`Graph`](maquette_ir::graph::Graph)s.
//!
//! Values have sizes, a dtype and a device, and no layout: a view's offset and strides count the
//! elements of the value it is of in row-major order. Payloads are indices into the tables of a
//! [`Interner`], given out in program order, so that nothing depends on addresses or hashes.

use crate::functionalize::view_queries::QueryCache;
use indexmap::IndexSet;
use maquette_ir::graph::FloatBits;
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::{Dim, ViewSpec};
use maquette_ir::{DType, Device, Layout, Loc, MemoryFormat};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids!(
    /// A node of a [`ValueGraph`].
    Id,
    /// An interned [`ViewSpec`].
    SpecId,
    /// An interned [`Meta`].
    MetaId,
    /// An interned [`CallKey`].
    CallId,
    /// An interned string.
    Name,
);

/// What is known of a tensor value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Meta {
    pub dtype: DType,
    pub device: Device,
    pub layout: Layout,
    pub sizes: SmallVec<[Expr; 4]>,
}

/// What a node gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Tensor(MetaId),
    Int(Expr),
    Float,
    Bool,
    Str,
    /// Several values, which projections take apart; or none.
    Tuple,
}

/// An argument of a call, its values replaced by the positions of the call's operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallArg {
    Operand(u32),
    None,
    Int(Expr),
    Float(FloatBits),
    Bool(bool),
    Str(Name),
    DType(DType),
    Device(Device),
    Layout(Layout),
    MemoryFormat(MemoryFormat),
    List(Box<[CallArg]>),
}

/// One of the results that an operator's schema declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResultKind {
    Value(Kind),
    List(Box<[Kind]>),
    Absent,
}

impl ResultKind {
    pub fn kinds(&self) -> &[Kind] {
        match self {
            ResultKind::Value(k) => std::slice::from_ref(k),
            ResultKind::List(l) => l,
            ResultKind::Absent => &[],
        }
    }
}

/// The strides of several values, where they are not row-major.
pub(crate) type Layouts = Box<[Option<Box<[Expr]>>]>;

/// A call without its operands. Calls of equal keys on equal operands are one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    pub op: Name,
    pub args: Box<[CallArg]>,
    pub kwargs: Box<[(Name, CallArg)]>,
    /// The operator mutates: it is called on copies, whose contents afterwards follow the results
    /// that are not they themselves.
    pub mutates: bool,
    pub effect: bool,
    pub copies: bool,
    pub results: Box<[ResultKind]>,
    /// The strides of operands, where they are not row-major; none if the operator does not look at
    /// them.
    pub layouts: Layouts,
    /// Tells calls apart that must not be merged: effects, random numbers, memory of any contents.
    /// 0 where they may be.
    pub serial: u32,
}

impl CallKey {
    /// What a node of it is: its one value, or a tuple. A call that must not be merged with others
    /// is a tuple in any case, since values may be found equal, and tuples are not.
    pub fn kind(&self) -> Kind {
        let mut kinds = self.kinds();
        match (kinds.next(), kinds.next()) {
            (Some(one), None) if self.serial == 0 => one,
            _ => Kind::Tuple,
        }
    }

    /// Every value it gives, in order.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.results.iter().flat_map(|r| r.kinds().iter().copied())
    }
}

/// A value, or a tuple of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// An input of the graph.
    Input(u32),
    /// A constant of the graph.
    Const(u32),
    /// A view of a value.
    View(SpecId, Id),
    /// A value with a view of it replaced by another value of the view's sizes.
    Scatter(SpecId, Id, Id),
    /// A call: its one value, or the tuple of its values.
    Call(CallId, SmallVec<[Id; 4]>),
    /// A value of a tuple.
    Proj(u32, Id),
}

/// The tables that nodes refer to.
#[derive(Clone, Debug)]
pub(crate) struct Interner {
    pub symbols: SymTable,
    pub specs: IndexSet<ViewSpec, FxBuildHasher>,
    pub metas: IndexSet<Meta, FxBuildHasher>,
    pub calls: IndexSet<CallKey, FxBuildHasher>,
    /// By call: the strides that the values it gives have eagerly, if that is known. They guide
    /// plans only: any would be right.
    pub result_strides: Vec<Option<Layouts>>,
    pub names: IndexSet<Box<str>, FxBuildHasher>,
    pub queries: QueryCache,
}

impl Interner {
    pub fn new(symbols: SymTable) -> Interner {
        let (specs, metas, calls, names) = Default::default();
        Interner {
            symbols,
            specs,
            metas,
            calls,
            result_strides: Vec::new(),
            names,
            queries: QueryCache::default(),
        }
    }

    pub fn spec(&mut self, spec: ViewSpec) -> SpecId {
        SpecId(self.specs.insert_full(spec).0 as u32)
    }

    /// Sizes are written in one way, as far as is known: equal ones make equal metadata.
    pub fn meta(&mut self, mut meta: Meta) -> MetaId {
        meta.sizes
            .iter_mut()
            .filter(|e| matches!(e, Expr::Id(_)))
            .for_each(|e| *e = self.symbols.simplify(*e));
        MetaId(self.metas.insert_full(meta).0 as u32)
    }

    /// The strides are those of the first call of a key.
    pub fn call(&mut self, key: CallKey, strides: Option<Layouts>) -> CallId {
        let (at, is_new) = self.calls.insert_full(key);
        if is_new {
            self.result_strides.push(strides);
        }
        CallId(at as u32)
    }

    pub fn name(&mut self, text: &str) -> Name {
        match self.names.get_index_of(text) {
            Some(i) => Name(i as u32),
            None => Name(self.names.insert_full(text.into()).0 as u32),
        }
    }

    pub fn str(&self, name: Name) -> &str {
        &self.names[name.index()]
    }

    /// A place as text.
    pub fn text(&self, spec: &ViewSpec) -> String {
        let list = |of: &dyn Fn(&Dim) -> Expr| {
            let texts: Vec<String> =
                spec.dims().iter().map(|d| self.symbols.display(of(d)).to_string()).collect();
            texts.join(", ")
        };
        let offset = self.symbols.display(spec.offset());
        format!("sizes [{}], strides [{}], offset {offset}", list(&|d| d.size), list(&|d| d.stride))
    }

    /// A value of these sizes, else like `of`.
    pub fn resized(&mut self, of: MetaId, sizes: SmallVec<[Expr; 4]>) -> MetaId {
        let meta = Meta { sizes, ..self.metas[of.index()].clone() };
        self.meta(meta)
    }
}

/// What a node is beside its meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeOrigin {
    pub kind: Kind,
    /// The statement of the original graph that it comes from.
    pub at: u32,
    pub loc: Option<Loc>,
}

/// Values in an order in which each comes after those it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueGraph {
    pub nodes: Vec<Node>,
    pub origins: Vec<NodeOrigin>,
}

impl ValueGraph {
    pub fn with_capacity(nodes: usize) -> ValueGraph {
        ValueGraph { nodes: Vec::with_capacity(nodes), origins: Vec::with_capacity(nodes) }
    }

    pub fn add(&mut self, node: Node, origin: NodeOrigin) -> Id {
        self.nodes.push(node);
        self.origins.push(origin);
        Id(self.nodes.len() as u32 - 1)
    }

    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id.index()]
    }

    pub fn kind(&self, id: Id) -> Kind {
        self.origins[id.index()].kind
    }

    /// The metadata of a node that is a tensor.
    pub fn meta(&self, id: Id) -> Option<MetaId> {
        if let Kind::Tensor(m) = self.kind(id) { Some(m) } else { None }
    }
}
