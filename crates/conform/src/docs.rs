//! Writes `docs/operators.md`: every builtin operator, and every operator that is missing.

use super::report::OperatorReport;
use maquette_ops::library;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the table says of a builtin operator.
struct Builtin {
    class: String,
    /// What computes the operator.
    computed: String,
    derivative: String,
}

/// The builtin operators by name.
type Builtins<'a> = BTreeMap<&'a str, Builtin>;

/// The reason for an operator whose calls PyTorch recorded, and which nobody has written.
const UNWRITTEN: &str = "it is not implemented yet";

/// Every builtin operator with its class, its derivative and the number of recorded calls that
/// agree, and every operator that is missing, by reason. `reports` are of calls and of gradients.
pub fn markdown(reports: &[OperatorReport]) -> String {
    let (gradients, calls): (Vec<_>, Vec<_>) = reports.iter().partition(|r| r.of_gradients());
    // without the derivatives of expressions, which exist once a sweep calls them
    let aten = library::all().into_iter().filter(|op| op.name().starts_with("aten::"));
    let builtins: Builtins<'_> = aten
        .filter_map(|op| {
            let (class, computed) = (op.lowering()?, op.computation()?);
            Some((op.name(), Builtin { class, computed, derivative: op.derivative()? }))
        })
        .collect();
    let mut out = summary(&calls, &gradients, &builtins);
    out += "\n| operator | class | computed as | recorded calls that agree | derivative | recorded \
            gradients that agree |\n|---|---|---|---|---|---|\n";
    for (name, Builtin { class, computed, derivative }) in &builtins {
        let class = short_class(name, class);
        let (calls, gradients) = (agreeing(find(&calls, name)), agreeing(find(&gradients, name)));
        // writing to a string cannot fail
        let _ = writeln!(
            out,
            "| `{name}` | {class} | {computed} | {calls} | {derivative} | {gradients} |"
        );
    }
    out += "\n## Not supported\n\nPyTorch's operators that are not supported, by reason.\n";
    for (reason, names) in missing(&calls, &builtins) {
        let _ = writeln!(out, "\n{}:\n", wrapped(&capitalized(reason)));
        names.iter().for_each(|name| out += &format!("- `aten::{name}`\n"));
    }
    out
}

/// The report of an operator.
fn find<'a>(reports: &[&'a OperatorReport], name: &str) -> Option<&'a OperatorReport> {
    reports.iter().find(|r| r.name == name).copied()
}

/// How many recorded calls of an operator agree.
fn agreeing(report: Option<&OperatorReport>) -> String {
    report.map_or_else(
        || "none recorded".to_owned(),
        |r| format!("{} of {}", r.passed(), r.calls.len()),
    )
}

/// Totals of recorded calls.
struct Totals {
    all: usize,
    agree: usize,
    of_missing: usize,
}

impl Totals {
    fn new(reports: &[&OperatorReport], builtins: &Builtins<'_>) -> Totals {
        let missing = reports.iter().filter(|r| !builtins.contains_key(r.name.as_str()));
        Totals {
            all: reports.iter().map(|r| r.calls.len()).sum(),
            agree: reports.iter().map(|r| r.passed()).sum(),
            of_missing: missing.map(|r| r.calls.len()).sum(),
        }
    }

    fn differ(&self) -> usize {
        self.all - self.agree - self.of_missing
    }

    fn percent(&self) -> f64 {
        100.0 * self.agree as f64 / self.all.max(1) as f64
    }
}

/// A table of the number of operators of each kind. The kind is the text before a colon.
fn counts(of: impl Fn(&Builtin) -> &str, kinds: &[&str], builtins: &Builtins<'_>) -> String {
    let kind = |b: &Builtin| of(b).split(':').next().unwrap_or_default().to_owned();
    let line = |k: &&str| {
        let count = builtins.values().filter(|b| kind(b) == *k).count();
        format!("| {k} | {count} |\n")
    };
    kinds.iter().map(line).collect()
}

