//! Every call that PyTorch recorded, against the operators here; and `docs/operators.md`, which
//! says what came of it.

use maquette_conform::{
    File, KnownDifferences, OperatorReport, check_file, markdown, operator_files, parse_names,
};
use maquette_ir::DType;
use maquette_ops::{Op, Tensor};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Checks the calls in a folder.
fn reports_of(folder: &str) -> Vec<OperatorReport> {
    let files = operator_files(&root().join(folder), None).unwrap();
    files.iter().map(|path| check_file(&File::read(path).unwrap()).0).collect()
}

static REPORTS: LazyLock<Vec<OperatorReport>> = LazyLock::new(|| reports_of("tests/data/aten"));

#[test]
fn operators_agree_but_for_known_differences() {
    let known = KnownDifferences::read(&root().join("tests/data/aten")).unwrap();
    let mut wrong = Vec::new();
    for r in REPORTS.iter() {
        for (i, f) in r.failures().filter(|(_, f)| known.reason(r, f).is_none()) {
            wrong.push(format!("{}: call {i}, {f}", r.name));
        }
        if let Some(other) = &r.other_schema {
            wrong.push(format!("{}: its schema is {other}", r.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_known_difference_is_one() {
    let known = KnownDifferences::read(&root().join("tests/data/aten")).unwrap();
    for (name, calls) in known.calls() {
        let report = REPORTS.iter().find(|r| r.name == name);
        let report = report.unwrap_or_else(|| panic!("there are no recorded calls of {name}"));
        assert_eq!(report.failed(), calls, "{name}: the calls that differ, and `known.txt`");
    }
}

#[test]
fn every_call_of_tier_1_agrees() {
    let tier = parse_names(&std::fs::read_to_string(root().join("tests/data/tier1.txt")).unwrap());
    let dotted = |r: &OperatorReport| parse_names(&r.name).into_iter().next();
    let failed: Vec<&str> = REPORTS
        .iter()
        .filter(|r| dotted(r).is_some_and(|n| tier.contains(&n)) && r.failed() > 0)
        .map(|r| r.name.as_str())
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    for name in &tier {
        let full = format!("aten::{}", name.strip_suffix(".default").unwrap_or(name));
        assert!(maquette_ops::Op::find(&full).is_ok(), "{full} is not in the table");
    }
}

#[test]
fn the_list_of_operators_is_true() {
    let path = root().join("docs/operators.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let reports: Vec<OperatorReport> =
        REPORTS.iter().cloned().chain(reports_of("tests/data/grad")).collect();
    assert!(
        found == markdown(&reports),
        "docs/operators.md is out of date: run `cargo run --release -- conform tests/data/aten \
            tests/data/grad --table docs/operators.md`"
    );
}

/// The largest error in `found`, relative to the largest element of its row.
fn error(found: &Tensor, exact: &Tensor) -> f64 {
    let width = exact.sizes_i64().unwrap().last().copied().unwrap_or(1).max(1) as usize;
    let numbers = |t: &Tensor| t.to_dtype(DType::F64).contiguous().to_vec::<f64>().unwrap();
    let (found, exact) = (numbers(found), numbers(exact));
    let rows = found.chunks(width).zip(exact.chunks(width));
    let errors = rows.map(|(found, exact)| {
        let largest = exact.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let error = found.iter().zip(exact).fold(0.0, |a: f64, (x, y)| a.max((x - y).abs()));
        if largest == 0.0 { error } else { error / largest }
    });
    errors.fold(0.0, f64::max)
}

#[test]
fn attention_with_large_scores_is_as_near_as_in_pytorch() {
    // scores reach 98 in these calls, so that an error of one ULP in a score is one of 4e-6 in its
    // weight
    let names = ["scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"];
    let mut errors = Vec::new();
    for name in names {
        let op = Op::find(&format!("aten::{name}")).unwrap();
        let file =
            File::read(&root().join(format!("tests/data/aten/{name}.default.json"))).unwrap();
        for (args, recorded) in file.results(op) {
            let Some(recorded) = recorded.tensors().next().cloned() else { continue };
            if recorded.dtype() != DType::F32 {
                continue;
            }
            let mut wide = |t: &Tensor| match t.dtype() {
                DType::F32 => t.to_dtype(DType::F64).ok().cloned(),
                _ => Ok(t.clone()),
            };
            let exact = op.call(args.iter().map(|v| v.map_tensors(&mut wide).unwrap()).collect());
            let exact = exact.unwrap()[0].tensor().unwrap().clone();
            let found = op.call(args.clone()).unwrap()[0].tensor().unwrap().clone();
            errors.push([error(&found, &exact), error(&recorded, &exact)]);
        }
    }
    assert_eq!(errors.len(), 8);
    // single calls are a matter of luck, since both round the products of query and key
    let largest = |i: usize| errors.iter().fold(0.0, |a: f64, e| a.max(e[i]));
    let mean = |i: usize| errors.iter().map(|e| e[i]).sum::<f64>() / errors.len() as f64;
    assert!(largest(0) <= largest(1) && mean(0) <= mean(1), "here, PyTorch: {errors:?}");
}
