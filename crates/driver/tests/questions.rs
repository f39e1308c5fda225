//! What a compiled or traced function asks for besides its operators: a guard, or an error that
//! names the line.

mod common;

use common::arange;
use maquette_driver::{CompileOptions, compile};
use maquette_ir::DType;
use maquette_ops::autograd::{is_grad_enabled, no_grad};
use maquette_ops::{Error, Op, Result, Tensor, fake, is_in_kernel, library, num_threads};
use maquette_trace::trace;
use std::fmt::Write;
use std::sync::Arc;

/// `x`, or `2 * x` where the answer is yes.
fn branch(x: &Tensor, yes: bool) -> Tensor {
    if yes { x * 2.0 } else { x.clone_tensor() }
}

fn line(e: &Error) -> &str {
    assert!(e.loc().is_some_and(|loc| loc.file.ends_with("questions.rs")), "{e}");
    "the line"
}

/// The first line of the errors that a compiled and a traced function give.
#[track_caller]
fn refused(f: impl Fn(Tensor) -> Tensor + Copy) -> String {
    let e = compile(f).call(arange(3)).unwrap_err();
    let traced = trace(f, arange(3)).unwrap_err();
    assert_eq!(e.kind().to_string(), traced.kind().to_string());
    line(&e);
    line(&traced);
    e.kind().to_string()
}

#[test]
fn a_captured_tensor_is_not_asked_for_its_state() {
    let a = &arange(3);
    let mut found = String::new();
    let mut row = |what: &str, e: String| writeln!(found, "{what}: {e}").unwrap();
    row("version", refused(|x| branch(&x, a.version() == 0)));
    row("requires_grad", refused(|x| branch(&x, a.requires_grad())));
    row("is_leaf", refused(|x| branch(&x, a.is_leaf())));
    row("ok", refused(|x| branch(&x, a.ok().is_ok())));
    row("grad", refused(|x| branch(&x, a.grad().is_none())));
    row("requires_grad_", refused(|x| branch(&x, a.requires_grad_().ok().is_ok())));
    row("storage", refused(|x| branch(&x, a.storage().is_ok_and(|s| s.len() == 12))));
    row("is_same", refused(|x| branch(&x, a.is_same(&x))));
    insta::assert_snapshot!(found);
    assert!(!a.requires_grad());
}

#[test]
fn how_often_a_tensor_was_written() {
    // inputs may share memory, and may have been written before
    assert!(refused(|x| branch(&x, x.version() == 0)).starts_with("how often an input"));
    assert!(refused(|x| branch(&x, x.slice(0, 1..).version() == 0)).starts_with("how often"));
    // a function's own tensors, written by one call, and by an operator that makes several
    let own = |x: Tensor| -> Tensor {
        let (y, z) = (&x * 3.0, x.reshape([3, 1]) * 2.0);
        y.add_(1.0).square_();
        let written =
            maquette_ops::call("aten::addr_", maquette_ops::args![&z, &x, &y.narrow(0, 0, 1)]);
        match written {
            Ok(_) => &y * (10 * y.version() + z.version()) as f64,
            Err(e) => Tensor::poison(e),
        }
    };
    let expected = own(arange(3)).to_vec::<f32>().unwrap();
    assert_eq!(compile(own).call(arange(3)).unwrap().to_vec::<f32>().unwrap(), expected);
    let traced = trace(own, arange(3)).unwrap();
    assert_eq!(traced.run(arange(3)).unwrap().to_vec::<f32>().unwrap(), expected);
}

#[test]
fn the_text_of_a_captured_tensor() {
    let a = &arange(3);
    let text = |e: Error| e.kind().to_string();
    let display = compile(|x: Tensor| {
        let y = x.relu();
        branch(&y, format!("{a}").contains("-3"))
    });
    let e = text(display.call(arange(2)).unwrap_err());
    assert!(
        e.starts_with("the text of a tensor from outside of the trace, f32[3], after the"),
        "{e}"
    );
    assert!(e.contains("questions.rs:"), "{e}");
    let debug = compile(|x: Tensor| branch(&x, format!("{a:?}").contains("-3")));
    insta::assert_snapshot!(text(debug.call(arange(2)).unwrap_err()));
    // outside of a trace, it is what it was
    assert!(format!("{a}").contains("-3"));
}

#[test]
fn an_input_is_not_asked_for_its_storage() {
    let mut found = String::new();
    let mut row = |what: &str, e: String| writeln!(found, "{what}: {e}").unwrap();
    row("len", refused(|x| branch(&x, x.storage().is_ok_and(|s| s.len() == 12))));
    row("version", refused(|x| branch(&x, x.storage().is_ok_and(|s| s.version() == 0))));
    let other = arange(3).storage().unwrap().clone();
    let other = &other;
    row("ptr_eq", refused(|x| branch(&x, x.storage().is_ok_and(|s| Arc::ptr_eq(s, other)))));
    row("a storage's version", refused(|x| branch(&x, other.version() == 0)));
    row("a storage's freeze", refused(|x| branch(&x, other.is_frozen())));
    insta::assert_snapshot!(found);
}

