//! Calls of one program on several threads, and from its own kernels.

use super::*;
use maquette_driver::Program;
use maquette_ops::{FakeCtx, Op, Result, args, custom_op};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

/// A fake kernel whose result has the metadata of the argument.
fn fake(op: Op) -> Op {
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    op
}

/// Counts its calls, and passes its input to an operator.
struct Counter {
    calls: Tensor,
    op: Option<Op>,
}

impl Module for Counter {
    type In = Tensor;
    type Out = Result<Tensor>;

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        self.calls.add_(1.0);
        let x = match self.op {
            Some(op) => op.call(args![&x])?[0].tensor()?.clone(),
            None => x,
        };
        Ok(x + &self.calls)
    }

    fn visit(&self, v: Visitor<'_>) {
        visit_part(&self.calls, "", "calls", Slot::Buffer, v);
    }
}

type Counting = Program<Tensor, Tensor>;

fn program(op: Option<Op>) -> Counting {
    let module = Counter { calls: Tensor::from([0.0f32]), op };
    ExportOptions::new().export(&module, Tensor::from([0.0f32])).unwrap()
}

fn count(program: &Counting) -> f32 {
    let (.., calls) = program.state().next().unwrap();
    calls.item::<f32>().unwrap()
}

#[test]
fn calls_that_write_a_buffer_lose_no_update() {
    let program = program(None);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..500 {
                    program.call(Tensor::from([0.0f32])).unwrap();
                }
            });
        }
    });
    assert_eq!(count(&program), 2000.0);
}

#[test]
fn calls_that_write_nothing_run_at_one_time() {
    let barrier = Arc::new(Barrier::new(2));
    let op = custom_op("turns::meet")
        .arg_names(["x"])
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            barrier.wait();
            Ok(x.relu())
        })
        .register()
        .unwrap();
    struct Meet(Op);
    impl Module for Meet {
        type In = Tensor;
        type Out = Result<Tensor>;
        fn forward(&self, x: Tensor) -> Result<Tensor> {
            Ok(self.0.call(args![&x])?[0].tensor()?.clone())
        }
        fn visit(&self, _: Visitor<'_>) {}
    }
    let program = ExportOptions::new().export(&Meet(fake(op)), Tensor::from([1.0f32])).unwrap();
    let x = Tensor::from([1.0f32]);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| program.call(x.clone()).unwrap());
        }
    });
}

/// An operator whose kernel calls a program. The test sets the program later.
fn calling(name: &str, first: Option<Arc<Barrier>>) -> (Op, Arc<OnceLock<Arc<Counting>>>) {
    let program: Arc<OnceLock<Arc<Counting>>> = Arc::default();
    let (inner, is_first) = (program.clone(), AtomicBool::new(true));
    let op = custom_op(name)
        .arg_names(["x"])
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            let x = x.clone_tensor();
            if is_first.swap(false, Ordering::Relaxed)
                && let Some(barrier) = &first
            {
                barrier.wait();
            }
            match inner.get() {
                Some(program) => program.call(x),
                None => Ok(x),
            }
        })
        .register()
        .unwrap();
    (fake(op), program)
}

#[test]
fn a_kernel_that_calls_its_own_program_is_refused() {
    let (op, inner) = calling("turns::itself", None);
    let program = Arc::new(program(Some(op)));
    inner.set(program.clone()).unwrap();
    let e = program.call(Tensor::from([0.0f32])).unwrap_err().to_string();
    assert!(e.contains("and would wait for itself"), "{e}");
    assert_eq!(count(&program), 0.0, "a failed call writes nothing");
}

#[test]
fn programs_whose_kernels_call_each_other_do_not_wait_for_ever() {
    let both_hold = Arc::new(Barrier::new(2));
    let (to_b, b) = calling("turns::to_b", Some(both_hold.clone()));
    let (to_a, a) = calling("turns::to_a", Some(both_hold));
    let programs = [Arc::new(program(Some(to_b))), Arc::new(program(Some(to_a)))];
    a.set(programs[0].clone()).unwrap();
    b.set(programs[1].clone()).unwrap();
    let failed: Vec<bool> = thread::scope(|s| {
        let calls =
            programs.each_ref().map(|p| s.spawn(|| p.call(Tensor::from([0.0f32])).is_err()));
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(failed.contains(&true), "one of them would wait for itself");
    for p in &programs {
        assert!(count(p) <= 1.0);
    }
}

#[test]
fn a_panic_in_a_call_leaves_the_program_usable() {
    let fails = Arc::new(AtomicBool::new(true));
    let panics = fails.clone();
    let op = custom_op("turns::panics")
        .arg_names(["x"])
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            assert!(!panics.load(Ordering::Relaxed), "as the test wants");
            Ok(x.relu())
        })
        .register()
        .unwrap();
    let program = program(Some(fake(op)));
    let call = || program.call(Tensor::from([0.0f32]));
    // the panic, or the error into which it is converted
    assert!(!matches!(catch_unwind(AssertUnwindSafe(call)), Ok(Ok(_))));
    assert_eq!(count(&program), 0.0);
    fails.store(false, Ordering::Relaxed);
    call().unwrap();
    assert_eq!(count(&program), 1.0);
}
