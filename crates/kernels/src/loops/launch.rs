//! The numbers of a launch: extents, sizes, strides; and the checks that make it safe.

use super::KERNEL;
use crate::copy::{same_dtype, same_sizes};
use crate::error::{KernelError, Result};
use crate::view::{Dims, View, ViewMut};
use maquette_device::Layout;
use maquette_ir::loops::{
    Affine, AxisId, Index, LaunchScalar, LoopNest, Source, StageKind, StageOutput,
};
use maquette_ir::sym::{Expr, SymError, SymbolId};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;

/// The values of symbols.
pub(super) type Symbols<'a> = &'a dyn Fn(SymbolId) -> Option<i64>;

/// A nest with the numbers from which a plan is made.
pub(super) struct Launch<'a> {
    pub nest: &'a LoopNest,
    symbols: Symbols<'a>,
    /// The extents of the axes.
    pub extents: SmallVec<[i64; 8]>,
    pub operands: SmallVec<[Layout; 4]>,
    pub results: SmallVec<[Layout; 2]>,
}

/// An affine index with its numbers.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub start: i64,
    pub terms: SmallVec<[(AxisId, i64); 2]>,
}

/// An error unless there are as many as expected.
pub(super) fn count(what: &'static str, expected: usize, found: usize) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(KernelError::Count { kernel: KERNEL, what, expected, found }),
    }
}

impl<'a> Launch<'a> {
    /// The numbers, after all checks.
    pub fn new(
        nest: &'a LoopNest,
        symbols: Symbols<'a>,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
    ) -> Result<Launch<'a>> {
        count("operands", nest.operands().len(), operands.len())?;
        count("results", nest.results().len(), results.len())?;
        let mut launch = Launch {
            nest,
            symbols,
            extents: SmallVec::new(),
            operands: operands.iter().map(View::layout).collect(),
            results: results.iter().map(|r| r.as_view().layout()).collect(),
        };
        for (operand, view) in nest.operands().iter().zip(operands) {
            same_dtype(KERNEL, "an operand", operand.dtype, view.dtype())?;
            same_sizes(KERNEL, "an operand", &launch.numbers(&operand.sizes)?, view.sizes())?;
        }
        for (result, view) in nest.results().iter().zip(results.iter()) {
            let sizes = nest.sizes(result.stage).unwrap_or_default();
            same_sizes(KERNEL, "a result", &launch.numbers(&sizes)?, view.as_view().sizes())?;
            let dtype = nest.dtype(*result).unwrap_or(DType::Bool);
            same_dtype(KERNEL, "a result", dtype, view.as_view().dtype())?;
        }
        launch.extents = launch.numbers(nest.axes())?.into_iter().collect();
        if let Some(extent) = launch.extents.iter().find(|e| **e < 0) {
            return Err(KernelError::argument(KERNEL, format!("an axis has extent {extent}")));
        }
        launch.check_loads()?;
        Ok(launch)
    }

    /// The value of an expression of sizes.
    fn number(&self, e: Expr) -> Result<i64> {
        self.nest
            .symbols()
            .eval(e, self.symbols)
            .map_err(|e: SymError| KernelError::argument(KERNEL, e.to_string()))
    }

    fn numbers(&self, exprs: &[Expr]) -> Result<Dims> {
        exprs.iter().map(|&e| self.number(e)).collect()
    }

    /// The launch scalars, with 0 in the place of each number.
    pub fn scalars(&self) -> Result<SmallVec<[Scalar; 4]>> {
        let value = |scalar: &LaunchScalar| match scalar {
            LaunchScalar::Size(e) => self.number(*e).map(Scalar::Int),
            LaunchScalar::Number(_) => Ok(Scalar::Int(0)),
        };
        self.nest.scalars().iter().map(value).collect()
    }

    /// Checks the loads that the extents alone do not prove to be inside their sources, and the
    /// kept lengths of sorts.
    fn check_loads(&self) -> Result<()> {
        for unproven in self.nest.unproven() {
            let Some(stage) = self.nest.stage(unproven.stage) else { continue };
            let Some(load) = stage.loads.get(unproven.load as usize) else { continue };
            let Some((_, sizes)) = self.nest.source(load.from) else { continue };
            let dim = unproven.dim as usize;
            let (Some(Index::Affine(affine)), Some(&size)) =
                (load.at.indices().get(dim), sizes.get(dim))
            else {
                continue;
            };
            if stage.over.iter().any(|a| self.extent(*a) == 0) {
                continue;
            }
            let size = self.number(size)?;
            let reach =
                affine.reach(&|a| self.extent(a), &|e| self.nest.symbols().eval(e, self.symbols));
            let (least, greatest) =
                reach.map_err(|e| KernelError::argument(KERNEL, e.to_string()))?;
            for index in [least, greatest] {
                if !(0..size).contains(&index) {
                    return Err(KernelError::IndexOutOfRange { index, size, dim });
                }
            }
        }
        for stage in self.nest.stages() {
            if let StageKind::Sort { along, keep, .. } = stage.kind {
                let (kept, of) = (self.extent(keep), self.extent(along));
                if kept > of {
                    let message = format!("a sort of {of} elements cannot keep {kept}");
                    return Err(KernelError::argument(KERNEL, message));
                }
            }
        }
        Ok(())
    }

    pub fn extent(&self, axis: AxisId) -> i64 {
        self.extents.get(axis.index()).copied().unwrap_or(0)
    }

    /// The extents of some axes.
    pub fn extents_of(&self, axes: &[AxisId]) -> Dims {
        axes.iter().map(|a| self.extent(*a)).collect()
    }

    /// The numbers of an affine index.
    pub fn position(&self, affine: &Affine) -> Result<Position> {
        let mut terms = SmallVec::new();
        for &(axis, stride) in &affine.terms {
            terms.push((axis, self.number(stride)?));
        }
        Ok(Position { start: self.number(affine.start)?, terms })
    }

    /// The sizes of a source.
    pub fn sizes(&self, from: Source) -> Result<Dims> {
        match from {
            Source::Operand(o) => {
                Ok(self.operands.get(o.index()).map(|m| m.sizes.clone()).unwrap_or_default())
            }
            Source::Stage(output) => {
                self.numbers(&self.nest.sizes(output.stage).unwrap_or_default())
            }
        }
    }

    /// The results that are this output of a stage, with their numbers.
    pub fn results_of(&self, output: StageOutput) -> impl Iterator<Item = (usize, &Layout)> + '_ {
        let results = self.nest.results().iter().zip(&self.results).enumerate();
        results.filter(move |(_, (r, _))| **r == output).map(|(i, (_, layout))| (i, layout))
    }
}
