//! The fold of rows of neighbouring outputs, which are read where they are.
//!
//! A row is too short for the processor to see that the next one follows, and is often on another
//! page. So the rows ahead are fetched explicitly.

use super::lanes::{LANES, tree_of};
use crate::isa::{LINE, Simd, prefetch_near};
use crate::pointwise::ops::{InPlaceOp, Op2};
use crate::view::Ptr;
use std::marker::PhantomData;

/// The bytes that are fetched ahead: what memory delivers while a first byte is on its way.
const AHEAD: usize = 8 << 10;

/// Folds rows into the accumulators of their lanes.
pub(super) struct FoldRows<'a, A, O> {
    /// The first row, the elements from row to row, and the number of rows.
    rows: (Ptr<A>, isize, usize),
    position: usize,
    acc: &'a mut [A],
    width: usize,
    op: PhantomData<O>,
}

impl<'a, A, O> FoldRows<'a, A, O> {
    /// The fold of `rows`: the address of the first, the elements from row to row, and how many
    /// there are. The first is number `position` of its chunk. The accumulators are those of
    /// `width` outputs, lane by lane.
    ///
    /// # Safety
    /// The rows have `width` elements each, which nothing writes before the work is done.
    pub unsafe fn new(
        rows: (Ptr<A>, isize, usize),
        position: usize,
        acc: &'a mut [A],
        width: usize,
    ) -> Self {
        FoldRows { rows, position, acc, width, op: PhantomData }
    }
}

impl<A: Copy, O: Op2<A, A>> Simd for FoldRows<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let FoldRows { rows: (first, stride, n), position, acc, width, .. } = self;
        let bytes = (width * size_of::<A>()).max(1);
        let ahead = (AHEAD / bytes).clamp(1, LANES);
        for i in 0..n {
            let row = first.0.wrapping_offset(i as isize * stride);
            if i + ahead < n {
                let next = row.wrapping_offset(ahead as isize * stride).cast::<u8>();
                (0..bytes).step_by(LINE).for_each(|at| prefetch_near(next.wrapping_add(at)));
            }
            let lane = (position + i) % LANES * width;
            // SAFETY: the promise of `FoldRows::new`.
            let xs = unsafe { Ptr(row).slice(0, width) };
            InPlaceOp::<A, O>(&mut acc[lane..lane + width], xs, PhantomData).run();
        }
    }
}

/// Combines the lanes of outputs into the first: `Lanes(accumulators, outputs, operation)`.
pub(super) struct Lanes<'a, A, O>(pub &'a mut [A], pub usize, pub PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for Lanes<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        tree_of::<A, O>(self.0, self.1);
    }
}
