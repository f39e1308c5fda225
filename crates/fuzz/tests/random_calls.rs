//! Random calls of every builtin operator do the same in every mode.

use maquette_fuzz::oracle::{Mode, Verdict};
use maquette_fuzz::random_calls::{CallGenerator, CallVerdict, MANY, RandomCall, call_modes};
use maquette_ir::DType;
use maquette_ops::{Args, Op, Tensor, Value, args};
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

fn all_agree(calls: Vec<(&str, Args)>) {
    for (op, args) in calls {
        let call = RandomCall { op: Op::find(op).unwrap(), args: args.clone() }.to_string();
        assert_eq!(verdict(op, args), CallVerdict::Checked(Verdict::Agree), "{call}");
    }
}

fn all_are_refused(calls: Vec<(&str, Args)>, why: &'static str) {
    for (op, args) in calls {
        let call = RandomCall { op: Op::find(op).unwrap(), args: args.clone() }.to_string();
        assert_eq!(verdict(op, args), CallVerdict::Checked(Verdict::Refused(why)), "{call}");
    }
}

const EAGER: &str = "refused by eager too";

fn list<const N: usize>(tensors: [&Tensor; N]) -> Value {
    Value::List(tensors.into_iter().cloned().map(Value::Tensor).collect())
}

/// Calls that some mode treated in another way once.
#[test]
fn calls_that_once_differed() {
    let x = Tensor::arange(24).reshape([4i64, 6]).to_dtype(DType::F32);
    let square = Tensor::from([[4.0f64, 1.0], [1.0, 3.0]]);
    let batch = Tensor::stack([&square, &square], 0);
    all_agree(vec![
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
    ]);
    all_are_refused(
        vec![("aten::as_strided_copy", args![x.slice(0, 1..4), [2], [1], 0])],
        "a view of elements that its tensor does not have",
    );
    let reads_storage = args![x.slice(0, 1..4), &square, [2, 2], [2, 1], 0];
    all_are_refused(
        vec![("aten::as_strided_scatter", reads_storage)],
        "an operator that reads its argument's storage",
    );
    let many = || Tensor::from([0.0f32, 1.0]);
    let refused: Vec<(&str, Args)> = vec![
        ("aten::linspace.Tensor_Tensor", args![many(), many(), 5]),
        ("aten::linspace.Tensor_Scalar", args![many(), 1.0, 5]),
        ("aten::linspace.Scalar_Tensor", args![0.0, many(), 1]),
        ("aten::logspace.Tensor_Tensor", args![many(), many(), 0]),
        ("aten::logspace.Tensor_Scalar", args![many(), 1.0, 5]),
        ("aten::logspace.Scalar_Tensor", args![0.0, many().slice(0, 0..0), 5]),
    ];
    all_are_refused(refused, EAGER);
}

/// An empty tensor under symbolic sizes is what it is eagerly.
#[test]
fn sizes_of_0() {
    let (empty, none) = (Tensor::zeros([0], DType::F32), || Value::None);
    let rows = Tensor::zeros([2, 0], DType::F32);
    let uncountable = empty.expand([MANY, MANY, 0]);
    all_agree(vec![
        ("aten::trapezoid.x", args![&rows, &empty]),
        ("aten::trapezoid.dx", args![&rows]),
        ("aten::cumulative_trapezoid.dx", args![&rows]),
        ("aten::diff", args![rows.t(), 2]),
        ("aten::cat", args![list([&empty, &empty]), -9]),
        ("aten::linalg_matrix_norm", args![rows.t(), f64::INFINITY]),
        ("aten::linalg_vander", args![&empty]),
        ("aten::batch_norm", args![&rows, none(), none(), none(), none(), true, 0.1, 1e-5, false]),
    ]);
    let refused = vec![
        ("aten::aminmax", args![uncountable, 1, false]),
        ("aten::repeat_interleave.self_int", args![&rows, i64::MAX]),
    ];
    all_are_refused(refused, "an empty tensor whose other sizes have no product");
}

/// Numbers at the edges of `i64` and of floats overflow nowhere.
#[test]
fn large_numbers() {
    let x = Tensor::arange(24).reshape([4i64, 6]);
    all_agree(vec![
        ("aten::histogram.bin_ct", args![Tensor::from([0.125f32, f32::MAX]), 100]),
        ("aten::split.Tensor", args![&x, i64::MAX, 0]),
        ("aten::chunk", args![&x, i64::MAX, 0]),
        ("aten::unfold", args![&x, 1, 3, i64::MAX]),
        ("aten::linspace.Tensor_Scalar", args![Tensor::scalar(-1e30), 1.0, 5, DType::F32]),
        ("aten::linspace.Tensor_Scalar", args![Tensor::scalar(f64::INFINITY), 1.0, 5, DType::F16]),
        (
            "aten::linspace.Tensor_Tensor",
            args![Tensor::scalar(1), Tensor::scalar(300), 1, DType::U8],
        ),
        ("aten::linspace.Tensor_Scalar", args![Tensor::scalar(-255), 1, 3, DType::U8]),
    ]);
    let refused = vec![
        ("aten::linspace.Tensor_Scalar", args![Tensor::scalar(f64::NAN), 1.0, 5, DType::I64]),
        ("aten::linspace.Tensor_Scalar", args![Tensor::scalar(1e19), 1.0, 5, DType::I64]),
        ("aten::linspace.Scalar_Tensor", args![0, Tensor::scalar(300), 2, DType::U8]),
        ("aten::linspace.Tensor_Scalar", args![Tensor::scalar(-1e39), 1.0, 5, DType::F32]),
        ("aten::logspace.Tensor_Scalar", args![Tensor::scalar(70_000), 1, 5, 2.0, DType::F16]),
    ];
    all_are_refused(refused, EAGER);
}

/// Masks among indices have as many set elements as the other indices have elements.
#[test]
fn masks_among_indices() {
    let x = Tensor::arange(24).reshape([4i64, 6]);
    let rows = Tensor::from([true, false, true, false]);
    let one_row = Tensor::from([false, true, false, false]);
    let columns = Tensor::from([true, false, false, false, false, true]);
    let all = Tensor::full([4, 6], true, DType::Bool);
    all_agree(vec![
        ("aten::index.Tensor", args![&x, list([&rows, &columns])]),
        ("aten::index.Tensor", args![&x, list([&one_row, &columns])]),
        ("aten::index.Tensor", args![&x, list([&rows, &Tensor::from([0i64, 5])])]),
        ("aten::index.Tensor", args![&x, list([&rows, &Tensor::from([3i64])])]),
        ("aten::index.Tensor", args![&x, list([&one_row, &Tensor::from([[0i64, 5], [1, 2]])])]),
        ("aten::_unsafe_index.Tensor", args![&x, list([&all])]),
    ]);
    let mismatch = args![&x, list([&rows, &Tensor::from([0i64, 1, 2])])];
    all_are_refused(vec![("aten::index.Tensor", mismatch)], EAGER);
}

/// An operator takes a number for a tensor only where it makes nothing of its memory.
#[test]
fn numbers_for_tensors() {
    let refused = vec![
        ("aten::dropout_", args![0.5, 0.5, false]),
        ("aten::dropout_", args![Tensor::scalar(0.5), 1.5, false]),
    ];
    all_are_refused(refused, EAGER);
}
