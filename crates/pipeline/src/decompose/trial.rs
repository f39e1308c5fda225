//! The trial of a composite: whether it can be decomposed.

use super::KeptReason;
use maquette_interp::FakeValues;
use maquette_invoke::match_results;
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, NodeId, ValueId, ValueType};
use maquette_ir::sym::{BoolExpr, Expr, Scope, SymInt};
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::{Args, Error, Op, Outputs, Result, Tensor, Value};
use maquette_trace::CompositeRecorder;
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// Calls composites on fake tensors, and records nothing of them in the graph.
pub(super) struct Trial<'g> {
    graph: &'g Graph,
    /// The assertions before the current node.
    asserted: Vec<BoolExpr>,
    /// `None` after a composite has changed the scope.
    values: Option<FakeValues<'g>>,
}

/// What a composite may not add to the scope.
#[derive(PartialEq)]
struct ScopeSize {
    guards: usize,
    assertions: usize,
    symbols: usize,
}

impl ScopeSize {
    fn of(scope: &Scope) -> ScopeSize {
        scope.with(|data| ScopeSize {
            guards: data.guards.len(),
            assertions: data.assertions.len(),
            symbols: data.table.symbols().count(),
        })
    }
}

impl<'g> Trial<'g> {
    pub(super) fn new(graph: &'g Graph) -> Trial<'g> {
        Trial { graph, asserted: Vec::new(), values: None }
    }

    /// Makes an assertion hold from here on.
    pub(super) fn assume(&mut self, condition: BoolExpr) {
        self.asserted.push(condition);
        if let Some(values) = &self.values {
            values.assume(condition);
        }
    }

    /// Calls a composite on trial.
    ///
    /// # Errors
    /// Why it cannot be decomposed.
    pub(super) fn run(&mut self, op: Op, node: NodeId) -> std::result::Result<(), KeptReason> {
        let values = match self.values.take() {
            Some(values) => values,
            None => {
                let values = FakeValues::new(self.graph, FxHashMap::default());
                self.asserted.iter().for_each(|&condition| values.assume(condition));
                values
            }
        };
        if values.has_unknown_operand(node) {
            self.values = Some(values);
            return Err(KeptReason::UnknownArgument);
        }
        let before = ScopeSize::of(values.scope());
        let outputs = self.call(&values, op, node);
        let after = ScopeSize::of(values.scope());
        // A decision has no example value here, so it fails instead of becoming a guard.
        let kept = match outputs {
            Err(e) => Some(KeptReason::Undecided(e.kind().to_string())),
            Ok(_) if after.symbols > before.symbols => Some(KeptReason::SizeFromData),
            Ok(_) if after.assertions > before.assertions => Some(values.scope().with(|data| {
                let last = data.assertions.last();
                let text = last.map(|a| data.table.display_bool(a.cond).to_string());
                KeptReason::Asserts(text.unwrap_or_default())
            })),
            Ok((args, outputs)) => self
                .compare_aliases(op, node, &args, &outputs)
                .and_then(|()| self.compare(&values, node, outputs))
                .err()
                .map(|e| KeptReason::Results(e.kind().to_string())),
        };
        if after == before {
            self.values = Some(values);
        }
        kept.map_or(Ok(()), Err)
    }

    /// The arguments and results of a call.
    fn call(&self, values: &FakeValues<'_>, op: Op, node: NodeId) -> Result<(Args, Outputs)> {
        let graph = self.graph;
        let recorder = CompositeRecorder::new("trial", values.scope().clone());
        let operands: RefCell<FxHashMap<ValueId, Value>> = RefCell::default();
        let operand = |v: ValueId| -> Result<Value> {
            if let Some(known) = operands.borrow().get(&v) {
                return Ok(known.clone());
            }
            let value = match values.value(v) {
                Value::Tensor(t) => {
                    let name = graph.value_name(v).to_string();
                    Value::Tensor(recorder.input(t, &name)?)
                }
                other => other,
            };
            operands.borrow_mut().insert(v, value.clone());
            Ok(value)
        };
        let args = values.arguments(op, node, graph.args(node), &operand)?;
        let outputs =
            recorder.call(op, args.clone(), graph.loc(node).unwrap_or_else(Loc::caller))?;
        Ok((args, outputs))
    }

    /// Requires results to be views of arguments exactly where the schema and the node say so: a
    /// result of a node marked as `copy` is none.
    fn compare_aliases(&self, op: Op, node: NodeId, args: &Args, outputs: &Outputs) -> Result<()> {
        for (i, output) in outputs.iter().enumerate() {
            let shares = |v: &Value| {
                v.tensors().any(|t| output.tensors().any(|result| result.has_storage_of(t)))
            };
            let viewed = op.return_alias(i);
            let other = args.iter().enumerate().any(|(a, v)| Some(a) != viewed && shares(v));
            maquette_ops::ensure!(!other, "result {i} shares memory with an argument");
            let Some(viewed) = viewed.and_then(|a| args.get(a)) else { continue };
            let is_copy = output.tensors().next().is_some() && !shares(viewed);
            let [found, declared] = [is_copy, self.graph.copies(node)]
                .map(|copy| if copy { "a copy" } else { "a view" });
            maquette_ops::ensure!(found == declared, "result {i} is {found} instead of {declared}");
        }
        Ok(())
    }

    /// Requires the results of a composite to have the types that the graph declares.
    fn compare(&self, values: &FakeValues<'_>, node: NodeId, outputs: Outputs) -> Result<()> {
        let scope = values.scope();
        let is = |found: SymInt, declared: Expr| {
            found.eq(scope.lift(declared)).statically_known() == Some(true)
        };
        let all = |found: &[SymInt], declared: &[Expr]| {
            found.len() == declared.len() && found.iter().zip(declared).all(|(&f, &d)| is(f, d))
        };
        match_results(self.graph, node, outputs, &mut |output, v, value| {
            let agrees = |t: &Tensor| match self.graph.value_type(v) {
                ValueType::Tensor(ty) => {
                    let (ty, meta) = (self.graph.type_of(ty), t.meta());
                    (meta.dtype, meta.device, meta.layout) == (ty.dtype, ty.device, ty.layout)
                        && all(&meta.sizes, &ty.sizes)
                        && all(&meta.strides, &ty.strides)
                        && is(meta.offset(), ty.offset)
                }
                _ => false,
            };
            match &value {
                Value::Tensor(t) if agrees(t) => Ok(()),
                other => {
                    let declared = self.graph.display_type(self.graph.value_type(v));
                    let found = match other {
                        Value::Tensor(t) => t.meta().to_string(),
                        other => other.kind().to_string(),
                    };
                    let text = format!("result {output} is {found} instead of {declared}");
                    Err(Error::msg(text))
                }
            }
        })
    }
}
