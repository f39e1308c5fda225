//! Reverse-mode differentiation: sweeps, leaves, views and writes.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::autograd::{BackwardOptions, backward, enable_grad, grad, no_grad};
use maquette_ops::func::{self, value_and_grad, vjp};
use maquette_ops::{Result, Tensor, args, call};

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn gradient(t: &Tensor) -> Vec<f64> {
    values(&t.grad().expect("a sweep has reached the leaf"))
}

#[test]
fn a_scalar_of_two_leaves() {
    let (x, y) = (leaf([1.0, 2.0, 3.0]), leaf([4.0, 5.0, 6.0]));
    let z = (&x * &y + &x).sum();
    assert!(z.requires_grad() && !z.is_leaf() && x.is_leaf());
    z.backward().unwrap();
    assert_eq!(gradient(&x), [5.0, 6.0, 7.0]);
    assert_eq!(gradient(&y), [1.0, 2.0, 3.0]);
    // a second program adds to the gradients
    (&x * 2.0).sum().backward().unwrap();
    assert_eq!(gradient(&x), [7.0, 8.0, 9.0]);
    x.set_grad(None).unwrap();
    assert!(x.grad().is_none());
}

#[test]
fn a_broadcast_operand_sums() {
    let (x, row) = (leaf([1.0, 2.0, 3.0, 4.0]), leaf([10.0, 20.0]));
    (x.view([2, 2]) * &row).sum().backward().unwrap();
    assert_eq!(gradient(&x), [10.0, 20.0, 10.0, 20.0]);
    assert_eq!(gradient(&row), [4.0, 6.0]);
}

#[test]
fn products_and_transposes() {
    let (a, b) = (leaf([1.0, 2.0, 3.0, 4.0]), leaf([5.0, 6.0, 7.0, 8.0]));
    let c = a.view([2, 2]).mm(&b.view([2, 2]).t());
    c.sum().backward().unwrap();
    assert_eq!(gradient(&a), [12.0, 14.0, 12.0, 14.0]);
    assert_eq!(gradient(&b), [4.0, 6.0, 4.0, 6.0]);
}

#[test]
fn derivatives_of_expressions_are_operators() {
    let x = leaf([0.5, 1.5]);
    let y = x.atan2(Tensor::from([2.0, 1.0]));
    y.sum().backward().unwrap();
    for (g, (y, x)) in gradient(&x).into_iter().zip([(0.5, 2.0f64), (1.5, 1.0)]) {
        assert!((g - x / (x * x + y * y)).abs() < 1e-15, "{g}");
    }
    let out = call("grad::sin.self", args![Tensor::from([2.0]), Tensor::from([0.0])]).unwrap();
    assert_eq!(values(out[0].tensor().unwrap()), [2.0]);
    assert!(call("grad::sin.other", args![]).is_err());
    assert!(call("grad::mm.self", args![]).is_err());
}

#[test]
fn gradients_of_gradients() {
    let x = leaf([0.3, 2.0]);
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    let y = (x.sin() * &x).sum();
    let first = grad(&[y], std::slice::from_ref(&x), &[], options).unwrap().remove(0).unwrap();
    let second = grad(&[first.sum()], std::slice::from_ref(&x), &[], options);
    let second = second.unwrap().remove(0).unwrap();
    let third = grad(&[second.sum()], std::slice::from_ref(&x), &[], BackwardOptions::default());
    let third = third.unwrap().remove(0).unwrap();
    for (i, v) in [0.3f64, 2.0].into_iter().enumerate() {
        assert!((values(&first)[i] - (v.cos() * v + v.sin())).abs() < 1e-14);
        assert!((values(&second)[i] - (2.0 * v.cos() - v * v.sin())).abs() < 1e-14);
        assert!((values(&third)[i] - (-3.0 * v.sin() - v * v.cos())).abs() < 1e-14);
    }
    assert!(x.grad().is_none());
}

#[test]
fn writes_in_place_change_the_history() {
    let x = leaf([1.0, 2.0]);
    let y = &x * 3.0;
    y.mul_(&x);
    y.sum().backward().unwrap();
    assert_eq!(gradient(&x), [6.0, 12.0]);
}

#[test]
fn a_write_through_a_view_changes_the_base() {
    let (x, w) = (leaf([1.0, 2.0, 3.0]), leaf([10.0]));
    let y = &x * 2.0;
    y.slice(0, 1..2).copy_(&w);
    let seen_later = y.slice(0, 0..2);
    (seen_later.sum() + y.sum()).backward().unwrap();
    assert_eq!(gradient(&x), [4.0, 0.0, 2.0]);
    assert_eq!(gradient(&w), [2.0]);
}

