//! Values that differed from those of PyTorch and SciPy in reports.

use maquette_aten as _;
use maquette_ir::DType::{self, BF16, F16, F32};
use maquette_ops::{Outputs, Result, Tensor, Value, args, call, call_kw, kwargs};

fn half(values: &[f32], dtype: DType) -> Tensor {
    Tensor::from(values.to_vec()).to_dtype(dtype)
}

fn floats(t: &Tensor) -> Vec<f32> {
    t.to_dtype(F32).to_vec().unwrap()
}

fn one(outputs: Result<Outputs>) -> Vec<f32> {
    floats(outputs.unwrap()[0].tensor().unwrap())
}

#[test]
fn erfcx_is_infinite_far_below_zero() {
    let x = Tensor::from([-26.0f64, -27.5, -1e4, -9e15, -1e16, -1e200, f64::NEG_INFINITY]);
    let y = x.special_erfcx().to_vec::<f64>().unwrap();
    assert!((y[0] / (2.0 * 676f64.exp()) - 1.0).abs() < 1e-13, "{}", y[0]);
    assert!(y[1..].iter().all(|y| *y == f64::INFINITY), "{y:?}");
    let y = Tensor::from([f64::NAN, f64::INFINITY]).special_erfcx().to_vec::<f64>().unwrap();
    assert!(y[0].is_nan() && y[1] == 0.0);
}

#[test]
fn a_quotient_by_a_number_takes_the_number_as_it_is() {
    let x = half(&[-5.0], F16);
    assert_eq!(floats(&x.floor_divide(0.1)), [-50.0]);
    assert_eq!(floats(&x.floor_divide_(0.1)), [-50.0]);
    let mode = |x: &Tensor, mode: &str| {
        let out = call_kw("aten::div.Scalar_mode", args![x, 0.1], kwargs![rounding_mode = mode]);
        one(out)
    };
    assert_eq!(mode(&half(&[-5.0], F16), "floor"), [-50.0]);
    assert_eq!(mode(&half(&[-49.75], BF16), "trunc"), [-496.0]);
    // A divisor that is a tensor has the dtype of the quotient, which is rounded first.
    let (x, y) = (half(&[-49.75], BF16), half(&[0.1], BF16));
    let out = call_kw("aten::div.Tensor_mode", args![&x, &y], kwargs![rounding_mode = "trunc"]);
    assert_eq!(one(out), floats(&(&x / &y).trunc()));
    // Integers as before.
    let n = Tensor::from([-7i64, 7]).floor_divide(2);
    assert_eq!(n.to_vec::<i64>().unwrap(), [-4, 3]);
}

#[test]
fn numbers_of_other_operators_in_half_precision() {
    // `xlogy` rounds its number to the dtype, as an operand.
    for dtype in [F16, BF16] {
        let (x, y) = (half(&[3.0], dtype), half(&[0.1], dtype));
        let rounded = floats(&x.xlogy(&y));
        assert_eq!(one(call("aten::xlogy.Scalar_Other", args![&x, 0.1])), rounded);
        assert_eq!(floats(&x.xlogy(0.1)), rounded);
    }
    // `softshrink` compares with the number itself, which lies below its rounded form in `bf16`.
    let x = half(&[0.1], BF16);
    let shrunk = one(call("aten::softshrink", args![&x, 0.1]));
    assert_eq!(shrunk, floats(&(x.to_dtype(F32) - 0.1).to_dtype(BF16)));
}

#[test]
fn the_gradient_of_an_infinite_norm_has_no_nan_at_infinities() {
    let inf = f64::INFINITY;
    let gradient = |values: [f64; 3], p: f64| {
        let x = Tensor::from(values).requires_grad_();
        x.linalg_vector_norm(p, [0i64], false).sum().backward().unwrap();
        x.grad().unwrap().to_vec::<f64>().unwrap()
    };
    assert_eq!(gradient([inf, 1.0, -2.0], -inf), [0.0, 1.0, 0.0]);
    assert_eq!(gradient([-inf, 1.0, -2.0], inf), [-1.0, 0.0, 0.0]);
    assert_eq!(gradient([inf, -inf, 2.0], inf), [0.5, -0.5, 0.0]);
    let third = 1.0 / 3.0;
    assert_eq!(gradient([inf, -inf, inf], -inf), [third, -third, third]);
    assert_eq!(gradient([1.0, -1.0, 0.5], inf), [0.5, -0.5, 0.0]);
}

/// The choices that `docs/accuracy.md` lists.
#[test]
fn gradients_at_points_without_a_derivative() {
    let leaf = |values: &[f64]| Tensor::from(values.to_vec()).requires_grad_();
    let gradient = |x: &Tensor, y: Result<Outputs>| {
        y.unwrap()[0].tensor().unwrap().sum().backward().unwrap();
        format!("{:?}", x.grad().unwrap().to_vec::<f64>().unwrap())
    };
    let of = |op: &str, values: &[f64], rest: &[Value]| {
        let x = leaf(values);
        let args = std::iter::once(Value::from(&x)).chain(rest.iter().cloned()).collect();
        format!("{op} {}", gradient(&x, call(op, args)))
    };
    let norm = |p: f64| of("aten::linalg_vector_norm", &[0.0, 0.0], &[p.into()]);
    let var = {
        let x = leaf(&[3.0]);
        gradient(&x, call_kw("aten::var.correction", args![&x], kwargs![correction = 2]))
    };
    let (x, y) = (leaf(&[1.0, 2.0]), Tensor::from([1.0f64, 3.0]));
    let loss = gradient(&x, call("aten::smooth_l1_loss", args![&x, &y, 2, 0.0]));
    let (x, src) = (leaf(&[1.0, 2.0]), leaf(&[1.0, 1.0]));
    let index = Tensor::from([0i64, 0]);
    let reduced =
        gradient(&x, call("aten::scatter_reduce.two", args![&x, 0, &index, &src, "amax", false]));
    let of_src = src.grad().unwrap().to_vec::<f64>().unwrap();
    let found = [
        of("aten::mode", &[2.0, 1.0, 1.0, 2.0], &[]),
        of("aten::nanmedian", &[1.0, 2.0, 2.0, f64::NAN, 2.0], &[]),
        norm(0.5),
        norm(1.5),
        format!("var {var}"),
        format!("smooth_l1_loss {loss}"),
        format!("scatter_reduce {reduced} {of_src:?}"),
    ];
    insta::assert_snapshot!(found.join("\n"), @r"
    aten::mode [0.0, 0.0, 1.0, 0.0]
    aten::nanmedian [0.0, 0.3333333333333333, 0.3333333333333333, 0.0, 0.3333333333333333]
    aten::linalg_vector_norm [0.0, 0.0]
    aten::linalg_vector_norm [0.0, 0.0]
    var [NaN]
    smooth_l1_loss [0.0, -1.0]
    scatter_reduce [0.0, 1.0] [0.5, 0.5]
    ");
}

#[test]
fn values_where_pytorch_differs() {
    let tiny = f64::from_bits(3);
    let found = Tensor::from([1.0f64, f64::from_bits(7)]).fmod(tiny).to_vec::<f64>().unwrap();
    assert_eq!(found[1], f64::from_bits(1));
    let inf = f32::INFINITY;
    let mut values = vec![f32::MAX; 64];
    values[5] = inf;
    assert_eq!(Tensor::from(values).mean().item::<f32>().unwrap(), inf);
}
