//! Gradients at kinks, ties, zeros and singular matrices, and of infinite gradients: what PyTorch's
//! formulas give there.

use maquette_aten as _;
use maquette_ops::autograd::{BackwardOptions, grad};
use maquette_ops::{Args, Tensor, Value, args, call};

const INFINITE: f64 = f64::INFINITY;

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn square<const N: usize>(x: [f64; N]) -> Tensor {
    let n = (N as f64).sqrt() as i64;
    Tensor::from_vec(x.to_vec(), [n, n]).requires_grad_()
}

fn number(x: f64) -> Tensor {
    Tensor::from_vec(vec![x], [0i64; 0])
}

fn one(op: &str, args: Args) -> Tensor {
    call(op, args).unwrap()[0].tensor().unwrap().clone()
}

fn gradient(t: &Tensor) -> Vec<f64> {
    let grad = t.grad().expect("a sweep has reached the leaf");
    grad.contiguous().reshape([-1i64]).to_vec::<f64>().unwrap()
}

/// The gradients of `y` times `weight`, which becomes the gradient of `y`.
fn sweep<const N: usize>(y: &Tensor, weight: [f64; N]) {
    (y * Tensor::from(weight)).sum().backward().unwrap();
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64], error: f64) {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= error;
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(near), "{found:?}, not {expected:?}");
}

#[test]
fn the_losing_operand_gets_nothing_of_an_infinite_gradient() {
    let (x, y) = (leaf([0.0]), leaf([-1.0]));
    x.maximum(&y).sqrt().sum().backward().unwrap();
    assert_eq!((gradient(&x), gradient(&y)), (vec![INFINITE], vec![0.0]));
    let weight = [INFINITE, -INFINITE, 4.0];
    for op in ["aten::maximum", "aten::max.other", "aten::fmax"] {
        let (x, y) = (leaf([0.0, -1.0, 2.0]), leaf([-1.0, 0.0, 2.0]));
        sweep(&one(op, args![&x, &y]), weight);
        assert_eq!(gradient(&x), [INFINITE, 0.0, 2.0], "{op}");
        assert_eq!(gradient(&y), [0.0, -INFINITE, 2.0], "{op}");
    }
    for op in ["aten::minimum", "aten::min.other", "aten::fmin"] {
        let (x, y) = (leaf([-1.0, 0.0, 2.0]), leaf([0.0, -1.0, 2.0]));
        sweep(&one(op, args![&x, &y]), weight);
        assert_eq!(gradient(&x), [INFINITE, 0.0, 2.0], "{op}");
        assert_eq!(gradient(&y), [0.0, -INFINITE, 2.0], "{op}");
    }
}

#[test]
fn the_operand_that_is_a_number_gets_the_gradient() {
    let nan = f64::NAN;
    let (x, y) = (leaf([nan, 1.0]), leaf([1.0, nan]));
    sweep(&one("aten::fmax", args![&x, &y]), [INFINITE, 4.0]);
    assert_eq!(gradient(&x), [0.0, 4.0]);
    assert_eq!(gradient(&y), [INFINITE, 0.0]);
}

#[test]
fn what_is_cut_off_gets_nothing_of_an_infinite_gradient() {
    for (op, numbers) in [
        ("aten::hardshrink", &[0.5][..]),
        ("aten::softshrink", &[0.5]),
        ("aten::threshold", &[0.5, 9.0]),
    ] {
        let x = leaf([0.1, 2.0]);
        let numbers = numbers.iter().map(|n| Value::Float(*n));
        let args = [Value::from(&x)].into_iter().chain(numbers).collect();
        sweep(&one(op, args), [INFINITE, INFINITE]);
        assert_eq!(gradient(&x), [0.0, INFINITE], "{op}");
    }
    let x = leaf([2.0, 3.0]);
    sweep(&one("aten::pow.Tensor_Scalar", args![&x, 0.0]), [INFINITE, 1.0]);
    assert_eq!(gradient(&x), [0.0, 0.0]);
}

