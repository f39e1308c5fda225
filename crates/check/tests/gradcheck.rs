//! Gradcheck: accepts derivatives that are right, and finds each kind of wrong one, most of which
//! are right on the inputs that are given.

use maquette_check::gradcheck::{
    GradcheckOptions, gradcheck, gradcheck_with, gradgradcheck, gradgradcheck_with,
};
use maquette_ir::DType;
use maquette_ops::autograd::AutogradCtx;
use maquette_ops::{Op, Result, Tensor, Value, args, custom_op};
use std::sync::atomic::{AtomicU64, Ordering};

type Rule = fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>>;

fn matrix() -> Tensor {
    Tensor::from([[0.3f64, -1.2, 0.7], [0.8, 1.9, -0.4]])
}

fn row() -> Tensor {
    Tensor::from([1.5f64, -0.6, 0.9])
}

/// An operator `x * y` for tensors of the same sizes, with a rule that reads both.
fn product(name: &str, rule: Rule) -> Op {
    let op = custom_op(name)
        .arg_names(["x", "y"])
        .kernel(|x: &Tensor, y: &Tensor| -> Result<Tensor> {
            Ok(Tensor::from(x.to_array::<f64>()? * y.to_array::<f64>()?))
        })
        .register()
        .unwrap();
    op.register_autograd_with(
        |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            inputs.iter().flat_map(Value::tensors).for_each(|t| ctx.save(t));
            Ok(())
        },
        rule,
    )
    .unwrap();
    op
}

/// The message for a rule of the product on two matrices.
fn found(name: &str, rule: Rule) -> String {
    let op = product(name, rule);
    let f = |x: &[Tensor]| Ok(vec![op.call(args![&x[0], &x[1]])?[0].tensor()?.clone()]);
    gradcheck(f, &[matrix(), matrix() * 0.5 + 0.1]).unwrap_err().to_string()
}

#[test]
fn right_derivatives_pass() {
    let op = product("gradcheck_test::product", |ctx, g| {
        let (x, y) = (ctx.saved(0)?, ctx.saved(1)?);
        Ok(vec![Some(&g[0] * &y), Some(&g[0] * &x)])
    });
    let f = |x: &[Tensor]| Ok(vec![op.call(args![&x[0], &x[1]])?[0].tensor()?.clone()]);
    let inputs = [matrix(), matrix() * 0.5 + 0.1];
    let report = gradcheck(f, &inputs).unwrap();
    let checked = report.checked.join("\n");
    for what in ["transposed", "sliced", "expanded", "with 0 in place", "with 4", "input 0 in"] {
        assert!(checked.contains(what), "{what}: {report:?}");
    }
    gradgradcheck(f, &inputs).unwrap();
}

#[test]
fn builtin_derivatives_pass() {
    type F = fn(&[Tensor]) -> Result<Vec<Tensor>>;
    let functions: &[(&str, F)] = &[
        ("matmul", |x| Ok(vec![x[0].mm(&x[0].t()), x[0].mv(&x[1])])),
        ("softmax", |x| Ok(vec![x[0].softmax(-1), x[0].log_softmax(0)])),
        ("broadcast", |x| Ok(vec![(&x[0] * &x[1]).sin(), &x[0] / &(x[1].exp())])),
        ("views", |x| Ok(vec![x[0].t().select(0, 1), x[0].diagonal(0, 0, 1), x[1].expand([2, 3])])),
        ("reductions", |x| Ok(vec![x[0].sum_dim([0], true), x[0].logsumexp([1], false)])),
        ("products", |x| Ok(vec![x[0].prod_dim(1, false), x[0].cumprod(0)])),
        ("layer norm", |x| {
            let n = x[0].size(1);
            Ok(vec![
                x[0].layer_norm([n], Some(&x[1]), Some(&x[1]), 1e-5),
                x[0].layer_norm([n], None, None, 0.1),
            ])
        }),
        ("embedding", |x| Ok(vec![x[0].embedding(&Tensor::zeros([2, 2], DType::I64))])),
        ("slices", |x| {
            let parts = x[0].split(1, 1)?;
            let last = &parts[parts.len() - 1];
            Ok(vec![&parts[0] * last.exp(), x[0].slice(0, 1..) * 2.0, x[0].t().clone_tensor()])
        }),
        ("sorts", |x| Ok(vec![x[0].sort(1, false).0])),
        ("writes", |x| {
            let y = x[0].clone_tensor();
            y.select(0, 0).mul_(&x[1]);
            y.slice(1, 1..).sin_();
            Ok(vec![y])
        }),
    ];
    for (name, f) in functions {
        for fast in [false, true] {
            let options = GradcheckOptions::new().fast(fast);
            gradcheck_with(f, &[matrix(), row()], &options)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            gradgradcheck_with(f, &[matrix(), row()], &options)
                .unwrap_or_else(|e| panic!("second of {name}: {e}"));
        }
    }
}

