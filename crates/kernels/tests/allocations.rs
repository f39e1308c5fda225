//! A launch of a loop nest with known layouts allocates nothing.

use maquette_ir::loops::LoopNest;
use maquette_kernels::{LoopKernel, View, ViewMut};
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

const SOFTMAX: &str = "
loops (a0: f32[ROWS, COLUMNS]) -> (t4)
  axes i0 < ROWS, i1 < COLUMNS
{
  t0[i0] = reduce max lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
  t1[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = load t0[i0]
    r2: f32 = sub r0, r1
    r3: f32 = exp r2
    return r3
  }
  t2[i0] = reduce sum lanes over [i0, i1] {
    r0: f32 = load t1[i0, i1]
    return r0
  }
  t3[i0] = map {
    r0: f32 = load t2[i0]
    r1: f32 = reciprocal r0
    return r1
  }
  t4[i0, i1] = map {
    r0: f32 = load t1[i0, i1]
    r1: f32 = load t3[i0]
    r2: f32 = mul r0, r1
    return r2
  }
}
";

#[test]
fn a_launch_with_known_layouts_allocates_nothing() {
    for (rows, columns) in [(1, 4), (7, 30), (3, 1024), (2, 5000)] {
        let text = SOFTMAX.replace("ROWS", &rows.to_string());
        let text = text.replace("COLUMNS", &columns.to_string());
        let kernel = LoopKernel::new(LoopNest::parse(&text).expect("parses"));
        let (x, mut y) = (vec![0.5f32; rows * columns], vec![0.0f32; rows * columns]);
        let sizes = [rows as i64, columns as i64];
        let mut launch = || {
            let x = View::from_slice_sized(&x, &sizes).expect("fits");
            let y = ViewMut::from_slice_sized(&mut y, &sizes).expect("fits");
            let before = ALLOCATIONS.get();
            kernel.run(&|_| None, &[x], &[], &mut [y]).expect("runs");
            ALLOCATIONS.get() - before
        };
        assert!(launch() > 0, "the first launch plans");
        assert_eq!(launch(), 0, "{rows}x{columns}");
    }
}
