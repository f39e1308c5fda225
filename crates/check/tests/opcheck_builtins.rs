//! Every builtin operator keeps the contract of operators, on the first call that PyTorch recorded
//! of it.

use maquette_check::conform::{File, operator_files};
use maquette_check::opcheck::{Check, OpcheckOptions, Outcome, opcheck_with};
use maquette_ops::Op;
use std::path::Path;

/// Samples derived from each call, at most.
const DERIVED: usize = 8;

/// Operators whose schemas, which are PyTorch's, hide what they write. A trace records an operator
/// that declares it.
const HIDDEN_WRITES: &[&str] = &["aten::native_batch_norm"];

/// Gradients are compared with those that PyTorch recorded, in `conform`.
fn options() -> OpcheckOptions {
    OpcheckOptions::new().skip(Check::Gradients).derive(DERIVED).raise(false)
}

#[test]
fn builtin_operators_keep_the_contract() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let (mut wrong, mut checked, mut derived) = (Vec::new(), 0, 0);
    for path in operator_files(&folder, None).unwrap() {
        let file = File::read(&path).unwrap();
        let Ok(op) = Op::find(&file.name) else { continue };
        for args in file.samples(op).take(1) {
            let report = opcheck_with(&op, args, options()).unwrap();
            // `recorded.rs` says what is refused
            let refused = |outcome: &Outcome| match outcome {
                Outcome::NotRun(why) => why.contains("fails on the sample"),
                _ => false,
            };
            if report.check(Check::Fake).is_some_and(|c| refused(&c.outcome)) {
                continue;
            }
            checked += 1;
            derived += report.derived();
            if report.passed() == HIDDEN_WRITES.contains(&op.name()) {
                wrong.push(report.to_string());
            }
        }
    }
    assert!(checked > 400 && derived > checked, "{checked} samples, {derived} derived");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n\n"));
}
