//! Runs of an instance: fills in the addresses of the bases, and walks the steps.
//!
//! Safety of this module. A launch is given addresses in memory that this run alone accesses, or
//! only reads together with others:
//!
//! - Inputs and constants are borrowed for the whole run, exclusively if the program mutates them.
//!   Their layouts, and so their extents, are those for which the instance was made.
//! - Outputs that the caller gives are borrowed exclusively, and share memory with nothing else.
//! - Arenas, new outputs and returned tensors belong to the run. Kernels get handles that carry the
//!   rights of one call, and are refused after it. A guard or a run that outlives the call ends the
//!   run, before another step accesses the memory.
//!
//! The builder of the instance has checked that every place is inside its buffer, and that no
//! result overlaps an operand, except as the kernel supports.
#![allow(unsafe_code)]

mod errors;
mod kernel_call;
mod late;
mod memory;
mod weights;

use late::LateErrors;
use memory::Base;
pub(crate) use memory::RunMemory;

use crate::instance::{
    Call, CallArguments, End, Instance, Launch, NodeArguments, RegionByNodes, Returns, Segment,
    Step, TensorAt,
};
use crate::outputs::OutputSlots;
use crate::planned::Planned;
use maquette_device::{Address, FailureSlot};
use maquette_invoke::{
    Bindings, ExternalTensors, NodeResults, OutputBuilder, PendingCheck, ResultRules, SourceInfo,
    SymbolValues, argument_value, bound_number, in_window, match_results, with_strides,
    wrong_graph,
};
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::graph::{Graph, NodeId, ValueId};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{AccessError, Error, Op, Outputs, Result, RunError, Tensor, Value, mode};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

struct Run<'a> {
    planned: &'a Planned,
    graph: &'a Graph,
    inputs: &'a [Value],
    external: &'a ExternalTensors,
    memory: &'a mut RunMemory,
    source_info: &'a SourceInfo<'a>,
    /// What the caller gives for outputs.
    outputs: &'a OutputSlots,
    pending_checks: Vec<PendingCheck>,
    /// The storages that the program writes, by address.
    written: SmallVec<[usize; 4]>,
    /// How late errors are found, on a device that has them.
    late: Option<LateErrors>,
}

/// What sees the steps of a run. That of every call is `()`, and costs nothing.
pub(crate) trait StepObserver {
    /// Called before the first step of a segment.
    fn begin_segment(&mut self, planned: &Planned, segment: &Segment);
    /// Called after a step, by its position in the segment.
    ///
    /// # Errors
    /// The observer waits for the device, and a command has failed.
    fn end_step(&mut self, step: usize) -> Result<()>;
}

impl StepObserver for () {
    #[inline(always)]
    fn begin_segment(&mut self, _: &Planned, _: &Segment) {}

