//! The tracer: a dispatch mode that runs fake kernels instead of kernels, and records every call.
//!
//! Like PyTorch's `make_fx` with fake tensors, tracing executes the program once on tensors that
//! have metadata and no contents. With `propagate_real`, each call also runs its real kernel on
//! copies of the samples.

use crate::inputs::{PreparedInputs, TraceInputs};
use crate::options::TraceOptions;
use crate::real_propagation::{self, RealValues};
use crate::record::Recorder;
use crate::traced::{Interface, TracedProgram};
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Arg, Graph};
use maquette_ir::sym::{Scope, ScopeData};
use maquette_ops::autograd::outside_regions;
use maquette_ops::internals::{TensorInternals, is_grad_enabled};
use maquette_ops::mode::{self, Mode, Question};
use maquette_ops::tree::{Leaf, TreeSpec};
use maquette_ops::{
    Args, Error, ErrorKind, FakeError, Op, Outputs, Result, Tensor, TraceError, TraceTag, Value,
    args, fake, without_autocast,
};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

/// The state of one trace, as a dispatch mode.
pub(crate) struct Tracer {
    tag: Arc<TraceTag>,
    scope: Rc<Scope>,
    recorder: RefCell<Recorder>,
    /// With `propagate_real`: the real tensors that correspond to the traced ones.
    real_values: Option<RefCell<RealValues>>,
    /// The operators whose parts were called, each once.
    decomposed: RefCell<Vec<Op>>,
    /// Whether derivatives were recorded.
    differentiated: Cell<bool>,
    /// The line of the first `enable_grad` of the program.
    enables_grad: Cell<Option<Loc>>,
    /// Whether the caller guards what [`TraceOptions::guarded`](crate::TraceOptions::guarded) says.
    guarded: bool,
    /// Whether inputs begin where their samples do.
    keeps_offsets: bool,
}

