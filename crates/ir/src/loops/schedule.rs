//! The axes over which the stages of a nest can run together.
//!
//! An axis is *outer* if every stage iterates over it, none combines values along it, and each load
//! of a stage's output reads the iteration's own part: the dimension of the axis is indexed by the
//! axis. Iterations of outer axes are then independent of each other through all stages.

use super::{Affine, Axes, AxisId, Index, LoopNest, Source, Stage, StageKind};
use std::ops::Range;

/// The outer axes of some stages of a nest, a *phase*, in the order of the first stage. What other
/// phases computed is in memory as a whole.
pub fn outer_axes(nest: &LoopNest, phase: Range<usize>) -> Axes {
    let stages = nest.stages().get(phase.clone()).unwrap_or_default();
    let Some((first, others)) = stages.split_first() else { return Axes::new() };
    let mut outer: Axes = first.over.clone();
    outer.retain(|axis| !combines(first, *axis));
    for stage in others {
        outer.retain(|axis| stage.over.contains(axis) && !combines(stage, *axis));
    }
    // Dropping an axis never makes another one invalid.
    outer.retain(|axis| stages.iter().all(|stage| reads_its_own(nest, &phase, stage, *axis)));
    outer
}

/// Whether a stage combines values along an axis, or as a whole.
fn combines(stage: &Stage, axis: AxisId) -> bool {
    match &stage.kind {
        StageKind::Map => false,
        StageKind::Reduce { along, .. } => along.contains(&axis),
        StageKind::Scan { along, .. } | StageKind::Sort { along, .. } => *along == axis,
        // A product divides itself, and a scatter writes anywhere.
        StageKind::Contract { .. } | StageKind::Scatter { .. } => true,
    }
}

/// Whether each load of a stage reads the part of its source that an iteration of the axis wrote,
/// if it is one of the phase.
fn reads_its_own(nest: &LoopNest, phase: &Range<usize>, stage: &Stage, axis: AxisId) -> bool {
    stage.loads.iter().all(|load| {
        let Source::Stage(output) = load.from else { return true };
        if !phase.contains(&output.stage.index()) {
            return true;
        }
        let Some(source) = nest.stage(output.stage) else { return false };
        let dim = source.axes().iter().position(|a| *a == axis);
        dim.and_then(|dim| load.at.indices().get(dim)) == Some(&Index::Affine(Affine::from(axis)))
    })
}
