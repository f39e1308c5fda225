//! Computations that move elements: fills, copies, selections, padding, triangles.

use super::template::is_nest;
use crate::loops::named::{self, Number};
use crate::loops::{Axes, Index, LaunchScalar, LoopBuilder, LoopNest, Operand, ScalarId, Stage};
use crate::scalar_expr::Op;
use crate::{DType, Scalar};
use smallvec::SmallVec;

/// The operands and the stage of a nest that has one stage and one result.
fn one_stage(nest: &LoopNest) -> Option<(&[Operand], &Stage)> {
    match (nest.stages(), nest.results()) {
        ([stage], [_]) => Some((nest.operands(), stage)),
        _ => None,
    }
}

/// Adds an axis for each of the stage, and the launch scalars of the nest.
fn axes_and_scalars(template: &mut LoopBuilder, nest: &LoopNest, stage: &Stage) -> Axes {
    for scalar in nest.scalars() {
        template.scalar(*scalar);
    }
    let sizes = stage.over.iter().map(|_| template.new_size()).collect::<Vec<_>>();
    sizes.into_iter().map(|size| template.axis(size)).collect()
}

/// The number that fills, or which of the launch's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// This number.
    Constant(Scalar),
    /// The number of the launch at this place.
    Number(usize),
}

pub(super) fn fill(nest: &LoopNest) -> Option<Fill> {
    let ([], stage) = one_stage(nest)? else { return None };
    let [only] = stage.expr.instrs() else { return None };
    let (value, fill) = match only.op {
        Op::Const(value) => (Number::Constant(value), Fill::Constant(value)),
        Op::Launch(k) => {
            let is_number = |s: &&LaunchScalar| matches!(s, LaunchScalar::Number(_));
            let before = nest.scalars().iter().take(k as usize).filter(is_number).count();
            (Number::Launch(ScalarId(k)), Fill::Number(before))
        }
        _ => return None,
    };
    let matches = is_nest(nest, |template, _| {
        let over = axes_and_scalars(template, nest, stage);
        Ok([named::fill(template, &over, value, only.dtype)?.into()])
    });
    matches.then_some(fill)
}

pub(super) fn copy(nest: &LoopNest) -> bool {
    let Some(([_], _)) = one_stage(nest) else { return false };
    let Some(out) = nest.results().first().and_then(|result| nest.dtype(*result)) else {
        return false;
    };
    is_nest(nest, |nest, inputs| Ok([named::copy(nest, &inputs[0], out)?.into()]))
}

/// The elements, or the slices, of an operand at an index along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// The dimension.
    pub dim: usize,
    /// Whether each position selects a slice.
    pub of_slices: bool,
}

pub(super) fn select(nest: &LoopNest) -> Option<Select> {
    let ([_, index], stage) = one_stage(nest)? else { return None };
    if !matches!(index.dtype, DType::I64 | DType::I32) {
        return None;
    }
    let load = stage.loads.iter().find(|load| !load.at.is_affine())?;
    let dim = load.at.indices().iter().position(|i| *i == Index::Computed)?;
    let is_select = is_nest(nest, |nest, inputs| {
        Ok([named::select(nest, &inputs[0], dim, &inputs[1])?.into()])
    });
    let is_gather = || {
        is_nest(nest, |nest, inputs| Ok([named::gather(nest, &inputs[0], dim, &inputs[1])?.into()]))
    };
    (is_select || is_gather()).then_some(Select { dim, of_slices: is_select })
}

/// An operand with a constant around it, or without its margins.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// The padded dimensions, each with the place, among the numbers of a launch, of how many
    /// elements come before the operand. A negative number removes elements.
    pub before: SmallVec<[(usize, usize); 4]>,
    /// What is around the operand.
    pub value: Fill,
}

pub(super) fn pad(nest: &LoopNest) -> Option<Pad> {
    let ([x], stage) = one_stage(nest)? else { return None };
    let [load] = &stage.loads[..] else { return None };
    let is_number = |s: &LaunchScalar| matches!(s, LaunchScalar::Number(_));
    if load.at.is_affine() || !nest.scalars().iter().all(is_number) {
        return None;
    }
    // The numbers are those of the padded dimensions, in order, and the value is the last.
    let dims: SmallVec<[usize; 4]> = load.at.computed_dims().collect();
    let before: Vec<(usize, ScalarId)> =
        dims.iter().enumerate().map(|(i, d)| (*d, ScalarId(i as u32))).collect();
    let (value, around) = match nest.scalars().len().checked_sub(dims.len())? {
        1 => (Number::Launch(ScalarId(dims.len() as u32)), Fill::Number(dims.len())),
        0 => {
            let constant = stage.expr.instrs().iter().find_map(|i| match i.op {
                Op::Const(value) if i.dtype == x.dtype => Some(value),
                _ => None,
            })?;
            (Number::Constant(constant), Fill::Constant(constant))
        }
        _ => return None,
    };
    let matches = is_nest(nest, |template, inputs| {
        let over = axes_and_scalars(template, nest, stage);
        Ok([named::pad(template, &inputs[0], &over, &before, value)?.into()])
    });
    matches.then(|| Pad {
        before: before.iter().map(|(d, s)| (*d, s.index())).collect(),
        value: around,
    })
}

/// Of each row of a matrix, one part is copied and the other is cleared. The number of a launch is
/// the diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triangle {
    /// Whether the lower triangle is copied.
    pub lower: bool,
}

pub(super) fn triangle(nest: &LoopNest) -> Option<Triangle> {
    let ([_], [_], [_], [LaunchScalar::Number(DType::I64)]) =
        (nest.operands(), nest.stages(), nest.results(), nest.scalars())
    else {
        return None;
    };
    [true, false].into_iter().find_map(|lower| {
        let matches = is_nest(nest, |nest, inputs| {
            let diagonal = nest.number(DType::I64);
            Ok([named::triangle(nest, &inputs[0], lower, diagonal)?.into()])
        });
        matches.then_some(Triangle { lower })
    })
}
