//! Scans and sorts of lines of values.

use super::fold::{Folds, address, division, reference, state, write};
use super::rows::{RowPlan, of_class_mut};
use super::stage::{Outcome, PanelContext, StagePlan};
use crate::element::{Class, Element, dispatch};
use crate::error::Result;
use crate::sort::order;
use crate::thread_pool;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::loops::fold::{Fold, Order, State};
use maquette_ir::loops::scan::{BLOCK, ScanOrder};
use maquette_ir::loops::{AxisId, Stage};

/// Scans the lines of a stage's values. Returns the first failure.
pub(super) fn scan(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    stage: &Stage,
    rows: &RowPlan,
    (fold, order): (&Fold, ScanOrder),
) -> Outcome {
    let (count, n) = (rows.count(cx), rows.n);
    if let Fold::Of { .. } = fold {
        let reference = reference(stage, fold, Order::Lanes);
        for line in 0..count {
            let values: Vec<State> =
                (line * n..(line + 1) * n).map(|at| state(cx, plan, at)).collect();
            let Ok(states) = reference.scan(order, &values) else {
                return Err(division(line, n).into());
            };
            for (state, at) in states.iter().zip(line * n..) {
                for (x, out) in state.iter().zip(&plan.outputs) {
                    write(address(cx, out), out.buffer.dtype, at, one_nan(*x));
                }
            }
        }
        return Ok(());
    }
    let out = &plan.outputs[0];
    let grain = (thread_pool::GRAIN / n.max(1)).max(1);
    let part = match fault_injected(Fault::BlocksApart) {
        true => BLOCK,
        false => n.max(1),
    };
    dispatch!(out.buffer.dtype, T => {
        let Some(xs) = rows.rows::<T>(cx) else { return Ok(()) };
        let out = address::<T>(cx, out);
        thread_pool::ranges(count, grain, 1, &|from, to| {
            for line in from..to {
                // SAFETY: an output has a place for each value, and a line belongs to one task.
                let out = unsafe { out.slice_mut((line * n) as i64, n) };
                match order {
                    ScanOrder::Blocks => {
                        out.copy_from_slice(xs.elements(line));
                        // The values of a scan in blocks are floats that are their class.
                        let values = of_class_mut::<T>(out).unwrap_or_default();
                        for part in values.chunks_mut(part) {
                            Folds::scan_blocks(cx.run.isa, part);
                        }
                    }
                    ScanOrder::Exact | ScanOrder::Chain => {
                        let mut state = None;
                        for (out, x) in out.iter_mut().zip(xs.row(line).iter()) {
                            // Narrow integers wrap at each step.
                            let next = state.map_or(*x, |state| Folds::combine(fold, state, *x));
                            let next = T::store(next).load();
                            *out = T::store(next.one_nan());
                            state = Some(next);
                        }
                    }
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
