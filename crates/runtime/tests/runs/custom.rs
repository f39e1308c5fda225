//! Custom operators in compiled programs: they get handles to the memory of the run.

use super::*;
use maquette_ops::{AccessError, ErrorKind, FakeCtx, Op, ReadGuard, custom_op};
use std::sync::Mutex;

/// Gives an operator a fake kernel whose result has the metadata of the argument.
fn fake(op: Op) {
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
}

/// A kernel that returns its argument times 2, in new memory.
fn twice(name: &str) {
    let op = custom_op(name)
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            Ok(Tensor::from(x.read::<f32>()?.mapv(|x| 2.0 * x)))
        })
        .register()
        .unwrap();
    fake(op);
}

#[test]
fn results_of_kernels_are_adopted() {
    twice("runtime::twice");
    let (executable, _) = compiled(
        "graph g(%x: f32[2]) -> (f32[2], f32[2]) {
            %a: f32[2] = aten::add.Scalar(%x, 1.0)
            %b: f32[2] = runtime::twice(%a)
            %c: f32[2] = runtime::twice(%b)
            %d: f32[2] = aten::mul.Tensor(%c, %b)
            return %d, %c
        }",
    );
    for k in 0..3 {
        let x = Tensor::from([k as f32, 1.0]);
        let results = run(&executable, &[Value::from(&x)]).unwrap();
        let a = [k as f32 + 1.0, 2.0];
        assert_eq!(values(results[0].tensor().unwrap()), a.map(|a| 8.0 * a * a));
        assert_eq!(values(results[1].tensor().unwrap()), a.map(|a| 4.0 * a));
    }
}

#[test]
fn a_kernel_mutates_memory_of_the_run() {
    custom_op("runtime::triple_")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            x.write::<f32>()?.mapv_inplace(|x| 3.0 * x);
            Ok(())
        })
        .register()
        .unwrap();
    let (executable, _) = compiled(
        "graph g(%x: f32[2, 2]) -> (f32[2, 2]) {
            %a: f32[2, 2] = aten::add.Scalar(%x, 1.0)
            %row: f32[2] offset 2 = aten::select.int(%a, 0, 1)
            runtime::triple_(%row)
            %input_row: f32[2] = aten::select.int(%x, 0, 0)
            runtime::triple_(%input_row)
            return %a
        }",
    );
    for _ in 0..2 {
        let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
        let results = run(&executable, &[Value::from(&x)]).unwrap();
        assert_eq!(values(results[0].tensor().unwrap()), [2.0, 3.0, 12.0, 15.0]);
        assert_eq!(values(&x), [3.0, 6.0, 3.0, 4.0]);
    }
}

static KEPT: Mutex<Vec<Tensor>> = Mutex::new(Vec::new());

#[test]
fn a_handle_that_a_kernel_kept_is_refused() {
    let op = custom_op("runtime::keeps")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            KEPT.lock().unwrap().push(x.clone());
            Ok(Tensor::from(x.read::<f32>()?.to_owned()))
        })
        .register()
        .unwrap();
    fake(op);
    let (executable, _) = compiled(
        "graph g(%x: f32[2]) -> (f32[2]) {
            %a: f32[2] = aten::add.Scalar(%x, 1.0)
            %b: f32[2] = runtime::keeps(%a)
            %c: f32[2] = aten::mul.Tensor(%a, %b)
            return %c
        }",
    );
    for k in 0..3 {
        let x = Tensor::from([k as f32, 1.0]);
        let results = run(&executable, &[Value::from(&x)]).unwrap();
        assert_eq!(values(results[0].tensor().unwrap()), [(k as f32 + 1.0).powi(2), 4.0]);
    }
    for kept in KEPT.lock().unwrap().drain(..) {
        let e = kept.read::<f32>().map(drop).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Stale)), "{e}");
    }
}

