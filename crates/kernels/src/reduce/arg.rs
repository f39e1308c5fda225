//! Positions of extremes: `argmin`, `argmax`, and extremes together with their positions.
//!
//! Each output is a sequential scan of its elements in logical order, so that ties go to the first
//! position. Outputs are independent and run on the thread pool.

use super::shape::Shape;
use super::{KERNEL, ReduceOp};
use crate::copy::{check_dim, same_dtype, same_sizes};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::thread_pool;
use crate::view::{View, ViewMut};
use maquette_ir::DType;

/// The position of the greatest (`max`) or least element, or of the first NaN: along `dim`, or
/// without `dim` the row-major position in the whole input. Of equal elements, the first counts.
pub fn argminmax(
    max: bool,
    input: &View<'_>,
    dim: Option<usize>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let dims: Vec<usize> = dim.map_or_else(|| (0..input.rank()).collect(), |d| vec![d]);
    super::reduce(if max { ReduceOp::ArgMax } else { ReduceOp::ArgMin }, input, &dims, out)
}

/// The greatest (`max`) or least element along `dim` and its position (`i64`), as `torch.max(x,
/// dim)`.
pub fn minmax_with_index(
    max: bool,
    input: &View<'_>,
    dim: usize,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    check_dim(KERNEL, dim, input.rank())?;
    same_dtype(KERNEL, "the values", input.dtype(), values.dtype())?;
    same_sizes(KERNEL, "the indices", values.sizes(), indices.sizes())?;
    let shape = Shape::new(Isa::detect(), input, &[dim][..input.rank().min(1)], values)?;
    run(max, input, &shape, Some(values), None)?;
    let shape = Shape::new(Isa::detect(), input, &[dim][..input.rank().min(1)], indices)?;
    run(max, input, &shape, None, Some(indices))
}

/// Writes the extremes or their positions, whichever outputs are given.
pub(super) fn run(
    max: bool,
    input: &View<'_>,
    shape: &Shape,
    values: Option<&mut ViewMut<'_>>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    if shape.outputs() == 0 {
        return Ok(());
    }
    if shape.extent() == 0 {
        return Err(KernelError::EmptyReduction { kernel: KERNEL });
    }
    if let Some(i) = &indices {
        same_dtype(KERNEL, "the indices", DType::I64, i.dtype())?;
    }
    let indices = indices.map(|i| i.typed::<i64>());
    dispatch!(input.dtype(), T => {
        let (src, values) = (input.typed::<T>(), values.map(|v| v.typed::<T>()));
        let stride = shape.element_stride();
        let grain = (thread_pool::GRAIN / shape.extent()).max(1);
        thread_pool::ranges(shape.outputs(), grain, 1, &|from, to| {
            for out in from..to {
                let (base, at_out) = (shape.input_at(out), shape.output_at(out));
                // SAFETY: these are elements of the output, which has at least one; an output
                // belongs to one task.
                unsafe {
                    let mut best = src.get(base);
                    let mut best_at = 0;
                    shape.elements(0, shape.extent(), |pos, at, len| {
                        for i in 0..len {
                            let x = src.get(base + at + i as i64 * stride);
                            if better(max, x.load(), best.load()) {
                                (best, best_at) = (x, (pos + i) as i64);
                            }
                        }
                    });
                    if let Some(v) = values { v.set(at_out, best) }
                    if let Some(v) = indices { v.set(at_out, best_at) }
                }
            }
            Ok(())
        })
    })
}

/// Whether a later element `x` replaces `best`: it is greater (or less, unless `max`), or it is the
/// first NaN.
#[inline(always)]
pub(crate) fn better<C: PartialOrd>(max: bool, x: C, best: C) -> bool {
    let nan = |v: &C| v.partial_cmp(v).is_none();
    if nan(&best) { false } else { nan(&x) || if max { x > best } else { x < best } }
}