#[test]
fn a_view_made_before_a_write_to_its_base_sees_it() {
    let x = leaf([1.0, 2.0]);
    let y = &x * 1.0;
    let view = y.view([2, 1]);
    y.mul_(Tensor::from([5.0, 7.0]));
    view.sum().backward().unwrap();
    assert_eq!(gradient(&x), [5.0, 7.0]);
}

#[test]
fn a_buffer_without_gradient_takes_part_once_it_is_written() {
    let w = leaf([1.0, 2.0]);
    let buffer = Tensor::zeros([3, 2], maquette_ops::__private::DType::F64);
    let other = buffer.select(0, 2);
    buffer.select(0, 0).copy_(&w);
    buffer.select(0, 1).copy_(&(&w * &w));
    assert!(buffer.requires_grad() && other.requires_grad());
    (buffer.sum() + other.sum()).backward().unwrap();
    assert_eq!(gradient(&w), [3.0, 5.0]);
}

#[test]
fn no_grad_and_detach_cut_the_history() {
    let x = leaf([1.0]);
    let y = no_grad(|| &x * 2.0);
    assert!(!y.requires_grad());
    assert!(no_grad(|| enable_grad(|| &x * 2.0)).requires_grad());
    let z = (&x * 3.0).detach();
    assert!(!z.requires_grad());
    z.mul_(2.0);
    (&x * &z).sum().backward().unwrap();
    assert_eq!(gradient(&x), [6.0]);
    // what an optimizer does
    no_grad(|| x.sub_(&(x.grad().unwrap() * 0.5))).ok().unwrap();
    assert_eq!(values(&x), [-2.0]);
    assert!(x.is_leaf() && x.requires_grad());
}

#[test]
fn hooks_see_and_replace_gradients() {
    let x = leaf([1.0, 2.0]);
    let y = &x * 3.0;
    y.register_hook(|g| Ok(Some(g * 10.0))).unwrap();
    x.register_hook(|g| Ok(Some(g + 1.0))).unwrap();
    y.sum().backward().unwrap();
    assert_eq!(gradient(&x), [31.0, 31.0]);
}

#[test]
fn two_leaves_do_not_share_a_gradient() {
    let (x, y) = (leaf([1.0]), leaf([2.0]));
    let seed = Tensor::from([1.0]);
    (&x + &y).backward_with(&seed, BackwardOptions::default()).unwrap();
    x.grad().unwrap().mul_(5.0);
    assert_eq!((gradient(&x), gradient(&y), values(&seed)), (vec![5.0], vec![1.0], vec![1.0]));
}

#[test]
fn a_deep_graph_is_swept_and_dropped_without_recursion() {
    let x = leaf([1.0]);
    let y = (0..100_000).fold(x.clone(), |y, _| -y);
    y.sum().backward().unwrap();
    assert_eq!(gradient(&x), [1.0]);
    drop((0..100_000).fold(x.clone(), |y, _| y * 1.0));
}

#[test]
fn several_roots() {
    let x = leaf([1.0, 2.0]);
    let (a, b) = ((&x * 2.0).sum(), &x * &x);
    let weights = [None, Some(Tensor::from([1.0, 10.0]))];
    backward(&[a, b], &weights, BackwardOptions::default()).unwrap();
    assert_eq!(gradient(&x), [4.0, 42.0]);
}

#[test]
fn a_gradient_can_be_written_although_it_was_expanded() {
    let x = leaf([1.0, 2.0]);
    x.sum().backward().unwrap();
    x.grad().unwrap().mul_(0.5).ok().unwrap();
    assert_eq!(gradient(&x), [0.5, 0.5]);
    x.sum().backward().unwrap();
    assert_eq!(gradient(&x), [1.5, 1.5]);
}

/// The rule reads sizes of the weight first.
#[test]
fn a_weight_that_was_written_is_an_error_and_no_panic() {
    let kernel = &leaf([1.0]).reshape([1, 1, 1, 1]) * 1.0;
    let x = Tensor::ones([1, 1, 2, 2], DType::F64).requires_grad_();
    let y = x.conv2d(&kernel, None, 1, 0, 1, 1);
    kernel.mul_(2.0);
    let e = y.sum().backward().unwrap_err().to_string();
    assert!(e.contains("which was written"), "{e}");
}

