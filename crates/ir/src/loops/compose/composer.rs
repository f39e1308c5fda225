//! Composition of loop nests: one nest that computes what several nests compute one after another.
//!
//! Sizes are plain numbers. The stages of the parts are put behind each other, and loads of a
//! part's operand become loads of the stage that computes it. Two things then make the composition
//! more than a sequence:
//!
//! - **Common axes.** The results of all parts have the same leading dimensions, the rows of the
//!   composition. Their axes become one, so that an executor runs all stages for a row, or some of
//!   them, while the values are in a cache. Products with one left factor may have other columns
//!   each: then the maps that follow a product have its axes ([`Composer::also`]).
//! - **Inlining.** A map is evaluated where its values are read, if there is one reader, or if it
//!   is cheaper to compute than to store.
//!
//! **Invariant:** every value is computed by the same instructions in the same order as by the
//! parts: no conversion is dropped and no sum is reordered, so the bits are those of the parts.
//!
//! **Cost:** linear in the instructions of the parts, times the number of copies of an inlined map.

mod inline;

use super::{
    Affine, Axes, AxisId, Index, LaunchScalar, Load, LoopBuilder, LoopError, LoopNest, OperandId,
    Source, Stage, StageId, StageKind, StageOutput,
};
use crate::DType;
use crate::fault_injection::{Fault, fault_injected};
use crate::scalar_expr::{Op, ScalarExpr};
use crate::sym::{Expr, SymTable, SymbolId};
use smallvec::SmallVec;

/// A tensor of a composition: an operand, or what a part computes.
#[derive(Clone, Debug)]
pub struct ComposedTensor {
    source: Source,
    dtype: DType,
    sizes: SmallVec<[i64; 4]>,
}

impl ComposedTensor {
    /// The sizes.
    pub fn sizes(&self) -> &[i64] {
        &self.sizes
    }
}

/// Puts nests together, as the head of this module explains.
#[derive(Clone, Debug)]
pub struct Composer {
    builder: LoopBuilder,
    /// How many leading dimensions of results have common axes.
    rank: usize,
    /// The common axes, by dimension and size.
    common: SmallVec<[(usize, i64, AxisId); 4]>,
}

impl Composer {
    /// A composition whose results have these leading sizes.
    pub fn new(rows: &[i64]) -> Composer {
        let builder = LoopBuilder::new(SymTable::new());
        let mut composer = Composer { builder, rank: rows.len(), common: SmallVec::new() };
        composer.also(rows);
        composer
    }

    /// Gives results of other leading sizes common axes, too. Where a size is that of other results
    /// in the same dimension, the axis is theirs.
    pub fn also(&mut self, rows: &[i64]) {
        for (dim, &extent) in rows.iter().enumerate().take(self.rank) {
            if self.common(dim, extent).is_none() {
                let axis = self.builder.axis(Expr::Int(extent));
                self.common.push((dim, extent, axis));
            }
        }
    }

    fn common(&self, dim: usize, extent: i64) -> Option<AxisId> {
        let is_it = |(of, size, _): &&(usize, i64, AxisId)| (*of, *size) == (dim, extent);
        self.common.iter().find(is_it).map(|(.., axis)| *axis)
    }

    /// Adds an operand.
    pub fn operand(&mut self, dtype: DType, sizes: &[i64]) -> ComposedTensor {
        let exprs: SmallVec<[Expr; 4]> = sizes.iter().map(|&n| Expr::Int(n)).collect();
        let source = self.builder.operand(dtype, &exprs).into();
        ComposedTensor { source, dtype, sizes: sizes.into() }
    }

