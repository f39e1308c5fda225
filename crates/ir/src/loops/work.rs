//! The work of a nest: the operations that it takes at least, and the elements that it reads.
//!
//! These are the two coordinates of the roofline model (Williams, Waterman and Patterson,
//! "Roofline: an insightful visual performance model for multicore architectures", 2009), as the
//! description of the nest gives them. An executor may compute a value again, or read it again.
//!
//! - An operation of an expression on floats counts 1 for each point of the axes on which it
//!   depends. So do elementary functions, which take an executor more. Casts, selections,
//!   comparisons and operations on integers count nothing.
//! - A point of a contraction counts 2: a product and an addition. A point of a fold or a scan
//!   counts 1, or what the combining expression counts. [`Fold::Moments`] takes two passes and
//!   counts 5.
//! - An element of an operand counts once, however often it is read. A load at computed positions
//!   reads at most one element for each point of the axes on which the positions depend.
//!
//! **Cost:** linear in the number of instructions and axes.

use super::fold::Fold;
use super::{AxisId, Combine, Index, LoopNest, OperandId, Source, Stage, StageKind};
use crate::scalar_expr::{Instr, Op, Read, ScalarExpr};
use crate::sym::{Expr, SymError, SymbolId};
use smallvec::SmallVec;

/// The operations of [`Fold::Moments`] on a value: an addition for the mean, and the subtraction,
/// the product and two additions of the second pass.
const MOMENTS: u64 = 5;

/// Axes of a nest, a bit for each.
#[derive(Clone, Copy, Default)]
struct AxisSet(u128);

impl AxisSet {
    fn of(axes: impl IntoIterator<Item = AxisId>) -> AxisSet {
        axes.into_iter().fold(AxisSet::default(), |set, axis| {
            AxisSet(set.0 | 1u128.checked_shl(axis.0).unwrap_or_default())
        })
    }

    fn with(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    fn contains(self, axis: usize) -> bool {
        self.0.checked_shr(axis as u32).unwrap_or_default() & 1 == 1
    }
}

impl Instr {
    /// The floating-point operations of the instruction.
    pub const fn flops(&self) -> u64 {
        let computes = matches!(self.op, Op::Unary(..) | Op::Binary(..));
        (computes && self.dtype.is_float()) as u64
    }
}

impl ScalarExpr {
    /// The floating-point operations of one evaluation; see [the rules](crate::loops::work).
    pub fn flops(&self) -> u64 {
        self.instrs().iter().map(Instr::flops).sum()
    }
}

/// The extents of a nest's axes.
struct Extents(SmallVec<[u64; 8]>);

impl Extents {
    /// The points of some axes.
    fn points(&self, axes: AxisSet) -> u64 {
        let extents = self.0.iter().enumerate().filter(|(axis, _)| axes.contains(*axis));
        extents.fold(1, |n, (_, extent)| n.saturating_mul(*extent))
    }
}

impl Stage {
    /// The axes on which the position of a load depends, without its computed dimensions.
    fn load_axes(&self, load: u32) -> AxisSet {
        let Some(load) = self.loads.get(load as usize) else { return AxisSet::default() };
        let terms = load.at.0.iter().filter_map(|index| match index {
            Index::Affine(affine) => Some(affine.terms.iter().map(|(axis, _)| *axis)),
            Index::Computed => None,
        });
        AxisSet::of(terms.flatten())
    }

    /// The axes on which each register depends.
    fn register_axes(&self) -> Vec<AxisSet> {
        let mut axes: Vec<AxisSet> = Vec::with_capacity(self.expr.instrs().len());
        for instr in self.expr.instrs() {
            let own = match instr.op {
                Op::Input(load) => self.load_axes(load),
                Op::Read(read) => self.load_axes(read.input),
                Op::Coord(axis) => AxisSet::of([AxisId(axis)]),
                _ => AxisSet::default(),
            };
            let operands = instr.op.operands().filter_map(|r| axes.get(r.index()));
            let set = operands.fold(own, |set, operand| set.with(*operand));
            axes.push(set);
        }
        axes
    }

    /// The floating-point operations at each point beside the expression.
    fn flops_of_point(&self) -> u64 {
        let is_float = self.expr.output_dtypes().next().is_some_and(|dtype| dtype.is_float());
        match &self.kind {
            StageKind::Reduce { fold: Fold::Of { combine, .. }, .. }
            | StageKind::Scan { fold: Fold::Of { combine, .. }, .. } => combine.flops(),
            _ if !is_float => 0,
            StageKind::Reduce { fold: Fold::Moments, .. }
            | StageKind::Scan { fold: Fold::Moments, .. } => MOMENTS,
            StageKind::Reduce { .. } | StageKind::Scan { .. } => 1,
            StageKind::Contract { .. } => 2,
            StageKind::Scatter { combine: Combine::Op(_), .. } => 1,
            StageKind::Map | StageKind::Sort { .. } | StageKind::Scatter { .. } => 0,
        }
    }
}

impl LoopNest {
    fn extents(&self, value: &dyn Fn(SymbolId) -> Option<i64>) -> Result<Extents, SymError> {
        let extent = |e: &Expr| Ok(self.symbols().eval(*e, value)?.max(0) as u64);
        self.axes().iter().map(extent).collect::<Result<_, SymError>>().map(Extents)
    }

