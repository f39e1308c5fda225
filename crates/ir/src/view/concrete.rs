//! Views of plain numbers, element by element.

use super::ViewSpec;
use smallvec::SmallVec;

/// Views of at most this many elements are decided by enumeration where nothing else decides.
pub const MAX_ENUMERATED: i64 = 4096;

/// A spec of plain numbers.
pub(super) struct ConcreteView {
    pub offset: i64,
    /// Size and stride.
    pub dims: SmallVec<[(i64, i64); 4]>,
}

impl ConcreteView {
    /// `None` if not everything is a number, or a stride is negative.
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

    /// The position of the element at a place of the flat order; `None` outside of it.
    pub fn at(&self, flat: i64) -> Option<i64> {
        let (mut rest, mut position) = (flat, self.offset);
        for &(size, stride) in self.dims.iter().rev() {
            position = position.checked_add(rest.checked_rem(size)?.checked_mul(stride)?)?;
            rest /= size;
        }
        (rest == 0 && flat >= 0).then_some(position)
    }

    /// All positions, in flat order.
    pub fn positions(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.numel().unwrap_or(0)).map_while(|flat| self.at(flat))
    }

    /// All positions in ascending order, if there are few enough.
    pub fn sorted(&self) -> Option<Vec<i64>> {
        if self.numel()? > MAX_ENUMERATED {
            return None;
        }
        let mut all: Vec<i64> = self.positions().collect();
        all.sort_unstable();
        Some(all)
    }
}
