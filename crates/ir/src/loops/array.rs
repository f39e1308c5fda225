//! Tensors of the reference evaluator.

use crate::scalar_expr::cast_scalar;
use crate::{DType, Scalar};

/// A row-major tensor of scalars.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    dtype: DType,
    sizes: Vec<i64>,
    elements: Vec<Scalar>,
}

impl Array {
    /// A tensor with these elements, each cast to the dtype. `None` if a size is negative or the
    /// number of elements is another one.
    pub fn new(
        dtype: DType,
        sizes: &[i64],
        elements: impl IntoIterator<Item = Scalar>,
    ) -> Option<Array> {
        let elements: Vec<Scalar> = elements.into_iter().map(|x| cast_scalar(x, dtype)).collect();
        let numel = numel(sizes)?;
        (numel == elements.len()).then(|| Array { dtype, sizes: sizes.to_vec(), elements })
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost dimension first.
    pub fn sizes(&self) -> &[i64] {
        &self.sizes
    }

    /// The elements in row-major order.
    pub fn elements(&self) -> &[Scalar] {
        &self.elements
    }

    /// The element at a position; `None` outside.
    pub(super) fn get(&self, position: &[i64]) -> Option<Scalar> {
        self.elements.get(self.flat(position)?).copied()
    }

    /// The row-major index of a position; `None` outside.
    pub(super) fn flat(&self, position: &[i64]) -> Option<usize> {
        let is_inside = position.len() == self.sizes.len()
            && position.iter().zip(&self.sizes).all(|(p, size)| (0..*size).contains(p));
        let flat = position.iter().zip(&self.sizes).fold(0, |flat, (p, size)| flat * size + p);
        is_inside.then_some(flat as usize)
    }

    /// The element with this row-major index, to be written.
    pub(super) fn element_mut(&mut self, flat: usize) -> Option<&mut Scalar> {
        self.elements.get_mut(flat)
    }

    /// The value, or the one NaN in place of any NaN.
    pub(super) fn one_nan(x: Scalar) -> Scalar {
        match x {
            Scalar::Float(x) if x.is_nan() => Scalar::Float(f64::NAN),
            x => x,
        }
    }
}

/// The number of elements; `None` if a size is negative or the number overflows.
pub(super) fn numel(sizes: &[i64]) -> Option<usize> {
    if sizes.iter().any(|s| *s < 0) {
        return None;
    }
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1usize, |n, s| n.checked_mul(usize::try_from(*s).ok()?))
}

/// Calls `f` at each position of a space, in row-major order.
pub(super) fn each_position<E>(
    sizes: &[i64],
    mut f: impl FnMut(&[i64]) -> Result<(), E>,
) -> Result<(), E> {
    let mut position = vec![0; sizes.len()];
    for _ in 0..numel(sizes).unwrap_or(0) {
        f(&position)?;
        for (p, size) in position.iter_mut().zip(sizes).rev() {
            *p += 1;
            if *p < *size {
                break;
            }
            *p = 0;
        }
    }
    Ok(())
}
