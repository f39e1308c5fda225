//! Composition of loop nests: one nest that computes what several nests compute one after another.
//!
//! Sizes are plain numbers. The stages of the parts are put behind each other, and loads of a
//! part's operand become loads of the stage that computes it. Two things then make the composition
//! more than a sequence:
//!
//! - **Common axes.** The results of all parts have the same leading dimensions, the rows of the
//!   composition. Their axes become one, so that an executor runs all stages for a row, or some of
//!   them, while the values are in a cache.
//! - **Inlining.** A map is evaluated where its values are read, if there is one reader, or if it
//!   is cheaper to compute than to store.
//!
//! **Invariant:** every value is computed by the same instructions in the same order as by the
//! parts: no conversion is dropped and no sum is reordered, so the bits are those of the parts.
//!
//! **Cost:** linear in the instructions of the parts, times the number of copies of an inlined map.

use super::{
    Affine, Axes, AxisId, Index, IndexMap, LaunchScalar, Load, LoopBuilder, LoopError, LoopNest,
    OperandId, Source, Stage, StageId, StageKind, StageOutput,
};
use crate::DType;
use crate::fault_injection::{Fault, fault_injected};
use crate::scalar_expr::{BinaryOp, ExprBuilder, Op, Reg, ScalarExpr, UnaryOp};
use crate::sym::{Expr, SymTable, SymbolId};
use smallvec::SmallVec;

/// A map with several readers is computed by each if it has at most this many instructions besides
/// inputs and constants, all of them cheap.
const RECOMPUTED: usize = 1;

/// An expression with more instructions takes no further map in.
const MAX_INSTRS: usize = 192;

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

/// Puts nests together; see the [module](self).
#[derive(Clone, Debug)]
pub struct Composer {
    builder: LoopBuilder,
    rows: Axes,
    row_sizes: SmallVec<[i64; 4]>,
}

