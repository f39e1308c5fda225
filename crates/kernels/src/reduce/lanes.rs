//! The order in which a reduction combines elements. It depends only on the number of elements, so
//! that bits do not depend on layout, instruction set or threads.
//!
//! 1. Elements are divided into chunks of [`CHUNK`]. Within a chunk, element `i` is added to
//!    accumulator (lane) `i % LANES`, which vectorises without reordering.
//! 2. Chunks are combined lane by lane as in pairwise summation (Higham 1993): [`Cascade`] combines
//!    two partial results of equal weight, as a binary counter carries. It needs O(log chunks)
//!    memory.
//! 3. Finally the lanes are combined as a binary tree, the upper half onto the lower half.
//!
//! For a sum of `n` elements, the rounding error grows with `CHUNK / LANES + log2(n / CHUNK) +
//! log2(LANES)` additions instead of `n`.
//!
//! The partial result of a block of `w` columns has `LANES` groups of `w` accumulators. A row is
//! the case `w = 1`.

use crate::isa::{Isa, Simd};
use crate::math::Float;
use crate::pointwise::ops::{Add, InPlaceOp, Op2};
use smallvec::SmallVec;
use std::marker::PhantomData;

/// The number of accumulators of a chunk.
pub(crate) const LANES: usize = 32;
/// The number of elements of a chunk.
pub(crate) const CHUNK: usize = 2048;

/// The accumulators of one chunk.
pub(crate) type Partial<A> = SmallVec<[A; LANES]>;

/// Folds `f(x)` over a chunk: `Fold(elements, mapped, identity, f, operation)`. If `KEEP`, also
/// stores each `f(x)` in `mapped`.
struct Fold<'a, A, O, F, const KEEP: bool>(&'a [A], &'a mut [A], A, F, PhantomData<O>);

impl<A: Copy, O: Op2<A, A>, F: Fn(A) -> A, const KEEP: bool> Simd for Fold<'_, A, O, F, KEEP> {
    type Out = [A; LANES];
    #[inline(always)]
    fn run(self) -> [A; LANES] {
        let mut acc = Accumulators([self.2; LANES]);
        let acc = &mut acc.0;
        let (rows, rest) = self.0.as_chunks::<LANES>();
        let (kept, kept_rest) = self.1.as_chunks_mut::<LANES>();
        for (i, row) in rows.iter().enumerate() {
            let mut mapped = *row;
            for x in &mut mapped {
                *x = (self.3)(*x);
            }
            if KEEP {
                kept[i] = mapped;
            }
            for l in 0..LANES {
                acc[l] = O::f(acc[l], mapped[l]);
            }
        }
        for (i, (a, x)) in acc.iter_mut().zip(rest).enumerate() {
            let y = (self.3)(*x);
            if KEEP {
                kept_rest[i] = y;
            }
            *a = O::f(*a, y);
        }
        *acc
    }
}

/// Accumulators in memory, each vector in one cache line. The compiler keeps them in registers, but
/// stores them at each step, because a variable indexes them after the last. Across two lines,
/// where the stack may happen to lie, that takes twice the time of all else.
#[repr(align(64))]
pub(super) struct Accumulators<A>(pub [A; LANES]);

/// The most elements of a short row. It has a lane for each, which stay in registers.
const SHORT: usize = 16;

/// [`Fold`] and the tree of a row of at most [`SHORT`] elements. The lanes that no element reaches
/// change no bit of those that they are combined with, so they are left out.
struct ShortFold<'a, A, O, F, const KEEP: bool>(&'a [A], &'a mut [A], A, F, PhantomData<O>);

impl<A: Copy, O: Op2<A, A>, F: Fn(A) -> A, const KEEP: bool> ShortFold<'_, A, O, F, KEEP> {
    /// The fold in so many lanes, a power of two.
    #[inline(always)]
    fn lanes<const W: usize>(self) -> A {
        let ShortFold(xs, mapped, identity, f, _) = self;
        let mut values = padded::<A, W>(xs, identity);
        for x in &mut values {
            *x = f(*x);
        }
        if KEEP {
            for (to, y) in mapped.iter_mut().zip(values) {
                *to = y;
            }
        }
        short_tree::<A, O, W>(values, xs.len(), identity)
    }
}

