//! Derivatives of builtin operators where operands are empty, huge, or laid out in an unusual way.
//! Each was wrong once, or failed.

use maquette_check::gradcheck::{
    GradcheckOptions, gradcheck, gradcheck_with, gradgradcheck, gradgradcheck_with,
};
use maquette_ops::{Args, Op, Reduction, Result, Tensor, Value, args};

/// The first result of an operator.
fn call(name: &str, args: Args) -> Result<Vec<Tensor>> {
    let out = Op::find(name)?.call(args)?;
    Ok(vec![out[0].tensor()?.clone()])
}

/// Elements around 0, different from each other.
fn some(sizes: impl AsRef<[i64]>) -> Tensor {
    let sizes = sizes.as_ref();
    let n: i64 = sizes.iter().product();
    let values: Vec<f64> = (0..n).map(|k| (1.7 * k as f64 + 0.3).sin()).collect();
    Tensor::from_vec(values, sizes)
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

#[test]
fn a_bias_has_a_gradient_where_the_operand_of_a_convolution_is_empty() {
    for sizes in [[1, 3, 0], [1, 0, 4], [0, 3, 4]] {
        let (x, weight, bias) = (some(sizes), some([2, sizes[1], 3]), some([2]).requires_grad_());
        let out = x.conv1d(&weight, Some(&bias), 1, 2, 1, 1);
        let results = out.numel().as_i64().unwrap() as f64;
        out.sum().backward().unwrap();
        assert_eq!(numbers(&bias.grad().unwrap()), [results / 2.0; 2], "{sizes:?}");
    }
}

#[test]
fn the_weight_of_a_cross_entropy_has_a_gradient() {
    let part = |sizes: [i64; 2]| some(sizes) * 0.4 + 0.5;
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        for weight in [[3, 4], [1, 4]] {
            let f =
                |t: &[Tensor]| Ok(vec![t[0].binary_cross_entropy(&t[1], Some(&t[2]), reduction)]);
            let inputs = [part([3, 4]), part([3, 4]).flip([0]), some(weight)];
            gradcheck(f, &inputs).unwrap();
            gradgradcheck(f, &inputs).unwrap();
        }
    }
}

#[test]
fn sums_of_exponentials_whose_factors_overflow() {
    let x = Tensor::from([[-900.0f64, -901.0, -899.5], [0.1, 0.7, -0.2], [1e4, 1e4 + 0.5, 10.0]]);
    let f = |t: &[Tensor]| call("aten::logcumsumexp", args![&t[0], 1i64]);
    // differences of values around 1e4 have fewer digits
    let options = GradcheckOptions::new().eps(1e-4).atol(1e-4);
    gradcheck_with(f, std::slice::from_ref(&x), &options).unwrap();
    gradgradcheck(f, &[some([3, 4])]).unwrap();
    // a row of the Jacobian of each kind, also where other gradients are 0
    let leaf = x.requires_grad_();
    let out = &f(std::slice::from_ref(&leaf)).unwrap()[0];
    (out * &Tensor::from([1.0f64, 0.0, -1.0])).sum().backward().unwrap();
    let found = numbers(&leaf.grad().unwrap());
    assert!(found.iter().all(|g| g.is_finite() && g.abs() <= 1.0), "{found:?}");
}

#[test]
fn a_strided_write_has_its_places_in_the_operand() {
    let (x, part) = (some([3, 3]), some([2, 2]));
    let sizes = [2i64, 2];
    for (strides, offset) in [([1i64, 2], 0i64), ([3, 1], 1), ([4, 1], 2)] {
        let scatter = |x: &Tensor, part: &Tensor| {
            call("aten::as_strided_scatter", args![x, part, &sizes[..], &strides[..], offset])
        };
        gradcheck(|t| scatter(&t[0], &t[1]), &[x.clone(), part.clone()]).unwrap();
        let turned = |t: &[Tensor]| {
            // places count in memory, in which a transposed operand has another order
            scatter(&t[0].transpose(0, 1), &t[1])
        };
        gradcheck(turned, &[x.clone(), part.clone()]).unwrap();
    }
}