#[test]
fn without_inputs_nothing_is_swept() {
    let x = leaf([3.0]);
    let of = |t: &Tensor| {
        grad(std::slice::from_ref(t), &[], &[], BackwardOptions::default()).unwrap().len()
    };
    assert_eq!((of(&x), x.grad().is_none()), (0, true));
    let y = &x * &x;
    assert_eq!(of(&y), 0);
    y.backward().unwrap();
    assert_eq!(gradient(&x), [6.0]);
}

mod functions {
    use super::*;

    /// `y` squared, times a captured tensor.
    fn scaled(x: &Tensor) -> impl Fn(Tensor) -> Tensor + use<> {
        let x = x.clone();
        move |y| (&x * &y * &y).sum()
    }

    fn y() -> Tensor {
        Tensor::from([3.0f64])
    }

    #[test]
    fn an_inner_gradient_depends_on_what_it_captures() {
        let gradient = |x: Tensor| {
            func::grad(scaled(&x))(y()).map_or_else(Tensor::poison, |g: Tensor| g.sum())
        };
        assert_eq!(values(&func::grad(gradient)(Tensor::from([2.0])).unwrap()), [6.0]);
        let value = |x: Tensor| {
            value_and_grad(scaled(&x))(y()).map_or_else(Tensor::poison, |(value, _)| value)
        };
        assert_eq!(values(&func::grad(value)(Tensor::from([2.0])).unwrap()), [9.0]);
        let pulled = |x: Tensor| -> Result<Tensor> {
            let (value, pull) = vjp(scaled(&x), y())?;
            let weight = value.detach().ones_like();
            Ok((value + pull(weight)?).sum())
        };
        let both = |x: Tensor| pulled(x).unwrap_or_else(Tensor::poison);
        assert_eq!(values(&func::grad(both)(Tensor::from([2.0])).unwrap()), [15.0]);
        // Numbers alone are given: the value keeps its history.
        let counted = |x: Tensor| {
            let f = value_and_grad(|n: Tensor| (&x * &n).sum());
            f(Tensor::from([4i64])).map_or_else(Tensor::poison, |(value, _)| value)
        };
        assert_eq!(values(&func::grad(counted)(Tensor::from([2.0])).unwrap()), [4.0]);
    }

    #[test]
    fn a_sweep_reaches_the_captured_leaf() {
        let x = leaf([2.0]);
        let (value, g) = value_and_grad(scaled(&x))(y()).unwrap();
        assert!(value.requires_grad() && g.requires_grad());
        (value + g.sum()).backward().unwrap();
        assert_eq!(gradient(&x), [15.0]);
    }

    #[test]
    fn a_weight_may_require_a_gradient() {
        let (w, square) = (leaf([1.0]), |x: Tensor| &x * &x);
        let (value, pull) = vjp(square, y()).unwrap();
        assert!(!value.requires_grad());
        pull(w.clone()).unwrap().sum().backward().unwrap();
        assert_eq!(gradient(&w), [6.0]);
        let (_, pull) = vjp(square, y()).unwrap();
        assert!(!no_grad(|| pull(w)).unwrap().requires_grad());
    }

    /// A graph for derivatives of higher order costs time and memory.
    #[test]
    fn what_depends_on_nothing_outside_is_untracked() {
        let (x, is_tracked) = (leaf([2.0]), |t: &Tensor| t.requires_grad());
        let of = |f: &dyn Fn(Tensor) -> Tensor| {
            let (value, g) = value_and_grad(f)(y()).unwrap();
            (is_tracked(&value), is_tracked(&g))
        };
        assert_eq!(of(&scaled(&x.detach())), (false, false));
        assert_eq!(no_grad(|| of(&scaled(&x))), (false, false));
        // the gradient alone does not depend on the leaf
        assert_eq!(of(&|y| (&y * &y * &y + &x).sum()), (true, false));
        // a leaf of the function's own, and the inputs of a nested call
        let own = |y: Tensor| {
            let w = y.detach().requires_grad_();
            let nested = func::grad(scaled(&y))(w.clone()).unwrap_or_else(Tensor::poison);
            (nested * w * y).sum()
        };
        assert_eq!(of(&own), (false, false));
        // an input that the value does not depend on
        let (value, (dx, dy)) =
            value_and_grad(|(_, y): (Tensor, Tensor)| (&y * &y).sum())((x.clone(), y())).unwrap();
        assert!(![value, dx, dy].iter().any(is_tracked));
    }

