//! The builder of loop nests. Each stage is verified when it is added, so a finished nest is valid.

use super::{
    Affine, Axes, AxisId, IndexMap, LaunchScalar, Load, LoopError, LoopNest, Operand, OperandId,
    ScalarId, Source, Stage, StageId, StageKind, StageOutput,
};
use crate::DType;
use crate::scalar_expr::{Bounds, ExprBuilder, Reg};
use crate::sym::{Expr, SymTable};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Builds a [`LoopNest`], one stage after another.
///
/// ```
/// use maquette_ir::DType;
/// use maquette_ir::loops::fold::{Fold, Order};
/// use maquette_ir::loops::{LoopBuilder, LoopError};
/// use maquette_ir::sym::{Expr, SymTable};
///
/// // the mean of each row
/// let (rows, columns) = (Expr::Int(2), Expr::Int(3));
/// let mut nest = LoopBuilder::new(SymTable::new());
/// let (i, j) = (nest.axis(rows), nest.axis(columns));
/// let x = nest.operand(DType::F32, &[rows, columns]);
/// let n = nest.size(columns);
/// let sum = nest.reduce(&[i, j], &[j], Fold::Sum, Order::Lanes, |s| s.load(x, [i, j]))?;
/// let mean = nest.map(&[i], |s| {
///     let sum = s.load(sum, [i])?;
///     let n = s.launch(n)?;
///     let n = s.expr.cast(n, DType::F32)?;
///     Ok(s.expr.binary(maquette_ir::scalar_expr::BinaryOp::Div, sum, n)?)
/// })?;
/// let nest = nest.finish(&[mean.into()])?;
/// assert_eq!(nest.stages().len(), 2);
/// # Ok::<(), LoopError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoopBuilder {
    nest: LoopNest,
}

/// Builds the expression of a stage.
#[derive(Debug)]
pub struct StageBuilder<'a> {
    /// The builder of the expression.
    pub expr: ExprBuilder,
    nest: &'a LoopNest,
    loads: SmallVec<[Load; 2]>,
    /// The registers of affine loads, so that each is loaded once.
    loaded: FxHashMap<Load, Reg>,
    /// The inputs with computed positions.
    sources: FxHashMap<Load, u32>,
}

impl LoopBuilder {
    /// A nest whose sizes are expressions of this table.
    pub fn new(symbols: SymTable) -> LoopBuilder {
        let nest = LoopNest {
            symbols,
            axes: Vec::new(),
            operands: Vec::new(),
            scalars: Vec::new(),
            stages: Vec::new(),
            results: Vec::new(),
            messages: Vec::new(),
            unproven: Vec::new(),
        };
        LoopBuilder { nest }
    }

    /// The nest so far.
    pub fn nest(&self) -> &LoopNest {
        &self.nest
    }

    /// The table of sizes.
    pub fn symbols_mut(&mut self) -> &mut SymTable {
        &mut self.nest.symbols
    }

    /// Adds an axis.
    pub fn axis(&mut self, extent: Expr) -> AxisId {
        self.nest.axes.push(extent);
        AxisId(last(self.nest.axes.len()))
    }

    /// Adds an operand.
    pub fn operand(&mut self, dtype: DType, sizes: &[Expr]) -> OperandId {
        self.nest.operands.push(Operand { dtype, sizes: sizes.into() });
        OperandId(last(self.nest.operands.len()))
    }

    /// Adds a number that is given with each launch.
    pub fn number(&mut self, dtype: DType) -> ScalarId {
        self.scalar(LaunchScalar::Number(dtype))
    }

    /// Adds the value of a size, an `i64`.
    pub fn size(&mut self, size: Expr) -> ScalarId {
        self.scalar(LaunchScalar::Size(size))
    }

    /// Adds a launch scalar.
    pub fn scalar(&mut self, scalar: LaunchScalar) -> ScalarId {
        self.nest.scalars.push(scalar);
        ScalarId(last(self.nest.scalars.len()))
    }

    /// Adds the message of an assertion, and returns its index.
    pub fn message(&mut self, text: &str) -> u32 {
        self.nest.messages.push(text.into());
        last(self.nest.messages.len())
    }