impl<A: Copy, O: Op2<A, A>, F: Fn(A) -> A, const KEEP: bool> Simd for ShortFold<'_, A, O, F, KEEP> {
    type Out = A;
    #[inline(always)]
    fn run(self) -> A {
        match self.0.len() {
            0..=4 => self.lanes::<4>(),
            5..=8 => self.lanes::<8>(),
            _ => self.lanes::<SHORT>(),
        }
    }
}

/// The elements of a short row, and others after them.
#[inline(always)]
fn padded<A: Copy, const W: usize>(xs: &[A], other: A) -> [A; W] {
    if let Some(whole) = xs.first_chunk::<W>() {
        return *whole;
    }
    let mut all = [other; W];
    for (i, to) in all.iter_mut().enumerate() {
        if i < xs.len() {
            *to = xs[i];
        }
    }
    all
}

/// Folds and combines the first `n` of the values of a short row, each in a lane.
#[inline(always)]
fn short_tree<A: Copy, O: Op2<A, A>, const W: usize>(values: [A; W], n: usize, identity: A) -> A {
    let mut acc = [identity; W];
    for (i, (acc, x)) in acc.iter_mut().zip(values).enumerate() {
        if i < n {
            *acc = O::f(*acc, x);
        }
    }
    let mut half = W / 2;
    while half > 0 {
        for l in 0..half {
            acc[l] = O::f(acc[l], acc[l + half]);
        }
        half /= 2;
    }
    acc[0]
}

