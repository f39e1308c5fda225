//! The nest of a composition, part by part. Sizes are expressions of the composition's symbols.

use super::{Extent, Extents};
use crate::DType;
use crate::fault_injection::{Fault, fault_injected};
use crate::loops::{
    Affine, Axes, AxisId, Index, LaunchScalar, Load, LoopBuilder, LoopError, LoopNest, OperandId,
    Source, Stage, StageId, StageKind, StageOutput,
};
use crate::scalar_expr::{Op, ScalarExpr};
use crate::sym::{Expr, Range, SymTable, SymbolId, SymbolKind};
use smallvec::SmallVec;

type Sizes = SmallVec<[Expr; 4]>;

/// A tensor of the composition.
#[derive(Clone)]
struct Tensor {
    source: Source,
    dtype: DType,
    sizes: Sizes,
}

/// A nest under construction.
pub(super) struct Composer {
    builder: LoopBuilder,
    symbols: Vec<Expr>,
    tensors: Vec<Tensor>,
    rank: usize,
    /// The common axes, by dimension and size.
    common: SmallVec<[(usize, Expr, AxisId); 4]>,
}

impl Composer {
    /// An empty nest with a symbol for each range.
    pub fn new(rank: usize, ranges: impl Iterator<Item = Range>) -> Composer {
        let mut table = SymTable::new();
        let mut symbol = |range| {
            let symbol = table.fresh(SymbolKind::Backed, range);
            table.expr(symbol)
        };
        let symbols = ranges.map(&mut symbol).collect();
        let builder = LoopBuilder::new(table);
        Composer { builder, symbols, tensors: Vec::new(), rank, common: SmallVec::new() }
    }

    fn size(&self, extent: Extent) -> Result<Expr, LoopError> {
        match extent {
            Extent::Number(n) => Ok(Expr::Int(n)),
            Extent::Symbol(s) => {
                let symbol = self.symbols.get(s as usize).copied();
                symbol.ok_or_else(|| LoopError::new("a size is not a symbol of the composition"))
            }
        }
    }

    fn sizes(&self, extents: &[Extent]) -> Result<Sizes, LoopError> {
        extents.iter().map(|e| self.size(*e)).collect()
    }

    fn tensors(&self, ids: &[u32]) -> Result<SmallVec<[Tensor; 4]>, LoopError> {
        let missing = || LoopError::new("a part reads a later tensor");
        ids.iter().map(|id| self.tensors.get(*id as usize).cloned().ok_or_else(missing)).collect()
    }

    /// See [`Composition::rows`](super::Composition::rows).
    pub fn rows(&mut self, rows: &[Extent]) -> Result<(), LoopError> {
        for (dim, extent) in self.sizes(rows)?.into_iter().enumerate().take(self.rank) {
            if self.common(dim, extent).is_none() {
                let axis = self.builder.axis(extent);
                self.common.push((dim, extent, axis));
            }
        }
        Ok(())
    }

    fn common(&self, dim: usize, extent: Expr) -> Option<AxisId> {
        let is_it = |(of, size, _): &&(usize, Expr, AxisId)| (*of, *size) == (dim, extent);
        self.common.iter().find(is_it).map(|(.., axis)| *axis)
    }

    /// See [`Composition::operand`](super::Composition::operand).
    pub fn operand(&mut self, dtype: DType, extents: &[Extent]) -> Result<(), LoopError> {
        let sizes = self.sizes(extents)?;
        let source = self.builder.operand(dtype, &sizes).into();
        self.tensors.push(Tensor { source, dtype, sizes });
        Ok(())
    }

