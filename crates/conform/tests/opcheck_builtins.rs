//! Every builtin operator keeps the contract of operators, on the first calls that PyTorch recorded
//! of it: all checks on the first, and the gradients on two more.

use maquette_check::gradcheck::{Function, GradcheckOptions, gradcheck_with};
use maquette_check::opcheck::{Check, OpcheckOptions, Outcome, Report, opcheck_with};
use maquette_conform::{File, operator_files};
use maquette_ops::{Args, Op, Result, Tensor, Value, args};
use std::path::Path;

/// Samples derived from each call, at most.
const DERIVED: usize = 8;

/// Calls of each operator.
const CALLS: usize = 3;

/// Operators whose schemas, which are PyTorch's, hide what they write. A trace records an operator
/// that declares it.
const HIDDEN_WRITES: &[&str] = &["aten::native_batch_norm"];

/// Operators whose gradient is not the derivative: what the check says, and why it is right. Where
/// they have a derivative, `gradients_beside_the_conventions` checks it.
const CONVENTIONS: &[(&str, &str, &str)] = &[
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "the gradient of output 1",
        "the logsumexp has no gradient, in PyTorch as here",
    ),
    ("aten::cholesky_inverse", WRONG, TRIANGLE),
    ("aten::cholesky_solve", "with respect to input 1", TRIANGLE),
    (
        "aten::embedding",
        WRONG,
        "the row of the padding gets no gradient, and frequencies divide those of the others",
    ),
    ("aten::max_unpool2d", WRONG, REPEATED),
    ("aten::max_unpool3d", WRONG, REPEATED),
    (
        "aten::ormqr",
        "does not trace with symbolic sizes: the number of reflections must be known",
        "the derivative is a loop over the reflections",
    ),
];

const WRONG: &str = "the gradient of output 0 with respect to input 0 is wrong";
const TRIANGLE: &str = "PyTorch gives the triangle that is not read a gradient, too";
const REPEATED: &str = "a position that is given twice gives its gradient to both elements";

fn is_convention(op: Op, report: &Report) -> bool {
    let Some((_, said, _)) = CONVENTIONS.iter().find(|(name, ..)| *name == op.name()) else {
        return false;
    };
    Check::ALL.into_iter().filter_map(|c| report.check(c)).all(|check| match check.outcome {
        Outcome::Failed => {
            check.check == Check::Gradients && check.failures.iter().all(|f| f.contains(said))
        }
        _ => true,
    })
}

#[test]
fn builtin_operators_keep_the_contract() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let (mut wrong, mut checked, mut derived, mut gradients) = (Vec::new(), 0, 0, 0);
    let mut conventions = std::collections::BTreeSet::new();
    for path in operator_files(&folder, None).unwrap() {
        let file = File::read(&path).unwrap();
        let Ok(op) = Op::find(&file.name) else { continue };
        for (call, args) in file.samples(op).take(CALLS).enumerate() {
            let options = match call {
                0 => OpcheckOptions::new().derive(DERIVED),
                _ => OpcheckOptions::new().derive(0).only([Check::Schema, Check::Gradients]),
            };
            let report = opcheck_with(&op, args, options.raise(false)).unwrap();
            // `recorded.rs` says what is refused
            let refused = |outcome: &Outcome| match outcome {
                Outcome::NotRun(why) => why.contains("fails on the sample"),
                _ => false,
            };
            if report.check(Check::Gradients).is_some_and(|c| refused(&c.outcome)) {
                continue;
            }
            checked += usize::from(call == 0);
            derived += report.derived();
            let of_gradients = report.check(Check::Gradients).map(|c| &c.outcome);
            gradients += usize::from(of_gradients == Some(&Outcome::Passed));
            let hides = HIDDEN_WRITES.contains(&op.name());
            // some calls hide a write, and others do not write
            if report.passed() != hides || hides && call > 0 {
                continue;
            }
            if !hides && is_convention(op, &report) {
                conventions.insert(op.name().to_owned());
            } else {
                wrong.push(report.to_string());
            }
        }
    }
    assert!(checked > 400 && derived > checked, "{checked} samples, {derived} derived");
    assert!(gradients > 600, "{gradients} calls with gradients");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n\n"));
    let listed = CONVENTIONS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(conventions, listed, "every convention is met");
}

