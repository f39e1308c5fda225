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
