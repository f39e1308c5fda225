//! Executes nodes of functional graphs, whose values have no memory and no strides.
//!
//! An operator that mutates is called on copies (`ir::call`). An operator that observes strides
//! gets operands with the strides of their types, so that it computes the same bits as in the
//! original program. All other operators get whatever strides the run has produced.

use crate::copies::{copy_for_write, copy_with_strides};
use crate::frame::{Callable, Frame, ResultRules, Semantics};
use crate::metadata_check::LayoutPromise;
use maquette_ir::graph::{Arg, NodeId, ValueId};
use maquette_ir::sym::SymInt;
use maquette_ops::{Args, Error, Op, Outputs, Result, Tensor, Value};
use smallvec::SmallVec;
use std::sync::Arc;

impl Frame<'_> {
    /// Executes a node under [`Semantics::Values`](crate::frame::Semantics::Values). Mutated
    /// operands are copied. If the operator may observe strides
    /// ([`MemoryFacts::observes_strides`]), operands get the strides of their types.
    ///
    /// [`MemoryFacts::observes_strides`]: maquette_ir::graph::MemoryFacts::observes_strides
    pub(crate) fn functional_node(&mut self, node: NodeId) -> Result<()> {
        let loc = self.loc(node);
        let callee = self.callee(node);
        let Callable { op, observes_strides, .. } =
            self.callable(callee.id).map_err(|e| e.at(loc))?;
        let mut arguments = if observes_strides {
            self.arguments(op, node, callee.args, &|a| self.value_with_declared_strides(a))?
        } else {
            self.arguments(op, node, callee.args, &|a| self.value(a))?
        };
        let mutated = self.replace_mutated(op, node, &mut arguments, &mut |t| copy_for_write(t))?;
        self.call(op, node, arguments, mutated)
    }

    /// Replaces each mutated tensor among the arguments by `by(tensor)`. Returns the replacements
    /// in the order of the node's arguments.
    pub(crate) fn replace_mutated(
        &self,
        op: Op,
        node: NodeId,
        arguments: &mut Args,
        by: &mut dyn FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<SmallVec<[Value; 2]>> {
        let mut mutated = SmallVec::new();
        if !op.is_mutable() {
            return Ok(mutated);
        }
        for index in self.given_arg_indices(op, node)? {
            if let Some(argument) = arguments.get_mut(index).filter(|_| op.mutates(index)) {
                *argument = match &*argument {
                    Value::Tensor(t) => Value::Tensor(by(t)?),
                    other => other.map_tensors(by)?,
                };
                mutated.extend(argument.tensors().cloned().map(Value::Tensor));
            }
        }
        Ok(mutated)
    }

    /// Calls an operator and stores the node's results: the operator's returns, then the mutated
    /// tensors. Returns that alias a mutated argument are left out.
    pub(crate) fn call(
        &mut self,
        op: Op,
        node: NodeId,
        arguments: Args,
        mutated: SmallVec<[Value; 2]>,
    ) -> Result<()> {
        let loc = self.loc(node);
        let callee = self.callee(node);
        let name: Arc<str> = callee.op.into();
        let is_mutated = |a: usize| op.mutates(a);
        let views = |i: usize| op.return_alias(i).is_some_and(|a| !is_mutated(a));
        let returns = op.schema()?.returns.len();
        let copied = match (0..returns).any(views) {
            true => arguments.clone(),
            false => Args::new(),
        };
        let returned = |i: usize| callee.mutates && op.return_alias(i).is_some_and(is_mutated);
        let outputs = op.call_at(arguments, loc)?.into_iter().enumerate();
        let mut outputs: Outputs = outputs.filter(|(i, _)| !returned(*i)).map(|(_, v)| v).collect();
        let rules =
            ResultRules { returned: outputs.len(), promise: self.promise(node)?, copied: &copied };
        outputs.extend(mutated);
        self.set_results(node, outputs, rules).map_err(|e| e.in_call(&name, loc))
    }

    /// The part of the layout that the types of a node's results promise. If the operator observes
    /// strides, its operands have the strides of eager execution, and so must its results.
    fn promise(&mut self, node: NodeId) -> Result<LayoutPromise> {
        let callee = self.callee(node);
        let is_unknown = match self.semantics {
            Semantics::Values { unknown_strides } => unknown_strides.binary_search(&node).is_ok(),
            Semantics::Memory => false,
        };
        Ok(match self.callable(callee.id)?.observes_strides && !is_unknown {
            true => LayoutPromise::Strides,
            false => LayoutPromise::Nothing,
        })
    }

    /// The schema indices of a node's arguments, positional ones first, in the node's order.
    fn given_arg_indices(&self, op: Op, node: NodeId) -> Result<SmallVec<[usize; 6]>> {
        let positional = self.callee(node).args.len();
        let schema = op.schema()?;
        let named = self
            .graph
            .kwargs(node)
            .iter()
            .filter_map(|(name, _)| schema.arg_index(self.graph.str(*name)));
        Ok((0..positional).chain(named).collect())
    }

    /// As [`Frame::value`], with tensors copied to the strides of their types where they differ.
    fn value_with_declared_strides(&self, arg: Arg) -> Result<Value> {
        match arg {
            Arg::Value(v) => match self.value(arg)? {
                Value::Tensor(t) => Ok(Value::Tensor(self.with_declared_strides(v, t)?)),
                other => Ok(other),
            },
            Arg::List(list)
                if self
                    .graph
                    .list(list)
                    .iter()
                    .any(|a| matches!(a, Arg::Value(_) | Arg::List(_))) =>
            {
                Ok(Value::List(
                    self.graph
                        .list(list)
                        .iter()
                        .map(|&a| self.value_with_declared_strides(a))
                        .collect::<Result<_>>()?,
                ))
            }
            other => self.value(other),
        }
    }

    /// The tensor with the strides of a value's type: itself, or a copy.
    pub(crate) fn with_declared_strides(&self, v: ValueId, t: Tensor) -> Result<Tensor> {
        let Some(ty) = self.graph.tensor_type(v) else { return Ok(t) };
        let strides = ty
            .strides
            .iter()
            .map(|&e| Ok(self.bindings.eval(e)?.into()))
            .collect::<Result<SmallVec<[SymInt; 4]>, Error>>()?;
        let same = t
            .strides()
            .iter()
            .zip(&strides)
            .zip(t.sizes())
            .all(|((a, b), n)| n.as_i64() == Some(1) || a.as_i64() == b.as_i64());
        // A tensor without elements may be declared with strides that no tensor has.
        let invalid = strides.iter().any(|s| matches!(s.as_i64(), Some(..0)));
        let same = same || invalid && t.sizes().iter().any(|n| n.as_i64() == Some(0));
        if same { Ok(t) } else { copy_with_strides(&t, &strides) }
    }
}
