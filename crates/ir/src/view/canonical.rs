//! One spelling for each sequence of elements.

use super::arith::{SymArith, ZERO};
use super::{Dim, Dims, ViewSpec};
use crate::fault_injection::fault_injected;
use crate::sym::SymTable;

impl ViewSpec {
    /// The key: without dimensions of size 1, neighbours joined where the stride of the outer one
    /// is the extent of the inner one; all empty views are `0 + (0, 0)`. Specs with equal keys have
    /// the same elements in the same order. With plain numbers the converse holds: the innermost
    /// stride and size are those of the first run of equal distances, and so on outwards.
    pub fn canonical(&self, symbols: &mut SymTable) -> ViewSpec {
        self.normalized(&mut SymArith(symbols))
    }

    pub(super) fn normalized(&self, cx: &mut SymArith) -> ViewSpec {
        if cx.is_empty(&self.dims) {
            return ViewSpec::empty([ZERO].into_iter());
        }
        let mut dims = Dims::new();
        // From the innermost outwards.
        for &d in self.dims.iter().rev() {
            if cx.is_unit(d) {
                continue;
            }
            // Of one element or none: the stride is never taken.
            let d = if cx.is_unit_or_empty(d) { Dim { stride: ZERO, ..d } } else { d };
            match dims.last_mut() {
                Some(inner) if let Some(joined) = join(cx, d, *inner) => *inner = joined,
                _ => dims.push(d),
            }
        }
        dims.reverse();
        ViewSpec { offset: self.offset, dims }
    }

    /// Whether two keys are surely equal.
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

/// One dimension for two neighbours, if the outer one goes on where the inner one ends.
pub(super) fn join(cx: &mut SymArith, outer: Dim, inner: Dim) -> Option<Dim> {
    let extent = if fault_injected("join: as if the inner stride were 1") {
        inner.size
    } else {
        cx.mul(inner.size, inner.stride)?
    };
    if !cx.equal(outer.stride, extent) {
        return None;
    }
    Some(Dim { size: cx.mul(outer.size, inner.size)?, stride: inner.stride })
}
