//! The graph builder: appends statements one by one, and checks and canonicalizes the graph at the
//! end.

use super::canonicalize::canonicalize;
use super::info::{InfoTable, NodeInfo};
use super::types::{
    Arg, BindSource, Def, Name, Node, NodeId, Res, Span, Stmt, StrId, TensorType, TypeId, Value,
    ValueId, ValueRange, ValueType,
};
use super::{Const, ConstSource, Graph, names};
use crate::schema::Schema;
use crate::sym::{BoolExpr, Expr, SymError, SymTable, SymbolId};
use crate::{Effect, Loc};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::{Arc, OnceLock};

/// The error of statements that form no graph.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A statement or output uses a value that no earlier statement defines.
    #[error("{at} uses value {value}, which no earlier statement defines")]
    Undefined {
        /// The operator, or the part of the graph.
        at: String,
        /// The value's number.
        value: usize,
    },
    /// An id is not of this builder.
    #[error("the {what} id {index} is out of range: the graph has {len}")]
    Foreign {
        /// The kind of the id.
        what: &'static str,
        /// The id.
        index: usize,
        /// The size of its table.
        len: usize,
    },
    /// An argument is a list nested too deeply.
    #[error("an argument of {at} is a list nested more than {} levels deep", super::MAX_LIST_DEPTH)]
    Depth {
        /// The operator, or the part of the graph.
        at: String,
    },
    /// A tensor has too many dimensions, so that the text of the graph would not parse.
    #[error("a tensor has {rank} dimensions; a graph's tensors have at most {}", super::MAX_RANK)]
    Rank {
        /// The number of dimensions.
        rank: usize,
    },
    /// A symbol's name is a reserved word of graph text.
    #[error("a symbol cannot be named `{0}`: the name is a reserved word of graph text")]
    Reserved(String),
    /// An expression cannot be copied into the graph's symbol table.
    #[error(transparent)]
    Sym(#[from] SymError),
}

/// The specification of one result of an operator's schema, for a new node.
#[derive(Clone, Copy, Debug)]
pub enum ResultSpec<'a> {
    /// A single value.
    Value(ValueType),
    /// A list of values.
    List(&'a [ValueType]),
    /// An optional result that this call does not return.
    Absent,
}

/// A new node and its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The node.
    pub node: NodeId,
    /// The values it defines, in order.
    pub values: ValueRange,
}

/// Builds a [`Graph`]. Its expressions belong to the symbol table that is passed to
/// [`GraphBuilder::finish`].
#[derive(Debug)]
pub struct GraphBuilder {
    pub(super) name: StrId,
    pub(super) strings: IndexSet<Box<str>, FxBuildHasher>,
    pub(super) types: IndexSet<TensorType, FxBuildHasher>,
    pub(super) values: Vec<Value>,
    pub(super) nodes: Vec<Node>,
    pub(super) args: Vec<Arg>,
    pub(super) kwargs: Vec<(StrId, Arg)>,
    pub(super) results: Vec<Res>,
    pub(super) inputs: Vec<ValueId>,
    pub(super) consts: Vec<Const>,
    pub(super) guards: IndexMap<BoolExpr, Option<Loc>, FxBuildHasher>,
    pub(super) body: Vec<Stmt>,
    pub(super) info: InfoTable,
    pub(super) bound_schemas: Vec<(StrId, Arc<Schema>)>,
    names: names::Names,
    /// For each operator, the base name and the preferred number of its results' names.
    op_bases: FxHashMap<StrId, (StrId, u32)>,
}

impl GraphBuilder {
    /// A builder of an empty graph. Characters that are invalid in a name become `_`.
    pub fn new(name: &str) -> GraphBuilder {
        let name = names::sanitize(name).replace('.', "_");
        GraphBuilder {
            name: StrId(0),
            strings: IndexSet::from_iter([name.into_boxed_str()]),
            types: IndexSet::default(),
            values: Vec::new(),
            nodes: Vec::new(),
            args: Vec::new(),
            kwargs: Vec::new(),
            results: Vec::new(),
            inputs: Vec::new(),
            consts: Vec::new(),
            guards: IndexMap::default(),
            body: Vec::new(),
            info: InfoTable::default(),
            bound_schemas: Vec::new(),
            names: names::Names::default(),
            op_bases: FxHashMap::default(),
        }
    }

