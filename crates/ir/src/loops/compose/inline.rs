//! Maps that are evaluated where their values are read.

use crate::DType;
use crate::loops::{
    Affine, AxisId, Index, IndexMap, Load, LoopBuilder, LoopError, LoopNest, Source, Stage,
    StageId, StageKind, StageOutput,
};
use crate::scalar_expr::{BinaryOp, ExprBuilder, Op, Read, Reg, UnaryOp};
use crate::sym::{Expr, SymError, SymTable, SymbolId};
use smallvec::SmallVec;

/// A map with several readers, or with one that is evaluated more often, is computed by them if it
/// has at most this many instructions besides inputs and constants, all of them cheap.
const RECOMPUTED: usize = 1;

/// A map with more instructions is not taken in by its only reader.
const MAX_INSTRS: usize = 192;

/// A stage with maps inlined, and its id in the new nest, if it is not inlined itself.
struct Built {
    stage: Stage,
    id: Option<StageId>,
}

/// The nest with maps evaluated where they are read, and without stages that nothing reads.
/// `example` are values of the symbols that a launch may have.
pub(super) fn inlined(nest: &LoopNest, example: &[i64]) -> Result<LoopNest, LoopError> {
    let (readers, counts) = (readers(nest), counts(nest, example));
    let mut builder = LoopBuilder::new(nest.symbols().clone());
    for extent in nest.axes() {
        builder.axis(*extent);
    }
    for operand in nest.operands() {
        builder.operand(operand.dtype, &operand.sizes);
    }
    for scalar in nest.scalars() {
        builder.scalar(*scalar);
    }
    let mut stages: Vec<Option<Built>> = nest.stages().iter().map(|_| None).collect();
    for index in products_late(nest) {
        let stage = inline_maps(&nest.stages()[index], &stages, builder.symbols_mut())?;
        let is_result = nest.results().iter().any(|r| r.stage.index() == index);
        let is_inlined = !is_result
            && match readers[index] {
                Readers::None => true,
                // What may fail is evaluated for the same elements as before.
                Readers::One(reader) if has_reads(&stage) || stage.expr.may_fail() => {
                    let is_map = nest.stages()[reader].kind == StageKind::Map;
                    have_equal_points(nest, reader, index, builder.symbols_mut())
                        && (is_map || !has_reads(&stage))
                        && is_inline_read(&stage)
                }
                Readers::One(reader) => {
                    let is_repeated = counts[reader] > counts[index];
                    is_inline(&stage, if is_repeated { RECOMPUTED } else { MAX_INSTRS })
                }
                Readers::Several => is_inline(&stage, RECOMPUTED),
                Readers::Computed => false,
            };
        let id = match is_inlined {
            true => None,
            false => Some(builder.push(stage.clone())?),
        };
        stages[index] = Some(Built { stage, id });
    }
    let results = nest.results().iter().map(|result| {
        let id = built(&stages, result.stage).and_then(|built| built.id);
        let stage = id.ok_or_else(|| LoopError::new("a result was inlined"))?;
        Ok(StageOutput { stage, output: result.output })
    });
    let results = results.collect::<Result<Vec<StageOutput>, LoopError>>()?;
    builder.finish(&results)
}

fn built(stages: &[Option<Built>], id: StageId) -> Option<&Built> {
    stages.get(id.index())?.as_ref()
}

/// The stages in an order in which each stands after the last product on which it depends, and
/// those that depend on none come first: an executor runs the maps right after a product with it.
fn products_late(nest: &LoopNest) -> Vec<usize> {
    // By stage: the last product on which it depends, counted from 1, or 0.
    let mut last = vec![0; nest.stages().len()];
    for (index, stage) in nest.stages().iter().enumerate() {
        let of = |load: &Load| match load.from {
            Source::Stage(output) => last.get(output.stage.index()).copied().unwrap_or(0),
            Source::Operand(_) => 0,
        };
        last[index] = match stage.kind {
            StageKind::Contract { .. } => index + 1,
            _ => stage.loads.iter().map(of).max().unwrap_or(0),
        };
    }
    let mut order: Vec<usize> = (0..last.len()).collect();
    order.sort_by_key(|index| last[*index]);
    order
}

/// Which stages read a stage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    None,
    One(usize),
    Several,
    /// One of them reads it at computed positions.
    Computed,
}

