//! The list of all operators, for people.

use super::report::OperatorReport;
use maquette_ops::{aten, library};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Every builtin operator with its class and what became of its recorded calls, and every operator
/// that is missing, with the reason.
pub fn markdown(reports: &[OperatorReport]) -> String {
    let recorded: BTreeMap<&str, &OperatorReport> =
        reports.iter().map(|r| (r.name.as_str(), r)).collect();
    let builtins: BTreeMap<&str, String> =
        library::all().into_iter().filter_map(|op| Some((op.name(), op.lowering()?))).collect();
    let unwritten = reports
        .iter()
        .filter(|r| !builtins.contains_key(r.name.as_str()))
        .map(|r| r.name.trim_start_matches("aten::"));
    let mut missing: BTreeMap<&str, &str> = unwritten.map(|n| (n, "not written yet")).collect();
    for (name, why) in aten::all_unsupported() {
        missing.insert(name, why);
    }
    let (passed, all) =
        reports.iter().fold((0, 0), |(p, n), r| (p + r.passed(), n + r.calls.len()));
    let of_missing: usize = reports
        .iter()
        .filter(|r| !builtins.contains_key(r.name.as_str()))
        .map(|r| r.calls.len())
        .sum();
    let mut out = String::new();
    // writing to a string cannot fail
    let _ = writeln!(
        out,
        "# Operators\n\nWritten by `maquette conform tests/data/aten --table docs/operators.md`; \
            a test compares it with the table.\n\n\
         {} operators, with PyTorch's names and schemas (`maquette ops aten::add` prints them). \
         Of {all} calls that PyTorch recorded \
         (`tests/data/README.md`), {passed} agree ({:.1} %): sizes, strides, offset, dtype and \
         values, called at once, traced, and traced with \
         symbolic sizes. {of_missing} are of operators that are missing, and {} differ: \
         `crates/check/tests/recorded.rs` says of how many calls \
         of which operators that is allowed, and why.\n\n\
         | operator | class | recorded calls that agree |\n|---|---|---|",
        builtins.len(),
        100.0 * passed as f64 / all.max(1) as f64,
        all - passed - of_missing
    );
    for (name, class) in &builtins {
        let state = recorded.get(name).map_or_else(
            || "none recorded".to_owned(),
            |r| format!("{} of {}", r.passed(), r.calls.len()),
        );
        let _ = writeln!(out, "| `{name}` | {class} | {state} |");
    }
    let _ = writeln!(out, "\n## Missing\n\n| operator | why |\n|---|---|");
    for (name, why) in &missing {
        let _ = writeln!(out, "| `aten::{name}` | {why} |");
    }
    out
}
