//! Writes `docs/operators.md`: every builtin operator, and every operator that is missing.

use super::report::OperatorReport;
use maquette_ops::{aten, library};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The builtin operators by name, with class and computation.
type Builtins<'a> = BTreeMap<&'a str, (String, String)>;

/// The reason for an operator whose calls PyTorch recorded, and which nobody has written.
const UNWRITTEN: &str = "it is not implemented yet";

/// Every builtin operator with its class and the number of recorded calls that agree, and every
/// operator that is missing, by reason.
pub fn markdown(reports: &[OperatorReport]) -> String {
    let recorded: BTreeMap<&str, &OperatorReport> =
        reports.iter().map(|r| (r.name.as_str(), r)).collect();
    let builtins: Builtins<'_> = library::all()
        .into_iter()
        .filter_map(|op| Some((op.name(), (op.lowering()?, op.computation()?))))
        .collect();
    let mut out = summary(reports, &builtins);
    out += "\n| operator | class | computed as | recorded calls that agree |\n|---|---|---|---|\n";
    for (name, (class, computed)) in &builtins {
        let agree = recorded.get(name).map_or_else(
            || "none recorded".to_owned(),
            |r| format!("{} of {}", r.passed(), r.calls.len()),
        );
        // writing to a string cannot fail
        let _ = writeln!(out, "| `{name}` | {} | {computed} | {agree} |", short_class(name, class));
    }
    out += "\n## Not supported\n\nPyTorch's operators that are not supported, by reason.\n";
    for (reason, names) in missing(reports, &builtins) {
        let _ = writeln!(out, "\n{}:\n", wrapped(&capitalized(reason)));
        names.iter().for_each(|name| out += &format!("- `aten::{name}`\n"));
    }
    out
}

/// The head of the page, with the totals.
fn summary(reports: &[OperatorReport], builtins: &Builtins<'_>) -> String {
    let (agree, all) =
        reports.iter().fold((0, 0), |(agree, n), r| (agree + r.passed(), n + r.calls.len()));
    let of_missing: usize = reports
        .iter()
        .filter(|r| !builtins.contains_key(r.name.as_str()))
        .map(|r| r.calls.len())
        .sum();
    let mut counts = String::new();
    let kinds: Vec<&str> =
        builtins.values().map(|(_, c)| c.split(':').next().unwrap_or(c)).collect();
    for kind in ["data", "composite", "call"] {
        let count = kinds.iter().filter(|k| **k == kind).count();
        counts += &format!("| {kind} | {count} |\n");
    }
    format!(
        "# Operators\n\n\
         `maquette conform tests/data/aten --table docs/operators.md` writes this page, and\n\
         a test compares the page with the operator table.\n\n\
         There are {} builtin operators, with PyTorch's names and schemas.\n\
         `maquette ops aten::add` prints the schemas.\n\n\
         PyTorch recorded {all} calls (`tests/data/README.md`). Maquette makes each call\n\
         eagerly, traced, and traced with symbolic sizes, and compares sizes, strides,\n\
         offsets, dtypes and values. Eager calls of data and of composites are made once\n\
         more by the generic executor alone, which gives the same bits.\n\n\
         An operator is data (a scalar expression, an index map or a loop nest:\n\
         [design](design/loops.md)), a composite of other operators, or a call of a Rust\n\
         function, with the reason.\n\n\
         | computed as | operators |\n|---|--:|\n{counts}\n\
         | recorded calls | number |\n|---|--:|\n\
         | agree | {agree} ({:.1} %) |\n\
         | of unsupported operators | {of_missing} |\n\
         | differ | {} |\n\n\
         `crates/check/tests/recorded.rs` lists the calls that may differ, with the reasons.\n",
        builtins.len(),
        100.0 * agree as f64 / all.max(1) as f64,
        all - agree - of_missing
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
    reports: &'a [OperatorReport],
    builtins: &Builtins<'_>,
) -> BTreeMap<&'static str, Vec<&'a str>> {
    let unwritten = reports.iter().filter(|r| !builtins.contains_key(r.name.as_str()));
    let mut reasons: BTreeMap<&str, &'static str> =
        unwritten.map(|r| (r.name.trim_start_matches("aten::"), UNWRITTEN)).collect();
    for (name, reason) in aten::all_unsupported() {
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