/// By stage: its readers.
fn readers(nest: &LoopNest) -> Vec<Readers> {
    let mut readers = vec![Readers::None; nest.stages().len()];
    for (reader, stage) in nest.stages().iter().enumerate() {
        for load in &stage.loads {
            let Source::Stage(StageOutput { stage, .. }) = load.from else { continue };
            let Some(of) = readers.get_mut(stage.index()) else { continue };
            *of = match *of {
                _ if !load.at.is_affine() => Readers::Computed,
                Readers::None => Readers::One(reader),
                Readers::One(known) if known != reader => Readers::Several,
                known => known,
            };
        }
    }
    readers
}

/// The extents of the axes over which the expression of a stage is evaluated.
fn evaluated(nest: &LoopNest, stage: &Stage) -> SmallVec<[Expr; 6]> {
    let along = match &stage.kind {
        StageKind::Reduce { along, .. } | StageKind::Contract { along } => &along[..],
        StageKind::Scan { along, .. } => std::slice::from_ref(along),
        _ => &[],
    };
    stage.over.iter().chain(along).map(|axis| nest.extent(*axis)).collect()
}

/// By stage: how often its expression is evaluated in a launch with these values of the symbols.
fn counts(nest: &LoopNest, example: &[i64]) -> Vec<i64> {
    let value = |symbol: SymbolId| example.get(symbol.index()).copied();
    let extent = |e: &Expr| nest.symbols().eval(*e, &value).unwrap_or(i64::MAX);
    let count =
        |stage: &Stage| evaluated(nest, stage).iter().map(extent).fold(1, i64::saturating_mul);
    nest.stages().iter().map(count).collect()
}

/// Whether two stages are evaluated equally often in every launch.
fn have_equal_points(nest: &LoopNest, a: usize, b: usize, table: &mut SymTable) -> bool {
    let mut product = |stage: usize| {
        let mut extents = evaluated(nest, nest.stages().get(stage)?).into_iter();
        extents.try_fold(Expr::Int(1), |product, e| table.mul(product, e).ok())
    };
    product(a).is_some_and(|count| product(b) == Some(count))
}

/// Whether a stage is a map that its readers evaluate: one of at most `most` instructions besides
/// inputs and constants. If they are few, all of them are cheap.
fn is_inline(stage: &Stage, most: usize) -> bool {
    if stage.kind != StageKind::Map || !stage.expr.is_pure() {
        return false;
    }
    let is_counted = |op: Op| !matches!(op, Op::Input(_) | Op::Const(_));
    let counted = || stage.expr.instrs().iter().filter(|i| is_counted(i.op));
    let is_cheap = |op: Op| match op {
        Op::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not),
        Op::Binary(op, ..) => {
            use BinaryOp::*;
            matches!(op, Add | Sub | Mul | Min | Max | And | Or | Xor)
        }
        Op::Compare(..) | Op::Select(..) | Op::Cast(_) => true,
        _ => false,
    };
    counted().count() <= most && (most > RECOMPUTED || counted().all(|i| is_cheap(i.op)))
}

fn has_reads(stage: &Stage) -> bool {
    stage.expr.instrs().iter().any(|instr| matches!(instr.op, Op::Read(_)))
}

/// Whether a stage that may read at computed positions is a map that its only reader can evaluate.
fn is_inline_read(stage: &Stage) -> bool {
    let instrs = stage.expr.instrs();
    stage.kind == StageKind::Map
        && instrs.len() <= MAX_INSTRS
        && instrs.iter().all(|instr| instr.op.is_pure() || matches!(instr.op, Op::Read(_)))
}

/// A stage with the maps that have no id taken up.
fn inline_maps(
    stage: &Stage,
    stages: &[Option<Built>],
    table: &mut SymTable,
) -> Result<Stage, LoopError> {
    let mut taken = Taken::new(table);
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
                        taken.expr.instr(Op::Read(Read { input, ..read }), instr.dtype)
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
struct Taken<'t> {
    /// The table of sizes.
    table: &'t mut SymTable,
    expr: ExprBuilder,
    loads: SmallVec<[Load; 2]>,
    /// By load: its element.
    elements: SmallVec<[Option<Reg>; 4]>,
}