    /// Appends a pure expression, evaluated for each element of `sizes`; operands are broadcast.
    ///
    /// # Errors
    /// An operand has another dtype or does not expand to the sizes.
    pub fn map(
        &mut self,
        expr: &ScalarExpr,
        operands: &[ComposedTensor],
        sizes: &[i64],
    ) -> Result<Vec<ComposedTensor>, LoopError> {
        let axes: Axes = sizes.iter().enumerate().map(|(dim, n)| self.axis(dim, *n)).collect();
        let load = |of: &ComposedTensor| -> Result<Load, LoopError> {
            let lead = axes.len().checked_sub(of.sizes.len());
            let lead = lead.ok_or_else(|| LoopError::new("an operand does not expand"))?;
            let dims = of.sizes.iter().zip(&axes[lead..]).zip(&sizes[lead..]);
            let at = dims.map(|((n, axis), size)| match n == size {
                true => Ok(Index::from(*axis)),
                false if *n == 1 => Ok(Expr::Int(0).into()),
                false => Err(LoopError::new("an operand does not expand")),
            });
            Ok(Load { from: of.source, at: at.collect::<Result<_, _>>()? })
        };
        let loads = operands.iter().map(load).collect::<Result<_, _>>()?;
        let (over, expr) = (axes, expr.clone());
        let stage = self.builder.push(Stage { over, loads, expr, kind: StageKind::Map })?;
        let dtypes = self.builder.nest().stages()[stage.index()].output_dtypes();
        let tensor = |(output, dtype)| {
            let source = StageOutput { stage, output: output as u8 }.into();
            ComposedTensor { source, dtype, sizes: sizes.into() }
        };
        Ok(dtypes.into_iter().enumerate().map(tensor).collect())
    }

    /// Appends a nest. `value` gives its symbols. Its launch scalars come after those of earlier
    /// parts.
    ///
    /// # Errors
    /// A symbol has no value, an operand has another dtype or other sizes, or the nest asserts
    /// something.
    pub fn nest(
        &mut self,
        nest: &LoopNest,
        value: &dyn Fn(SymbolId) -> Option<i64>,
        operands: &[ComposedTensor],
    ) -> Result<Vec<ComposedTensor>, LoopError> {
        let number = |e: Expr| {
            let value = nest.symbols().eval(e, value);
            value.map_err(|e| LoopError::new(e.to_string()))
        };
        if !nest.messages().is_empty() || operands.len() != nest.operands().len() {
            return Err(LoopError::new("the nest is not a part of a composition"));
        }
        for (declared, given) in nest.operands().iter().zip(operands) {
            let sizes = declared.sizes.iter().map(|e| number(*e));
            let sizes = sizes.collect::<Result<SmallVec<[i64; 4]>, _>>()?;
            if sizes != given.sizes || declared.dtype != given.dtype {
                return Err(LoopError::new("an operand has another type"));
            }
        }
        let axes = self.part_axes(nest, &number)?;
        let first_scalar = self.builder.nest().scalars().len() as u32;
        for scalar in nest.scalars() {
            self.builder.scalar(match scalar {
                LaunchScalar::Size(e) => LaunchScalar::Size(Expr::Int(number(*e)?)),
                LaunchScalar::Number(dtype) => LaunchScalar::Number(*dtype),
            });
        }
        let first_stage = self.builder.nest().stages().len() as u32;
        let renamed = Renamed { axes, first_scalar, first_stage, operands, number: &number };
        for stage in nest.stages() {
            self.builder.push(renamed.stage(stage)?)?;
        }
        let result = |output: &StageOutput| -> Result<ComposedTensor, LoopError> {
            let missing = || LoopError::new("the nest has no such result");
            let dtype = nest.dtype(*output).ok_or_else(missing)?;
            let sizes = nest.sizes(output.stage).ok_or_else(missing)?;
            let sizes = sizes.iter().map(|e| number(*e)).collect::<Result<_, _>>()?;
            Ok(ComposedTensor { source: renamed.source(Source::Stage(*output)), dtype, sizes })
        };
        nest.results().iter().map(result).collect()
    }

    /// The axis for a dimension of a result.
    fn axis(&mut self, dim: usize, extent: i64) -> AxisId {
        self.common(dim, extent).unwrap_or_else(|| self.builder.axis(Expr::Int(extent)))
    }

    /// The axes that stand for those of a part: those of the rows for the leading dimensions of
    /// its results, others of its own.
    fn part_axes(
        &mut self,
        nest: &LoopNest,
        number: &dyn Fn(Expr) -> Result<i64, LoopError>,
    ) -> Result<Vec<AxisId>, LoopError> {
        let mut axes: Vec<Option<AxisId>> = vec![None; nest.axes().len()];
        for result in nest.results() {
            let stage = nest.stage(result.stage);
            let of = stage.map(|stage| stage.axes()).unwrap_or_default();
            for (dim, axis) in of.iter().enumerate().take(self.rank) {
                let extent = number(nest.extent(*axis))?;
                let row = self.axis(dim, extent);
                // Each axis of the part has another one.
                if axes[axis.index()].is_none() && !axes.contains(&Some(row)) {
                    axes[axis.index()] = Some(row);
                }
            }
        }
        let extents = nest.axes().iter().zip(axes);
        let axis = |(extent, axis): (&Expr, Option<AxisId>)| match axis {
            Some(axis) => Ok(axis),
            None => Ok(self.builder.axis(Expr::Int(number(*extent)?))),
        };
        extents.map(axis).collect()
    }

