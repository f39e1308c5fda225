//! Elementwise operators: values, dtypes, broadcasting, refusals.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Error, Result, Tensor, Value, args, call};

fn f(values: &[f32]) -> Tensor {
    Tensor::from(values.to_vec())
}

fn close(found: &Tensor, expected: &[f32]) {
    let found = found.to_vec::<f32>().expect("a real f32 tensor");
    let agree = found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| {
            a == b
                || a.is_nan() && b.is_nan()
                || b.is_finite() && (a - b).abs() <= 1e-5 + 1.3e-6 * b.abs()
        });
    assert!(agree, "{found:?}, expected {expected:?}");
}

fn refusal<T>(r: Result<T>) -> String {
    let e: Error = r.err().expect("it must be refused");
    e.kind().to_string()
}

type Unary = fn(&Tensor) -> Tensor;

#[test]
fn functions_of_one_element() {
    let cases: &[(&str, Unary, &[f32], &[f32])] = &[
        ("relu", Tensor::relu, &[-1.0, 0.0, 2.0, f32::NAN], &[0.0, 0.0, 2.0, f32::NAN]),
        ("silu", Tensor::silu, &[0.0, 1.0], &[0.0, 0.731_058_6]),
        ("gelu", Tensor::gelu, &[0.0, 1.0, -1.0], &[0.0, 0.841_344_8, -0.158_655_26]),
        ("sigmoid", Tensor::sigmoid, &[0.0, 100.0, -100.0], &[0.5, 1.0, 0.0]),
        ("round", Tensor::round, &[0.5, 1.5, 2.5, -0.5], &[0.0, 2.0, 2.0, -0.0]),
        ("sign", Tensor::sign, &[-3.0, 0.0, 5.0], &[-1.0, 0.0, 1.0]),
        ("rsqrt", Tensor::rsqrt, &[4.0, 0.0], &[0.5, f32::INFINITY]),
        ("erf", Tensor::erf, &[0.0, 1.0], &[0.0, 0.842_700_8]),
        ("hardswish", Tensor::hardswish, &[-4.0, 0.0, 4.0], &[0.0, 0.0, 4.0]),
        ("frac", Tensor::frac, &[1.25, -1.25], &[0.25, -0.25]),
        ("mish", Tensor::mish, &[1.0], &[0.865_098_4]),
    ];
    for (name, op, x, expected) in cases {
        println!("{name}");
        close(&op(&f(x)), expected);
    }
}

#[test]
fn dtypes_follow_pytorch() {
    let i = Tensor::from(vec![7i64, -7]);
    let b = Tensor::from(vec![true, false]);
    let x = f(&[1.0, 2.0]);
    let cases = [
        ("int / int", &i / &i, DType::F32),
        ("int + float number", &i + 0.5, DType::F32),
        ("int + int number", &i + 1, DType::I64),
        ("bool + bool", &b + &b, DType::Bool),
        ("bool + int number", &b + 1, DType::I64),
        ("float > int", x.gt(&i), DType::Bool),
        ("sin(int)", i.sin(), DType::F32),
        ("ceil(int)", i.ceil(), DType::I64),
        ("clamp(int, 0.5)", i.clamp(0.5, 3.0), DType::F32),
        ("where(bool, int, float)", b.where_(&i, &x), DType::F32),
        ("f32 tensor * f64 scalar tensor", &x * &Tensor::scalar(2.0f64), DType::F32),
        ("floor_divide(int)", i.floor_divide(2), DType::I64),
    ];
    for (what, t, dtype) in cases {
        assert_eq!(t.ok().map(Tensor::dtype).expect(what), dtype, "{what}");
    }
}

#[test]
fn division_and_remainders() {
    let (a, b) = (Tensor::from(vec![7i64, -7, 7, -7]), Tensor::from(vec![2i64, 2, -2, -2]));
    let cases = [
        (a.div_mode(&b, "floor"), [3, -4, -4, 3]),
        (a.div_mode(&b, "trunc"), [3, -3, -3, 3]),
        (a.remainder(&b), [1, 1, -1, -1]),
        (a.fmod(&b), [1, -1, 1, -1]),
        (&a % &b, [1, 1, -1, -1]),
        (&a ^ &b, [7 ^ 2, -7 ^ 2, 7 ^ -2, -7 ^ -2]),
        (5 - &a, [-2, 12, -2, 12]),
        (-&a, [-7, 7, -7, 7]),
        (!&a, [-8, 6, -8, 6]),
    ];
    for (i, (t, expected)) in cases.iter().enumerate() {
        assert_eq!(t.to_vec::<i64>().expect("integers"), expected, "case {i}");
    }
    close(&a.div(&b), &[3.5, -3.5, -3.5, 3.5]);
    close(&(1.0 / f(&[2.0, 4.0])), &[0.5, 0.25]);
}

