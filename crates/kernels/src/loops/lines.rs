//! Scans and sorts of lines of values.

use super::fold::{Folds, address, division, reference, state, write};
use super::rows::RowPlan;
use super::stage::{Outcome, PanelContext, StagePlan};
use crate::element::{Class, Element, dispatch, from_scalar};
use crate::error::Result;
use crate::sort::order;
use crate::thread_pool;
use maquette_ir::loops::fold::{Fold, Order, identity};
use maquette_ir::loops::{AxisId, Stage};

/// Scans the lines of a stage's values. Returns the first failure.
pub(super) fn scan(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    stage: &Stage,
    rows: &RowPlan,
    fold: &Fold,
) -> Outcome {
    let (count, n) = (rows.count(cx), rows.n);
    if let Fold::Of { .. } = fold {
        let reference = reference(stage, fold, Order::Sequential);
        for line in 0..count {
            let mut sum = reference.identity();
            for at in line * n..(line + 1) * n {
                let value = state(cx, plan, at);
                let Ok(next) = reference.combine(&sum, &value) else {
                    return Err(division(line, n).into());
                };
                sum = next;
                for (x, out) in sum.iter().zip(&plan.outputs) {
                    write(address(cx, out), out.buffer.dtype, at, one_nan(*x));
                }
            }
        }
        return Ok(());
    }
    let out = &plan.outputs[0];
    let grain = (thread_pool::GRAIN / n.max(1)).max(1);
    dispatch!(out.buffer.dtype, T => {
        let Some(xs) = rows.rows::<T>(cx) else { return Ok(()) };
        let out = address::<T>(cx, out);
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
    Ok(())
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
    plan: &StagePlan,
    rows: &RowPlan,
    keep: AxisId,
    descending: bool,
) -> Result<()> {
    let (count, n) = (rows.count(cx), rows.n);
    let kept = cx.extent(keep) as usize;
    let [sorted, coords] = &plan.outputs[..] else { return Ok(()) };
    let grain = (thread_pool::GRAIN / n.max(1)).max(1);
    dispatch!(sorted.buffer.dtype, T => {
        let Some(xs) = rows.rows::<T>(cx) else { return Ok(()) };
        let (sorted, coords) = (address::<T>(cx, sorted), address::<i64>(cx, coords));
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
