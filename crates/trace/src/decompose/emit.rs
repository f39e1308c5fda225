//! Builds the decomposed graph: copies statements, and records the parts of composites.

use crate::options::TraceOptions;
use crate::record::Recorder;
use crate::tracer::Tracer;
use maquette_interp::{FakeValues, match_results};
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, GraphCopy, NodeId, Stmt, ValueId};
use maquette_ir::sym::ScopeData;
use maquette_ops::{Error, Op, Result, TraceError, TraceTag, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::rc::Rc;

/// A graph under construction. Expressions keep their ids, because its scope begins with a copy of
/// the symbol table of the original.
pub(super) struct Emitter<'g> {
    graph: &'g Graph,
    types: FakeValues<'g>,
    tracer: Rc<Tracer>,
    copy: GraphCopy<'g>,
    /// The fake tensors of the values that composites use.
    operands: FxHashMap<ValueId, Value>,
}

impl<'g> Emitter<'g> {
    pub(super) fn new(graph: &'g Graph) -> Emitter<'g> {
        let types = FakeValues::new(graph, FxHashMap::default());
        let tag = TraceTag::new(graph.name());
        let recorder = Recorder::new(graph.name(), types.scope().clone(), tag.clone());
        let tracer = Tracer::new(tag, types.scope().clone(), recorder, None, &TraceOptions::new());
        let copy = GraphCopy::new(graph, &mut tracer.recorder().builder);
        Emitter { graph, types, tracer, copy, operands: FxHashMap::default() }
    }

    /// Copies the statement at position `at` of the original.
    pub(super) fn copy(&mut self, at: usize, stmt: &Stmt) -> Result<()> {
        let tracer = self.tracer.clone();
        let mut recorder = tracer.recorder();
        match *stmt {
            Stmt::Node(node) => {
                self.copy.node(&mut recorder.builder, node).ok_or_else(undefined)?;
            }
            Stmt::Bind { symbol, value, source } => {
                let value = self.copy.value(value).ok_or_else(undefined)?;
                recorder.bind_as(symbol, value, source);
            }
            Stmt::Assert { cond, message } => {
                self.types.assume(cond);
                let message = message.map(|m| self.graph.str(m));
                recorder.builder.assert_(cond, message, self.graph.stmt_loc(at));
            }
        }
        Ok(())
    }

    /// Records the calls that a composite makes, in the place of its node.
    pub(super) fn decompose(&mut self, op: Op, node: NodeId) -> Result<()> {
        let (graph, tracer) = (self.graph, self.tracer.clone());
        let first = tracer.recorder().builder.node_count();
        let mut needed: SmallVec<[ValueId; 4]> = SmallVec::new();
        graph.for_each_operand(node, |v| needed.push(v));
        for v in needed {
            if !self.operands.contains_key(&v) {
                let value = match self.types.value(v) {
                    Value::Tensor(t) => Value::Tensor(
                        tracer.recorder().traced(t, self.copy.value(v).ok_or_else(undefined)?),
                    ),
                    other => other,
                };
                self.operands.insert(v, value);
            }
        }
        let missing = || TraceError::Internal("an operand of a composite is missing");
        let operand = |v: ValueId| Ok(self.operands.get(&v).cloned().ok_or_else(missing)?);
        let args = self.types.arguments(op, node, graph.args(node), &operand)?;
        let outputs =
            tracer.call_composite(op, args, graph.loc(node).unwrap_or_else(Loc::caller))?;
        let mut recorder = tracer.recorder();
        let mut results: SmallVec<[(ValueId, ValueId); 2]> = SmallVec::new();
        match_results(graph, node, outputs, &mut |_, v, value| {
            results.push((v, recorder.value_of(value.tensor()?)?));
            Ok(())
        })?;
        recorder.builder.set_info(first, graph.info(node));
        for (of, value) in results {
            if recorder.builder.is_result_since(first, value) {
                recorder.builder.set_name(value, &graph.value_name(of).to_string());
            }
            self.copy.set(of, value);
        }
        Ok(())
    }

    /// The graph.
    pub(super) fn finish(self) -> Result<Graph> {
        let mut recorder = self.tracer.recorder();
        let outputs = self.copy.outputs(&mut recorder.builder).ok_or_else(undefined)?;
        let ScopeData { table, .. } = self.types.scope().close();
        recorder.finish(&table, &[], &outputs)
    }
}

fn undefined() -> Error {
    TraceError::Internal("a statement uses a value that nothing defines").into()
}