    /// The floating-point operations of a launch; see the rules of the [module](self). `value` is
    /// that of a symbol.
    ///
    /// # Errors
    /// A symbol has no value, or an extent overflows.
    pub fn flops(&self, value: &dyn Fn(SymbolId) -> Option<i64>) -> Result<u64, SymError> {
        let extents = self.extents(value)?;
        let mut flops = 0u64;
        for stage in self.stages() {
            let points = extents.points(AxisSet::of(stage.over.iter().copied()));
            flops = flops.saturating_add(points.saturating_mul(stage.flops_of_point()));
            for (instr, axes) in stage.expr.instrs().iter().zip(stage.register_axes()) {
                // No point, no operation.
                let points = extents.points(axes).min(points);
                flops = flops.saturating_add(points.saturating_mul(instr.flops()));
            }
        }
        Ok(flops)
    }

    /// The elements of an operand that a launch reads; see the rules of the [module](self).
    ///
    /// # Errors
    /// As [`LoopNest::flops`].
    pub fn elements_read(
        &self,
        operand: OperandId,
        value: &dyn Fn(SymbolId) -> Option<i64>,
    ) -> Result<u64, SymError> {
        let extents = self.extents(value)?;
        let Some(of) = self.operands().get(operand.index()) else { return Ok(0) };
        let mut all = 1u64;
        for size in &of.sizes {
            all = all.saturating_mul(self.symbols().eval(*size, value)?.max(0) as u64);
        }
        let mut read = 0u64;
        for stage in self.stages() {
            let is_read = |load: u32| {
                let load = stage.loads.get(load as usize);
                load.is_some_and(|load| load.from == Source::Operand(operand))
            };
            let points = extents.points(AxisSet::of(stage.over.iter().copied()));
            for (instr, axes) in stage.expr.instrs().iter().zip(stage.register_axes()) {
                let (Op::Input(load) | Op::Read(Read { input: load, .. })) = instr.op else {
                    continue;
                };
                if is_read(load) {
                    read = read.saturating_add(extents.points(axes).min(points));
                }
            }
            if matches!(stage.kind, StageKind::Scatter { into, .. } if into == Source::Operand(operand))
            {
                read = all;
            }
        }
        Ok(read.min(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(text: &str, sizes: &[i64]) -> (u64, Vec<u64>) {
        let nest = LoopNest::parse(text).unwrap();
        let value = |symbol: SymbolId| sizes.get(symbol.index()).copied();
        let operands = 0..nest.operands().len() as u32;
        let read = operands.map(|o| nest.elements_read(OperandId(o), &value).unwrap());
        (nest.flops(&value).unwrap(), read.collect())
    }

    #[test]
    fn a_product_counts_two_for_each_point_and_a_factor_once() {
        let text = "
loops (a0: f32[2, 5], a1: f32[5, 3]) -> (t0)
  axes i0 < 2, i1 < 3, i2 < 5
{
  t0[i0, i1] = contract over [i0, i1, i2] {
    r0: f32 = load a0[i0, i2]
    r1: f32 = neg r0
    r2: f32 = load a1[i2, i1]
    return r1, r2
  }
}
";
        assert_eq!(work(text, &[]), (2 * 2 * 3 * 5 + 2 * 5, vec![10, 15]));
    }

    #[test]
    fn folds_and_maps_count_their_points() {
        let text = "
loops (a0: f32[n, 4]) -> (t1, t2:1)
  where n in [0, oo)
  axes i0 < n, i1 < 4
{
  t0[i0] = reduce max lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
  t1[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = load t0[i0]
    r2: f32 = exp r1
    r3: f32 = sub r0, r2
    return r3
  }
  t2[i0] = reduce moments lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
}
";
        // the maximum, the moments, and the map, whose `exp` depends on the row alone
        assert_eq!(work(text, &[10]), (40 + 5 * 40 + 40 + 10, vec![40]));
        assert_eq!(work(text, &[0]), (0, vec![0]));
    }

    #[test]
    fn a_gather_reads_the_rows_that_it_needs() {
        let text = "
loops (a0: f32[1000, 2], a1: i64[4]) -> (t0)
  axes i0 < 4, i1 < 2
{
  t0[i0, i1] = map {
    r0: i64 = load a1[i0]
    r1: i64 = add r0, r0
    r2: f32 = read a0[r1, i1] wraps
    return r2
  }
}
";
        assert_eq!(work(text, &[]), (0, vec![8, 4]));
    }
}
