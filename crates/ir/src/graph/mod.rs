//! The graph IR: a program in static single assignment form (SSA). Its nodes call operators, which
//! the graph knows by name only.
//!
//! A [`Graph`] is an arena: nodes, values, types and strings are ids into flat tables. Symbolic
//! sizes are expressions in the graph's own [`SymTable`]. A graph is immutable: a [`GraphBuilder`]
//! or the parser makes it, and a pass builds a new one.
//!
//! [`GraphBuilder::finish`] numbers every table by first use. Two graphs are therefore equal if and
//! only if they print the same text without scopes, and the derived `==` decides equality. The text
//! parses back to an equal graph; `docs/graph-text.md` has the grammar.
//!
//! What a graph knows of the program that it was traced from, as lines and [scopes](NodeInfo), is a
//! table beside it. Equality ignores that table, and passes copy it by node.
//!
//! The body is a list of [statements](Stmt) in program order. The order matters in a graph that
//! mutates, because dataflow edges alone do not order a read after a write. [`Graph::dataflow`] and
//! [`Graph::dependence`] give the edges to petgraph's algorithms.

mod build;
mod canonicalize;
mod consts;
mod copy;
mod deps;
mod dot;
mod info;
pub(crate) mod lex;
mod memory_deps;
mod names;
mod op_facts;
pub(crate) mod parse;
pub(crate) mod print;
mod types;
pub mod verify;

pub use build::{BuildError, Created, GraphBuilder, ResultSpec};
pub use consts::{Const, ConstSource, Digest};
pub use copy::GraphCopy;
pub use deps::{Adjacency, Edge, EdgeKind, EdgeReference, Visited};
pub use dot::InputRole;
pub use info::{NodeInfo, common_scope};
pub use op_facts::{
    ArgEffect, ArgKind, ArithOp, ImageRole, MemoryFacts, OpFacts, Placement, Recomputation,
    ViewSource,
};
pub use parse::{MAX_TEXT, ParseError, TextPosition, unquote};
pub use print::quote;
pub use types::{
    Arg, BindSource, Def, FloatBits, Name, Node, NodeId, Res, Span, Stmt, StrId, TensorType,
    TypeId, ValueId, ValueRange, ValueType,
};
pub use verify::{Invariant, VerifyError};

use crate::Effect;
use crate::functional_ops::Callee;
use crate::schema::Schema;
use crate::sym::{BoolExpr, SymTable};
use info::InfoTable;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use types::{IgnoredInEq, Value};

/// Lists in arguments nest at most this deep.
pub const MAX_LIST_DEPTH: usize = 8;
/// Calls have at most this many keyword arguments.
pub const MAX_KWARGS: usize = 256;
/// Tensors have at most this many dimensions.
pub const MAX_RANK: usize = 64;

/// A program of calls to operators; see the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    name: StrId,
    symbols: SymTable,
    strings: Vec<Box<str>>,
    types: Vec<TensorType>,
    /// For each type, whether its strides are exactly the row-major strides of its sizes.
    contiguous: Vec<bool>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    args: Vec<Arg>,
    kwargs: Vec<(StrId, Arg)>,
    results: Vec<Res>,
    inputs: Vec<ValueId>,
    consts: Vec<Const>,
    guards: Vec<BoolExpr>,
    body: Vec<Stmt>,
    outputs: Vec<Arg>,
    info: IgnoredInEq<InfoTable>,
    users: IgnoredInEq<OnceLock<Users>>,
    bound_schemas: IgnoredInEq<Vec<(StrId, Arc<Schema>)>>,
}

/// An operator has another schema than when the graph was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the operator was redefined: the graph was made for `{bound}`, and now it is `{found}`; \
        trace the program again"
)]
pub struct Redefined {
    /// The schema that the graph was made for.
    pub bound: String,
    /// The schema that the operator has now.
    pub found: String,
}

/// The nodes that use each value: `nodes[starts[v]..starts[v + 1]]`, as in a sparse row matrix.
#[derive(Clone, Debug, Default)]
struct Users {
    starts: Vec<u32>,
    nodes: Vec<NodeId>,
}

