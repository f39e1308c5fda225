//! Functional graphs in memory that a [`BufferPlan`] gives: nothing is copied but what the plan
//! copies.

use crate::functional::copy_overlapping;
use crate::interpreter::{Interpreter, SourceInfo};
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferPlan, BufferView, ResultDest, Step};
use maquette_ir::copy_cost::{Traffic, WriteModel};
use maquette_ir::graph::{Arg, Graph, NodeId, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use maquette_ir::{DType, Device};
use maquette_ops::library::Facts;
use maquette_ops::{
    AccessError, Error, ErrorKind, Op, Result, RunError, Tensor, TraceError, Value, args,
    call_writes, concrete_numel, contiguous_copy_writes, copy_writes, kwargs, mode,
};
use smallvec::SmallVec;

/// A view that no strides give.
const VIEW: &str = "ir::view";

/// What a planned run gives.
#[derive(Clone, Debug)]
pub struct BufferedOutputs {
    /// What the graph returns; nothing for tensors.
    pub results: Vec<Value>,
    /// The tensors at the places of [`BufferPlan::outputs`].
    pub outputs: Vec<Option<Tensor>>,
    /// How many elements were written.
    pub traffic: Traffic,
}

/// Runs a functional graph in the memory that a plan gives. What the plan writes to inputs and
/// constants is written.
///
/// # Errors
/// As [`run_graph`](crate::run_graph); the plan is not one of this graph.
#[track_caller]
pub fn run_planned(graph: &Graph, plan: &BufferPlan, inputs: &[Value]) -> Result<BufferedOutputs> {
    let source_info = SourceInfo::of_caller();
    if mode::is_active() {
        return Err(Error::from(TraceError::Run).at(source_info.call_site));
    }
    mode::without_modes(|| {
        let mut interpreter = Interpreter::new(graph, &source_info, false);
        interpreter.bind_inputs(inputs)?;
        BufferedInterpreter::new(interpreter, plan).run()
    })
    .map_err(|e| source_info.locate(e))
}

/// Offset, sizes and strides.
type ConcreteLayout = (i64, SmallVec<[i64; 4]>, SmallVec<[i64; 4]>);

struct BufferedInterpreter<'g> {
    interpreter: Interpreter<'g>,
    plan: &'g BufferPlan,
    /// Whose first element is the buffer's first.
    buffers: Vec<Option<Tensor>>,
    /// By buffer: what an operator returned, until it is looked at: symbols in its strides may not
    /// be bound yet.
    returned: Vec<Option<Tensor>>,
    /// By buffer: the step after which it is not needed; outputs always are.
    last: Vec<usize>,
    /// By node: its statement.
    statements: Vec<usize>,
    /// The values that symbols are bound from.
    bind_sources: Vec<ValueId>,
    traffic: Traffic,
}

