//! Random calls of every builtin operator do the same in every mode.

use maquette_check::oracle::{Mode, Verdict};
use maquette_check::random_calls::{CallGenerator, CallVerdict, RandomCall, call_modes};
use maquette_ir::DType;
use maquette_ops::{Args, Op, Tensor, args};
use std::path::Path;

#[test]
fn random_calls_do_the_same_in_every_mode() {
    const CALLS: u64 = 4_000;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let generator = CallGenerator::new(20_261_128, None, Some(&folder)).unwrap();
    let modes: Vec<&dyn Mode> = call_modes().into_iter().map(|mode| mode as &dyn Mode).collect();
    let report = generator.run(0, CALLS, &modes, &|_| {});
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|f| format!("call {}, {}: {}\n  {}", f.index, f.mode, f.what, f.call))
        .collect();
    assert!(failures.is_empty(), "{report}\n{}", failures.join("\n"));
    // Most calls are made, and half of them are accepted.
    assert!(report.calls * 10 >= CALLS * 7 && report.refused * 2 <= report.calls, "{report}");
}

fn verdict(op: &str, args: Args) -> CallVerdict {
    let modes: Vec<&dyn Mode> = call_modes().into_iter().map(|mode| mode as &dyn Mode).collect();
    RandomCall { op: Op::find(op).unwrap(), args }.check(&modes).unwrap()
}

/// Calls that some mode treated in another way once.
#[test]
fn calls_that_once_differed() {
    let x = Tensor::arange(24).reshape([4i64, 6]).to_dtype(DType::F32);
    let square = Tensor::from([[4.0f64, 1.0], [1.0, 3.0]]);
    let batch = Tensor::stack([&square, &square], 0);
    let agree: Vec<(&str, Args)> = vec![
        ("aten::unsafe_split.Tensor", args![&x, 2, 1]),
        ("aten::unsafe_split.Tensor", args![x.slice(0, 1..4), 2, 0]),
        ("aten::unsafe_chunk", args![&x, 3, 1]),
        ("aten::unsafe_split_with_sizes", args![x.t(), [2, 4], 0]),
        ("aten::_linalg_solve_ex", args![&batch, Tensor::ones([2, 2], DType::F64), true, false]),
        ("aten::_linalg_solve_ex", args![&square, Tensor::ones([2], DType::F64), true, false]),
        ("aten::linspace.Tensor_Tensor", args![Tensor::scalar(0.0), Tensor::scalar(1.0), 5]),
        ("aten::where", args![&x]),
        ("aten::where", args![x.slice(0, 0..0)]),
        ("aten::nonzero_numpy", args![&batch]),
        ("aten::nonzero_numpy", args![Tensor::zeros([3, 0], DType::F32)]),
        ("aten::as_strided_scatter", args![x.slice(0, 1..4), &square, [2, 2], [2, 1], 0]),
        ("aten::as_strided_copy", args![x.slice(0, 1..4), [2], [1], 0]),
    ];
    for (op, args) in agree {
        assert_eq!(verdict(op, args), CallVerdict::Checked(Verdict::Agree), "{op}");
    }
    let many = || Tensor::from([0.0f32, 1.0]);
    let refused: Vec<(&str, Args)> = vec![
        ("aten::linspace.Tensor_Tensor", args![many(), many(), 5]),
        ("aten::linspace.Tensor_Scalar", args![many(), 1.0, 5]),
        ("aten::linspace.Scalar_Tensor", args![0.0, many(), 1]),
        ("aten::logspace.Tensor_Tensor", args![many(), many(), 0]),
        ("aten::logspace.Tensor_Scalar", args![many(), 1.0, 5]),
        ("aten::logspace.Scalar_Tensor", args![0.0, many().slice(0, 0..0), 5]),
    ];
    for (op, args) in refused {
        let eagerly = CallVerdict::Checked(Verdict::Refused("refused by eager too"));
        assert_eq!(verdict(op, args), eagerly, "{op}");
    }
}
