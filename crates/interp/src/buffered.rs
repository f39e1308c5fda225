//! Runs functional graphs in the memory of a [`BufferPlan`]. The run makes only the plan's copies.
//!
//! Steps run in order. A buffer is allocated at its first use and dropped after its last use. Every
//! written element is counted by the rules of `ir::copy_cost`, so that tests can compare a run with
//! the plan's prediction and with eager execution.

use crate::frame::{Frame, Semantics};
use maquette_invoke::{
    Callable, ConcreteLayout, ExternalTensors, SourceInfo, concrete_layout, copy_overlapping,
    extent, replace_mutated, too_large, wrong_graph,
};
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferPlan, BufferView, ResultDest, Step};
use maquette_ir::copy_cost::{Traffic, WriteModel};
use maquette_ir::functional_ops;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{Arg, NodeId, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::library::Facts;
use maquette_ops::{
    AccessError, ErrorKind, Result, RunError, Tensor, Value, call_writes, concrete_numel,
    contiguous_copy_writes, copy_writes, mode,
};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The results of a run in planned memory.
pub(crate) struct BufferedOutputs {
    /// The graph's outputs that are not tensors; `Value::None` in place of tensors.
    pub(crate) results: Vec<Value>,
    /// The tensors in the buffer views of [`BufferPlan::outputs`].
    pub(crate) outputs: Vec<Option<Tensor>>,
    /// The number of written elements.
    pub(crate) traffic: Traffic,
}

/// Runs a functional graph in the memory of a plan. The plan includes the memory of mutated inputs
/// and constants, so that the run writes the mutations too.
pub(crate) fn run(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    external: &ExternalTensors,
    source_info: &SourceInfo<'_>,
) -> Result<BufferedOutputs> {
    let semantics = Semantics::Values { unknown_strides: &program.unknown_strides };
    let mut frame = Frame::new(&program.graph, source_info, semantics);
    frame.bind_inputs(external.graph_inputs(), external.consts())?;
    BufferedFrame::new(frame, plan).run()
}

/// The state of a run in planned memory.
struct BufferedFrame<'g> {
    frame: Frame<'g>,
    plan: &'g BufferPlan,
    /// By buffer: a tensor that starts at the buffer's first element.
    buffers: Vec<Option<Tensor>>,
    /// By buffer: a tensor that an operator returned, until its first read. Only then are all
    /// symbols of its declared strides bound.
    returned: Vec<Option<Tensor>>,
    /// By buffer: the last step that uses it; `usize::MAX` for outputs.
    last_use: Vec<usize>,
    /// By node: the index of its statement.
    statements: Vec<usize>,
    /// The values from which `bind` statements read symbols.
    bind_sources: FxHashSet<ValueId>,
    traffic: Traffic,
}

