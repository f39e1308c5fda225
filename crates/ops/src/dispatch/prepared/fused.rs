//! Kernels that compute several builtin operators.
//!
//! A [`RegionBuilder`] is given the calls of a region of a graph, on fake tensors with plain sizes.
//! It puts their computations together: the expressions of pointwise operators become one, and the
//! nests of others become one nest ([`Composer`]). Coercion, promotion and the choice of the nest
//! are those of a single call.

use super::operand::{PlacedOperand, views, views_mut};
use super::{Kernel, Operands, PreparedCall, Results};
use crate::aten::execute::PointwiseCall;
use crate::aten::loops::{NestLaunch, PlacedNest};
use crate::aten::lowering::How;
use crate::aten::{Lowering, OpDef};
use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::value::{Args, Value};
use crate::fake::FakeCtx;
use crate::library::{Op, OpState};
use crate::mode;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::fused::{FusionClass, FusionKind, NoFusionReason};
use maquette_ir::loops::{
    AxisId, ComposedTensor, Composer, Index, LoopNest, Source, StageKind, StageOutput,
};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, ExprBuilder, Op as ScalarOp, Reg, ScalarExpr};
use maquette_ir::{Device, Scalar};
use maquette_kernels::LoopKernel;
use smallvec::SmallVec;

/// A region with fewer rows than this is not computed by rows if each has more elements than
/// [`LONG_ROW`]: the operators alone divide a row among threads.
const FEW_ROWS: i64 = 8;
const LONG_ROW: i64 = 32_768;

impl Op {
    /// How calls with arguments of these kinds and layouts can be fused. Tensors are fake, on the
    /// CPU, with plain sizes.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn fusion_class(self, mut args: Args) -> Result<FusionClass, NoFusionReason> {
        let state = self.state().map_err(|_| NoFusionReason::Opaque)?;
        let def = state.plain_builtin().ok_or(match state.builtin {
            Some(_) => NoFusionReason::Overridden,
            None => NoFusionReason::Opaque,
        })?;
        if self.is_random() {
            return Err(NoFusionReason::Effect);
        }
        if args.iter().flat_map(Value::tensors).any(|t| t.device() != Device::Cpu) {
            return Err(NoFusionReason::Opaque);
        }
        mode::without_modes(|| {
            coerce_args(&state, &mut args).map_err(|_| NoFusionReason::Opaque)?;
            match &def.lowering {
                Lowering::Pointwise(p) => {
                    let call = p.call(def, &state, &args, None);
                    let call = call.map_err(|_| NoFusionReason::Opaque)?;
                    match may_fail(&call.compiled.expr) {
                        true => Err(NoFusionReason::Assert),
                        false => Ok(FusionClass::Elements),
                    }
                }
                Lowering::View(_) => Err(NoFusionReason::NotAffine),
                Lowering::Compute(c) => {
                    let build = match c.how {
                        How::Loops(build) => build,
                        // Fresh memory is zero without a kernel.
                        How::Zeros | How::Nothing => {
                            return Err(NoFusionReason::LosesSpecialisation);
                        }
                        How::Host(_) => return Err(NoFusionReason::Opaque),
                    };
                    let results =
                        self.fake_results(def, &state, &args).ok_or(NoFusionReason::Opaque)?;
                    let nest = PlacedNest::of(def, build, &args, &results).ok().flatten();
                    class_of_nest(nest.ok_or(NoFusionReason::Opaque)?.launch.kernel())
                }
                _ => Err(NoFusionReason::Opaque),
            }
        })
    }

    /// Fake row-major tensors of the results of a call.
    fn fake_results(self, def: &OpDef, state: &OpState, args: &[Value]) -> Option<Vec<Tensor>> {
        let results = FakeCtx::eager(self, |cx| def.fake(cx, state, args)).ok()?;
        let row_major = |value: Value| match value {
            Value::Tensor(t) => {
                let sizes = t.meta().sizes.clone();
                Some(Tensor::fake_of(Meta::contiguous(sizes, t.dtype())))
            }
            _ => None,
        };
        results.into_iter().map(row_major).collect()
    }
}

