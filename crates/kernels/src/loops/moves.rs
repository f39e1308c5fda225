//! Stages that only move elements of half precision. They run on the bits, since the conversion to
//! `f32` in which half precision is computed changes those of a NaN.

use crate::element::from_scalar;
use half::{bf16, f16};
use maquette_ir::loops::{LaunchScalar, LoopNest, Stage, StageKind};
use maquette_ir::scalar_expr::{Op, ScalarExpr};
use maquette_ir::{DType, Scalar};

/// The expressions on bits, by stages. A number that a launch gives in half precision is taken as
/// bits by all stages or by none, so that only a nest of one stage may take it.
pub(super) fn exprs(nest: &LoopNest) -> Vec<Option<ScalarExpr>> {
    let is_half = |d: DType| matches!(d, DType::F16 | DType::BF16);
    let takes_half = |stage: &Stage| {
        let mut instrs = stage.expr.instrs().iter();
        instrs.any(|i| matches!(i.op, Op::Launch(_)) && is_half(i.dtype))
    };
    let is_one = nest.stages().len() == 1;
    let moving = |stage: &Stage| match stage.kind {
        StageKind::Map if is_one || !takes_half(stage) => stage.expr.moving_bits(),
        _ => None,
    };
    nest.stages().iter().map(moving).collect()
}

/// Whether the stages take the numbers of a launch as bits.
pub(super) fn takes_bits(exprs: &[Option<ScalarExpr>]) -> bool {
    matches!(exprs, [Some(_)])
}

/// A number of a launch as an expression on bits takes it.
pub(super) fn number(scalar: LaunchScalar, value: Scalar) -> Scalar {
    let bits = match scalar.dtype() {
        DType::F16 => from_scalar::<f16>(value).to_bits(),
        DType::BF16 => from_scalar::<bf16>(value).to_bits(),
        _ => return value,
    };
    Scalar::Int(i64::from(bits as i16))
}
