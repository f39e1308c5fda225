//! Tensors from sizes, numbers and chance.

use maquette_aten as _;
use maquette_ir::{DType, Device};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Tensor, args, call, random};
use std::sync::Mutex;

/// The generator is the process's: tests that draw from it take turns.
static TURN: Mutex<()> = Mutex::new(());

fn made(name: &str, args: maquette_ops::Args) -> Tensor {
    call(name, args).and_then(|o| o[0].tensor().cloned()).expect(name)
}

#[test]
fn default_dtypes() {
    let cases = [
        ("aten::zeros", args![[2, 3]], DType::F32),
        ("aten::full", args![[2], 1], DType::I64),
        ("aten::full", args![[2], true], DType::Bool),
        ("aten::full", args![[2], 0.5], DType::F32),
        ("aten::arange", args![3], DType::I64),
        ("aten::arange", args![3.5], DType::F32),
        ("aten::scalar_tensor", args![3], DType::F32),
        ("aten::linspace", args![0, 1, 5], DType::F32),
        ("aten::randint", args![5, [2]], DType::I64),
    ];
    for (name, args, dtype) in cases {
        assert_eq!(made(name, args).dtype(), dtype, "{name}");
    }
}

#[test]
fn values() {
    assert_eq!(Tensor::arange(4).to_vec::<i64>().expect("integers"), [0, 1, 2, 3]);
    assert_eq!(Tensor::arange_step(5, 0, -2).to_vec::<i64>().expect("integers"), [5, 3, 1]);
    assert_eq!(
        Tensor::arange_step(0.0, 1.0, 0.25).to_vec::<f32>().expect("floats"),
        [0.0, 0.25, 0.5, 0.75]
    );
    assert_eq!(
        Tensor::linspace(0, 1, 5).to_vec::<f32>().expect("floats"),
        [0.0, 0.25, 0.5, 0.75, 1.0]
    );
    assert_eq!(Tensor::eye(2, DType::I64).to_vec::<i64>().expect("integers"), [1, 0, 0, 1]);
    assert_eq!(
        made("aten::eye.m", args![2, 3]).to_vec::<f32>().expect("floats"),
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    );
    assert_eq!(Tensor::full([2], 7, DType::U8).to_vec::<u8>().expect("bytes"), [7, 7]);
    assert_eq!(Tensor::ones([2], DType::Bool).to_vec::<bool>().expect("bools"), [true, true]);
}

#[test]
fn like_keeps_the_memory_order() {
    let x = Tensor::zeros([2, 3], DType::F64).t();
    let y = x.ones_like();
    assert_eq!(
        (y.dtype(), y.meta().concrete().expect("concrete").strides.as_slice()),
        (DType::F64, &[1, 3][..])
    );
    let z = x.new_zeros([4], DType::I8);
    assert_eq!((z.dtype(), z.sizes_i64().expect("sizes")), (DType::I8, vec![4]));
}

#[test]
fn on_the_meta_device_without_data() {
    let t = made("aten::zeros", args![[1i64 << 40], (), (), Device::Meta]);
    assert!(t.is_fake());
    assert!(t.add(1).is_fake());
}

#[test]
fn numbers_beyond_the_dtype_are_refused() {
    let bytes = Tensor::from(vec![1u8, 2]);
    let (half, single) = (Tensor::from(vec![half::f16::ONE]), Tensor::from(vec![1f32]));
    let (mask, at) = (Tensor::from(vec![true]), Tensor::from(vec![0i64]));
    let refused = [
        ("aten::full", args![[2], 300, DType::U8]),
        ("aten::full", args![[2], 1i64 << 40, DType::I32]),
        ("aten::full", args![[2], 1e10, DType::F16]),
        ("aten::full", args![[2], -1.0, DType::U8]),
        ("aten::full", args![[2], f64::NAN, DType::I32]),
        ("aten::full_like", args![&bytes, 300]),
        ("aten::full_like", args![&single, 1e39]),
        ("aten::new_full", args![&bytes, [2], 300]),
        ("aten::scalar_tensor", args![300, DType::U8]),
        ("aten::fill.Scalar", args![&bytes, 300]),
        ("aten::fill_.Scalar", args![&single, 1e39]),
        ("aten::masked_fill.Scalar", args![&half, &mask, -1e9]),
        ("aten::masked_fill_.Scalar", args![&single, &mask, -1e39]),
        ("aten::masked_fill.Scalar", args![&bytes, &mask, 300]),
        ("aten::index_fill.int_Scalar", args![&bytes, 0, &at, 300]),
        ("aten::scatter.value", args![&bytes, 0, &at, 300]),
        ("aten::scatter_.value", args![&half, 0, &at, 1e10]),
        ("aten::scatter.value_reduce", args![&bytes, 0, &at, 300, "add"]),
        ("aten::index_add", args![&single, 0, &at, &single, 1e39]),
        ("aten::constant_pad_nd", args![&bytes, [1, 0], 300]),
        ("aten::where.ScalarOther", args![&mask, &bytes, 300]),
        ("aten::where.ScalarSelf", args![&mask, 1e39, &single]),
        ("aten::add.Scalar", args![&bytes, 1, 300]),
        ("aten::add.Tensor", args![&half, &half, 1e10]),
        ("aten::sub.Tensor", args![&bytes, &bytes, 300]),
        ("aten::rsub.Scalar", args![&bytes, 1, 300]),
        ("aten::addcmul", args![&bytes, &bytes, &bytes, 300]),
        ("aten::addcdiv", args![&single, &single, &single, 1e39]),
        ("aten::lerp.Scalar", args![&single, &single, 1e39]),
        ("aten::linspace", args![0, 300, 4, DType::U8]),
        ("aten::linspace.Tensor_Scalar", args![&Tensor::scalar(0.0f64), 300, 4, DType::U8]),
        ("aten::logspace", args![0, 300, 4, 10.0, DType::U8]),
        ("aten::threshold", args![&bytes, 2, 300]),
        ("aten::threshold_", args![&half, 1e10, 2]),
        ("aten::hardshrink", args![&half, 1e10]),
        ("aten::leaky_relu", args![&single, 1e39]),
        ("aten::pow.Tensor_Scalar", args![&bytes, 300]),
    ];
    for (name, args) in refused {
        let e =
            call(name, args).err().unwrap_or_else(|| panic!("{name} must be refused")).to_string();
        assert!(e.contains("must be in the range of"), "{name}: {e}");
    }
}

