//! The gradients of an operator: against differences of its values, and in bits where the forward
//! and the backward pass are a graph. The gradients of a registered derivative are compared with
//! differences, too: a derivative that reads an intermediate has none, and says so.

use super::CheckContext;
use super::report::CheckReport;
use super::sample::{operands, replace};
use crate::gradcheck::{GradcheckOptions, gradcheck_with, gradgradcheck_with, is_smooth_at};
use crate::values::{catch_panics, element_bytes, flatten};
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::func::value_and_grad;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{AutogradError, Error, ErrorKind, Result, Tensor, Value, with_silent_panics};
use maquette_pipeline::{Pass, PassOptions, compile};
use maquette_runtime::Executable;
use maquette_trace::TraceOptions;

/// Step and tolerances for floats that are not `f64`.
const COARSE: f64 = 1e-2;

/// Why there is no gradient to check.
fn no_gradient(e: &Error) -> Option<String> {
    match e.kind() {
        ErrorKind::Autograd(AutogradError::NoRule { .. }) => {
            Some("no derivative is registered (`register_autograd`)".into())
        }
        ErrorKind::Autograd(AutogradError::Refused { why, .. }) => {
            Some(format!("it has no derivative ({why})"))
        }
        ErrorKind::Autograd(AutogradError::MutatingOperator { .. }) => {
            Some("it mutates its arguments".into())
        }
        _ => None,
    }
}

/// Why there is no gradient of the gradient to check.
fn no_second_gradient(e: &Error) -> Option<String> {
    match e.kind() {
        ErrorKind::Autograd(e @ AutogradError::OnceDifferentiable { .. }) => Some(e.to_string()),
        ErrorKind::Autograd(AutogradError::NoRule { op }) => {
            Some(format!("its derivative calls {op}, which has none"))
        }
        _ => no_gradient(e),
    }
}

impl CheckContext<'_> {
    /// The floats among the results, as a function of the operands.
    fn results(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let subject = self.subject;
        let args = &self.tried[0].variant.args;
        let args = replace(&operands(subject.schema, args), args, inputs)?;
        let outputs =
            catch_panics("its kernel", || Ok(flatten(&subject.op.call_at(args, subject.loc)?)))?;
        let tensors = outputs.iter().flat_map(Value::tensors);
        tensors.filter(|t| t.dtype().is_float()).map(|t| t.ok().cloned()).collect()
    }

    /// The sum of the squares of the results.
    fn scalar(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let squares = self.results(inputs)?.into_iter().map(|t| (&t * &t).sum());
        let sum = squares.reduce(|a, b| a + b);
        sum.ok_or_else(|| Error::value("no result is a float"))?.ok().cloned()
    }

    pub(super) fn gradients(&self, check: &mut CheckReport, fakes_wrong: bool) {
        let Some(given) = self.tried.first() else { return };
        if let Some(why) = self.random {
            return check.not_run(why);
        }
        if self.subject.op.is_mutable() {
            return check.not_run("it mutates its arguments");
        }
        let operands = operands(self.subject.schema, &given.variant.args);
        let inputs: Vec<Tensor> = operands.iter().map(|o| o.tensor.detach()).collect();
        if !inputs.iter().any(|t| t.dtype().is_float()) {
            return check.not_run("no argument is a float");
        }
        match self.has_gradient(&inputs) {
            Ok(None) => {}
            Ok(Some(why)) => return check.not_run(why),
            Err(e) => return check.fail("the sample", &self.subject.text(&e)),
        }
        with_silent_panics(|| self.against_differences(&inputs, check));
        if check.failed() {
            return;
        }
        if fakes_wrong {
            return check.notes.push("not traced: the fake kernel check failed".into());
        }
        self.in_graphs(&inputs, check);
    }

    /// Sweeps once; says why there is nothing to check.
    fn has_gradient(&self, inputs: &[Tensor]) -> Result<Option<String>> {
        let leaf = |t: &Tensor| {
            if t.dtype().is_float() { t.detach().requires_grad_() } else { t.clone() }
        };
        let run = || -> Result<Option<String>> {
            let results = self.results(&inputs.iter().map(leaf).collect::<Vec<Tensor>>())?;
            let squares = results.iter().filter(|t| t.tracks_gradient()).map(|t| (t * t).sum());
            match squares.reduce(|a, b| a + b) {
                Some(sum) => sum.backward().map(|()| None),
                None => Ok(Some("its results depend on no float".into())),
            }
        };
        run().or_else(|e| no_gradient(&e).map_or(Err(e), |why| Ok(Some(why))))
    }

    /// In `f64` if the operator takes it.
    fn against_differences(&self, inputs: &[Tensor], check: &mut CheckReport) {
        let double = |t: &Tensor| {
            if t.dtype().is_float() { t.to_dtype(DType::F64) } else { t.clone() }
        };
        let doubles: Vec<Tensor> = inputs.iter().map(double).collect();
        let exact = self.results(&doubles).is_ok_and(|r| r.iter().all(|t| t.dtype() == DType::F64));
        let options = GradcheckOptions::new().fast(true);
        let is_single = |t: &Tensor| !t.dtype().is_float() || t.dtype() == DType::F32;
        let (inputs, options, eps) = if exact {
            (doubles, options, 1e-6)
        } else if inputs.iter().all(is_single) {
            let options = options.any_float(true).eps(COARSE).atol(COARSE).rtol(COARSE);
            (inputs.to_vec(), options, COARSE)
        } else {
            let why = "gradients are not compared with differences: these are not exact enough";
            return check.notes.push(why.into());
        };
        let f = |inputs: &[Tensor]| self.results(inputs);
        match is_smooth_at(&f, &inputs, eps) {
            Ok(true) => {}
            Ok(false) => {
                return check.notes.push(
                    "gradients are not compared with differences: the sample is at a kink".into(),
                );
            }
            Err(e) => return check.fail("the sample", &self.subject.text(&e)),
        }
        if let Err(e) = gradcheck_with(f, &inputs, &options) {
            return check.fail("the sample", &self.subject.text(&e));
        }
        // Differences of gradients are exact enough in `f64` alone.
        if exact && !self.subject.op.is_plain_builtin() {
            let second = gradgradcheck_with(f, &inputs, &options.variants(false));
            match second.map_err(|e| (no_second_gradient(&e), e)) {
                Ok(_) => {}
                Err((Some(why), _)) => check.notes.push(format!("no second derivative: {why}")),
                Err((None, e)) => check.fail("the sample", &self.subject.text(&e)),
            }
        }
    }

    /// The value and the gradients of the sample, traced, functionalized, planned and compiled.
    fn in_graphs(&self, inputs: &[Tensor], check: &mut CheckReport) {
        let run = |inputs: Vec<Tensor>| -> Result<Vec<Tensor>> {
            let f = value_and_grad(|inputs: Vec<Tensor>| {
                self.scalar(&inputs).unwrap_or_else(Tensor::poison)
            });
            let (value, gradients) = f(inputs)?;
            Ok(std::iter::once(value).chain(gradients).collect())
        };
        let eager = match run(inputs.to_vec()) {
            Ok(eager) => eager,
            Err(e) => return check.fail("the sample", &self.subject.text(&e)),
        };
        let values: Vec<Value> = inputs.iter().map(Value::from).collect();
        for (sizes, options) in
            [("static", TraceOptions::new()), ("symbolic", TraceOptions::symbolic())]
        {
            let traced = match options.keep_offsets(true).trace(run, inputs.to_vec()) {
                Ok(traced) => traced,
                Err(e) => {
                    check.fail(
                        "the sample",
                        &format!(
                            "the gradient does not trace with {sizes} sizes: {}",
                            self.subject.text(&e)
                        ),
                    );
                    continue;
                }
            };
            for (how, stage) in STAGES {
                let found = catch_panics("its kernel", || stage(traced.graph(), &values));
                let what = format!("with {sizes} sizes, {how}");
                match found {
                    Ok(Some(found)) => {
                        if let Err(e) = same_bits(&eager, &found) {
                            check.fail("the sample", &format!("{what}, {e}"));
                        }
                    }
                    Ok(None) => check.notes.push(format!("{what}: the gradient is refused")),
                    Err(e) => {
                        let text = self.subject.text(&e);
                        check.fail("the sample", &format!("{what}, the gradient fails: {text}"));
                    }
                }
            }
        }
    }
}

