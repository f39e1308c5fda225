//! Builds the decomposed graph: copies statements, and records the parts of composites.

use maquette_interp::FakeValues;
use maquette_invoke::match_results;
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, GraphCopy, NodeId, Stmt, ValueId};
use maquette_ir::sym::ScopeData;
use maquette_ops::{Error, Op, Result, TraceError, Value};
use maquette_trace::CompositeRecorder;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A graph under construction. Expressions keep their ids, because its scope begins with a copy of
/// the symbol table of the original.
pub(super) struct Emitter<'g> {
    graph: &'g Graph,
    types: FakeValues<'g>,
    recorder: CompositeRecorder,
    copy: GraphCopy<'g>,
    /// The fake tensors of the values that composites use.
    operands: FxHashMap<ValueId, Value>,
}

impl<'g> Emitter<'g> {
    pub(super) fn new(graph: &'g Graph) -> Emitter<'g> {
        let types = FakeValues::new(graph, FxHashMap::default());
        let recorder = CompositeRecorder::new(graph.name(), types.scope().clone());
        let copy = recorder.build(|builder| GraphCopy::new(graph, builder));
        Emitter { graph, types, recorder, copy, operands: FxHashMap::default() }
    }

    /// Copies the statement at position `at` of the original.
    pub(super) fn copy(&mut self, at: usize, stmt: &Stmt) -> Result<()> {
        let Emitter { graph, types, recorder, copy, .. } = self;
        match *stmt {
            Stmt::Node(node) => {
                recorder.build(|builder| copy.node(builder, node)).ok_or_else(undefined)?;
            }
            Stmt::Bind { symbol, value, source } => {
                recorder.bind(symbol, copy.value(value).ok_or_else(undefined)?, source);
            }
            Stmt::Assert { cond, message } => {
                types.assume(cond);
                let message = message.map(|m| graph.str(m));
                recorder.build(|builder| builder.assert_(cond, message, graph.stmt_loc(at)));
            }
        }
        Ok(())
    }

    /// Records the calls that a composite makes, in the place of its node.
    pub(super) fn decompose(&mut self, op: Op, node: NodeId) -> Result<()> {
        let (graph, recorder) = (self.graph, &self.recorder);
        let first = recorder.build(|builder| builder.node_count());
        let mut needed: SmallVec<[ValueId; 4]> = SmallVec::new();
        graph.for_each_operand(node, |v| needed.push(v));
        for v in needed {
            if !self.operands.contains_key(&v) {
                let value = match self.types.value(v) {
                    Value::Tensor(t) => {
                        let value = self.copy.value(v).ok_or_else(undefined)?;
                        Value::Tensor(recorder.operand(t, value))
                    }
                    other => other,
                };
                self.operands.insert(v, value);
            }
        }
        let missing = || TraceError::Internal("an operand of a composite is missing");
        let operand = |v: ValueId| Ok(self.operands.get(&v).cloned().ok_or_else(missing)?);
        let args = self.types.arguments(op, node, graph.args(node), &operand)?;
        let outputs = recorder.call(op, args, graph.loc(node).unwrap_or_else(Loc::caller))?;
        let mut results: SmallVec<[(ValueId, ValueId); 2]> = SmallVec::new();
        match_results(graph, node, outputs, &mut |_, v, value| {
            results.push((v, recorder.value_of(value.tensor()?)?));
            Ok(())
        })?;
        recorder.build(|builder| {
            builder.set_info(first, graph.info(node));
            for (of, value) in results {
                if builder.is_result_since(first, value) {
                    builder.set_name(value, &graph.value_name(of).to_string());
                }
                self.copy.set(of, value);
            }
        });
        Ok(())
    }

    /// The graph.
    pub(super) fn finish(self) -> Result<Graph> {
        let Emitter { types, recorder, copy, .. } = self;
        let outputs = recorder.build(|builder| copy.outputs(builder)).ok_or_else(undefined)?;
        let ScopeData { table, .. } = types.scope().close();
        recorder.finish(&table, &outputs)
    }
}

fn undefined() -> Error {
    TraceError::Internal("a statement uses a value that nothing defines").into()
}