/// Methods that take an id expect an id of this graph. They panic if the id is not in its tables.
impl Graph {
    /// A number that equal graphs share: a buffer plan recognizes its graph by it. Constants'
    /// contents, guards and source lines take no part.
    pub fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.symbols.hash_expressions(&mut hasher);
        (&self.strings, &self.types, &self.args, &self.kwargs).hash(&mut hasher);
        (&self.results, &self.inputs, &self.outputs, self.consts.len()).hash(&mut hasher);
        for node in &self.nodes {
            (node.op, node.args, node.kwargs, node.results).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        self.str(self.name)
    }

    /// The symbols and expressions. The table knows the declared ranges of the symbols. It does not
    /// assume guards and assertions.
    pub fn symbols(&self) -> &SymTable {
        &self.symbols
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The constants, in order.
    pub fn consts(&self) -> &[Const] {
        &self.consts
    }

    /// The conditions on the inputs' sizes under which the graph is valid, in the order in which
    /// the trace recorded them.
    pub fn guards(&self) -> &[BoolExpr] {
        &self.guards
    }

    /// The statements, in program order.
    pub fn body(&self) -> &[Stmt] {
        &self.body
    }

    /// The values that the graph returns.
    pub fn outputs(&self) -> &[Arg] {
        &self.outputs
    }

    /// The nodes, in program order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The values: inputs, constants, then results of nodes in program order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = ValueId> + ExactSizeIterator + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// A node's record.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    /// A node's operator, as `aten::add.Tensor`.
    pub fn op_name(&self, node: NodeId) -> &str {
        self.str(self.node(node).op)
    }

    /// A node's operator as an interned string. Equal names have equal ids.
    pub fn op(&self, node: NodeId) -> StrId {
        self.node(node).op
    }

    /// Whether a node's operator had an effect, besides its results and mutations, when the graph
    /// was made.
    pub fn has_effect(&self, node: NodeId) -> bool {
        self.node(node).effect.is_some()
    }

    /// The effect of a node's operator when the graph was made, with the name of the resource.
    pub fn effect(&self, node: NodeId) -> Option<Effect<&str>> {
        self.node(node).effect.map(|effect| effect.map(|name| self.str(name)))
    }

    /// Whether a node's results were copies when the graph was made. This is recorded for operators
    /// that return either a view of an argument or a copy, as `aten::reshape` does.
    pub fn copies(&self, node: NodeId) -> bool {
        self.node(node).copies
    }

    /// A node's positional arguments.
    pub fn args(&self, node: NodeId) -> &[Arg] {
        self.node(node).args.get(&self.args).unwrap_or_default()
    }

    /// A node's keyword arguments, in the order of the call.
    pub fn kwargs(&self, node: NodeId) -> &[(StrId, Arg)] {
        self.node(node).kwargs.get(&self.kwargs).unwrap_or_default()
    }

    /// The elements of a list argument.
    pub fn list(&self, list: Span) -> &[Arg] {
        list.get(&self.args).unwrap_or_default()
    }

    /// A node's results, one entry for each return of its schema.
    pub fn results(&self, node: NodeId) -> &[Res] {
        self.node(node).results.get(&self.results).unwrap_or_default()
    }

    /// The values that a node defines, in order.
    pub fn result_values(&self, node: NodeId) -> impl Iterator<Item = ValueId> {
        self.results(node).iter().flat_map(|r| r.values().iter())
    }

    /// Calls `f` with every operand of a node, including those in lists. A value that occurs twice
    /// is visited twice.
    pub fn for_each_operand(&self, node: NodeId, mut f: impl FnMut(ValueId)) {
        for arg in self.args(node).iter().chain(self.kwargs(node).iter().map(|(_, arg)| arg)) {
            self.for_each_leaf(*arg, &mut |leaf| {
                if let Arg::Value(v) = leaf {
                    f(v);
                }
            });
        }
    }

    /// Calls `f` with an argument, or with each element of a list, nested lists included.
    pub fn for_each_leaf(&self, arg: Arg, f: &mut impl FnMut(Arg)) {
        match arg {
            Arg::List(list) => self.list(list).iter().for_each(|a| self.for_each_leaf(*a, f)),
            leaf => f(leaf),
        }
    }

    /// A value's type.
    pub fn value_type(&self, value: ValueId) -> ValueType {
        self.values[value.index()].ty
    }

    /// The metadata of a tensor value; `None` for other values.
    pub fn tensor_type(&self, value: ValueId) -> Option<&TensorType> {
        match self.value_type(value) {
            ValueType::Tensor(ty) => Some(self.type_of(ty)),
            _ => None,
        }
    }

    /// The number of interned tensor types.
    pub fn type_count(&self) -> usize {
        self.types.len()
    }

    /// An interned tensor type.
    pub fn type_of(&self, ty: TypeId) -> &TensorType {
        &self.types[ty.index()]
    }

    /// Whether a type's strides are exactly the row-major strides of its sizes.
    pub fn is_contiguous(&self, ty: TypeId) -> bool {
        self.contiguous[ty.index()]
    }

    /// An interned string.
    pub fn str(&self, s: StrId) -> &str {
        &self.strings[s.index()]
    }

    /// The definition of a value: an input, a constant or a node.
    pub fn def(&self, value: ValueId) -> Def {
        self.values[value.index()].def
    }

    /// The node that defines a value; `None` for inputs and constants.
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.def(value) {
            Def::Node(node) => Some(node),
            Def::Input(_) | Def::Const(_) => None,
        }
    }