impl<'t> Taken<'t> {
    fn new(table: &'t mut SymTable) -> Taken<'t> {
        let (expr, loads, elements) = (ExprBuilder::new(), SmallVec::new(), SmallVec::new());
        Taken { table, expr, loads, elements }
    }

    /// The element that a load reads: computed here, if its stage is inlined.
    fn element(
        &mut self,
        load: &Load,
        dtype: DType,
        stages: &[Option<Built>],
    ) -> Result<Reg, LoopError> {
        let Source::Stage(output) = load.from else { return Ok(self.input(load.clone(), dtype)) };
        let missing = || LoopError::new("a load reads a later stage");
        let Built { stage, id } = built(stages, output.stage).ok_or_else(missing)?;
        if let Some(id) = *id {
            let from = Source::Stage(StageOutput { stage: id, ..output });
            return Ok(self.input(Load { from, at: load.at.clone() }, dtype));
        }
        if has_reads(stage) {
            let outputs = self.reads(stage, &load.at)?;
            return outputs.get(usize::from(output.output)).copied().ok_or_else(missing);
        }
        let mut inputs: SmallVec<[Reg; 4]> = SmallVec::new();
        for (inner, dtype) in stage.loads.iter().zip(stage.expr.inputs()) {
            // An inlined stage names stages of the new nest already.
            let inner = at_position(inner, &stage.over, &load.at, self.table)?;
            inputs.push(self.input(inner, *dtype));
        }
        let outputs = self.expr.inline(&stage.expr, &inputs)?;
        outputs.get(usize::from(output.output)).copied().ok_or_else(missing)
    }

    /// The outputs of an inlined stage that reads at computed positions, at a position of that
    /// stage.
    fn reads(&mut self, stage: &Stage, at: &IndexMap) -> Result<Vec<Reg>, LoopError> {
        let missing = || LoopError::new("an inlined load is missing");
        let load = |table: &mut SymTable, k: u32| {
            let load = stage.loads.get(k as usize).ok_or_else(missing)?;
            at_position(load, &stage.over, at, table)
        };
        let mut regs: Vec<Reg> = Vec::with_capacity(stage.expr.instrs().len());
        for instr in stage.expr.instrs() {
            let op = instr.op.renamed(&|r| regs.get(r.index()).copied().unwrap_or(r));
            regs.push(match op {
                Op::Input(k) => {
                    let load = load(self.table, k)?;
                    self.input(load, instr.dtype)
                }
                Op::Read(read) => {
                    let load = load(self.table, read.input)?;
                    self.loads.push(load);
                    self.elements.push(None);
                    let input = self.expr.source(instr.dtype);
                    self.expr.instr(Op::Read(Read { input, ..read }), instr.dtype)
                }
                op => self.expr.instr(op, instr.dtype),
            });
        }
        let outputs = stage.expr.outputs().iter().map(|r| regs.get(r.index()).copied());
        outputs.collect::<Option<_>>().ok_or_else(missing)
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
    fn source(
        &mut self,
        load: &Load,
        dtype: DType,
        stages: &[Option<Built>],
    ) -> Result<u32, LoopError> {
        let from = match load.from {
            Source::Operand(_) => load.from,
            Source::Stage(output) => {
                let id = built(stages, output.stage).and_then(|built| built.id);
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
fn at_position(
    load: &Load,
    over: &[AxisId],
    at: &IndexMap,
    table: &mut SymTable,
) -> Result<Load, LoopError> {
    let not_affine = || LoopError::new("an inlined stage is read at computed positions");
    let mut substitute = |index: &Index| -> Result<Index, LoopError> {
        let Index::Affine(Affine { start, terms }) = index else { return Ok(Index::Computed) };
        let mut position = *start;
        let mut steps: SmallVec<[(AxisId, Expr); 2]> = SmallVec::new();
        for (axis, step) in terms {
            let dim = over.iter().position(|a| a == axis).ok_or_else(not_affine)?;
            let Some(Index::Affine(of)) = at.indices().get(dim) else { return Err(not_affine()) };
            let first = table.mul(*step, of.start).map_err(no_size)?;
            position = table.add(position, first).map_err(no_size)?;
            for (axis, inner) in &of.terms {
                let inner = table.mul(*step, *inner).map_err(no_size)?;
                match steps.iter_mut().find(|(known, _)| known == axis) {
                    Some((_, sum)) => *sum = table.add(*sum, inner).map_err(no_size)?,
                    None => steps.push((*axis, inner)),
                }
            }
        }
        let terms = steps.into_iter().filter(|(_, step)| *step != Expr::Int(0)).collect();
        Ok(Index::Affine(Affine { start: position, terms }))
    };
    let at = load.at.indices().iter().map(&mut substitute).collect::<Result<_, _>>()?;
    Ok(Load { from: load.from, at })
}

fn no_size(e: SymError) -> LoopError {
    LoopError::new(e.to_string())
}
