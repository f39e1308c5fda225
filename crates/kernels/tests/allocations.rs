//! A launch of a loop nest with known layouts allocates nothing.

use maquette_ir::DType;
use maquette_ir::loops::{LoopBuilder, LoopError, LoopNest, named};
use maquette_ir::sym::{SymTable, SymbolId};
use maquette_kernels::{LoopKernel, View, ViewMut, without_specialisations};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of a thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: it passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Softmax over the rows of a matrix.
fn softmax() -> Result<LoopNest, LoopError> {
    let mut nest = LoopBuilder::new(SymTable::new());
    let x = nest.input(DType::F32, 2);
    let result = named::softmax(&mut nest, &x, x.axes[1], DType::F32)?;
    nest.finish(&[result.into()])
}

#[test]
fn a_launch_with_known_layouts_allocates_nothing() {
    for (rows, columns) in [(1, 4), (7, 30), (3, 1024), (2, 5000)] {
        let kernel = LoopKernel::new(softmax().expect("is valid"));
        let (x, mut y) = (vec![0.5f32; rows * columns], vec![0.0f32; rows * columns]);
        let sizes = [rows as i64, columns as i64];
        let mut launch = || {
            let x = View::from_slice_sized(&x, &sizes).expect("fits");
            let y = ViewMut::from_slice_sized(&mut y, &sizes).expect("fits");
            let (operands, results) = ([x], &mut [y]);
            let before = ALLOCATIONS.get();
            let value = |s: SymbolId| sizes.get(s.index()).copied();
            without_specialisations(|| kernel.run(&value, &operands, &[], results)).expect("runs");
            ALLOCATIONS.get() - before
        };
        assert!(launch() > 0, "the first launch plans");
        assert_eq!(launch(), 0, "{rows}x{columns}");
    }
}

/// A product with a bias and a function, and with the sums of rows of these.
const LAYER: &str = "
loops (a0: f32[24, 70], a1: f32[70, 50], a2: f32[50]) -> (t1, t2)
  axes i0 < 24, i1 < 50, i2 < 70
{
  t0[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load a0[i0, i2]
    r1: f32 = load a1[i2, i1]
    return r0, r1
  }
  t1[i0, i1] = map {
    r0: f32 = load t0[i0, i1]
    r1: f32 = load a2[i1]
    r2: f32 = add r0, r1
    r3: f32 = tanh r2
    return r3
  }
  t2[i0] = reduce sum lanes over [i0, i1] {
    r0: f32 = load t1[i0, i1]
    return r0
  }
}
";

#[test]
fn a_product_with_an_epilogue_allocates_nothing() {
    let kernel = LoopKernel::new(LoopNest::parse(LAYER).expect("is valid"));
    let [a, b, bias] = [24 * 70, 70 * 50, 50].map(|n| vec![0.5f32; n]);
    let (mut y, mut sums) = (vec![0.0f32; 24 * 50], vec![0.0f32; 24]);
    let mut launch = || {
        let view = |x, sizes| View::from_slice_sized(x, sizes).expect("fits");
        let operands = [view(&a, &[24, 70]), view(&b, &[70, 50]), view(&bias, &[50])];
        let results = &mut [
            ViewMut::from_slice_sized(&mut y, &[24, 50]).expect("fits"),
            ViewMut::from_slice_sized(&mut sums, &[24]).expect("fits"),
        ];
        let before = ALLOCATIONS.get();
        kernel.run(&|_| None, &operands, &[], results).expect("runs");
        ALLOCATIONS.get() - before
    };
    assert!(launch() > 0, "the first launch plans");
    assert_eq!(launch(), 0);
}
