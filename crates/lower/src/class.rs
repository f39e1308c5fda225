//! Which builtin operators can be computed together with others: a question of their loop nests.

use maquette_ir::DType;
use maquette_ir::fused::{Fusible, FusionClass, Gain, NoFusionReason};
use maquette_ir::loops::{
    Index, Load, LoopNest, Source, Stage, StageKind, StageOutput, outer_axes,
};
use maquette_ir::scalar_expr::Op as ScalarOp;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{LoweredBody, LoweredCall, LoweredNest, Tensor, Value};
use smallvec::SmallVec;

/// How a call can be fused.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn class_of(call: &LoweredCall) -> Result<Fusible, NoFusionReason> {
    let LoweredCall { args, body, results } = call;
    let nest = match body {
        LoweredBody::Elements { expr, .. } if expr.may_fail() => return by_elements(results),
        LoweredBody::Elements { .. } => return Ok(FusionClass::Elements.into()),
        LoweredBody::Nest(nest) if nest.writes_view() => return Err(NoFusionReason::NotAffine),
        LoweredBody::Nest(nest) => nest,
    };
    if nest.nest().may_fail() {
        return class_of_reads(nest.nest());
    }
    let is_argument =
        |t: &Tensor| args.iter().flat_map(Value::tensors).any(|arg| arg.is_same_handle(t));
    match class_of_nest(nest.nest(), results)? {
        FusionClass::Elements if !nest.operands().iter().all(is_argument) => {
            Err(NoFusionReason::NotAffine)
        }
        FusionClass::Product { .. } => {
            Ok(FusionClass::Product { left: left_factor(nest, args) }.into())
        }
        class => Ok(class.into()),
    }
}

/// The class of an elementwise operator that may fail: each element is a row, so that its kernel is
/// a nest, which is not written over an operand.
fn by_elements(results: &[Tensor]) -> Result<Fusible, NoFusionReason> {
    match results.first().map_or(0, Tensor::dim) {
        0 => Err(NoFusionReason::Assert),
        outer => {
            let class = FusionClass::Rows { outer };
            Ok(Fusible { class, may_fail: true, gain: Gain::WithFold })
        }
    }
}

/// The class of a nest that may fail: one of a map that reads its operands at computed positions.
/// The rows are the leading dimensions in which all operands are read at the coordinates of the
/// result: those of the indices, for an embedding.
fn class_of_reads(nest: &LoopNest) -> Result<Fusible, NoFusionReason> {
    let ([map], [_], true) = (nest.stages(), nest.results(), nest.messages().is_empty()) else {
        return Err(NoFusionReason::Assert);
    };
    let rows = (1..=map.axes().len()).rev().find(|outer| is_by_rows(nest, *outer));
    match (&map.kind, rows) {
        (StageKind::Map, Some(outer)) => {
            let class = FusionClass::Rows { outer };
            Ok(Fusible { class, may_fail: true, gain: gain_of_reads(map) })
        }
        _ => Err(NoFusionReason::Assert),
    }
}

/// With what a map that reads at computed positions is faster than alone. If the positions are
/// those of a row, it copies rows, and what follows computes longer blocks than a row. Elements
/// that have to be converted to compute with them are copied much faster than that.
fn gain_of_reads(map: &Stage) -> Gain {
    use DType::{Bool, F32, F64, I64};
    let is_copied_only = |dtype| !matches!(dtype, F32 | F64 | I64 | Bool);
    if map.expr.output_dtypes().any(is_copied_only) {
        return Gain::Never;
    }
    let is_last = |index: &Index| match (index, map.axes().last()) {
        (Index::Affine(affine), Some(last)) => affine.terms.iter().any(|(axis, _)| axis == last),
        _ => false,
    };
    let is_plain = |load: &&Load| load.at.indices().iter().all(|i| *i != Index::Computed);
    let mut positions = map.loads.iter().filter(is_plain);
    match positions.any(|load| load.at.indices().iter().any(is_last)) {
        true => Gain::Always,
        false => Gain::WithFold,
    }
}

fn class_of_nest(nest: &LoopNest, results: &[Tensor]) -> Result<FusionClass, NoFusionReason> {
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
        (0, 0) => return class_of_maps(nest, results),
        (_, 0) => {}
        (0, 1) if is_plain_product(nest) => return Ok(FusionClass::Product { left: None }),
        (0, 1) if is_plain_convolution(nest) => return Ok(FusionClass::Convolution),
        _ => return Err(NoFusionReason::LosesSpecialisation),
    }
    let outer = outer_axes(nest, 0..nest.stages().len());
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

/// The class of a nest of maps. Other results than the first have no elements.
fn class_of_maps(nest: &LoopNest, results: &[Tensor]) -> Result<FusionClass, NoFusionReason> {
    let is_empty = |t: &Tensor| t.numel().as_i64() == Some(0);
    let (Some(first), Some((_, others))) = (nest.results().first(), results.split_first()) else {
        return Err(NoFusionReason::NotAffine);
    };
    let axes = nest.stage(first.stage).map(|stage| stage.axes()).unwrap_or_default();
    let position: SmallVec<[Index; 4]> = axes.iter().map(|axis| Index::from(*axis)).collect();
    let is_in_place = |load: &Load| *load.at.indices() == position[..];
    match nest.stages() {
        [map] if map.expr.is_pure() && map.loads.iter().all(is_in_place) && others.is_empty() => {
            Ok(FusionClass::Elements)
        }
        // A batch norm with given statistics.
        stages if stages.len() > 1 && others.iter().all(is_empty) => Ok(FusionClass::Maps),
        _ => Err(NoFusionReason::NotAffine),
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

/// Which of the tensors among arguments the left factor of a product of floats is, or is a view of.
/// Integers have a kernel for one product.
fn left_factor(nest: &LoweredNest, args: &[Value]) -> Option<usize> {
    let product = nest.nest().stages().first()?;
    if !product.expr.output_dtypes().all(|dtype| matches!(dtype, DType::F32 | DType::F64)) {
        return None;
    }
    let left = product.expr.only_output(0)?;
    let load = left.instrs().iter().find_map(|instr| match instr.op {
        ScalarOp::Input(k) => product.loads.get(k as usize),
        _ => None,
    });
    let Source::Operand(operand) = load?.from else { return None };
    let factor = nest.operands().get(operand.index())?;
    args.iter().flat_map(Value::tensors).position(|arg| arg.has_storage_of(factor))
}

/// Whether a nest is a convolution of floats along one or two dimensions, without groups or by
/// single channels, and maps of its elements.
fn is_plain_convolution(nest: &LoopNest) -> bool {
    let Some((product, maps)) = nest.stages().split_first() else { return false };
    let StageKind::Contract { along } = &product.kind else { return false };
    let is_float = |d: DType| matches!(d, DType::F32 | DType::F64);
    let reads = product.expr.instrs().iter().filter(|i| matches!(i.op, ScalarOp::Read(_))).count();
    let axes = product.axes();
    let spatial = axes.len().saturating_sub(2);
    reads == 1
        && matches!(spatial, 1 | 2)
        && (along.len() == spatial || along.len() == spatial + 1)
        && product.expr.output_dtypes().all(is_float)
        && product.expr.instrs().iter().all(|i| !matches!(i.op, ScalarOp::Cast(_)))
        && maps.iter().all(|stage| stage.kind == StageKind::Map && stage.over == axes)
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