/// Whether an evaluation can end with an error that depends on data.
fn may_fail(expr: &ScalarExpr) -> bool {
    use BinaryOp::{FloorDiv, Fmod, Remainder, TruncDiv};
    expr.instrs().iter().any(|instr| match instr.op {
        ScalarOp::Binary(FloorDiv | TruncDiv | Fmod | Remainder, ..) => !instr.dtype.is_float(),
        ScalarOp::Read(read) => {
            matches!(read.bounds, Bounds::Wraps | Bounds::Fails | Bounds::Clamps)
        }
        ScalarOp::Assert(..) => true,
        _ => false,
    })
}

fn class_of_nest(kernel: &LoopKernel) -> Result<FusionClass, NoFusionReason> {
    let nest = kernel.nest();
    if nest.stages().iter().any(|stage| may_fail(&stage.expr)) || !nest.messages().is_empty() {
        return Err(NoFusionReason::Assert);
    }
    let (mut folds, mut products) = (0, 0);
    for stage in nest.stages() {
        match stage.kind {
            StageKind::Map => {}
            StageKind::Reduce { .. } | StageKind::Scan { .. } => folds += 1,
            StageKind::Contract { .. } => products += 1,
            StageKind::Sort { .. } => return Err(NoFusionReason::LosesSpecialisation),
            StageKind::Scatter { .. } => return Err(NoFusionReason::Assert),
        }
    }
    match (folds, products) {
        (0, 0) => return Err(NoFusionReason::NotAffine),
        (_, 0) => {}
        (0, 1) if is_plain_product(nest) => return Ok(FusionClass::Product),
        _ => return Err(NoFusionReason::LosesSpecialisation),
    }
    let outer = kernel.outer_axes();
    let rows = |result: &StageOutput| {
        let axes = nest.stage(result.stage).map(|stage| stage.axes()).unwrap_or_default();
        axes.iter().take_while(|axis| outer.contains(axis)).count()
    };
    match nest.results().iter().map(rows).min() {
        None | Some(0) => Err(NoFusionReason::OtherRows),
        Some(outer) if is_by_rows(nest, outer) => Ok(FusionClass::Rows { outer }),
        Some(_) => Err(NoFusionReason::OtherRows),
    }
}

/// Whether a nest is a product of operands, at most converted, and maps of its elements.
fn is_plain_product(nest: &LoopNest) -> bool {
    let Some((product, maps)) = nest.stages().split_first() else { return false };
    let is_load = |op: ScalarOp| matches!(op, ScalarOp::Input(_) | ScalarOp::Cast(_));
    matches!(product.kind, StageKind::Contract { .. })
        && product.expr.instrs().iter().all(|instr| is_load(instr.op))
        && maps.iter().all(|stage| stage.kind == StageKind::Map && stage.over == product.axes())
}

/// Whether the leading dimensions of all operands that have a dimension of the rows are the rows.
fn is_by_rows(nest: &LoopNest, outer: usize) -> bool {
    let first = nest.results().first().and_then(|result| nest.stage(result.stage));
    let Some(rows) = first.map(|stage| stage.axes()) else { return false };
    let rows = &rows[..outer.min(rows.len())];
    let loads = nest.stages().iter().flat_map(|stage| &stage.loads);
    let mut loads = loads.filter(|load| matches!(load.from, Source::Operand(_)));
    loads.all(|load| {
        load.at.indices().iter().enumerate().all(|(dim, index)| match index {
            Index::Affine(affine) => affine
                .terms
                .iter()
                .all(|(axis, _)| rows.iter().position(|r| r == axis).is_none_or(|at| at == dim)),
            Index::Computed => true,
        })
    })
}

/// The calls of a region, as far as they are known.
pub struct RegionBuilder {
    form: Form,
    /// The fake tensors of operands, then of results of calls.
    values: Vec<Tensor>,
    /// The operands of the kernel.
    operands: Operands,
    /// How many of the values are operands of the region.
    given: usize,
    op: Option<Op>,
}

enum Form {
    /// An expression; the register of each value.
    Elements { sizes: SmallVec<[i64; 4]>, expr: ExprBuilder, regs: Vec<Reg> },
    /// A nest; the tensor of each value, and the numbers of its launches. It has to run by so many
    /// leading dimensions.
    Nest {
        composer: Box<Composer>,
        tensors: Vec<ComposedTensor>,
        numbers: Vec<Scalar>,
        rows: usize,
    },
}

