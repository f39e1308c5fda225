//! Executes a graph as model code: calls its operators one after another, on real tensors or under
//! a trace.
//!
//! Only the calls of the graph are used, not its types, guards or assertions. So the same graph can
//! be run eagerly at any size, or traced again so that all of these are derived anew. Symbols get
//! their values from the inputs' sizes, and from data where the graph binds them.

use super::statements;
use maquette_ir::graph::{Arg, BindSource, Graph, NodeId, Res, Stmt, ValueId};
use maquette_ir::sym::{Expr, SymInt, SymbolId};
use maquette_ops::{Args, CallError, Error, Op, Outputs, Result, RunError, Tensor, Value};
use rustc_hash::FxHashMap;

/// Makes the call of a node. The arguments are complete and in the schema's order.
pub type Caller<'a> = dyn FnMut(NodeId, Op, Args) -> Result<Outputs> + 'a;

/// Runs the statements of `graph` through `call`, and returns its outputs.
///
/// # Errors
/// The first error of a call; a value is used before it is defined; an operator returns a different
/// number of values than the graph expects.
pub fn run(graph: &Graph, inputs: &[Tensor], call: &mut Caller<'_>) -> Result<Vec<Value>> {
    let mut runner = GraphRunner {
        graph,
        values: vec![None; graph.values().len()],
        symbols: FxHashMap::default(),
    };
    for (&v, t) in graph.inputs().iter().zip(inputs) {
        runner.set(v, Value::Tensor(t.clone()));
        let sizes = graph.tensor_type(v).map(|ty| ty.sizes.as_slice()).unwrap_or_default();
        for (e, n) in sizes.iter().zip(t.sizes()) {
            runner.bind_size(*e, *n);
        }
    }
    for stmt in graph.body() {
        match *stmt {
            Stmt::Node(node) => runner.node(node, call)?,
            Stmt::Bind { symbol, value, source } => {
                let n = match (runner.get(value)?, source) {
                    (Value::Tensor(t), BindSource::Size(dim)) => t.size(dim.into()),
                    (other, _) => other.int()?,
                };
                runner.symbols.insert(symbol, n);
            }
            Stmt::Assert { .. } => {}
        }
    }
    graph.outputs().iter().map(|&a| runner.value(a)).collect()
}

/// Runs a graph as model code: calls its operators, and asks what its statements ask.
///
/// # Errors
/// As [`run`].
pub fn call_all(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Value>> {
    run(graph, inputs, &mut |_, op, args| {
        statements::run(op, args, &mut |op, args, loc| op.call_at(args, loc))
    })
}

/// The state of a run: the values and symbols that are defined so far.
struct GraphRunner<'g> {
    graph: &'g Graph,
    values: Vec<Option<Value>>,
    symbols: FxHashMap<SymbolId, SymInt>,
}

impl GraphRunner<'_> {
    /// Binds a symbol to an input size, if the size is exactly that symbol.
    fn bind_size(&mut self, e: Expr, n: SymInt) {
        let table = self.graph.symbols();
        if let [symbol] = table.free_symbols(e).as_slice()
            && table.display(e).to_string() == table.name(*symbol)
        {
            self.symbols.entry(*symbol).or_insert(n);
        }
    }

    fn undefined(&self, v: ValueId) -> Error {
        RunError::Undefined { value: self.graph.value_name(v).to_string() }.into()
    }

    fn set(&mut self, v: ValueId, value: Value) {
        if let Some(slot) = self.values.get_mut(v.index()) {
            *slot = Some(value);
        }
    }

    fn get(&self, v: ValueId) -> Result<&Value> {
        self.values.get(v.index()).and_then(Option::as_ref).ok_or_else(|| self.undefined(v))
    }

    fn value(&self, arg: Arg) -> Result<Value> {
        Ok(match arg {
            Arg::Value(v) => self.get(v)?.clone(),
            Arg::None => Value::None,
            Arg::Int(e) => Value::Int(
                self.graph.symbols().eval_handles(e, &|s| self.symbols.get(&s).copied())?,
            ),
            Arg::Float(x) => Value::Float(x.get()),
            Arg::Bool(b) => Value::Bool(b),
            Arg::Str(s) => Value::Str(self.graph.str(s).into()),
            Arg::DType(d) => Value::DType(d),
            Arg::Device(d) => Value::Device(d),
            Arg::Layout(l) => Value::Layout(l),
            Arg::MemoryFormat(m) => Value::MemoryFormat(m),
            Arg::List(list) => Value::from(
                self.graph
                    .list(list)
                    .iter()
                    .map(|&a| self.value(a))
                    .collect::<Result<Vec<Value>>>()?,
            ),
        })
    }

    /// Makes the call of a node, and defines its results.
    fn node(&mut self, node: NodeId, call: &mut Caller<'_>) -> Result<()> {
        let op = Op::find(self.graph.op_name(node))?;
        let args = self.arguments(op, node)?;
        let outputs = call(node, op, args)?;
        let found = outputs.len();
        let results = self.graph.results(node);
        let differs = || {
            Error::value(format!(
                "{} returned other results than the graph declares (found {found})",
                op.name()
            ))
        };
        if results.len() != found {
            return Err(differs());
        }
        for (&result, value) in results.iter().zip(outputs) {
            match (result, value) {
                (Res::Absent, Value::None) => {}
                (Res::Value(v), value) => self.set(v, value),
                (Res::List(range), Value::List(l)) if l.len() == range.len() => {
                    range.iter().zip(l).for_each(|(v, value)| self.set(v, value));
                }
                _ => return Err(differs()),
            }
        }
        Ok(())
    }

    /// The arguments in the schema's order, with defaults for those that are left out.
    fn arguments(&self, op: Op, node: NodeId) -> Result<Args> {
        let mut args =
            self.graph.args(node).iter().map(|&a| self.value(a)).collect::<Result<Args>>()?;
        let (schema, kwargs) = (op.schema()?, self.graph.kwargs(node));
        for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
            let by_keyword = kwargs
                .iter()
                .find(|(name, _)| self.graph.str(*name) == decl.name)
                .map(|&(_, arg)| self.value(arg))
                .transpose()?;
            args.push(by_keyword.or_else(|| op.default_value(index)).ok_or_else(|| {
                CallError::Missing {
                    arg: decl.name.clone(),
                    index,
                    expected: decl.ty.to_string(),
                    schema: schema.to_string(),
                }
            })?);
        }
        Ok(args)
    }
}
