//! The canonical form of a view (CuTe: coalesce): one spec for each sequence of elements.
//!
//! From the innermost dimension outwards, dimensions of size 1 are dropped, and a dimension merges
//! with the one inside it if its stride is that one's size times stride. The cost is linear in the
//! rank.

use super::arith::{SymArith, ZERO};
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::SymTable;

impl ViewSpec {
    /// The canonical spec: dimensions of size 1 are dropped, and a dimension merges with the next
    /// inner one if its stride equals the inner extent; every empty view becomes `0 + (0, 0)`.
    /// Views with equal canonical specs have the same elements in the same order. For plain numbers
    /// the converse also holds, because the sequence determines the innermost stride and size (the
    /// first run of equal distances), and so on outwards.
    pub fn canonical(&self, symbols: &mut SymTable) -> ViewSpec {
        self.normalized(&mut SymArith(symbols))
    }

    /// [`ViewSpec::canonical`].
    pub(super) fn normalized(&self, cx: &mut SymArith) -> ViewSpec {
        if cx.is_empty(&self.dims) {
            return ViewSpec::empty([ZERO].into_iter());
        }
        let mut dims = Dims::new();
        // From the innermost outwards.
        for &dim in self.dims.iter().rev() {
            if cx.is_unit(dim) {
                continue;
            }
            // The dimension has at most one element, so its stride is irrelevant.
            let dim = if cx.is_unit_or_empty(dim) { Dim { stride: ZERO, ..dim } } else { dim };
            match dims.last_mut() {
                Some(inner) if let Some(joined) = join(cx, dim, *inner) => *inner = joined,
                _ => dims.push(dim),
            }
        }
        dims.reverse();
        ViewSpec { offset: self.offset, dims }
    }

    /// Whether two canonical specs are provably equal.
    pub(super) fn provably_equals(&self, other: &ViewSpec, cx: &mut SymArith) -> bool {
        let mut equal = |a, b| cx.equal(a, b);
        self.rank() == other.rank()
            && equal(self.offset, other.offset)
            && self
                .dims
                .iter()
                .zip(&other.dims)
                .all(|(a, b)| equal(a.size, b.size) && equal(a.stride, b.stride))
    }
}

/// Merges two adjacent dimensions, if the outer one continues where the inner one ends.
pub(super) fn join(cx: &mut SymArith, outer: Dim, inner: Dim) -> Option<Dim> {
    let extent = if fault_injected(Fault::JoinIgnoresInnerStride) {
        inner.size
    } else {
        cx.mul(inner.size, inner.stride)?
    };
    if !cx.equal(outer.stride, extent) {
        return None;
    }
    Some(Dim { size: cx.mul(outer.size, inner.size)?, stride: inner.stride })
}
