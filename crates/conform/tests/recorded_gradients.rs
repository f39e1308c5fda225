//! The gradients that PyTorch recorded, and the gradients of these, against those here.

use maquette_conform::{File, KnownDifferences, check_file, operator_files};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn gradients_agree_but_for_known_differences() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/grad");
    let known = KnownDifferences::read(&folder).unwrap();
    let mut listed: BTreeMap<&str, usize> = known.calls().collect();
    let (mut wrong, mut calls, mut failed) = (Vec::new(), 0, 0);
    for path in operator_files(&folder, None).unwrap() {
        let (report, _) = check_file(&File::read(&path).unwrap());
        let listed = listed.remove(report.name.as_str()).unwrap_or(0);
        if report.failed() != listed {
            wrong.push(format!("{}: {} differ, not {listed}", report.name, report.failed()));
            wrong.extend(report.failures().map(|(i, f)| format!("  call {i}, {f}")));
        }
        calls += report.calls.len();
        failed += report.failed();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(listed.is_empty(), "there are no recorded gradients of {listed:?}");
    assert!(calls > 2_700 && failed * 33 < calls, "{failed} of {calls}");
}
