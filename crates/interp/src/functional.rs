//! Executes nodes of functional graphs, whose values have no memory and no strides.
//!
//! An operator that mutates is called on copies (`ir::call`). An operator that observes strides
//! gets operands with the strides of their types, so that it computes the same bits as in the
//! original program. All other operators get whatever strides the run has produced.

use crate::frame::{Frame, Semantics};
use maquette_invoke::metadata_check::LayoutPromise;
use maquette_invoke::{
    Callable, NodeResults, NodeReturns, ResultRules, copy_for_write, replace_mutated,
};
use maquette_ir::graph::{Arg, NodeId};
use maquette_ops::{Args, Op, Result, Value};
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
        let mutated =
            replace_mutated(self.graph, op, node, &mut arguments, &mut |t| copy_for_write(t))?;
        self.call(op, node, arguments, mutated)
    }

    /// Calls an operator and stores the node's results.
    pub(crate) fn call(
        &mut self,
        op: Op,
        node: NodeId,
        arguments: Args,
        mutated: SmallVec<[Value; 2]>,
    ) -> Result<()> {
        let loc = self.loc(node);
        let name: Arc<str> = self.callee(node).op.into();
        let returns = NodeReturns::of(self.graph, op, node)?;
        let results = returns.call(op, arguments, mutated, loc)?;
        returns
            .check_views(self.graph, &self.bindings, node, &results)
            .map_err(|e| e.in_call(&name, loc))?;
        let NodeResults { outputs, returned, arguments: copied } = results;
        let rules = ResultRules { returned, promise: self.promise(node)?, copied: &copied };
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

    /// As [`Frame::value`], with tensors copied to the strides of their types where they differ.
    fn value_with_declared_strides(&self, arg: Arg) -> Result<Value> {
        match arg {
            Arg::Value(v) => match self.value(arg)? {
                Value::Tensor(t) => Ok(Value::Tensor(self.bindings.with_declared_strides(v, t)?)),
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
}