/// Combines the lanes of one row.
struct Tree<A, O>([A; LANES], PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for Tree<A, O> {
    type Out = A;
    #[inline(always)]
    fn run(mut self) -> A {
        tree::<A, O>(&mut self.0);
        self.0[0]
    }
}

/// The accumulators of one chunk of a row.
pub(crate) fn fold<A: Copy, O: Op2<A, A>>(isa: Isa, chunk: &[A], identity: A) -> [A; LANES] {
    isa.dispatch(Fold::<A, O, _, false>(chunk, &mut [], identity, |x| x, PhantomData))
}

/// Combines the partial results of chunks in order, two of equal weight at a time.
pub(crate) struct Cascade<A, O> {
    /// Partial results of `2^weight` chunks, with strictly decreasing weights.
    stack: SmallVec<[(u32, Partial<A>); 2]>,
    // `fn() -> O` is `Send` and `Sync` for every `O`.
    op: PhantomData<fn() -> O>,
}

impl<A: Copy, O: Op2<A, A>> Cascade<A, O> {
    pub fn new() -> Self {
        Cascade { stack: SmallVec::new(), op: PhantomData }
    }

    fn combine(left: &mut [A], right: &[A]) {
        InPlaceOp::<A, O>(left, right, PhantomData).run();
    }

    /// Adds the next chunk.
    pub fn push(&mut self, partial: Partial<A>) {
        self.push_all(0, partial);
    }

    /// Adds the next two chunks, already combined. The number of chunks before is even.
    pub fn push_pair(&mut self, partial: Partial<A>) {
        self.push_all(1, partial);
    }

    /// Adds the chunks of `next`, with the same result as if they had been pushed here.
    ///
    /// This requires that all parts, except the last, have the same number of chunks and that it is
    /// a power of two. Only then does `next` combine the same pairs.
    pub fn append(&mut self, next: Cascade<A, O>) {
        next.stack.into_iter().for_each(|(weight, partial)| self.push_all(weight, partial));
    }

    /// Adds the partial result of the next `2^weight` chunks.
    fn push_all(&mut self, mut weight: u32, mut partial: Partial<A>) {
        while self.stack.last().is_some_and(|(w, _)| *w == weight) {
            if let Some((_, mut left)) = self.stack.pop() {
                Self::combine(&mut left, &partial);
                partial = left;
                weight += 1;
            }
        }
        self.stack.push((weight, partial));
    }

    /// Combines everything, including the lanes. The first `w` elements are the results of the `w`
    /// columns. Empty if nothing was pushed.
    pub fn finish(mut self) -> Partial<A> {
        let Some((_, mut acc)) = self.stack.pop() else { return Partial::new() };
        while let Some((_, mut left)) = self.stack.pop() {
            Self::combine(&mut left, &acc);
            acc = left;
        }
        tree::<A, O>(&mut acc);
        acc
    }
}

/// Combines the lanes of all columns into the first lane.
#[inline(always)]
pub(crate) fn tree<A: Copy, O: Op2<A, A>>(acc: &mut [A]) {
    tree_of::<A, O>(acc, acc.len() / LANES);
}

/// As [`tree`], of a power of two of lanes. Those that no element reaches may be missing.
#[inline(always)]
pub(crate) fn tree_of<A: Copy, O: Op2<A, A>>(acc: &mut [A], columns: usize) {
    let mut half = acc.len() / 2;
    while half >= columns && half > 0 {
        let (low, high) = acc.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(&*high).take(half) {
            *a = O::f(*a, *b);
        }
        half /= 2;
    }
}

/// Reduces a whole row.
pub(crate) fn row<A: Copy, O: Op2<A, A>>(isa: Isa, xs: &[A], identity: A) -> A {
    row_of::<A, O, _>(isa, xs, identity, |x| x)
}

/// Reduces `f(x)` over a whole row.
pub(crate) fn row_of<A: Copy, O: Op2<A, A>, F: Fn(A) -> A + Copy>(
    isa: Isa,
    xs: &[A],
    identity: A,
    f: F,
) -> A {
    if xs.len() <= SHORT {
        return isa.dispatch(ShortFold::<A, O, F, false>(xs, &mut [], identity, f, PhantomData));
    }
    let of = |c| Fold::<A, O, F, false>(c, &mut [], identity, f, PhantomData);
    match xs.len() <= CHUNK {
        true => isa.dispatch(Tree::<A, O>(isa.dispatch(of(xs)), PhantomData)),
        false => combined::<A, O, 1>(xs.chunks(CHUNK).map(|c| [isa.dispatch(of(c))]), identity)[0],
    }
}

/// As [`row_of`]; also stores each `f(x)` in `out`, which has the row's length.
pub(crate) fn row_into<A: Copy, O: Op2<A, A>, F: Fn(A) -> A + Copy>(
    isa: Isa,
    xs: &[A],
    out: &mut [A],
    identity: A,
    f: F,
) -> A {
    if xs.len() <= SHORT {
        return isa.dispatch(ShortFold::<A, O, F, true>(xs, out, identity, f, PhantomData));
    }
    let of = |c, o| Fold::<A, O, F, true>(c, o, identity, f, PhantomData);
    match xs.len() <= CHUNK {
        true => isa.dispatch(Tree::<A, O>(isa.dispatch(of(xs, out)), PhantomData)),
        false => combined::<A, O, 1>(
            xs.chunks(CHUNK).zip(out.chunks_mut(CHUNK)).map(|(c, o)| [isa.dispatch(of(c, o))]),
            identity,
        )[0],
    }
}

/// The lanes of the sums of `x - from` and `(x - from)^2`, in one pass over a chunk.
struct Deviations<'a, A>(&'a [A], A);

impl<A: Float> Simd for Deviations<'_, A> {
    type Out = [[A; LANES]; 2];
    #[inline(always)]
    fn run(self) -> [[A; LANES]; 2] {
        let [mut sums, mut squares] = [(); 2].map(|()| Accumulators([A::ZERO; LANES]));
        let (sums, squares) = (&mut sums.0, &mut squares.0);
        let (rows, rest) = self.0.as_chunks::<LANES>();
        for row in rows {
            for l in 0..LANES {
                let d = row[l] - self.1;
                sums[l] = sums[l] + d;
                squares[l] = squares[l] + d * d;
            }
        }
        for ((sum, square), x) in sums.iter_mut().zip(&mut *squares).zip(rest) {
            let d = *x - self.1;
            *sum = *sum + d;
            *square = *square + d * d;
        }
        [*sums, *squares]
    }
}

