//! Scores of a block of queries with a column for each query, and a row for each key.
//!
//! **Problem.** Few keys make short rows of scores. A row is folded to its maximum and to its sum
//! within a vector, in as many dependent steps as a long one.
//!
//! **Algorithm.** The scores are the product of the keys and the transposed queries. A vector has
//! one key's scores of several queries, so that maxima and sums of columns are operations of whole
//! vectors, and no exponential is computed for an element after the keys.
//!
//! **Invariant:** the bits are those of rows. A column is folded in the order of `reduce/lanes`:
//! key `j` belongs to lane `j % LANES`, and lanes without a key have the identity, which changes no
//! maximum and no sum of exponentials.

use super::scores::{Scores, row_major};
use crate::error::Result;
use crate::gemm::{Gemm, Mat, Product, Right};
use crate::isa::Simd;
use crate::layout::offset;
use crate::math::Float;
use crate::pointwise::ops::{Add, Max, Op2};
use crate::reduce::lanes::{CHUNK, LANES, tree_of};
use crate::view::Ptr;
use maquette_ir::DType;
use std::ops::Range;

/// The columns that are folded together.
const COLUMNS: usize = 16;
/// The least queries of a block for which columns are faster than rows.
const LEAST_QUERIES: usize = 8;
/// The most keys. Their columns are one chunk of the order of `reduce/lanes`.
const MOST_KEYS: usize = 2048;
const _: () = assert!(MOST_KEYS <= CHUNK);

impl<A: Float + Product> Scores<'_, A> {
    /// Whether the blocks of so many queries have scores in columns: all queries see the same keys,
    /// and these are few.
    pub fn is_by_columns(&self, queries: usize) -> bool {
        let [_, keys, width] = self.dims;
        let has_mask_of_keys = self.mask.as_ref().is_none_or(|(_, mask)| {
            mask.rank().checked_sub(2).is_some_and(|of_queries| mask.strides()[of_queries] == 0)
        });
        !self.causal
            && (1..=MOST_KEYS).contains(&keys)
            && queries >= LEAST_QUERIES
            && width > 0
            && has_mask_of_keys
    }

    /// The elements of memory for the scores of a block in columns.
    pub fn elements_by_columns(&self, queries: usize) -> usize {
        self.dims[1] * queries.next_multiple_of(COLUMNS)
    }

    /// Computes the exponentials of the scores of some queries in columns, and writes the maximum
    /// and the sum of each query to `found`. Returns their matrix `[queries, keys]`. `hidden` is
    /// memory for one row of the mask.
    pub fn weights_by_columns(
        &self,
        (batch, rows): (usize, Range<usize>),
        scores: &mut [A],
        hidden: &mut [A],
        found: &mut [[A; 2]],
    ) -> Result<Mat<A>> {
        let [n, keys, _] = self.dims;
        let stride = rows.len().next_multiple_of(COLUMNS);
        let [k, q] = [self.k.at(batch), self.q.at(batch).skip_rows(rows.start).transposed()];
        for part in self.parts() {
            let c = row_major(scores, stride);
            let scores_of_queries = Gemm {
                sizes: [keys, rows.len(), part.len()],
                c,
                a: k.skip_columns(part.start),
                b: Right::InPlace(q.skip_rows(part.start)),
                alpha: A::ONE,
                addend: (part.start > 0).then_some(c),
            };
            // SAFETY: all rows of the key, the rows `rows` of the query, and scratch of their
            // product's size.
            unsafe { A::product(self.isa, 1, scores_of_queries)? }
        }
        let first = batch * n + rows.start;
        let mask = self.mask.as_ref().map(|(reader, mask)| {
            let hidden = &mut hidden[..keys];
            let at = offset(mask.sizes(), mask.strides(), first * keys);
            // SAFETY: these are elements of a row of the mask.
            unsafe { reader.read(self.isa, at, mask.strides()[mask.rank() - 1], hidden) }
            (&*hidden, mask.dtype() == DType::Bool)
        });
        self.isa.dispatch(ColumnExponentials {
            scores: &mut scores[..keys * stride],
            stride,
            mask,
            scale: self.scale,
            plain_softmax: self.plain_softmax,
            found: &mut *found,
        });
        self.round(&mut scores[..keys * stride]);
        self.write_logarithms(first, found);
        let start = Ptr(scores.as_mut_ptr());
        Ok(Mat { start, row_stride: 1, column_stride: stride as isize })
    }
}

/// The exponentials of columns of scores: of `scale` times a score, less the column's greatest.
struct ColumnExponentials<'a, A> {
    /// Rows of `stride` elements. They receive the exponentials.
    scores: &'a mut [A],
    stride: usize,
    /// By key: what is added to its scores. Or else, if the flag is set, 0 if it is hidden.
    mask: Option<(&'a [A], bool)>,
    scale: A,
    /// Whether the exponentials of a column without visible keys are NaN: those of -inf less -inf.
    plain_softmax: bool,
    /// Receive a column's maximum and sum. The sum of other exponentials without visible keys is 1,
    /// to avoid 0 / 0.
    found: &'a mut [[A; 2]],
}

impl<A: Float> Simd for ColumnExponentials<'_, A>
where
    Add: Op2<A, A>,
    Max: Op2<A, A>,
{
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let ColumnExponentials { scores, stride, mask, scale, plain_softmax, found } = self;
        let keys = scores.len() / stride;
        let lanes = keys.next_power_of_two().min(LANES);
        let mut acc = [[A::ZERO; COLUMNS]; LANES];
        let acc = &mut acc[..lanes];
        for (group, found) in found.chunks_mut(COLUMNS).enumerate() {
            acc.fill([-A::INFINITY; COLUMNS]);
            for (j, row) in scores.chunks_exact_mut(stride).enumerate() {
                let (groups, _) = row.as_chunks_mut::<COLUMNS>();
                let scores = &mut groups[group];
                for x in scores.iter_mut() {
                    *x = *x * scale;
                }
                match mask {
                    Some((hidden, true)) if hidden[j] == A::ZERO => {
                        *scores = [-A::INFINITY; COLUMNS];
                    }
                    Some((added, false)) => {
                        let added = added[j];
                        for x in scores.iter_mut() {
                            *x = *x + added;
                        }
                    }
                    _ => {}
                }
                for (acc, x) in acc[j % LANES].iter_mut().zip(&*scores) {
                    *acc = Max::f(*acc, *x);
                }
            }
            tree_of::<A, Max>(acc.as_flattened_mut(), COLUMNS);
            let mut max = acc[0];
            for x in &mut max {
                *x = if *x == -A::INFINITY && !plain_softmax { A::ZERO } else { *x };
            }
            acc.fill([A::ZERO; COLUMNS]);
            for (j, row) in scores.chunks_exact_mut(stride).enumerate() {
                let (groups, _) = row.as_chunks_mut::<COLUMNS>();
                let scores = &mut groups[group];
                for ((acc, x), max) in acc[j % LANES].iter_mut().zip(scores).zip(&max) {
                    *x = (*x - *max).exp();
                    *acc = Add::f(*acc, *x);
                }
            }
            tree_of::<A, Add>(acc.as_flattened_mut(), COLUMNS);
            for ((found, max), sum) in found.iter_mut().zip(max).zip(acc[0]) {
                *found = [max, if sum == A::ZERO { A::ONE } else { sum }];
            }
        }
    }
}