impl Mode for Tracer {
    fn call(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs> {
        let is_new = |t: &&Tensor| t.slot().is_none() && !t.is_fake() && self.tag.began_before(t);
        if let Some(t) = args.iter().flat_map(Value::tensors).find(is_new) {
            let (trace, tensor) = (self.tag.name.clone(), t.meta().to_string());
            return Err(TraceError::MadeDuringTrace { trace, tensor }.into());
        }
        self.record(op, args, loc)
    }

    fn host_data(&self, t: Tensor, loc: Loc) -> Tensor {
        self.lift(&t, loc).unwrap_or_else(|e| {
            let e = e.at(loc);
            self.failed(&e);
            Tensor::poison(e)
        })
    }

    fn failed(&self, e: &Error) {
        // a decision whose error the program discarded came first, unless the call failed with it
        if let Some(refusal) = self.scope.take_refusal() {
            let earlier = fake::decision_failed(&refusal);
            if earlier.kind().to_string() != e.kind().to_string() {
                self.tag.fail(&earlier);
            }
        }
        self.tag.fail(e);
    }

    fn decomposed(&self, op: Op) {
        let mut decomposed = self.decomposed.borrow_mut();
        if !decomposed.contains(&op) {
            decomposed.push(op);
        }
    }

    fn trace(&self) -> Option<&Arc<TraceTag>> {
        Some(&self.tag)
    }

    fn writes(&self, t: &Tensor) -> (u64, Option<Loc>) {
        self.recorder.borrow().memories.writes(t)
    }

    fn share_memory(&self, a: &Tensor, b: &Tensor) -> bool {
        self.recorder.borrow().memories.are_one(a, b)
    }

    fn shares_storage(&self, a: &Tensor, b: &Tensor, loc: Loc) -> bool {
        let answer = self.recorder.borrow().memories.share_storage(a, b);
        answer.unwrap_or_else(|| {
            mode::failed(Error::from(TraceError::Sharing).at(loc));
            false
        })
    }

    fn is_fixed(&self, question: Question<'_>) -> bool {
        let is_own = |t: &Tensor| t.slot().is_some_and(|slot| Arc::ptr_eq(&slot.trace, &self.tag));
        match question {
            _ if fault_injected(Fault::QuestionsAnswered) => true,
            // poisoned tensors fail the trace that makes them
            Question::State(t) => is_own(t) || t.is_fake() || t.own_storage().is_err(),
            // Inputs of a run may share memory, and begin with writes of their own.
            Question::Writes(t) => {
                let memories = &self.recorder.borrow().memories;
                let is_outside = memories.is_input(t) || memories.views_captured(t);
                !is_outside && self.is_fixed(Question::State(t))
            }
            // A run refuses captured tensors that carry an error.
            Question::Error(t) => {
                self.is_fixed(Question::State(t)) || self.recorder.borrow().consts.has_storage_of(t)
            }
            Question::Gradient(t) => {
                is_own(t) && (self.guarded || !self.recorder.borrow().memories.is_input(t))
            }
            Question::Offset(t) => !is_own(t) || self.guarded && self.keeps_offsets,
            Question::GradMode => self.guarded,
            Question::Surroundings => false,
        }
    }

    fn views_outside(&self, t: &Tensor) -> bool {
        self.recorder.borrow().memories.views_captured(t)
    }

    fn differentiates(&self) {
        self.differentiated.set(true);
    }

    fn enables_grad(&self, loc: Loc) {
        self.enables_grad.set(self.enables_grad.get().or(Some(loc)));
    }

    fn check_history(&self, t: &Tensor) -> Result<()> {
        self.recorder.borrow().memories.check_history(t)
    }
}

impl Tracer {
    /// Records a call.
    fn record(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs> {
        // The stage that records derivatives has checked the operands of the calls that it makes.
        if is_grad_enabled() {
            args.iter().flat_map(Value::tensors).try_for_each(|t| self.check_history(t))?;
        }
        // no borrow of the recorder is held while the fake kernel runs, since that is user code and
        // may call operators
        let prepared = || self.recorder.borrow_mut().prepare(op, &args);
        let call = mode::on_behalf_of(loc, prepared)?;
        let outputs = fake::call_in(op, &call.fake_args, Some(&self.scope), loc);
        let Some(real_values) = &self.real_values else {
            return self.recorder.borrow_mut().record(call, &args, outputs?, loc);
        };
        // an error that names an operator comes from a call inside the fake kernel, and is not
        // about this operator's own fake kernel
        let missing = |e: &Error| {
            e.op().is_none() && matches!(e.kind(), ErrorKind::Fake(FakeError::Missing { .. }))
        };
        let (outputs, missing) = match outputs {
            Err(e) if missing(&e) => (Outputs::new(), Some(e)),
            outputs => (outputs?, None),
        };
        let called = || real_values.borrow_mut().call(op, &args, &self.scope, loc);
        let real = mode::on_behalf_of(loc, called)?;
        let outputs = match missing {
            Some(e) => {
                real_propagation::infer_outputs(op, &call.fake_args, &real, &self.scope, loc)
                    .ok_or(e)?
            }
            None => outputs,
        };
        let checked = || real_values.borrow().check_and_bind(&self.scope, &outputs, &real);
        mode::on_behalf_of(loc, checked)?;
        let traced = self.recorder.borrow_mut().record(call, &args, outputs, loc)?;
        real_values.borrow_mut().insert_all(&traced, real);
        Ok(traced)
    }

    pub(crate) fn new(
        tag: Arc<TraceTag>,
        scope: Scope,
        recorder: Recorder,
        real_values: Option<RealValues>,
        options: &TraceOptions,
    ) -> Rc<Tracer> {
        let (recorder, real_values) = (RefCell::new(recorder), real_values.map(RefCell::new));
        let (scope, decomposed) = (Rc::new(scope), RefCell::default());
        Rc::new(Tracer {
            tag,
            scope,
            recorder,
            real_values,
            decomposed,
            differentiated: Cell::new(false),
            enables_grad: Cell::new(None),
            guarded: options.guarded,
            keeps_offsets: options.keep_offsets,
        })
    }

    pub(crate) fn recorder(&self) -> RefMut<'_, Recorder> {
        self.recorder.borrow_mut()
    }

    /// Records the calls that a composite makes, for the line `loc`.
    ///
    /// # Errors
    /// The error of a call.
    pub(crate) fn call_composite(self: &Rc<Self>, op: Op, args: Args, loc: Loc) -> Result<Outputs> {
        // a composite may try a decision and go on; a failure that counts is its result
        let watch = self.scope.watch_decisions();
        // The graph has the casts that the program made already.
        let body = || without_autocast(|| op.decompose(args, loc));
        let traced = || mode::with_mode(self.clone(), body);
        let outputs = self.scope.enter(|| outside_regions(traced));
        drop(watch.finish());
        outputs.unwrap_or_else(|| Err(Error::value(format!("{} is no composite", op.name()))))
    }

    /// The first error of any operation so far.
    fn first_error(&self) -> Option<Error> {
        let refused = || self.scope.take_refusal().map(|r| fake::decision_failed(&r));
        self.tag.first_error().cloned().or_else(refused)
    }

