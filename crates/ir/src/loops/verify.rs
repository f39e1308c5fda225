//! The verifier of loop nests.

use super::build::no_such;
use super::fold::{Fold, Order};
use super::scan::ScanOrder;
use super::{AxisId, Combine, Index, Load, LoopNest, Stage, StageId, StageKind};
use crate::DType;
use crate::scalar_expr::{BuildError, ExprBuilder, Op};
use crate::sym::{Expr, Rel, SymTable};
use crate::view::TriBool;
use smallvec::SmallVec;

/// A nest, or a stage, that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .stage.map(|s| format!("stage t{s}: ")).unwrap_or_default())]
pub struct LoopError {
    /// The stage.
    pub stage: Option<usize>,
    /// Why it is not valid.
    pub message: Box<str>,
}

impl LoopError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> LoopError {
        LoopError { stage: None, message: message.into() }
    }

    pub(super) fn in_stage(self, stage: usize) -> LoopError {
        LoopError { stage: self.stage.or(Some(stage)), ..self }
    }
}

impl From<BuildError> for LoopError {
    fn from(e: BuildError) -> LoopError {
        LoopError::new(e.to_string())
    }
}

/// An affine index that is not proved to be inside its source. A launch checks it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnprovenLoad {
    /// The stage.
    pub stage: StageId,
    /// The load of the stage.
    pub load: u32,
    /// The dimension of the source.
    pub dim: u32,
}

type Result<T, E = LoopError> = std::result::Result<T, E>;