/// What PyTorch takes although the dtype does not hold it: it wraps, is cut off, or is infinite.
#[test]
fn scalars_that_are_converted_without_a_range_check() {
    let bytes = Tensor::from(vec![7u8]);
    let half = Tensor::from(vec![half::f16::ONE]);
    let mask = Tensor::from(vec![true]);
    let inf = f64::INFINITY;
    let taken = [
        ("aten::full", args![[1], -1, DType::U8], 255.0),
        ("aten::full", args![[1], 255.5, DType::U8], 255.0),
        ("aten::full", args![[1], f64::NAN, DType::Bool], 1.0),
        ("aten::fill.Scalar", args![&bytes, 1.7], 1.0),
        ("aten::fill.Scalar", args![&half, 1e10], inf),
        ("aten::full_like", args![&half, 1e39], inf),
        ("aten::scalar_tensor", args![1e39, DType::BF16], inf),
        ("aten::masked_fill.Scalar", args![&half, &mask, -inf], -inf),
        ("aten::masked_fill.Scalar", args![&bytes, &mask, -1], 255.0),
        ("aten::where.ScalarSelf", args![&mask, 1e10, &half], inf),
        ("aten::add.Scalar", args![&bytes, 300], 51.0),
        ("aten::add.Scalar", args![&bytes, 1, -1], 6.0),
        ("aten::mul.Scalar", args![&half, 1e10], inf),
        ("aten::addcmul", args![&half, &half, &half, 1e10], inf),
        ("aten::linspace", args![0, 300, 1, DType::U8], 0.0),
        ("aten::constant_pad_nd", args![&bytes, [0, 0], 300], 7.0),
    ];
    for (name, args, expected) in taken {
        let found = made(name, args).to_dtype(DType::F64).item::<f64>().expect("one element");
        assert_eq!(found, expected, "{name}");
    }
}

/// As recorded from PyTorch 2.15: the count comes from the numbers as given, and the start and the
/// step are converted to the dtype.
#[test]
fn ranges_of_integers_between_floats() {
    let range = |start: f64, end: f64, step: f64, dtype: DType| {
        let args = args![start, end, step, dtype];
        made("aten::arange.start_step", args).to_dtype(DType::I64).to_vec::<i64>().unwrap()
    };
    for dtype in [DType::I64, DType::I32, DType::I16] {
        let to_end = made("aten::arange", args![3.1, dtype]).to_dtype(DType::I64);
        assert_eq!(to_end.to_vec::<i64>().unwrap(), [0, 1, 2, 3], "{dtype}");
        let from_start = made("aten::arange.start", args![0.1, 5.9, dtype]).to_dtype(DType::I64);
        assert_eq!(from_start.to_vec::<i64>().unwrap(), [0, 1, 2, 3, 4, 5], "{dtype}");
        assert_eq!(range(0.0, -8.000001, -4.0, dtype), [0, -4, -8], "{dtype}");
        assert_eq!(range(0.0, 64.0, 0.5, dtype), [0; 128], "{dtype}");
        assert_eq!(range(0.0, 0.5, 1.0, dtype), [0], "{dtype}");
        assert_eq!(range(0.5, 6.9, 2.7, dtype), [0, 2, 4], "{dtype}");
        assert_eq!(range(6.9, 0.5, -2.7, dtype), [6, 4, 2], "{dtype}");
    }
    assert_eq!(range(0.0, 6.0, 2.5, DType::F32), [0, 2, 5]);
    for (start, end, step, message) in [
        (0.9, 0.1, 1.0, "wrong sign"),
        (1e19, 1e19, 1.0, "argument `start` must be in the range of i64"),
        (0.0, 1e19, 1e19, "argument `step` must be in the range of i64"),
        (0.0, f64::INFINITY, 1.0, "must be finite"),
    ] {
        let args = args![start, end, step, DType::I64];
        let e = call("aten::arange.start_step", args).expect_err(message).to_string();
        assert!(e.contains(message), "{e}");
    }
}