    /// Reserves capacity for `nodes` additional nodes.
    pub fn reserve(&mut self, nodes: usize) {
        self.values.reserve(nodes);
        self.nodes.reserve(nodes);
        self.args.reserve(4 * nodes);
        self.results.reserve(nodes);
        self.body.reserve(nodes);
        self.info.reserve(nodes);
    }

    /// Interns a string: an operator's or keyword's name, a string argument, a message.
    pub fn intern(&mut self, text: &str) -> StrId {
        let index = match self.strings.get_index_of(text) {
            Some(index) => index,
            None => self.strings.insert_full(text.into()).0,
        };
        StrId(index as u32)
    }

    /// Interns a tensor type.
    pub fn intern_type(&mut self, ty: TensorType) -> TypeId {
        TypeId(self.types.insert_full(ty).0 as u32)
    }

    /// Adds an input. Its name is `hint`, numbered if taken, or `in0`, `in1`, … without a hint.
    pub fn input(&mut self, ty: ValueType, hint: Option<&str>) -> ValueId {
        let name = self.name_for(hint, "in", self.inputs.len());
        self.push_input(ty, name)
    }

    /// Adds a constant. Its name is `hint`, numbered if taken, or `c0`, `c1`, … without a hint.
    pub fn constant(
        &mut self,
        ty: TypeId,
        source: Arc<dyn ConstSource>,
        hint: Option<&str>,
    ) -> ValueId {
        let name = self.name_for(hint, "c", self.consts.len());
        self.push_const(ty, source, name)
    }

    /// Turns constants into inputs, in this order, inserted before the current input number
    /// `before`.
    pub fn lift_constants(&mut self, constants: &[ValueId], before: usize) {
        let later_inputs = self.inputs.split_off(before.min(self.inputs.len()));
        self.inputs.extend_from_slice(constants);
        self.inputs.extend(later_inputs);
        self.consts.retain(|c| !constants.contains(&c.value));
        let inputs = self.inputs.iter().enumerate().map(|(i, v)| (*v, Def::Input(i as u32)));
        let consts = self.consts.iter().enumerate().map(|(i, c)| (c.value, Def::Const(i as u32)));
        for (value, def) in inputs.chain(consts) {
            if let Some(v) = self.values.get_mut(value.index()) {
                v.def = def;
            }
        }
    }

    /// Creates a list argument.
    pub fn list(&mut self, elements: &[Arg]) -> Arg {
        Arg::List(extend(&mut self.args, elements))
    }

    /// Appends a call. Its results are named after the operator. `info` is a source line, or where
    /// the nodes come from for which this one stands.
    pub fn node<'o>(
        &mut self,
        op: StrId,
        args: &[Arg],
        kwargs: &[(StrId, Arg)],
        results: &[ResultSpec<'_>],
        info: impl Into<NodeInfo<'o>>,
    ) -> Created {
        let (base, number) = self.op_base(op);
        let created = self.push_node(op, args, kwargs, results, info.into());
        for value in created.values.iter() {
            self.values[value.index()].name = self.names.fresh(base, number);
        }
        created
    }

