//! Sorting along a dimension, stable, with NaN as the greatest value.
//!
//! Each line is copied with its positions, and pairs are compared by value, then position, which
//! makes an unstable sort stable. `topk` first partitions the line by quickselect and then sorts
//! the `k` selected elements: O(n + k log k) per line on average.

use crate::copy::{same_dtype, same_sizes};
use crate::element::{Class, Element, dispatch};
use crate::error::{KernelError, Result};
use crate::scan::Lines;
use crate::view::{Dims, View, ViewMut};
use maquette_ir::DType;
use std::cmp::Ordering;

/// The total order of elements: NaN is the greatest and equal to itself.
pub(crate) fn order<C: PartialOrd>(a: &C, b: &C) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.partial_cmp(a).is_none().cmp(&b.partial_cmp(b).is_none()))
}

/// Reduces `items` to the first `k` in sorted order; ties are ordered by position.
fn first_k<C: Class>(items: &mut Vec<(C, i64)>, k: usize, descending: bool) {
    let by = |a: &(C, i64), b: &(C, i64)| {
        let o = order(&a.0, &b.0);
        (if descending { o.reverse() } else { o }).then(a.1.cmp(&b.1))
    };
    if k < items.len() && k > 0 {
        items.select_nth_unstable_by(k - 1, by);
        items.truncate(k);
    }
    items.sort_unstable_by(by);
}

/// Sorts along `dim`. `indices` (i64) receives the original positions. Equal elements keep their
/// order, also if `descending`.
pub fn sort(
    input: &View<'_>,
    dim: usize,
    descending: bool,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    same_sizes("sort", "the values", input.sizes(), values.sizes())?;
    leading("sort", input, dim, descending, values, indices)
}

/// The `k` greatest (or least) elements along `dim` in sorted order, and their positions (i64). `k`
/// is the size of the outputs along `dim`. Among equal elements, earlier positions come first.
pub fn topk(
    input: &View<'_>,
    dim: usize,
    largest: bool,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let mut expected = Dims::from_slice(input.sizes());
    if let (Some(e), Some(k)) = (expected.get_mut(dim), values.sizes().get(dim)) {
        if k > e {
            return Err(KernelError::argument(
                "topk",
                format!("k is {k}, but dimension {dim} has {e} elements"),
            ));
        }
        *e = *k;
    }
    same_sizes("topk", "the values", &expected, values.sizes())?;
    leading("topk", input, dim, largest, values, indices)
}

fn leading(
    kernel: &'static str,
    input: &View<'_>,
    dim: usize,
    descending: bool,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    same_sizes(kernel, "the indices", values.sizes(), indices.sizes())?;
    same_dtype(kernel, "the values", input.dtype(), values.dtype())?;
    same_dtype(kernel, "the indices", DType::I64, indices.dtype())?;
    let lines = Lines::new(kernel, input.sizes(), dim)?;
    let k = values.sizes().get(dim).map_or(1, |n| *n as usize);
    dispatch!(input.dtype(), T => {
        let (src, v, ix) = (input.typed::<T>(), values.typed::<T>(), indices.typed::<i64>());
        let (si, sv, sx) = (lines.stride(input), lines.stride(values), lines.stride(indices));
        lines.each(|line| {
            let (i0, v0) = (lines.start(input, line), lines.start(values, line));
            let x0 = lines.start(indices, line);
            // SAFETY: these are elements of this line, which belongs to one task.
            unsafe {
                let mut items = Vec::new();
                items
                    .try_reserve_exact(lines.len)
                    .map_err(|_| KernelError::Memory { kernel, elements: lines.len })?;
                items.extend((0..lines.len as i64).map(|i| (src.get(i0 + i * si).load(), i)));
                first_k(&mut items, k, descending);
                for (j, (_, i)) in (0..k as i64).zip(items) {
                    v.set(v0 + j * sv, src.get(i0 + i * si));
                    ix.set(x0 + j * sx, i);
                }
            }
            Ok(())
        })
    })
}
