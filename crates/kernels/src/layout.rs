//! Iteration over several strided operands at once.
//!
//! [`Loops`] normalizes a loop nest: it drops dimensions of size 1, sorts the others by stride, and
//! merges neighbours that are contiguous in every operand. Contiguous operands thus become one long
//! loop. Kernels walk the nest in runs along the innermost dimension.

use crate::view::Dims;
use smallvec::SmallVec;

/// A loop nest over several operands, outermost dimension first. It has at least one dimension.
#[derive(Clone, Debug)]
pub(crate) struct Loops {
    pub sizes: Dims,
    /// One list of strides per operand.
    pub strides: SmallVec<[Dims; 4]>,
}

impl Loops {
    /// Normalizes the loops over `sizes`; see the [module](self). The strides of the first operand
    /// take precedence in sorting. Without `sort`, dimensions keep their logical order.
    pub fn new<'s>(
        sizes: &[i64],
        operands: impl IntoIterator<Item = &'s [i64]>,
        sort: bool,
    ) -> Loops {
        let strides: SmallVec<[&[i64]; 8]> = operands.into_iter().collect();
        let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).filter(|d| sizes[*d] != 1).collect();
        if sort {
            // An insertion sort, which is stable. The first operand with two different strides
            // decides. A stride of 0 (an expanded dimension) does not count.
            let before = |a: usize, b: usize| {
                strides
                    .iter()
                    .map(|s| (s[a].abs(), s[b].abs()))
                    .find(|(x, y)| *x != 0 && *y != 0 && x != y)
                    .is_some_and(|(x, y)| x > y)
            };
            for i in 1..order.len() {
                let mut j = i;
                while j > 0 && before(order[j], order[j - 1]) {
                    order.swap(j, j - 1);
                    j -= 1;
                }
            }
        }
        let mut out =
            Loops { sizes: Dims::new(), strides: strides.iter().map(|_| Dims::new()).collect() };
        for &d in &order {
            let last = out.sizes.len().wrapping_sub(1);
            let merges = !out.sizes.is_empty()
                && strides
                    .iter()
                    .zip(&out.strides)
                    .all(|(s, o)| o[last] == s[d].wrapping_mul(sizes[d]));
            if merges {
                out.sizes[last] = out.sizes[last].wrapping_mul(sizes[d]);
                strides.iter().zip(&mut out.strides).for_each(|(s, o)| o[last] = s[d]);
            } else {
                out.sizes.push(sizes[d]);
                strides.iter().zip(&mut out.strides).for_each(|(s, o)| o.push(s[d]));
            }
        }
        if out.sizes.is_empty() {
            out.sizes.push(1);
            out.strides.iter_mut().for_each(|o| o.push(0));
        }
        out
    }

    /// A single loop of `n` iterations, with the given stride of each operand.
    pub fn line<const K: usize>(n: usize, strides: [usize; K]) -> Loops {
        Loops {
            sizes: smallvec::smallvec![n as i64],
            strides: strides.iter().map(|s| smallvec::smallvec![*s as i64]).collect(),
        }
    }

    pub fn numel(&self) -> usize {
        crate::view::numel(&self.sizes)
    }

    pub fn inner_size(&self) -> usize {
        self.sizes.last().map_or(1, |s| *s as usize)
    }

    pub fn inner_stride(&self, operand: usize) -> i64 {
        self.strides[operand].last().copied().unwrap_or(0)
    }

    /// The offset in an operand of the element with flat index `flat`.
    pub fn offset(&self, operand: usize, flat: usize) -> i64 {
        offset(&self.sizes, &self.strides[operand], flat)
    }

    /// Calls `f(position, offset, length)` for each run along the innermost dimension, among the
    /// `n` elements from flat index `start`. Positions count from `start`.
    pub fn runs(
        &self,
        operand: usize,
        start: usize,
        n: usize,
        mut f: impl FnMut(usize, i64, usize),
    ) {
        runs(&self.sizes, &self.strides[operand], start, n, &mut f);
    }
}

/// The offset of the element with row-major index `flat`.
pub(crate) fn offset(sizes: &[i64], strides: &[i64], flat: usize) -> i64 {
    let (mut rest, mut at) = (flat as i64, 0);
    for (s, st) in sizes.iter().zip(strides).rev() {
        if *s > 1 {
            at += (rest % s) * st;
            rest /= s;
        }
    }
    at
}

/// As [`Loops::runs`]; not generic, so that it is compiled once.
fn runs(
    sizes: &[i64],
    strides: &[i64],
    start: usize,
    n: usize,
    f: &mut dyn FnMut(usize, i64, usize),
) {
    let rank = sizes.len();
    if rank == 0 || n == 0 {
        if n > 0 {
            f(0, 0, n);
        }
        return;
    }
    let mut index: Dims = smallvec::smallvec![0; rank];
    let (mut rest, mut at) = (start as i64, 0);
    for d in (0..rank).rev() {
        let s = sizes[d].max(1);
        index[d] = rest % s;
        rest /= s;
        at += index[d] * strides[d];
    }
    let inner = rank - 1;
    let mut done = 0;
    while done < n {
        let len = ((sizes[inner] - index[inner]) as usize).min(n - done);
        f(done, at, len);
        done += len;
        // Back to the start of this row, before the outer index advances.
        at -= index[inner] * strides[inner];
        index[inner] = 0;
        let mut d = inner;
        while d > 0 {
            d -= 1;
            index[d] += 1;
            at += strides[d];
            if index[d] < sizes[d] {
                break;
            }
            at -= sizes[d] * strides[d];
            index[d] = 0;
        }
    }
}

/// Calls `f(offsets)` for every element of a loop nest, row-major, for `K` operands at once.
#[inline]
pub(crate) fn for_each<const K: usize>(
    sizes: &[i64],
    strides: [&[i64]; K],
    mut f: impl FnMut([i64; K]),
) {
    let steps: [i64; K] = std::array::from_fn(|k| strides[k].last().copied().unwrap_or(0));
    for_rows(sizes, strides, &mut |mut at, n| {
        for _ in 0..n {
            f(at);
            for k in 0..K {
                // The step after the last element may be of any size.
                at[k] = at[k].wrapping_add(steps[k]);
            }
        }
    });
}

/// Calls `f(offsets, length)` for every row along the last dimension.
pub(crate) fn for_rows<const K: usize>(
    sizes: &[i64],
    strides: [&[i64]; K],
    f: &mut dyn FnMut([i64; K], i64),
) {
    if sizes.iter().any(|s| *s <= 0) {
        return;
    }
    let (outer, inner) = sizes.split_at(sizes.len().saturating_sub(1));
    let n = inner.first().copied().unwrap_or(1);
    let mut index: Dims = smallvec::smallvec![0; outer.len()];
    let mut at = [0i64; K];
    loop {
        f(at, n);
        let mut d = outer.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            for k in 0..K {
                at[k] = at[k].wrapping_add(strides[k][d]);
            }
            if index[d] < outer[d] {
                break;
            }
            for k in 0..K {
                at[k] = at[k].wrapping_sub(outer[d].wrapping_mul(strides[k][d]));
            }
            index[d] = 0;
        }
    }
}

/// The one stride of some dimensions, if they are one dimension of a tensor.
pub(crate) fn merged(sizes: &[i64], strides: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let (mut n, mut step) = (1, 0);
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        match n {
            _ if size == 1 => continue,
            1 => step = stride,
            _ if stride != step * n => return None,
            _ => {}
        }
        n *= size;
    }
    Some(step)
}