    /// Appends a call without naming its results.
    pub(super) fn push_node(
        &mut self,
        op: StrId,
        args: &[Arg],
        kwargs: &[(StrId, Arg)],
        results: &[ResultSpec<'_>],
        info: NodeInfo<'_>,
    ) -> Created {
        let node = NodeId(self.nodes.len() as u32);
        let first = self.values.len() as u32;
        let group = self.results.len() as u32;
        for spec in results {
            let types = match spec {
                ResultSpec::Value(ty) => std::slice::from_ref(ty),
                ResultSpec::List(types) => types,
                ResultSpec::Absent => &[],
            };
            let start = self.values.len() as u32;
            let unnamed = Name { base: op, number: 0 };
            self.values.extend(types.iter().map(|&ty| Value {
                ty,
                name: unnamed,
                def: Def::Node(node),
            }));
            self.results.push(match spec {
                ResultSpec::Value(_) => Res::Value(ValueId(start)),
                ResultSpec::List(types) => {
                    Res::List(ValueRange(Span { start, len: types.len() as u32 }))
                }
                ResultSpec::Absent => Res::Absent,
            });
        }
        let args = extend(&mut self.args, args);
        let kwargs = extend(&mut self.kwargs, kwargs);
        self.nodes.push(Node {
            op,
            args,
            kwargs,
            results: Span { start: group, len: results.len() as u32 },
            effect: None,
            copies: false,
        });
        self.info.push(info, self.strings.get_index(op.index()).map_or("", |name| name));
        self.body.push(Stmt::Node(node));
        Created {
            node,
            values: ValueRange(Span { start: first, len: self.values.len() as u32 - first }),
        }
    }

    /// Marks a call as having an effect besides its results and mutations. It keeps its order
    /// relative to other effects on the resource, and is never removed or merged.
    pub fn set_effect(&mut self, node: NodeId, effect: Effect<&str>) {
        let effect = effect.map(|name| self.intern(name));
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.effect = Some(effect);
        }
    }