impl RegionBuilder {
    /// A region of operators that read these tensors. They are fake, on the CPU, with plain sizes
    /// and a storage of their own each. `results` have the layouts of memory into which the region
    /// writes, and `outer` leading dimensions in common.
    ///
    /// `None` if a tensor has no elements, or the kernel would lose too much.
    pub fn new(
        kind: FusionKind,
        outer: usize,
        operands: &[Tensor],
        results: &[Tensor],
    ) -> Option<RegionBuilder> {
        let sizes = |t: &Tensor| Some(t.meta().concrete()?.sizes);
        let first = sizes(results.first()?)?;
        let is_empty = |t: &Tensor| sizes(t).is_none_or(|sizes| sizes.contains(&0));
        if operands.iter().chain(results).any(is_empty) {
            return None;
        }
        let mut region = RegionBuilder {
            form: match kind {
                FusionKind::Elements => Form::Elements {
                    sizes: first[..].into(),
                    expr: ExprBuilder::new(),
                    regs: Vec::new(),
                },
                FusionKind::Rows | FusionKind::Product => Form::Nest {
                    composer: Box::new(Composer::new(first.get(..outer)?)),
                    tensors: Vec::new(),
                    numbers: Vec::new(),
                    rows: if kind == FusionKind::Product { 0 } else { outer },
                },
            },
            values: Vec::new(),
            operands: Operands::new(),
            given: operands.len(),
            op: None,
        };
        for (k, operand) in operands.iter().enumerate() {
            region.operand(k, operand)?;
        }
        Some(region)
    }

    fn operand(&mut self, k: usize, t: &Tensor) -> Option<()> {
        let placed = PlacedOperand::of(k, t)?;
        match &mut self.form {
            Form::Elements { sizes, expr, regs } => {
                regs.push(expr.input(t.dtype()));
                self.operands.push(placed.expanded(sizes)?);
            }
            Form::Nest { composer, tensors, .. } => {
                tensors.push(composer.operand(t.dtype(), &placed.layout.sizes));
                self.operands.push(placed);
            }
        }
        self.values.push(t.clone());
        Some(())
    }

    fn value(&self, t: &Tensor) -> Option<usize> {
        self.values.iter().position(|value| value.is_same(t))
    }

    /// Adds a call, whose tensors are operands or results of earlier calls. Returns fake tensors for
    /// its results. `None` if it cannot be a part of the region.
    pub fn call(&mut self, op: Op, mut args: Args) -> Option<Vec<Tensor>> {
        let state = op.state().ok()?;
        let def = state.plain_builtin()?;
        self.op.get_or_insert(op);
        mode::without_modes(|| {
            coerce_args(&state, &mut args).ok()?;
            match &def.lowering {
                Lowering::Pointwise(p) => {
                    let PointwiseCall { compiled, operands, meta } =
                        p.call(def, &state, &args, None).ok()?;
                    let operands = operands.iter().map(|t| self.value(t));
                    let mut operands = operands.collect::<Option<SmallVec<[usize; 4]>>>()?;
                    if fault_injected(Fault::OperandsInReverse) {
                        operands.reverse();
                    }
                    let result = Tensor::fake_of(Meta::contiguous(meta.sizes, meta.dtype));
                    self.pointwise(&compiled.expr, &operands, &result)?;
                    self.values.push(result.clone());
                    Some(vec![result])
                }
                Lowering::Compute(c) => {
                    let How::Loops(build) = c.how else { return None };
                    let results = op.fake_results(def, &state, &args)?;
                    let nest = PlacedNest::of(def, build, &args, &results).ok()??;
                    self.nest(&nest)?;
                    self.values.extend(results.iter().cloned());
                    Some(results)
                }
                _ => None,
            }
        })
    }