#[test]
fn replaced_infinities_have_a_product_as_in_pytorch() {
    let x = leaf([INFINITE, f64::NAN, 2.0, -INFINITE]);
    sweep(&one("aten::nan_to_num", args![&x]), [3.0, 3.0, INFINITE, INFINITE]);
    let found = gradient(&x);
    assert_eq!(found[..3], [0.0, 0.0, INFINITE]);
    assert!(found[3].is_nan());
}

#[test]
fn gradients_of_choices_are_choices() {
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    let (x, y, v) = (leaf([0.0, -1.0, 2.0]), leaf([-1.0, 0.0, 2.0]), leaf([5.0, 6.0, 7.0]));
    let out = (x.maximum(&y) * &v).sum();
    let first = grad(&[out], std::slice::from_ref(&x), &[], options).unwrap().remove(0).unwrap();
    assert_eq!(first.to_vec::<f64>().unwrap(), [5.0, 0.0, 3.5]);
    sweep(&first, [INFINITE, INFINITE, 1.0]);
    assert_eq!(gradient(&v), [INFINITE, 0.0, 0.5]);
}

#[test]
fn one_element_of_all_gets_an_infinite_gradient() {
    for (op, x, expected) in [
        ("aten::max", [0.0, -1.0, -1.0], [INFINITE, 0.0, 0.0]),
        ("aten::min", [0.0, 1.0, 0.0], [INFINITE, 0.0, INFINITE]),
        ("aten::median", [0.0, -1.0, 1.0], [INFINITE, 0.0, 0.0]),
        ("aten::nanmedian", [0.0, 1.0, f64::NAN], [INFINITE, 0.0, 0.0]),
    ] {
        let x = leaf(x);
        one(op, args![&x]).sqrt().backward().unwrap();
        assert_eq!(gradient(&x), expected, "{op}");
    }
}

#[test]
fn a_value_that_fills_gets_the_gradients_of_what_it_fills() {
    let (x, value) = (leaf([0.0, 1.0]), number(4.0).requires_grad_());
    let index = Tensor::from([1i64]);
    one("aten::index_fill.int_Tensor", args![&x, 0, &index, &value])
        .sqrt()
        .sum()
        .backward()
        .unwrap();
    assert_eq!(gradient(&value), [0.25]);
    assert_eq!(gradient(&x), [INFINITE, 0.0]);
    // an element that is filled twice counts once
    let (x, value) = (leaf([0.0, 1.0, 2.0]), number(4.0).requires_grad_());
    let index = Tensor::from([1i64, 2, 1]);
    sweep(&one("aten::index_fill.int_Tensor", args![&x, 0, &index, &value]), [1.0, 2.0, 3.0]);
    assert_eq!(gradient(&value), [5.0]);
}

#[test]
fn a_strided_write_cuts_off_infinite_gradients() {
    let (x, part) = (leaf([0.0, 1.0]), leaf([0.0]));
    let (sizes, strides) = ([1i64], [1i64]);
    let args = args![&x, &part, &sizes[..], &strides[..], 1];
    sweep(&one("aten::as_strided_scatter", args), [2.0, INFINITE]);
    assert_eq!((gradient(&x), gradient(&part)), (vec![2.0, 0.0], vec![INFINITE]));
}

#[test]
fn products_with_the_logarithm_of_a_number() {
    let two = std::f64::consts::LN_2;
    for (op, number) in
        [("aten::xlogy.Scalar_Other", 2.0), ("aten::special_xlog1py.other_scalar", 1.0)]
    {
        let x = leaf([0.0, 1.0]);
        one(op, args![&x, number]).sum().backward().unwrap();
        assert_near(&gradient(&x), &[two, two], 1e-15);
        // the number whose logarithm is infinite
        let x = leaf([0.0, 1.0, 1.0]);
        sweep(&one(op, args![&x, number - 2.0]), [1.0, 1.0, 0.0]);
        assert_eq!(gradient(&x), [0.0, -INFINITE, 0.0], "{op}");
    }
    let x = leaf([0.0, 1.0]);
    one("aten::xlogy_.Scalar_Other", args![&(&x * 1.0), 2.0]).sum().backward().unwrap();
    assert_near(&gradient(&x), &[two, two], 1e-15);
    let x = leaf([0.0, 1.0, 1.0]);
    let y = Tensor::from([0.0, 0.0, 0.0]);
    sweep(&x.xlogy(&y), [1.0, 1.0, 0.0]);
    assert_eq!(gradient(&x), [0.0, -INFINITE, 0.0]);
}