impl LoopNest {
    /// Verifies every stage:
    ///
    /// 1. **Axes.** The axes of a stage exist and are distinct. The axes of its kind are among
    ///    them; the kept axis of a sort is not.
    /// 2. **Loads.** A load reads an operand or an output of an earlier stage, with an index for
    ///    each dimension. Affine indices use axes of the stage, each once.
    /// 3. **Positions.** No affine index is provably outside its source. Where none is provably
    ///    inside, the load is listed in [`LoopNest::unproven`].
    /// 4. **Inputs.** The expression has an input of the right dtype for each load. An affine load
    ///    is an input, a computed one is read with a register for each computed dimension.
    /// 5. **Leaves.** Coordinates are of axes of the stage. Launch scalars exist and have the
    ///    dtype of their register. Assertions have messages.
    /// 6. **Kinds.** The outputs of the expression have the number and dtypes that the kind takes.
    ///    Sums, products and contractions of half precision are cast first, so that the dtype of
    ///    the accumulator is explicit.
    /// 7. **Results** are outputs of stages.
    ///
    /// A [`LoopBuilder`](super::LoopBuilder) verifies each stage that it adds.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn verify(&self) -> Result<()> {
        for (s, stage) in self.stages.iter().enumerate() {
            self.verify_stage(s, stage)?;
        }
        for result in &self.results {
            self.dtype(*result).ok_or_else(|| no_such("stage", 't', result.stage.0))?;
        }
        Ok(())
    }

    /// Verifies a stage with the stages before it, and returns what is not proved.
    pub(super) fn verify_stage(&self, s: usize, stage: &Stage) -> Result<Vec<UnprovenLoad>> {
        let check = || {
            self.verify_axes(stage)?;
            let unproven = self.verify_loads(s, stage)?;
            self.verify_expr(stage)?;
            self.verify_kind(stage)?;
            Ok(unproven)
        };
        check().map_err(|e: LoopError| e.in_stage(s))
    }

    fn verify_axes(&self, stage: &Stage) -> Result<()> {
        for (i, axis) in stage.over.iter().enumerate() {
            if axis.index() >= self.axes.len() {
                return Err(no_such("axis", 'i', axis.0));
            }
            if stage.over[..i].contains(axis) {
                return Err(LoopError::new(format!("axis i{} is listed twice", axis.0)));
            }
        }
        let among = |axes: &[AxisId]| {
            for (i, axis) in axes.iter().enumerate() {
                if !stage.over.contains(axis) || axes[..i].contains(axis) {
                    let message = format!("axis i{} must be an axis of the stage, once", axis.0);
                    return Err(LoopError::new(message));
                }
            }
            Ok(())
        };
        match &stage.kind {
            StageKind::Reduce { along, .. } | StageKind::Contract { along } => among(along),
            StageKind::Scan { along, .. } => among(&[*along]),
            StageKind::Sort { along, keep, .. } => {
                among(&[*along])?;
                if stage.over.contains(keep) {
                    let message = format!("the kept axis i{} is an axis of the stage", keep.0);
                    return Err(LoopError::new(message));
                }
                let extent = |a: AxisId| self.axes.get(a.index()).copied();
                let kept = extent(*keep).ok_or_else(|| no_such("axis", 'i', keep.0))?;
                let all = extent(*along).unwrap_or(Expr::Int(0));
                let mut facts = self.symbols.clone();
                let is_more = facts.rel(Rel::Gt, kept, all);
                match facts.prove(is_more) {
                    Some(true) => Err(LoopError::new("a sort keeps more elements than there are")),
                    _ => Ok(()),
                }
            }
            StageKind::Map | StageKind::Scatter { .. } => Ok(()),
        }
    }

    fn verify_loads(&self, s: usize, stage: &Stage) -> Result<Vec<UnprovenLoad>> {
        let mut unproven = Vec::new();
        // A load is read only if every extent of the stage is positive.
        let mut facts = None;
        for (l, load) in stage.loads.iter().enumerate() {
            let (_, sizes) = self.source(load.from).ok_or_else(|| {
                LoopError::new(format!(
                    "load {l} reads no operand and no earlier stage of the nest"
                ))
            })?;
            let indices = load.at.indices();
            if indices.len() != sizes.len() {
                let message = format!(
                    "load {l} has {} indices, and its source {} dimensions",
                    indices.len(),
                    sizes.len()
                );
                return Err(LoopError::new(message));
            }
            for (dim, (index, &size)) in indices.iter().zip(&sizes).enumerate() {
                let Index::Affine(affine) = index else { continue };
                for (i, (axis, _)) in affine.terms.iter().enumerate() {
                    let why = if !stage.over.contains(axis) {
                        "which is not one of the stage"
                    } else if affine.terms[..i].iter().any(|(a, _)| a == axis) {
                        "twice in one index"
                    } else {
                        continue;
                    };
                    let message = format!("load {l} uses axis i{}, {why}", axis.0);
                    return Err(LoopError::new(message));
                }
                let Some(facts) = facts.get_or_insert_with(|| self.positive_extents(stage)) else {
                    continue;
                };
                match affine.is_inside(self, size, facts) {
                    TriBool::Yes => {}
                    TriBool::No => {
                        let message =
                            format!("load {l} reads outside dimension {dim} of its source");
                        return Err(LoopError::new(message));
                    }
                    TriBool::Unknown => unproven.push(UnprovenLoad {
                        stage: StageId(s as u32),
                        load: l as u32,
                        dim: dim as u32,
                    }),
                }
            }
        }
        Ok(unproven)
    }

    /// The table with the fact that the extents of a stage are positive; `None` if that is
    /// impossible, and nothing is read.
    fn positive_extents(&self, stage: &Stage) -> Option<SymTable> {
        let mut facts = self.symbols.clone();
        for axis in &stage.over {
            let extent = self.axes.get(axis.index()).copied().unwrap_or(Expr::Int(0));
            let is_positive = facts.rel(Rel::Ge, extent, Expr::Int(1));
            match is_positive.as_bool() {
                Some(true) => {}
                Some(false) => return None,
                None => facts.assume(is_positive).ok()?,
            }
        }
        Some(facts)
    }

    fn verify_expr(&self, stage: &Stage) -> Result<()> {
        let (inputs, loads) = (stage.expr.inputs(), &stage.loads);
        if inputs.len() != loads.len() {
            let message = format!(
                "the expression has {} inputs, and the stage {} loads",
                inputs.len(),
                loads.len()
            );
            return Err(LoopError::new(message));
        }
        for (l, (load, &input)) in loads.iter().zip(inputs).enumerate() {
            let dtype = self.source(load.from).map(|(dtype, _)| dtype);
            if let Some(dtype) = dtype.filter(|d| *d != input) {
                return Err(LoopError::new(format!("input {l} is {input}, and load {l} {dtype}")));
            }
        }
        let load = |k: u32| {
            let found: Option<&Load> = loads.get(k as usize);
            found.ok_or_else(|| LoopError::new(format!("the stage has no load {k}")))
        };
        for instr in stage.expr.instrs() {
            match instr.op {
                Op::Input(k) if !load(k)?.at.is_affine() => {
                    let message = format!("load {k} has computed positions, and is not read");
                    return Err(LoopError::new(message));
                }
                Op::Read(read) => {
                    let expected = load(read.input)?.at.computed_dims().count();
                    let found = read.at.regs().len();
                    if expected != found {
                        let message = format!(
                            "load {} has {expected} computed dimensions, and is read at {found} \
                                positions",
                            read.input
                        );
                        return Err(LoopError::new(message));
                    }
                }
                Op::Coord(axis) if !stage.over.contains(&AxisId(axis)) => {
                    return Err(LoopError::new(format!("axis i{axis} is not one of the stage")));
                }
                Op::Launch(k) => {
                    let scalar = self.scalars.get(k as usize);
                    let scalar = scalar.ok_or_else(|| no_such("launch scalar", 'c', k))?;
                    if scalar.dtype() != instr.dtype {
                        let message =
                            format!("c{k} is {}, and its register {}", scalar.dtype(), instr.dtype);
                        return Err(LoopError::new(message));
                    }
                }
                Op::Assert(_, message) if message as usize >= self.messages.len() => {
                    return Err(LoopError::new(format!("the nest has no message {message}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn verify_kind(&self, stage: &Stage) -> Result<()> {
        let outputs: SmallVec<[DType; 4]> = stage.expr.output_dtypes().collect();
        let count = |expected: usize, what: &str| match outputs.len() == expected {
            true => Ok(()),
            false => Err(LoopError::new(format!(
                "the expression has {} outputs, and {what} takes {expected}",
                outputs.len()
            ))),
        };
        match &stage.kind {
            StageKind::Map if outputs.is_empty() => {
                Err(LoopError::new("the expression has no output"))
            }
            StageKind::Map => Ok(()),
            StageKind::Reduce { fold, order, .. } => verify_fold(fold, *order, &outputs),
            StageKind::Scan { fold, order, .. } => verify_scan(fold, *order, &outputs),
            StageKind::Contract { .. } => {
                count(2, "a contraction")?;
                accumulates("a contraction", outputs[0])?;
                if outputs[0] == DType::Bool || outputs[0] != outputs[1] {
                    let message = format!(
                        "the factors of a contraction are numbers of one dtype, found {} and {}",
                        outputs[0], outputs[1]
                    );
                    return Err(LoopError::new(message));
                }
                Ok(())
            }
            StageKind::Sort { .. } => count(1, "a sort"),
            StageKind::Scatter { into, combine } => {
                let (dtype, sizes) = self
                    .source(*into)
                    .ok_or_else(|| LoopError::new("the scatter's source does not exist"))?;
                count(1 + sizes.len(), &format!("a scatter into {} dimensions", sizes.len()))?;
                if outputs[0] != dtype {
                    let message = format!("{} is scattered into {dtype}", outputs[0]);
                    return Err(LoopError::new(message));
                }
                if let Some(found) = outputs[1..].iter().find(|d| **d != DType::I64) {
                    return Err(LoopError::new(format!("positions are i64, found {found}")));
                }
                if let Combine::Op(op) = combine {
                    let mut expr = ExprBuilder::new();
                    let (old, new) = (expr.input(dtype), expr.input(dtype));
                    expr.binary(*op, old, new)?;
                }
                Ok(())
            }
        }
    }
}

/// Requires an accumulator that is not of half precision.
fn accumulates(what: &str, dtype: DType) -> Result<()> {
    match dtype {
        DType::F16 | DType::BF16 => Err(LoopError::new(format!(
            "{what} of {dtype} has no accumulator; cast the values to f32 first"
        ))),
        _ => Ok(()),
    }
}

fn verify_scan(fold: &Fold, order: ScanOrder, outputs: &[DType]) -> Result<()> {
    let name = fold.name().unwrap_or_default();
    if let Fold::ArgMin | Fold::ArgMax | Fold::Moments = fold {
        return Err(LoopError::new(format!("a scan cannot have the fold {name}")));
    }
    verify_fold(fold, Order::Sequential, outputs)?;
    match (fold, outputs) {
        (Fold::Of { .. }, _) | (_, []) => Ok(()),
        // One form for each computation, so that equal nests have equal texts.
        (_, [dtype, ..]) if order != ScanOrder::of(fold, *dtype) => Err(LoopError::new(format!(
            "the order of a scan with {name} of {dtype} is `{}`, found `{}`",
            ScanOrder::of(fold, *dtype).name(),
            order.name()
        ))),
        _ => Ok(()),
    }
}

fn verify_fold(fold: &Fold, order: Order, outputs: &[DType]) -> Result<()> {
    if let Fold::Of { identity, combine } = fold {
        let states: Vec<DType> = outputs.iter().chain(outputs).copied().collect();
        let result: Vec<DType> = combine.output_dtypes().collect();
        let is_valid = combine.is_pure()
            && !outputs.is_empty()
            && identity.len() == outputs.len()
            && combine.inputs() == states
            && result == outputs;
        return match is_valid {
            true => Ok(()),
            false => Err(LoopError::new(
                "a fold's operation is pure and takes two states of the expression's outputs to one",
            )),
        };
    }
    let name = fold.name().unwrap_or_default();
    let [dtype] = outputs else {
        let message = format!("the fold {name} takes 1 output, found {}", outputs.len());
        return Err(LoopError::new(message));
    };
    match fold {
        Fold::Sum | Fold::Prod => accumulates(name, *dtype),
        Fold::Moments => {
            accumulates(name, *dtype)?;
            if !dtype.is_float() || order != Order::Lanes {
                return Err(LoopError::new("moments are of floats, in lanes"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
