//! Least and greatest with their positions.

use super::walk::Shape;
use super::{KERNEL, ReduceOp};
use crate::copy::{check_dim, same_dtype, same_sizes};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::thread_pool;
use crate::view::{View, ViewMut};
use maquette_ir::DType;

/// The position of the least (`max` false) or greatest element, or of the first NaN: along `dim`,
/// or of the whole in row-major order. Ties go to the first.
pub fn argminmax(
    max: bool,
    input: &View<'_>,
    dim: Option<usize>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let dims: Vec<usize> = dim.map_or_else(|| (0..input.rank()).collect(), |d| vec![d]);
    super::reduce(if max { ReduceOp::ArgMax } else { ReduceOp::ArgMin }, input, &dims, out)
}

/// The least or greatest along `dim` and its position (i64), as `torch.min(x, dim)`.
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

pub(super) fn run(
    max: bool,
    input: &View<'_>,
    s: &Shape,
    values: Option<&mut ViewMut<'_>>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    if s.outputs() == 0 {
        return Ok(());
    }
    if s.extent() == 0 {
        return Err(KernelError::EmptyReduction { kernel: KERNEL });
    }
    if let Some(i) = &indices {
        same_dtype(KERNEL, "the indices", DType::I64, i.dtype())?;
    }
    let indices = indices.map(|i| i.typed::<i64>());
    dispatch!(input.dtype(), T => {
        let (src, values) = (input.typed::<T>(), values.map(|v| v.typed::<T>()));
        let stride = s.element_stride();
        thread_pool::ranges(s.outputs(), (thread_pool::GRAIN / s.extent()).max(1), 1, &|from, to| {
            for out in from..to {
                let (base, at_out) = s.at(out);
                // SAFETY: an output's elements, of which there is a first; each output is one
                // task's.
                unsafe {
                    let mut best = src.get(base);
                    let mut best_at = 0;
                    s.elements(0, s.extent(), |pos, at, len| {
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

/// Whether `x`, which comes later, replaces `best`: it is greater (or less), or the first NaN.
#[inline(always)]
pub(crate) fn better<C: PartialOrd>(max: bool, x: C, best: C) -> bool {
    let nan = |v: &C| v.partial_cmp(v).is_none();
    if nan(&best) { false } else { nan(&x) || if max { x > best } else { x < best } }
}
