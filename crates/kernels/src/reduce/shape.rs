//! The loops of a reduction: over outputs, and over the elements of one output.

use super::KERNEL;
use crate::copy::{check_dim, same_sizes};
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::Loops;
use crate::view::{Dims, View, ViewMut, contiguous, numel};

/// The loops of a reduction.
pub(super) struct Shape {
    pub isa: Isa,
    /// Over the outputs: operand 0 is the output, operand 1 the input.
    pub kept: Loops,
    /// Over the elements of one output in the input, in logical order.
    pub reduced: Loops,
    /// The number of elements of one output.
    extent: usize,
}

impl Shape {
    /// Checks the dimensions and the output's sizes.
    pub fn new(isa: Isa, input: &View<'_>, dims: &[usize], out: &ViewMut<'_>) -> Result<Shape> {
        let rank = input.rank();
        let mut is_reduced = vec![false; rank];
        for &d in dims {
            check_dim(KERNEL, d, rank)?;
            if let Some(r) = is_reduced.get_mut(d) {
                *r = true;
            }
        }
        let pick = |reduced: bool, of: &[i64]| -> Dims {
            (0..rank).filter(|d| is_reduced[*d] == reduced).map(|d| of[d]).collect()
        };
        let keepdim = out.rank() == rank;
        let expected: Dims = match keepdim {
            true => (0..rank).map(|d| if is_reduced[d] { 1 } else { input.sizes()[d] }).collect(),
            false => pick(false, input.sizes()),
        };
        same_sizes(KERNEL, "the output", &expected, out.sizes())?;
        let out_strides =
            if keepdim { pick(false, out.strides()) } else { Dims::from_slice(out.strides()) };
        let kept = Loops::new(
            &pick(false, input.sizes()),
            [&out_strides[..], &pick(false, input.strides())],
            true,
        );
        let sizes = pick(true, input.sizes());
        // Unsorted: the order of summation is part of the result, so it must not depend on strides.
        let reduced = Loops::new(&sizes, [&pick(true, input.strides())[..]], false);
        Ok(Shape { isa, kept, reduced, extent: numel(&sizes) })
    }

    /// The number of elements of one output.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.kept.numel()
    }

    /// The same reduction with a flat buffer as the output, in the order of the loops.
    pub fn flat(&self) -> Shape {
        let mut kept = self.kept.clone();
        kept.strides[0] = contiguous(&kept.sizes);
        Shape { isa: self.isa, kept, reduced: self.reduced.clone(), extent: self.extent }
    }

    /// The offset in the input of an output's first element.
    #[inline]
    pub fn input_at(&self, out: usize) -> i64 {
        self.kept.offset(1, out)
    }

    /// The offset of an output in the output tensor.
    #[inline]
    pub fn output_at(&self, out: usize) -> i64 {
        self.kept.offset(0, out)
    }

    /// Calls `f(position, offset, length)` for each run among the `n` elements of an output from
    /// position `from`, in order. Offsets are relative to the output's first element, and
    /// [`element_stride`](Shape::element_stride) is the stride within runs.
    pub fn elements(&self, from: usize, n: usize, f: impl FnMut(usize, i64, usize)) {
        self.reduced.runs(0, from, n, f);
    }

    /// The stride within a run of elements of one output.
    pub fn element_stride(&self) -> i64 {
        self.reduced.inner_stride(0)
    }

    /// Whether neighbouring outputs are contiguous in the input, and the elements of one output are
    /// not.
    pub fn by_columns(&self) -> bool {
        self.kept.inner_size() >= 8
            && self.kept.inner_stride(1) == 1
            && self.reduced.inner_stride(0) != 1
            && self.extent > 1
    }
}
