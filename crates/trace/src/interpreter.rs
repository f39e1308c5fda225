//! The reference interpreter: a loop over operator calls, with everything checked that the trace
//! took for granted.

use crate::bindings::{Bindings, DeclaredType};
use crate::consts::Captured;
use maquette_ir::Loc;
use maquette_ir::graph::{Arg, BindSource, Graph, NodeId, Res, Span, Stmt, ValueId, ValueType};
use maquette_ops::{
    Args, CallError, Error, FakeError, Op, Outputs, Result, RunError, TraceError, Value, mode,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How many statements of the graph an error shows on each side.
const WINDOW: usize = 2;

/// What messages about a run can say that its graph does not know: lines of the program, but for
/// those of nodes, and what inputs are called.
#[derive(Clone, Copy, Debug)]
pub struct SourceInfo<'a> {
    /// By guard.
    pub guard_locs: &'a [Loc],
    /// By assertion in the body.
    pub assert_locs: &'a [Loc],
    /// By input; the graph's names where there are none.
    pub input_names: &'a [String],
    /// Where the run was asked for: the line of nodes that have none.
    pub call_site: Loc,
}

impl SourceInfo<'_> {
    /// Of a graph alone, run by the caller.
    #[track_caller]
    pub fn of_caller() -> SourceInfo<'static> {
        SourceInfo { guard_locs: &[], assert_locs: &[], input_names: &[], call_site: Loc::caller() }
    }

    /// An error that names no line happened where the run was asked for.
    pub fn locate(&self, e: Error) -> Error {
        if e.loc().is_some() { e } else { e.at(self.call_site) }
    }
}

/// Runs a graph on its inputs, operator by operator. Mutated inputs and constants are written in
/// place.
///
/// # Errors
/// The inputs are not what the graph declares, a guard or an assertion does not hold, an operator
/// is missing or fails, a result's metadata is not the declared one, or a constant's contents are
/// not there.
#[track_caller]
pub fn run_graph(graph: &Graph, inputs: &[Value]) -> Result<Vec<Value>> {
    let source_info = SourceInfo::of_caller();
    run_with(graph, inputs, &source_info).map_err(|e| source_info.locate(e))
}

pub(crate) fn run_with(
    graph: &Graph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    interpret(graph, inputs, source_info, false)
}

/// `functional`: the graph is functional, and its results have no strides.
pub(crate) fn interpret(
    graph: &Graph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
    functional: bool,
) -> Result<Vec<Value>> {
    if mode::is_active() {
        return Err(Error::from(TraceError::Run).at(source_info.call_site));
    }
    mode::without_modes(|| {
        let mut interpreter = Interpreter::new(graph, source_info, !functional);
        interpreter.bind_inputs(inputs)?;
        for (at, stmt) in graph.body().iter().enumerate() {
            let done = match *stmt {
                Stmt::Node(node) if functional => interpreter.functional_node(node),
                Stmt::Node(node) => interpreter.node(node),
                Stmt::Bind { .. } | Stmt::Assert { .. } => interpreter.bind_or_assert(stmt),
            };
            done.map_err(|e| interpreter.in_window(e, at))?;
            interpreter.free_unused(at, stmt);
        }
        graph.outputs().iter().map(|&output| interpreter.value(output)).collect()
    })
}

pub(crate) struct Interpreter<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) source_info: &'g SourceInfo<'g>,
    pub(crate) bindings: Bindings<'g>,
    values: Vec<Option<Value>>,
    /// By value: the statement after which it is not needed.
    last_use: Vec<usize>,
    /// By operator.
    ops: FxHashMap<usize, Op>,
    /// Results whose declared sizes have symbols that are bound later: node, output, value.
    pending_checks: Vec<(NodeId, usize, ValueId, Value)>,
    asserts_done: usize,
}

