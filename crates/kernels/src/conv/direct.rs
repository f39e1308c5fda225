//! Convolution without unfolding, for groups of few output channels, as in depthwise convolution: a
//! product of so few rows would take less time than its panels. Each weight is multiplied by the
//! parts of the input that its tap sees, and the products are added to the output, of which a chunk
//! stays in the first-level cache.
//!
//! The sums have the order of the product with the patch matrix, zeros of the padding included, so
//! that the bits are the same.

use super::unfold::Unfold;
use crate::gemm::{Product, SEGMENT};
use crate::isa::{Isa, Simd};
use crate::view::numel;
use std::ops::Range;

/// The most output channels of a group.
const FEW_CHANNELS: usize = 4;
/// The columns of a chunk.
const CHUNK: usize = 2048;

/// Whether a group with these sizes is convolved directly: `depth` is the number of products of a
/// sum, which must be one segment and not empty.
pub(super) fn is_direct(channels: usize, depth: usize) -> bool {
    channels <= FEW_CHANNELS && (1..=SEGMENT).contains(&depth)
}

/// Windows of one tap inside the plane: the first column, the offset in the plane, the number, and
/// the distance in the plane.
type Run = (usize, usize, usize, usize);

/// Some columns of the output, the same for all groups and channels.
pub(super) struct Columns {
    pub range: Range<usize>,
    /// The elements of a plane.
    plane: usize,
    runs: Vec<Run>,
    /// For each tap, the runs up to its last.
    ends: Vec<usize>,
}

impl Columns {
    /// All columns, by chunks.
    pub fn chunks(unfold: &Unfold<'_>, columns: usize) -> Vec<Columns> {
        let starts = (0..columns).step_by(CHUNK);
        starts.map(|first| Columns::new(unfold, first..columns.min(first + CHUNK))).collect()
    }

    fn new(unfold: &Unfold<'_>, columns: Range<usize>) -> Columns {
        let (mut runs, mut ends) = (Vec::new(), Vec::new());
        for tap in 0..unfold.taps() {
            unfold.runs(tap, columns.clone(), |c, at, n, step| {
                runs.push((c - columns.start, at as usize, n, step as usize))
            });
            ends.push(runs.len());
        }
        Columns { range: columns, plane: numel(&unfold.plane), runs, ends }
    }

    /// Writes the sums of an output channel with these weights, over a group's input.
    pub fn sum<T: Product>(&self, isa: Isa, planes: &[T], weights: &[T], sums: &mut [T]) {
        sums.fill(T::default());
        isa.dispatch(Sums { isa, columns: self, planes, weights, sums });
    }
}

struct Sums<'a, T> {
    isa: Isa,
    columns: &'a Columns,
    planes: &'a [T],
    weights: &'a [T],
    sums: &'a mut [T],
}

impl<T: Product> Simd for Sums<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let (Columns { plane, runs, ends, .. }, isa) = (self.columns, self.isa);
        let add = |sum: &mut T, weight: T, x: T| *sum = T::multiply_add(isa, weight, x, *sum);
        for (channel, weights) in self.weights.chunks(ends.len()).enumerate() {
            let plane = &self.planes[channel * plane..][..*plane];
            let mut first = 0;
            for (&weight, &end) in weights.iter().zip(ends) {
                let mut done = 0;
                for &(column, at, n, step) in &runs[first..end] {
                    self.sums[done..column].iter_mut().for_each(|s| add(s, weight, T::default()));
                    done = column + n;
                    let sums = &mut self.sums[column..done];
                    match step {
                        1 => sums.iter_mut().zip(&plane[at..at + n]).for_each(|(s, x)| {
                            add(s, weight, *x);
                        }),
                        _ => sums.iter_mut().zip(plane[at..].iter().step_by(step)).for_each(
                            |(s, x)| {
                                add(s, weight, *x);
                            },
                        ),
                    }
                }
                self.sums[done..].iter_mut().for_each(|s| add(s, weight, T::default()));
                first = end;
            }
        }
    }
}
