//! Checks the contract of an operator: [`opcheck`] calls it, traces it and compares the results, on
//! a sample and on variants of the sample. It is the counterpart of PyTorch's
//! `torch.library.opcheck`.
//!
//! All comparisons are exact, of bits and metadata. Every call gets copies of its arguments, so
//! the elements of a sample are limited ([`OpcheckOptions::max_elements`]); arguments that
//! share memory share it in the copies too. The variants have other sizes (equal sizes change
//! together, then one by one), other contents, other layouts and other integers. Variants that
//! the kernel refuses are skipped, and the report lists the sizes that could not be varied.
//!
//! The gradients of an operator with a derivative are compared with differences, as
//! [`gradcheck`](crate::gradcheck) does, and those of a graph with the eager ones.
//!
//! The dispatcher refuses a kernel that touches tensors it was not given, or that keeps what it
//! returns; the check of the schema reports it.
//!
//! Not detected: a write through a raw pointer of the bits that were already there; an effect
//! outside of tensors; a tensor that a kernel reads on another thread.

mod calls;
mod fakes;
mod gradients;
mod report;
// For the crates that test the project.
#[doc(hidden)]
pub mod sample;
mod sample_variants;
mod schema;
mod suite;
mod traces;

pub use report::{Check, CheckReport, OpcheckError, Outcome, Report};
#[doc(hidden)]
pub use suite::suite;

use calls::{OpUnderTest, Pair, SampleRun};
use maquette_ir::{Device, Loc};
use maquette_ops::library::Tag;
use maquette_ops::{Args, Error, Op, Result, mode, with_silent_panics};
use sample_variants::{SampleVariant, VariantGenerator, VariantKind};

/// Checks an operator on sample arguments, which are given as for [`Op::call`].
///
/// ```
/// use maquette_check::opcheck::opcheck;
/// use maquette_ops::{Result, Tensor, args, custom_op};
/// # use maquette_ops::FakeCtx;
/// let op = custom_op("doc::twice")
///     .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x + x) })
///     .register()?;
/// op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
///     Ok(x.new_empty(x.sizes(), x.dtype()))
/// })?;
/// opcheck(&op, args![Tensor::from([1.0f32, 2.0])])?;
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// # Errors
/// A check failed: the error contains the whole report. The sample does not fit the schema, has
/// more than 2^18 elements, or has tensors that are not real.
#[track_caller]
pub fn opcheck(op: &Op, args: Args) -> Result<Report> {
    opcheck_with(op, args, OpcheckOptions::new())
}

/// Like [`opcheck`], with options.
///
/// # Errors
/// As [`opcheck`]. Without [`OpcheckOptions::raise`], failed checks are only in the report.
#[track_caller]
pub fn opcheck_with(op: &Op, args: Args, options: OpcheckOptions) -> Result<Report> {
    let loc = Loc::caller();
    let report = run(*op, args, &options, loc).map_err(|e| e.at(loc))?;
    if options.raise && !report.passed() {
        return Err(Error::other(OpcheckError(report)).at(loc));
    }
    Ok(report)
}

/// The options of [`opcheck_with`].
#[derive(Clone, Debug)]
pub struct OpcheckOptions {
    checks: Vec<Check>,
    raise: bool,
    derive: usize,
    nondeterministic: bool,
    max_elements: usize,
    device: Option<Device>,
}

impl Default for OpcheckOptions {
    fn default() -> OpcheckOptions {
        OpcheckOptions {
            checks: Check::ALL.to_vec(),
            raise: true,
            derive: 32,
            nondeterministic: false,
            max_elements: 1 << 18,
            device: None,
        }
    }
}

impl OpcheckOptions {
    /// All checks, on up to 32 variants of the sample; a failed check is an error.
    pub fn new() -> OpcheckOptions {
        OpcheckOptions::default()
    }

    /// Makes only these checks.
    pub fn only(mut self, checks: impl IntoIterator<Item = Check>) -> OpcheckOptions {
        self.checks = checks.into_iter().collect();
        self
    }

    /// Omits a check.
    pub fn skip(mut self, check: Check) -> OpcheckOptions {
        self.checks.retain(|c| *c != check);
        self
    }

    /// Whether a failed check is an error (the default), or only part of the report.
    pub fn raise(mut self, on: bool) -> OpcheckOptions {
        self.raise = on;
        self
    }

    /// The maximum number of variants; 0 for kernels that must not get other sizes or contents than
    /// the sample's.
    pub fn derive(mut self, most: usize) -> OpcheckOptions {
        self.derive = most;
        self
    }

    /// The maximum number of elements in all tensors of the sample, their storages included; 2^18
    /// unless given. The time of all checks is linear in this number.
    pub fn max_elements(mut self, most: usize) -> OpcheckOptions {
        self.max_elements = most;
        self
    }

