//! Runs that share tensors with other runs, with guards and with kernels.

use super::*;
use maquette_ops::{AccessError, Error, FakeCtx, Result, args, custom_op};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn is_conflict(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Access(AccessError::Conflict { .. }))
}

/// Reads and writes its input several times.
fn increment() -> Forms {
    Forms::of(graph(
        "graph g(%x: f32[8]) -> (f32[8]) {
            %a: f32[8] = aten::add_.Scalar(%x, 2.0)
            %b: f32[8] = aten::mul_.Scalar(%x, 1.0)
            %c: f32[8] = aten::sub_.Scalar(%x, 1.0)
            return %c
        }",
    ))
}

#[test]
fn concurrent_runs_of_a_shared_input_are_whole_or_refused() {
    let forms = increment();
    for mode in forms.modes() {
        let x = Tensor::from([0.0f32; 8]);
        let done = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..200 {
                        match Interpreter::new(&mode).run(&[Value::from(&x)]) {
                            Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                            Err(e) => assert!(is_conflict(&e), "{e}"),
                        }
                    }
                });
            }
        });
        let done = done.load(Ordering::Relaxed);
        assert!(done > 0);
        assert_eq!(values(&x), [done as f32; 8], "each run counts once");
    }
}

#[test]
fn a_conflict_is_found_before_anything_is_written() {
    let forms = Forms::of(graph(
        "graph g(%x: f32[2], %y: f32[2]) -> (f32[2]) {
            %a: f32[2] = aten::add_.Scalar(%x, 1.0)
            %b: f32[2] = aten::add_.Scalar(%y, 1.0)
            return %b
        }",
    ));
    for mode in forms.modes() {
        let (x, y) = (Tensor::from([1.0f32, 2.0]), Tensor::from([3.0f32, 4.0]));
        let inputs = [Value::from(&x), Value::from(&y)];
        let guard = y.read::<f32>().unwrap();
        let e = Interpreter::new(&mode).run(&inputs).unwrap_err().to_string();
        assert!(e.contains("cannot write `y`: the guard taken at"), "{e}");
        drop(guard);
        assert_eq!((values(&x), values(&y)), (vec![1.0, 2.0], vec![3.0, 4.0]));
        Interpreter::new(&mode).run(&inputs).unwrap();
        assert_eq!((values(&x), values(&y)), (vec![2.0, 3.0], vec![4.0, 5.0]));
    }
}

#[test]
fn an_input_that_is_only_read_may_be_shared() {
    let forms = Forms::of(graph(
        "graph g(%x: f32[2]) -> (f32[2]) {
            %y: f32[2] = aten::add.Tensor(%x, %x)
            return %y
        }",
    ));
    for mode in forms.modes() {
        let x = Tensor::from([1.0f32, 2.0]);
        let guard = x.read::<f32>().unwrap();
        let results = Interpreter::new(&mode).run(&[Value::from(&x)]).unwrap().results;
        assert_eq!(values(results[0].tensor().unwrap()), [2.0, 4.0]);
        drop(guard);
        let mut writer = x.clone();
        let guard = writer.write::<f32>().unwrap();
        let e = Interpreter::new(&mode).run(&[Value::from(&x)]).unwrap_err().to_string();
        assert!(e.contains("cannot read `x`: the guard taken at"), "{e}");
        drop(guard);
    }
}

/// The graph mutates both inputs, and they overlap. An original graph computes the result of eager
/// execution.
#[test]
fn inputs_may_overlap_each_other() {
    let graph = graph(
        "graph g(%x: f32[3], %y: f32[3]) -> (f32[3]) {
            %a: f32[3] = aten::add_.Scalar(%x, 10.0)
            %b: f32[3] = aten::mul_.Scalar(%y, 2.0)
            %c: f32[3] = aten::add.Tensor(%x, %y)
            return %c
        }",
    );
    let whole = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let (x, y) = (whole.slice(0, 0..3), whole.slice(0, 1..4));
    let inputs = [Value::from(&x), Value::from(&y)];
    let results = Interpreter::new(&graph).run(&inputs).unwrap().results;
    assert_eq!(values(&whole), [11.0, 24.0, 26.0, 8.0]);
    assert_eq!(values(results[0].tensor().unwrap()), [35.0, 50.0, 34.0]);
}

