//! Layouts: where the elements of an operand lie, without an address.

use maquette_ir::DType;
use smallvec::SmallVec;

/// Sizes, or strides in elements.
pub type Dims = SmallVec<[i64; 6]>;

/// The layout of an operand or a result of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The element type.
    pub dtype: DType,
    /// The number of elements along each dimension.
    pub sizes: Dims,
    /// The step along each dimension, in elements. A step of 0 repeats an element.
    pub strides: Dims,
}

impl Layout {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// The half-open range of bytes from the first element that the elements span; `None` if there
    /// are none, or if the range is beyond `i64`.
    pub fn span(&self) -> Option<(i64, i64)> {
        let (mut first, mut last) = (0i64, 0i64);
        for (size, stride) in self.sizes.iter().zip(&self.strides) {
            let step = size.checked_sub(1)?.checked_mul(*stride)?;
            let end = if step < 0 { &mut first } else { &mut last };
            *end = end.checked_add(step)?;
        }
        let width = self.dtype.size() as i64;
        let bytes = (first.checked_mul(width)?, last.checked_add(1)?.checked_mul(width)?);
        (!self.is_empty()).then_some(bytes)
    }
}
