//! Scans and sorts of lines of values.

use super::fold::{Folds, Rows, division, reference, state, write};
use super::stage::{PanelContext, StagePlan};
use crate::element::{Class, Element, dispatch, from_scalar};
use crate::error::Result;
use crate::pointwise::frame::Failure;
use crate::sort::order;
use crate::thread_pool;
use crate::view::{Ptr, numel};
use maquette_ir::loops::AxisId;
use maquette_ir::loops::fold::{Fold, Order, identity};

/// The lines of a stage's values in a panel: their number, and their length.
fn lines(cx: &PanelContext<'_>, plan: &StagePlan<'_>) -> (usize, usize) {
    let sizes = cx.sizes(&plan.values[0]);
    match sizes.split_last() {
        Some((n, others)) => (numel(others), *n as usize),
        None => (1, 1),
    }
}

/// Scans the lines of a stage's values. Returns the first failure.
pub(super) fn scan(
    cx: &PanelContext<'_>,
    plan: &StagePlan<'_>,
    fold: &Fold,
) -> Result<Option<Failure>> {
    let (count, n) = lines(cx, plan);
    if let Fold::Of { .. } = fold {
        let reference = reference(plan, fold, Order::Sequential);
        for line in 0..count {
            let mut sum = reference.identity();
            for at in line * n..(line + 1) * n {
                let value = state(cx, &plan.values[0], at);
                let Ok(next) = reference.combine(&sum, &value) else {
                    return Ok(Some(division(line, n)));
                };
                sum = next;
                for (x, out) in sum.iter().zip(&plan.outputs) {
                    write(cx, out, at, one_nan(*x));
                }
            }
        }
        return Ok(None);
    }
    let (values, out) = (&plan.values[0].buffers[0], &plan.outputs[0]);
    let grain = (thread_pool::GRAIN / n.max(1)).max(1);
    dispatch!(values.dtype, T => {
        let xs = Rows::<T>::new(cx, values, n);
        let out = Ptr(out.base.address(cx.memory).0.cast::<T>());
        let start: <T as Element>::Class = from_scalar::<T>(identity(fold, T::DTYPE)).load();
        thread_pool::ranges(count, grain, 1, &|from, to| {
            for line in from..to {
                let mut sum = start;
                for (x, at) in xs.row(line).iter().zip((line * n) as i64..) {
                    // Narrow integers and floats round at each step.
                    sum = T::store(Folds::combine(fold, sum, *x)).load();
                    // SAFETY: an output has a place for each value, and a line belongs to one task.
                    unsafe { out.set(at, T::store(sum.one_nan())) }
                }
            }
            Ok(())
        })?;
    });
    Ok(None)
}

fn one_nan(x: maquette_ir::Scalar) -> maquette_ir::Scalar {
    match x {
        maquette_ir::Scalar::Float(x) => maquette_ir::Scalar::Float(x.one_nan()),
        x => x,
    }
}

/// Sorts the lines of a stage's values.
pub(super) fn sort(
    cx: &PanelContext<'_>,
    plan: &StagePlan<'_>,
    keep: AxisId,
    descending: bool,
) -> Result<()> {
    let (count, n) = lines(cx, plan);
    let kept = cx.launch.extent(keep) as usize;
    let [sorted, coords] = &plan.outputs[..] else { return Ok(()) };
    let values = &plan.values[0].buffers[0];
    let grain = (thread_pool::GRAIN / n.max(1)).max(1);
    dispatch!(values.dtype, T => {
        let xs = Rows::<T>::new(cx, values, n);
        let sorted = Ptr(sorted.base.address(cx.memory).0.cast::<T>());
        let coords = Ptr(coords.base.address(cx.memory).0.cast::<i64>());
        thread_pool::ranges(count, grain, 1, &|from, to| {
            for line in from..to {
                let row = xs.row(line);
                let mut items: Vec<i64> = (0..n as i64).collect();
                items.sort_by(|a, b| {
                    let order = order(&row[*a as usize], &row[*b as usize]);
                    if descending { order.reverse() } else { order }
                });
                for (i, at) in items.into_iter().take(kept).zip((line * kept) as i64..) {
                    // SAFETY: the outputs have a place for each kept value, and a line belongs to
                    // one task.
                    unsafe {
                        sorted.set(at, T::store(row[i as usize]));
                        coords.set(at, i);
                    }
                }
            }
            Ok(())
        })?;
    });
    Ok(())
}