impl<'g> BufferedFrame<'g> {
    fn new(frame: Frame<'g>, plan: &'g BufferPlan) -> BufferedFrame<'g> {
        let graph = frame.graph;
        let mut statements = vec![0; graph.node_count()];
        let mut bind_sources = FxHashSet::default();
        for (at, stmt) in graph.body().iter().enumerate() {
            match stmt {
                Stmt::Node(node) => statements[node.index()] = at,
                Stmt::Bind { value, .. } => drop(bind_sources.insert(*value)),
                Stmt::Assert { .. } => {}
            }
        }
        let mut last_use = vec![0; plan.buffers.len()];
        for (at, step) in plan.steps.iter().enumerate() {
            step.for_each_buffer(&mut |b: BufferId| {
                if let Some(last) = last_use.get_mut(b.index()) {
                    *last = at;
                }
            });
        }
        for output in plan.outputs.iter().flatten() {
            if let Some(last) = last_use.get_mut(output.buffer.index()) {
                *last = usize::MAX;
            }
        }
        BufferedFrame {
            frame,
            plan,
            buffers: vec![None; plan.buffers.len()],
            returned: vec![None; plan.buffers.len()],
            last_use,
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
                    let stmt = self.frame.graph.body().get(*at).ok_or_else(wrong_graph)?;
                    self.frame
                        .bind_or_assert(*at, stmt)
                        .map_err(|e| self.frame.in_window(e, *at))?;
                }
                Step::Copy { from, to, .. } => self.copy(from, to)?,
                Step::Node { node, reads, writes, results } => {
                    let at = self.statements.get(node.index()).copied().ok_or_else(wrong_graph)?;
                    self.node(*node, reads, writes, results)
                        .map_err(|e| self.frame.in_window(e, at))?;
                }
            }
            self.free_unused(at, step);
        }
        let outputs = plan
            .outputs
            .iter()
            .map(|p| p.as_ref().map(|p| self.tensor(p)).transpose())
            .collect::<Result<_>>()?;
        let graph = self.frame.graph;
        let is_tensor = |a: &Arg| matches!(a, Arg::Value(v) if graph.tensor_type(*v).is_some());
        let results = graph
            .outputs()
            .iter()
            .map(|a| if is_tensor(a) { Ok(Value::None) } else { self.frame.value(*a) });
        Ok(BufferedOutputs {
            results: results.collect::<Result<_>>()?,
            outputs,
            traffic: self.traffic,
        })
    }

    fn eval(&self, e: Expr) -> Result<i64> {
        self.frame.bindings.eval_in(&self.plan.symbols, e)
    }

    fn concrete_layout(&self, spec: &ViewSpec) -> Result<ConcreteLayout> {
        concrete_layout(spec, &|e| self.eval(e))
    }

    /// A tensor that starts at a buffer's first element. The first use allocates the buffer.
    fn buffer(&mut self, b: BufferId) -> Result<Tensor> {
        if let Some(Some(t)) = self.buffers.get(b.index()) {
            return Ok(t.clone());
        }
        let tensor = match self.plan.buffers.get(b.index()).ok_or_else(wrong_graph)? {
            Buffer::Input(i) => self.tensor_of(self.frame.graph.inputs().get(*i).copied())?,
            Buffer::Const(i) => {
                self.tensor_of(self.frame.graph.consts().get(*i).map(|c| c.value()))?
            }
            Buffer::New { dtype, device, layout } => {
                let (offset, sizes, strides) = self.concrete_layout(layout)?;
                let len = extent(offset, &sizes, &strides).ok_or_else(too_large)?;
                mode::with_builtin_kernels(|| Tensor::empty_on([len], *dtype, *device))
            }
            Buffer::Returned(v) => {
                let missing =
                    || RunError::Undefined { value: self.frame.graph.value_name(*v).to_string() };
                let t =
                    self.returned.get_mut(b.index()).and_then(Option::take).ok_or_else(missing)?;
                let declared = self.frame.bindings.with_declared_strides(*v, t.clone())?;
                if !declared.has_storage_of(&t) {
                    self.traffic += Traffic::copy(concrete_numel(&t));
                }
                declared
            }
        };
        self.buffers[b.index()] = Some(tensor.ok()?.clone());
        Ok(tensor)
    }

    fn tensor_of(&self, v: Option<ValueId>) -> Result<Tensor> {
        match self.frame.value(Arg::Value(v.ok_or_else(wrong_graph)?))? {
            Value::Tensor(t) => Ok(t),
            _ => Err(wrong_graph()),
        }
    }

    /// The tensor of a buffer view.
    fn tensor(&mut self, view: &BufferView) -> Result<Tensor> {
        let (offset, sizes, strides) = self.concrete_layout(&view.spec)?;
        let base = self.buffer(view.buffer)?;
        let start = base.meta().offset() + offset;
        let view = || base.as_strided(sizes.to_vec(), strides.to_vec(), Some(start));
        Ok(mode::with_builtin_kernels(view).ok()?.clone())
    }

    /// Executes a copy step.
    fn copy(&mut self, from: &BufferView, to: &BufferView) -> Result<()> {
        let source = self.tensor(from)?;
        let target = self.tensor(to)?;
        match mode::with_builtin_kernels(|| target.copy_(&source).ok().map(drop)) {
            Ok(()) => {
                self.traffic += copy_writes(&source, &target, true);
                Ok(())
            }
            // The destination is an expanded or overlapping layout, which `copy_` refuses to write.
            // Elements at one position have equal values, so any write order is right.
            Err(e)
                if matches!(e.kind(), ErrorKind::Access(AccessError::SelfOverlap { .. }))
                    && matches!(
                        self.plan.buffers.get(to.buffer.index()),
                        Some(Buffer::New { .. })
                    ) =>
            {
                let (offset, ..) = self.concrete_layout(&to.spec)?;
                self.traffic += copy_writes(&source, &target, false);
                let copy = copy_overlapping(&source, target.strides(), offset)?;
                let start = || copy.as_strided([1i64], [1i64], Some(0.into()));
                self.buffers[to.buffer.index()] =
                    Some(mode::with_builtin_kernels(start).ok()?.clone());
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Executes a node on operands in planned memory. A result with a destination is computed into
    /// it; the results of other nodes are the operator's own allocations.
    fn node(
        &mut self,
        node: NodeId,
        reads: &[(ValueId, BufferView)],
        writes: &[BufferView],
        results: &[(ValueId, ResultDest)],
    ) -> Result<()> {
        let loc = self.frame.loc(node);
        let callee = self.frame.callee(node);
        let Callable { op, .. } = self.frame.callable(callee.id).map_err(|e| e.at(loc))?;
        let write_model = WriteModel::of(callee.op, &Facts);
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
            .frame
            .arguments(op, node, callee.args, &|a| planned_arg(&self.frame, a, &tensor))?;
        if let [(_, ResultDest::Into(destination))] = results {
            let out = self.tensor(destination)?;
            let direct = op.call_into(arguments, &out, loc)?;
            self.traffic += cost(&out);
            self.traffic += Traffic::copy(if direct { 0 } else { concrete_numel(&out) });
            if callee.op == functional_ops::VIEW {
                self.traffic += operands
                    .first()
                    .map(|(_, base)| contiguous_copy_writes(base))
                    .unwrap_or_default();
            }
            return Ok(());
        }
        let mut next = mutated.iter();
        let graph = self.frame.graph;
        let mutated = replace_mutated(graph, op, node, &mut arguments, &mut |_| {
            next.next().cloned().ok_or_else(wrong_graph)
        })?;
        self.traffic += call_writes(op, &arguments, &[]);
        self.frame.call(op, node, arguments, mutated)?;
        for (v, destination) in results {
            let ResultDest::Returned(b) = destination else { return Err(wrong_graph()) };
            let t = self.tensor_of(Some(*v))?;
            self.traffic += cost(&t);
            *self.returned.get_mut(b.index()).ok_or_else(wrong_graph)? = Some(t);
        }
        for v in self.frame.graph.result_values(node) {
            if self.frame.graph.tensor_type(v).is_some() && !self.bind_sources.contains(&v) {
                self.frame.drop_value(v);
            }
        }
        Ok(())
    }

    /// Drops the buffers whose last use is this step.
    fn free_unused(&mut self, at: usize, step: &Step) {
        let BufferedFrame { buffers, returned, last_use, .. } = self;
        step.for_each_buffer(&mut |b: BufferId| {
            if last_use.get(b.index()) == Some(&at)
                && let (Some(buffer), Some(returned)) =
                    (buffers.get_mut(b.index()), returned.get_mut(b.index()))
            {
                (*buffer, *returned) = (None, None);
            }
        });
    }
}

/// The value of an argument, with tensors from `tensor` instead of the frame.
fn planned_arg(
    frame: &Frame<'_>,
    arg: Arg,
    tensor: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Result<Value> {
    match arg {
        Arg::Value(v) if frame.graph.tensor_type(v).is_some() => {
            Ok(Value::Tensor(tensor(v).ok_or_else(wrong_graph)?))
        }
        Arg::List(list)
            if frame.graph.list(list).iter().any(|a| matches!(a, Arg::Value(_) | Arg::List(_))) =>
        {
            Ok(Value::List(
                frame
                    .graph
                    .list(list)
                    .iter()
                    .map(|&a| planned_arg(frame, a, tensor))
                    .collect::<Result<_>>()?,
            ))
        }
        other => frame.value(other),
    }
}
