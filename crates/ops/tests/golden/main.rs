//! Calls that PyTorch made, against the same operators here: sizes, strides, offsets, dtypes and values.
//!
//! The files are in `tests/data/aten`, or in the folder that `MAQUETTE_GOLDEN` names; with it set, a line per operator is printed.
//! Operators that are not in the table are counted, not failed; a call of one that is must agree, unless it is in [`EXCEPTIONS`].

mod compare;
mod reader;

use maquette_ops::library;
use reader::{File, Recorded};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Operators of which some recorded calls differ: how many at most, and why.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    ("aten::_log_softmax", 2, "PyTorch rounds the logarithm of the sum to bf16 where the dimension is not the last; here results round once"),
    ("aten::topk", 2, "which of equal elements counts is not defined"),
];

fn folder() -> PathBuf {
    std::env::var_os("MAQUETTE_GOLDEN").map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/aten")), PathBuf::from)
}

#[test]
fn recorded_calls_agree() {
    let verbose = std::env::var_os("MAQUETTE_GOLDEN").is_some();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder of recorded calls can be read")
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are no recorded calls in {}", folder().display());
    let builtin: BTreeMap<&str, library::Op> = library::all().into_iter().filter(|o| o.is_builtin()).map(|o| (o.name(), o)).collect();
    let (mut failures, mut passed, mut absent) = (Vec::new(), 0, 0);
    for path in files {
        let file = File::read(&path);
        let Some(op) = builtin.get(file.name.as_str()) else {
            absent += 1;
            continue;
        };
        let schema = op.schema().expect("a builtin operator has a schema").to_string();
        if schema != file.schema {
            failures.push(format!("{}: its schema is\n  {}\nnot\n  {schema}", file.name, file.schema));
        }
        let allowed = EXCEPTIONS.iter().find(|(name, ..)| *name == file.name).map_or(0, |(_, n, _)| *n);
        let results: Vec<Result<(), String>> = file.calls.iter().map(|c| check(*op, c)).collect();
        let good = results.iter().filter(|r| r.is_ok()).count();
        passed += good;
        if verbose {
            println!("{:60} {good}/{}", file.name, results.len());
        }
        if results.len() - good > allowed {
            let failed = results.iter().enumerate().filter_map(|(i, r)| Some((i, r.as_ref().err()?)));
            failures.extend(failed.map(|(i, e)| format!("{} call {i}: {e}", file.name)));
        }
    }
    println!("{passed} calls agree; {absent} operators are not in the table");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Runs one call; the error says what differs.
fn check(op: library::Op, call: &Recorded) -> Result<(), String> {
    let schema = op.schema().map_err(|e| e.to_string())?;
    let args = call.arguments(&schema)?;
    let outputs = op.call(args.clone()).map_err(|e| format!("refused: {e}"))?;
    compare::outputs(call, &outputs)?;
    compare::arguments(call, &args)
}
