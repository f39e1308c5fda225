//! Folds of rows in the order of [lanes](super::lanes), for loop nests: of many short rows, and of
//! rows that are read, or evaluated, in spans.
//!
//! An operation on the accumulators of one row waits for the one before. Two rows, or two chunks of
//! one row, are therefore folded beside each other. Each keeps its own order.

use super::lanes::{CHUNK, Cascade, LANES, Partial, fold, tree};
use crate::element::Class;
use crate::isa::{Isa, Simd};
use crate::pointwise::ops::Op2;
use crate::thread_pool;
use crate::view::Ptr;
use std::marker::PhantomData;

/// The accumulators of two rows or chunks of one length, which are folded beside each other: one
/// alone waits for the latency of its operation.
struct Pair<'a, A, O>([&'a [A]; 2], A, PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for Pair<'_, A, O> {
    type Out = [[A; LANES]; 2];
    #[inline(always)]
    fn run(self) -> [[A; LANES]; 2] {
        let [(left, left_rest), (right, right_rest)] = self.0.map(|xs| xs.as_chunks::<LANES>());
        let (mut a, mut b) = ([self.1; LANES], [self.1; LANES]);
        for (x, y) in left.iter().zip(right) {
            let (x, y) = (*x, *y);
            for l in 0..LANES {
                a[l] = O::f(a[l], x[l]);
            }
            for l in 0..LANES {
                b[l] = O::f(b[l], y[l]);
            }
        }
        for (a, x) in a.iter_mut().zip(left_rest) {
            *a = O::f(*a, *x);
        }
        for (b, y) in b.iter_mut().zip(right_rest) {
            *b = O::f(*b, *y);
        }
        [a, b]
    }
}

/// The rows whose accumulators are in memory at once, an even number.
const BATCH: usize = 8;

/// `FoldRows(first, stride, n, identity, out, operation)`: see [`fold_rows`].
struct FoldRows<'a, A, O>(Ptr<A>, i64, usize, A, &'a mut [A], PhantomData<O>);

impl<A: Class, O: Op2<A, A>> FoldRows<'_, A, O> {
    /// Folds rows of at most `W` elements, a power of two. The lanes that no element reaches change
    /// no bit of those that they are combined with, so they are left out.
    #[inline(always)]
    fn short<const W: usize>(self) {
        for (i, out) in (0..).zip(self.4) {
            // SAFETY: the promise of `fold_rows`.
            let row = unsafe { self.0.slice(i * self.1, self.2) };
            let mut acc = [self.3; W];
            for (a, x) in acc.iter_mut().zip(row) {
                *a = O::f(*a, *x);
            }
            let mut half = W / 2;
            while half > 0 {
                for lane in 0..half {
                    acc[lane] = O::f(acc[lane], acc[lane + half]);
                }
                half /= 2;
            }
            *out = acc[0].one_nan();
        }
    }
}

impl<A: Class, O: Op2<A, A>> FoldRows<'_, A, O> {
    /// Folds rows of more elements. The accumulators of a batch are in memory before lanes are
    /// combined: otherwise the compiler divides the vectors of the accumulators as that needs them.
    #[inline(always)]
    fn long(self) {
        let mut batch = [[self.3; LANES]; BATCH];
        let (mut first, last) = (0, self.4.len().saturating_sub(1));
        // SAFETY: the promise of `fold_rows`.
        let row = |i: usize| unsafe { self.0.slice(i.min(last) as i64 * self.1, self.2) };
        for out in self.4.chunks_mut(BATCH) {
            for (i, pair) in batch[..out.len().next_multiple_of(2)].chunks_mut(2).enumerate() {
                // A row without another takes as long alone as beside itself.
                let rows = [row(first + 2 * i), row(first + 2 * i + 1)];
                pair.copy_from_slice(&Pair::<A, O>(rows, self.3, PhantomData).run());
            }
            for (out, acc) in out.iter_mut().zip(&mut batch) {
                tree::<A, O>(acc);
                *out = acc[0].one_nan();
            }
            first += out.len();
        }
    }
}

impl<A: Class, O: Op2<A, A>> Simd for FoldRows<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        match self.2 {
            0..=4 => self.short::<4>(),
            5..=8 => self.short::<8>(),
            9..=16 => self.short::<16>(),
            _ => self.long(),
        }
    }
}

/// Reduces rows of `n` elements, at most [`CHUNK`], one for each element of `out`. A NaN is the one
/// NaN.
///
/// # Safety
/// The rows begin at `first`, `stride` elements apart. Nothing writes them meanwhile.
pub(crate) unsafe fn fold_rows<A: Class, O: Op2<A, A>>(
    isa: Isa,
    first: Ptr<A>,
    stride: i64,
    n: usize,
    identity: A,
    out: &mut [A],
) {
    isa.dispatch(FoldRows::<A, O>(first, stride, n, identity, out, PhantomData));
}

/// Calls a function with the elements of a row from an index, which are as many as asked for:
/// [`SPAN`] at most.
pub(crate) type Spans<'a, A> = &'a (dyn Fn(usize, usize, &mut dyn FnMut(&[A])) + Sync);

/// The elements of two chunks.
pub(crate) const SPAN: usize = 2 * CHUNK;

/// Reduces a row of `n` elements that are read in spans, on the thread pool if there are many. A
/// NaN is the one NaN.
pub(crate) fn row_in_spans<A: Class, O: Op2<A, A>>(
    isa: Isa,
    n: usize,
    identity: A,
    spans: Spans<'_, A>,
) -> A {
    // a power of two of chunks, as `Cascade::append` requires
    const GROUP: usize = 16 * CHUNK;
    let group = |group: usize| {
        let mut cascade = Cascade::<A, O>::new();
        for at in (group * GROUP..n.min((group + 1) * GROUP)).step_by(SPAN) {
            spans(at, SPAN.min(n - at), &mut |xs| match xs.split_at_checked(CHUNK) {
                Some((left, right)) if right.len() == CHUNK => {
                    let both = Pair::<A, O>([left, right], identity, PhantomData);
                    for lanes in isa.dispatch(both) {
                        cascade.push(Partial::from(lanes));
                    }
                }
                _ => xs.chunks(CHUNK).for_each(|chunk| {
                    cascade.push(Partial::from(fold::<A, O>(isa, chunk, identity)));
                }),
            });
        }
        cascade
    };
    let mut all = Cascade::new();
    match n <= GROUP {
        true => all = group(0),
        false => thread_pool::map(n.div_ceil(GROUP), group).into_iter().for_each(|c| all.append(c)),
    }
    all.finish().first().copied().unwrap_or(identity).one_nan()
}
