//! The operands and results of prepared calls: layouts without memory.

use crate::operator::reshape::view_strides;
use crate::tensor::Tensor;
use crate::tensor::meta::{Concrete, IntoDims, Meta};
use crate::tensor::overlap::{may_overlap, may_self_overlap};
use maquette_device::{Dims, Layout};
use maquette_ir::DType;
use smallvec::SmallVec;

/// An operand or a result of a prepared call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedOperand {
    /// For an operand: which of the tensors among the arguments it is or views, in order. For a
    /// result: its number.
    pub tensor: usize,
    /// Its first byte, counted from the first element of that tensor.
    pub start: i64,
    /// The sizes and strides with which the kernel accesses it, in elements.
    pub(super) layout: Layout,
}

fn concrete(layout: &Layout, offset: i64) -> Concrete {
    let (sizes, strides) = (layout.sizes.clone(), layout.strides.clone());
    Concrete { sizes, strides, offset, width: layout.dtype.size() as i64 }
}

impl PlacedOperand {
    /// All elements of a fake tensor with plain sizes, which is number `tensor`. `None` if a view
    /// of these sizes has more elements than an eager call takes.
    pub fn of(tensor: usize, t: &Tensor) -> Option<PlacedOperand> {
        let at = t.meta().concrete()?;
        is_countable(&at.sizes)?;
        let start = at.offset.checked_mul(at.width)?;
        let layout = Layout { dtype: t.dtype(), sizes: at.sizes, strides: at.strides };
        Some(PlacedOperand { tensor, start, layout })
    }

    /// The same memory, broadcast to `sizes` by strides of 0. `None` if the operand does not expand
    /// to these sizes.
    pub fn expanded(self, sizes: &[i64]) -> Option<PlacedOperand> {
        let lead = sizes.len().checked_sub(self.layout.sizes.len())?;
        let mut strides: Dims = SmallVec::from_elem(0, lead);
        for ((&n, &s), &m) in
            self.layout.sizes.iter().zip(&self.layout.strides).zip(sizes.get(lead..)?)
        {
            if n != m && n != 1 {
                return None;
            }
            strides.push(if n == m { s } else { 0 });
        }
        is_countable(sizes)?;
        Some(PlacedOperand {
            layout: Layout { sizes: sizes.into(), strides, ..self.layout },
            ..self
        })
    }

    /// The same elements, in row-major order, under other sizes of the same number of elements.
    /// `None` if no strides address them.
    pub fn reshaped(self, sizes: &[i64]) -> Option<PlacedOperand> {
        if self.layout.sizes[..] == *sizes {
            return Some(self);
        }
        let from = Meta::contiguous(self.layout.sizes[..].into_dims(), self.layout.dtype);
        let from = from.with_dims(from.sizes.clone(), self.layout.strides[..].into_dims());
        let strides = view_strides(&from, &sizes.into_dims()).ok()??;
        let strides = strides.iter().map(|s| s.as_i64()).collect::<Option<Dims>>()?;
        let layout = Layout { sizes: sizes.into(), strides, ..self.layout };
        Some(PlacedOperand { layout, ..self })
    }

    /// The same memory, in which the dimensions of stride 0 have one element.
    pub fn without_broadcast(mut self) -> PlacedOperand {
        for (size, stride) in self.layout.sizes.iter_mut().zip(&self.layout.strides) {
            if *stride == 0 {
                *size = 1;
            }
        }
        self
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.layout.dtype
    }

    /// The sizes with which the kernel accesses it.
    pub fn sizes(&self) -> &[i64] {
        &self.layout.sizes
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// The half-open range of bytes that it spans, counted as [`PlacedOperand::start`]; `None` if
    /// it has no elements, or if the range is beyond `i64`.
    pub fn span(&self) -> Option<(i64, i64)> {
        let (first, end) = self.layout.span()?;
        Some((self.start.checked_add(first)?, self.start.checked_add(end)?))
    }

    /// Whether the two may share an element, if they begin at these bytes of one memory.
    pub fn may_overlap(&self, start: i64, other: &PlacedOperand, other_start: i64) -> bool {
        let at = |o: &PlacedOperand, start: i64| {
            let width = o.layout.dtype.size() as i64;
            (start % width == 0).then(|| concrete(&o.layout, start / width))
        };
        match (at(self, start), at(other, other_start)) {
            (Some(a), Some(b)) => may_overlap(&a, &b),
            _ => true,
        }
    }

    /// Whether two of its elements may be in one place.
    pub fn may_self_overlap(&self) -> bool {
        may_self_overlap(&concrete(&self.layout, 0))
    }
}

/// `None` if a view of these sizes has more elements than an eager call takes.
fn is_countable(sizes: &[i64]) -> Option<()> {
    let counted = sizes.iter().filter(|n| **n != 0).try_fold(1i64, |n, s| n.checked_mul(*s))?;
    (counted <= isize::MAX as i64 / 8).then_some(())
}

/// The layouts of operands.
pub(super) fn layouts(operands: &[PlacedOperand]) -> SmallVec<[&Layout; 4]> {
    operands.iter().map(|operand| &operand.layout).collect()
}
