//! The scores of an attention, and their exponentials, for a block of query rows.

use super::rows::{RowExponentials, padded};
use crate::error::Result;
use crate::gemm::{Gemm, Mat, Product, Right};
use crate::isa::{Each, Isa};
use crate::layout::offset;
use crate::load_store::{Reader, Writer};
use crate::math::Float;
use crate::view::{Dims, Ptr, View};
use maquette_ir::DType;
use std::ops::Range;

/// A batch of matrices of one class, in the last two dimensions.
pub(super) struct Matrices<A> {
    pub base: Ptr<A>,
    pub sizes: Dims,
    pub strides: Dims,
}

impl<A> Matrices<A> {
    pub fn at(&self, batch: usize) -> Mat<A> {
        let r = self.sizes.len() - 2;
        let at = offset(&self.sizes[..r], &self.strides[..r], batch);
        Mat {
            start: Ptr(self.base.0.wrapping_offset(at as isize)),
            row_stride: self.strides[r] as isize,
            column_stride: self.strides[r + 1] as isize,
        }
    }
}

/// An output's elements, sizes and strides.
pub(super) type Target<A> = (Writer<A>, Dims, Dims);

/// What scores are computed of.
pub(super) struct Scores<'a, A> {
    pub isa: Isa,
    /// The numbers of queries and of keys that a query sees, and the width of both.
    pub dims: [usize; 3],
    pub q: Matrices<A>,
    pub k: Matrices<A>,
    pub scale: A,
    pub causal: bool,
    pub mask: Option<(Reader<A>, &'a View<'a>)>,
    /// Whether a row without visible keys has NaN weights.
    pub plain_softmax: bool,
    /// Rounds to the operands' dtype and back, if that dtype is not the class.
    pub round: Option<fn(A) -> A>,
    pub logsumexp: Option<Target<A>>,
}

impl<A: Float + Product> Scores<'_, A> {
    /// The number of keys that at least one row of a block sees.
    pub fn seen(&self, rows: &Range<usize>) -> usize {
        if self.causal { self.dims[1].min(rows.end) } else { self.dims[1] }
    }

    /// Computes the products of a block of query rows of one batch and of the keys that they see.
    /// Rows have [`padded`] elements.
    pub fn scores(&self, batch: usize, rows: Range<usize>, scores: &mut [A]) -> Result<()> {
        let (e, first, m, seen) = (self.dims[2], rows.start, rows.len(), self.seen(&rows));
        if m * seen > 0 && e > 0 {
            for part in self.parts() {
                let c = row_major(scores, padded(seen));
                let scores_of_keys = Gemm {
                    sizes: [m, seen, part.len()],
                    c,
                    a: self.q.at(batch).skip_rows(first).skip_columns(part.start),
                    b: Right::InPlace(self.k.at(batch).transposed().skip_rows(part.start)),
                    alpha: A::ONE,
                    addend: (part.start > 0).then_some(c),
                };
                // SAFETY: rows `first..first + m` of the query, the first `seen` rows of the key,
                // and scratch of their product's size.
                unsafe { A::product(self.isa, 1, scores_of_keys)? }
            }
        } else {
            scores.fill(A::ZERO);
        }
        Ok(())
    }

    /// Replaces the scores of a block by their exponentials, which are divided by their sum if
    /// `is_normalised`, and writes the maximum and the sum of each row to `found`. `hidden` is
    /// memory for one row of the mask.
    pub fn weights(
        &self,
        (batch, rows): (usize, Range<usize>),
        scores: &mut [A],
        hidden: &mut [A],
        is_normalised: bool,
        found: &mut [[A; 2]],
    ) {
        let keys = self.seen(&rows);
        let first = batch * self.dims[0] + rows.start;
        // Without width all scores are 0, whatever the scale.
        let mut scale = if self.dims[2] > 0 { self.scale } else { A::ONE };
        if let Some((reader, mask)) = &self.mask {
            let hidden = &mut hidden[..keys];
            let (sizes, strides, last) = (mask.sizes(), mask.strides(), mask.rank() - 1);
            for (r, row) in scores.chunks_exact_mut(padded(keys)).enumerate() {
                let row = &mut row[..keys];
                self.isa.dispatch(Each(&mut *row, |x: A| x * scale));
                let at = offset(sizes, strides, (first + r) * sizes[last] as usize);
                // A mask of keys is one row for all queries.
                if r == 0 || strides[last - 1] != 0 {
                    // SAFETY: these are elements of this row of the mask.
                    unsafe { reader.read(self.isa, at, strides[last], hidden) }
                }
                let pairs = row.iter_mut().zip(&*hidden);
                match mask.dtype() == DType::Bool {
                    true => {
                        pairs.for_each(|(s, m)| *s = if *m == A::ZERO { -A::INFINITY } else { *s })
                    }
                    false => pairs.for_each(|(s, m)| *s = *s + *m),
                }
            }
            scale = A::ONE;
        }
        self.isa.dispatch(RowExponentials {
            scores: &mut *scores,
            keys,
            visible: self.causal.then_some(rows.start + 1),
            scale,
            is_normalised,
            plain_softmax: self.plain_softmax,
            found: &mut *found,
        });
        self.round(scores);
        self.write_logarithms(first, found);
    }

    /// Rounds exponentials to the operands' dtype, if they are to be.
    pub fn round(&self, scores: &mut [A]) {
        if let Some(round) = self.round {
            scores.iter_mut().for_each(|w| *w = round(*w));
        }
    }

    /// Writes the logarithms of the sums of rows from `first`, if they are wanted.
    pub fn write_logarithms(&self, first: usize, found: &[[A; 2]]) {
        if let Some((writer, sizes, strides)) = &self.logsumexp {
            for (r, [max, sum]) in found.iter().enumerate() {
                // SAFETY: the element of this row belongs to this task.
                unsafe { writer.write(offset(sizes, strides, first + r), *max + sum.log()) }
            }
        }
    }

    /// The parts of the width whose products are added to a score.
    pub fn parts(&self) -> [Range<usize>; 2] {
        let width = self.dims[2];
        let middle = (5 * width).div_ceil(8);
        [0..middle, middle..width]
    }
}

/// A matrix in contiguous scratch.
pub(super) fn row_major<A>(x: &mut [A], columns: usize) -> Mat<A> {
    Mat::row_major(Ptr(x.as_mut_ptr()), columns)
}
