//! Recurrent layers, batch statistics, attention's sums, differences and arrangements. Numbers are
//! PyTorch's.

use maquette_aten as _;
use maquette_ir::sym::{Range, Scope};
use maquette_ir::{DType, Loc};
use maquette_ops::{Args, Op, Recurrence, Tensor, Value, args, call, fake};

const NEG: f32 = f32::NEG_INFINITY;

fn tensor(sizes: &[i64], seed: i64) -> Tensor {
    let n: i64 = sizes.iter().product();
    Tensor::from_vec(
        (0..n).map(|i| ((i * 5 + seed * 3) % 13 - 6) as f32 / 8.0).collect::<Vec<f32>>(),
        sizes,
    )
}

fn numbers(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[track_caller]
fn close(t: &Tensor, expected: &[f32]) {
    let found = numbers(t);
    let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() < 2e-5 || a.is_nan() && b.is_nan();
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(near),
        "{found:?}\n{expected:?}"
    );
}

/// The error of a call that fails.
#[track_caller]
fn refusal(name: &str, args: Args) -> String {
    call(name, args).expect_err("the call is refused").to_string()
}

fn one(name: &str, args: Args) -> Tensor {
    call(name, args).unwrap()[0].tensor().unwrap().clone()
}

fn lstm_weights() -> Vec<Tensor> {
    let cell = |l: i64, d: i64| {
        let s = 10 * l + 5 * d;
        [
            tensor(&[8, if l == 0 { 3 } else { 4 }], s),
            tensor(&[8, 2], s + 1),
            tensor(&[8], s + 2),
            tensor(&[8], s + 3),
        ]
    };
    [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().flat_map(|(l, d)| cell(l, d)).collect()
}

const DEEP: Recurrence = Recurrence {
    layers: 2,
    biases: true,
    bidirectional: true,
    batch_first: false,
    dropout: 0.0,
    train: false,
};

#[test]
fn an_lstm_in_two_directions() {
    let (x, h, c) = (tensor(&[2, 2, 3], 1), tensor(&[4, 2, 2], 4), tensor(&[4, 2, 2], 5));
    let (y, hn, cn) = x.lstm((&h, &c), &lstm_weights(), DEEP);
    close(
        &y,
        &[
            -0.12725, 0.16306, 0.18654, 0.06472, -0.06766, 0.04284, 0.15973, 0.0668, -0.10726,
            0.25427, 0.17373, 0.15024, -0.07902, 0.16631, 0.06687, 0.28638,
        ],
    );
    close(&hn.select(0, 2), &[-0.10726, 0.25427, -0.07902, 0.16631]);
    close(&cn.select(0, 0), &[-0.86782, -0.09586, -0.27527, 0.02525]);
    // the same by batch, whose memory is still by time
    let (z, ..) =
        x.transpose(0, 1).lstm((&h, &c), &lstm_weights(), Recurrence { batch_first: true, ..DEEP });
    assert_eq!((z.sizes_i64().unwrap(), numbers(&z.transpose(0, 1))), (vec![2, 2, 4], numbers(&y)));
    // a projection makes the hidden state narrower
    let shallow = Recurrence { layers: 1, ..Recurrence::default() };
    let weights = [tensor(&[8, 3], 0), tensor(&[8, 1], 1), tensor(&[1, 2], 2)];
    let (y, _, cn) = x.lstm(
        (&tensor(&[1, 2, 1], 4), &tensor(&[1, 2, 2], 5)),
        &weights,
        Recurrence { batch_first: true, ..shallow },
    );
    close(&y, &[-0.08146, -0.07328, -0.06225, 0.02812]);
    close(&cn, &[-0.2869, -0.28205, 0.32295, 0.10497]);
    let weights = [tensor(&[6, 3], 0), tensor(&[6, 2], 1), tensor(&[6], 2), tensor(&[6], 3)];
    let (y, _) = x.gru(&tensor(&[1, 2, 2], 4), &weights, Recurrence { biases: true, ..shallow });
    close(&y, &[0.24804, -0.31478, -0.05701, -0.57834, -0.24008, -0.33492, -0.29562, -0.06671]);
}

#[test]
fn errors_of_a_recurrent_layer_name_the_argument() {
    let (x, h, c) = (tensor(&[2, 2, 3], 1), tensor(&[4, 2, 2], 4), tensor(&[4, 2, 2], 5));
    let w = lstm_weights();
    let refused = |x: &Tensor, h: &Tensor, w: &[Tensor]| {
        x.lstm((h, &c), w, DEEP).0.ok().expect_err("refused").to_string()
    };
    for (text, expected) in [
        (refused(&x, &h, &w[1..]), "found 15 tensors"),
        (
            refused(&x, &tensor(&[4, 3, 2], 1), &w),
            "`hx` must have sizes [4, 2, 2], found sizes [4, 3, 2]",
        ),
        (
            refused(&x, &tensor(&[4, 2, 1], 1), &w),
            "equal widths without a projection, found 1 and 2",
        ),
        (refused(&x.narrow(0, 0, 0), &h, &w), "at least one step"),
        (refused(&x.select(0, 0), &h, &w), "`input` must have 3 dimensions"),
        (refused(&x.to_dtype(DType::F64), &h, &w), "`input` and `hx` must have the same dtype"),
        (refused(&tensor(&[2, 2, 5], 1), &h, &w), "`w_ih` in `params` must have sizes [8, 5]"),
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn an_lstm_is_one_node_for_every_length() {
    let scope = Scope::new();
    let size = |name| scope.backed(Some(name), Range::new(1, 64), 4).unwrap();
    let (t, b) = (size("t"), size("b"));
    let state = || {
        Value::List(
            [
                Tensor::fake([4.into(), b, 2.into()], DType::F32),
                Tensor::fake([4.into(), b, 2.into()], DType::F32),
            ]
            .map(Value::Tensor)
            .into(),
        )
    };
    let weights: Vec<Value> =
        lstm_weights().iter().map(|w| Value::Tensor(Tensor::fake_of(w.meta().clone()))).collect();
    let x = Tensor::fake([b, t, 3.into()], DType::F32);
    let args = args![&x, state(), Value::List(weights.into()), true, 2, 0.0, false, true, true];
    let out = fake::call(Op::find("aten::lstm.input").unwrap(), &args, Some(&scope), Loc::caller())
        .unwrap();
    let shape = |i: usize| out[i].tensor().unwrap().meta().to_string();
    assert_eq!(shape(0), "f32[b, t, 4] strides [4, 4 * b, 1]");
    assert_eq!(shape(2), "f32[4, b, 2]");
    assert_eq!(scope.with(|d| d.guards.len()), 0);
}

#[test]
fn batch_norm_in_training_moves_the_running_statistics() {
    let (w, b) = (Tensor::from([1.0f32, 2.0]), Tensor::from([0.0f32, 0.5]));
    let (mean, var) = (Tensor::from([0.0f32, 1.0]), Tensor::from([1.0f32, 2.0]));
    let y =
        tensor(&[3, 2, 2], 1).batch_norm_train(Some(&w), Some(&b), Some((&mean, &var)), 0.25, 1e-5);
    close(
        &y,
        &[
            -0.96487, 0.64325, -2.09912, 0.41616, 1.28649, -1.28649, 1.42227, 3.93755, -0.64325,
            0.96487, -1.59607, 0.91921,
        ],
    );
    close(&mean, &[0.0, 0.72396]);
    close(&var, &[0.79531, 1.57409]);
    let (mean, var) = (Tensor::from([0.0f32, 1.0]), Tensor::from([1.0f32, 2.0]));
    let y = one(
        "aten::instance_norm",
        args![tensor(&[2, 2, 3], 1), (), (), &mean, &var, true, 0.5, 1e-5, false],
    );
    close(&y.select(0, 0), &[-0.20202, 1.31316, -1.11114, -0.20202, 1.31316, -1.11114]);
    close(&mean, &[-0.02083, 0.46875]);
    close(&var, &[0.6276, 1.1276]);
    // one element has no variance over n - 1
    tensor(&[1, 2], 1).batch_norm_train(None, None, Some((&mean, &var)), 0.5, 1e-5).ok().unwrap();
    close(&var, &[f32::NAN, f32::NAN]);
}

#[test]
fn batch_norm_without_updates_leaves_its_arguments() {
    let (x, mean, var) =
        (tensor(&[3, 2, 2], 1), Tensor::from([0.0f32, 1.0]), Tensor::from([1.0f32, 2.0]));
    let out = call(
        "aten::_native_batch_norm_legit_functional",
        args![&x, (), (), &mean, &var, true, 0.25, 1e-5],
    )
    .unwrap();
    close(&mean, &[0.0, 1.0]);
    close(out[3].tensor().unwrap(), &[0.0, 0.72396]);
    close(out[4].tensor().unwrap(), &[0.79531, 1.57409]);
    let half = x.to_dtype(DType::BF16);
    let mixed =
        call("aten::native_batch_norm", args![&half, (), (), &mean, &var, true, 0.25, 1e-5])
            .unwrap();
    assert_eq!(
        [&mixed[0], &mixed[1]].map(|v| v.tensor().unwrap().dtype()),
        [DType::BF16, DType::F32]
    );
    let full = |x: &Tensor, mean: Value, var: Value| args![x, (), (), mean, var, true, 0.1, 1e-5];
    for (args, expected) in [
        (full(&x, Value::from(&mean), Value::None), "must be given together"),
        (full(&x.narrow(0, 0, 0), Value::None, Value::None), "at least one element"),
        (
            full(&x, Value::from(tensor(&[3], 1)), Value::from(&var)),
            "`running_mean` must have sizes [2], found sizes [3]",
        ),
        (
            full(
                &x,
                Value::from(mean.to_dtype(DType::BF16)),
                Value::from(var.to_dtype(DType::BF16)),
            ),
            "f32 if `input` has half precision",
        ),
        (full(&x.to_dtype(DType::I64), Value::None, Value::None), "floating dtype"),
    ] {
        let text = refusal("aten::native_batch_norm", args);
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(
        x.narrow(0, 0, 0).batch_norm_train(None, None, None, 0.1, 1e-5).sizes_i64().unwrap(),
        [0, 2, 2]
    );
}

#[test]
fn other_norms_and_attention_sums() {
    close(
        &tensor(&[2, 3], 1).rms_norm([3], Some(&Tensor::from([1.0f32, 2.0, 3.0])), Some(1e-3)),
        &[-0.74086, 0.98781, -4.44514, -0.30064, 2.4051, -3.60766],
    );
    // rows without elements
    let (_, mean, rstd) =
        Tensor::zeros([2, 0], DType::F32).native_layer_norm([0], None, None, 1e-5);
    close(&mean, &[0.0, 0.0]);
    close(&rstd, &[f32::NAN, f32::NAN]);
    let mask = Tensor::from([[0.0, NEG, 1.0], [NEG, NEG, NEG]]);
    let [q, k, v] = [(2, 1), (3, 2), (3, 3)].map(|(n, seed)| tensor(&[1, 1, n, 2], seed));
    let flash = "aten::_scaled_dot_product_flash_attention_for_cpu";
    let out = call(flash, args![&q, &k, &v, 0.0, false, &mask]).unwrap();
    // the second row may attend to nothing
    close(out[0].tensor().unwrap(), &[-0.18292, 0.0259, 0.0, 0.0]);
    close(out[1].tensor().unwrap(), &[1.47264, 0.0]);
    assert!(refusal(flash, args![&q, &k, &v, 0.5]).contains("`dropout_p` must be 0"));
    assert!(
        refusal(flash, args![&q, &k, &tensor(&[1, 1, 4, 2], 1)])
            .contains("`value` must have sizes")
    );
}

#[test]
fn dropout_in_place_and_its_mask() {
    let x = Tensor::from([1.0f32, 2.0, 3.0]);
    close(&x.dropout_(0.5, false), &[1.0, 2.0, 3.0]);
    let out = call("aten::native_dropout", args![&x, 0.5, true]).unwrap();
    let kept = out[1].tensor().unwrap().to_vec::<bool>().unwrap();
    close(
        out[0].tensor().unwrap(),
        &[0, 1, 2].map(|i| if kept[i] { 2.0 * (i as f32 + 1.0) } else { 0.0 }),
    );
    x.dropout_(1.0, true).ok().unwrap();
    close(&x, &[0.0; 3]);
    assert!(x.dropout_(1.5, true).ok().unwrap_err().to_string().contains("probability"));
}

#[test]
fn differences_and_integrals() {
    let ints = |t: &Tensor| t.to_vec::<i64>().unwrap();
    let x = Tensor::from([1i64, 4, 9, 16]);
    assert_eq!(ints(&x.diff(1, 0)), [3, 5, 7]);
    assert_eq!(ints(&x.diff(2, -1)), [2, 2]);
    assert_eq!(ints(&x.diff(9, 0)), []);
    let copy = x.diff(0, 0);
    assert_eq!((ints(&copy), copy.shares_storage(&x)), (vec![1, 4, 9, 16], false));
    assert_eq!(
        ints(&one("aten::diff", args![&x, 1, 0, Tensor::from([0i64]), Tensor::from([20i64])])),
        [1, 3, 5, 7, 4]
    );
    assert_eq!(
        Tensor::from([true, true, false]).diff(1, 0).to_vec::<bool>().unwrap(),
        [false, true]
    );
    assert!(refusal("aten::diff", args![&x, -1]).contains("`n` must not be negative"));
    assert!(
        refusal("aten::diff", args![&x.select(0, 0)])
            .contains("`self` must have 1 to 64 dimensions")
    );
    close(&tensor(&[2, 3], 1).trapezoid(&Tensor::from([0.0f32, 1.0, 3.0]), 1), &[-0.5625, 0.1875]);
    close(&one("aten::trapezoid.dx", args![Tensor::from([1i64, 2, 3])]), &[4.0]);
    close(
        &one("aten::cumulative_trapezoid.dx", args![Tensor::from([1.0f32, 2.0, 4.0]), 2]),
        &[3.0, 9.0],
    );
    close(&one("aten::trapezoid.dx", args![Tensor::zeros([2, 0], DType::F32)]), &[0.0, 0.0]);
}

#[test]
fn arrangements() {
    let ints = |t: &Tensor| t.to_vec::<i64>().unwrap();
    let x = Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    assert_eq!(ints(&x.t().ravel()), [1, 4, 2, 5, 3, 6]);
    assert_eq!(ints(&x.repeat_interleave(2, 0)), [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]);
    let counts = Tensor::from([2i64, 0, 1]);
    assert_eq!(ints(&x.repeat_interleave_by(&counts, 1)), [1, 1, 3, 4, 4, 6]);
    assert_eq!(ints(&one("aten::repeat_interleave.Tensor", args![&counts])), [0, 0, 2]);
    assert_eq!(ints(&x.take_along_dim(&Tensor::from([[2i64]]), 1)), [3, 6]);
    assert_eq!(ints(&x.sum_to_size([1, 3])), [5, 7, 9]);
    assert_eq!(x.mT().sizes_i64().unwrap(), [3, 2]);
    let lengths =
        |parts: Vec<Tensor>| parts.iter().map(|t| t.sizes_i64().unwrap()[0]).collect::<Vec<_>>();
    assert_eq!(lengths(Tensor::from([0i64; 7]).tensor_split(3, 0).unwrap()), [3, 2, 2]);
    let v = Tensor::from([1i64, 2]);
    assert_eq!(ints(&Tensor::hstack([&v, &v])), [1, 2, 1, 2]);
    assert_eq!(Tensor::vstack([&v, &v]).sizes_i64().unwrap(), [2, 2]);
    assert_eq!(one("aten::atleast_3d", args![&v]).sizes_i64().unwrap(), [1, 2, 1]);
    assert!(
        !one("aten::atleast_1d", args![&v]).shares_storage(&v),
        "its schema says that the result is fresh"
    );
    for (text, expected) in [
        (
            refusal("aten::repeat_interleave.self_int", args![&x, -1, 0]),
            "`repeats` must not be negative",
        ),
        (
            refusal(
                "aten::repeat_interleave.self_Tensor",
                args![&x, Tensor::from([1i64, -1, 2]), 1],
            ),
            "`repeats` must not be negative",
        ),
        (
            refusal("aten::repeat_interleave.self_Tensor", args![&x, &counts, 0]),
            "one for each of 2 elements",
        ),
        (refusal("aten::tensor_split.sections", args![&x, 0]), "`sections` must be positive"),
        (refusal("aten::hsplit.int", args![&x, 2]), "divisible into 2 sections"),
        (refusal("aten::sum_to_size", args![&x, [2i64, 2]]), "do not broadcast"),
        (refusal("aten::mT", args![&v]), "at least 2 dimensions"),
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn carried_checks() {
    let x = tensor(&[2, 3], 1);
    let check = "aten::_assert_tensor_metadata";
    assert!(call(check, args![&x, [2i64, 3], [3i64, 1], DType::F32]).unwrap().is_empty());
    for (args, expected) in [
        (args![&x, [2i64, 4]], "must have the size [2, 4], found [2, 3]"),
        (args![&x, (), [1i64, 2]], "must have the stride [1, 2], found [3, 1]"),
        (args![&x, (), (), DType::I64], "must have the dtype i64, found f32"),
    ] {
        let text = refusal(check, args);
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(Op::find(check).unwrap().effect(), Some(maquette_ops::Effect::Ordered));
    assert!(
        refusal("aten::_assert_async.msg", args![Tensor::from([0.0f32]), "no rows"])
            .contains("no rows")
    );
}

#[test]
fn numbers_beside_half_precision_round_as_in_pytorch() {
    let x = Tensor::from([0.705f32]).to_dtype(DType::F16);
    // a sum takes the number in the tensor's dtype, a product as it is
    let half = |v: f64| half::f16::from_f64(v).to_f64();
    let found = |t: Tensor| t.to_dtype(DType::F64).to_vec::<f64>().unwrap()[0];
    let (a, s) = (half(0.705), 0.932_907_071_384_277_5);
    assert_eq!(found(&x - s), half(a - half(s)));
    assert_eq!(found(&x * s), half(a * s));
    assert_eq!(one("aten::square", args![Tensor::from([true])]).dtype(), DType::I64);
}