    /// Adds a stage of one output for each register that `f` returns.
    ///
    /// # Errors
    /// The error of `f`, or an invariant of [`LoopNest::verify`] does not hold.
    pub fn stage(
        &mut self,
        over: &[AxisId],
        kind: StageKind,
        f: impl FnOnce(&mut StageBuilder<'_>) -> Result<Vec<Reg>, LoopError>,
    ) -> Result<StageId, LoopError> {
        let index = self.nest.stages.len();
        let mut builder = StageBuilder {
            expr: ExprBuilder::new(),
            nest: &self.nest,
            loads: SmallVec::new(),
            loaded: FxHashMap::default(),
            sources: FxHashMap::default(),
        };
        let outputs = f(&mut builder).map_err(|e| e.in_stage(index))?;
        let StageBuilder { expr, loads, .. } = builder;
        let expr = expr.finish(&outputs).map_err(|e| LoopError::from(e).in_stage(index))?;
        self.push(Stage { over: over.into(), loads, expr, kind })
    }

    /// Adds a finished stage.
    ///
    /// # Errors
    /// An invariant of [`LoopNest::verify`] does not hold.
    pub fn push(&mut self, mut stage: Stage) -> Result<StageId, LoopError> {
        if let StageKind::Reduce { along, .. } | StageKind::Contract { along } = &mut stage.kind {
            let over = &stage.over;
            along.sort_by_key(|axis| over.iter().position(|a| a == axis));
        }
        let unproven = self.nest.verify_stage(self.nest.stages.len(), &stage)?;
        self.nest.unproven.extend(unproven);
        self.nest.stages.push(stage);
        Ok(StageId(last(self.nest.stages.len())))
    }

    /// Adds a [`StageKind::Map`] of one output.
    ///
    /// # Errors
    /// As [`LoopBuilder::stage`].
    pub fn map(
        &mut self,
        over: &[AxisId],
        f: impl FnOnce(&mut StageBuilder<'_>) -> Result<Reg, LoopError>,
    ) -> Result<StageId, LoopError> {
        self.stage(over, StageKind::Map, |s| Ok(vec![f(s)?]))
    }

    /// Adds a [`StageKind::Reduce`] of one register.
    ///
    /// # Errors
    /// As [`LoopBuilder::stage`].
    pub fn reduce(
        &mut self,
        over: &[AxisId],
        along: &[AxisId],
        fold: super::fold::Fold,
        order: super::fold::Order,
        f: impl FnOnce(&mut StageBuilder<'_>) -> Result<Reg, LoopError>,
    ) -> Result<StageId, LoopError> {
        let along: Axes = along.into();
        self.stage(over, StageKind::Reduce { along, fold, order }, |s| Ok(vec![f(s)?]))
    }

    /// The finished nest with these results.
    ///
    /// # Errors
    /// A result is not an output of a stage.
    pub fn finish(mut self, results: &[StageOutput]) -> Result<LoopNest, LoopError> {
        for result in results {
            if self.nest.dtype(*result).is_none() {
                let (stage, output) = (result.stage.0, result.output);
                return Err(LoopError::new(format!("stage t{stage} has no output {output}")));
            }
        }
        self.nest.results = results.to_vec();
        Ok(self.nest)
    }
}

/// The id of the element that was added last to a list of this length.
fn last(len: usize) -> u32 {
    u32::try_from(len - 1).unwrap_or(u32::MAX)
}

impl StageBuilder<'_> {
    /// Adds the element of a source at an affine position. The same load twice is one load.
    ///
    /// # Errors
    /// The source does not exist.
    pub fn load(
        &mut self,
        from: impl Into<Source>,
        at: impl Into<IndexMap>,
    ) -> Result<Reg, LoopError> {
        let load = Load { from: from.into(), at: at.into() };
        if let Some(&reg) = self.loaded.get(&load) {
            return Ok(reg);
        }
        let reg = self.expr.input(self.dtype_of(&load)?);
        self.loads.push(load.clone());
        self.loaded.insert(load, reg);
        Ok(reg)
    }

    /// Adds the element of a source at positions some of which are computed: one of `positions`
    /// for each dimension that the map leaves to them.
    ///
    /// # Errors
    /// The source does not exist, or the error of [`ExprBuilder::read`].
    pub fn read(
        &mut self,
        from: impl Into<Source>,
        at: impl Into<IndexMap>,
        positions: &[Reg],
        bounds: Bounds,
        when: Option<Reg>,
    ) -> Result<Reg, LoopError> {
        let load = Load { from: from.into(), at: at.into() };
        let input = match self.sources.get(&load) {
            Some(&input) => input,
            None => {
                let input = self.expr.source(self.dtype_of(&load)?);
                self.loads.push(load.clone());
                self.sources.insert(load, input);
                input
            }
        };
        Ok(self.expr.read(input, positions, bounds, when)?)
    }

    /// Adds the coordinate along an axis, an `i64`.
    pub fn coord(&mut self, axis: AxisId) -> Reg {
        self.expr.coord(axis.0)
    }

    /// Adds a launch scalar.
    ///
    /// # Errors
    /// The nest has no such scalar.
    pub fn launch(&mut self, scalar: ScalarId) -> Result<Reg, LoopError> {
        let found = self.nest.scalars.get(scalar.index());
        let found = found.ok_or_else(|| no_such("launch scalar", 'c', scalar.0))?;
        Ok(self.expr.launch(scalar.0, found.dtype()))
    }

    fn dtype_of(&self, load: &Load) -> Result<DType, LoopError> {
        self.nest.source(load.from).map(|(dtype, _)| dtype).ok_or_else(|| match load.from {
            Source::Operand(o) => no_such("operand", 'a', o.0),
            Source::Stage(output) => no_such("earlier stage output", 't', output.stage.0),
        })
    }
}

/// The error of a reference to a part that the nest does not have.
pub(super) fn no_such(what: &str, letter: char, id: u32) -> LoopError {
    LoopError::new(format!("the nest has no {what} `{letter}{id}`"))
}

impl From<Affine> for IndexMap {
    /// The map of a source of one dimension.
    fn from(index: Affine) -> IndexMap {
        [index.into()].into_iter().collect()
    }
}
