//! Fake values of the types that a graph declares, for code that runs fake kernels on its nodes.

use maquette_invoke::{argument_value, arguments};
use maquette_ir::graph::{Arg, Graph, NodeId, TensorType, ValueId, ValueType};
use maquette_ir::sym::{BoolExpr, Expr, Scope, ScopeData, SymInt, SymbolId};
use maquette_ops::{Args, Meta, Op, Result, Tensor, Value};
use rustc_hash::FxHashMap;

/// Makes fake values of a graph's types. Their sizes are expressions of a scope with the graph's
/// symbols, in which the graph's guards hold.
pub struct FakeValues<'g> {
    graph: &'g Graph,
    scope: Scope,
}

impl<'g> FakeValues<'g> {
    /// A scope with the symbols and guards of a graph. Decisions are taken on `hints`, the example
    /// values of symbols; a decision on another symbol is an error unless it is proved.
    pub fn new(graph: &'g Graph, hints: FxHashMap<SymbolId, i64>) -> FakeValues<'g> {
        let scope = Scope::new();
        scope.with(|data| {
            // Expressions of the graph keep their ids in a copy of its table.
            *data = ScopeData { table: graph.symbols().clone(), hints, ..ScopeData::default() };
        });
        let values = FakeValues { graph, scope };
        graph.guards().iter().for_each(|&guard| values.assume(guard));
        values
    }

    /// The scope of the sizes.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Makes a condition of the graph hold.
    pub fn assume(&self, condition: BoolExpr) {
        // A contradiction means that no run completes: there is nothing to assume.
        let _ = self.scope.with(|data| data.table.assume(condition));
    }

    /// A fake tensor of the declared type, or a stand-in for a value that only a run knows.
    pub fn value(&self, v: ValueId) -> Value {
        match self.graph.value_type(v) {
            ValueType::Tensor(ty) => Value::Tensor(self.tensor(self.graph.type_of(ty))),
            ValueType::Int(e) => Value::Int(self.scope.lift(e)),
            ValueType::Float => Value::Float(1.0),
            ValueType::Bool => Value::Bool(true),
            ValueType::Str => Value::Str("".into()),
        }
    }

    fn tensor(&self, ty: &TensorType) -> Tensor {
        let lift = |of: &[Expr]| of.iter().map(|&e| self.scope.lift(e)).collect();
        let mut meta = Meta::contiguous([0i64; 0], ty.dtype).on(ty.device);
        meta.layout = ty.layout;
        let meta = meta
            .with_dims(lift(&ty.sizes), lift(&ty.strides))
            .with_offset(self.scope.lift(ty.offset));
        let fake = Tensor::fake_of(meta);
        if ty.requires_grad { fake.requires_grad_() } else { fake }
    }

    /// The arguments of a node's call of `op`, in the order of the schema. `positional` are the
    /// node's own or those that it passes on, and `get` gives the value of an operand.
    ///
    /// # Errors
    /// A keyword is unknown, or names an argument that has a value already; the error of `get`.
    pub fn arguments(
        &self,
        op: Op,
        node: NodeId,
        positional: &[Arg],
        get: &dyn Fn(ValueId) -> Result<Value>,
    ) -> Result<Args> {
        let int = |e| -> Result<SymInt> { Ok(self.scope.lift(e)) };
        let value = |arg| argument_value(self.graph, arg, get, &int);
        arguments(self.graph, op, node, positional, &value)
    }

    /// Whether an operand of a node is a number, a flag or a text that only a run knows.
    pub fn has_unknown_operand(&self, node: NodeId) -> bool {
        let mut unknown = false;
        self.graph.for_each_operand(node, |v| {
            unknown |= matches!(
                self.graph.value_type(v),
                ValueType::Float | ValueType::Bool | ValueType::Str
            );
        });
        unknown
    }
}
