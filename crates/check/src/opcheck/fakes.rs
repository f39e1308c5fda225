//! Compares the fake kernel's outputs with the kernel's.

use super::calls::{OpUnderTest, SampleRun};
use super::report::CheckReport;
use super::sample::operands;
use super::sample_variants::{SampleVariant, VariantKind};
use crate::values::catch_panics;
use crate::values::{flatten, show};
use maquette_invoke::metadata_check::{ExpectedMeta, NumberCheck, check_metadata};
use maquette_ir::sym::{Expr, Range, Scope, ScopeData, SymInt, SymbolId, SymbolKind};
use maquette_ops::{Error, ErrorKind, Meta, Result, Tensor, Value, fake};
use rustc_hash::FxHashMap;

/// The value of a data-dependent size on one sample, with the other numbers known there by name.
struct ObservedSize {
    kind: VariantKind,
    value: i64,
    known: Vec<(String, i64)>,
}

/// The data-dependent sizes of all samples, by symbol name.
#[derive(Default)]
pub(super) struct DataDependentSizes(Vec<(String, Vec<ObservedSize>)>);

/// Fake tensors for the arguments, which share storages as the real ones do.
fn fake_args(subject: &OpUnderTest<'_>, args: &[Value]) -> Result<maquette_ops::Args> {
    let operands = operands(subject.schema, args);
    let mut fakes: Vec<Tensor> = Vec::new();
    for o in &operands {
        let sharing = operands.iter().zip(&fakes).find(|(p, _)| p.tensor.shares_storage(&o.tensor));
        let meta = o.tensor.meta().clone();
        fakes.push(match sharing {
            Some((_, fake)) => fake.fake_view(meta)?,
            None => Tensor::fake_of(meta),
        });
    }
    super::sample::replace(&operands, args, &fakes)
}

/// The values of data-dependent symbols, taken from the real outputs.
struct SymbolBindings<'a> {
    data: &'a ScopeData,
    scope: &'a Scope,
    values: FxHashMap<SymbolId, i64>,
}

impl SymbolBindings<'_> {
    fn expr(&self, i: SymInt) -> Option<Expr> {
        i.as_i64().map(Expr::Int).or_else(|| self.scope.lower(i).ok())
    }

    fn eval(&self, i: SymInt) -> Option<i64> {
        self.data.table.eval(self.expr(i)?, &|s| self.values.get(&s).copied()).ok()
    }

    /// Binds a promised size that is exactly one symbol to the real size.
    fn bind(&mut self, promised: SymInt, real: SymInt) {
        let (Some(e @ Expr::Id(_)), Some(real)) = (self.expr(promised), real.as_i64()) else {
            return;
        };
        if let [symbol] = self.data.table.free_symbols(e).as_slice()
            && self.data.table.display(e).to_string() == self.data.table.name(*symbol)
        {
            self.values.entry(*symbol).or_insert(real);
        }
    }

    /// A promised number as text, with its value if it is symbolic: `2*u0, which is 4`.
    fn text(&self, i: SymInt) -> String {
        match (i.as_i64(), self.expr(i)) {
            (Some(n), _) => n.to_string(),
            (None, Some(e)) => {
                let text = self.data.table.display(e).to_string();
                self.eval(i).map_or_else(|| text.clone(), |n| format!("{text}, which is {n}"))
            }
            (None, None) => i.to_string(),
        }
    }

    /// Whether a promised number, once symbols have values, is not the real one.
    fn differs(&self, promised: SymInt, real: SymInt) -> bool {
        self.eval(promised) != real.as_i64()
    }
}

