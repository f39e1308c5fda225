//! The tracer: a dispatch mode that computes metadata only and writes down what was called.

use crate::inputs::{Inputs, Prepared};
use crate::real::{self, Reals};
use crate::record::Recorder;
use crate::traced::{Interface, Program};
use maquette_ir::Loc;
use maquette_ir::graph::Arg;
use maquette_ir::sym::{Scope, ScopeData};
use maquette_ops::mode::{self, Mode};
use maquette_ops::tree::{Leaf, TreeSpec};
use maquette_ops::{Args, Error, ErrorKind, FakeError, Op, Outputs, Result, Tensor, TraceTag, Value, args, fake};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

struct Tracer {
    tag: Arc<TraceTag>,
    scope: Scope,
    recorder: RefCell<Recorder>,
    /// Real tensors beside the traced ones, if asked for.
    reals: Option<RefCell<Reals>>,
    first_error: RefCell<Option<Error>>,
}

impl Mode for Tracer {
    fn call(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs> {
        // the recorder is free while the fake kernel, which is user code, runs
        let call = self.recorder.borrow_mut().prepare(op, &args)?;
        let outputs = fake::call(op, &call.stand_ins, Some(&self.scope), loc);
        let Some(reals) = &self.reals else {
            return self.recorder.borrow_mut().record(call, &args, outputs?, loc);
        };
        // an error with an operator is of a call that the fake kernel made
        let missing = |e: &Error| e.op().is_none() && matches!(e.kind(), ErrorKind::Fake(FakeError::Missing { .. }));
        let (outputs, missing) = match outputs {
            Err(e) if missing(&e) => (Outputs::new(), Some(e)),
            outputs => (outputs?, None),
        };
        let real = reals.borrow_mut().call(op, &args, loc)?;
        let outputs = match missing {
            Some(e) => real::infer(op, &call.stand_ins, &real, &self.scope, loc).ok_or(e)?,
            None => outputs,
        };
        reals.borrow().settle(&self.scope, &outputs, &real)?;
        let traced = self.recorder.borrow_mut().record(call, &args, outputs, loc)?;
        reals.borrow_mut().keep(&traced, real);
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
    /// Host data made by the program is a constant that every run copies anew, as the program would make it anew.
    fn lift(&self, t: &Tensor, loc: Loc) -> Result<Tensor> {
        static LIFT: OnceLock<Option<Op>> = OnceLock::new();
        let out = match LIFT.get_or_init(|| Op::find("aten::lift_fresh_copy").ok()) {
            Some(lift) => self.call(*lift, args![t], loc)?,
            None => self.call(Op::find("aten::clone")?, args![t, ()], loc)?,
        };
        out.first().map_or_else(|| Err(Error::value("a copy operator returned nothing")), |v| v.tensor().cloned())
    }
}

/// A running trace. Its tensors and symbols are dead once it is dropped.
pub(crate) struct Session {
    tracer: Rc<Tracer>,
    inputs: Prepared,
    /// Whether tensors of the program's own become inputs.
    with_state: bool,
}

impl Session {
    /// Starts a trace of these inputs.
    pub(crate) fn begin(plan: &Inputs<'_>) -> Result<Session> {
        let name = plan.options.name.as_deref().unwrap_or("graph");
        let (tag, scope) = (TraceTag::new(name), Scope::new());
        let mut recorder = Recorder::new(name, scope.clone(), tag.clone());
        for (at, (name, t)) in plan.state.unwrap_or_default().iter().enumerate() {
            recorder.input_state(at, name, t)?;
        }
        let inputs = plan.prepare(&scope, &mut recorder)?;
        let mut reals = plan.options.real.then(Reals::new);
        for (index, (leaf, value)) in plan.leaves.iter().zip(&inputs.values).enumerate() {
            if let (Some(reals), Value::Tensor(sample), Value::Tensor(traced)) = (&mut reals, &leaf.value, value) {
                reals.input(index, sample, traced)?;
            }
        }
        let reals = reals.map(RefCell::new);
        let tracer = Tracer { tag, scope, recorder: RefCell::new(recorder), reals, first_error: RefCell::new(None) };
        Ok(Session { tracer: Rc::new(tracer), inputs, with_state: plan.state.is_some() })
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
    pub(crate) fn finish(self, in_spec: TreeSpec, output: Result<(TreeSpec, Vec<Leaf>)>) -> Result<Program> {
        let tracer = &*self.tracer;
        if let Some(e) = tracer.first_error.borrow_mut().take() {
            return Err(e);
        }
        let (out_spec, leaves) = output?;
        let mut recorder = tracer.recorder.borrow_mut();
        let outputs = leaves.iter().map(|l| recorder.arg(&l.value)).collect::<Result<SmallVec<[Arg; 4]>>>()?;
        recorder.flush_assertions(None);
        let state = if self.with_state { recorder.take_state() } else { Vec::new() };
        let ScopeData { table, guards, .. } = tracer.scope.close();
        let (graph, guard_locs) = recorder.finish(&table, &guards, &outputs)?;
        #[cfg(debug_assertions)]
        graph.verify()?;
        let assert_locs = std::mem::take(&mut recorder.assert_locs);
        let Prepared { kinds, labels, .. } = &self.inputs;
        let interface = Interface { inputs: kinds.clone(), labels: labels.clone(), in_spec, out_spec };
        Ok(Program { graph, state, interface, guard_locs, assert_locs })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tracer.tag.end();
        self.tracer.scope.close();
    }
}
