//! Loop-invariant code motion out of short rows.
//!
//! Fusion evaluates a map of rows, such as the reciprocal of a sum, where the elements of the rows
//! read it. An evaluation computes such values once a row, but blocks have several short rows, and
//! their values one for each element. There, the planner evaluates the values of rows ahead, into
//! scratch memory of the panel.
//!
//! **Invariant:** the operations are the same, and so are the bits. An integer division that fails
//! ahead fails where it was as well, because no axis is empty. Values move only if they take more
//! time than to load them.

use super::stage::Planner;
use super::values::{Destination, Values};
use crate::error::Result;
use crate::pointwise::LONG_ROW;
use maquette_ir::DType;
use maquette_ir::loops::{Axes, Stage};
use maquette_ir::scalar_expr::{BinaryOp, Op, Reg, ScalarExpr, UnaryOp};
use smallvec::SmallVec;

/// The values of a map at some axes: those of its rows, if they are evaluated ahead, then all.
pub(super) fn map(
    planner: &mut Planner<'_>,
    stage: &Stage,
    expr: &ScalarExpr,
    axes: Axes,
    to: Destination,
) -> Result<SmallVec<[Values; 1]>> {
    let Some((ahead, rest, of_rows)) = split(planner, stage, expr, &axes)? else {
        return Ok(SmallVec::from_iter([Values::new(planner, stage, expr, axes, to, &[])?]));
    };
    let ahead = Values::new(planner, stage, &ahead, of_rows.clone(), Destination::Scratch, &[])?;
    let access = ahead.buffers.iter().map(|b| b.access(&of_rows, &axes, planner.panels));
    let loads: SmallVec<[_; 2]> = access.collect();
    let rest = Values::new(planner, stage, &rest, axes, to, &loads)?;
    Ok(SmallVec::from_iter([ahead, rest]))
}

/// The expression of the values to evaluate ahead, the expression that takes them as further
/// inputs, and the axes of the former.
fn split(
    planner: &Planner<'_>,
    stage: &Stage,
    expr: &ScalarExpr,
    axes: &Axes,
) -> Result<Option<(ScalarExpr, ScalarExpr, Axes)>> {
    let Some((last, outer)) = axes.split_last() else { return Ok(None) };
    let is_short = (2..LONG_ROW as i64).contains(&planner.launch.extent(*last));
    let is_empty = axes.iter().any(|a| planner.launch.extent(*a) == 0);
    if !is_short || is_empty || !expr.is_pure() {
        return Ok(None);
    }
    let mut strides: SmallVec<[_; 4]> = SmallVec::new();
    for load in &stage.loads {
        strides.push(planner.load(load, axes)?.strides);
    }
    // Whether each value depends on the element of a row, and whether it is worth keeping.
    let mut values: SmallVec<[(bool, bool); 16]> = SmallVec::new();
    let mut ahead: SmallVec<[Reg; 2]> = SmallVec::new();
    for instr in expr.instrs() {
        let of_element = match instr.op {
            Op::Input(k) => strides[k as usize].last() != Some(&0),
            op => op.operands().any(|r| values[r.index()].0),
        };
        let is_slow = is_slow(instr.op) || instr.op.operands().any(|r| values[r.index()].1);
        let is_kept = |r: &Reg| {
            let (of_element, is_slow) = values[r.index()];
            let has_class = matches!(expr.dtype(*r), DType::F32 | DType::F64);
            has_class && is_slow && !of_element
        };
        if of_element {
            ahead.extend(instr.op.operands().filter(is_kept));
        }
        values.push((of_element, is_slow));
    }
    ahead.sort_unstable();
    ahead.dedup();
    let Some((first, rest)) = expr.split(&ahead).filter(|_| !ahead.is_empty()) else {
        return Ok(None);
    };
    let read = first.instrs().iter().filter_map(|i| match i.op {
        Op::Input(k) => strides.get(k as usize),
        _ => None,
    });
    let read: SmallVec<[_; 4]> = read.collect();
    let is_along = |at: usize| read.iter().any(|strides| strides[at] != 0);
    let of_rows: Axes = (0..outer.len()).filter(|at| is_along(*at)).map(|at| outer[at]).collect();
    // Values of the whole launch are computed once.
    Ok((!of_rows.is_empty()).then_some((first, rest, of_rows)))
}

/// Whether an operation on floats takes longer than a load.
fn is_slow(op: Op) -> bool {
    use UnaryOp::*;
    match op {
        Op::Unary(op, _) => {
            !matches!(op, Neg | Abs | Sign | Not | Floor | Ceil | Round | Trunc | IsNan | IsInf)
        }
        Op::Binary(op, ..) => {
            matches!(op, BinaryOp::Div | BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Hypot)
        }
        _ => false,
    }
}
