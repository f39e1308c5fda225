//! The tensors that a product and the maps after it access.

use super::factor::{Geometry, dot};
use crate::layout::merged;
use crate::loops::access::{Base, Buffer};
use crate::loops::launch::Launch;
use crate::loops::stage::PanelContext;
use crate::view::{Dims, Ptr};
use maquette_ir::DType;
use maquette_ir::loops::AxisId;

/// Where a tensor of a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Memory(usize),
    /// The sums of the product.
    Sums,
    /// Scratch memory of the rectangle, row-major.
    Slot(usize),
    /// Nowhere: it is a coordinate, or the row-major index of a point.
    Number,
}

/// A tensor of a map, with strides in elements of the loops, the rows and the columns.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub from: From,
    size: i64,
    start: i64,
    loops: Dims,
    row: i64,
    column: i64,
}

impl Operand {
    /// `None` if the axes of rows or columns are not one dimension of it.
    pub fn new(
        launch: &Launch<'_>,
        geometry: &Geometry,
        (from, size): (From, usize),
        stride: &dyn Fn(AxisId) -> i64,
    ) -> Option<Operand> {
        let one = |axes: &[AxisId]| {
            let strides: Dims = axes.iter().map(|a| stride(*a)).collect();
            merged(&launch.extents_of(axes), &strides)
        };
        // An axis of one point has no stride.
        let of_loop = |a: &AxisId| if launch.extent(*a) == 1 { 0 } else { stride(*a) };
        let loops = geometry.loops.iter().map(of_loop).collect();
        let (row, column) = (one(&geometry.rows)?, one(&geometry.columns)?);
        Some(Operand { from, size: size as i64, start: 0, loops, row, column })
    }

    /// A tensor in memory.
    pub fn in_buffer(
        launch: &Launch<'_>,
        geometry: &Geometry,
        buffer: &Buffer,
        stride: &dyn Fn(AxisId) -> i64,
    ) -> Option<Operand> {
        let Base::Memory(memory) = buffer.base else { return None };
        Operand::new(launch, geometry, (From::Memory(memory), buffer.dtype.size()), stride)
    }

    /// The same, where the coordinates begin at `start`.
    pub fn starting_at(self, start: i64) -> Operand {
        Operand { start, ..self }
    }

    /// A tensor of a rectangle.
    pub fn of_part(from: From, dtype: DType) -> Operand {
        let (size, loops) = (dtype.size() as i64, Dims::new());
        Operand { from, size, start: 0, loops, row: 0, column: 0 }
    }

    /// Whether two tensors have each element at the same distance from their first ones.
    pub fn lies_like(&self, other: &Operand) -> bool {
        let place = |o: &Operand| (o.size, o.start, o.row, o.column);
        place(self) == place(other) && self.loops == other.loops
    }

    /// The strides of rows and columns, if they are its own.
    pub fn strides(&self) -> [i64; 2] {
        [self.row, self.column]
    }

    /// The offset of an element, or the number.
    pub fn offset(&self, coords: &[i64], [row, column]: [usize; 2]) -> i64 {
        dot(self.start, &self.loops, coords) + row as i64 * self.row + column as i64 * self.column
    }

    /// The address of an element in memory.
    pub fn address(&self, cx: &PanelContext<'_>, coords: &[i64], at: [usize; 2]) -> Ptr<u8> {
        let base = match self.from {
            From::Memory(memory) => cx.base(Base::Memory(memory)),
            _ => Ptr(std::ptr::null_mut()),
        };
        let bytes = self.offset(coords, at).wrapping_mul(self.size);
        Ptr(base.0.wrapping_offset(bytes as isize))
    }
}
