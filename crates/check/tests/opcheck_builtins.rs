//! Every builtin operator keeps the contract of operators, on the first calls that PyTorch recorded of it.

use maquette_check::conform::{File, operator_files};
use maquette_check::opcheck::{OpcheckOptions, opcheck_with};
use maquette_ops::Op;
use std::path::Path;

/// Calls of each operator.
const CALLS: usize = 2;

#[test]
fn builtin_operators_keep_the_contract() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let (mut wrong, mut checked, mut derived) = (Vec::new(), 0, 0);
    for path in operator_files(&folder, None).unwrap() {
        let file = File::read(&path).unwrap();
        let Ok(op) = Op::find(&file.name) else { continue };
        for args in file.samples(op).take(CALLS) {
            let report = opcheck_with(&op, args, OpcheckOptions::new().raise(false)).unwrap();
            checked += 1;
            derived += report.derived();
            if !report.passed() {
                wrong.push(report.to_string());
            }
        }
    }
    println!("{checked} samples, {derived} derived");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n\n"));
}