#[test]
fn broadcasting_and_strides() {
    let row = Tensor::from([[1f32, 2.0, 3.0]]);
    let column = Tensor::from([[10f32], [20.0]]);
    let sum = &row + &column;
    assert_eq!(sum.sizes_i64().expect("sizes"), [2, 3]);
    close(&sum, &[11.0, 12.0, 13.0, 21.0, 22.0, 23.0]);
    // the result of a transposed operand is laid out as the operand is
    let t = sum.t().exp();
    assert_eq!(t.meta().concrete().expect("concrete").strides.as_slice(), [1, 3]);
    // except where PyTorch allocates it without looking at the operand
    for (name, args) in [
        ("aten::pow.Scalar", args![3, sum.t()]),
        ("aten::pow.Scalar", args![2, sum.t()]),
        ("aten::float_power.Scalar", args![2, sum.t()]),
        ("aten::log_sigmoid", args![sum.t()]),
    ] {
        let t = call(name, args).expect("floats")[0].tensor().expect("a tensor").clone();
        assert_eq!(t.meta().concrete().expect("concrete").strides.as_slice(), [2, 1], "{name}");
    }
    assert!(refusal((&f(&[1.0, 2.0]) + &f(&[1.0, 2.0, 3.0])).ok()).contains('2'));
}

#[test]
fn in_place_writes_through_views() {
    let x = Tensor::from([[1f32, 2.0], [3.0, 4.0]]);
    let mut column = x.select(1, 0);
    column += 10;
    column.mul_(2);
    close(&x, &[22.0, 2.0, 26.0, 4.0]);
    x.clamp_(0, 20);
    close(&x, &[20.0, 2.0, 20.0, 4.0]);
    x.masked_fill_(&x.gt(10), -1);
    close(&x, &[-1.0, 2.0, -1.0, 4.0]);
    x.zero_();
    x.fill_(3);
    close(&x, &[3.0; 4]);
}

#[test]
fn half_precision_rounds_once() {
    let x = Tensor::from(vec![half::bf16::from_f32(3.140_625)]);
    let y = x.add_alpha(&x, 0.1);
    assert_eq!(
        y.item::<half::bf16>().expect("one element"),
        half::bf16::from_f32(3.140_625 + 3.140_625 * 0.1)
    );
}

/// The only element, whatever its dtype.
fn one(t: &Tensor) -> f64 {
    t.to_dtype(DType::F64).item::<f64>().expect("one element")
}

fn of(x: f64, dtype: DType) -> Tensor {
    Tensor::from(vec![x]).to_dtype(dtype)
}

#[test]
fn infinities_become_the_largest_number_of_the_dtype() {
    for (dtype, largest) in [
        (DType::F16, 65504.0),
        (DType::BF16, 3.389_531_389_251_535_5e38),
        (DType::F32, f64::from(f32::MAX)),
    ] {
        assert_eq!(one(&of(f64::INFINITY, dtype).nan_to_num(None, None, None)), largest, "{dtype}");
        let x = of(f64::NEG_INFINITY, dtype);
        call("aten::nan_to_num_", args![&x]).expect("a float");
        assert_eq!(one(&x), -largest, "{dtype}");
    }
}

#[test]
fn a_narrow_operand_of_a_wide_result_rounds_nothing() {
    let (half, single) = (of(1.0, DType::F16), f(&[1.0]));
    close(&half.add_alpha(&single, 0.1), &[1.1]);
    close(&half.sub_alpha(&single, 0.1), &[0.9]);
    close(
        call("aten::rsub.Tensor", args![&single, &half, 0.1]).expect("floats")[0]
            .tensor()
            .expect("a tensor"),
        &[0.9],
    );
    close(&of(100.0, DType::BF16).div_mode(f(&[0.3]), "trunc"), &[333.0]);
}

