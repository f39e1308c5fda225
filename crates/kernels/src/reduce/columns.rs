//! The fold of rows of neighbouring outputs, which are read where they are.
//!
//! The rows of one lane are folded together, a tile of columns at a time, whose accumulators are
//! registers where the instruction set has enough of them. A row is too short for the processor to
//! see that the next one follows, and is often on another page. So rows ahead are fetched
//! explicitly.

use super::lanes::{LANES, tree_of};
use crate::isa::{LINE, Simd, prefetch_near};
use crate::pointwise::ops::{InPlaceOp, Op2};
use crate::view::Ptr;
use std::marker::PhantomData;

/// The rows of a lane that are fetched ahead. Rows of one lane are often a power of two apart, and
/// then share few places of the first cache.
const AHEAD: usize = 2;

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

impl<A: Copy, O: Op2<A, A>> FoldRows<'_, A, O> {
    #[inline(always)]
    fn row(&self, i: usize) -> *const A {
        self.rows.0.0.wrapping_offset(i as isize * self.rows.1).cast_const()
    }

    /// The accumulators of the lane of a row.
    #[inline(always)]
    fn lane(&mut self, row: usize) -> &mut [A] {
        &mut self.acc[(self.position + row) % LANES * self.width..][..self.width]
    }

    /// Folds the rows of the lane of row `from`, for as many tiles of `W` columns as there are from
    /// column `at`. Returns the column after them.
    #[inline(always)]
    fn tiles<const W: usize>(&mut self, from: usize, at: usize) -> usize {
        let n = self.rows.2;
        let tiles = (self.width - at) / W;
        for column in (at..).step_by(W).take(tiles) {
            let mut sums = [self.lane(from)[column]; W];
            sums.copy_from_slice(&self.lane(from)[column..column + W]);
            for i in (from..n).step_by(LANES) {
                // Behind the last row of a lane come the first ones of the next lane.
                let next = i + AHEAD * LANES;
                let next = if next < n { next } else { next % LANES + 1 };
                let line = self.row(next).wrapping_add(column).cast::<u8>();
                for byte in (0..size_of::<[A; W]>()).step_by(LINE) {
                    prefetch_near(line.wrapping_add(byte));
                }
                // SAFETY: the promise of `FoldRows::new`.
                let xs = unsafe { *self.row(i).add(column).cast::<[A; W]>() };
                for (sum, x) in sums.iter_mut().zip(xs) {
                    *sum = O::f(*sum, x);
                }
            }
            self.lane(from)[column..column + W].copy_from_slice(&sums);
        }
        at + tiles * W
    }
}

impl<A: Copy, O: Op2<A, A>> Simd for FoldRows<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(mut self) {
        let (n, width) = (self.rows.2, self.width);
        let mut at = 0;
        for from in 0..n.min(LANES) {
            at = self.tiles::<256>(from, 0);
            at = self.tiles::<128>(from, at);
            at = self.tiles::<64>(from, at);
        }
        if at == width {
            return;
        }
        // The columns after the last tile are read in the order of rows, which share cache lines.
        for i in 0..n {
            // SAFETY: the promise of `FoldRows::new`.
            let xs = unsafe { Ptr(self.row(i).cast_mut()).slice(at as i64, width - at) };
            InPlaceOp::<A, O>(&mut self.lane(i)[at..], xs, PhantomData).run();
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
