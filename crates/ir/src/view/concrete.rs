//! Views of plain numbers, for decisions by enumeration.

use super::ViewSpec;
use smallvec::SmallVec;

/// Queries that no other method decides are decided by enumeration for views of at most this many
/// elements.
pub const MAX_ENUMERATED: i64 = 4096;

/// A view whose offset, sizes and strides are numbers.
pub(super) struct ConcreteView {
    pub offset: i64,
    /// The size and stride of each dimension.
    pub dims: SmallVec<[(i64, i64); 4]>,
}

impl ConcreteView {
    /// The numbers of a spec; `None` if it is symbolic or a stride is negative.
    pub fn new(spec: &ViewSpec) -> Option<ConcreteView> {
        let dim = |d: &super::Dim| Some((d.size.as_i64()?, d.stride.as_i64().filter(|&s| s >= 0)?));
        Some(ConcreteView {
            offset: spec.offset.as_i64()?,
            dims: spec.dims.iter().map(dim).collect::<Option<_>>()?,
        })
    }

    /// The number of elements.
    pub fn numel(&self) -> Option<i64> {
        self.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.0))
    }

    /// The base position of the element at an index of the flat order; `None` if the index is out
    /// of bounds.
    pub fn at(&self, flat: i64) -> Option<i64> {
        let (mut remaining, mut position) = (flat, self.offset);
        for &(size, stride) in self.dims.iter().rev() {
            position = position.checked_add(remaining.checked_rem(size)?.checked_mul(stride)?)?;
            remaining /= size;
        }
        (remaining == 0 && flat >= 0).then_some(position)
    }

    /// The base positions of all elements, in flat order.
    pub fn positions(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.numel().unwrap_or(0)).map_while(|flat| self.at(flat))
    }

    /// The base positions of all elements in ascending order; `None` if there are more than
    /// [`MAX_ENUMERATED`].
    pub fn sorted(&self) -> Option<Vec<i64>> {
        if self.numel()? > MAX_ENUMERATED {
            return None;
        }
        let mut all: Vec<i64> = self.positions().collect();
        all.sort_unstable();
        Some(all)
    }
}
