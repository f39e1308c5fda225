//! What a repeated call of a bound shape allocates, by a counting allocator.
//!
//! Allowed are what the caller gets and what custom kernels make:
//!
//! - one list: the results of the call;
//! - three for each new output: its storage, and the two handles to it, of which one is the whole
//!   memory and one the output with its layout. The block itself comes from the cache of blocks,
//!   since the results of the call before are gone;
//! - those of a custom kernel for the tensor that it returns.
//!
//! A call with tensors for its outputs allocates nothing but for custom kernels.
//!
//! Not in these programs, but also allocated: an output that is an input seen through another
//! layout (the layout is a list); the borrow of several inputs in one storage; operators that go
//! through the dispatcher.

mod common;

use common::{fused, planned};
use maquette_aten as _;
use maquette_invoke::SourceInfo;
use maquette_ops::{FakeCtx, Result, Tensor, Value, custom_op};
use maquette_runtime::Executable;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Once;

/// The system's allocator, which counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // The counter is gone while its thread ends.
    let _counted = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every method is that of the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The allocations of `f`.
fn allocations<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let before = ALLOCATIONS.get();
    let result = f();
    (ALLOCATIONS.get() - before, result)
}

/// The allocations of the fourth call and later ones, which must all be equal.
#[track_caller]
fn of_repeated_calls(text: &str, inputs: &[Value]) -> usize {
    let (executable, source_info) = (executable(text), SourceInfo::of_caller());
    let call = || allocations(|| executable.run(inputs, &source_info).unwrap()).0;
    of_calls(call)
}

/// As [`of_repeated_calls`], with tensors for the outputs.
#[track_caller]
fn of_repeated_calls_into(text: &str, inputs: &[Value], outputs: &[Tensor]) -> usize {
    let (executable, source_info) = (executable(text), SourceInfo::of_caller());
    let call = || executable.run_into(inputs, outputs, &source_info).unwrap();
    of_calls(|| allocations(call).0)
}

#[track_caller]
fn of_calls(call: impl Fn() -> usize) -> usize {
    let counts: Vec<usize> = (0..8).map(|_| call()).skip(3).collect();
    assert!(counts.iter().all(|n| *n == counts[0]), "{counts:?}");
    counts[0]
}

fn executable(text: &str) -> Executable {
    define_operators();
    fused(&planned(text))
}

const POINTWISE: &str = "graph g(%x: f32[4, 6], %y: f32[6]) -> (f32[4, 6]) {
    %a: f32[4, 6] = aten::add.Tensor(%x, %y)
    %b: f32[4, 6] = aten::exp(%a)
    %c: f32[4, 6] = aten::mul.Tensor(%b, %a)
    return %c
}";

const ROWS: &str = "graph g(%x: f32[4, 6], %w: f32[6]) -> (f32[4, 6], f32[4, 4]) {
    %a: f32[4, 6] = aten::_softmax(%x, 1, false)
    %b: f32[4, 6], %m: f32[4, 1], %r: f32[4, 1] = aten::native_layer_norm(%a, [6], %w, %w, 1e-5)
    %t: f32[6, 4] strides [1, 6] = aten::t(%b)
    %p: f32[4, 4] = aten::mm(%b, %t)
    return %b, %p
}";

fn ones(sizes: &[i64]) -> Value {
    Tensor::ones(sizes.to_vec(), maquette_ir::DType::F32).into()
}

#[test]
fn launches_allocate_only_the_results() {
    assert_eq!(of_repeated_calls(POINTWISE, &[ones(&[4, 6]), ones(&[6])]), 1 + 3);
    assert_eq!(of_repeated_calls(ROWS, &[ones(&[4, 6]), ones(&[6])]), 1 + 2 * 3);
}

#[test]
fn launches_into_given_tensors_allocate_nothing() {
    let zeros = |sizes: &[i64]| Tensor::zeros(sizes.to_vec(), maquette_ir::DType::F32);
    let inputs = [ones(&[4, 6]), ones(&[6])];
    assert_eq!(of_repeated_calls_into(POINTWISE, &inputs, &[zeros(&[4, 6])]), 0);
    assert_eq!(of_repeated_calls_into(ROWS, &inputs, &[zeros(&[4, 6]), zeros(&[4, 4])]), 0);
    // two rows of one tensor, beside what other calls may write at the same time
    let all = zeros(&[8, 6]);
    assert_eq!(of_repeated_calls_into(POINTWISE, &inputs, &[all.slice(0, 2..6)]), 0);
    let copied = of_repeated_calls_into(POINTWISE, &inputs, &[zeros(&[6, 4]).t()]);
    assert!(copied > 0, "other strides are written by a copy");
}

#[test]
fn writes_to_inputs_allocate_nothing() {
    let written = "graph g(%x: f32[8], %y: f32[8]) -> (f32[8]) {
        %a: f32[8] = aten::mul.Tensor(%x, %y)
        %b: f32[8] = aten::add_.Tensor(%x, %a)
        %c: f32[8] = aten::sin_(%y)
        return %b
    }";
    assert_eq!(of_repeated_calls(written, &[ones(&[8]), ones(&[8])]), 1);
}

/// Defines a custom operator that returns a tensor, and one that writes its argument. All tests
/// begin with this: a registration makes every instance stale.
fn define_operators() {
    static DEFINED: Once = Once::new();
    DEFINED.call_once(define);
}

fn define() {
    let op = custom_op("allocations::made")
        .arg_names(["x"])
        .kernel(|_: &Tensor| -> Result<Tensor> { Ok(Tensor::from([1.0f32, 2.0])) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    custom_op("allocations::touch_")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            x.write::<f32>()?.fill(3.0);
            Ok(())
        })
        .register()
        .unwrap();
}

#[test]
fn calls_of_custom_kernels_allocate_what_the_kernels_do() {
    let (kernel, _) = allocations(|| Tensor::from([1.0f32, 2.0]));
    let text = "graph g(%x: f32[2]) -> (f32[2]) {
        %a: f32[2] = aten::exp(%x)
        %b: f32[2] = allocations::made(%a)
        %c: f32[2] = allocations::made(%b)
        %d: f32[2] = aten::add.Tensor(%c, %b)
        allocations::touch_(%d)
        return %d
    }";
    assert_eq!(of_repeated_calls(text, &[ones(&[2])]), 1 + 3 + 2 * kernel);
}