    /// See [`Composition::map`](super::Composition::map).
    pub fn map(
        &mut self,
        expr: &ScalarExpr,
        operands: &[u32],
        extents: &[Extent],
    ) -> Result<(), LoopError> {
        let sizes = self.sizes(extents)?;
        let axes: Axes = sizes.iter().enumerate().map(|(dim, n)| self.axis(dim, *n)).collect();
        let load = |of: Tensor| -> Result<Load, LoopError> {
            let lead = axes.len().checked_sub(of.sizes.len());
            let lead = lead.ok_or_else(|| LoopError::new("an operand does not expand"))?;
            let dims = of.sizes.iter().zip(&axes[lead..]).zip(&sizes[lead..]);
            let at = dims.map(|((n, axis), size)| match n == size {
                true => Ok(Index::from(*axis)),
                false if *n == Expr::Int(1) => Ok(Expr::Int(0).into()),
                false => Err(LoopError::new("an operand does not expand")),
            });
            Ok(Load { from: of.source, at: at.collect::<Result<_, _>>()? })
        };
        let loads = self.tensors(operands)?.into_iter().map(load).collect::<Result<_, _>>()?;
        let (over, expr) = (axes, expr.clone());
        let stage = self.builder.push(Stage { over, loads, expr, kind: StageKind::Map })?;
        let dtypes = self.builder.nest().stages()[stage.index()].output_dtypes();
        for (output, dtype) in dtypes.into_iter().enumerate() {
            let source = StageOutput { stage, output: output as u8 }.into();
            self.tensors.push(Tensor { source, dtype, sizes: sizes.clone() });
        }
        Ok(())
    }

    /// See [`Composition::nest`](super::Composition::nest).
    pub fn nest(
        &mut self,
        nest: &LoopNest,
        symbols: &[Extent],
        operands: &[u32],
        results: &[Extents],
    ) -> Result<(), LoopError> {
        let (symbols, operands) = (self.sizes(symbols)?, self.tensors(operands)?);
        let named = Named { of: nest.symbols(), symbols: &symbols };
        if !nest.messages().is_empty()
            || operands.len() != nest.operands().len()
            || results.len() != nest.results().len()
        {
            return Err(LoopError::new("the nest is not a part of a composition"));
        }
        for (declared, given) in nest.operands().iter().zip(&operands) {
            let sizes = named.exprs(self.builder.symbols_mut(), &declared.sizes)?;
            if sizes != given.sizes || declared.dtype != given.dtype {
                return Err(LoopError::new("an operand has another type"));
            }
        }
        let axes = self.part_axes(nest, &named)?;
        let first_scalar = self.builder.nest().scalars().len() as u32;
        for scalar in nest.scalars() {
            let scalar = match scalar {
                LaunchScalar::Size(e) => {
                    LaunchScalar::Size(named.expr(self.builder.symbols_mut(), *e)?)
                }
                LaunchScalar::Number(dtype) => LaunchScalar::Number(*dtype),
            };
            self.builder.scalar(scalar);
        }
        let first_stage = self.builder.nest().stages().len() as u32;
        let renamed = Renamed { axes, first_scalar, first_stage, operands: &operands, named };
        for stage in nest.stages() {
            let stage = renamed.stage(self.builder.symbols_mut(), stage)?;
            self.builder.push(stage)?;
        }
        for (output, extents) in nest.results().iter().zip(results) {
            let missing = || LoopError::new("the nest has no such result");
            let dtype = nest.dtype(*output).ok_or_else(missing)?;
            let computed = nest.sizes(output.stage).ok_or_else(missing)?;
            let sizes = self.sizes(extents)?;
            if renamed.named.exprs(self.builder.symbols_mut(), &computed)? != sizes {
                return Err(LoopError::new("a result has other sizes"));
            }
            let source = renamed.source(Source::Stage(*output));
            self.tensors.push(Tensor { source, dtype, sizes });
        }
        Ok(())
    }

    /// The axis for a dimension of a result.
    fn axis(&mut self, dim: usize, extent: Expr) -> AxisId {
        self.common(dim, extent).unwrap_or_else(|| self.builder.axis(extent))
    }

