//! The order of every reduction, fixed by the extent alone.
//!
//! Elements go round-robin to [`LANES`] accumulators, within chunks of [`CHUNK`]; chunks are combined pairwise, as a binary
//! counter carries; at the end the lanes are combined as a tree, upper half onto lower. Threads take whole chunks or whole
//! rows. A partial result of `w` columns at once is `LANES` groups of `w` accumulators; of one row, `w` is 1.

use crate::isa::{Isa, Simd};
use crate::pointwise::ops::Op2;
use smallvec::SmallVec;
use std::marker::PhantomData;

/// Accumulators of one chunk.
pub(crate) const LANES: usize = 32;
/// Elements of one chunk.
pub(crate) const CHUNK: usize = 2048;

/// The accumulators of one chunk.
pub(crate) type Partial<A> = SmallVec<[A; LANES]>;

struct Fold<'a, A, O>(&'a [A], A, PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for Fold<'_, A, O> {
    type Out = [A; LANES];
    #[inline(always)]
    fn run(self) -> [A; LANES] {
        let mut acc = [self.1; LANES];
        let (rows, rest) = self.0.as_chunks::<LANES>();
        for row in rows {
            for l in 0..LANES {
                acc[l] = O::f(acc[l], row[l]);
            }
        }
        for (a, x) in acc.iter_mut().zip(rest) {
            *a = O::f(*a, *x);
        }
        acc
    }
}

/// The accumulators of one chunk of a row.
pub(crate) fn fold<A: Copy, O: Op2<A, A>>(isa: Isa, chunk: &[A], identity: A) -> [A; LANES] {
    isa.dispatch(Fold::<A, O>(chunk, identity, PhantomData))
}

/// `acc[i] = acc[i] op x[i]`.
pub(crate) struct Zip<'a, A, O>(pub &'a mut [A], pub &'a [A], pub PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for Zip<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (a, x) in self.0.iter_mut().zip(self.1) {
            *a = O::f(*a, *x);
        }
    }
}

/// Combines chunks in order: two partial results of equal weight at once.
pub(crate) struct Cascade<A, O> {
    stack: SmallVec<[(u32, Partial<A>); 2]>,
    op: PhantomData<O>,
}

impl<A: Copy, O: Op2<A, A>> Cascade<A, O> {
    pub fn new() -> Self {
        Cascade { stack: SmallVec::new(), op: PhantomData }
    }

    fn combine(left: &mut [A], right: &[A]) {
        Zip::<A, O>(left, right, PhantomData).run();
    }

    pub fn push(&mut self, mut partial: Partial<A>) {
        let mut weight = 0;
        while self.stack.last().is_some_and(|(w, _)| *w == weight) {
            if let Some((_, mut left)) = self.stack.pop() {
                Self::combine(&mut left, &partial);
                partial = left;
                weight += 1;
            }
        }
        self.stack.push((weight, partial));
    }

    /// Everything pushed: one value per column, in front; nothing if nothing was.
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

/// Combines the lanes, of however many columns, onto the first.
pub(crate) fn tree<A: Copy, O: Op2<A, A>>(acc: &mut [A]) {
    let mut half = acc.len() / 2;
    let columns = acc.len() / LANES;
    while half >= columns && half > 0 {
        let (low, high) = acc.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(&*high).take(half) {
            *a = O::f(*a, *b);
        }
        half /= 2;
    }
}

/// A whole row at once.
pub(crate) fn row<A: Copy, O: Op2<A, A>>(isa: Isa, xs: &[A], identity: A) -> A {
    if xs.len() <= CHUNK {
        let mut acc = fold::<A, O>(isa, xs, identity);
        tree::<A, O>(&mut acc);
        return acc[0];
    }
    let mut cascade = Cascade::<A, O>::new();
    xs.chunks(CHUNK).for_each(|c| cascade.push(Partial::from(fold::<A, O>(isa, c, identity))));
    cascade.finish().first().copied().unwrap_or(identity)
}
