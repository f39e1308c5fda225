//! The value graph: a functional program as lifting, the e-graph and emission exchange it.
//!
//! The value graph is an SSA graph in a flat array. A [`Node`] refers to operands by index, and to
//! views, metadata and calls by the indices of an [`Interner`]. Indices are assigned in program
//! order, so that nothing depends on addresses or hashes, and equal payloads have equal indices, so
//! that two nodes can be compared without following pointers (hash-consing).
//!
//! Values have sizes, a dtype and a device, and no strides: a view's offset and strides count the
//! elements of its base in row-major order. For example, column 1 of an `f32[3, 4]` value is the
//! view with sizes `[3]`, strides `[4]` and offset 1, however the tensor is laid out in memory.
//! [`bufferize`](crate::bufferize) chooses layouts.

use crate::functionalize::view_queries::QueryCache;
use indexmap::IndexSet;
use maquette_ir::graph::{FloatBits, NodeId};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::{Dim, ViewSpec};
use maquette_ir::{DType, Device, Effect, Layout, MemoryFormat};
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
    /// A node of a [`ValueGraph`], which is also its value.
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

/// The metadata of a tensor value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Meta {
    pub dtype: DType,
    pub device: Device,
    pub layout: Layout,
    pub sizes: SmallVec<[Expr; 4]>,
}

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Tensor(MetaId),
    Int(Expr),
    Float,
    Bool,
    Str,
    /// The results of a call that has none or several, or that is serial; projections select
    /// them.
    Tuple,
}

/// An argument of a call, in which a value is replaced by its position among the call's operands.
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

/// A result as the operator's schema declares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResultKind {
    Value(Kind),
    List(Box<[Kind]>),
    /// An optional result that the call does not return.
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

/// Strides for each of several values; `None` for a value that is row-major or no tensor.
pub(crate) type Layouts = Box<[Option<Box<[Expr]>>]>;

/// A call without its operands. Calls with equal keys on equal operands are one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    pub op: Name,
    pub args: Box<[CallArg]>,
    pub kwargs: Box<[(Name, CallArg)]>,
    /// The operator mutates. It is called on copies, through `ir::call`; the new values of the
    /// copies follow the results that alias no operand.
    pub mutates: bool,
    /// The effect of the call.
    pub effect: Option<Effect<Name>>,
    /// The call's results are copies, even where its schema declares views.
    pub copies: bool,
    pub results: Box<[ResultKind]>,
    /// The strides of operands that are not row-major; empty if the operator does not observe
    /// strides.
    pub layouts: Layouts,
    /// For each returned value, in order: where a view begins that the fake kernel promised,
    /// counted from the first element of the viewed operand. Empty if nothing was promised.
    pub offsets: Box<[Option<Expr>]>,
    /// Unique for a *serial* call, which must not be merged with an equal one: an effect, a random
    /// number, a runtime check, uninitialized memory. 0 for all other calls.
    pub serial: u32,
}

impl CallKey {
    /// The kind of a node with this key: its one value, or a tuple. A serial call is always a
    /// tuple: rules may find its values equal to others, but never the tuple, so the call itself
    /// stays.
    pub fn kind(&self) -> Kind {
        let mut kinds = self.kinds();
        match (kinds.next(), kinds.next()) {
            (Some(one), None) if self.serial == 0 => one,
            _ => Kind::Tuple,
        }
    }

    /// The kinds of all values that the call returns, in order.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.results.iter().flat_map(|r| r.kinds().iter().copied())
    }
}

/// A node: a value, or a tuple of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// An input of the graph, by position.
    Input(u32),
    /// A constant of the graph, by position.
    Const(u32),
    /// A view of a base.
    View(SpecId, Id),
    /// `Scatter(spec, base, source)`: `base`, with the elements that `spec` names replaced by those
    /// of `source`.
    Scatter(SpecId, Id, Id),
    /// A call: its one value, or the tuple of its values.
    Call(CallId, SmallVec<[Id; 4]>),
    /// One value of a tuple.
    Proj(u32, Id),
}

/// The tables of interned payloads, and the symbols that they mention.
#[derive(Clone, Debug)]
pub(crate) struct Interner {
    pub symbols: SymTable,
    pub specs: IndexSet<ViewSpec, FxBuildHasher>,
    pub metas: IndexSet<Meta, FxBuildHasher>,
    pub calls: IndexSet<CallKey, FxBuildHasher>,
    /// For each call: the strides that its results have in eager execution, if known. They only
    /// guide buffer plans; any strides would be correct.
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

    /// Interns a view.
    pub fn spec(&mut self, spec: ViewSpec) -> SpecId {
        SpecId(self.specs.insert_full(spec).0 as u32)
    }

    /// Interns metadata. Sizes are simplified first, so that sizes known to be equal give equal
    /// metadata.
    pub fn meta(&mut self, mut meta: Meta) -> MetaId {
        meta.sizes
            .iter_mut()
            .filter(|e| matches!(e, Expr::Id(_)))
            .for_each(|e| *e = self.symbols.simplify(*e));
        MetaId(self.metas.insert_full(meta).0 as u32)
    }

    /// Interns a call. Of several calls with one key, the first determines the strides.
    pub fn call(&mut self, key: CallKey, strides: Option<Layouts>) -> CallId {
        let (at, is_new) = self.calls.insert_full(key);
        if is_new {
            self.result_strides.push(strides);
        }
        CallId(at as u32)
    }

    /// Interns a string.
    pub fn name(&mut self, text: &str) -> Name {
        match self.names.get_index_of(text) {
            Some(i) => Name(i as u32),
            None => Name(self.names.insert_full(text.into()).0 as u32),
        }
    }

    pub fn str(&self, name: Name) -> &str {
        &self.names[name.index()]
    }

    /// A view as text, for error messages.
    pub fn text(&self, spec: &ViewSpec) -> String {
        let list = |of: &dyn Fn(&Dim) -> Expr| {
            let texts: Vec<String> =
                spec.dims().iter().map(|d| self.symbols.display(of(d)).to_string()).collect();
            texts.join(", ")
        };
        let offset = self.symbols.display(spec.offset());
        format!("sizes [{}], strides [{}], offset {offset}", list(&|d| d.size), list(&|d| d.stride))
    }

    /// The metadata with other sizes.
    pub fn resized(&mut self, of: MetaId, sizes: SmallVec<[Expr; 4]>) -> MetaId {
        let meta = Meta { sizes, ..self.metas[of.index()].clone() };
        self.meta(meta)
    }
}

/// A node's type and origin, which do not affect its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeOrigin {
    pub kind: Kind,
    /// The statement of the original program that the node comes from.
    pub statement: u32,
    /// The node of the original program that errors of this node name.
    pub call: Option<NodeId>,
}

/// The nodes of a program in topological order: operands come before their users.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueGraph {
    pub nodes: Vec<Node>,
    pub origins: Vec<NodeOrigin>,
}

impl ValueGraph {
    pub fn with_capacity(nodes: usize) -> ValueGraph {
        ValueGraph { nodes: Vec::with_capacity(nodes), origins: Vec::with_capacity(nodes) }
    }

    /// Appends a node, whose operands must precede it.
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