/// For each value the last statement that takes it; its own if none does, the end if the graph
/// returns it.
fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values().len()];
    let mut touch = |v: ValueId, at: usize| {
        if let Some(l) = last.get_mut(v.index()) {
            *l = at;
        }
    };
    for (at, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                graph.for_each_operand(node, |v| touch(v, at));
                graph.result_values(node).for_each(|v| touch(v, at));
            }
            Stmt::Bind { value, .. } => touch(value, at),
            Stmt::Assert { .. } => {}
        }
    }
    for &output in graph.outputs() {
        graph.for_each_leaf(output, &mut |leaf| {
            if let Arg::Value(v) = leaf {
                touch(v, usize::MAX);
            }
        });
    }
    last
}

impl<'g> Interpreter<'g> {
    /// `check_strides`: results have the strides and offsets of their types.
    pub(crate) fn new(
        graph: &'g Graph,
        source_info: &'g SourceInfo<'g>,
        check_strides: bool,
    ) -> Interpreter<'g> {
        Interpreter {
            graph,
            source_info,
            bindings: Bindings::new(graph, source_info.input_names, check_strides),
            values: vec![None; graph.values().len()],
            last_use: last_uses(graph),
            ops: FxHashMap::default(),
            pending_checks: Vec::new(),
            asserts_done: 0,
        }
    }
}

