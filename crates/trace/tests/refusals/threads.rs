//! Tensors of a running trace on other threads.

use super::{call, text, vector};
use crate::common::NONZERO;
use insta::assert_snapshot;
use maquette_ops::{AccessError, ErrorKind, Result, Tensor, TraceError, args, custom_op};
use maquette_trace::{TraceOptions, trace};
use std::fmt::Write;
use std::sync::mpsc::channel;

/// Runs `f` on another thread.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| s.spawn(f).join().unwrap())
}

/// What another thread may do with a tensor.
type Use = fn(&mut Tensor) -> Result<()>;

const USES: [(&str, Use); 9] = [
    ("a pointwise operator", |w| w.relu().ok().map(drop)),
    ("a reduction", |w| w.sum().ok().map(drop)),
    ("a product", |w| w.matmul(w).ok().map(drop)),
    ("a view that is computed with", |w| w.i(0..1).neg().ok().map(drop)),
    ("a custom operator", |w| call(&NONZERO, args![&*w]).map(drop)),
    ("an operator in place", |w| w.add_(1.0).ok().map(drop)),
    ("read", |w| w.read::<f32>().map(drop)),
    ("write", |w| w.write::<f32>().map(drop)),
    ("item", |w| w.sum().item::<f32>().map(drop)),
];

/// A tensor for each use.
fn tensors() -> Vec<Tensor> {
    USES.iter().map(|_| vector(4)).collect()
}

fn uses(tensors: &[Tensor]) -> Vec<(&'static str, maquette_ops::Error)> {
    let refused = |((title, f), w): (&(&'static str, Use), &Tensor)| {
        let mut w = w.clone();
        let e = elsewhere(move || f(&mut w)).err();
        (*title, e.unwrap_or_else(|| panic!("{title}: no error")))
    };
    USES.iter().zip(tensors).map(refused).collect()
}

#[test]
fn a_captured_tensor_is_refused_on_other_threads_until_the_trace_ends() {
    let tensors = tensors();
    let mut errors = Vec::new();
    let e = TraceOptions::new()
        .name("model")
        .trace(
            |x: Tensor| {
                // nothing holds the tensor before the trace has seen it
                elsewhere(|| tensors[0].relu().ok().map(drop)).unwrap();
                let y = tensors.iter().fold(x, |sum, w| sum + w);
                errors = uses(&tensors);
                y
            },
            vector(4),
        )
        .unwrap_err();
    let mut out = String::new();
    for (title, e) in &errors {
        assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Captured { .. })), "{e}");
        writeln!(out, "{title}: {}", text(e)).unwrap();
    }
    assert_snapshot!("captured_elsewhere", out);
    assert!(
        e.is_same(&errors[0].1),
        "the trace fails, even if the program discards the error: {e}"
    );
    elsewhere(|| tensors[0].clone().add_(1.0).ok().map(drop)).unwrap();
}

#[test]
fn state_is_refused_on_other_threads_until_the_trace_ends() {
    let tensors = tensors();
    let state: Vec<_> = tensors.iter().map(|w| ("w".to_owned(), w.clone())).collect();
    let mut errors = Vec::new();
    let program = |x: Tensor| {
        errors = uses(&tensors);
        x
    };
    assert!(TraceOptions::new().trace_with_state(program, &state, vector(4)).is_err());
    for (_, e) in &errors {
        assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Captured { .. })), "{e}");
    }
    elsewhere(|| tensors[0].relu().ok().map(drop)).unwrap();
}

#[test]
fn a_traced_tensor_is_refused_on_other_threads() {
    let mut errors = Vec::new();
    let e = trace(
        |x: Tensor| {
            errors = uses(&vec![x.clone(); USES.len()]);
            x
        },
        vector(4),
    )
    .unwrap_err();
    for (_, e) in &errors {
        assert!(
            matches!(
                e.kind(),
                ErrorKind::Trace(TraceError::OtherThread { .. })
                    | ErrorKind::Access(AccessError::Traced)
            ),
            "{e}"
        );
    }
    assert!(e.is_same(&errors[0].1), "{e}");
}

#[test]
fn other_tensors_are_usable_on_other_threads() {
    let (sample, other, w) = (vector(4), vector(4), vector(4));
    trace(
        |x: Tensor| {
            let y = &x + &w;
            for (_, f) in USES.iter().filter(|(title, _)| *title != "a product") {
                elsewhere(|| f(&mut other.clone())).unwrap();
                elsewhere(|| f(&mut sample.clone())).unwrap();
            }
            y
        },
        sample.clone(),
    )
    .unwrap();
}

#[test]
fn two_traces_may_capture_one_tensor() {
    let w = vector(4);
    let (captured, wait) = channel::<()>();
    let (ended, other) = channel::<Result<String>>();
    std::thread::scope(|s| {
        let here = &w;
        s.spawn(move || {
            wait.recv().unwrap();
            let t = trace(|x: Tensor| x * here, vector(4));
            // the text of a graph shows a digest of its constants
            ended.send(t.map(|t| t.to_string())).unwrap();
        });
        let t = trace(
            |x: Tensor| {
                let y = &x + &w;
                captured.send(()).unwrap();
                let text = other.recv().unwrap().unwrap();
                assert!(text.contains("sha256:") && !text.contains("sha256:0000"), "{text}");
                y
            },
            vector(4),
        );
        assert!(t.is_ok());
    });
}

#[test]
fn a_kernel_that_ran_before_the_capture_goes_on() {
    let (inside, entered) = channel::<()>();
    let (captured, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let op = custom_op("t::slow")
        .schema("(Tensor x) -> Tensor")
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            inside.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
            Ok(Tensor::from(x.to_vec::<f32>()?))
        })
        .register()
        .unwrap();
    let w = vector(4);
    std::thread::scope(|s| {
        let kernel = s.spawn(|| call(&op, args![&w]).and_then(|y| y.to_vec::<f32>()));
        entered.recv().unwrap();
        trace(
            |x: Tensor| {
                let y = &x + &w;
                captured.send(()).unwrap();
                y
            },
            vector(4),
        )
        .unwrap();
        assert_eq!(kernel.join().unwrap().unwrap(), w.to_vec::<f32>().unwrap());
    });
}