type Stage = fn(&Graph, &[Value]) -> Result<Option<Vec<Value>>>;

/// The ways to run a graph; none if it has no such form.
const STAGES: &[(&str, Stage)] = &[
    ("traced", |graph, inputs| Ok(Some(Interpreter::new(graph).run(inputs)?.results))),
    ("functionalized", |graph, inputs| interpreted(graph, Pass::Functionalize, inputs)),
    ("planned", |graph, inputs| interpreted(graph, Pass::SelectPlan, inputs)),
    ("compiled", |graph, inputs| match compile(graph, &PassOptions::new())?.program {
        planned @ ProgramForm::Planned(_) => {
            let executable = Executable::new(planned)?;
            Ok(Some(executable.run(inputs, &SourceInfo::of_caller())?))
        }
        _ => Ok(None),
    }),
];

/// The results of the interpreter after a pass, with composites as they are called; none if the
/// program has no such form.
fn interpreted(graph: &Graph, last: Pass, inputs: &[Value]) -> Result<Option<Vec<Value>>> {
    let program = compile(graph, &PassOptions::new().decompose(false).until(last))?.program;
    match &program {
        ProgramForm::Original(_) => Ok(None),
        form => Ok(Some(Interpreter::new(form.mode()).run(inputs)?.results)),
    }
}

/// Compares the value and the gradients. NaNs may have any bits: those of fused kernels differ.
fn same_bits(eager: &[Tensor], found: &[Value]) -> std::result::Result<(), String> {
    let read = |t: &Tensor| element_bytes(t).map_err(|e| e.to_string());
    for (i, (e, f)) in eager.iter().zip(found).enumerate() {
        let f = f.tensor().map_err(|e| e.to_string())?;
        let nan = e.dtype().is_float() && e.isnan().any().item::<bool>().unwrap_or(false);
        if !nan && (e.dtype() != f.dtype() || read(e)? != read(f)?) {
            let what = match i {
                0 => "the value".to_owned(),
                i => format!("the gradient of tensor {} among the arguments", i - 1),
            };
            return Err(format!("{what} is {f:?} instead of {e:?}"));
        }
    }
    Ok(())
}