    /// The axes that stand for those of a part: those of the rows for the leading dimensions of
    /// its results, others of its own.
    fn part_axes(&mut self, nest: &LoopNest, named: &Named<'_>) -> Result<Vec<AxisId>, LoopError> {
        let mut axes: Vec<Option<AxisId>> = vec![None; nest.axes().len()];
        for result in nest.results() {
            let stage = nest.stage(result.stage);
            let of = stage.map(|stage| stage.axes()).unwrap_or_default();
            for (dim, axis) in of.iter().enumerate().take(self.rank) {
                let extent = named.expr(self.builder.symbols_mut(), nest.extent(*axis))?;
                let row = self.axis(dim, extent);
                // Each axis of the part has another one.
                if axes[axis.index()].is_none() && !axes.contains(&Some(row)) {
                    axes[axis.index()] = Some(row);
                }
            }
        }
        let mut axis = |(extent, axis): (&Expr, Option<AxisId>)| match axis {
            Some(axis) => Ok(axis),
            None => {
                let extent = named.expr(self.builder.symbols_mut(), *extent)?;
                Ok(self.builder.axis(extent))
            }
        };
        nest.axes().iter().zip(axes).map(&mut axis).collect()
    }

    /// The nest with these results, in which nothing is inlined yet.
    pub fn finish(self, results: &[u32]) -> Result<LoopNest, LoopError> {
        let outputs = self.tensors(results)?.into_iter().map(|t| match t.source {
            Source::Stage(output) => Ok(output),
            Source::Operand(_) => Err(LoopError::new("a result is an operand")),
        });
        let outputs = outputs.collect::<Result<SmallVec<[StageOutput; 4]>, _>>()?;
        self.builder.finish(&outputs)
    }
}

/// The expressions that stand for the symbols of a part.
struct Named<'a> {
    /// The table of the part.
    of: &'a SymTable,
    symbols: &'a [Expr],
}

impl Named<'_> {
    /// An expression of the part as one of the composition.
    fn expr(&self, table: &mut SymTable, e: Expr) -> Result<Expr, LoopError> {
        let value = |s: SymbolId| self.symbols.get(s.index()).copied();
        table.import_with(self.of, e, &value).map_err(|e| LoopError::new(e.to_string()))
    }

    fn exprs(&self, table: &mut SymTable, exprs: &[Expr]) -> Result<Sizes, LoopError> {
        exprs.iter().map(|e| self.expr(table, *e)).collect()
    }
}

/// A part with its ids replaced by those of the composition.
struct Renamed<'a> {
    axes: Vec<AxisId>,
    first_scalar: u32,
    first_stage: u32,
    operands: &'a [Tensor],
    named: Named<'a>,
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

    fn load(&self, table: &mut SymTable, load: &Load) -> Result<Load, LoopError> {
        let mut index = |index: &Index| match index {
            Index::Computed => Ok(Index::Computed),
            Index::Affine(Affine { start, terms }) => {
                let terms = terms.iter();
                let terms =
                    terms.map(|(axis, s)| Ok((self.axis(*axis), self.named.expr(table, *s)?)));
                let terms = terms.collect::<Result<SmallVec<[_; 2]>, LoopError>>()?;
                let terms = terms.into_iter().filter(|(_, s)| *s != Expr::Int(0)).collect();
                Ok(Index::Affine(Affine { start: self.named.expr(table, *start)?, terms }))
            }
        };
        let at = load.at.indices().iter().map(&mut index).collect::<Result<_, LoopError>>()?;
        Ok(Load { from: self.source(load.from), at })
    }

    fn stage(&self, table: &mut SymTable, stage: &Stage) -> Result<Stage, LoopError> {
        let loads = stage.loads.iter().map(|load| self.load(table, load));
        let loads = loads.collect::<Result<_, _>>()?;
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
            StageKind::Scan { along, fold, order } => {
                StageKind::Scan { along: self.axis(*along), fold: fold.clone(), order: *order }
            }
            StageKind::Contract { along } => StageKind::Contract { along: self.all(along) },
            StageKind::Sort { .. } | StageKind::Scatter { .. } => {
                return Err(LoopError::new("the nest is not a part of a composition"));
            }
        };
        Ok(Stage { over: self.all(&stage.over), loads, expr: stage.expr.with_ops(&place), kind })
    }
}