    /// Records host data that the program creates. The data is a constant, copied at each run as
    /// the program would create it each time.
    fn lift(&self, t: &Tensor, loc: Loc) -> Result<Tensor> {
        let out = self.record(Op::lift_fresh_copy()?, args![t], loc)?;
        out.first().map_or_else(
            || Err(Error::value("a copy operator returned nothing")),
            |v| v.tensor().cloned(),
        )
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.tag.end();
    }
}

/// A running trace. Its tensors and symbols become invalid when it is dropped.
pub(crate) struct TraceSession {
    tracer: Rc<Tracer>,
    inputs: PreparedInputs,
    /// Whether the program's own tensors become inputs.
    with_state: bool,
    /// Whether a sample requires a gradient.
    requires_grad: bool,
}

impl TraceSession {
    /// Starts a trace.
    ///
    /// # Errors
    /// The options do not fit the inputs, or a sample is not a valid input.
    pub(crate) fn begin(trace_inputs: &TraceInputs<'_>) -> Result<TraceSession> {
        let name = trace_inputs.options.name.as_deref().unwrap_or("graph");
        let (tag, scope) = (TraceTag::new(name), Scope::new());
        scope.check_arithmetic();
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
        let tracer = Tracer::new(tag, scope, recorder, real_values, trace_inputs.options);
        let mut samples = trace_inputs.leaves.iter().flat_map(|leaf| leaf.value.tensors());
        let requires_grad = samples.any(Tensor::tracks_gradient);
        let with_state = trace_inputs.state.is_some();
        Ok(TraceSession { tracer, inputs, with_state, requires_grad })
    }

    /// The leaves from which the program's input is rebuilt.
    pub(crate) fn leaves(&self) -> &[Value] {
        &self.inputs.values
    }

    /// Runs the program under the tracer.
    pub(crate) fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let traced = || mode::with_mode(self.tracer.clone(), f);
        self.tracer.scope.enter(|| outside_regions(traced))
    }

    /// Ends the trace. `output` is the flattened output of the program.
    ///
    /// # Errors
    /// The first error of any operation in the program, even if its result is unused; an assertion
    /// about a symbol that was never bound; an output that graphs cannot represent, or whose
    /// gradient runs would lose.
    pub(crate) fn finish(
        self,
        in_spec: TreeSpec,
        output: Result<(TreeSpec, Vec<Leaf>)>,
    ) -> Result<TracedProgram> {
        let tracer = &*self.tracer;
        if let Some(e) = tracer.first_error() {
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
        let graph = recorder.finish(&table, &guards, &outputs)?;
        self.check_gradients(&graph, &recorder, &leaves, &outputs)?;
        #[cfg(debug_assertions)]
        graph.verify()?;
        let PreparedInputs { kinds, labels, .. } = &self.inputs;
        let interface =
            Interface { inputs: kinds.clone(), labels: labels.clone(), in_spec, out_spec };
        let (decomposed, differentiated) = (tracer.decomposed.take(), tracer.differentiated.get());
        Ok(TracedProgram { graph, state, interface, decomposed, differentiated })
    }

    /// A run of the graph records no derivatives, and refuses tensors that require gradients
    /// outside of `no_grad`. So the program must not return what requires a gradient otherwise: a
    /// leaf of its own, or a result of [`enable_grad`](maquette_ops::autograd::enable_grad) inside
    /// of `no_grad`.
    ///
    /// # Errors
    /// It does.
    fn check_gradients(
        &self,
        graph: &Graph,
        recorder: &Recorder,
        leaves: &[Leaf],
        outputs: &[Arg],
    ) -> Result<()> {
        let is_enabled = is_grad_enabled();
        if let Some(loc) = self.tracer.enables_grad.get()
            && self.requires_grad
            && !is_enabled
        {
            return Err(Error::from(TraceError::EnableGrad).at(loc));
        }
        if is_enabled && recorder.consts.all().iter().any(|c| c.tensor.tracks_gradient()) {
            return Ok(());
        }
        let is_lost = |leaf: &&(usize, &Leaf)| match &leaf.1.value {
            Value::Tensor(t) => t.slot().is_some() && t.tracks_gradient(),
            _ => false,
        };
        let Some((index, leaf)) = leaves.iter().enumerate().find(|leaf| is_lost(&leaf)) else {
            return Ok(());
        };
        let output = if leaf.path.is_empty() { index.to_string() } else { leaf.path.clone() };
        let e = Error::from(TraceError::OutputRequiresGrad { output });
        let producer = match outputs.get(index) {
            Some(Arg::Value(value)) => graph.producer(*value),
            _ => None,
        };
        Err(match producer.and_then(|node| graph.loc(node)) {
            Some(loc) => e.at(loc),
            None => e,
        })
    }
}

impl Drop for TraceSession {
    fn drop(&mut self) {
        self.tracer.tag.end();
        self.tracer.scope.close();
    }
}
