//! Compares traces of a call with the call itself.

use super::calls::{CallRecord, OpUnderTest, Pair, SampleRun};
use super::report::CheckReport;
use super::sample::{operands, replace};
use super::sample_variants::{SampleVariant, VariantKind};
use crate::values::{FlatValues, catch_panics, flatten};
use maquette_ops::{Args, Error, ErrorKind, Result, RunError, Tensor, Value};
use maquette_trace::{TraceOptions, Traced};

type Trace = Traced<FlatValues, FlatValues>;

fn inputs(subject: &OpUnderTest<'_>, args: &[Value]) -> FlatValues {
    FlatValues(
        operands(subject.schema, args).into_iter().map(|o| Value::Tensor(o.tensor)).collect(),
    )
}

impl OpUnderTest<'_> {
    /// Traces `calls` successive calls on the same arguments, and returns the results of the last
    /// one.
    fn trace(&self, options: &TraceOptions, args: &Args, calls: usize) -> Result<Trace> {
        let places = operands(self.schema, args);
        let program = |values: FlatValues| -> Result<FlatValues> {
            let tensors =
                values.0.iter().flat_map(Value::tensors).cloned().collect::<Vec<Tensor>>();
            let args = replace(&places, args, &tensors)?;
            let mut outputs = Vec::new();
            for _ in 0..calls {
                outputs = flatten(&self.op.call_at(args.clone(), self.loc)?);
            }
            Ok(FlatValues(outputs))
        };
        catch_panics("its fake kernel", || options.trace(program, inputs(self, args)))
    }

    fn run_trace(&self, trace: &Trace, args: &[Value]) -> Result<CallRecord> {
        self.on_copies(args, |args| {
            catch_panics("its kernel", || Ok(trace.run(inputs(self, args))?.0))
        })
    }
}

/// The outputs as a graph returns them: lists flattened, absent ones omitted.
fn flat(ran: &CallRecord) -> Vec<Value> {
    flatten(&ran.outputs).into_iter().filter(|v| !v.is_none()).collect()
}

/// The traces of the given sample, which are reused for its variants.
#[derive(Default)]
pub(super) struct Traces {
    symbolic: Option<Trace>,
    /// Guards that have been reported.
    guards: Vec<String>,
}

impl Traces {
    /// Compares a trace with static sizes.
    pub(super) fn fixed(
        subject: &OpUnderTest<'_>,
        tried: &SampleRun,
        values: bool,
        report: &mut CheckReport,
    ) {
        let sample = &tried.variant.what;
        match subject.trace(&options(TraceOptions::new()), &tried.variant.args, 1) {
            Ok(trace) => compare(subject, &trace, tried, values, report),
            Err(e) => report.fail(sample, &subject.text(&e)),
        }
    }

    /// Compares the symbolic trace of the given sample. If a guard refuses this variant, a symbolic
    /// trace of the variant is compared instead.
    pub(super) fn symbolic(
        &mut self,
        subject: &OpUnderTest<'_>,
        tried: &SampleRun,
        values: bool,
        report: &mut CheckReport,
    ) {
        let SampleVariant { kind, args, what: sample, .. } = &tried.variant;
        let reusable =
            matches!(kind, VariantKind::Given | VariantKind::Sizes | VariantKind::Contents);
        if let Some(trace) = self.symbolic.as_ref().filter(|_| reusable) {
            match subject.run_trace(trace, args) {
                Ok(ran) => return differ(subject, tried, &ran, values, report),
                Err(e) => match e.kind() {
                    ErrorKind::Run(RunError::Guard { guard, loc, .. }) => {
                        self.note(guard, loc, report)
                    }
                    ErrorKind::Run(RunError::Input { .. }) => {}
                    _ => return report.fail(sample, &subject.text(&e)),
                },
            }
        }
        match subject.trace(&options(TraceOptions::symbolic()), args, 1) {
            Ok(trace) => {
                compare(subject, &trace, tried, values, report);
                if *kind == VariantKind::Given {
                    self.symbolic = Some(trace);
                }
            }
            Err(e) => report.fail(sample, &subject.text(&e)),
        }
    }