    #[test]
    fn a_value_that_depends_on_no_input_is_checked_too() {
        let x = || Tensor::from([1.0f64, 2.0]);
        let e = value_and_grad(|x: Tensor| x.detach())(x()).unwrap_err().to_string();
        assert!(e.contains("is no scalar"), "{e}");
        let (_, g) = value_and_grad(|x: Tensor| x.detach().sum())(x()).unwrap();
        assert_eq!(values(&g), [0.0, 0.0]);
        let (_, pull) = vjp(|x: Tensor| x.detach(), x()).unwrap();
        assert!(pull(y()).is_err());
        let (_, pull) = vjp(|x: Tensor| x.detach(), x()).unwrap();
        assert_eq!(values(&pull(x()).unwrap()), [0.0, 0.0]);
    }

    #[test]
    fn a_written_input_of_another_differentiation_is_refused() {
        let h = || &leaf([3.0]) * 1.0;
        let doubled = |x: Tensor| {
            x.mul_(2.0);
            (&x * &x).sum()
        };
        for e in [
            value_and_grad(doubled)(h()).unwrap_err().to_string(),
            vjp(doubled, h()).err().unwrap().to_string(),
        ] {
            assert!(e.contains("the function writes its input f64[1]"), "{e}");
        }
        let e = value_and_grad(doubled)(y()).unwrap_err().to_string();
        assert!(e.contains("leaf that requires a gradient is written"), "{e}");
        // A write after the call changes neither its inputs nor its value.
        let x = h();
        let (value, pull) = vjp(|x: Tensor| x.sum(), x.clone()).unwrap();
        x.mul_(10.0).ok().unwrap();
        value.mul_(10.0).ok().unwrap();
        assert_eq!(values(&pull(value.detach().ones_like()).unwrap()), [1.0]);
    }
}

mod custom {
    use super::*;
    use maquette_ops::autograd::AutogradCtx;
    use maquette_ops::{Value, custom_op};

    fn cube(name: &str) -> maquette_ops::Op {
        let kernel = |x: &Tensor| -> Result<Tensor> {
            Ok(Tensor::from(x.read::<f64>()?.mapv(|v| v * v * v)))
        };
        custom_op(name).kernel(kernel).register().unwrap()
    }

