//! Tensors from sizes, numbers and chance.

use maquette_ir::{DType, Device};
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
    assert_eq!(Tensor::arange_step(0.0, 1.0, 0.25).to_vec::<f32>().expect("floats"), [0.0, 0.25, 0.5, 0.75]);
    assert_eq!(Tensor::linspace(0, 1, 5).to_vec::<f32>().expect("floats"), [0.0, 0.25, 0.5, 0.75, 1.0]);
    assert_eq!(Tensor::eye(2, DType::I64).to_vec::<i64>().expect("integers"), [1, 0, 0, 1]);
    assert_eq!(made("aten::eye.m", args![2, 3]).to_vec::<f32>().expect("floats"), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(Tensor::full([2], 7, DType::U8).to_vec::<u8>().expect("bytes"), [7, 7]);
    assert_eq!(Tensor::ones([2], DType::Bool).to_vec::<bool>().expect("bools"), [true, true]);
}

#[test]
fn like_keeps_the_memory_order() {
    let x = Tensor::zeros([2, 3], DType::F64).t();
    let y = x.ones_like();
    assert_eq!((y.dtype(), y.meta().concrete().expect("concrete").strides.as_slice()), (DType::F64, &[1, 3][..]));
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
fn refusals() {
    for (t, message) in [
        (Tensor::zeros([-1], DType::F32), "negative"),
        (Tensor::arange_step(0, 3, 0), "`step`"),
        (Tensor::arange_step(0, 3, -1), "leads away"),
        (Tensor::rand([2], DType::I64), "floats"),
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
    assert_eq!((i.min().item::<i64>().expect("an integer"), i.max().item::<i64>().expect("an integer")), (-2, 2));
    let kept = Tensor::ones([10_000], DType::F32).dropout(0.25, true);
    let share = kept.ne(0).sum().item::<i64>().expect("a count") as f64 / 10_000.0;
    assert!((share - 0.75).abs() < 0.03, "{share}");
    assert!((kept.max().item::<f32>().expect("a float") - 1.0 / 0.75).abs() < 1e-6);
    let same = n.dropout(0.5, false);
    assert!(!same.shares_storage(&n) && same.eq(&n).all().item::<bool>().expect("a bool"));
}
