//! Selection by masks. The size of the result depends on data, so the caller first counts the
//! elements, allocates, and then fills.

use crate::copy::{same_dtype, same_sizes};
use crate::element::{Class, Element, dispatch};
use crate::error::{KernelError, Result};
use crate::layout::{for_each, offset};
use crate::view::{Dims, View, ViewMut};
use maquette_ir::DType;

/// Calls `f(flat index, offset)` for every nonzero element, row-major.
fn each_nonzero(v: &View<'_>, mut f: impl FnMut(usize, i64)) {
    dispatch!(v.dtype(), T => {
        let src = v.typed::<T>();
        let mut i = 0;
        for_each(v.sizes(), [v.strides()], |[at]| {
            // SAFETY: this is an element of the view.
            if Class::to_bool(unsafe { src.get(at) }.load()) {
                f(i, at);
            }
            i += 1;
        });
    });
}

/// The number of nonzero elements; NaN is nonzero.
pub fn count_nonzero(input: &View<'_>) -> usize {
    let mut n = 0;
    each_nonzero(input, |_, _| n += 1);
    n
}

/// The positions of nonzero elements, row-major; `out` is `i64[count_nonzero, rank]`.
pub fn nonzero(input: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    const KERNEL: &str = "nonzero";
    same_dtype(KERNEL, "the output", DType::I64, out.dtype())?;
    same_sizes(
        KERNEL,
        "the output",
        &[count_nonzero(input) as i64, input.rank() as i64],
        out.sizes(),
    )?;
    let (dst, sizes) = (out.typed::<i64>(), Dims::from_slice(input.sizes()));
    let (rows, columns) = (out.strides()[0], out.strides()[1]);
    let mut row = 0;
    each_nonzero(input, |flat, _| {
        let mut rest = flat as i64;
        for d in (0..sizes.len()).rev() {
            // SAFETY: there are as many rows as nonzero elements, and as many columns as
            // dimensions.
            unsafe { dst.set(row * rows + d as i64 * columns, rest % sizes[d]) }
            rest /= sizes[d];
        }
        row += 1;
    });
    Ok(())
}

fn check(kernel: &'static str, mask: &View<'_>, one_dim: &View<'_>) -> Result<()> {
    if !matches!(mask.dtype(), DType::Bool | DType::U8) {
        return Err(KernelError::DType {
            kernel,
            operand: "the mask",
            expected: "bool or u8".into(),
            found: mask.dtype(),
        });
    }
    if one_dim.rank() != 1 {
        return Err(KernelError::Count {
            kernel,
            what: "dimensions of the elements",
            expected: 1,
            found: one_dim.rank(),
        });
    }
    Ok(())
}

/// Selects the elements for which the mask, expanded to the input's sizes, is true, in row-major
/// order. `out` is a vector of their number.
pub fn masked_select(input: &View<'_>, mask: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    const KERNEL: &str = "masked_select";
    check(KERNEL, mask, out)?;
    same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
    same_sizes(KERNEL, "the mask", input.sizes(), mask.sizes())?;
    same_sizes(KERNEL, "the output", &[count_nonzero(mask) as i64], out.sizes())?;
    dispatch!(input.dtype(), T => {
        let (src, dst, stride) = (input.typed::<T>(), out.typed::<T>(), out.strides()[0]);
        let mut n = 0;
        each_nonzero(mask, |i, _| {
            // SAFETY: `i` is a flat index of the mask, which has the input's sizes. The output has
            // one element for each true element of the mask.
            unsafe { dst.set(n * stride, src.get(offset(input.sizes(), input.strides(), i))) }
            n += 1;
        });
    });
    Ok(())
}

/// Replaces the elements for which the mask (of the output's sizes) is true by successive elements
/// of `source` in row-major order.
pub fn masked_scatter(out: &mut ViewMut<'_>, mask: &View<'_>, source: &View<'_>) -> Result<()> {
    const KERNEL: &str = "masked_scatter";
    same_dtype(KERNEL, "the source", out.dtype(), source.dtype())?;
    same_sizes(KERNEL, "the mask", out.sizes(), mask.sizes())?;
    let needed = count_nonzero(mask);
    if source.numel() < needed {
        return Err(KernelError::argument(
            KERNEL,
            format!("the mask selects {needed} elements, but the source has {}", source.numel()),
        ));
    }
    dispatch!(out.dtype(), T => {
        let dst = out.typed::<T>();
        let src = source.typed::<T>();
        let mut n = 0;
        each_nonzero(mask, |i, _| {
            // SAFETY: the positions are within both views, as counted above.
            unsafe {
                let x = src.get(offset(source.sizes(), source.strides(), n));
                dst.set(offset(out.sizes(), out.strides(), i), x);
            }
            n += 1;
        });
    });
    Ok(())
}