    /// Marks the results of a call as copies, for an operator whose results may be views of an
    /// argument.
    pub fn set_copies(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.copies = true;
        }
    }

    /// Sets where the nodes from number `first` on come from.
    pub fn set_info(&mut self, first: usize, info: NodeInfo<'_>) {
        for (i, node) in self.nodes.iter().enumerate().skip(first) {
            let own = self.strings.get_index(node.op.index()).map_or("", |name| name);
            self.info.set(NodeId(i as u32), info, own);
        }
    }

    /// Binds an operator to the schema that it has now; see [`Graph::bound_schema`].
    pub fn bind_schema(&mut self, op: StrId, schema: Arc<Schema>) {
        self.bound_schemas.push((op, schema));
    }

    /// Appends the definition of an unbacked symbol from a value.
    pub fn bind(&mut self, symbol: SymbolId, value: ValueId, source: BindSource) {
        self.body.push(Stmt::Bind { symbol, value, source });
    }

    /// Appends a runtime assertion, with the source line that raised it.
    pub fn assert_(&mut self, cond: BoolExpr, message: Option<&str>, loc: Option<Loc>) {
        let message = message.map(|m| self.intern(m));
        self.info.asserts.extend(loc.map(|loc| (self.body.len(), loc)));
        self.body.push(Stmt::Assert { cond, message });
    }

    /// Adds a guard, a condition on the inputs' sizes, with the source line that recorded it. An
    /// equal guard keeps its first line.
    pub fn guard(&mut self, cond: BoolExpr, loc: Option<Loc>) {
        self.guards.entry(cond).or_insert(loc);
    }

    /// Renames a value to `name`, or to the next free number of its base if `name` is taken.
    pub fn set_name(&mut self, value: ValueId, name: &str) {
        let (base, number) = self.split(name);
        if let Some(current) = self.values.get(value.index()).map(|v| v.name)
            && current != (Name { base, number })
        {
            let name = self.names.fresh(base, number);
            self.values[value.index()].name = name;
        }
    }

    /// The type of a value; `None` if the value is not of this graph.
    pub fn value_type(&self, value: ValueId) -> Option<ValueType> {
        self.values.get(value.index()).map(|v| v.ty)
    }

    /// An interned tensor type; `None` if the id is not of this graph.
    pub fn tensor_type(&self, ty: TypeId) -> Option<&TensorType> {
        self.types.get_index(ty.index())
    }

    /// Whether a value is a result of a node from number `first` on.
    pub fn is_result_since(&self, first: usize, value: ValueId) -> bool {
        let def = self.values.get(value.index()).map(|v| v.def);
        matches!(def, Some(Def::Node(node)) if node.index() >= first)
    }

    /// The number of nodes so far.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Finishes the graph that returns `outputs`. The result is canonical: every table is in
    /// first-use order and holds only used entries. `symbols` is the table of all expressions given
    /// to the builder. The graph gets its own table with the symbols it uses, in the same order and
    /// with the same declared ranges.
    ///
    /// # Errors
    /// An id is not of this builder, a value is used before its definition, a list nests too
    /// deeply, or a symbol's name is a reserved word.
    pub fn finish(self, symbols: &SymTable, outputs: &[Arg]) -> Result<Graph, BuildError> {
        canonicalize(self, symbols, outputs)
    }

    /// Takes exactly this name for a new value; `None` if another value has it.
    pub(super) fn take_name(&mut self, name: &str) -> Option<Name> {
        let (base, number) = self.split(name);
        let name = Name { base, number };
        self.names.take(name).then_some(name)
    }

    /// Assigns a name from [`GraphBuilder::take_name`] to a value.
    pub(super) fn name_value(&mut self, value: ValueId, name: Name) {
        if let Some(v) = self.values.get_mut(value.index()) {
            v.name = name;
        }
    }

    pub(super) fn push_input(&mut self, ty: ValueType, name: Name) -> ValueId {
        let value = ValueId(self.values.len() as u32);
        self.values.push(Value { ty, name, def: Def::Input(self.inputs.len() as u32) });
        self.inputs.push(value);
        value
    }

    pub(super) fn push_const(
        &mut self,
        ty: TypeId,
        source: Arc<dyn ConstSource>,
        name: Name,
    ) -> ValueId {
        let value = ValueId(self.values.len() as u32);
        self.values.push(Value {
            ty: ValueType::Tensor(ty),
            name,
            def: Def::Const(self.consts.len() as u32),
        });
        self.consts.push(Const { value, source, digest: OnceLock::new() });
        value
    }

    /// Sanitizes a name and splits it into its interned base and its number.
    fn split(&mut self, name: &str) -> (StrId, u32) {
        let name = names::sanitize(name);
        let (base, number) = names::split(&name);
        (self.intern(base), number)
    }

    /// A fresh name from a hint, or from a prefix and an index.
    fn name_for(&mut self, hint: Option<&str>, prefix: &str, index: usize) -> Name {
        let (base, number) = match hint {
            Some(hint) => self.split(hint),
            None => self.split(&format!("{prefix}{index}")),
        };
        self.names.fresh(base, number)
    }

    /// The cached base name of an operator's results.
    fn op_base(&mut self, op: StrId) -> (StrId, u32) {
        if let Some(&base) = self.op_bases.get(&op) {
            return base;
        }
        let name = self
            .strings
            .get_index(op.index())
            .map(|name| names::of_op(name).to_owned())
            .unwrap_or_default();
        let base = self.split(&name);
        self.op_bases.insert(op, base);
        base
    }
}

/// Appends entries to a pool.
fn extend<T: Copy>(pool: &mut Vec<T>, new: &[T]) -> Span {
    let start = pool.len() as u32;
    pool.extend_from_slice(new);
    Span { start, len: new.len() as u32 }
}

impl From<Expr> for Arg {
    fn from(e: Expr) -> Arg {
        Arg::Int(e)
    }
}

impl From<ValueId> for Arg {
    fn from(v: ValueId) -> Arg {
        Arg::Value(v)
    }
}

macro_rules! arg_from {
    ($($t:ty => |$x:ident| $arg:expr),+ $(,)?) => {$(
        impl From<$t> for Arg {
            fn from($x: $t) -> Arg {
                $arg
            }
        }
    )+};
}
arg_from!(
    i64 => |x| Arg::Int(Expr::Int(x)),
    f64 => |x| Arg::Float(x.into()),
    bool => |x| Arg::Bool(x),
    crate::DType => |x| Arg::DType(x),
    crate::Device => |x| Arg::Device(x),
    crate::Layout => |x| Arg::Layout(x),
    crate::MemoryFormat => |x| Arg::MemoryFormat(x),
);