    #[test]
    fn a_registered_derivative() {
        let op = cube("autograd_test::cube");
        let setup = |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            assert!(ctx.needs_input_grad(0));
            ctx.save(inputs[0].tensor()?);
            Ok(())
        };
        op.register_autograd_with(setup, |ctx, grads| {
            let x = ctx.saved(0)?;
            Ok(vec![Some(&grads[0] * &(&x * &x * 3.0))])
        })
        .unwrap();
        let x = leaf([2.0, 3.0]);
        let y = op.call(args![&x]).unwrap().remove(0).tensor().unwrap().sum();
        let options = BackwardOptions { create_graph: true, ..Default::default() };
        let first = grad(&[y], std::slice::from_ref(&x), &[], options).unwrap().remove(0).unwrap();
        assert_eq!(values(&first), [12.0, 27.0]);
        first.sum().backward().unwrap();
        assert_eq!(gradient(&x), [12.0, 18.0]);
    }

    #[test]
    fn no_rule_is_an_error_of_the_sweep() {
        let op = cube("autograd_test::cube_without");
        let x = leaf([2.0]);
        let y = op.call(args![&x]).unwrap().remove(0).tensor().unwrap().clone();
        assert!(y.requires_grad());
        let e = y.sum().backward().unwrap_err().to_string();
        assert!(e.contains("autograd_test::cube_without has no derivative"), "{e}");
        assert!(e.contains("register_autograd"), "{e}");
    }

    #[test]
    fn a_mutating_operator_is_refused() {
        let op = custom_op("autograd_test::double_")
            .kernel(|x: &mut Tensor| -> Result<()> {
                x.write::<f64>()?.mapv_inplace(|v| v * 2.0);
                Ok(())
            })
            .register()
            .unwrap();
        let x = leaf([1.0]);
        let y = &x * 1.0;
        let e = op.call(args![&y]).unwrap_err().to_string();
        assert!(e.contains("mutates its arguments"), "{e}");
        assert_eq!(values(&y), [1.0]);
        assert!(op.register_autograd(|_, _| Ok(vec![])).is_err());
    }

    #[test]
    fn a_kernel_may_return_a_view_of_its_own_memory() {
        let kernel = |x: &Tensor| -> Result<Tensor> {
            Ok(Tensor::from(x.read::<f64>()?.mapv(|v| v + 1.0)).view([2, 3]).transpose(0, 1))
        };
        let op = custom_op("autograd_test::transposed").kernel(kernel).register().unwrap();
        let x = Tensor::from([0.0f64, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let y = op.call(args![&x]).unwrap();
        assert_eq!(values(y[0].tensor().unwrap()), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let keep = std::sync::Mutex::new(None);
        let kernel = move |x: &Tensor| -> Result<Tensor> {
            let y = Tensor::from(x.read::<f64>()?.mapv(|v| v + 1.0)).view([2, 3]);
            *keep.lock().unwrap() = Some(y.clone());
            Ok(y.transpose(0, 1))
        };
        let op = custom_op("autograd_test::kept").kernel(kernel).register().unwrap();
        assert!(op.call(args![&x]).is_err());
    }

    #[test]
    fn wrong_gradients_are_refused() {
        let op = cube("autograd_test::cube_wrong");
        op.register_autograd(|_, grads| Ok(vec![Some(grads[0].sum()), None])).unwrap();
        let x = leaf([2.0]);
        let y = || op.call(args![&x]).unwrap().remove(0).tensor().unwrap().sum();
        let e = y().backward().unwrap_err().to_string();
        assert!(e.contains("gives 2 gradients for 1 arguments"), "{e}");
    }
}

#[test]
fn errors_name_the_lines() {
    let x = leaf([1.0, 2.0]);
    let y = x.exp();
    y.mul_(2.0);
    let e = y.sum().backward().unwrap_err().to_string();
    assert!(e.contains("the derivative of aten::exp") && e.contains("which was written at"), "{e}");
    let z = x.exp().sum();
    z.backward().unwrap();
    let e = z.backward().unwrap_err().to_string();
    assert!(e.contains("differentiated before") && e.contains("retain_graph"), "{e}");
    let e = x.exp().backward().unwrap_err().to_string();
    assert!(e.contains("is no scalar"), "{e}");
    let e = Tensor::from([1.0f64]).backward().unwrap_err().to_string();
    assert!(e.contains("does not require a gradient"), "{e}");
    let e = x.mul_(2.0).ok().unwrap_err().to_string();
    assert!(e.contains("leaf"), "{e}");
    let e = Tensor::from([1i64]).requires_grad_().ok().unwrap_err().to_string();
    assert!(e.contains("only floats have gradients, found i64"), "{e}");
}

#[test]
fn a_view_of_another_dtype_has_no_gradient() {
    let x = Tensor::from([1.5f32, 2.5, 3.5, 4.5]).requires_grad_().clone();
    let y = &x * 2.0;
    let (wide, bits) = (y.view_dtype(DType::F64), y.view_dtype(DType::I32));
    assert!(!wide.requires_grad() && !bits.requires_grad());
    assert!(y.requires_grad() && !y.detach().requires_grad());
    (y.sum() + wide.sum().to_dtype(DType::F32)).backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
}

#[test]
fn a_view_that_is_older_than_the_leaf_is_not_written() {
    let new = || {
        let w = Tensor::from([1.0f64, 2.0]);
        let (view, detached) = (w.slice(0, 0..2), w.detach());
        (w.requires_grad_(), view, detached)
    };
    let (w, view, _) = new();
    assert!(view.mul_(leaf([3.0])).ok().is_err());
    assert!(w.is_leaf());
    let (w, view, detached) = new();
    detached.mul_(2.0).ok().unwrap();
    no_grad(|| view.mul_(2.0).ok().map(drop)).unwrap();
    assert_eq!(values(&w.detach()), [4.0, 8.0]);
}

#[test]
fn gradients_have_the_metadata_of_their_tensors() {
    let w = Tensor::from([1.0f64, 2.0, 3.0]).requires_grad_().clone();
    w.register_hook(|g| Ok(Some(g.sum()))).unwrap();
    let e = (&w * 2.0).sum().backward().unwrap_err().to_string();
    assert!(e.starts_with("a hook returned f64[] in place of the gradient f64[3]"), "{e}");
    let x = Tensor::from([1.0f32, 2.0]).requires_grad_().clone();
    let y = &x * 1.0;
    y.backward_with(&Tensor::from([3.0f64, 4.0]), Default::default()).unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [3.0, 4.0]);
}