impl Interpreter<'_> {
    /// An error with the part of the graph in which it happened.
    pub(crate) fn in_window(&self, e: Error, at: usize) -> Error {
        e.with_window(self.graph.window_at(at, WINDOW))
    }

    /// Binds a symbol, or checks an assertion.
    pub(crate) fn bind_or_assert(&mut self, stmt: &Stmt) -> Result<()> {
        match *stmt {
            Stmt::Node(_) => Ok(()),
            Stmt::Bind { symbol, value, source } => self.bind(symbol, value, source),
            Stmt::Assert { cond, message } => {
                let line = self.source_info.assert_locs.get(self.asserts_done).copied();
                self.asserts_done += 1;
                if self.bindings.holds(cond)? {
                    return Ok(());
                }
                let (cond, values) = self.bindings.explain(cond);
                let message = message.map(|m| self.graph.str(m).to_owned());
                let e = Error::from(RunError::Assertion { cond, message, values });
                Err(line.map_or(e.clone(), |loc| e.at(loc)))
            }
        }
    }

    /// Takes inputs and constants, binds the inputs' symbols and checks everything known about
    /// them.
    pub(crate) fn bind_inputs(&mut self, inputs: &[Value]) -> Result<()> {
        let graph = self.graph;
        if inputs.len() != graph.inputs().len() {
            return Err(RunError::InputCount {
                expected: graph.inputs().len(),
                found: inputs.len(),
            }
            .into());
        }
        for (&input, value) in graph.inputs().iter().zip(inputs) {
            self.bindings.bind_input(input, value)?;
        }
        for (&input, value) in graph.inputs().iter().zip(inputs) {
            self.bindings.check_input(input, value)?;
            self.set(input, value.clone());
        }
        for c in graph.consts() {
            let captured = c.source_as::<Captured>();
            let missing = || RunError::Constant { name: graph.value_name(c.value()).to_string() };
            self.set(c.value(), Value::Tensor(captured.ok_or_else(missing)?.0.clone()));
        }
        for (i, &guard) in graph.guards().iter().enumerate() {
            // a guard that cannot be evaluated (it divides by a size that is 0 now) does not hold
            if !self.bindings.holds(guard).unwrap_or(false) {
                let (guard, values) = self.bindings.explain(guard);
                let loc = self.source_info.guard_locs.get(i).map_or_else(
                    || "a line the graph does not know".to_owned(),
                    ToString::to_string,
                );
                return Err(RunError::Guard { guard, values, loc }.into());
            }
        }
        Ok(())
    }

    pub(crate) fn drop_value(&mut self, v: ValueId) {
        if let Some(slot) = self.values.get_mut(v.index()) {
            *slot = None;
        }
    }

    pub(crate) fn set(&mut self, v: ValueId, value: Value) {
        if let Some(slot) = self.values.get_mut(v.index()) {
            *slot = Some(value);
        }
    }

    fn get(&self, v: ValueId) -> Result<&Value> {
        let missing = || RunError::Undefined { value: self.graph.value_name(v).to_string() };
        Ok(self.values.get(v.index()).and_then(Option::as_ref).ok_or_else(missing)?)
    }

    pub(crate) fn value(&self, arg: Arg) -> Result<Value> {
        Ok(match arg {
            Arg::Value(v) => self.get(v)?.clone(),
            Arg::None => Value::None,
            Arg::Int(e) => Value::Int(self.bindings.eval(e)?.into()),
            Arg::Float(x) => Value::Float(x.get()),
            Arg::Bool(b) => Value::Bool(b),
            Arg::Str(s) => Value::Str(self.graph.str(s).into()),
            Arg::DType(d) => Value::DType(d),
            Arg::Device(d) => Value::Device(d),
            Arg::Layout(l) => Value::Layout(l),
            Arg::MemoryFormat(m) => Value::MemoryFormat(m),
            Arg::List(list) => self.list(list)?,
        })
    }

    fn list(&self, list: Span) -> Result<Value> {
        let elements =
            self.graph.list(list).iter().map(|&a| self.value(a)).collect::<Result<Vec<Value>>>()?;
        let ints: Option<Box<[_]>> =
            elements.iter().map(|v| if let Value::Int(i) = v { Some(*i) } else { None }).collect();
        Ok(match ints {
            Some(ints) if !ints.is_empty() => Value::Ints(ints),
            _ => Value::List(elements.into()),
        })
    }

    pub(crate) fn node(&mut self, node: NodeId) -> Result<()> {
        let loc = self.graph.loc(node).unwrap_or(self.source_info.call_site);
        let op = self.op(node).map_err(|e| e.at(loc))?;
        let arguments = self.arguments(op, node, 0, &|a| self.value(a))?;
        if let ("aten::as_strided", [Value::Tensor(t), _, _, Value::Int(_)]) =
            (op.name(), arguments.as_slice())
            && self.bindings.has_input_offset(t)
        {
            return Err(Error::from(RunError::AbsoluteOffset).at(loc));
        }
        let outputs = op.call_at(arguments, loc)?;
        let name: Arc<str> = op.name().into();
        self.set_results(node, outputs).map_err(|e| e.in_call(&name, loc))
    }

    fn op(&mut self, node: NodeId) -> Result<Op> {
        let key = self.graph.op(node).index();
        if let Some(op) = self.ops.get(&key) {
            return Ok(*op);
        }
        let op = Op::find(self.graph.op_name(node))?;
        self.ops.insert(key, op);
        Ok(op)
    }

    /// The arguments in the schema's order. `skip`: how many of the node's are not the operator's.
    pub(crate) fn arguments(
        &self,
        op: Op,
        node: NodeId,
        skip: usize,
        value: &dyn Fn(Arg) -> Result<Value>,
    ) -> Result<Args> {
        let mut args =
            self.graph.args(node).iter().skip(skip).map(|&a| value(a)).collect::<Result<Args>>()?;
        let kwargs = self.graph.kwargs(node);
        if kwargs.is_empty() {
            return Ok(args);
        }
        let schema = op.schema()?;
        for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
            let given = kwargs.iter().find(|(name, _)| self.graph.str(*name) == decl.name);
            match given {
                Some(&(_, arg)) => args.push(value(arg)?),
                None => args.push(op.default_value(index).ok_or_else(|| CallError::Missing {
                    arg: decl.name.clone(),
                    index,
                    expected: decl.ty.to_string(),
                    schema: schema.to_string(),
                })?),
            }
        }
        Ok(args)
    }

    /// Takes a node's results, if they are what the graph declares.
    pub(crate) fn set_results(&mut self, node: NodeId, outputs: Outputs) -> Result<()> {
        let results = self.graph.results(node);
        let differs = |output: usize, what: &str, expected: String, found: String| {
            Error::from(FakeError::Mismatch { output, what: what.into(), expected, found })
        };
        if results.len() != outputs.len() {
            return Err(differs(
                0,
                "the number of outputs",
                results.len().to_string(),
                outputs.len().to_string(),
            ));
        }
        for (output, (&result, value)) in results.iter().zip(outputs).enumerate() {
            let found = value.kind();
            match (result, value) {
                (Res::Absent, Value::None) => {}
                (Res::Value(v), value)
                    if !matches!(value, Value::None | Value::List(_) | Value::Ints(_)) =>
                {
                    self.set_result(node, output, v, value)?;
                }
                (Res::List(range), Value::List(l)) if l.len() == range.len() => {
                    range
                        .iter()
                        .zip(l)
                        .try_for_each(|(v, value)| self.set_result(node, output, v, value))?;
                }
                (Res::List(range), Value::Ints(l)) if l.len() == range.len() => {
                    range
                        .iter()
                        .zip(l)
                        .try_for_each(|(v, i)| self.set_result(node, output, v, Value::Int(i)))?;
                }
                (Res::List(range), Value::List(l)) => {
                    return Err(differs(
                        output,
                        "the length of the list",
                        range.len().to_string(),
                        l.len().to_string(),
                    ));
                }
                (Res::List(range), _) => {
                    return Err(differs(
                        output,
                        "the length of the list",
                        range.len().to_string(),
                        found.to_string(),
                    ));
                }
                (Res::Absent, _) => {
                    return Err(differs(output, "it", "nothing".into(), found.to_string()));
                }
                (Res::Value(v), _) => {
                    let expected = self.graph.display_type(self.graph.value_type(v)).to_string();
                    return Err(differs(output, "it", expected, found.to_string()));
                }
            }
        }
        Ok(())
    }

    fn set_result(&mut self, node: NodeId, output: usize, v: ValueId, value: Value) -> Result<()> {
        if !self.bindings.check_result(v, output, &value)? {
            self.pending_checks.push((node, output, v, value.clone()));
        }
        self.set(v, value);
        Ok(())
    }

    fn bind(
        &mut self,
        symbol: maquette_ir::sym::SymbolId,
        v: ValueId,
        source: BindSource,
    ) -> Result<()> {
        let value = match (self.get(v)?, source) {
            (Value::Tensor(t), BindSource::Size(dim)) => {
                t.sizes().get(dim as usize).and_then(|s| s.as_i64())
            }
            (Value::Int(i), BindSource::Value) => i.as_i64(),
            _ => None,
        };
        let undefined = || RunError::Undefined { value: self.graph.value_name(v).to_string() };
        let value = value.ok_or_else(undefined)?;
        let in_call = |e: Error, node: Option<NodeId>| match node {
            Some(node) => e.in_call(
                &self.graph.op_name(node).into(),
                self.graph.loc(node).unwrap_or(self.source_info.call_site),
            ),
            None => e,
        };
        self.bindings.bind(symbol, value).map_err(|e| in_call(e, self.graph.producer(v)))?;
        for (node, output, v, value) in std::mem::take(&mut self.pending_checks) {
            match self.bindings.check_result(v, output, &value) {
                Ok(true) => {}
                Ok(false) => self.pending_checks.push((node, output, v, value)),
                Err(e) => return Err(in_call(e, Some(node))),
            }
        }
        Ok(())
    }

    /// Drops what the statement was the last to need.
    fn free_unused(&mut self, at: usize, stmt: &Stmt) {
        let Interpreter { graph, values, last_use, .. } = self;
        let mut drop_if_last = |v: ValueId| {
            if last_use.get(v.index()) == Some(&at)
                && let Some(slot) = values.get_mut(v.index())
            {
                *slot = None;
            }
        };
        match *stmt {
            Stmt::Node(node) => {
                graph.for_each_operand(node, &mut drop_if_last);
                graph.result_values(node).for_each(&mut drop_if_last);
            }
            Stmt::Bind { value, .. } => drop_if_last(value),
            Stmt::Assert { .. } => {}
        }
    }
}

/// The metadata that a value of this type must have, as far as a graph says.
pub(crate) fn declared_type(graph: &Graph, v: ValueId) -> DeclaredType<'_> {
    match graph.value_type(v) {
        ValueType::Tensor(ty) => DeclaredType::Tensor(graph.type_of(ty)),
        ValueType::Int(e) => DeclaredType::Int(e),
        ValueType::Float => DeclaredType::Other("a float"),
        ValueType::Bool => DeclaredType::Other("a bool"),
        ValueType::Str => DeclaredType::Other("a string"),
    }
}