    fn pointwise(&mut self, part: &ScalarExpr, operands: &[usize], result: &Tensor) -> Option<()> {
        let of = result.meta().concrete()?.sizes;
        match &mut self.form {
            Form::Elements { sizes, expr, regs } => {
                if of[..] != sizes[..] {
                    return None;
                }
                let inputs = operands.iter().map(|&at| regs.get(at).copied());
                let inputs = inputs.collect::<Option<SmallVec<[Reg; 4]>>>()?;
                let [output] = expr.inline(part, &inputs).ok()?[..] else { return None };
                regs.push(output);
            }
            Form::Nest { composer, tensors, .. } => {
                let operands = operands.iter().map(|&at| tensors.get(at).cloned());
                let operands = operands.collect::<Option<SmallVec<[ComposedTensor; 4]>>>()?;
                let [output] = &composer.map(part, &operands, &of).ok()?[..] else { return None };
                tensors.push(output.clone());
            }
        }
        Some(())
    }

    fn nest(&mut self, nest: &PlacedNest) -> Option<()> {
        let mut operands: SmallVec<[usize; 4]> = SmallVec::new();
        for t in &nest.operands {
            operands.push(match self.value(t) {
                Some(at) => at,
                None => self.view(t)?,
            });
        }
        let Form::Nest { composer, tensors, numbers, .. } = &mut self.form else { return None };
        let operands = operands.iter().map(|&at| tensors.get(at).cloned());
        let operands = operands.collect::<Option<SmallVec<[ComposedTensor; 4]>>>()?;
        let value = |symbol| nest.launch.symbol(symbol);
        let results = composer.nest(nest.launch.kernel().nest(), &value, &operands).ok()?;
        tensors.extend(results);
        numbers.extend(nest.launch.numbers());
        Some(())
    }

    /// Adds a view of an operand of the region as an operand of the kernel.
    fn view(&mut self, t: &Tensor) -> Option<usize> {
        let base = self.values[..self.given].iter().position(|value| value.shares_storage(t))?;
        self.operand(base, t)?;
        Some(self.values.len() - 1)
    }

    /// The kernel that computes `results`, which calls returned, into memory of the layouts of
    /// `outs`. `None` if no kernel does.
    pub fn finish(self, results: &[Tensor], outs: &[Tensor]) -> Option<PreparedCall> {
        let results = results.iter().map(|t| self.value(t)).collect::<Option<Vec<usize>>>()?;
        let RegionBuilder { form, operands, op, .. } = self;
        let places = outs.iter().enumerate().map(|(i, out)| PlacedOperand::of(i, out));
        let places = places.collect::<Option<Results>>()?;
        let kernel = match form {
            Form::Elements { expr, regs, .. } => {
                let outputs = results.iter().map(|&at| regs.get(at).copied());
                let outputs = outputs.collect::<Option<SmallVec<[Reg; 4]>>>()?;
                Kernel::pointwise(&expr.finish(&outputs).ok()?, &operands, &places, None)?
            }
            Form::Nest { composer, tensors, numbers, rows } => {
                let results = results.iter().map(|&at| tensors.get(at).cloned());
                let results = results.collect::<Option<SmallVec<[ComposedTensor; 4]>>>()?;
                let nest = composer.finish(&results).ok()?;
                let mut launch = NestLaunch::plain(nest, numbers.into_iter().collect());
                if rows > 0 && !runs_by_rows(launch.kernel(), rows) {
                    return None;
                }
                launch.plan(&views(&operands), &views_mut(&places)).ok()?;
                Kernel::Nest(Box::new(launch))
            }
        };
        Some(PreparedCall { op: op?, kernel, operands, results: places, own_strides: true })
    }
}

/// Whether the executor runs all stages row by row, and threads have enough rows.
fn runs_by_rows(kernel: &LoopKernel, rows: usize) -> bool {
    let (nest, outer) = (kernel.nest(), kernel.outer_axes());
    let points = |axes: &[AxisId]| {
        let extents = axes.iter().map(|axis| nest.extent(*axis).as_i64().unwrap_or(i64::MAX));
        extents.fold(1i64, i64::saturating_mul)
    };
    let all = nest.stages().iter().map(|stage| points(&stage.over)).max().unwrap_or(0);
    let count = points(outer);
    outer.len() >= rows && (count >= FEW_ROWS || all / count.max(1) <= LONG_ROW)
}
