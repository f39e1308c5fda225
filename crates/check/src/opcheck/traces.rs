//! Traces of a call, run beside the call itself.

use super::calls::{CallRecord, OpUnderTest, Pair, SampleRun};
use super::report::CheckReport;
use super::sample::{operands, replace};
use super::sample_variants::{SampleVariant, VariantKind};
use crate::values::{FlatValues, catch_panics, flatten};
use maquette_ops::{Args, Error, ErrorKind, Result, RunError, Tensor, Value};
use maquette_trace::{TraceOptions, Traced};

type Trace = Traced<FlatValues, FlatValues>;

fn inputs(s: &OpUnderTest<'_>, args: &[Value]) -> FlatValues {
    FlatValues(operands(s.schema, args).into_iter().map(|o| Value::Tensor(o.tensor)).collect())
}

impl OpUnderTest<'_> {
    /// Traces `calls` calls in turn on the same arguments, and returns the results of the last.
    fn trace(&self, options: &TraceOptions, args: &Args, calls: usize) -> Result<Trace> {
        let places = operands(self.schema, args);
        let program = |given: FlatValues| -> Result<FlatValues> {
            let tensors = given.0.iter().flat_map(Value::tensors).cloned().collect::<Vec<Tensor>>();
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

/// As the operator's outputs are in a graph: lists taken apart, absent ones left out.
fn flat(ran: &CallRecord) -> Vec<Value> {
    flatten(&ran.outputs).into_iter().filter(|v| !v.is_none()).collect()
}

/// The traces of a sample, for the samples derived from it.
#[derive(Default)]
pub(super) struct Traces {
    symbolic: Option<Trace>,
    /// Guards that were noted already.
    guards: Vec<String>,
}

impl Traces {
    /// Runs a trace of the call with the sizes as numbers.
    pub(super) fn fixed(
        s: &OpUnderTest<'_>,
        tried: &SampleRun,
        values: bool,
        report: &mut CheckReport,
    ) {
        let sample = &tried.variant.what;
        match s.trace(&options(TraceOptions::new()), &tried.variant.args, 1) {
            Ok(trace) => compare(s, &trace, tried, values, report),
            Err(e) => report.fail(sample, &s.text(&e)),
        }
    }

    /// Runs the symbolic trace of the sample on this one; where a guard refuses it, a symbolic
    /// trace of its own.
    pub(super) fn symbolic(
        &mut self,
        s: &OpUnderTest<'_>,
        tried: &SampleRun,
        values: bool,
        report: &mut CheckReport,
    ) {
        let SampleVariant { kind, args, what: sample, .. } = &tried.variant;
        let reusable =
            matches!(kind, VariantKind::Given | VariantKind::Sizes | VariantKind::Contents);
        if let Some(trace) = self.symbolic.as_ref().filter(|_| reusable) {
            match s.run_trace(trace, args) {
                Ok(ran) => return differ(s, tried, &ran, values, report),
                Err(e) => match e.kind() {
                    ErrorKind::Run(RunError::Guard { guard, loc, .. }) => {
                        self.note(guard, loc, report)
                    }
                    ErrorKind::Run(RunError::Input { .. }) => {}
                    _ => return report.fail(sample, &s.text(&e)),
                },
            }
        }
        match s.trace(&options(TraceOptions::symbolic()), args, 1) {
            Ok(trace) => {
                compare(s, &trace, tried, values, report);
                if *kind == VariantKind::Given {
                    self.symbolic = Some(trace);
                }
            }
            Err(e) => report.fail(sample, &s.text(&e)),
        }
    }

    fn note(&mut self, guard: &str, loc: &str, report: &mut CheckReport) {
        if self.guards.iter().any(|g| g == guard) {
            return;
        }
        self.guards.push(guard.to_owned());
        // a size that is pinned serves one size only; any other guard cuts the sizes in two
        let number = |t: &str| t.trim().parse::<i64>().is_ok();
        let text = format!("the guard `{guard}`, taken at {loc}");
        if guard
            .split_once("==")
            .is_some_and(|(a, b)| number(a) != number(b) && !a.contains('%') && !b.contains('%'))
        {
            report.warnings.push(format!("{text}, fixes a size: a trace serves no other"));
        } else {
            report
                .notes
                .push(format!("{text}, refuses some derived samples; they were traced anew"));
        }
    }
}

/// A derived sample begins where the sample does in its storage, and so do its copies.
fn options(options: TraceOptions) -> TraceOptions {
    options.keep_offsets(true)
}

fn compare(
    s: &OpUnderTest<'_>,
    trace: &Trace,
    tried: &SampleRun,
    values: bool,
    report: &mut CheckReport,
) {
    match s.run_trace(trace, &tried.variant.args) {
        Ok(ran) => differ(s, tried, &ran, values, report),
        Err(e) => report.fail(&tried.variant.what, &s.text(&e)),
    }
}

fn differ(
    s: &OpUnderTest<'_>,
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
        .differences(s.schema)
    {
        report.fail(&tried.variant.what, &d);
    }
}

/// Two calls in turn: both are in the graph, and write what two calls write.
pub(super) fn effects(
    s: &OpUnderTest<'_>,
    given: &SampleRun,
    values: bool,
    report: &mut CheckReport,
) {
    let SampleVariant { args, what: sample, .. } = &given.variant;
    let trace = match s.trace(&options(TraceOptions::new()), args, 2) {
        Ok(trace) => trace,
        Err(e) => return report.fail(sample, &s.text(&e)),
    };
    let found = trace.graph().nodes().filter(|n| trace.graph().op_name(*n) == s.op.name()).count();
    if found != 2 {
        report.fail(sample, &format!("a trace of two calls has {found} nodes of the operator"));
    }
    let twice = |args: &Args| -> Result<Vec<Value>> {
        s.op.call_at(args.clone(), s.loc)?;
        Ok(s.op.call_at(args.clone(), s.loc)?.into_vec())
    };
    match s.on_copies(args, |args| catch_panics("its kernel", || twice(args))) {
        Ok(ran) => {
            let variant = SampleVariant {
                kind: VariantKind::Given,
                args: args.clone(),
                what: "two calls on the sample".into(),
                dims: Vec::new(),
            };
            compare(s, &trace, &SampleRun { variant, ran }, values, report);
        }
        Err(e) => report
            .fail(sample, &format!("a second call on the same arguments fails: {}", s.text(&e))),
    }
}

impl OpUnderTest<'_> {
    /// An error, to be read in a report that names the operator.
    pub(super) fn text(&self, e: &Error) -> String {
        let text = e.to_string();
        let text = text.strip_prefix(&format!("{}: ", self.op.name())).unwrap_or(&text);
        // the line that called opcheck says nothing new
        let here = format!("at {}", self.loc);
        text.lines()
            .filter(|l| !l.trim_start().ends_with(&here) || !l.starts_with("  "))
            .collect::<Vec<_>>()
            .join("\n")
    }
}
