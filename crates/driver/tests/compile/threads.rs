//! Calls of one function on several threads, and from its own kernels.

use super::*;
use maquette_ops::{FakeCtx, Op, args, custom_op};
use std::sync::{Barrier, OnceLock};
use std::thread;

#[test]
fn compiled_functions_are_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let f = compile(|x: Tensor| x.relu() + 1.0);
    shared(&f);
    let (threads, barrier) = (8, Barrier::new(8));
    thread::scope(|s| {
        for i in 0..threads {
            let (f, barrier) = (&f, &barrier);
            s.spawn(move || {
                barrier.wait();
                for n in 0..40 {
                    let n = (n + i) % 7;
                    let y = f.call(arange(n)).unwrap();
                    let expected = (arange(n).relu() + 1.0).to_vec::<f32>().unwrap();
                    assert_eq!(y.to_vec::<f32>().unwrap(), expected);
                }
            });
        }
    });
    assert_eq!(f.compilations(), 2, "{}", f.explain());
}

#[test]
fn threads_share_what_the_function_captured() {
    let weight = rows(4);
    let f = CompileOptions::new().static_(0, 0).recompile_limit(100).compile(|x: Tensor| {
        // a trace that takes its time, so that runs and other traces meet it
        (0..20).fold(x, |x, _| x.linear(&weight, None).slice(1, 0..3).relu())
    });
    let barrier = Barrier::new(4);
    thread::scope(|s| {
        for i in 0..4 {
            let (f, barrier) = (&f, &barrier);
            s.spawn(move || {
                barrier.wait();
                for n in 0..40 {
                    f.call(rows((n * (i + 1)) % 17)).unwrap();
                }
            });
        }
    });
    assert_eq!(f.compilations(), 17);
}

#[test]
fn one_of_several_results_is_kept() {
    let f = compile(|x: Tensor| x.relu());
    let barrier = Barrier::new(4);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                barrier.wait();
                f.call(arange(3)).unwrap();
            });
        }
    });
    assert_eq!((f.compilations(), f.explain().programs.len()), (1, 1));
}

type Function = Compiled<Tensor, Result<Tensor>, fn(Tensor) -> Result<Tensor>>;

static OUTER: OnceLock<Function> = OnceLock::new();
static NESTS: OnceLock<Op> = OnceLock::new();

/// A kernel that calls the function which calls it, until the tensor is small.
fn nests(x: &Tensor) -> Result<Tensor> {
    let n = x.sizes_i64()?[0];
    if n == 0 {
        return Ok(x.clone_tensor());
    }
    let inner = OUTER.get().map(|f| f.call(Tensor::zeros([n - 1], DType::F32))).transpose()?;
    let found = inner.map_or(0, |t| t.sizes_i64().map_or(0, |s| s[0]));
    Ok(Tensor::zeros([found + 1], DType::F32))
}

fn calls_the_kernel(x: Tensor) -> Result<Tensor> {
    let op = NESTS.get().copied().ok_or_else(|| Error::msg("the operator is missing"))?;
    Ok(op.call(args![&x])?[0].tensor()?.clone())
}

#[test]
fn a_kernel_calls_the_function_that_runs_it() {
    let op = custom_op("compiled::nests").kernel(nests).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    NESTS.get_or_init(|| op);
    let f = OUTER.get_or_init(|| compile(calls_the_kernel as fn(Tensor) -> Result<Tensor>));
    let y = f.call(Tensor::zeros([4], DType::F32)).unwrap();
    assert_eq!(y.sizes_i64().unwrap(), [4]);
    assert_eq!(f.compilations(), 2);
}