#[test]
fn a_guard_that_outlives_its_kernel_ends_the_run() {
    static GUARDS: Mutex<Vec<ReadGuard<'static, f32>>> = Mutex::new(Vec::new());
    let op = custom_op("runtime::guards")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            let kept: &'static Tensor = Box::leak(Box::new(x.clone()));
            GUARDS.lock().unwrap().push(kept.read::<f32>()?);
            Ok(Tensor::from([0.0f32, 0.0]))
        })
        .register()
        .unwrap();
    fake(op);
    let (executable, _) = compiled(
        "graph g(%x: f32[2]) -> (f32[2]) {
            %a: f32[2] = aten::add.Scalar(%x, 1.0)
            %b: f32[2] = runtime::guards(%a)
            %c: f32[2] = aten::mul.Tensor(%a, %b)
            return %c
        }",
    );
    let x = [Value::from(Tensor::from([1.0f32, 2.0]))];
    for _ in 0..2 {
        let e = run(&executable, &x).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Access(AccessError::KeptGuard)), "{e}");
    }
    // What the guards read is left alone.
    let guards = GUARDS.lock().unwrap();
    assert!(guards.iter().all(|g| g.iter().copied().eq([2.0f32, 3.0])));
}

#[test]
fn a_wrong_result_is_refused_as_by_the_interpreter() {
    let op = custom_op("runtime::wrong")
        .arg_names(["x"])
        .kernel(|_: &Tensor| -> Result<Tensor> { Ok(Tensor::from([1.0f32, 2.0, 3.0])) })
        .register()
        .unwrap();
    fake(op);
    let program = "graph g(%x: f32[2]) -> (f32[2]) {
        %a: f32[2] = aten::relu(%x)
        %b: f32[2] = runtime::wrong(%a)
        return %b
    }";
    let x = || vec![Value::from(Tensor::from([1.0f32, 2.0]))];
    insta::assert_snapshot!(errors(program, x), @r"
    runtime::wrong: output 0: its fake kernel promises size 0 to be 2, but its kernel returned 3. Fix the fake kernel
      at crates/runtime/tests/runs.rs:43
      %relu: f32[2] = aten::relu(%x)
    > %wrong: f32[2] = runtime::wrong(%relu)
    ");
}

#[test]
fn a_kernel_runs_an_executable_that_ran_before() {
    static INNER: std::sync::OnceLock<Executable> = std::sync::OnceLock::new();
    let (inner, _) = compiled(
        "graph g(%x: f32[3]) -> (f32[3]) {
            %a: f32[3] = aten::mul.Scalar(%x, 2.0)
            %s: f32[3], %i: i64[3] = aten::sort(%a, 0, false)
            return %s
        }",
    );
    let x = || Value::from(Tensor::from([3.0f32, 1.0, 2.0]));
    run(&inner, &[x()]).unwrap();
    INNER.set(inner).unwrap();
    let op = custom_op("runtime::nested")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            let inner = INNER.get().unwrap();
            let first = run(inner, &[Value::from(x)])?[0].tensor()?.clone();
            run(inner, &[Value::from(&first)])?[0].tensor().cloned()
        })
        .register()
        .unwrap();
    fake(op);
    let (executable, _) = compiled(
        "graph g(%x: f32[3]) -> (f32[3]) {
            %a: f32[3] = aten::add.Scalar(%x, 1.0)
            %b: f32[3] = runtime::nested(%a)
            return %b
        }",
    );
    for _ in 0..3 {
        let results = run(&executable, &[x()]).unwrap();
        assert_eq!(values(results[0].tensor().unwrap()), [8.0, 12.0, 16.0]);
        assert_eq!(
            values(run(INNER.get().unwrap(), &[x()]).unwrap()[0].tensor().unwrap()),
            [2.0, 4.0, 6.0]
        );
    }
}

#[test]
fn memory_that_a_kernel_poisoned_ends_the_run_and_is_given_up() {
    custom_op("runtime::poisons_")
        .arg_names(["x", "y"])
        .kernel(|x: &mut Tensor, y: &Tensor| -> Result<()> {
            // The kernel discards the error.
            let _ = x.floor_divide_(y).ok().map(drop);
            Ok(())
        })
        .register()
        .unwrap();
    let (executable, _) = compiled(
        "graph g(%x: i64[2], %y: i64[2]) -> (i64[2]) {
            %a: i64[2] = aten::add.Scalar(%x, 1)
            runtime::poisons_(%a, %y)
            %c: i64[2] = aten::mul.Scalar(%a, 2)
            return %c
        }",
    );
    let x = || Value::from(Tensor::from([3i64, 5]));
    for _ in 0..2 {
        let zero = Value::from(Tensor::from([1i64, 0]));
        let e = run(&executable, &[x(), zero]).unwrap_err();
        assert!(e.to_string().contains("division by zero"), "{e}");
        let two = Value::from(Tensor::from([2i64, 2]));
        let results = run(&executable, &[x(), two]).unwrap();
        assert_eq!(results[0].tensor().unwrap().to_vec::<i64>().unwrap(), [4, 6]);
    }
}