    /// Reports a guard that refused a variant, once.
    fn note(&mut self, guard: &str, loc: &str, report: &mut CheckReport) {
        if self.guards.iter().any(|g| g == guard) {
            return;
        }
        self.guards.push(guard.to_owned());
        // a guard such as `s0 == 3` specializes the trace; others, as `s0 > 4`, divide the sizes
        // into two sets
        let number = |t: &str| t.trim().parse::<i64>().is_ok();
        let text = format!("the guard `{guard}`, taken at {loc}");
        if guard
            .split_once("==")
            .is_some_and(|(a, b)| number(a) != number(b) && !a.contains('%') && !b.contains('%'))
        {
            report
                .warnings
                .push(format!("{text}, specializes a size: the trace is valid for no other"));
        } else {
            report.notes.push(format!(
                "{text}, does not hold for some derived samples; they were traced again"
            ));
        }
    }
}

/// Samples keep their storage offsets: variants begin where the sample does.
fn options(options: TraceOptions) -> TraceOptions {
    options.keep_offsets(true)
}

/// Runs a trace on a sample, and compares it with the call.
fn compare(
    subject: &OpUnderTest<'_>,
    trace: &Trace,
    tried: &SampleRun,
    values: bool,
    report: &mut CheckReport,
) {
    match subject.run_trace(trace, &tried.variant.args) {
        Ok(ran) => differ(subject, tried, &ran, values, report),
        Err(e) => report.fail(&tried.variant.what, &subject.text(&e)),
    }
}

/// Reports the differences of a traced run from the call.
fn differ(
    subject: &OpUnderTest<'_>,
    tried: &SampleRun,
    traced: &CallRecord,
    values: bool,
    report: &mut CheckReport,
) {
    let eager = CallRecord {
        args: tried.ran.args.clone(),
        outputs: flat(&tried.ran),
        metadata: Vec::new(),
        before: Vec::new(),
        after: Vec::new(),
    };
    for d in (Pair { first: ("called", &eager), second: ("traced", traced), values })
        .differences(subject.schema)
    {
        report.fail(&tried.variant.what, &d);
    }
}

/// Compares two successive calls with their trace, which must contain both and write what both
/// write.
pub(super) fn effects(
    subject: &OpUnderTest<'_>,
    given: &SampleRun,
    values: bool,
    report: &mut CheckReport,
) {
    let SampleVariant { args, what: sample, .. } = &given.variant;
    let trace = match subject.trace(&options(TraceOptions::new()), args, 2) {
        Ok(trace) => trace,
        Err(e) => return report.fail(sample, &subject.text(&e)),
    };
    let found =
        trace.graph().nodes().filter(|n| trace.graph().op_name(*n) == subject.op.name()).count();
    if found != 2 {
        report.fail(sample, &format!("a trace of two calls has {found} nodes of the operator"));
    }
    let twice = |args: &Args| -> Result<Vec<Value>> {
        subject.op.call_at(args.clone(), subject.loc)?;
        Ok(subject.op.call_at(args.clone(), subject.loc)?.into_vec())
    };
    match subject.on_copies(args, |args| catch_panics("its kernel", || twice(args))) {
        Ok(ran) => {
            let variant = SampleVariant {
                kind: VariantKind::Given,
                args: args.clone(),
                what: "two calls on the sample".into(),
                dims: Vec::new(),
            };
            compare(subject, &trace, &SampleRun { variant, ran }, values, report);
        }
        Err(e) => report.fail(
            sample,
            &format!("a second call on the same arguments fails: {}", subject.text(&e)),
        ),
    }
}

impl OpUnderTest<'_> {
    /// An error as text for the report, which already names the operator.
    pub(super) fn text(&self, e: &Error) -> String {
        let text = e.to_string();
        let text = text.strip_prefix(&format!("{}: ", self.op.name())).unwrap_or(&text);
        // the line of the call to opcheck adds no information
        let here = format!("at {}", self.loc);
        text.lines()
            .filter(|l| !l.trim_start().ends_with(&here) || !l.starts_with("  "))
            .collect::<Vec<_>>()
            .join("\n")
    }
}
