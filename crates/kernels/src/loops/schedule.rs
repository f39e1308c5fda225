//! Panels of outer iterations.
//!
//! The [outer axes](maquette_ir::loops::outer_axes) of a nest are divided into panels that fit the
//! first caches. A nest with contractions is computed in phases, one after another: each has outer
//! axes of its own, and what it leaves to later ones is in memory as a whole.

use super::launch::Launch;
use crate::view::Dims;
use maquette_ir::loops::{Axes, AxisId, Index, Source, StageKind};
use smallvec::SmallVec;
use std::ops::Range;

/// The bytes that a panel reads and writes, which are to stay in the nearest caches. In small
/// panels the tens of nanoseconds of each stage count; large ones leave the first cache.
const PANEL_BYTES: usize = 64 << 10;

/// The outer iterations, divided into panels: ranges of one outer axis, with all iterations of the
/// axes inside it.
pub(super) struct Panels {
    pub outer: Axes,
    /// How many outer axes have one coordinate in a panel.
    pub fixed: usize,
    /// The iterations of the next axis in a panel; the last panel has fewer.
    pub range: i64,
    /// The extents of the outer axes.
    extents: Dims,
    /// The number of panels for each coordinate of the fixed axes.
    per_line: usize,
    pub count: usize,
}

/// The bytes of one outer iteration: the values of maps, scans and sorts, what is evaluated for
/// folds, and the elements of operands.
fn footprint(launch: &Launch<'_>, outer: &Axes, phase: Range<usize>) -> usize {
    let stages = launch.nest.stages().get(phase).unwrap_or_default();
    let points = |axes: &Axes| {
        let inner = axes.iter().filter(|a| !outer.contains(a));
        inner.fold(1usize, |n, a| n.saturating_mul(launch.extent(*a) as usize))
    };
    let (mut bytes, mut seen) = (1usize, SmallVec::<[Source; 8]>::new());
    for stage in stages {
        let is_load = stage.expr.instrs().len() == 1;
        if !(is_load && matches!(stage.kind, StageKind::Reduce { .. })) {
            let size: usize = stage.expr.output_dtypes().map(|d| d.size()).sum();
            bytes = bytes.saturating_add(points(&stage.over).saturating_mul(size));
        }
        for (load, dtype) in stage.loads.iter().zip(stage.expr.inputs()) {
            if matches!(load.from, Source::Operand(_)) && !seen.contains(&load.from) {
                seen.push(load.from);
                let is_along = |axis: AxisId| {
                    load.at.indices().iter().any(|index| match index {
                        Index::Affine(affine) => affine.terms.iter().any(|(a, _)| *a == axis),
                        Index::Computed => true,
                    })
                };
                let axes: Axes = stage.over.iter().copied().filter(|a| is_along(*a)).collect();
                bytes = bytes.saturating_add(points(&axes).saturating_mul(dtype.size()));
            }
        }
    }
    bytes
}

/// The part of the outer iterations that a panel has.
pub(super) struct Panel {
    /// The coordinates of the fixed axes, then the first of the range.
    pub start: SmallVec<[i64; 4]>,
    /// The length of the range.
    pub range: i64,
}

impl Panels {
    /// One panel of everything.
    pub fn whole() -> Panels {
        let (outer, extents) = (Axes::new(), Dims::new());
        Panels { outer, fixed: 0, range: 1, extents, per_line: 1, count: 1 }
    }

    pub fn new(launch: &Launch<'_>, outer: &Axes, phase: Range<usize>) -> Panels {
        let extents = launch.extents_of(outer);
        let bytes = footprint(launch, outer, phase);
        let fitting = (PANEL_BYTES / bytes).max(1);
        let (mut fixed, mut inside) = (outer.len(), 1usize);
        while fixed > 0 && inside.saturating_mul(extents[fixed - 1] as usize) <= fitting {
            fixed -= 1;
            inside *= extents[fixed] as usize;
        }
        if fixed == 0 {
            let range = extents.first().copied().unwrap_or(1);
            return Panels { outer: outer.clone(), fixed, range, extents, per_line: 1, count: 1 };
        }
        fixed -= 1;
        let extent = extents[fixed];
        let range = (fitting / inside.max(1)).clamp(1, extent.max(1) as usize) as i64;
        // Rows are folded in pairs.
        let range = if range > 1 { range & !1 } else { range };
        let per_line = (extent as usize).div_ceil(range as usize);
        let count = extents[..fixed].iter().fold(per_line, |n, e| n * *e as usize);
        Panels { outer: outer.clone(), fixed, range, extents, per_line, count }
    }

    /// The axes of which a panel has a first coordinate: the fixed ones and the ranged one.
    pub fn started(&self) -> &[AxisId] {
        &self.outer[..self.outer.len().min(self.fixed + 1)]
    }

    /// The axis of which a panel has a range.
    pub fn ranged(&self) -> Option<&AxisId> {
        self.outer.get(self.fixed)
    }

    /// The extents of axes in a panel of the whole range, and in the last panel of a line. They are
    /// equal if all panels have one length.
    pub fn sizes(&self, launch: &Launch<'_>, axes: &[AxisId]) -> [Dims; 2] {
        let extent = self.extents.get(self.fixed).copied().unwrap_or(1);
        let tail = Some(extent % self.range.max(1)).filter(|tail| *tail > 0);
        [self.range, tail.unwrap_or(self.range)].map(|range| {
            let size = |axis: &AxisId| match self.ranged() {
                Some(ranged) if ranged == axis => range,
                _ => launch.extent(*axis),
            };
            axes.iter().map(size).collect()
        })
    }

    /// The panels that a task takes at least.
    pub fn grain(&self, launch: &Launch<'_>, phase: Range<usize>) -> usize {
        let stages = launch.nest.stages().get(phase).unwrap_or_default();
        let points = stages.iter().map(|stage| {
            stage.over.iter().fold(1usize, |n, a| n.saturating_mul(launch.extent(*a) as usize))
        });
        let points = points.fold(0usize, usize::saturating_add);
        (crate::thread_pool::GRAIN / (points / self.count.max(1)).max(1)).max(1)
    }

    /// Panel `index`.
    pub fn panel(&self, index: usize) -> Panel {
        let mut start: SmallVec<[i64; 4]> = SmallVec::from_elem(0, self.fixed);
        let mut line = index / self.per_line;
        for (at, extent) in start.iter_mut().zip(&self.extents).rev() {
            let extent = (*extent).max(1) as usize;
            *at = (line % extent) as i64;
            line /= extent;
        }
        let first = (index % self.per_line) as i64 * self.range;
        let extent = self.extents.get(self.fixed).copied().unwrap_or(1);
        if self.fixed < self.outer.len() {
            start.push(first);
        }
        Panel { start, range: self.range.min(extent - first) }
    }

    /// The index of a plan's part for a panel: 0 for one of the whole range, 1 for a shorter one.
    pub fn part(&self, panel: &Panel) -> usize {
        usize::from(panel.range != self.range)
    }
}