    /// Copies the tensors of the sample to this device first; unless given, each stays where it is.
    /// Tensors that share memory share it there. Arguments that are themselves devices stay.
    pub fn device(mut self, device: Device) -> OpcheckOptions {
        self.device = Some(device);
        self
    }

    /// Treats the operator as nondeterministic, as its tag would: values are not compared.
    pub fn nondeterministic(mut self, on: bool) -> OpcheckOptions {
        self.nondeterministic = on;
        self
    }
}

/// The reason for which equal inputs need not give equal bits; `None` if they must.
fn nondeterministic(op: Op, options: &OpcheckOptions) -> Option<&'static str> {
    if options.nondeterministic
        || [Tag::NondeterministicSeeded, Tag::NondeterministicBitwise]
            .iter()
            .any(|t| op.tags().contains(*t))
    {
        return Some("it is random");
    }
    op.effect().map(|_| "it has an effect")
}

fn run(op: Op, args: Args, options: &OpcheckOptions, loc: Loc) -> Result<Report> {
    if mode::is_active() {
        return Err(Error::value(
            "opcheck runs and traces operators, so it cannot be called inside a trace",
        ));
    }
    let schema = op.schema()?;
    let mut args = sample::complete(op, &schema, args, options.max_elements)?;
    if options.device.is_some() {
        args = sample::copy(&schema, &args, options.device)?;
    }
    let subject = OpUnderTest { op, schema: &schema, loc };
    let checks = Check::ALL
        .into_iter()
        .filter(|c| options.checks.contains(c))
        .map(CheckReport::new)
        .collect();
    let sample = sample::describe(&schema, &args);
    let (schema_text, registrations) = (schema.to_string(), op.registrations());
    let mut report = Report {
        schema: schema_text,
        sample,
        registrations,
        checks,
        derived: 0,
        skipped_variants: Vec::new(),
    };
    let random = nondeterministic(op, options);
    let given = SampleVariant {
        kind: VariantKind::Given,
        args: args.clone(),
        what: "the sample".into(),
        dims: Vec::new(),
    };
    let derive = VariantGenerator::new(&schema, &args)?;
    let given = match subject.run(&given.args) {
        Ok(ran) => SampleRun { variant: given, ran },
        Err(e) => {
            refused(&subject, &mut report, &e);
            return Ok(report);
        }
    };
    let mut tried = vec![given];
    tried.extend(with_silent_panics(|| variants(&subject, &derive, options, &mut report))?);
    let context = CheckContext { subject: &subject, derive: &derive, tried: &tried, random };
    let checks_with_fakes =
        [Check::Fake, Check::StaticTrace, Check::DynamicTrace, Check::Effects, Check::Gradients];
    let fakes_wrong = options.checks.iter().any(|c| checks_with_fakes.contains(c))
        && context.fakes(&mut report)?;
    for check in &mut report.checks {
        match check.check {
            Check::Schema => context.schema(check)?,
            Check::Fake => {}
            Check::Determinism => context.determinism(check),
            Check::Gradients => context.gradients(check, fakes_wrong),
            Check::StaticTrace | Check::DynamicTrace | Check::Effects => {
                context.traces(check, fakes_wrong)
            }
        }
    }
    Ok(report)
}

/// Reports that the operator fails on the sample itself, so that nothing else can be checked.
fn refused(subject: &OpUnderTest<'_>, report: &mut Report, e: &Error) {
    for (i, check) in report.checks.iter_mut().enumerate() {
        if i == 0 {
            check.fail("the sample", &subject.text(e));
        } else {
            check.not_run("the operator fails on the sample");
        }
    }
}

/// The variants that the operator accepts. Adds to the report what could not be varied.
fn variants(
    subject: &OpUnderTest<'_>,
    derive: &VariantGenerator<'_>,
    options: &OpcheckOptions,
    report: &mut Report,
) -> Result<Vec<SampleRun>> {
    let (mut tried, mut refused, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    let most = derive.max_variants(options.derive);
    if most < options.derive {
        report
            .skipped_variants
            .push(format!("more than {most} derived samples, because the given sample is large"));
    }
    for variant in derive.variants(most)? {
        match subject.run(&variant.args) {
            Ok(ran) => tried.push(SampleRun { variant, ran }),
            Err(e) if calls::breaks_contract(&e) => broken.push((variant, e)),
            Err(e) => refused.push((variant, e)),
        }
    }
    if let Some(check) = report.checks.iter_mut().find(|c| c.check == Check::Schema) {
        broken.iter().for_each(|(v, e)| check.fail(&v.what, &subject.text(e)));
    }
    report.derived = tried.len();
    let why = |e: &Error| e.kind().to_string().lines().next().unwrap_or_default().to_owned();
    for (k, d, n) in derive.dims() {
        let varies = |v: &SampleVariant| v.dims.contains(&(k, d));
        if !tried.iter().any(|t| varies(&t.variant))
            && let Some((_, e)) = refused.iter().find(|(v, _)| varies(v))
        {
            report.skipped_variants.push(format!(
                "values other than {n} for {}: {}",
                derive.dim_name((k, d)),
                why(e)
            ));
        }
    }
    for (v, e) in refused
        .iter()
        .filter(|(v, _)| matches!(v.kind, VariantKind::Contents | VariantKind::Layout))
    {
        report.skipped_variants.push(format!("{}: {}", v.what, why(e)));
    }
    Ok(tried)
}

/// The calls that were made, which the checks examine.
struct CheckContext<'a> {
    subject: &'a OpUnderTest<'a>,
    derive: &'a VariantGenerator<'a>,
    /// The sample comes first.
    tried: &'a [SampleRun],
    random: Option<&'static str>,
}