/// The message for a difference.
fn mismatch_text(
    what: &str,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> String {
    format!("{what}: the fake kernel promises {expected}, but the kernel returned {found}")
}

/// The message for arguments that the kernel accepts and the fake kernel does not.
fn refusal(subject: &OpUnderTest<'_>, e: &Error) -> String {
    let text = subject.text(e);
    match e.kind() {
        // no fake kernel, or one that breaks its own contract
        ErrorKind::Fake(_) | ErrorKind::Access(_) => text,
        _ => format!("the kernel accepts this sample, the fake kernel refuses it: {text}"),
    }
}

/// Compares metadata. Returns one message, for the most significant difference.
fn tensor(
    bindings: &SymbolBindings<'_>,
    what: &str,
    promised: &Meta,
    real: &Tensor,
) -> Result<Option<String>> {
    let check = |e: SymInt, found: Option<i64>| {
        let holds = bindings.eval(e) == found;
        Ok(if holds { NumberCheck::Holds } else { NumberCheck::Differs(bindings.text(e)) })
    };
    let (mismatch, _) = check_metadata(&ExpectedMeta::of(promised), real, |_, _| Ok(false), check)?;
    Ok(mismatch.map(|m| mismatch_text(&format!("{what}, {}", m.what), m.expected, m.found)))
}

/// Compares the fake kernel's outputs with those of a call.
pub(super) fn call(
    subject: &OpUnderTest<'_>,
    tried: &SampleRun,
    report: &mut CheckReport,
    sizes: &mut DataDependentSizes,
) -> Result<()> {
    let (ran, SampleVariant { kind, what: sample, .. }) = (&tried.ran, &tried.variant);
    let scope = Scope::new();
    let args = fake_args(subject, &ran.args)?;
    let promised = match catch_panics("its fake kernel", || {
        fake::call(subject.op, &args, Some(&scope), subject.loc)
    }) {
        Ok(outputs) => outputs.into_vec(),
        Err(e) => {
            report.fail(sample, &refusal(subject, &e));
            return Ok(());
        }
    };
    // symbolic sizes refer to their scope, so the scope stays open while they are examined
    let data = scope.with(|data| data.clone());
    let mut bindings = SymbolBindings { data: &data, scope: &scope, values: FxHashMap::default() };
    for m in compare(&mut bindings, &promised, &ran.outputs)? {
        report.fail(sample, &m);
    }
    for symbol in data.table.symbols().filter(|s| data.table.kind(*s) == SymbolKind::Unbacked) {
        let (name, range) = (data.table.name(symbol), data.table.range(symbol));
        let Some(&value) = bindings.values.get(&symbol) else { continue };
        if !range.contains(value) {
            let message = format!(
                "the data-dependent size {name} is declared in {range}, but the kernel returned \
                    {value}"
            );
            report.fail(sample, &message);
        }
        sizes.note(
            name,
            ObservedSize { kind: *kind, value, known: known(subject, &ran.args) },
            range,
        );
    }
    for a in &data.assertions {
        if data
            .table
            .eval_bool(a.cond, &|s| bindings.values.get(&s).copied())
            .is_ok_and(|holds| !holds)
        {
            let cond = data.table.display_bool(a.cond).to_string();
            let message = a.message.as_deref().map(|m| format!("{m}: ")).unwrap_or_default();
            report.fail(
                sample,
                &format!(
                    "the fake kernel asserts {message}`{cond}`, which does not hold for the \
                    real outputs\nasserted at {}",
                    a.loc
                ),
            );
        }
    }
    Ok(())
}

fn compare(
    bindings: &mut SymbolBindings<'_>,
    promised: &[Value],
    real: &[Value],
) -> Result<Vec<String>> {
    for (i, (p, r)) in promised.iter().zip(real).enumerate() {
        let count = |v: &Value| flatten(std::slice::from_ref(v)).len();
        if count(p) != count(r) {
            return Ok(vec![mismatch_text(
                &format!("output {i}"),
                format!("a list of {}", count(p)),
                format!("one of {}", count(r)),
            )]);
        }
    }
    let (p, r) = (flatten(promised), flatten(real));
    for (p, r) in p.iter().zip(&r) {
        match (p, r) {
            (Value::Tensor(p), Value::Tensor(r)) => {
                p.sizes().iter().zip(r.sizes()).for_each(|(&p, &r)| bindings.bind(p, r))
            }
            (Value::Int(p), Value::Int(r)) => bindings.bind(*p, *r),
            _ => {}
        }
    }
    let mut out = Vec::new();
    for (i, (p, r)) in p.iter().zip(&r).enumerate() {
        let what = format!("output {i}");
        match (p, r) {
            (Value::Tensor(p), Value::Tensor(r)) => {
                out.extend(tensor(bindings, &what, p.meta(), r)?)
            }
            (Value::Int(p), Value::Int(r)) if bindings.differs(*p, *r) => {
                let hint = if p.as_i64().is_some() {
                    ". For an integer that depends on data, return `cx.new_dynamic_size()?`"
                } else {
                    ""
                };
                out.push(mismatch_text(&what, bindings.text(*p), r) + hint);
            }
            (Value::Int(_), Value::Int(_)) | (Value::None, Value::None) => {}
            // values that depend on data have no promise
            (Value::Float(_), Value::Float(_))
            | (Value::Bool(_), Value::Bool(_))
            | (Value::Str(_), Value::Str(_)) => {}
            (p, r) => out.push(mismatch_text(&what, show(p), show(r))),
        }
    }
    Ok(out)
}

/// The numbers to which a data-dependent size is compared: the arguments' sizes, their numbers of
/// elements, and integer arguments.
fn known(subject: &OpUnderTest<'_>, args: &[Value]) -> Vec<(String, i64)> {
    let mut out = Vec::new();
    for o in operands(subject.schema, args) {
        let sizes = o.tensor.sizes().iter().enumerate();
        out.extend(
            sizes.filter_map(|(d, n)| Some((format!("size {d} of `{}`", o.name), n.as_i64()?))),
        );
        out.extend(
            o.tensor
                .numel()
                .as_i64()
                .map(|n| (format!("the number of elements of `{}`", o.name), n)),
        );
    }
    for (a, v) in subject.schema.args.iter().zip(args) {
        if let Value::Int(i) = v {
            out.extend(i.as_i64().map(|i| (format!("`{}`", a.name), i)));
        }
    }
    out
}

impl DataDependentSizes {
    fn note(&mut self, name: &str, seen: ObservedSize, range: Range) {
        // a range with a single value is a declaration, and no accident
        if range.lo == range.hi {
            return;
        }
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, all)) => all.push(seen),
            None => self.0.push((name.to_owned(), vec![seen])),
        }
    }

    /// Warns of data-dependent sizes that equalled the same known number, or one constant, on all
    /// samples, if other sizes and other contents were tried.
    pub(super) fn warn_of_constants(&self, report: &mut CheckReport) {
        for (name, all) in &self.0 {
            let tried = |kind: VariantKind| all.iter().any(|s| s.kind == kind);
            let Some(first) =
                all.first().filter(|_| tried(VariantKind::Sizes) && tried(VariantKind::Contents))
            else {
                continue;
            };
            let n = all.len();
            let is = |known: &str| {
                all.iter().all(|s| s.known.iter().any(|(k, v)| k == known && *v == s.value))
            };
            let always = match first.known.iter().map(|(k, _)| k).find(|k| is(k)) {
                Some(known) => known.clone(),
                None if all.iter().all(|s| s.value == first.value) => first.value.to_string(),
                None => continue,
            };
            report.warnings.push(format!(
                "the size {name} is declared as data-dependent, but was {always} in all {n} calls; \
                    if it always is, return it from the fake kernel instead of `new_dynamic_size`"
            ));
        }
    }
}
