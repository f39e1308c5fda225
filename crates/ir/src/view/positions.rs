//! The positions of a strided tensor's elements, in plain numbers.

use smallvec::SmallVec;

/// Iterates over the positions of a strided tensor's elements, in row-major order.
///
/// The iterator is an odometer: it keeps one index per dimension, so it needs no memory for the
/// positions. Positions wrap on overflow, because the strides of an empty tensor are arbitrary.
/// The view algebra enumerates with checked arithmetic instead, and shares nothing with this
/// iterator, so a checker of plans that uses it is independent of the planner.
#[derive(Clone, Debug)]
pub struct StridedPositions<'a> {
    sizes: &'a [i64],
    strides: &'a [i64],
    index: SmallVec<[i64; 6]>,
    next: i64,
    left: usize,
}

impl<'a> StridedPositions<'a> {
    /// The positions of the tensor with this offset and these sizes and strides. Sizes and strides
    /// have one length; a size that is not positive has no elements.
    pub fn new(offset: i64, sizes: &'a [i64], strides: &'a [i64]) -> StridedPositions<'a> {
        let rank = sizes.len().min(strides.len());
        let (sizes, strides) = (&sizes[..rank], &strides[..rank]);
        let extent = |n: i64| usize::try_from(n).unwrap_or(0);
        let left = if sizes.iter().any(|&n| n <= 0) {
            0
        } else {
            sizes.iter().fold(1usize, |left, &n| left.saturating_mul(extent(n)))
        };
        StridedPositions { sizes, strides, index: SmallVec::from_elem(0, rank), next: offset, left }
    }
}

impl Iterator for StridedPositions<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1)?;
        let position = self.next;
        for ((i, &size), &stride) in self.index.iter_mut().zip(self.sizes).zip(self.strides).rev() {
            *i += 1;
            self.next = self.next.wrapping_add(stride);
            if *i < size {
                break;
            }
            self.next = self.next.wrapping_sub(size.wrapping_mul(stride));
            *i = 0;
        }
        Some(position)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StridedPositions<'_> {}

#[cfg(test)]
mod tests {
    use super::StridedPositions;

    fn positions(offset: i64, sizes: &[i64], strides: &[i64]) -> Vec<i64> {
        StridedPositions::new(offset, sizes, strides).collect()
    }

    #[test]
    fn positions_are_in_row_major_order() {
        assert_eq!(positions(3, &[], &[]), [3]);
        assert_eq!(positions(1, &[2, 3], &[1, 4]), [1, 5, 9, 2, 6, 10]);
        assert_eq!(positions(0, &[2, 2], &[0, -1]), [0, -1, 0, -1]);
        assert_eq!(positions(0, &[2, 1, 2], &[i64::MAX, i64::MAX, 1]), [0, 1, i64::MAX, i64::MIN]);
    }

    #[test]
    fn a_size_of_zero_has_no_positions() {
        assert_eq!(positions(0, &[i64::MAX, 0, i64::MAX], &[i64::MAX; 3]), [0i64; 0]);
        assert_eq!(positions(0, &[-1, -1], &[1, 1]), [0i64; 0]);
    }
}