#[test]
fn an_exponent_of_zero_has_a_gradient() {
    let two = std::f64::consts::LN_2;
    let x = || Tensor::from([2.0, 0.0, 0.0, -2.0]);
    let powers: [fn(Tensor, &Tensor) -> Tensor; 3] =
        [|x, n| x.pow(n), |x, n| x.pow_(n), |x, n| x.float_power(n)];
    for power in powers {
        let n = leaf([0.0, 0.0, -1.0, 0.0]);
        power(x(), &n).sum().backward().unwrap();
        let found = gradient(&n);
        assert_near(&found[..2], &[two, 0.0], 1e-15);
        assert_eq!(found[2], -INFINITE);
        assert!(found[3].is_nan());
    }
    let n = leaf([0.0, 1.0]);
    one("aten::pow.Scalar", args![3.0, &n]).sum().backward().unwrap();
    let three = 3f64.ln();
    assert_near(&gradient(&n), &[three, 3.0 * three], 1e-14);
    let n = leaf([0.0, 1.0, -1.0]);
    one("aten::pow.Scalar", args![0.0, &n]).sum().backward().unwrap();
    assert_eq!(gradient(&n), [0.0, 0.0, -INFINITE]);
    // the logarithm of an integer has the result's precision
    let n = leaf([0.0, 2.0]);
    Tensor::from([3i64, 3]).pow(&n).sum().backward().unwrap();
    assert_near(&gradient(&n), &[three, 9.0 * three], 1e-14);
    let n = leaf([0.0]);
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    let y = Tensor::from([2.0]).pow(&n).sum();
    let first = grad(&[y], std::slice::from_ref(&n), &[], options).unwrap().remove(0).unwrap();
    first.sum().backward().unwrap();
    assert_near(&gradient(&n), &[two * two], 1e-15);
}

#[test]
fn an_exponent_of_two_has_its_own_precision() {
    let two = std::f64::consts::LN_2;
    let e = Tensor::from([1.0f32]).requires_grad_();
    Tensor::from([3i64]).ldexp(&e).sum().backward().unwrap();
    let found = e.grad().unwrap().to_vec::<f32>().unwrap();
    assert!((f64::from(found[0]) - 6.0 * two).abs() < 1e-6, "{found:?}");
    let (x, e) = (Tensor::from([3.0f32]).requires_grad_(), leaf([1.1]));
    x.ldexp(&e).sum().backward().unwrap();
    assert_near(&gradient(&e), &[3.0 * 1.1f64.exp2() * two], 1e-13);
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [1.1f64.exp2() as f32]);
}