#[test]
fn a_wrong_sign_is_shown_with_its_entry() {
    let e = found("gradcheck_test::sign", |ctx, g| {
        Ok(vec![Some(&g[0] * &ctx.saved(1)?), Some(-(&g[0] * &ctx.saved(0)?))])
    });
    assert!(e.contains("output 0 with respect to input 1"), "{e}");
    assert!(e.contains("of element 4 of the output with respect to element 4"), "{e}");
    assert!(e.contains("it is -1.9 by the derivative, and 1.8"), "{e}");
    assert!(e.contains("6 of 36 entries of the Jacobians differ"), "{e}");
    assert!(e.contains("on the inputs: f64[2, 3], f64[2, 3]"), "{e}");
}

#[test]
fn wrong_at_other_sizes() {
    let e = found("gradcheck_test::sizes", |ctx, g| {
        let (x, y) = (ctx.saved(0)?, ctx.saved(1)?);
        let factor = if x.size(0).as_i64() == Some(2) { 1.0 } else { 0.5 };
        Ok(vec![Some(&g[0] * &y * factor), Some(&g[0] * &x)])
    });
    assert!(e.contains("on the inputs, with 1 in place of size 2"), "{e}");
}

#[test]
fn wrong_for_inputs_with_strides() {
    let e = found("gradcheck_test::strides", |ctx, g| {
        let (x, y) = (ctx.saved(0)?, ctx.saved(1)?);
        // takes the elements in the order of memory
        let flat = y.as_strided([6], [1], None).reshape([2, 3]);
        let of_x = if g[0].sizes_i64()? == [2, 3] { &g[0] * &flat } else { &g[0] * &y };
        Ok(vec![Some(of_x), Some(&g[0] * &x)])
    });
    assert!(e.contains("transposed in memory") || e.contains("sliced in memory"), "{e}");
}

#[test]
fn wrong_for_gradients_with_strides() {
    let e = found("gradcheck_test::weights", |ctx, g| {
        let (x, y) = (ctx.saved(0)?, ctx.saved(1)?);
        let dense = g[0].strides().iter().all(|s| s.as_i64() != Some(0));
        let g = if dense { g[0].clone() } else { &g[0] * 2.0 };
        Ok(vec![Some(&g * &y), Some(&g * &x)])
    });
    assert!(e.contains("an expanded gradient of a result gives another gradient"), "{e}");
}

#[test]
fn wrong_for_repeated_arguments() {
    let op = product("gradcheck_test::repeated", |ctx, g| {
        let (x, y) = (ctx.saved(0)?, ctx.saved(1)?);
        if x.shares_storage(&y) {
            return Ok(vec![Some(&g[0] * &x), None]);
        }
        Ok(vec![Some(&g[0] * &y), Some(&g[0] * &x)])
    });
    let f = |x: &[Tensor]| Ok(vec![op.call(args![&x[0], &x[1]])?[0].tensor()?.clone()]);
    let e = gradcheck(f, &[matrix(), matrix() + 1.0]).unwrap_err().to_string();
    assert!(e.contains("with input 0 in place of input 1"), "{e}");
}

