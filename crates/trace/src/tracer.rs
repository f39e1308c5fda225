//! The tracer: a dispatch mode that computes metadata only and writes down what was called.

use crate::inputs::{PreparedInputs, TraceInputs};
use crate::real_propagation::{self, RealValues};
use crate::record::Recorder;
use crate::traced::{Interface, TracedProgram};
use maquette_ir::Loc;
use maquette_ir::graph::Arg;
use maquette_ir::sym::{Scope, ScopeData};
use maquette_ops::mode::{self, Mode};
use maquette_ops::tree::{Leaf, TreeSpec};
use maquette_ops::{
    Args, Error, ErrorKind, FakeError, Op, Outputs, Result, Tensor, TraceTag, Value, args, fake,
};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

struct Tracer {
    tag: Arc<TraceTag>,
    scope: Scope,
    recorder: RefCell<Recorder>,
    /// Real tensors beside the traced ones, if asked for.
    real_values: Option<RefCell<RealValues>>,
    first_error: RefCell<Option<Error>>,
}

impl Mode for Tracer {
    fn call(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs> {
        // the recorder is free while the fake kernel, which is user code, runs
        let call = self.recorder.borrow_mut().prepare(op, &args)?;
        let outputs = fake::call(op, &call.fake_args, Some(&self.scope), loc);
        let Some(real_values) = &self.real_values else {
            return self.recorder.borrow_mut().record(call, &args, outputs?, loc);
        };
        // an error with an operator is of a call that the fake kernel made
        let missing = |e: &Error| {
            e.op().is_none() && matches!(e.kind(), ErrorKind::Fake(FakeError::Missing { .. }))
        };
        let (outputs, missing) = match outputs {
            Err(e) if missing(&e) => (Outputs::new(), Some(e)),
            outputs => (outputs?, None),
        };
        let real = real_values.borrow_mut().call(op, &args, loc)?;
        let outputs = match missing {
            Some(e) => {
                real_propagation::infer_outputs(op, &call.fake_args, &real, &self.scope, loc)
                    .ok_or(e)?
            }
            None => outputs,
        };
        real_values.borrow().check_and_bind(&self.scope, &outputs, &real)?;
        let traced = self.recorder.borrow_mut().record(call, &args, outputs, loc)?;
        real_values.borrow_mut().insert_all(&traced, real);
        Ok(traced)
    }

    fn host_data(&self, t: Tensor, loc: Loc) -> Tensor {
        self.lift(&t, loc).unwrap_or_else(|e| {
            let e = e.at(loc);
            self.failed(&e);
            Tensor::poison(e)
        })
    }

    fn failed(&self, e: &Error) {
        self.first_error.borrow_mut().get_or_insert_with(|| e.clone());
    }

    fn trace(&self) -> Option<&Arc<TraceTag>> {
        Some(&self.tag)
    }
}

impl Tracer {
    /// Host data made by the program is a constant that every run copies anew, as the program would
    /// make it anew.
    fn lift(&self, t: &Tensor, loc: Loc) -> Result<Tensor> {
        let out = self.call(Op::lift_fresh_copy()?, args![t], loc)?;
        out.first().map_or_else(
            || Err(Error::value("a copy operator returned nothing")),
            |v| v.tensor().cloned(),
        )
    }
}

/// A running trace. Its tensors and symbols are dead once it is dropped.
pub(crate) struct TraceSession {
    tracer: Rc<Tracer>,
    inputs: PreparedInputs,
    /// Whether tensors of the program's own become inputs.
    with_state: bool,
}

impl TraceSession {
    /// Starts a trace of these inputs.
    pub(crate) fn begin(trace_inputs: &TraceInputs<'_>) -> Result<TraceSession> {
        let name = trace_inputs.options.name.as_deref().unwrap_or("graph");
        let (tag, scope) = (TraceTag::new(name), Scope::new());
        let mut recorder = Recorder::new(name, scope.clone(), tag.clone());
        for (at, (name, t)) in trace_inputs.state.unwrap_or_default().iter().enumerate() {
            recorder.input_state(at, name, t)?;
        }
        let inputs = trace_inputs.prepare(&scope, &mut recorder)?;
        let mut real_values = trace_inputs.options.real.then(RealValues::new);
        for (index, (leaf, value)) in trace_inputs.leaves.iter().zip(&inputs.values).enumerate() {
            if let (Some(real_values), Value::Tensor(sample), Value::Tensor(traced)) =
                (&mut real_values, &leaf.value, value)
            {
                real_values.input(index, sample, traced)?;
            }
        }
        let real_values = real_values.map(RefCell::new);
        let tracer = Tracer {
            tag,
            scope,
            recorder: RefCell::new(recorder),
            real_values,
            first_error: RefCell::new(None),
        };
        Ok(TraceSession {
            tracer: Rc::new(tracer),
            inputs,
            with_state: trace_inputs.state.is_some(),
        })
    }

    /// The leaves that the program gets.
    pub(crate) fn leaves(&self) -> &[Value] {
        &self.inputs.values
    }

    /// Runs the program.
    pub(crate) fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        mode::with_mode(self.tracer.clone(), f)
    }

    /// Ends the trace. `output` is what the program returned, flattened.
    pub(crate) fn finish(
        self,
        in_spec: TreeSpec,
        output: Result<(TreeSpec, Vec<Leaf>)>,
    ) -> Result<TracedProgram> {
        let tracer = &*self.tracer;
        if let Some(e) = tracer.first_error.borrow_mut().take() {
            return Err(e);
        }
        let (out_spec, leaves) = output?;
        let mut recorder = tracer.recorder.borrow_mut();
        let outputs = leaves
            .iter()
            .map(|l| recorder.arg(&l.value))
            .collect::<Result<SmallVec<[Arg; 4]>>>()?;
        recorder.flush_assertions(None);
        let state = if self.with_state { recorder.take_state() } else { Vec::new() };
        let ScopeData { table, guards, .. } = tracer.scope.close();
        let (graph, guard_locs) = recorder.finish(&table, &guards, &outputs)?;
        #[cfg(debug_assertions)]
        graph.verify()?;
        let assert_locs = std::mem::take(&mut recorder.assert_locs);
        let PreparedInputs { kinds, labels, .. } = &self.inputs;
        let interface =
            Interface { inputs: kinds.clone(), labels: labels.clone(), in_spec, out_spec };
        Ok(TracedProgram { graph, state, interface, guard_locs, assert_locs })
    }
}

impl Drop for TraceSession {
    fn drop(&mut self) {
        self.tracer.tag.end();
        self.tracer.scope.close();
    }
}
