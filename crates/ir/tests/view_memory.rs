//! Queries and compositions of views of plain numbers with up to four dimensions allocate no
//! memory.

use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::{TriBool, ViewSpec};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator, with a count of allocations per thread.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `System.alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` was allocated by the system allocator with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn view(offset: i64, dims: &[(i64, i64)], t: &mut SymTable) -> ViewSpec {
    let (sizes, strides): (Vec<Expr>, Vec<Expr>) =
        dims.iter().map(|&(n, s)| (Expr::Int(n), Expr::Int(s))).unzip();
    ViewSpec::strided(Expr::Int(offset), &sizes, &strides, t).unwrap()
}

#[test]
fn queries_on_plain_numbers_allocate_nothing() {
    let t = &mut SymTable::new();
    // A tensor of 8 x 12 x 64 x 32, a part of it, an adjacent part, and the tensor with two
    // dimensions permuted.
    let whole = view(0, &[(8, 24576), (12, 2048), (64, 32), (32, 1)], t);
    let left = view(2 * 2048, &[(8, 24576), (4, 2048), (64, 32), (16, 1)], t);
    let right = view(2 * 2048 + 16, &[(8, 24576), (4, 2048), (64, 32), (16, 1)], t);
    let permuted = view(0, &[(8, 24576), (64, 32), (12, 2048), (32, 1)], t);
    let column = view(3, &[(8, 4096), (4, 512), (16, 16)], t);
    let numel = whole.numel(t).unwrap();
    let before = ALLOCATIONS.get();
    let answers = [
        left.disjoint(&right, t),
        !left.disjoint(&whole, t),
        left.contained_in(&permuted, t),
        left.injective(t),
        left.same(&left, t),
        permuted.is_permutation(numel, t),
        !whole.is_full(Expr::Int(3), t),
        left.relative(&permuted, t).is_some().into(),
        left.compose(&column, t).is_some().into(),
    ];
    let allocated = ALLOCATIONS.get() - before;
    assert_eq!(answers, [TriBool::Yes; 9]);
    assert_eq!(allocated, 0);
}
