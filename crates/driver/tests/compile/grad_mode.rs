//! Gradients that begin or end outside of a compiled function.

use super::*;
use maquette_ir::Device;
use maquette_ops::autograd::{enable_grad, no_grad};
use maquette_ops::random::{self, Philox, apart, manual_seed};
use maquette_trace::trace;

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[test]
fn a_captured_tensor_that_requires_a_gradient() {
    let w = Tensor::from([2.0f32]).requires_grad_().clone();
    let v = w.clone();
    let f = CompileOptions::new().names(["x"]).compile(move |x: Tensor| x * &v);
    let x = || Tensor::from([3.0f32]);
    insta::assert_snapshot!(text(&err(f.call(x()))), @r"
    the captured tensor f32[1] (`c0` of the graph) requires a gradient, and a run of a graph computes none: its results would not require one; run it in `no_grad`, or trace or compile the function with its gradient, `value_and_grad(f)`
      at grad_mode.rs:LINE
    ");
    assert_eq!(f32s(&no_grad(|| f.call(x())).unwrap()), [6.0]);
    // a flag that is set after the compilation counts as well
    let w = Tensor::from([2.0f32]);
    let v = w.clone();
    let f = compile(move |x: Tensor| x * &v);
    assert_eq!(f32s(&f.call(x()).unwrap()), [6.0]);
    w.requires_grad_();
    assert!(f.call(x()).is_err());
    assert!(f.call_into(x(), &Tensor::zeros([1], DType::F32)).is_err());
}

/// Handles of one memory differ in whether they require a gradient.
#[test]
fn a_captured_tensor_and_its_detached_handle() {
    let w = Tensor::from([2.0f32]).requires_grad_();
    let x = || Tensor::from([3.0f32]);
    let (d, v) = (w.detach(), w.clone());
    let f = compile(move |x: Tensor| (x + &d) * &v);
    assert!(f.call(x()).is_err());
    assert_eq!(f32s(&no_grad(|| f.call(x())).unwrap()), [10.0]);
    let (d, v) = (w.detach(), w.clone());
    let f = compile(move |x: Tensor| (x * &v, d.clone(), v.clone()));
    let (_, d, v) = no_grad(|| f.call(x())).unwrap();
    assert!(!d.requires_grad() && v.requires_grad());
    assert!(d.shares_storage(&w) && v.is_same(&w));
}

#[test]
fn gradients_enabled_inside_of_no_grad() {
    let w = Tensor::from([2.0f32]).requires_grad_();
    let (v, x) = (w.clone(), || Tensor::from([3.0f32]));
    let eager = move |x: Tensor| enable_grad(|| x * &v);
    assert!(no_grad(|| eager(x())).requires_grad());
    insta::assert_snapshot!(text(&err(no_grad(|| compile(eager).call(x())))), @r"
    output `0` requires a gradient, and a run of the graph records no derivatives; return its `detach()`
      at grad_mode.rs:LINE
    ");
    let double = |x: Tensor| enable_grad(|| x * 2.0);
    insta::assert_snapshot!(text(&err(no_grad(|| trace(double, w.clone())))), @r"
    `enable_grad` was called while tracing inside of `no_grad`, and an input requires a gradient: a run of the graph would record no derivatives; give `x.detach()`, or call the function without compiling it
      at grad_mode.rs:LINE
    ");
    assert_eq!(f32s(&no_grad(|| compile(double).call(x())).unwrap()), [6.0]);
    // a gradient that begins and ends inside
    let own = |x: Tensor| {
        let x = x.detach().requires_grad_();
        enable_grad(|| (&x * &x).sum().backward())?;
        x.grad().ok_or_else(|| Error::msg("no gradient"))
    };
    assert_eq!(f32s(&no_grad(|| compile(own).call(x())).unwrap()), [6.0]);
}

/// A leaf that the function makes, where nothing from outside requires a gradient.
#[test]
fn a_result_that_requires_a_gradient() {
    let f = |x: Tensor| {
        let leaf = x.detach().requires_grad_();
        (&x + 1.0, &leaf * 2.0)
    };
    insta::assert_snapshot!(text(&err(compile(f).call(arange(2)))), @r"
    output `1` requires a gradient, and a run of the graph records no derivatives; return its `detach()`
      at grad_mode.rs:LINE
    ");
    let detached = |x: Tensor| f(x).1.detach();
    assert_eq!(f32s(&compile(detached).call(arange(2)).unwrap()), [-6.0, -4.0]);
}

/// The recorded call of an operator keeps its operands, which may be intermediate values in the
/// memory of a program.
#[test]
fn a_sweep_reads_no_memory_of_a_program() {
    let w = Tensor::from([1.0f32, 2.0, 3.0]).requires_grad_().clone();
    let v = w.clone();
    let f = compile(move |x: Tensor| v.masked_select(&x.gt(0.0)));
    let call = || f.call(Tensor::from([1.0f32, 1.0, -1.0]));
    assert!(call().is_err());
    let y = no_grad(call).unwrap();
    assert_eq!((y.requires_grad(), f32s(&y)), (false, vec![1.0, 2.0]));
}

#[test]
fn the_grad_mode_is_a_guard() {
    let f = compile(|x: Tensor| {
        let y = x.detach().requires_grad_() * 2.0;
        if y.requires_grad() { y.detach() + 1.0 } else { y }
    });
    let x = || Tensor::from([1.0f32]);
    assert_eq!(f32s(&f.call(x()).unwrap()), [3.0]);
    assert_eq!(f32s(&no_grad(|| f.call(x())).unwrap()), [2.0]);
    assert_eq!(f32s(&f.call(x()).unwrap()), [3.0]);
    assert_eq!(f.compilations(), 2);
    let f = CompileOptions::new().compile(|x: Tensor| x.relu());
    f.call(x()).unwrap();
    f.set_stance(Stance::FailOnRecompile);
    insta::assert_snapshot!(text(&err(no_grad(|| f.call(x())))), @r"
    `graph` would be compiled again, which its stance `FailOnRecompile` forbids:
      - program 0 requires: recording of derivatives; found `no_grad`
      at grad_mode.rs:LINE
    ");
}

/// The history of a captured tensor would be a node of the trace.
#[test]
fn a_captured_tensor_that_is_written_with_gradients() {
    let (sum, part) = (Tensor::zeros([2], DType::F32), Tensor::zeros([2, 2], DType::F32));
    let (a, b) = (sum.clone(), part.clone());
    let f = compile(move |x: Tensor| {
        let y = x.detach().requires_grad_() * 2.0;
        a.add_(&y);
        y.detach()
    });
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @r"
    aten::add_.Tensor: the tensor f32[2] from outside of the trace is written with gradients, and a run would not pass them on; write detached values, or write in `no_grad`
      at grad_mode.rs:LINE
    ");
    let f = compile(move |x: Tensor| {
        let y = x.detach().requires_grad_() * 2.0;
        b.select(0, 1).add_(&y);
        y.detach()
    });
    assert!(f.call(arange(2)).is_err());
    assert!(!sum.requires_grad() && !part.requires_grad());
    assert_eq!(f32s(&(&sum + 1.0)), [1.0, 1.0]);
}

#[test]
fn the_generators_are_not_set_in_a_trace() {
    let f = |x: Tensor| {
        manual_seed(7);
        x.rand_like()
    };
    let x = Tensor::zeros([4], DType::F32);
    let mut at = Philox { seed: 1, offset: 0 };
    apart(&mut at, || {
        insta::assert_snapshot!(text(&err(compile(f).call(x.clone()))), @r"
    the random generators were set while tracing, and a run of the graph would not set them; set them outside of the function
      at grad_mode.rs:LINE
    ");
        assert!(trace(f, x.clone()).is_err());
    });
    assert_eq!(at, Philox { seed: 1, offset: 0 });
}

#[test]
fn the_generators_are_not_read_in_a_trace() {
    let x = || Tensor::zeros([4], DType::F32);
    let state = compile(|x: Tensor| x + random::state(Device::Cpu).offset as f64);
    insta::assert_snapshot!(text(&err(state.call(x()))), @r"
    the state of the random generators was read while tracing, and a run of the graph would use that of the trace; read it outside of the function
      at grad_mode.rs:LINE
    ");
    let private = compile(|x: Tensor| apart(&mut Philox { seed: 1, offset: 0 }, || x.rand_like()));
    insta::assert_snapshot!(text(&err(private.call(x()))), @r"
    a private random sequence was used while tracing, and a run of the graph would draw from the generators of the devices; use `random::apart` outside of the function
      at grad_mode.rs:LINE
    ");
}

#[test]
fn what_a_tensor_from_outside_keeps_for_sweeps() {
    let w = Tensor::from([2.0f32]).requires_grad_();
    (&w * 3.0).sum().backward().unwrap();
    let x = || Tensor::from([3.0f32]);
    let read = compile(|x: Tensor| x * w.grad().unwrap_or_else(|| Tensor::from([0.0f32])));
    insta::assert_snapshot!(text(&err(no_grad(|| read.call(x())))), @r"
    a trace cannot read the gradient of the tensor f32[1] from outside of it: it would once, while tracing, and a run of the graph would not; pass gradients as inputs and results, or call this outside of the function
      at grad_mode.rs:LINE
    ");
    // an error that the program discards, too
    let set = compile(|x: Tensor| {
        drop(w.set_grad(None));
        x * 2.0
    });
    insta::assert_snapshot!(text(&err(set.call(x()))), @r"
    a trace cannot set the gradient of the tensor f32[1] from outside of it: it would once, while tracing, and a run of the graph would not; pass gradients as inputs and results, or call this outside of the function
      at grad_mode.rs:LINE
    ");
    let hooked = compile(|x: Tensor| -> Result<Tensor> {
        w.register_hook(|g| Ok(Some(g * 0.0)))?;
        Ok(x * 2.0)
    });
    insta::assert_snapshot!(text(&err(hooked.call(x()))), @r"
    a trace cannot add a hook to the tensor f32[1] from outside of it: it would once, while tracing, and a run of the graph would not; pass gradients as inputs and results, or call this outside of the function
      at grad_mode.rs:LINE
    ");
    (&w * 1.0).sum().backward().unwrap();
    assert_eq!(f32s(&w.grad().unwrap()), [4.0]);
    // a leaf of the trace
    let inside = compile(|x: Tensor| -> Result<Tensor> {
        let x = x.detach().requires_grad_();
        x.register_hook(|g| Ok(Some(g * 10.0)))?;
        (&x * &x).sum().backward()?;
        let gradient = x.grad().ok_or_else(|| Error::msg("there is no gradient"))?;
        x.set_grad(None)?;
        Ok(gradient)
    });
    assert_eq!(f32s(&inside.call(x()).unwrap()), [60.0]);
}
