//! Folds of rows in the order of [lanes](super::lanes), of many short rows, and of rows that
//! are read, or evaluated, in spans.
//!
//! An operation on the accumulators of one row waits for the one before. Two rows, or two chunks of
//! one row, are therefore folded beside each other. Each keeps its own order.

use super::lanes::{Accumulators, CHUNK, Cascade, LANES, Partial, fold, tree};
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
        let [mut a, mut b] = [(); 2].map(|()| Accumulators([self.1; LANES]));
        let (a, b) = (&mut a.0, &mut b.0);
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
        [*a, *b]
    }
}

/// The accumulators of two chunks, combined.
struct Combined<'a, A, O>(&'a [[A; CHUNK]; 2], A, PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for Combined<'_, A, O> {
    type Out = [A; LANES];
    #[inline(always)]
    fn run(self) -> [A; LANES] {
        let [left, right] = self.0;
        let [mut a, b] = Pair::<A, O>([left, right], self.1, PhantomData).run();
        for l in 0..LANES {
            a[l] = O::f(a[l], b[l]);
        }
        a
    }
}

/// Adds the chunks of a row, or of the next elements of one, to a cascade that has an even number of
/// chunks.
pub(super) fn push_chunks<A: Copy, O: Op2<A, A>>(
    isa: Isa,
    xs: &[A],
    identity: A,
    cascade: &mut Cascade<A, O>,
) {
    let (chunks, rest) = xs.as_chunks::<CHUNK>();
    let (pairs, last) = chunks.as_chunks::<2>();
    for pair in pairs {
        let lanes = isa.dispatch(Combined::<A, O>(pair, identity, PhantomData));
        cascade.push_pair(Partial::from(lanes));
    }
    for chunk in last.iter().map(|chunk| &chunk[..]).chain([rest]).filter(|c| !c.is_empty()) {
        cascade.push(Partial::from(fold::<A, O>(isa, chunk, identity)));
    }
}

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

impl<A: Class, O: Op2<A, A>> Simd for FoldRows<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        match self.2 {
            0..=4 => self.short::<4>(),
            5..=8 => self.short::<8>(),
            9..=16 => self.short::<16>(),
            _ => {
                // SAFETY: the promise of `fold_rows`.
                let row = |i: usize| unsafe { self.0.slice(i as i64 * self.1, self.2) };
                let (pairs, rest) = self.4.as_chunks_mut::<2>();
                let last = 2 * pairs.len();
                for (i, out) in pairs.iter_mut().enumerate() {
                    let rows = [row(2 * i), row(2 * i + 1)];
                    let [mut a, mut b] = Pair::<A, O>(rows, self.3, PhantomData).run();
                    tree::<A, O>(&mut a);
                    tree::<A, O>(&mut b);
                    *out = [a[0].one_nan(), b[0].one_nan()];
                }
                for out in rest {
                    // A row takes as long alone as beside itself.
                    let [mut acc, _] = Pair::<A, O>([row(last); 2], self.3, PhantomData).run();
                    tree::<A, O>(&mut acc);
                    *out = acc[0].one_nan();
                }
            }
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
    isa.dispatch_inline(FoldRows::<A, O>(first, stride, n, identity, out, PhantomData));
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
            spans(at, SPAN.min(n - at), &mut |xs| {
                push_chunks(isa, xs, identity, &mut cascade);
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
