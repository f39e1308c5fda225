//! Scans in the order of blocks ([`maquette_ir::loops::scan`]), of lines that pass through a part
//! at a time.
//!
//! What a line needs of its earlier values is a few totals for each level of the recursion
//! ([`Totals`]). So a line is read and written once, however long it is. The chains of blocks are
//! independent of each other: those of a line ([`scan_line`]) or of short lines ([`scan_lines`]) run
//! interleaved, and those of lines that lie side by side run in vectors ([`scan_rows`]).

use crate::element::Class;
use crate::isa::{Isa, Simd};
use crate::pointwise::ops::Op2;
use maquette_ir::loops::scan::BLOCK;
use std::marker::PhantomData;

/// The chains that run interleaved, so that one is not bound by the latency of its operation.
pub(super) const SIDE: usize = 8;
/// The values of a part of a line, a multiple of [`BLOCK`]: they fit the first-level cache.
pub(super) const PART: usize = 2048;

/// The totals of the blocks so far of `W` lines.
pub(crate) struct Totals<A, const W: usize> {
    /// The scanned total of all blocks. Before the first, what the line begins with.
    before: Option<[A; W]>,
    level: Level<A, W>,
}

/// The current block of a level of the recursion. Its values are the totals of the level below.
struct Level<A, const W: usize> {
    /// The values so far.
    count: usize,
    /// The end of the chain of the block's values.
    chain: [A; W],
    /// What the line begins with.
    first: Option<A>,
    /// The scanned total of the level's earlier blocks. Before the first, what the line begins
    /// with.
    before: Option<[A; W]>,
    above: Option<Box<Level<A, W>>>,
}

impl<A: Class, const W: usize> Totals<A, W> {
    /// Those of lines that begin with `first`: the identity of the operation, unless it changes no
    /// bit of a value.
    #[inline(always)]
    pub fn new(first: Option<A>) -> Totals<A, W> {
        Totals { before: first.map(|first| [first; W]), level: Level::new(first) }
    }

    /// Adds the total of the next whole block.
    #[inline(always)]
    fn add<O: Op2<A, A>>(&mut self, total: &[A; W]) {
        self.before = Some(self.level.add::<O>(total));
    }
}

impl<A: Class, const W: usize> Level<A, W> {
    #[inline(always)]
    fn new(first: Option<A>) -> Level<A, W> {
        let before = first.map(|first| [first; W]);
        Level { count: 0, chain: [A::default(); W], first, before, above: None }
    }

    /// Adds a value, and scans it.
    #[inline(always)]
    fn add<O: Op2<A, A>>(&mut self, value: &[A; W]) -> [A; W] {
        self.chain = if self.count == 0 { *value } else { both::<A, O, W>(&self.chain, value) };
        self.count += 1;
        let scanned = match &self.before {
            Some(before) => both::<A, O, W>(before, &self.chain),
            None => self.chain,
        };
        if self.count == BLOCK {
            self.end_block::<O>();
        }
        scanned
    }

    /// Scans the total of a whole block. A function of its own, since it is rare and recurs.
    #[cold]
    fn end_block<O: Op2<A, A>>(&mut self) {
        let first = self.first;
        let above = self.above.get_or_insert_with(|| Box::new(Level::new(first)));
        self.before = Some(above.add::<O>(&self.chain));
        self.count = 0;
    }
}

#[inline(always)]
fn both<A: Class, O: Op2<A, A>, const W: usize>(a: &[A; W], b: &[A; W]) -> [A; W] {
    let mut both = *a;
    both.iter_mut().zip(b).for_each(|(a, b)| *a = O::f(*a, *b));
    both
}

/// Scans the next values of a line in place. All but the last values of a line are whole blocks.
pub(crate) fn scan_line<A: Class, O: Op2<A, A>>(
    isa: Isa,
    values: &mut [A],
    totals: &mut Totals<A, 1>,
) {
    for part in values.chunks_mut(PART) {
        isa.dispatch(Line::<A, O>(part, totals, PhantomData));
    }
}

/// Scans whole lines of `len` values, one after the other in `values`, in place. They begin with
/// `first`.
pub(super) fn scan_lines<A: Class, O: Op2<A, A>>(
    isa: Isa,
    values: &mut [A],
    len: usize,
    first: Option<A>,
) {
    isa.dispatch(Lines::<A, O>(values, len, first, PhantomData));
}