/// The first result of an operator.
fn first(name: &str, args: Args) -> Result<Vec<Tensor>> {
    Ok(vec![Op::find(name)?.call(args)?[0].tensor()?.clone()])
}

/// Elements around 0, different from each other.
fn some(sizes: &[i64]) -> Tensor {
    let n: i64 = sizes.iter().product();
    let values: Vec<f64> = (0..n).map(|k| (1.7 * k as f64 + 0.3).sin()).collect();
    Tensor::from_vec(values, sizes)
}

#[test]
fn gradients_beside_the_conventions() {
    // a diagonal that makes triangular matrices regular
    let regular = |x: &Tensor| x.tril(0) + Tensor::eye(3, x.dtype()) * 3.0;
    let distinct = |n: i64| Tensor::arange(n).flip([0]).reshape([1, 1, 2, -1]);
    let attention = "aten::_scaled_dot_product_flash_attention_for_cpu";
    let cases: Vec<(&str, Box<Function<'_>>, Vec<Tensor>)> = vec![
        (
            attention,
            Box::new(|t| first(attention, args![&t[0], &t[1], &t[2], 0.0, true])),
            [2, 3, 3].iter().map(|n| some(&[1, 2, *n, 4])).collect(),
        ),
        (
            "aten::cholesky_inverse",
            Box::new(move |t| first("aten::cholesky_inverse", args![regular(&t[0]), false])),
            vec![some(&[3, 3])],
        ),
        (
            "aten::cholesky_solve",
            Box::new(move |t| first("aten::cholesky_solve", args![&t[0], regular(&t[1]), false])),
            vec![some(&[3, 2]), some(&[3, 3])],
        ),
        (
            "aten::embedding",
            Box::new(|t| first("aten::embedding", args![&t[0], Tensor::from([3i64, 0, 3])])),
            vec![some(&[5, 2])],
        ),
        (
            "aten::max_unpool2d",
            Box::new(move |t| {
                let sizes: &[i64] = &[3, 4];
                first("aten::max_unpool2d", args![&t[0], distinct(6), sizes])
            }),
            vec![some(&[1, 1, 2, 3])],
        ),
        (
            "aten::max_unpool3d",
            Box::new(move |t| {
                let (sizes, one, none): (&[i64], &[i64], &[i64]) = (&[1, 3, 4], &[1; 3], &[0; 3]);
                let at = distinct(6).unsqueeze(2);
                first("aten::max_unpool3d", args![&t[0], at, sizes, one, none])
            }),
            vec![some(&[1, 1, 1, 2, 3])],
        ),
        (
            "aten::nll_loss_forward",
            Box::new(|t| {
                let target = Tensor::from([2i64, 0]);
                first("aten::nll_loss_forward", args![&t[0], target, &t[1], 1i64, -100i64])
            }),
            vec![some(&[2, 3]), some(&[3]) + 3.0],
        ),
        (
            "aten::ormqr",
            Box::new(|t| first("aten::ormqr", args![&t[0], &t[1], &t[2], true, true])),
            vec![some(&[3, 2]), some(&[2]), some(&[3, 4])],
        ),
        (
            "aten::scaled_dot_product_attention",
            Box::new(|t| {
                let name = "aten::scaled_dot_product_attention";
                first(name, args![&t[0], &t[1], &t[2], &t[3], 0.0, false, Value::None, true])
            }),
            vec![some(&[2, 4, 3, 2]), some(&[2, 2, 5, 2]), some(&[2, 2, 5, 2]), some(&[3, 5])],
        ),
    ];
    let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    let has_case = |(name, ..): &(&str, &str, &str)| names.contains(name);
    assert!(CONVENTIONS.iter().all(has_case), "every convention has a case");
    // other sizes do not fit the numbers that are given here
    let options = GradcheckOptions::new().variants(false);
    for (name, f, inputs) in cases {
        gradcheck_with(f, &inputs, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
