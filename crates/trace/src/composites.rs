//! Recordings of the calls that composites make, for a pass that replaces composites by them.
//!
//! The pass builds a graph as any pass does, and calls a composite where its node stands: the
//! tracer adds the calls to the graph. The tensors of the recording become invalid when it is
//! dropped.

use crate::options::TraceOptions;
use crate::record::Recorder;
use crate::tracer::Tracer;
use maquette_ir::Loc;
use maquette_ir::graph::{Arg, BindSource, Graph, GraphBuilder, ValueId};
use maquette_ir::sym::{Scope, SymTable, SymbolId};
use maquette_ops::{Args, Op, Outputs, Result, Tensor, TraceTag};
use std::rc::Rc;

/// A graph under construction, to which composites add the calls that they make.
pub struct CompositeRecorder {
    tracer: Rc<Tracer>,
}

impl CompositeRecorder {
    /// An empty graph. Its expressions are those of the scope.
    pub fn new(name: &str, scope: Scope) -> CompositeRecorder {
        let tag = TraceTag::new(name);
        let recorder = Recorder::new(name, scope.clone(), tag.clone());
        let tracer = Tracer::new(tag, scope, recorder, None, &TraceOptions::new());
        CompositeRecorder { tracer }
    }

    /// Builds a part of the graph. `f` calls no operator.
    pub fn build<R>(&self, f: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        f(&mut self.tracer.recorder().builder)
    }

    /// Adds an input. Returns the traced tensor for it.
    ///
    /// # Errors
    /// No graph can have the type of the tensor.
    pub fn input(&self, fake: Tensor, name: &str) -> Result<Tensor> {
        self.tracer.recorder().input_tensor(fake, name)
    }

    /// The traced tensor for a value of the graph.
    pub fn operand(&self, fake: Tensor, value: ValueId) -> Tensor {
        self.tracer.recorder().traced(fake, value)
    }

    /// The value of a traced tensor, or of one that becomes a constant.
    ///
    /// # Errors
    /// The tensor carries an error, or belongs to another trace.
    pub fn value_of(&self, t: &Tensor) -> Result<ValueId> {
        self.tracer.recorder().value_of(t)
    }

    /// Binds a symbol that depends on data.
    pub fn bind(&self, symbol: SymbolId, value: ValueId, source: BindSource) {
        self.tracer.recorder().bind_as(symbol, value, source);
    }

    /// Records the calls that a composite makes, for the line `loc`.
    ///
    /// # Errors
    /// The error of a call.
    pub fn call(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs> {
        self.tracer.call_composite(op, args, loc)
    }

    /// The graph. `table` is the table of the closed scope.
    ///
    /// # Errors
    /// The graph is not valid.
    pub fn finish(self, table: &SymTable, outputs: &[Arg]) -> Result<Graph> {
        self.tracer.recorder().finish(table, &[], outputs)
    }
}
