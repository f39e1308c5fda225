//! The bytes of a storage that a borrow covers: a span, and the bytes within the span.

use crate::tensor::Tensor;
use crate::tensor::holder::Holder;
use crate::tensor::overlap::{contains, may_overlap, overlaps_byte_range};

/// The bytes of a storage that one tensor views, or several tensors together. The span decides most
/// questions. The layout is compared only if two spans intersect.
pub(super) struct Region {
    /// The first byte.
    start: i64,
    /// The byte after the last one; equal to `start` for an empty region.
    end: i64,
    pub(super) layout: RegionLayout,
}

/// The bytes of a region within its span.
pub(super) enum RegionLayout {
    /// All bytes of the span.
    Span,
    /// The bytes of a strided tensor.
    Strided(Tensor),
    /// The union of several regions, each with its holder.
    Parts(Box<[(Region, Holder)]>),
}

impl Region {
    /// The region of a tensor. If the tensor views all bytes of its span, the region keeps only the
    /// span; else it keeps a handle to the tensor, without a grant.
    #[inline]
    pub(super) fn of(tensor: &Tensor) -> Region {
        let m = tensor.meta();
        if let (Some(elements), Some(offset)) = (m.dense_numel(), m.offset.as_i64()) {
            let width = m.dtype.size() as i64;
            let start = offset.saturating_mul(width);
            return Region {
                start,
                end: start.saturating_add(elements.saturating_mul(width)),
                layout: RegionLayout::Span,
            };
        }
        let (start, end) = tensor.span().unwrap_or_default();
        Region { start, end, layout: RegionLayout::Strided(tensor.without_grant()) }
    }

    /// The union of several regions.
    pub(super) fn of_parts(parts: Vec<(Region, Holder)>) -> Region {
        let spans = || parts.iter().map(|(r, _)| r).filter(|r| !r.is_empty());
        Region {
            start: spans().map(|r| r.start).min().unwrap_or_default(),
            end: spans().map(|r| r.end).max().unwrap_or_default(),
            layout: RegionLayout::Parts(parts.into()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether this region and `other`, the region of `tensor`, may share a byte.
    pub(super) fn overlaps(&self, other: &Region, tensor: &Tensor) -> bool {
        use RegionLayout::{Parts, Span, Strided};
        let layouts_overlap = || match (&self.layout, tensor.meta().concrete()) {
            (Parts(parts), _) => parts.iter().any(|(part, _)| part.overlaps(other, tensor)),
            (Span, _) if matches!(other.layout, Span) => true,
            (Span, Some(y)) => overlaps_byte_range(&y, (self.start, self.end)),
            (Strided(t), Some(y)) => t.meta().concrete().is_none_or(|x| may_overlap(&x, &y)),
            (_, None) => true,
        };
        !self.is_empty()
            && !other.is_empty()
            && self.start < other.end
            && other.start < self.end
            && layouts_overlap()
    }

    /// Whether this region contains every byte of `inner`, the region of `tensor`. The answer is
    /// `false` if no proof is found: of several parts, one alone must contain `inner`.
    pub(super) fn contains(&self, inner: &Region, tensor: &Tensor) -> bool {
        let layout_contains = || match &self.layout {
            RegionLayout::Span => true,
            RegionLayout::Strided(t) => match (t.meta().concrete(), tensor.meta().concrete()) {
                (Some(x), Some(y)) => contains(&x, &y),
                _ => false,
            },
            RegionLayout::Parts(parts) => {
                parts.iter().any(|(part, _)| part.contains(inner, tensor))
            }
        };
        inner.is_empty() || self.start <= inner.start && inner.end <= self.end && layout_contains()
    }

    /// Whether the region may keep a tensor alive, which the release of its borrow must drop.
    pub(super) fn holds_tensor(&self) -> bool {
        !matches!(self.layout, RegionLayout::Span)
    }
}