impl<'g> BufferedInterpreter<'g> {
    fn new(interpreter: Interpreter<'g>, plan: &'g BufferPlan) -> BufferedInterpreter<'g> {
        let graph = interpreter.graph;
        let mut statements = vec![0; graph.node_count()];
        let mut bind_sources = Vec::new();
        for (at, stmt) in graph.body().iter().enumerate() {
            match stmt {
                Stmt::Node(node) => statements[node.index()] = at,
                Stmt::Bind { value, .. } => bind_sources.push(*value),
                Stmt::Assert { .. } => {}
            }
        }
        let mut last = vec![0; plan.buffers.len()];
        for (at, step) in plan.steps.iter().enumerate() {
            step.for_each_buffer(&mut |b: BufferId| {
                if let Some(l) = last.get_mut(b.index()) {
                    *l = at;
                }
            });
        }
        for place in plan.outputs.iter().flatten() {
            if let Some(l) = last.get_mut(place.buffer.index()) {
                *l = usize::MAX;
            }
        }
        BufferedInterpreter {
            interpreter,
            plan,
            buffers: vec![None; plan.buffers.len()],
            returned: vec![None; plan.buffers.len()],
            last,
            statements,
            bind_sources,
            traffic: Traffic::default(),
        }
    }

    fn run(mut self) -> Result<BufferedOutputs> {
        let plan = self.plan;
        for (at, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Alias { .. } => {}
                Step::Stmt(at) => {
                    let stmt = self.interpreter.graph.body().get(*at).ok_or_else(wrong_graph)?;
                    self.interpreter
                        .bind_or_assert(stmt)
                        .map_err(|e| self.interpreter.in_window(e, *at))?;
                }
                Step::Copy { from, to, .. } => self.copy(from, to)?,
                Step::Node { node, reads, writes, results } => {
                    let at = self.statements.get(node.index()).copied().ok_or_else(wrong_graph)?;
                    self.node(*node, reads, writes, results)
                        .map_err(|e| self.interpreter.in_window(e, at))?;
                }
            }
            self.free_unused(at, step);
        }
        let outputs = plan
            .outputs
            .iter()
            .map(|p| p.as_ref().map(|p| self.tensor(p)).transpose())
            .collect::<Result<_>>()?;
        let graph = self.interpreter.graph;
        let is_tensor = |a: &Arg| matches!(a, Arg::Value(v) if graph.tensor_type(*v).is_some());
        let results = graph
            .outputs()
            .iter()
            .map(|a| if is_tensor(a) { Ok(Value::None) } else { self.interpreter.value(*a) });
        Ok(BufferedOutputs {
            results: results.collect::<Result<_>>()?,
            outputs,
            traffic: self.traffic,
        })
    }

    fn eval(&self, e: Expr) -> Result<i64> {
        self.interpreter.bindings.eval_in(&self.plan.symbols, e)
    }

    /// Offset, sizes and strides.
    fn concrete_layout(&self, spec: &ViewSpec) -> Result<ConcreteLayout> {
        let sizes = spec.dims().iter().map(|d| self.eval(d.size)).collect::<Result<_>>()?;
        let strides = spec.dims().iter().map(|d| self.eval(d.stride)).collect::<Result<_>>()?;
        Ok((self.eval(spec.offset())?, sizes, strides))
    }

    /// The tensor whose first element is a buffer's first.
    fn buffer(&mut self, b: BufferId) -> Result<Tensor> {
        if let Some(Some(t)) = self.buffers.get(b.index()) {
            return Ok(t.clone());
        }
        let made = match self.plan.buffers.get(b.index()).ok_or_else(wrong_graph)? {
            Buffer::Input(i) => self.tensor_of(self.interpreter.graph.inputs().get(*i).copied())?,
            Buffer::Const(i) => {
                self.tensor_of(self.interpreter.graph.consts().get(*i).map(|c| c.value()))?
            }
            Buffer::New { dtype, device, layout } => {
                let (offset, sizes, strides) = self.concrete_layout(layout)?;
                let len = if sizes.contains(&0) {
                    0
                } else {
                    1 + offset + sizes.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<i64>()
                };
                allocate(&[len], *dtype, *device)?
            }
            Buffer::Returned(v) => {
                let missing = || RunError::Undefined {
                    value: self.interpreter.graph.value_name(*v).to_string(),
                };
                let t =
                    self.returned.get_mut(b.index()).and_then(Option::take).ok_or_else(missing)?;
                let declared = self.interpreter.with_declared_strides(*v, t.clone())?;
                if !declared.shares_storage(&t) {
                    self.traffic += Traffic::copy(concrete_numel(&t));
                }
                declared
            }
        };
        self.buffers[b.index()] = Some(made.ok()?.clone());
        Ok(made)
    }

    fn tensor_of(&self, v: Option<ValueId>) -> Result<Tensor> {
        match self.interpreter.value(Arg::Value(v.ok_or_else(wrong_graph)?))? {
            Value::Tensor(t) => Ok(t),
            _ => Err(wrong_graph()),
        }
    }

    fn tensor(&mut self, place: &BufferView) -> Result<Tensor> {
        let (offset, sizes, strides) = self.concrete_layout(&place.spec)?;
        let base = self.buffer(place.buffer)?;
        // a tensor without elements lies nowhere in particular
        let start = base.storage_offset() + if sizes.contains(&0) { 0 } else { offset };
        Ok(base.as_strided(sizes.to_vec(), strides.to_vec(), Some(start)).ok()?.clone())
    }

    fn copy(&mut self, from: &BufferView, to: &BufferView) -> Result<()> {
        let source = self.tensor(from)?;
        let target = self.tensor(to)?;
        self.traffic += copy_writes(&source, &target);
        match target.copy_(&source).ok() {
            Ok(_) => Ok(()),
            // elements that share their place are equal in every program
            Err(e)
                if matches!(e.kind(), ErrorKind::Access(AccessError::SelfOverlap { .. }))
                    && matches!(
                        self.plan.buffers.get(to.buffer.index()),
                        Some(Buffer::New { .. })
                    ) =>
            {
                let (offset, ..) = self.concrete_layout(&to.spec)?;
                self.traffic += Traffic::copy(concrete_numel(&source).saturating_mul(2));
                let made = copy_overlapping(&source, target.strides(), offset)?;
                self.buffers[to.buffer.index()] =
                    Some(made.as_strided([1i64], [1i64], Some(0.into())).ok()?.clone());
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn node(
        &mut self,
        node: NodeId,
        reads: &[(ValueId, BufferView)],
        writes: &[BufferView],
        results: &[(ValueId, ResultDest)],
    ) -> Result<()> {
        let loc =
            self.interpreter.graph.loc(node).unwrap_or(self.interpreter.source_info.call_site);
        let (name, skip) = self.interpreter.callee(node);
        let is_view = name == VIEW;
        let op = Op::find(name).map_err(|e| e.at(loc))?;
        let write_model = WriteModel::of(name, &Facts);
        let operands = reads
            .iter()
            .map(|(v, p)| Ok((*v, self.tensor(p)?)))
            .collect::<Result<SmallVec<[(ValueId, Tensor); 4]>>>()?;
        let mutated =
            writes.iter().map(|p| self.tensor(p)).collect::<Result<SmallVec<[Tensor; 2]>>>()?;
        let from = operands.first().map(|(_, t)| t.dtype());
        let cost = |t: &Tensor| {
            write_model.per_element(false, from != Some(t.dtype())).times(concrete_numel(t))
        };
        let tensor = |v: ValueId| {
            operands.iter().find(|(u, _)| *u == v).map(|(_, t)| t).or(mutated.first()).cloned()
        };
        let mut arguments = self
            .interpreter
            .arguments(op, node, skip, &|a| planned_arg(&self.interpreter, a, &tensor))?;
        if let [(_, ResultDest::Into(place))] = results {
            let out = self.tensor(place)?;
            let direct = op.call_into(arguments, &out, loc)?;
            self.traffic += cost(&out);
            self.traffic += Traffic::copy(if direct { 0 } else { concrete_numel(&out) });
            if is_view {
                self.traffic += operands
                    .first()
                    .map(|(_, base)| contiguous_copy_writes(base))
                    .unwrap_or_default();
            }
            return Ok(());
        }
        let mut next = mutated.iter();
        let mutated = self.interpreter.replace_mutated(op, node, &mut arguments, &mut |_| {
            next.next().cloned().ok_or_else(wrong_graph)
        })?;
        self.traffic += call_writes(op, &arguments, &[]);
        self.interpreter.call(op, node, arguments, mutated)?;
        for (v, made) in results {
            let ResultDest::Returned(b) = made else { return Err(wrong_graph()) };
            let t = self.tensor_of(Some(*v))?;
            self.traffic += cost(&t);
            *self.returned.get_mut(b.index()).ok_or_else(wrong_graph)? = Some(t);
        }
        for v in self.interpreter.graph.result_values(node) {
            if self.interpreter.graph.tensor_type(v).is_some() && !self.bind_sources.contains(&v) {
                self.interpreter.drop_value(v);
            }
        }
        Ok(())
    }

    /// Drops the buffers that a step was the last to need.
    fn free_unused(&mut self, at: usize, step: &Step) {
        let BufferedInterpreter { buffers, returned, last, .. } = self;
        step.for_each_buffer(&mut |b: BufferId| {
            if last.get(b.index()) == Some(&at)
                && let (Some(buffer), Some(returned)) =
                    (buffers.get_mut(b.index()), returned.get_mut(b.index()))
            {
                (*buffer, *returned) = (None, None);
            }
        });
    }
}

/// An argument, with tensors from a plan.
fn planned_arg(
    interpreter: &Interpreter<'_>,
    arg: Arg,
    tensor: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Result<Value> {
    match arg {
        Arg::Value(v) if interpreter.graph.tensor_type(v).is_some() => {
            Ok(Value::Tensor(tensor(v).ok_or_else(wrong_graph)?))
        }
        Arg::List(list)
            if interpreter
                .graph
                .list(list)
                .iter()
                .any(|a| matches!(a, Arg::Value(_) | Arg::List(_))) =>
        {
            Ok(Value::List(
                interpreter
                    .graph
                    .list(list)
                    .iter()
                    .map(|&a| planned_arg(interpreter, a, tensor))
                    .collect::<Result<_>>()?,
            ))
        }
        other => interpreter.value(other),
    }
}

/// New memory.
fn allocate(sizes: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    let made = maquette_ops::call_kw(
        "aten::empty.memory_format",
        args![sizes.to_vec()],
        kwargs![dtype = dtype, device = device],
    )?;
    match made.into_iter().next() {
        Some(Value::Tensor(t)) => Ok(t),
        _ => Err(wrong_graph()),
    }
}

fn wrong_graph() -> Error {
    Error::msg("the plan is of another graph")
}
