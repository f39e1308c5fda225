//! The steps of operators: launches of kernels, and calls.

use super::launches::placed;
use super::{Builder, fake, planned_buffers};
use crate::instance::kernel_call::expected_returns;
use crate::instance::{
    Call, External, KernelCall, Launch, LaunchSource, LaunchedNode, NodeArguments, Step, TensorAt,
};
use maquette_invoke::metadata_check::LayoutPromise;
use maquette_invoke::{Callable, NodeReturns};
use maquette_ir::buffer_plan::{BufferId, BufferView, ResultDest};
use maquette_ir::functional_ops::Callee;
use maquette_ir::functional_program::ExternalTensor;
use maquette_ir::graph::{Def, NodeId, ValueId, ValueType};
use maquette_ops::{Op, PreparedCall, Result, Tensor, Value};
use smallvec::SmallVec;

impl Builder<'_> {
    /// Makes the steps of a node: a launch, if its kernel and its memory are known, else a call.
    ///
    /// # Errors
    /// The plan belongs to another graph, or there is no such operator.
    pub(super) fn node(
        &mut self,
        node: NodeId,
        at: usize,
        reads: &[(ValueId, BufferView)],
        writes: &[BufferView],
        results: &[(ValueId, ResultDest)],
    ) -> Result<()> {
        let graph = self.graph;
        let loc = graph.loc(node);
        let callee = Callee::of(graph, node);
        let found = Callable::find(graph, callee.id);
        let Callable { op, observes_strides, .. } = found.map_err(|e| match loc {
            Some(loc) => e.at(loc),
            None => e,
        })?;
        let reads = reads
            .iter()
            .map(|(v, view)| Ok((*v, self.tensor(view)?)))
            .collect::<Result<Vec<(ValueId, TensorAt)>>>()?;
        let writes = self.tensors(writes)?;
        let known = |v: ValueId| self.known_number(v);
        let arguments = NodeArguments::new(graph, &self.bindings, op, node, reads, writes, &known)?;
        let is_unknown = self.planned.program.unknown_strides.binary_search(&node).is_ok();
        let promise = match observes_strides && !is_unknown {
            true => LayoutPromise::Strides,
            false => LayoutPromise::Nothing,
        };
        let targets = results.iter().map(|(v, to)| self.target(*v, to));
        let targets = targets.collect::<Result<Vec<Option<TensorAt>>>>()?;
        let mut targets = targets.into_iter().collect::<Option<Vec<TensorAt>>>();
        let returns = |(_, to): &(ValueId, ResultDest)| matches!(to, ResultDest::Returned(_));
        let keeps_promise = |call: &PreparedCall| {
            promise == LayoutPromise::Nothing
                || call.has_own_strides()
                || !results.iter().any(returns)
        };
        if let (Some(targets), Some((args, leaves)), false) =
            (&targets, arguments.template(), arguments.mutates())
            && let fakes = targets.iter().map(fake).collect::<SmallVec<[Tensor; 2]>>()
            && let Some(call) = op.prepare(args.clone(), &fakes).filter(keeps_promise)
            && let Some((call, places)) =
                placed(call.with_origin(graph.called_op(node).into(), loc), leaves, targets)
        {
            if !call.is_empty() {
                let writes = planned_buffers(self.planned, targets);
                let node = Box::new(LaunchedNode { at, loc, op, arguments, writes });
                let launch = Launch::new(call, places, LaunchSource::Node(node));
                self.steps.push(Step::Launch(Box::new(launch)));
            }
            return Ok(());
        }
        self.discard_targets(results);
        let into = match results {
            [(_, ResultDest::Into(_))] => targets.as_mut().and_then(Vec::pop),
            _ => None,
        };
        let mut returned = SmallVec::new();
        for (v, destination) in results {
            if let ResultDest::Returned(b) = destination {
                returned.push((*v, *b));
            }
        }
        self.lends_memory = true;
        let mut lent = self.own_bases(&arguments);
        if let Some(target) = &into
            && !lent.contains(&target.base)
        {
            lent.push(target.base);
        }
        let returns = NodeReturns::of(graph, op, node)?;
        let kernel = self.kernel_call(op, &arguments, node, &returns, &returned);
        let name = callee.op.into();
        let call = Call {
            node,
            at,
            loc,
            op,
            name,
            arguments,
            into,
            returns,
            promise,
            returned,
            lent,
            kernel,
        };
        self.steps.push(Step::Call(Box::new(call)));
        Ok(())
    }

    /// The call of a node without the dispatcher, if there is one.
    fn kernel_call(
        &mut self,
        op: Op,
        arguments: &NodeArguments,
        node: NodeId,
        returns: &NodeReturns,
        returned: &[(ValueId, BufferId)],
    ) -> Option<Box<KernelCall>> {
        let mut call = KernelCall::new(op, arguments, self.kept_calls)?;
        self.kept_calls += 1;
        let binds = |v: ValueId| self.planned.bind_sources.contains(&v);
        let bindings = &self.bindings;
        call.returns = expected_returns(self.graph, bindings, node, returns, returned, binds);
        Some(Box::new(call))
    }

    /// The bases of the tensors among arguments that only the run may access.
    fn own_bases(&self, arguments: &NodeArguments) -> SmallVec<[u32; 2]> {
        let mut bases: SmallVec<[u32; 2]> = SmallVec::new();
        for at in arguments.tensors() {
            let buffer = BufferId(at.base);
            let is_own = match self.external(buffer) {
                Some(External::Input(i)) => self.planned.writes(self.planned.input(i)),
                Some(External::Const(i)) => self.planned.writes(ExternalTensor::Const(i)),
                None => true,
            };
            if is_own && !bases.contains(&at.base) {
                bases.push(at.base);
            }
        }
        bases
    }

    /// The value of a number, if it does not depend on data, or its symbol is bound.
    pub(super) fn known_number(&self, v: ValueId) -> Option<Value> {
        match self.graph.def(v) {
            Def::Input(i) => self.inputs.get(i as usize).cloned(),
            Def::Const(_) => None,
            Def::Node(_) => match self.graph.value_type(v) {
                ValueType::Int(e) => self.bindings.eval(e).ok().map(Value::from),
                _ => None,
            },
        }
    }
}