#[test]
fn results_of_a_run_are_as_free_as_its_inputs() {
    let forms = Forms::of(program());
    for mode in forms.modes() {
        let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
        let results = Interpreter::new(&mode).run(&[Value::from(&x)]).unwrap().results;
        let mut tail = results[0].tensor().unwrap().clone();
        tail.write::<f32>().unwrap().fill(0.0);
        assert_eq!(values(&x), [10.0, 0.0, 0.0, 4.0]);
        assert!(x.version() >= 2, "runs count their writes");
    }
}

/// The kernel captured a handle of the input that the program mutates. In a functional graph, the
/// kernel would read the old value.
#[test]
fn a_kernel_reaches_what_the_run_writes_through_its_arguments_only() {
    let captured = Tensor::from([1.0f32, 2.0]);
    let own = captured.clone();
    let peek = custom_op("sharing::peek")
        .arg_names(["x"])
        .kernel(move |x: &Tensor| -> Result<Tensor> { Ok(Tensor::from(own.to_vec::<f32>()?) + x) })
        .register()
        .unwrap();
    peek.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let forms = Forms::of(graph(
        "graph g(%w: f32[2], %x: f32[2]) -> (f32[2]) {
            %a: f32[2] = aten::add_.Scalar(%w, 1.0)
            %b: f32[2] = sharing::peek(%x)
            return %b
        }",
    ));
    for mode in forms.modes() {
        let inputs = [Value::from(&captured), Value::from(Tensor::from([0.0f32, 0.0]))];
        let e = Interpreter::new(&mode).run(&inputs).unwrap_err().to_string();
        assert!(e.contains("cannot read `the tensor`: input `w` of the run at"), "{e}");
    }
    // In eager execution nothing writes while the kernel runs, and the call is refused as well.
    let e = maquette_ops::call("sharing::peek", args![&captured]).unwrap_err().to_string();
    assert!(e.contains("reads a tensor f32[2] that it was not given"), "{e}");
}

/// A view that a custom operator returns has the rights of the viewed handle.
#[test]
fn a_view_made_by_a_kernel_is_written_in_the_run() {
    let head = custom_op("sharing::head")
        .schema("(Tensor(a) x) -> Tensor(a)")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 0..1)) })
        .register()
        .unwrap();
    head.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 0..1)) })
        .unwrap();
    let graph = graph(
        "graph g(%x: f32[2]) -> (f32[1]) {
            %head: f32[1] = sharing::head(%x)
            %b: f32[1] = aten::add_.Scalar(%head, 1.0)
            return %head
        }",
    );
    let x = Tensor::from([1.0f32, 2.0]);
    let results = Interpreter::new(&graph).run(&[Value::from(&x)]).unwrap().results;
    assert_eq!(values(results[0].tensor().unwrap()), [2.0]);
    assert_eq!(values(&x), [2.0, 2.0]);
}

/// The work of a run per input does not depend on the number of inputs.
#[test]
fn a_run_may_write_many_inputs() {
    const COUNT: usize = 2_000;
    let inputs: Vec<String> = (0..COUNT).map(|i| format!("%x{i}: f32[1]")).collect();
    let writes: Vec<String> =
        (0..COUNT).map(|i| format!("  %y{i}: f32[1] = aten::add_.Scalar(%x{i}, 1.0)\n")).collect();
    let forms = Forms::of(graph(&format!(
        "graph g({}) -> (f32[1]) {{\n{}  return %x0\n}}",
        inputs.join(", "),
        writes.concat()
    )));
    for mode in forms.modes() {
        let memory = Tensor::from(vec![0.0f32; 2 * COUNT]);
        let own = |i: usize| Tensor::from([i as f32]);
        let inputs: Vec<Value> = match mode {
            // all inputs share one storage, at different offsets
            ExecutionMode::Original(_) => (0..COUNT as i64)
                .map(|i| Value::from(memory.slice(0, 2 * i + 1..2 * i + 2)))
                .collect(),
            _ => (0..COUNT).map(|i| Value::from(own(i))).collect(),
        };
        Interpreter::new(&mode).run(&inputs).unwrap();
        let last = inputs[COUNT - 1].tensor().unwrap().item::<f32>().unwrap();
        let is_original = matches!(mode, ExecutionMode::Original(_));
        assert_eq!(last, if is_original { 1.0 } else { COUNT as f32 });
    }
}