    /// The constant behind a value.
    pub fn constant(&self, value: ValueId) -> Option<&Const> {
        match self.def(value) {
            Def::Const(i) => self.consts.get(i as usize),
            Def::Input(_) | Def::Node(_) => None,
        }
    }

    /// The nodes that use a value, in program order, each once. The first call builds an index of
    /// all uses in O(uses log uses).
    pub fn users(&self, value: ValueId) -> &[NodeId] {
        let users = self.users.0.get_or_init(|| Users::of(self));
        let at = |i: usize| users.starts.get(i).map_or(0, |&s| s as usize);
        users.nodes.get(at(value.index())..at(value.index() + 1)).unwrap_or_default()
    }

    /// The schema that an operator had when the graph was made, for operators that can be defined
    /// anew. A run refuses an operator of another schema. Text does not carry schemas.
    pub fn bound_schema(&self, op: StrId) -> Option<&Arc<Schema>> {
        self.bound_schemas.0.iter().find(|(bound, _)| *bound == op).map(|(_, schema)| schema)
    }

    /// Requires an operator to have the schema that it had when the graph was made.
    ///
    /// # Errors
    /// The schema is another one.
    pub fn require_bound_schema(&self, op: StrId, found: &Schema) -> Result<(), Redefined> {
        match self.bound_schema(op) {
            Some(bound) if **bound != *found => {
                Err(Redefined { bound: bound.to_string(), found: found.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// The value with this name.
    pub fn value_named(&self, name: &str) -> Option<ValueId> {
        let (base, number) = names::split(name);
        let base = self.strings.iter().position(|s| **s == *base).map(|i| StrId(i as u32))?;
        self.values().find(|v| self.values[v.index()].name == Name { base, number })
    }
}

impl Users {
    fn of(graph: &Graph) -> Users {
        let mut uses: Vec<(ValueId, NodeId)> = Vec::new();
        for node in graph.nodes() {
            graph.for_each_operand(node, |v| uses.push((v, node)));
        }
        uses.sort_unstable();
        uses.dedup();
        let mut starts = vec![0u32; graph.values.len() + 1];
        for (v, _) in &uses {
            if let Some(n) = starts.get_mut(v.index() + 1) {
                *n += 1;
            }
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        Users { starts, nodes: uses.into_iter().map(|(_, n)| n).collect() }
    }
}
