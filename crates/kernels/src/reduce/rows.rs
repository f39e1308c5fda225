//! Folds of rows in the order of [lanes](super::lanes), of many short rows, and of rows that
//! are read, or evaluated, in spans.
//!
//! An operation on the accumulators of one row waits for the one before. Two rows, or two chunks of
//! one row, are therefore folded beside each other. Each keeps its own order.

use super::lanes::{Accumulators, CHUNK, Cascade, LANES, Partial, fold};
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
        let [left, right] = self.0;
        let (left, left_rest) = left.as_chunks::<LANES>();
        let (right, right_rest) = right.as_chunks::<LANES>();
        let (mut a, mut b) = (Accumulators([self.1; LANES]), Accumulators([self.1; LANES]));
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

/// Adds the chunks of a row, or of the next elements of one, to a cascade that has an even number
/// of chunks.
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

impl<A: Class, O: Op2<A, A>> FoldRows<'_, A, O> {
    /// Folds rows of more elements, which have a last part of fewer than [`LANES`] only if `REST`.
    #[inline(always)]
    fn long<const REST: bool>(self) {
        let FoldRows(first, stride, n, identity, out, _) = self;
        let (groups, rest) = out.as_chunks_mut::<TOGETHER>();
        let done = groups.len() * TOGETHER;
        let (pairs, last) = rest.as_chunks_mut::<2>();
        let at = |row: usize| first.0.wrapping_offset((row as i64 * stride) as isize).cast_const();
        // SAFETY: the promise of `fold_rows`.
        unsafe {
            for (i, out) in groups.iter_mut().enumerate() {
                *out =
                    group::<A, O, TOGETHER, REST>(at(i * TOGETHER), stride as isize, n, identity);
            }
            for (i, out) in pairs.iter_mut().enumerate() {
                *out = group::<A, O, 2, true>(at(done + 2 * i), stride as isize, n, identity);
            }
            for out in last {
                // A row takes as long alone as beside itself.
                let row = at(done + 2 * pairs.len());
                [*out, _] = group::<A, O, 2, true>(row, 0, n, identity);
            }
        }
    }
}

/// The rows whose last steps are taken together, so that they do not wait for each other.
const TOGETHER: usize = 8;

/// Folds `R` rows, an even number, that begin `stride` apart. Two rows are folded beside each other
/// (see [`Pair`]). All loops but one count to constants, and only the accumulators of a last part
/// are indexed by a variable, in a copy: so the others are registers.
///
/// # Safety
/// The rows have `n` elements, which nothing writes meanwhile.
#[inline(always)]
unsafe fn group<A: Class, O: Op2<A, A>, const R: usize, const REST: bool>(
    first: *const A,
    stride: isize,
    n: usize,
    identity: A,
) -> [A; R] {
    let mut quads = [[identity; 4]; R];
    let whole = n / LANES * LANES;
    for pair in 0..R / 2 {
        let left = first.wrapping_offset(2 * pair as isize * stride);
        let right = left.wrapping_offset(stride);
        let (mut a, mut b) = ([identity; LANES], [identity; LANES]);
        for at in (0..whole).step_by(LANES) {
            // SAFETY: the caller's promise.
            let (x, y) = unsafe {
                (*left.add(at).cast::<[A; LANES]>(), *right.add(at).cast::<[A; LANES]>())
            };
            for l in 0..LANES {
                a[l] = O::f(a[l], x[l]);
            }
            for l in 0..LANES {
                b[l] = O::f(b[l], y[l]);
            }
        }
        if REST && whole < n {
            let mut kept = [Accumulators(a), Accumulators(b)];
            for (kept, row) in kept.iter_mut().zip([left, right]) {
                // SAFETY: as above.
                let rest = unsafe { Ptr(row.cast_mut()).slice(whole as i64, n - whole) };
                for (a, x) in kept.0.iter_mut().zip(rest) {
                    *a = O::f(*a, *x);
                }
            }
            [Accumulators(a), Accumulators(b)] = kept;
        }
        // Otherwise the compiler arranges the accumulators in pairs of both rows, from the first
        // element on, because the last steps are taken together.
        let mut both = std::hint::black_box([Accumulators(a), Accumulators(b)]);
        for (acc, quad) in both.iter_mut().zip(&mut quads[2 * pair..]) {
            let acc = &mut acc.0;
            for l in 0..LANES / 2 {
                acc[l] = O::f(acc[l], acc[l + LANES / 2]);
            }
            for l in 0..LANES / 4 {
                acc[l] = O::f(acc[l], acc[l + LANES / 4]);
            }
            for l in 0..4 {
                quad[l] = O::f(acc[l], acc[l + 4]);
            }
        }
    }
    let mut out = [identity; R];
    for quad in &mut quads {
        for l in 0..2 {
            quad[l] = O::f(quad[l], quad[l + 2]);
        }
    }
    for (out, quad) in out.iter_mut().zip(&quads) {
        *out = O::f(quad[0], quad[1]).one_nan();
    }
    out
}

impl<A: Class, O: Op2<A, A>> Simd for FoldRows<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        match self.2 {
            0..=4 => self.short::<4>(),
            5..=8 => self.short::<8>(),
            9..=16 => self.short::<16>(),
            n if n.is_multiple_of(LANES) => self.long::<false>(),
            _ => self.long::<true>(),
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