/// The fast path of a call compares returned tensors with the declared strides. Others are copied.
#[test]
fn results_of_other_strides_than_declared_are_as_by_the_interpreter() {
    let op = custom_op("runtime::in_columns")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok((x + 1.0).t().contiguous().t()) })
        .register()
        .unwrap();
    fake(op);
    let text = "graph g(%x: f32[2, 3]) -> (f32[2, 3]) {
        %a: f32[2, 3] = aten::add.Scalar(%x, 1.0)
        %b: f32[2, 3] = runtime::in_columns(%a)
        %c: f32[2, 3] = aten::mul.Tensor(%b, %a)
        return %c
    }";
    let x = || vec![Value::from(Tensor::ones([2i64, 3], maquette_ir::DType::F32))];
    let (executable, mode) = compiled(text);
    let outcome = |results: Result<Vec<Value>>| match results {
        Ok(results) => format!("{:?}", values(results[0].tensor().unwrap())),
        Err(e) => e.to_string(),
    };
    let source_info = SourceInfo::of_caller();
    let reference = Interpreter::new(&mode).with_source_info(source_info).run(&x());
    let reference = outcome(reference.map(|run| run.results));
    for _ in 0..2 {
        assert_eq!(outcome(executable.run(&x(), &source_info)), reference);
    }
}

/// A kernel that reads memory that it also writes gets a copy, as through the dispatcher.
#[test]
fn a_kernel_that_reads_what_it_writes_reads_a_copy() {
    custom_op("runtime::add_reversed_")
        .arg_names(["x", "y"])
        .kernel(|x: &mut Tensor, y: &Tensor| -> Result<()> {
            let y: Vec<f32> = y.to_vec()?;
            let mut rest = y.iter().rev();
            x.write::<f32>()?.mapv_inplace(|x| x + rest.next().copied().unwrap_or_default());
            Ok(())
        })
        .register()
        .unwrap();
    let (executable, mode) = compiled(
        "graph g(%x: f32[3]) -> (f32[3]) {
            %a: f32[3] = aten::add.Scalar(%x, 1.0)
            runtime::add_reversed_(%a, %a)
            return %a
        }",
    );
    let x = || vec![Value::from(Tensor::from([0.0f32, 1.0, 2.0]))];
    let reference = Interpreter::new(&mode).run(&x()).unwrap().results;
    assert_eq!(values(reference[0].tensor().unwrap()), [4.0, 4.0, 4.0]);
    for _ in 0..2 {
        let results = run(&executable, &x()).unwrap();
        assert_eq!(values(results[0].tensor().unwrap()), [4.0, 4.0, 4.0]);
    }
}

/// Outputs that view a result count from its first element, wherever the kernel has put that.
#[test]
fn a_kernel_returns_a_part_of_new_memory() {
    let op = custom_op("runtime::part")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            Ok(Tensor::cat(&[x.clone(), x * 2.0], 0).slice(0, x.size(0)..))
        })
        .register()
        .unwrap();
    fake(op);
    let (executable, mode) = compiled(
        "graph g(%x: f32[3]) -> (f32[3], f32[2] offset 1) {
            %y: f32[3] = runtime::part(%x)
            %tail: f32[2] offset 1 = aten::slice.Tensor(%y, 0, 1, 3, 1)
            return %y, %tail
        }",
    );
    let x = || vec![Value::from(Tensor::from([1.0f32, 2.0, 3.0]))];
    let check = |results: Vec<Value>| {
        assert_eq!(values(results[0].tensor().unwrap()), [2.0, 4.0, 6.0]);
        assert_eq!(values(results[1].tensor().unwrap()), [4.0, 6.0]);
    };
    check(Interpreter::new(&mode).run(&x()).unwrap().results.to_vec());
    check(run(&executable, &x()).unwrap());
    check(run(&executable, &x()).unwrap());
}