#[test]
fn integers_are_clamped_by_bounds_beyond_them() {
    let made = |name: &str, x: &Tensor, low: Option<i64>, high: Option<i64>| {
        let bound = |b: Option<i64>| b.map_or(Value::None, Value::from);
        call(name, args![x, bound(low), bound(high)])
            .map(|o| o[0].tensor().expect("a tensor").to_dtype(DType::I64).to_vec::<i64>())
    };
    let bytes = Tensor::from(vec![0u8, 50, 100, 200, 255]);
    for name in ["aten::clamp", "aten::clip", "aten::hardtanh"] {
        assert_eq!(
            made(name, &bytes, Some(-1), Some(100)).expect(name).expect("integers"),
            [0, 50, 100, 100, 100],
            "{name}"
        );
        let refused = refusal(made(name, &bytes, Some(300), Some(400)));
        assert!(refused.contains("must not exclude all values of u8, found 300"), "{refused}");
    }
    let words = Tensor::from(vec![5i32, 6]);
    assert_eq!(
        made("aten::clamp", &words, Some(-1 << 40), Some(1 << 40))
            .expect("integers")
            .expect("integers"),
        [5, 6]
    );
    assert!(refusal(made("aten::clamp", &bytes, None, Some(-1))).contains("`max`"));
    let one = |name: &str, x: &Tensor, bound: i64| call(name, args![x, bound]);
    assert_eq!(
        bytes.clamp_min(-1).to_vec::<u8>().expect("bytes"),
        bytes.to_vec::<u8>().expect("bytes")
    );
    assert_eq!(Tensor::from(vec![1i8]).clamp_max(300).item::<i8>().expect("one element"), 1);
    assert!(refusal(one("aten::clamp_min", &bytes, 300)).contains("`min`"));
    assert!(refusal(one("aten::clamp_max", &bytes, -1)).contains("`max`"));
    // in place, and by fractions, which promote `clamp` but not `hardtanh`
    bytes.clamp_(-1, 100);
    assert_eq!(bytes.to_vec::<u8>().expect("bytes"), [0, 50, 100, 100, 100]);
    assert_eq!(
        call("aten::hardtanh", args![&words, -1.5, 5.9]).expect("integers")[0]
            .tensor()
            .expect("a tensor")
            .to_vec::<i32>()
            .expect("integers"),
        [5, 5]
    );
    assert!(
        refusal(f(&[1.0]).to_dtype(DType::F16).clamp(-1e9, 1e9).ok())
            .contains("range of f16, -65504.0 to 65504.0, found -1000000000.0")
    );
}

#[test]
fn calls_that_pytorch_refuses_are_refused() {
    let b = Tensor::from(vec![true, false]);
    let i = Tensor::from(vec![1i64, 2]);
    assert!(refusal(b.neg().ok()).contains("logical_not"));
    assert!(refusal((&b - &b).ok()).contains("logical_xor"));
    assert!(refusal(b.relu().ok()).contains("bool"));
    assert!(refusal(i.pow(-1).ok()).contains("negative powers"));
    assert!(refusal(i.sin_().ok()).contains("i64"));
    let i = Tensor::from(vec![1i64, 2]);
    assert!(refusal(i.addcdiv(&i, &i, 1).ok()).contains("floats"));
    assert!(refusal(call("aten::clamp", args![&i])).contains("min"));
    assert!(refusal(i.add_alpha(&i, 0.5).ok()).contains("alpha"));
    assert!(
        refusal((&i / 0).floor_divide(f(&[1.0, 2.0])).ok().and(i.floor_divide(0).ok()))
            .contains("zero")
    );
}

#[test]
fn masks_are_bools_and_values_to_fill_with_single_elements() {
    let (x, bytes, longs) =
        (f(&[1.0, 2.0]), Tensor::from(vec![1u8, 0]), Tensor::from(vec![1i64, 0]));
    for (name, args) in [
        ("aten::masked_fill.Scalar", args![&x, &longs, 3]),
        ("aten::masked_fill_.Scalar", args![&x, &bytes, 3]),
        ("aten::masked_select", args![&x, &bytes]),
        ("aten::masked_scatter", args![&x, &bytes, &x]),
        ("aten::where.self", args![&longs, &x, &x]),
    ] {
        assert!(refusal(call(name, args)).contains("must have dtype bool"), "{name}");
    }
    close(
        call("aten::where.ScalarOther", args![&bytes, &x, 3]).expect("a mask of u8")[0]
            .tensor()
            .expect("a tensor"),
        &[1.0, 3.0],
    );
    let mask = longs.to_dtype(DType::Bool);
    for (name, args) in [
        ("aten::fill.Tensor", args![&x, &f(&[3.0])]),
        ("aten::fill_.Tensor", args![&x, &x]),
        ("aten::masked_fill.Tensor", args![&x, &mask, &f(&[3.0])]),
    ] {
        assert!(refusal(call(name, args)).contains("`value` must have 0 dimensions"), "{name}");
    }
}

#[test]
fn powers() {
    let x = f(&[4.0, 9.0]);
    for (e, expected) in
        [(0.5, [2.0, 3.0]), (2.0, [16.0, 81.0]), (-1.0, [0.25, 1.0 / 9.0]), (1.5, [8.0, 27.0])]
    {
        close(&x.pow(e), &expected);
    }
    close(&x.pow(f(&[0.5, 2.0])), &[2.0, 81.0]);
    assert_eq!(Tensor::from(vec![3i64]).pow(4).item::<i64>().expect("one element"), 81);
}