impl Composer {
    /// A composition whose results have these leading sizes.
    pub fn new(rows: &[i64]) -> Composer {
        let mut builder = LoopBuilder::new(SymTable::new());
        let axes = rows.iter().map(|&n| builder.axis(Expr::Int(n))).collect();
        Composer { builder, rows: axes, row_sizes: rows.into() }
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

    /// Appends a nest. `value` gives its symbols. Its launch scalars come behind those of earlier
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
        match (self.rows.get(dim), self.row_sizes.get(dim)) {
            (Some(&axis), Some(&rows)) if rows == extent => axis,
            _ => self.builder.axis(Expr::Int(extent)),
        }
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
            for (dim, axis) in of.iter().enumerate().take(self.rows.len()) {
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
        inlined(&self.builder.finish(&outputs)?)
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

/// A stage with maps inlined, and its id in the new nest, if it is not inlined itself.
struct Built {
    stage: Stage,
    id: Option<StageId>,
}

/// The nest with maps evaluated where they are read, and without stages that nothing reads.
fn inlined(nest: &LoopNest) -> Result<LoopNest, LoopError> {
    let readers = readers(nest);
    let mut builder = LoopBuilder::new(SymTable::new());
    for extent in nest.axes() {
        builder.axis(*extent);
    }
    for operand in nest.operands() {
        builder.operand(operand.dtype, &operand.sizes);
    }
    for scalar in nest.scalars() {
        builder.scalar(*scalar);
    }
    let mut stages: Vec<Built> = Vec::new();
    for (index, stage) in nest.stages().iter().enumerate() {
        let stage = inline_maps(stage, &stages)?;
        let is_result = nest.results().iter().any(|r| r.stage.index() == index);
        let readers = readers.get(index).copied().flatten();
        let is_inlined = !is_result && readers.is_some_and(|n| n == 0 || is_inline(&stage, n));
        let id = match is_inlined {
            true => None,
            false => Some(builder.push(stage.clone())?),
        };
        stages.push(Built { stage, id });
    }
    let results = nest.results().iter().map(|result| {
        let id = stages.get(result.stage.index()).and_then(|built| built.id);
        let stage = id.ok_or_else(|| LoopError::new("a result was inlined"))?;
        Ok(StageOutput { stage, output: result.output })
    });
    let results = results.collect::<Result<Vec<StageOutput>, LoopError>>()?;
    builder.finish(&results)
}

/// How many stages read each stage; `None` if a stage reads it at computed positions.
fn readers(nest: &LoopNest) -> Vec<Option<usize>> {
    let mut readers = vec![Some(0); nest.stages().len()];
    for stage in nest.stages() {
        let mut seen: SmallVec<[usize; 4]> = SmallVec::new();
        for load in &stage.loads {
            let Source::Stage(StageOutput { stage, .. }) = load.from else { continue };
            let Some(count) = readers.get_mut(stage.index()) else { continue };
            if !load.at.is_affine() {
                *count = None;
            } else if !seen.contains(&stage.index()) {
                seen.push(stage.index());
                *count = count.map(|n| n + 1);
            }
        }
    }
    readers
}

/// Whether a stage is evaluated by its readers.
fn is_inline(stage: &Stage, readers: usize) -> bool {
    if stage.kind != StageKind::Map || !stage.expr.is_pure() {
        return false;
    }
    let counted =
        stage.expr.instrs().iter().filter(|i| !matches!(i.op, Op::Input(_) | Op::Const(_)));
    let is_cheap = |op: Op| match op {
        Op::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not),
        Op::Binary(op, ..) => {
            use BinaryOp::*;
            matches!(op, Add | Sub | Mul | Min | Max | And | Or | Xor)
        }
        Op::Compare(..) | Op::Select(..) | Op::Cast(_) => true,
        _ => false,
    };
    match readers {
        1 => stage.expr.instrs().len() <= MAX_INSTRS,
        _ => counted.clone().count() <= RECOMPUTED && counted.clone().all(|i| is_cheap(i.op)),
    }
}

/// A stage with the maps that have no id taken up.
fn inline_maps(stage: &Stage, stages: &[Built]) -> Result<Stage, LoopError> {
    let mut taken = Taken::default();
    let missing = || LoopError::new("a load is missing");
    let mut regs: Vec<Reg> = Vec::with_capacity(stage.expr.instrs().len());
    for instr in stage.expr.instrs() {
        let reg = match instr.op {
            Op::Input(k) => {
                let load = stage.loads.get(k as usize);
                taken.element(load.ok_or_else(missing)?, instr.dtype, stages)?
            }
            Op::Read(read) => {
                let load = stage.loads.get(read.input as usize);
                let input = taken.source(load.ok_or_else(missing)?, instr.dtype, stages)?;
                let renamed = instr.op.renamed(&|r| regs.get(r.index()).copied().unwrap_or(r));
                match renamed {
                    Op::Read(read) => {
                        let read = crate::scalar_expr::Read { input, ..read };
                        taken.expr.instr(Op::Read(read), instr.dtype)
                    }
                    _ => return Err(LoopError::new("a read is none")),
                }
            }
            op => {
                let op = op.renamed(&|r| regs.get(r.index()).copied().unwrap_or(r));
                taken.expr.instr(op, instr.dtype)
            }
        };
        regs.push(reg);
    }
    let outputs = stage.expr.outputs().iter().map(|r| regs.get(r.index()).copied());
    let outputs = outputs.collect::<Option<Vec<Reg>>>();
    let outputs = outputs.ok_or_else(|| LoopError::new("an output is not defined"))?;
    let Taken { expr, loads, .. } = taken;
    let expr = expr.finish(&outputs)?;
    Ok(Stage { over: stage.over.clone(), loads, expr, kind: stage.kind.clone() })
}

/// A stage under construction.
#[derive(Default)]
struct Taken {
    expr: ExprBuilder,
    loads: SmallVec<[Load; 2]>,
    /// By load: its element.
    elements: SmallVec<[Option<Reg>; 4]>,
}

impl Taken {
    /// The element that a load reads: computed here, if its stage is inlined.
    fn element(&mut self, load: &Load, dtype: DType, stages: &[Built]) -> Result<Reg, LoopError> {
        let Source::Stage(output) = load.from else { return Ok(self.input(load.clone(), dtype)) };
        let missing = || LoopError::new("a load reads a later stage");
        let Built { stage, id } = stages.get(output.stage.index()).ok_or_else(missing)?;
        if let Some(id) = *id {
            let from = Source::Stage(StageOutput { stage: id, ..output });
            return Ok(self.input(Load { from, at: load.at.clone() }, dtype));
        }
        let mut inputs: SmallVec<[Reg; 4]> = SmallVec::new();
        for (inner, dtype) in stage.loads.iter().zip(stage.expr.inputs()) {
            // An inlined stage names stages of the new nest already.
            inputs.push(self.input(at_position(inner, &stage.over, &load.at)?, *dtype));
        }
        let outputs = self.expr.inline(&stage.expr, &inputs)?;
        outputs.get(usize::from(output.output)).copied().ok_or_else(missing)
    }

    /// An input; the same load twice is one input.
    fn input(&mut self, load: Load, dtype: DType) -> Reg {
        let known = self.loads.iter().position(|known| *known == load);
        if let Some(reg) = known.and_then(|k| self.elements.get(k).copied().flatten()) {
            return reg;
        }
        let reg = self.expr.input(dtype);
        self.loads.push(load);
        self.elements.push(Some(reg));
        reg
    }

    /// The index of an input with computed positions.
    fn source(&mut self, load: &Load, dtype: DType, stages: &[Built]) -> Result<u32, LoopError> {
        let from = match load.from {
            Source::Operand(_) => load.from,
            Source::Stage(output) => {
                let id = stages.get(output.stage.index()).and_then(|built| built.id);
                let stage = id.ok_or_else(|| LoopError::new("a read of an inlined stage"))?;
                Source::Stage(StageOutput { stage, ..output })
            }
        };
        self.loads.push(Load { from, at: load.at.clone() });
        self.elements.push(None);
        Ok(self.expr.source(dtype))
    }
}

/// A load of a stage over some axes, as a load at the position of that stage that `at` gives.
fn at_position(load: &Load, over: &[AxisId], at: &IndexMap) -> Result<Load, LoopError> {
    let not_affine = || LoopError::new("an inlined stage is read at computed positions");
    let substitute = |index: &Index| -> Result<Index, LoopError> {
        let Index::Affine(Affine { start, terms }) = index else { return Err(not_affine()) };
        let mut position = plain(*start)?;
        let mut steps: SmallVec<[(AxisId, i64); 4]> = SmallVec::new();
        for (axis, step) in terms {
            let dim = over.iter().position(|a| a == axis).ok_or_else(not_affine)?;
            let Some(Index::Affine(of)) = at.indices().get(dim) else { return Err(not_affine()) };
            let step = plain(*step)?;
            position += step * plain(of.start)?;
            for (axis, inner) in &of.terms {
                let inner = step * plain(*inner)?;
                match steps.iter_mut().find(|(known, _)| known == axis) {
                    Some((_, sum)) => *sum += inner,
                    None => steps.push((*axis, inner)),
                }
            }
        }
        let terms = steps.into_iter().filter(|(_, step)| *step != 0);
        let terms = terms.map(|(axis, step)| (axis, Expr::Int(step))).collect();
        Ok(Index::Affine(Affine { start: Expr::Int(position), terms }))
    };
    let at = load.at.indices().iter().map(substitute).collect::<Result<_, _>>()?;
    Ok(Load { from: load.from, at })
}

/// A plain number.
fn plain(e: Expr) -> Result<i64, LoopError> {
    e.as_i64().ok_or_else(|| LoopError::new("a size of a composition is not a number"))
}