static SWEEPS: AtomicU64 = AtomicU64::new(0);

#[test]
fn sweeps_that_differ() {
    let e = found("gradcheck_test::random", |ctx, g| {
        let noise = 1.0 + SWEEPS.fetch_add(1, Ordering::Relaxed) as f64 * 1e-12;
        Ok(vec![Some(&g[0] * &ctx.saved(1)? * noise), Some(&g[0] * &ctx.saved(0)?)])
    });
    assert!(e.contains("two sweeps give different gradients"), "{e}");
}

#[test]
fn a_derivative_that_writes() {
    let e = found("gradcheck_test::writes", |ctx, g| {
        let (x, y) = (ctx.saved(0)?, ctx.saved(1)?);
        let of_x = &g[0] * &y;
        let of_y = &g[0] * &x;
        g[0].zero_().ok()?;
        Ok(vec![Some(of_x), Some(of_y)])
    });
    let refused = "cannot write `self`: the derivative of gradcheck_test::writes";
    assert!(e.starts_with(&format!("aten::zero_: {refused}")), "{e}");
}

#[test]
fn a_result_without_a_gradient() {
    let op = custom_op("gradcheck_test::two")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<(Tensor, Tensor)> {
            let x = x.to_array::<f64>()?;
            Ok((Tensor::from(x.mapv(|v| 2.0 * v)), Tensor::from(x.mapv(|v| 3.0 * v))))
        })
        .register()
        .unwrap();
    // expects that both results are used
    op.register_autograd(|_, g| {
        let used = g[1].sum().item::<f64>()? != 0.0;
        Ok(vec![used.then(|| &g[0] * 2.0 + &g[1] * 3.0)])
    })
    .unwrap();
    let f = |x: &[Tensor]| {
        let out = op.call(args![&x[0]])?;
        // each of the Jacobians alone is right
        Ok(vec![out[0].tensor()? + out[1].tensor()?, out[1].tensor()?.clone()])
    };
    let options = GradcheckOptions::new().variants(false);
    gradcheck_with(f, &[matrix()], &options).unwrap();
    let f = |x: &[Tensor]| {
        let out = op.call(args![&x[0]])?;
        Ok(vec![out[0].tensor()?.clone(), out[1].tensor()?.clone()])
    };
    let e = gradcheck_with(f, &[matrix()], &options).unwrap_err().to_string();
    assert!(e.contains("output 0 with respect to input 0"), "{e}");
}

#[test]
fn a_gradient_whose_own_gradient_is_wrong() {
    let op = product("gradcheck_test::second", |ctx, g| {
        // forgets that the gradient depends on the other operand
        let (x, y) = (ctx.saved(0)?.detach(), ctx.saved(1)?);
        Ok(vec![Some(&g[0] * &y), Some(&g[0] * &x)])
    });
    let f = |x: &[Tensor]| Ok(vec![op.call(args![&x[0], &x[1]])?[0].tensor()?.clone()]);
    gradcheck(f, &[matrix(), matrix() + 1.0]).unwrap();
    let e = gradgradcheck(f, &[matrix(), matrix() + 1.0]).unwrap_err().to_string();
    assert!(e.contains("gradcheck of the gradient"), "{e}");
}

#[test]
fn other_floats_and_integers() {
    let x = Tensor::from([1.0f32, 2.0]);
    let f = |x: &[Tensor]| Ok(vec![x[0].exp()]);
    assert!(gradcheck(f, std::slice::from_ref(&x)).is_err());
    let options = GradcheckOptions::new().any_float(true).eps(1e-2).atol(1e-2).rtol(1e-2);
    gradcheck_with(f, &[x], &options).unwrap();
    let at = Tensor::from([1i64, 0, 1]);
    let f = |x: &[Tensor]| Ok(vec![x[0].index_select(1, &x[1])]);
    gradcheck(f, &[matrix(), at]).unwrap();
    assert_eq!(matrix().dtype(), DType::F64);
}
