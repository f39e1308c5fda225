//! A functional program as a value graph: what the passes work on between two [`Graph`](maquette_ir::graph::Graph)s.
//!
//! Values have sizes, a dtype and a device, and no layout: a view's offset and strides count the elements of the value it is of in row-major
//! order. Payloads are indices into the tables of a [`Session`], given out in program order, so that nothing depends on addresses or hashes.

use crate::algebra::Known;
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
    /// A node of a [`Dag`].
    Id,
    /// An interned [`ViewSpec`].
    SpecId,
    /// An interned [`Meta`].
    MetaId,
    /// An interned [`Template`].
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
pub(crate) enum Slot {
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
    List(Box<[Slot]>),
}

/// One of the results that an operator's schema declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Given {
    Value(Kind),
    List(Box<[Kind]>),
    Absent,
}

impl Given {
    pub fn kinds(&self) -> &[Kind] {
        match self {
            Given::Value(k) => std::slice::from_ref(k),
            Given::List(l) => l,
            Given::Absent => &[],
        }
    }
}

/// The strides of several values, where they are not row-major.
pub(crate) type Layouts = Box<[Option<Box<[Expr]>>]>;

/// How the program lays out values, if that is known: where there is a choice, the best, but any is right. Templates with other hints are not other
/// templates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hint(pub Option<Layouts>);

impl PartialEq for Hint {
    fn eq(&self, _: &Hint) -> bool {
        true
    }
}

impl Eq for Hint {}

impl std::hash::Hash for Hint {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A call without its operands. Calls of equal templates on equal operands are one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Template {
    pub op: Name,
    pub args: Box<[Slot]>,
    pub kwargs: Box<[(Name, Slot)]>,
    /// The operator mutates: it is called on copies, whose contents afterwards follow the results that are not they themselves.
    pub mutates: bool,
    pub effect: bool,
    pub copies: bool,
    pub results: Box<[Given]>,
    /// The strides of operands, where they are not row-major; none if the operator does not look at them.
    pub layouts: Layouts,
    /// The strides that the values it gives have eagerly.
    pub strides: Hint,
    /// Tells calls apart that must not be merged: effects, random numbers, memory of any contents. 0 where they may be.
    pub serial: u32,
}

impl Template {
    /// What a node of it is: its one value, or a tuple. A call that must not be merged with others is a tuple in any case, since values may be
    /// found equal, and tuples are not.
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
pub(crate) struct Session {
    pub symbols: SymTable,
    pub specs: IndexSet<ViewSpec, FxBuildHasher>,
    pub metas: IndexSet<Meta, FxBuildHasher>,
    pub calls: IndexSet<Template, FxBuildHasher>,
    pub names: IndexSet<Box<str>, FxBuildHasher>,
    pub known: Known,
}

impl Session {
    pub fn new(symbols: SymTable) -> Session {
        let (specs, metas, calls, names) = Default::default();
        Session { symbols, specs, metas, calls, names, known: Known::default() }
    }

    pub fn spec(&mut self, spec: ViewSpec) -> SpecId {
        SpecId(self.specs.insert_full(spec).0 as u32)
    }

    /// Sizes are written in one way, as far as is known: equal ones make equal metadata.
    pub fn meta(&mut self, mut meta: Meta) -> MetaId {
        meta.sizes.iter_mut().filter(|e| matches!(e, Expr::Id(_))).for_each(|e| *e = self.symbols.simplify(*e));
        MetaId(self.metas.insert_full(meta).0 as u32)
    }

    pub fn call(&mut self, template: Template) -> CallId {
        CallId(self.calls.insert_full(template).0 as u32)
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
            let texts: Vec<String> = spec.dims().iter().map(|d| self.symbols.display(of(d)).to_string()).collect();
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
pub(crate) struct Origin {
    pub kind: Kind,
    /// The statement of the original graph that it comes from.
    pub at: u32,
    pub loc: Option<Loc>,
}

/// Values in an order in which each comes after those it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dag {
    pub nodes: Vec<Node>,
    pub origins: Vec<Origin>,
}

impl Dag {
    pub fn with_capacity(nodes: usize) -> Dag {
        Dag { nodes: Vec::with_capacity(nodes), origins: Vec::with_capacity(nodes) }
    }

    pub fn add(&mut self, node: Node, origin: Origin) -> Id {
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