/// The sums of [`Deviations`] over a row of at most [`SHORT`] elements.
struct ShortDeviations<'a, A>(&'a [A], A);

impl<A: Float> ShortDeviations<'_, A>
where
    Add: Op2<A, A>,
{
    /// The sums in so many lanes, a power of two.
    #[inline(always)]
    fn lanes<const W: usize>(self) -> [A; 2] {
        let ShortDeviations(xs, from) = self;
        let mut values = padded::<A, W>(xs, from);
        let mut squares = values;
        for (d, square) in values.iter_mut().zip(&mut squares) {
            *d = *d - from;
            *square = *d * *d;
        }
        let n = xs.len();
        [short_tree::<A, Add, W>(values, n, A::ZERO), short_tree::<A, Add, W>(squares, n, A::ZERO)]
    }
}

impl<A: Float> Simd for ShortDeviations<'_, A>
where
    Add: Op2<A, A>,
{
    type Out = [A; 2];
    #[inline(always)]
    fn run(self) -> [A; 2] {
        match self.0.len() {
            0..=4 => self.lanes::<4>(),
            5..=8 => self.lanes::<8>(),
            _ => self.lanes::<SHORT>(),
        }
    }
}

/// The sums of `x - from` and `(x - from)^2` over a row. If `from` is an approximate mean, the
/// first sum corrects the mean and the second gives the variance: the corrected two-pass algorithm
/// (Chan, Golub and LeVeque 1983).
pub(crate) fn deviations<A: Float>(isa: Isa, xs: &[A], from: A) -> [A; 2]
where
    Add: Op2<A, A>,
{
    if xs.len() <= SHORT {
        return isa.dispatch(ShortDeviations(xs, from));
    }
    let of = |c| isa.dispatch(Deviations(c, from));
    match xs.len() <= CHUNK {
        true => of(xs).map(|lanes| isa.dispatch(Tree::<A, Add>(lanes, PhantomData))),
        false => combined::<A, Add, 2>(xs.chunks(CHUNK).map(of), A::ZERO),
    }
}

/// The mean of a row, and the sum of its squared deviations from it: the corrected two-pass
/// algorithm (Chan, Golub and LeVeque 1983). The mean of the deviations corrects the rounding error
/// of the mean. Without the correction, a row whose deviations are as small as that error would
/// become noise.
pub(crate) fn moments<A: Float>(isa: Isa, xs: &[A]) -> [A; 2]
where
    Add: Op2<A, A>,
{
    let n = A::from_f64(xs.len() as f64);
    let mut near = row::<A, Add>(isa, xs, A::ZERO) / n;
    if near.abs() == A::INFINITY {
        // The sum overflowed, or an element is infinite. Dividing first avoids the overflow.
        near = row_of::<A, Add, _>(isa, xs, A::ZERO, |x: A| x / n);
    }
    let [sum, squares] = deviations(isa, xs, near);
    // The rounding error of the mean.
    let lost = sum / n;
    let mean = if lost.abs() < A::INFINITY { near + lost } else { near };
    let squares = match sum * lost {
        excess if excess < A::INFINITY && squares < A::INFINITY => squares - excess,
        // The squares of deviations from `near` overflow. Those from the mean may not.
        _ => deviations(isa, xs, mean)[1],
    };
    [mean, if squares < A::ZERO { A::ZERO } else { squares }]
}

/// Combines chunks that each have the lanes of `N` independent results.
fn combined<A: Copy, O: Op2<A, A>, const N: usize>(
    chunks: impl Iterator<Item = [[A; LANES]; N]>,
    identity: A,
) -> [A; N] {
    let mut cascades = [(); N].map(|()| Cascade::<A, O>::new());
    for chunk in chunks {
        for (cascade, lanes) in cascades.iter_mut().zip(chunk) {
            cascade.push(Partial::from(lanes));
        }
    }
    cascades.map(|c| c.finish().first().copied().unwrap_or(identity))
}