impl CheckContext<'_> {
    /// Applies `f` to each sample. If the given sample fails, its variants are skipped. Of panics
    /// on variants, the report tells what matters.
    fn each(&self, check: &mut CheckReport, mut f: impl FnMut(&SampleRun, &mut CheckReport)) {
        for t in self.tried {
            if t.variant.kind == VariantKind::Given {
                f(t, check);
                if check.failed() {
                    return;
                }
            } else {
                with_silent_panics(|| f(t, check));
            }
        }
    }

    fn schema(&self, check: &mut CheckReport) -> Result<()> {
        let subject = self.subject;
        let mut written = schema::WrittenArgs::default();
        self.each(check, |t, check| {
            schema::call(subject, &t.ran, &t.variant.what, check, &mut written)
        });
        if check.failed() {
            return Ok(());
        }
        if let Some(given) = self.tried.first() {
            schema::never_written(subject, &given.variant.args, &written, check);
        }
        if subject.op.is_builtin() {
            return Ok(());
        }
        with_silent_panics(|| {
            schema::margins(subject, self.derive, self.random.is_none(), check)?;
            if self.random.is_none() && subject.op.is_mutable() && !check.failed() {
                schema::note_initial_contents_dependence(subject, self.derive, check)?;
            }
            Ok(())
        })
    }

    /// Checks the fake kernel. Returns whether it is wrong.
    fn fakes(&self, report: &mut Report) -> Result<bool> {
        let mut unasked = CheckReport::new(Check::Fake);
        let check =
            report.checks.iter_mut().find(|c| c.check == Check::Fake).unwrap_or(&mut unasked);
        let subject = self.subject;
        if let Some((output, ty)) = sample::untraceable(subject.schema)
            && (subject.op.is_builtin() || !subject.op.has_fake())
        {
            check.not_run(format!(
                "output {output} is a {ty} that depends on data, so there is no metadata to check"
            ));
            return Ok(false);
        }
        let mut sizes = fakes::DataDependentSizes::default();
        let mut error = None;
        self.each(check, |t, check| {
            if let Err(e) = fakes::call(subject, t, check, &mut sizes) {
                error.get_or_insert(e);
            }
        });
        if !check.failed() {
            sizes.warn_of_constants(check);
        }
        error.map_or(Ok(check.failed()), Err)
    }

    fn determinism(&self, check: &mut CheckReport) {
        if let Some(why) = self.random {
            return check.not_run(why);
        }
        let subject = self.subject;
        self.each(check, |t, check| match subject.run(&t.variant.args) {
            Ok(again) => {
                let pair = Pair {
                    first: ("in one call", &t.ran),
                    second: ("in the next call", &again),
                    values: true,
                };
                for d in pair.differences(subject.schema) {
                    check.fail(&t.variant.what, &d);
                }
            }
            Err(e) => {
                check.fail(&t.variant.what, &format!("a second call fails: {}", subject.text(&e)))
            }
        });
        if check.failed() {
            check.notes.push(
                "values are not compared if the operator is tagged as nondeterministic or has an \
                    effect"
                    .into(),
            );
        }
    }

    fn traces(&self, check: &mut CheckReport, fakes_wrong: bool) {
        let subject = self.subject;
        if check.check == Check::Effects
            && subject.op.effect().is_none()
            && !subject.op.is_mutable()
        {
            return check.not_run("it mutates nothing and has no effect");
        }
        if fakes_wrong {
            return check.not_run("the fake kernel check failed");
        }
        if let Some((output, ty)) = sample::untraceable(subject.schema) {
            return check.not_run(format!(
                "output {output} is a {ty} that depends on data, which a trace cannot represent"
            ));
        }
        let values = self.random.is_none();
        let mut traces = traces::Traces::default();
        match (check.check, self.tried.first()) {
            (Check::Effects, Some(given)) => traces::effects(subject, given, values, check),
            (Check::StaticTrace, _) => {
                self.each(check, |t, check| traces::Traces::fixed(subject, t, values, check))
            }
            _ => self.each(check, |t, check| traces.symbolic(subject, t, values, check)),
        }
    }
}