#[test]
fn losses_without_classes() {
    for reduction in [0i64, 2] {
        let x = some([2, 0]).requires_grad_();
        let target = Tensor::from([1i64, 1]);
        let args = args![&x, &target, Value::None, reduction, 1i64];
        call("aten::nll_loss_forward", args).unwrap()[0].sum().backward().unwrap();
        assert_eq!(x.grad().unwrap().sizes_i64().unwrap(), [2, 0]);
    }
}

#[test]
fn attention_without_heads() {
    let [q, k, v] = [3, 6, 6].map(|n| some([2, 0, n, 8]).requires_grad_());
    let args = args![&q, &k, &v, Value::None, 0.0, false, Value::None, true];
    let out = call("aten::scaled_dot_product_attention", args).unwrap();
    out[0].sum().backward().unwrap();
    assert_eq!(k.grad().unwrap().sizes_i64().unwrap(), [2, 0, 6, 8]);
}

#[test]
fn no_bags_of_some_entries() {
    let (weight, none) =
        (some([5, 3]).requires_grad_(), Tensor::zeros([0], maquette_ir::DType::I64));
    for mode in [0i64, 1] {
        let indices = Tensor::from([1i64, 2]);
        let args = args![&weight, &indices, &none, false, mode, false, Value::None, false, -1i64];
        call("aten::_embedding_bag_forward_only", args).unwrap()[0].sum().backward().unwrap();
    }
    assert_eq!(numbers(&weight.grad().unwrap()), [0.0; 15]);
}

#[test]
fn a_largest_element_of_none_limits_nothing() {
    let x = some([0, 3]).requires_grad_();
    call("aten::renorm", args![&x, f64::INFINITY, 0i64, 0.5]).unwrap()[0].sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().sizes_i64().unwrap(), [0, 3]);
}

#[test]
fn a_scalar_source_is_one_slice() {
    let (x, source) = (some([]), some([]));
    for n in [0i64, 2] {
        let index = Tensor::zeros([n], maquette_ir::DType::I64);
        for name in ["aten::index_add", "aten::index_copy"] {
            let e = call(name, args![&x, 0i64, &index, &source]).unwrap_err().to_string();
            assert!(e.contains("`source` without dimensions is one slice"), "{e}");
        }
    }
}

/// A right side has the gradient of the factor that is read, whatever is in the other triangle.
#[test]
fn the_triangle_that_is_not_read_does_not_matter_to_the_right_side() {
    let factor = some([3, 3]) + Tensor::eye(3, maquette_ir::DType::F64) * 3.0;
    for upper in [false, true] {
        let read = if upper { factor.triu(0) } else { factor.tril(0) };
        let solve = |t: &[Tensor]| call("aten::cholesky_solve", args![&t[0], &factor, upper]);
        gradcheck(solve, &[some([3, 2])]).unwrap();
        let of_triangle = |t: &[Tensor]| {
            let factor = &read + if upper { t[1].triu(0) } else { t[1].tril(0) };
            call("aten::cholesky_solve", args![&t[0], factor, upper])
        };
        let options = GradcheckOptions::new().variants(false);
        let inputs = [some([2, 3, 2]), some([3, 3]) * 0.1];
        gradcheck_with(of_triangle, &inputs, &options).unwrap();
        gradgradcheck_with(of_triangle, &inputs, &options).unwrap();
        let inverse = |t: &[Tensor]| {
            let factor = &read + if upper { t[0].triu(0) } else { t[0].tril(0) };
            call("aten::cholesky_inverse", args![factor, upper])
        };
        gradcheck_with(inverse, &inputs[1..], &options).unwrap();
        gradgradcheck_with(inverse, &inputs[1..], &options).unwrap();
    }
}