    #[inline(always)]
    fn end_step(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// Runs an instance on inputs of its layouts. Returns the program's outputs; none of them if the
/// caller gives tensors for them.
pub(crate) fn run_instance(
    planned: &Planned,
    instance: &Instance,
    external: &ExternalTensors,
    memory: &mut RunMemory,
    source_info: &SourceInfo<'_>,
    observer: &mut impl StepObserver,
) -> Result<Vec<Value>> {
    let graph = &planned.program.graph;
    memory.begin_run(planned.plan.buffers.len(), graph.values().len());
    let (inputs, pending_checks) = (external.graph_inputs(), Vec::new());
    let written = planned.written_storages(external)?;
    let outputs = &instance.outputs;
    let mut run = Run {
        planned,
        graph,
        inputs,
        external,
        memory,
        source_info,
        outputs,
        pending_checks,
        written,
        late: LateErrors::of_run(planned.device, source_info),
    };
    let mut segment: Arc<Segment> = instance.first.clone();
    loop {
        run.enter(&segment)?;
        observer.begin_segment(planned, &segment);
        for (index, step) in segment.steps.iter().enumerate() {
            run.step(&segment, step)?;
            observer.end_step(index)?;
        }
        match &segment.end {
            End::Return(returns) => {
                let given = external.outputs();
                if given.is_empty() {
                    return run.outputs(&segment, returns);
                }
                if !outputs.are_in_place(given) {
                    outputs.copy(&run.outputs(&segment, returns)?, given)?;
                }
                return Ok(Vec::new());
            }
            End::Bind { .. } => segment = run.bind(&segment)?,
        }
    }
}

impl Run<'_> {
    fn bindings<'b>(&'b self, segment: &'b Segment) -> Bindings<'b> {
        Bindings::resume(self.graph, self.source_info.input_names, &segment.known)
    }

    fn step(&mut self, segment: &Segment, step: &Step) -> Result<()> {
        match step {
            Step::Launch(launch) if self.late.is_some() => self.launch_late(segment, launch),
            Step::Launch(launch) => self.launch(segment, launch, None),
            Step::Region(region) => {
                self.wait_for_launches()?;
                self.region_by_nodes(segment, region)
            }
            Step::Call(call) => {
                self.wait_for_launches()?;
                self.call(segment, call).map_err(|e| in_window(self.graph, e, call.at))
            }
            Step::Copy { tensors, shares_elements } => {
                self.wait_for_launches()?;
                let [from, to] = &**tensors;
                let bases = [from.base, to.base];
                let (from, to) = (self.tensor(segment, from)?, self.tensor(segment, to)?);
                match shares_elements {
                    true => to.copy_shared_elements_(&from)?,
                    false => mode::with_builtin_kernels(|| to.copy_(&from).ok().map(drop))?,
                }
                let own: SmallVec<[u32; 2]> =
                    bases.into_iter().filter(|base| self.is_arena(*base)).collect();
                self.check_returned(&own)
            }
            Step::Adopt { buffer, value, strides } => self.adopt(*buffer, *value, strides),
            Step::Release(buffer) => {
                if let Some(base) = self.memory.bases.get_mut(buffer.index()) {
                    *base = Base::default();
                }
                Ok(())
            }
            Step::Fail(e) => Err(e.clone()),
        }
    }

    /// Runs the operators of a region, and copies the results to their places. All operands are
    /// read by then.
    fn region_by_nodes(&mut self, segment: &Segment, by_nodes: &RegionByNodes) -> Result<()> {
        let results = self.region_results(segment, &by_nodes.region)?;
        for (result, at) in results.iter().zip(&by_nodes.targets) {
            let to = self.tensor(segment, at)?;
            mode::with_builtin_kernels(|| to.copy_(result).ok().map(drop))?;
        }
        let bases = by_nodes.region.operands.iter().chain(&by_nodes.targets).map(|at| at.base);
        let own: SmallVec<[u32; 8]> = bases.filter(|base| self.is_arena(*base)).collect();
        self.check_returned(&own)
    }

    /// Enqueues a launch. The slot is for its error, on a device that reports errors late.
    fn launch(
        &mut self,
        segment: &Segment,
        launch: &Launch,
        slot: Option<&Arc<FailureSlot>>,
    ) -> Result<()> {
        let mut addresses: SmallVec<[Address; 16]> = SmallVec::new();
        for place in &launch.places {
            let base = self.memory.bases.get_mut(place.base as usize).ok_or_else(wrong_graph)?;
            addresses.push(base.address()?.moved(place.start));
        }
        // SAFETY: see the module.
        let launched = match launch.weights.is_empty() {
            true => unsafe { launch.call.launch(&addresses, &[], slot) },
            false => self.launch_packed(launch, &addresses, slot),
        };
        launched.map_err(|e| self.launch_error(segment, launch, e))
    }

    /// The arguments of a call, with handles.
    fn arguments(
        &mut self,
        segment: &Segment,
        op: Op,
        arguments: &NodeArguments,
    ) -> Result<CallArguments> {
        let graph = self.graph;
        let bindings = Bindings::resume(graph, self.source_info.input_names, &segment.known);
        let run = RefCell::new(self);
        let tensor = |at: &TensorAt| run.borrow_mut().tensor(segment, at);
        let computed = |v: ValueId| run.borrow().computed(v);
        arguments.make(graph, &bindings, op, &computed, &tensor)
    }

    fn computed(&self, v: ValueId) -> Option<Value> {
        self.memory.values.get(v.index())?.clone()
    }

    fn call(&mut self, segment: &Segment, call: &Call) -> Result<()> {
        if let Some(kernel) = &call.kernel {
            return self.call_kernel(segment, call, kernel);
        }
        let loc = call.loc.unwrap_or(self.source_info.call_site);
        let (args, mutated) = self.arguments(segment, call.op, &call.arguments)?;
        if let Some(into) = &call.into {
            let out = self.tensor(segment, into)?;
            call.op.call_into(args, &out, loc)?;
            return self.check_returned(&call.lent).map_err(|e| e.in_call(&call.name, loc));
        }
        let results = call.returns.call(call.op, args, mutated, loc)?;
        self.check_returned(&call.lent).map_err(|e| e.in_call(&call.name, loc))?;
        call.returns
            .check_views(self.graph, &self.bindings(segment), call.node, &results)
            .map_err(|e| e.in_call(&call.name, loc))?;
        let NodeResults { outputs, returned, arguments } = results;
        let rules = ResultRules { returned, promise: call.promise, copied: &arguments };
        self.set_results(segment, call, outputs, rules).map_err(|e| e.in_call(&call.name, loc))
    }

    fn is_arena(&self, base: u32) -> bool {
        base as usize >= self.planned.plan.buffers.len()
    }

    /// Checks memory that only the run may access after a call got handles to it: launches access
    /// it without looking.
    ///
    /// # Errors
    /// Something still accesses it, or a write to it failed and the kernel discarded the error.
    fn check_returned(&self, bases: &[u32]) -> Result<()> {
        for base in bases {
            let base = self.memory.bases.get(*base as usize);
            if let Some(tensor) = base.and_then(|base| base.tensor.as_ref()) {
                if tensor.is_accessed() {
                    return Err(AccessError::KeptGuard.into());
                }
                tensor.ok()?;
            }
        }
        Ok(())
    }

    fn set_results(
        &mut self,
        segment: &Segment,
        call: &Call,
        outputs: Outputs,
        rules: ResultRules<'_>,
    ) -> Result<()> {
        let graph = self.graph;
        match_results(graph, call.node, outputs, &mut |output, v, value| {
            let bindings = self.bindings(segment);
            let value = rules.stored(graph, &bindings, output, v, value)?;
            let promise = rules.promise_of(output);
            if !bindings.check_result(v, output, &value, promise)? {
                let (node, value) = (call.node, value.clone());
                self.pending_checks.push(PendingCheck { node, output, v, value, promise });
            }
            let buffer = call.returned.iter().find(|(u, _)| *u == v).map(|(_, b)| *b);
            match (&value, buffer) {
                (Value::Tensor(t), Some(b)) => self.set_returned(b, v, t.clone())?,
                (Value::Tensor(t), None) => self.set_bind_source(v, t),
                (number, _) => self.set_value(v, number.clone()),
            }
            Ok(())
        })
    }

    /// Stores a returned tensor until its first read, when all symbols of its strides are bound.
    fn set_returned(&mut self, b: BufferId, v: ValueId, t: Tensor) -> Result<()> {
        self.set_bind_source(v, &t);
        self.set_base(b.0, t)
    }

    /// Keeps the sizes of a tensor for a symbol that they bind.
    fn set_bind_source(&mut self, v: ValueId, t: &Tensor) {
        if self.planned.bind_sources.contains(&v) {
            self.set_value(v, Value::Tensor(Tensor::fake_of(t.meta().clone())));
        }
    }

    fn set_value(&mut self, v: ValueId, value: Value) {
        if let Some(slot) = self.memory.values.get_mut(v.index()) {
            *slot = Some(value);
        }
    }

    fn adopt(&mut self, buffer: BufferId, value: ValueId, strides: &[i64]) -> Result<()> {
        let undefined = || RunError::Undefined { value: self.graph.value_name(value).to_string() };
        let base = self.memory.bases.get_mut(buffer.index());
        if base.as_ref().is_some_and(|base| base.has_declared_strides) {
            return Ok(());
        }
        let base = base.and_then(|base| base.tensor.take());
        let tensor = base.ok_or_else(undefined)?;
        self.set_base(buffer.0, with_strides(tensor, strides)?)
    }

    /// Binds the symbol at the end of a segment. Returns the next segment.
    fn bind(&mut self, segment: &Segment) -> Result<Arc<Segment>> {
        let End::Bind { symbol, value, source, at, .. } = &segment.end else {
            return Err(wrong_graph());
        };
        let bind = || -> Result<Arc<Segment>> {
            let undefined =
                || RunError::Undefined { value: self.graph.value_name(*value).to_string() };
            let given = match self.graph.def(*value) {
                maquette_ir::graph::Def::Input(i) => self.inputs.get(i as usize).cloned(),
                maquette_ir::graph::Def::Const(i) => {
                    self.external.consts().get(i as usize).cloned().map(Value::Tensor)
                }
                maquette_ir::graph::Def::Node(_) => self.computed(*value),
            };
            let given = given.ok_or_else(undefined)?;
            let number = bound_number(self.graph, *value, &given, *source)?;
            let known = || -> Result<SymbolValues> {
                let mut bindings = self.bindings(segment);
                bindings
                    .bind(*symbol, number)
                    .map_err(|e| self.in_producer(e, self.graph.producer(*value)))?;
                Ok(bindings.into_values())
            };
            let consts = self.external.consts();
            segment.next(self.planned, self.inputs, consts, number, known, self.source_info)
        };
        let next = bind().map_err(|e| in_window(self.graph, e, *at))?;
        for check in std::mem::take(&mut self.pending_checks) {
            let PendingCheck { node, output, v, ref value, promise } = check;
            match self.bindings(&next).check_result(v, output, value, promise) {
                Ok(true) => {}
                Ok(false) => self.pending_checks.push(check),
                Err(e) => return Err(in_window(self.graph, self.in_producer(e, Some(node)), *at)),
            }
        }
        Ok(next)
    }

    fn in_producer(&self, e: Error, node: Option<NodeId>) -> Error {
        let Some(node) = node else { return e };
        let loc = self.graph.loc(node).unwrap_or(self.source_info.call_site);
        e.in_call(&self.graph.called_op(node).into(), loc)
    }

    fn outputs(&mut self, segment: &Segment, returns: &Returns) -> Result<Vec<Value>> {
        let mut planned = std::mem::take(&mut self.memory.planned);
        for at in &returns.planned {
            planned.push(at.as_ref().map(|at| self.tensor(segment, at)).transpose()?);
        }
        let results = match returns.computed.is_empty() {
            true => Cow::Borrowed(&returns.results[..]),
            false => Cow::Owned(self.computed_results(segment, returns)?),
        };
        let mut builder = OutputBuilder::new(&results, self.external, &planned);
        let outputs = self.planned.program.outputs.iter().map(|o| builder.output(o)).collect();
        planned.clear();
        self.memory.planned = planned;
        outputs
    }

    /// The results of the graph, with the numbers that operators computed.
    fn computed_results(&self, segment: &Segment, returns: &Returns) -> Result<Vec<Value>> {
        let bindings = self.bindings(segment);
        let get = |v: ValueId| {
            let undefined = || RunError::Undefined { value: self.graph.value_name(v).to_string() };
            Ok(self.computed(v).ok_or_else(undefined)?)
        };
        let int = |e| Ok(bindings.eval(e)?.into());
        let mut results = returns.results.clone();
        for &(at, arg) in &returns.computed {
            if let Some(result) = results.get_mut(at) {
                *result = argument_value(self.graph, arg, &get, &int)?;
            }
        }
        Ok(results)
    }
}