#[test]
fn what_is_around_a_function() {
    let mut found = String::new();
    let mut row = |what: &str, e: String| writeln!(found, "{what}: {e}").unwrap();
    row("num_threads", refused(|x| branch(&x, num_threads() > 1)));
    row("is_in_kernel", refused(|x| branch(&x, is_in_kernel())));
    row("without_data", refused(|x| branch(&x, fake::without_data(|| true))));
    row("generation", refused(|x| branch(&x, library::generation() > 1)));
    let relu = || Op::find("aten::relu").unwrap();
    row("has_fake", refused(|x| branch(&x, relu().has_fake())));
    row("effect", refused(|x| branch(&x, relu().effect().is_none())));
    row("registrations", refused(|x| branch(&x, relu().registrations().is_empty())));
    insta::assert_snapshot!(found);
}

#[test]
fn elements_that_may_overlap_under_symbols() {
    let f = |x: Tensor| branch(&x, x.may_overlap_itself());
    let e = CompileOptions::symbolic().compile(f).call(arange(3));
    // without symbols, the answer is known
    assert_eq!(e.unwrap().to_vec::<f32>().unwrap(), arange(3).to_vec::<f32>().unwrap());
    let halves = |x: Tensor| {
        let (a, b) = (x.narrow(0, 0, 1), x.narrow(0, 1, 1));
        branch(&x, a.may_overlap(&b))
    };
    let found = CompileOptions::symbolic().compile(halves).call(arange(3)).unwrap();
    assert_eq!(found.to_vec::<f32>().unwrap(), arange(3).to_vec::<f32>().unwrap());
}

#[test]
fn where_an_input_begins_is_a_guard() {
    let f = |x: Tensor| -> Result<Tensor> {
        let begins = x.storage_offset().eq(3).guard()?;
        Ok(branch(&x, begins))
    };
    let g = compile(f);
    let whole = arange(12);
    for from in [0, 3, 4, 3, 0] {
        let x = whole.narrow(0, from, 3);
        let (found, expected) = (g.call(x.clone()).unwrap(), f(x).unwrap());
        assert_eq!(found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    }
    assert_eq!(g.compilations(), 3);
    let e = trace(f, whole.narrow(0, 3, 3)).unwrap_err();
    line(&e);
    insta::assert_snapshot!(e.kind());
}

#[test]
fn strides_of_symbols_are_guards() {
    let f = |x: Tensor| -> Result<Tensor> {
        let is_three = x.strides()[0].eq(3).guard()?;
        Ok(branch(&x, is_three))
    };
    let g = CompileOptions::symbolic().compile(f);
    let calls = || {
        let wide = arange(6).reshape([2, 3]);
        [wide.clone(), arange(6).reshape([3, 2]).t(), arange(12).reshape([4, 3]), wide.t()]
    };
    for x in calls() {
        let (found, expected) = (g.call(x.clone()).unwrap(), f(x).unwrap());
        assert_eq!(found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    }
}

#[test]
fn whether_calls_record_derivatives_is_a_guard() {
    let f = |x: Tensor| branch(&x, is_grad_enabled());
    let g = compile(f);
    for _ in 0..2 {
        assert_eq!(g.call(arange(1)).unwrap().item::<f32>().unwrap(), -6.0);
        let x = no_grad(|| g.call(arange(1))).unwrap();
        assert_eq!(x.item::<f32>().unwrap(), -3.0);
    }
    let e = trace(f, arange(1)).unwrap_err();
    line(&e);
    insta::assert_snapshot!(e.kind());
}

#[test]
fn gradients_of_inputs_and_results() {
    // a compiled function is not called with inputs that require gradients
    let f = compile(|x: Tensor| branch(&x, x.requires_grad() || !x.is_leaf()));
    assert_eq!(f.call(arange(1)).unwrap().item::<f32>().unwrap(), -3.0);
    let e = trace(|x: Tensor| branch(&x, x.requires_grad()), arange(1)).unwrap_err();
    line(&e);
    insta::assert_snapshot!(e.kind());
    // a result is the program's own
    let t = trace(|x: Tensor| branch(&x, (&x * 2.0).requires_grad()), arange(1)).unwrap();
    assert_eq!(t.run(arange(1)).unwrap().item::<f32>().unwrap(), -3.0);
}

#[test]
fn a_tensor_that_another_thread_makes_during_the_trace() {
    let (a, double) = (arange(3), compile(|x: Tensor| x * 2.0));
    double.call(arange(3)).unwrap();
    let f = compile(|x: Tensor| {
        let made = std::thread::scope(|s| s.spawn(|| double.call(a.clone())).join());
        x + made.unwrap().unwrap()
    });
    let e = f.call(arange(3)).unwrap_err();
    line(&e);
    insta::assert_snapshot!(e.kind());
    assert_eq!(Tensor::zeros([1], DType::F32).version(), 0);
}