/// The head of the page, with the totals.
fn summary(
    calls: &[&OperatorReport],
    gradients: &[&OperatorReport],
    builtins: &Builtins<'_>,
) -> String {
    let (c, g) = (Totals::new(calls, builtins), Totals::new(gradients, builtins));
    let computed = counts(|b| &b.computed, &["data", "composite", "call"], builtins);
    let kinds = ["expression", "parts", "rule", "none", "refused"];
    let derivatives = counts(|b| &b.derivative, &kinds, builtins);
    format!(
        "# Operators\n\n\
         `maquette conform tests/data/aten tests/data/grad --table docs/operators.md` writes this\n\
         page, and a test compares the page with the operator table.\n\n\
         There are {operators} builtin operators, with PyTorch's names and schemas.\n\
         `maquette ops aten::add` prints the schemas.\n\n\
         PyTorch recorded {calls} calls and the gradients of {gradients} calls\n\
         (`tests/data/README.md`). Maquette makes each call eagerly, traced, and traced with\n\
         symbolic sizes, and compares sizes, strides, offsets, dtypes and values. Eager calls of\n\
         data and of composites are made once more by the generic executor alone, which gives the\n\
         same bits. Gradients are computed eagerly, and so are gradients of gradients.\n\n\
         An operator is data (a scalar expression, an index map or a loop nest:\n\
         [design](design/loops.md)), a composite of other operators, or a call of a Rust\n\
         function, with the reason.\n\n\
         | computed as | operators |\n|---|--:|\n{computed}\n\
         The derivative of an operator is that of its scalar expression, that of its parts, or a\n\
         rule; or there is none, with the reason ([design](design/autograd.md)).\n\n\
         | derivative | operators |\n|---|--:|\n{derivatives}\n\
         | recorded | calls | gradients |\n|---|--:|--:|\n\
         | agree | {} ({:.1} %) | {} ({:.1} %) |\n\
         | of unsupported operators | {} | {} |\n\
         | differ | {} | {} |\n\n\
         `known.txt` in each folder lists the calls that differ, with the reasons.\n",
        c.agree,
        c.percent(),
        g.agree,
        g.percent(),
        c.of_missing,
        g.of_missing,
        c.differ(),
        g.differ(),
        operators = builtins.len(),
        calls = c.all,
        gradients = g.all,
    )
}

/// The class in the table. An in-place operator names the operator whose result it writes only if
/// that is not its own name without the underscore.
fn short_class<'a>(name: &str, class: &'a str) -> &'a str {
    let functional = name.replacen("_.", ".", 1);
    let functional = functional.strip_suffix('_').unwrap_or(&functional);
    if class == format!("in place of `{functional}`") { "in place" } else { class }
}

/// The names of missing operators by reason, without their namespace.
fn missing<'a>(
    reports: &[&'a OperatorReport],
    builtins: &Builtins<'_>,
) -> BTreeMap<&'static str, Vec<&'a str>> {
    let unwritten = reports.iter().filter(|r| !builtins.contains_key(r.name.as_str()));
    let mut reasons: BTreeMap<&str, &'static str> =
        unwritten.map(|r| (r.name.trim_start_matches("aten::"), UNWRITTEN)).collect();
    for (name, reason) in maquette_aten::all_unsupported() {
        reasons.insert(name, reason);
    }
    let mut by_reason: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in reasons {
        by_reason.entry(reason).or_default().push(name);
    }
    by_reason
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The words of a text in lines of at most 99 columns, so that a colon may follow.
fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let len = word.chars().count();
        let separator = match width {
            0 => "",
            w if w + 1 + len > 99 => "\n",
            _ => " ",
        };
        width = if separator == "\n" { len } else { width + separator.len() + len };
        out.push_str(separator);
        out.push_str(word);
    }
    out
}
