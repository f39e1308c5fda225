//! The arguments of a node's call, with tensors in the memory of a run.

use super::TensorAt;
use maquette_invoke::{Bindings, argument_value, arguments, replace_mutated, wrong_graph};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops::Callee;
use maquette_ir::graph::{Arg, Graph, NodeId, ValueId};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Args, Error, Op, Result, Tensor, Value};
use smallvec::SmallVec;
use std::cell::RefCell;

/// The arguments of a node: constants with places for tensors, or the way to evaluate them.
pub(crate) struct NodeArguments {
    node: NodeId,
    reads: Vec<(ValueId, TensorAt)>,
    writes: Vec<TensorAt>,
    /// The arguments with a fake tensor for each of `leaves`, in order. `None` if a number among
    /// them depends on data.
    template: Option<Template>,
}

struct Template {
    args: Args,
    /// The tensors among the arguments, in order.
    leaves: SmallVec<[TensorAt; 4]>,
    /// The positions of the mutated tensors in `leaves`.
    mutated: SmallVec<[usize; 2]>,
}

/// The arguments of one call, and the tensors among them that it mutates.
pub(crate) type CallArguments = (Args, SmallVec<[Value; 2]>);

/// The value of a number that a node computed; `None` if it is not known yet.
pub(crate) type Computed<'a> = &'a dyn Fn(ValueId) -> Option<Value>;

impl NodeArguments {
    /// `reads` are the tensors that the node only reads, `writes` those that it mutates.
    ///
    /// # Errors
    /// The node does not fit the operator.
    pub fn new(
        graph: &Graph,
        bindings: &Bindings<'_>,
        op: Op,
        node: NodeId,
        reads: Vec<(ValueId, TensorAt)>,
        writes: Vec<TensorAt>,
        known: Computed<'_>,
    ) -> Result<NodeArguments> {
        let mut made = NodeArguments { node, reads, writes, template: None };
        let fakes: RefCell<Vec<(Tensor, TensorAt)>> = RefCell::default();
        let fake = |at: &TensorAt| {
            let meta = at.meta.clone().with_offset(0);
            let fake = Tensor::fake_of(meta);
            fakes.borrow_mut().push((fake.clone(), at.clone()));
            Ok(fake)
        };
        let unknown = RefCell::new(false);
        let known = |v: ValueId| {
            let value = known(v);
            *unknown.borrow_mut() |= value.is_none();
            // The arguments are not used then.
            Some(value.unwrap_or(Value::None))
        };
        let (args, mutated) = made.evaluate(graph, bindings, op, &known, &fake)?;
        if !unknown.into_inner() {
            let fakes = fakes.into_inner();
            let mut leaves = SmallVec::new();
            let mut positions: SmallVec<[usize; 2]> = SmallVec::new();
            for t in args.iter().flat_map(Value::tensors) {
                let is_mutated =
                    mutated.iter().flat_map(Value::tensors).any(|u| u.is_same_handle(t));
                positions.extend(is_mutated.then_some(leaves.len()));
                leaves
                    .extend(fakes.iter().find(|u| u.0.is_same_handle(t)).map(|(_, at)| at.clone()));
            }
            made.template = Some(Template { args, leaves, mutated: positions });
        }
        Ok(made)
    }

    /// The arguments with fake tensors, and the places of these; `None` if a number depends on
    /// data.
    pub fn template(&self) -> Option<(&Args, &[TensorAt])> {
        self.template.as_ref().map(|t| (&t.args, &t.leaves[..]))
    }

    /// The tensors among the arguments.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorAt> {
        self.reads.iter().map(|(_, at)| at).chain(&self.writes)
    }

    /// The tensors that the node mutates, in the order of its arguments.
    pub fn written(&self) -> &[TensorAt] {
        &self.writes
    }

    /// Whether the node mutates a tensor.
    pub fn mutates(&self) -> bool {
        !self.writes.is_empty()
    }

    /// The arguments of a call. `tensor` makes a handle.
    ///
    /// # Errors
    /// The error of `tensor`, or a number has no value.
    pub fn make(
        &self,
        graph: &Graph,
        bindings: &Bindings<'_>,
        op: Op,
        computed: Computed<'_>,
        tensor: &dyn Fn(&TensorAt) -> Result<Tensor>,
    ) -> Result<CallArguments> {
        let Some(template) = &self.template else {
            return self.evaluate(graph, bindings, op, computed, tensor);
        };
        let handles = template.leaves.iter().map(tensor);
        let handles = handles.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        let mut next = handles.iter();
        let mut take = || next.next().cloned().ok_or_else(|| Error::msg("a tensor is missing"));
        let mut args = Args::new();
        for arg in &template.args {
            args.push(match arg {
                Value::Tensor(_) => Value::Tensor(take()?),
                Value::List(_) => arg.map_tensors(&mut |_| take())?,
                other => other.clone(),
            });
        }
        let mutated = template.mutated.iter();
        let mut mutated: SmallVec<[Value; 2]> =
            mutated.filter_map(|&i| handles.get(i)).map(|t| Value::Tensor(t.clone())).collect();
        if fault_injected(Fault::MutatedInAnyOrder) {
            mutated.reverse();
        }
        Ok((args, mutated))
    }

    fn evaluate(
        &self,
        graph: &Graph,
        bindings: &Bindings<'_>,
        op: Op,
        computed: Computed<'_>,
        tensor: &dyn Fn(&TensorAt) -> Result<Tensor>,
    ) -> Result<CallArguments> {
        let get = |v: ValueId| -> Result<Value> {
            if graph.tensor_type(v).is_none() {
                let missing =
                    || maquette_ops::RunError::Undefined { value: graph.value_name(v).to_string() };
                return Ok(computed(v).ok_or_else(missing)?);
            }
            // A mutated tensor is replaced below.
            let read = self.reads.iter().find(|(u, _)| *u == v).map(|(_, at)| at);
            Ok(Value::Tensor(tensor(read.or(self.writes.first()).ok_or_else(wrong_graph)?)?))
        };
        let int = |e| Ok(bindings.eval(e)?.into());
        let value = |arg: Arg| argument_value(graph, arg, &get, &int);
        let callee = Callee::of(graph, self.node);
        let mut args = arguments(graph, op, self.node, callee.args, &value)?;
        let mut next = self.writes.iter();
        let mutated = replace_mutated(graph, op, self.node, &mut args, &mut |_| {
            tensor(next.next().ok_or_else(wrong_graph)?)
        })?;
        Ok((args, mutated))
    }
}