/// Scans the next block of `W` lines in place. A row of `rows` is a value of each line.
pub(super) fn scan_rows<A: Class, O: Op2<A, A>, const W: usize>(
    isa: Isa,
    rows: &mut [[A; W]],
    totals: &mut Totals<A, W>,
) {
    isa.dispatch(Rows::<A, O, W>(rows, totals, PhantomData));
}

struct Line<'a, A, O>(&'a mut [A], &'a mut Totals<A, 1>, PhantomData<O>);
struct Lines<'a, A, O>(&'a mut [A], usize, Option<A>, PhantomData<O>);
struct Rows<'a, A, O, const W: usize>(&'a mut [[A; W]], &'a mut Totals<A, W>, PhantomData<O>);

impl<A: Class, O: Op2<A, A>> Simd for Line<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Line(values, totals, _) = self;
        let (groups, rest) = values.as_chunks_mut::<{ SIDE * BLOCK }>();
        for group in groups {
            let mut ends: [A; SIDE] = std::array::from_fn(|k| group[k * BLOCK]);
            for i in 1..BLOCK {
                for (k, end) in ends.iter_mut().enumerate() {
                    let value = &mut group[k * BLOCK + i];
                    *end = O::f(*end, *value);
                    *value = *end;
                }
            }
        }
        rest.chunks_mut(BLOCK).for_each(chain::<A, O>);
        continued::<A, O>(values, totals, true);
    }
}

impl<A: Class, O: Op2<A, A>> Simd for Lines<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Lines(values, len, first, _) = self;
        let mut groups = values.chunks_exact_mut(SIDE * len);
        for group in &mut groups {
            for from in (0..len).step_by(BLOCK) {
                let to = len.min(from + BLOCK);
                let mut lines = group.chunks_exact_mut(len);
                let mut blocks: [&mut [A]; SIDE] =
                    std::array::from_fn(|_| &mut lines.next().unwrap_or_default()[from..to]);
                let mut ends = blocks.each_ref().map(|block| block[0]);
                for i in 1..to - from {
                    for (block, end) in blocks.iter_mut().zip(&mut ends) {
                        *end = O::f(*end, block[i]);
                        block[i] = *end;
                    }
                }
            }
        }
        for line in groups.into_remainder().chunks_mut(len) {
            line.chunks_mut(BLOCK).for_each(chain::<A, O>);
        }
        for line in values.chunks_mut(len) {
            continued::<A, O>(line, &mut Totals::new(first), false);
        }
    }
}

impl<A: Class, O: Op2<A, A>, const W: usize> Simd for Rows<'_, A, O, W> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Rows(rows, totals, _) = self;
        let Some((first, rest)) = rows.split_first_mut() else { return };
        let mut end = *first;
        for row in rest {
            end = both::<A, O, W>(&end, row);
            *row = end;
        }
        match totals.before {
            Some(before) => rows.iter_mut().for_each(|row| {
                *row = both::<A, O, W>(&before, row).map(A::one_nan);
            }),
            None => rows.iter_mut().for_each(|row| *row = row.map(A::one_nan)),
        }
        if rows.len() == BLOCK {
            totals.add::<O>(&end);
        }
    }
}

/// Combines each value of a block with those before it.
#[inline(always)]
fn chain<A: Class, O: Op2<A, A>>(block: &mut [A]) {
    let Some((end, rest)) = block.split_first_mut() else { return };
    let mut end = *end;
    for value in rest {
        end = O::f(end, *value);
        *value = end;
    }
}

/// Combines the chains of blocks with the scanned totals of the blocks before them.
/// `goes_on` says whether the line has more values.
#[inline(always)]
fn continued<A: Class, O: Op2<A, A>>(values: &mut [A], totals: &mut Totals<A, 1>, goes_on: bool) {
    let needed = if goes_on { values.len() } else { values.len().saturating_sub(1) } / BLOCK;
    for (i, block) in values.chunks_mut(BLOCK).enumerate() {
        let end = block.last().copied().filter(|_| i < needed);
        match totals.before {
            Some([before]) => {
                block.iter_mut().for_each(|x| *x = O::f(before, *x).one_nan());
            }
            None => block.iter_mut().for_each(|x| *x = x.one_nan()),
        }
        if let Some(end) = end {
            totals.add::<O>(&[end]);
        }
    }
}