#[test]
fn a_singular_matrix_has_cofactors() {
    for (x, cofactors) in [
        ([1.0, 2.0, 2.0, 4.0], [4.0, -2.0, -2.0, 1.0]),
        ([0.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]),
        ([0.0, 0.0, 0.0, 5.0], [5.0, 0.0, 0.0, 0.0]),
        ([0.0; 4], [0.0; 4]),
        ([1.0, 2.0, 3.0, 4.0], [4.0, -3.0, -2.0, 1.0]),
    ] {
        let x = square(x);
        x.linalg_det().backward().unwrap();
        assert_near(&gradient(&x), &cofactors, 1e-13);
        let small = (x.detach() * 1e-30).requires_grad_();
        small.linalg_det().backward().unwrap();
        assert_near(&gradient(&small), &cofactors.map(|c| c * 1e-30), 1e-43);
    }
    let x = square([0.0]);
    x.linalg_det().backward().unwrap();
    assert_eq!(gradient(&x), [1.0]);
    let x = square([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    x.linalg_det().backward().unwrap();
    assert_near(&gradient(&x), &[-3.0, 6.0, -3.0, 6.0, -12.0, 6.0, -3.0, 6.0, -3.0], 1e-12);
}

#[test]
fn singular_matrices_of_a_batch_have_cofactors() {
    let all = vec![1.0f32, 2.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0];
    let x = Tensor::from_vec(all, [3, 2, 2]).requires_grad_();
    (x.linalg_det() * Tensor::from([1.0f32, 1.0, 10.0])).sum().backward().unwrap();
    let found = x.grad().unwrap().to_dtype(maquette_ir::DType::F64).reshape([-1i64]);
    let expected = [4.0, -2.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 40.0, -30.0, -20.0, 10.0];
    assert_near(&found.to_vec::<f64>().unwrap(), &expected, 1e-5);
    let none = Tensor::zeros([2, 0, 0], maquette_ir::DType::F64).requires_grad_();
    none.linalg_det().sum().backward().unwrap();
    assert_eq!(none.grad().unwrap().sizes_i64().unwrap(), [2, 0, 0]);
}

#[test]
fn cofactors_have_gradients() {
    // the sum of the cofactors times weights is 10 d - 20 c - 30 b + 40 a
    for x in [[1.0, 2.0, 2.0, 4.0], [1.0, 2.0, 3.0, 4.0], [0.0; 4]] {
        let x = square(x);
        let options = BackwardOptions { create_graph: true, ..Default::default() };
        let found = grad(&[x.linalg_det()], std::slice::from_ref(&x), &[], options).unwrap();
        let [a, b, c, d] =
            <[f64; 4]>::try_from(x.reshape([-1i64]).to_vec::<f64>().unwrap()).unwrap();
        let cofactors = found[0].clone().unwrap().reshape([-1i64]);
        assert_near(&cofactors.to_vec::<f64>().unwrap(), &[d, -c, -b, a], 1e-6);
        sweep(&cofactors, [10.0, 20.0, 30.0, 40.0]);
        assert_near(&gradient(&x), &[40.0, -30.0, -20.0, 10.0], 1e-4);
    }
}

#[test]
fn the_logarithm_of_the_determinant_of_a_singular_matrix_has_no_finite_gradient() {
    let x = square([1.0, 2.0, 2.0, 4.0]);
    let out = call("aten::linalg_slogdet", args![&x]).unwrap();
    out[1].tensor().unwrap().backward().unwrap();
    assert!(gradient(&x).iter().all(|g| !g.is_finite()));
}

#[test]
fn a_norm_of_negative_order_with_a_zero_is_flat() {
    let norm = |x: &Tensor, p: f64| one("aten::linalg_vector_norm", args![x, p]);
    let x = leaf([0.0, 2.0]);
    norm(&x, -1.0).backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 0.0]);
    // 1 / (1 / 1 + 1 / 2) = 2 / 3
    let x = leaf([1.0, -2.0]);
    norm(&x, -1.0).backward().unwrap();
    assert_near(&gradient(&x), &[4.0 / 9.0, -1.0 / 9.0], 1e-15);
    let x = leaf([0.0, 4.0]);
    norm(&x, 0.5).backward().unwrap();
    assert_near(&gradient(&x), &[0.0, 1.0], 1e-15);
}

#[test]
fn each_of_the_largest_coordinates_gets_the_gradient_of_a_distance() {
    let row = |x: [f64; 2]| Tensor::from([x]).requires_grad_();
    let (x, y) = (row([0.0, 0.0]), row([1.0, 1.0]));
    one("aten::cdist", args![&x, &y, INFINITE]).sum().backward().unwrap();
    assert_eq!((gradient(&x), gradient(&y)), (vec![-1.0, -1.0], vec![1.0, 1.0]));
    let (x, y) = (row([0.0, 0.0]), row([1.0, -3.0]));
    one("aten::cdist", args![&x, &y, INFINITE]).sum().backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 1.0]);
    let x = Tensor::from([[0.0f64, 0.0], [1.0, -1.0]]).requires_grad_();
    one("aten::pdist", args![&x, INFINITE]).sum().backward().unwrap();
    assert_eq!(gradient(&x), [-1.0, 1.0, 1.0, -1.0]);
    // a norm shares the gradient
    let x = leaf([1.0, -1.0]);
    one("aten::linalg_vector_norm", args![&x, INFINITE]).backward().unwrap();
    assert_eq!(gradient(&x), [0.5, -0.5]);
}