    /// The nest with these results.
    ///
    /// # Errors
    /// A result is an operand.
    pub fn finish(self, results: &[ComposedTensor]) -> Result<LoopNest, LoopError> {
        let outputs = results.iter().map(|t| match t.source {
            Source::Stage(output) => Ok(output),
            Source::Operand(_) => Err(LoopError::new("a result is an operand")),
        });
        let outputs = outputs.collect::<Result<SmallVec<[StageOutput; 4]>, _>>()?;
        inline::inlined(&self.builder.finish(&outputs)?)
    }
}

/// A part with its ids replaced by those of the composition.
struct Renamed<'a> {
    axes: Vec<AxisId>,
    first_scalar: u32,
    first_stage: u32,
    operands: &'a [ComposedTensor],
    number: &'a dyn Fn(Expr) -> Result<i64, LoopError>,
}

impl Renamed<'_> {
    fn axis(&self, axis: AxisId) -> AxisId {
        self.axes.get(axis.index()).copied().unwrap_or(axis)
    }

    fn all(&self, axes: &[AxisId]) -> Axes {
        axes.iter().map(|a| self.axis(*a)).collect()
    }

    fn source(&self, from: Source) -> Source {
        match from {
            Source::Operand(OperandId(k)) => {
                self.operands.get(k as usize).map_or(from, |operand| operand.source)
            }
            Source::Stage(StageOutput { stage, output }) => {
                let stage = StageId(stage.0 + self.first_stage);
                Source::Stage(StageOutput { stage, output })
            }
        }
    }

    fn load(&self, load: &Load) -> Result<Load, LoopError> {
        let number = |e: Expr| (self.number)(e).map(Expr::Int);
        let index = |index: &Index| match index {
            Index::Computed => Ok(Index::Computed),
            Index::Affine(Affine { start, terms }) => {
                let terms = terms.iter().map(|(axis, s)| Ok((self.axis(*axis), number(*s)?)));
                let terms = terms.collect::<Result<SmallVec<[_; 2]>, LoopError>>()?;
                let terms = terms.into_iter().filter(|(_, s)| *s != Expr::Int(0)).collect();
                Ok(Index::Affine(Affine { start: number(*start)?, terms }))
            }
        };
        let at = load.at.indices().iter().map(index).collect::<Result<_, LoopError>>()?;
        Ok(Load { from: self.source(load.from), at })
    }

    fn stage(&self, stage: &Stage) -> Result<Stage, LoopError> {
        let loads = stage.loads.iter().map(|load| self.load(load)).collect::<Result<_, _>>()?;
        let place = |op: Op| match op {
            Op::Coord(axis) => Op::Coord(self.axis(AxisId(axis)).0),
            Op::Launch(scalar) if fault_injected(Fault::NumbersOfFirstPart) => Op::Launch(scalar),
            Op::Launch(scalar) => Op::Launch(scalar + self.first_scalar),
            op => op,
        };
        let kind = match &stage.kind {
            StageKind::Map => StageKind::Map,
            StageKind::Reduce { along, fold, order } => {
                let (along, fold) = (self.all(along), fold.clone());
                StageKind::Reduce { along, fold, order: *order }
            }
            StageKind::Scan { along, fold } => {
                StageKind::Scan { along: self.axis(*along), fold: fold.clone() }
            }
            StageKind::Contract { along } => StageKind::Contract { along: self.all(along) },
            StageKind::Sort { .. } | StageKind::Scatter { .. } => {
                return Err(LoopError::new("the nest is not a part of a composition"));
            }
        };
        Ok(Stage { over: self.all(&stage.over), loads, expr: stage.expr.with_ops(&place), kind })
    }
}