#[test]
fn refusals() {
    for (t, message) in [
        (Tensor::zeros([-1], DType::F32), "negative"),
        (Tensor::arange_step(0, 3, 0), "`step`"),
        (Tensor::arange_step(0, 3, -1), "wrong sign"),
        (Tensor::rand([2], DType::I64), "floating dtype"),
        (Tensor::zeros([i64::MAX, 8], DType::F32), "cannot allocate"),
    ] {
        let e = t.ok().expect_err(message).to_string();
        assert!(e.contains(message), "{e}");
    }
}

#[test]
fn the_sequence_repeats_and_advances_by_quarters() {
    let _turn = TURN.lock();
    random::manual_seed(7);
    let (a, b) = (Tensor::rand([5], DType::F32), Tensor::rand([4], DType::F32));
    assert_eq!(random::state(Device::Cpu), random::Philox { seed: 7, offset: 3 });
    random::manual_seed(7);
    let all = Tensor::rand([12], DType::F32).to_vec::<f32>().expect("floats");
    assert_eq!(a.to_vec::<f32>().expect("floats"), all[..5]);
    assert_eq!(b.to_vec::<f32>().expect("floats"), all[8..]);
    assert!(all.iter().all(|x| (0.0..1.0).contains(x)));
}

#[test]
fn distributions() {
    let _turn = TURN.lock();
    random::manual_seed(1);
    let n = Tensor::randn([10_000], DType::F32);
    let mean = n.mean().item::<f32>().expect("a float");
    let std = n.std(1).item::<f32>().expect("a float");
    assert!(mean.abs() < 0.05 && (std - 1.0).abs() < 0.05, "{mean} {std}");
    let i = Tensor::randint(-2, 3, [1000]);
    assert_eq!(
        (i.min().item::<i64>().expect("an integer"), i.max().item::<i64>().expect("an integer")),
        (-2, 2)
    );
    let kept = Tensor::ones([10_000], DType::F32).dropout(0.25, true);
    let share = kept.ne(0).sum().item::<i64>().expect("a count") as f64 / 10_000.0;
    assert!((share - 0.75).abs() < 0.03, "{share}");
    assert!((kept.max().item::<f32>().expect("a float") - 1.0 / 0.75).abs() < 1e-6);
    let same = n.dropout(0.5, false);
    assert!(!same.shares_storage(&n) && same.eq(&n).all().item::<bool>().expect("a bool"));
}

#[test]
fn invalid_random_distributions_are_refused() {
    let _turn = TURN.lock();
    let x = || Tensor::zeros([2], DType::F32);
    let range = |low: i64, high: i64, dtype: DType| {
        call("aten::randint.low", args![low, high, vec![2i64], dtype])
    };
    for (low, high, dtype) in [
        (0, 129, DType::I8),
        (-129, 5, DType::I8),
        (-5, 5, DType::U8),
        (0, 257, DType::U8),
        (0, 3, DType::Bool),
        (-1, 2, DType::Bool),
        (0, 65506, DType::F16),
        (-65505, 5, DType::F16),
        (0, 1 << 40, DType::I32),
        (5, 5, DType::I64),
    ] {
        assert!(range(low, high, dtype).is_err(), "{low} {high} {dtype}");
    }
    for (low, high, dtype) in [
        (-128, 128, DType::I8),
        (0, 256, DType::U8),
        (0, 2, DType::Bool),
        (-65504, 65505, DType::F16),
        (i64::MIN, i64::MAX, DType::I64),
    ] {
        range(low, high, dtype).unwrap();
    }
    let out_of = Tensor::from([2f32, 0.0]);
    for (op, args) in [
        ("randint", args![1000, vec![0i64], DType::I8]),
        ("randint_like", args![Tensor::zeros([2], DType::I8), 1000]),
        ("uniform_", args![x(), 1.0, 0.0]),
        ("uniform_", args![x(), f64::NAN, 1.0]),
        ("uniform_", args![x(), 0.0, f64::INFINITY]),
        ("uniform_", args![x(), -3e38, 3e38]),
        ("normal_", args![x(), 0.0, -1.0]),
        ("normal_", args![x(), 0.0, f64::NAN]),
        ("bernoulli", args![&out_of]),
        ("bernoulli", args![Tensor::from([f32::NAN])]),
        ("bernoulli.Tensor", args![x(), &out_of]),
        ("bernoulli_.Tensor", args![x(), -&out_of]),
        ("bernoulli.Tensor", args![x(), Tensor::from([1.000_000_1f64, 0.0])]),
        ("bernoulli.p", args![x(), 2.0]),
    ] {
        assert!(call(&format!("aten::{op}"), args).is_err(), "{op}");
    }
    let one = call("aten::uniform_", args![x(), 1.0, 1.0]).unwrap()[0]
        .tensor()
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(one, [1.0, 1.0]);
    call("aten::normal_", args![x(), 0.0, 0.0]).unwrap();
}