/// A number keeps the gradient strictly inside of it, and NaN is not inside. Of two tensors, the
/// one that the result is not gets none, and NaN loses to neither.
#[test]
fn bounds_beside_nan() {
    const NAN: f64 = f64::NAN;
    let by_number: [fn(&Tensor) -> Tensor; 4] = [
        |x| x.clamp(0.0, 1.0),
        |x| x.clamp_min(0.0),
        |x| x.clamp_max(1.0),
        |x| one("aten::clamp_min", args![x, 0.0]),
    ];
    for f in by_number {
        let x = leaf([NAN, 0.5, 0.25]);
        sweep(&f(&x), [1.0, 2.0, 4.0]);
        assert_eq!(gradient(&x), [0.0, 2.0, 4.0]);
    }
    let by_tensor: [fn(&Tensor, &Tensor) -> Tensor; 4] = [
        |x, y| one("aten::clamp_min.Tensor", args![x, y]),
        |x, y| one("aten::clamp_max.Tensor", args![-x, -y]),
        |x, y| one("aten::clamp.Tensor", args![x, y]),
        |x, y| one("aten::clamp.Tensor", args![-x, Value::None, -y]),
    ];
    for (i, f) in by_tensor.into_iter().enumerate() {
        let (x, y) = (leaf([NAN, 0.5, 3.0, 2.0]), leaf([1.0, NAN, 3.0, 5.0]));
        sweep(&f(&x, &y), [1.0, 2.0, 4.0, 8.0]);
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        assert_eq!(gradient(&x), [1.0, 2.0, 2.0, 0.0].map(|g| sign * g));
        assert_eq!(gradient(&y), [1.0, 2.0, 2.0, 8.0].map(|g| sign * g));
    }
    let (x, low, high) = (leaf([NAN, 0.5]), leaf([0.0, 0.0]), leaf([1.0, 1.0]));
    sweep(&one("aten::clamp.Tensor", args![&x, &low, &high]), [1.0, 2.0]);
    assert_eq!((gradient(&x), gradient(&low)), (vec![0.0, 2.0], vec![0.0, 0.0]));
    assert_eq!(gradient(&high), [0.0, 0.0]);
}

/// A number may stand where a bound is a tensor. It keeps the gradient of the operand strictly
/// inside, and has none.
#[test]
fn numbers_among_bounds_that_are_tensors() {
    let weight = [1.0, 2.0, 4.0, 8.0, 16.0];
    let clamped = |args: Args, x: &Tensor| {
        sweep(&one("aten::clamp.Tensor", args), weight);
        gradient(x)
    };
    let inputs = || leaf([0.0, 1.0, 2.0, 3.0, 4.0]);
    let x = inputs();
    assert_eq!(clamped(args![&x, 1.0, 3.0], &x), [0.0, 0.0, 4.0, 0.0, 0.0]);
    let x = inputs();
    assert_eq!(clamped(args![&x, 1.0, Value::None], &x), [0.0, 0.0, 4.0, 8.0, 16.0]);
    let x = inputs();
    assert_eq!(clamped(args![&x, Value::None, 3.0], &x), [1.0, 2.0, 4.0, 0.0, 0.0]);
    let (x, high) = (inputs(), leaf([3.0; 5]));
    assert_eq!(clamped(args![&x, 1.0, &high], &x), [0.0, 0.0, 4.0, 4.0, 0.0]);
    assert_eq!(gradient(&high), [0.0, 0.0, 0.0, 4.0, 16.0]);
    let (x, low) = (inputs(), leaf([1.0; 5]));
    assert_eq!(clamped(args![&x, &low, 3.0], &x), [0.0, 1.0, 4.0, 0.0, 0.0]);
    assert_eq!(gradient(&low), [1.0, 1.0, 0.0, 0.0, 0.0]);
    let (x, high) = (inputs(), leaf([0.5; 5]));
    assert_eq!(clamped(args![&x, 1.0, &high], &x), [0.0; 5]);
    assert_eq!(gradient(&high), weight);
}
