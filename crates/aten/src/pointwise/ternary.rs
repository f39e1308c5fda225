//! Pointwise operators of up to three operands: `where`, `clamp`, `lerp`, `addcmul`, `addcdiv`.

use super::{pointwise, with_in_place};
use maquette_ir::DType;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::pointwise::formula::{Formula, X};

fn clamped<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.refuse(!f.has(1) && !f.has(2), "at least one of `min` and `max` must be given");
    f.refuse(f.dtype == DType::Bool, "`clamp` does not support bool");
    let x = f.arg(0);
    let x = if f.has(1) { f.at_least(x, 1) } else { x };
    if f.has(2) { f.at_most(x, 2) } else { x }
}

/// Linear interpolation from the nearer end, so that both ends are exact.
fn blended<'c>(f: &'c Formula<'c>, weight: X<'c>) -> X<'c> {
    f.refuse(!f.dtype.is_float(), "`lerp` takes floats");
    let (a, b) = (f.arg(0), f.arg(1));
    let d = b - a;
    weight.abs().lt(0.5).select(a + weight * d, b - d * (f.c(1) - weight))
}

fn quotient_added<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.refuse(
        !f.dtype.is_float(),
        "`addcdiv` takes floats; for integers, write the division with an explicit rounding mode",
    );
    f.arg(0) + f.number(3) * (f.arg(1) / f.arg(2))
}

/// As in PyTorch, a condition may have dtype u8.
fn chosen<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.mask(0, Some(DType::U8)).select(f.arg(1), f.arg(2))
}

with_in_place! {
    /// Operators of up to three operands, with broadcasting.
    static TABLE = {
        "clamp" "" ", Scalar? min=None, Scalar? max=None" => {
            role: General,
            types: Promote,
            formula: |f| clamped(f),
            vjp: crate::grad::CLAMP,
        },
        "clamp" ".Tensor" ", Tensor? min=None, Tensor? max=None" => {
            role: General,
            types: Promote,
            formula: |f| clamped(f),
            vjp: crate::grad::CLAMP_TENSOR,
        },
        "clip" "" ", Scalar? min=None, Scalar? max=None" => {
            role: General,
            types: Promote,
            formula: |f| clamped(f),
            vjp: crate::grad::CLAMP,
        },
        "clip" ".Tensor" ", Tensor? min=None, Tensor? max=None" => {
            role: General,
            types: Promote,
            formula: |f| clamped(f),
            vjp: crate::grad::CLAMP_TENSOR,
        },
        "clamp_min" "" ", Scalar min" => {
            role: General,
            types: Promote,
            formula: |f| f.at_least(f.arg(0), 1),
            vjp: crate::grad::CLAMP_MIN,
        },
        "clamp_min" ".Tensor" ", Tensor min" => {
            role: General,
            types: Promote,
            formula: |f| f.at_least(f.arg(0), 1),
            vjp: crate::grad::CLAMP_MIN_TENSOR,
        },
        "clamp_max" "" ", Scalar max" => {
            role: General,
            types: Promote,
            formula: |f| f.at_most(f.arg(0), 1),
            vjp: crate::grad::CLAMP_MAX,
        },
        "clamp_max" ".Tensor" ", Tensor max" => {
            role: General,
            types: Promote,
            formula: |f| f.at_most(f.arg(0), 1),
            vjp: crate::grad::CLAMP_MAX_TENSOR,
        },
        "masked_fill" ".Scalar" ", Tensor mask, Scalar value" => {
            role: General,
            types: Masked,
            formula: |f| f.mask(1, None).select(f.number(2), f.arg(0)),
            vjp: crate::grad::MASKED_FILL,
        },
        "masked_fill" ".Tensor" ", Tensor mask, Tensor value" => {
            role: General,
            types: Masked,
            formula: |f| f.mask(1, None).select(f.element(2), f.arg(0)),
            vjp: crate::grad::MASKED_FILL,
        },
        "lerp" ".Scalar" ", Tensor end, Scalar weight" => {
            role: General,
            types: Promote,
            formula: |f| blended(f, f.number(2)),
        },
        "lerp" ".Tensor" ", Tensor end, Tensor weight" => {
            role: General,
            types: Promote,
            formula: |f| blended(f, f.arg(2)),
        },
        "addcmul" "" ", Tensor tensor1, Tensor tensor2, *, Scalar value=1" => {
            role: General,
            types: Promote,
            formula: |f| f.arg(0) + f.number(3) * f.arg(1) * f.arg(2),
        },
        "addcdiv" "" ", Tensor tensor1, Tensor tensor2, *, Scalar value=1" => {
            role: General,
            types: Promote,
            formula: |f| quotient_added(f),
        },
        ;
        "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Select, |f| chosen(f)),
            vjp: crate::grad::WHERE,
        },
        "aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Select, |f| chosen(f)),
            vjp: crate::grad::WHERE,
        },
        "aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Select, |f| chosen(f)),
            vjp: crate::grad::WHERE,
        },
        "aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor" => {
            role: General,
            lowering: pointwise!(Select, |f| chosen(f)),
            vjp: Derivative::None("both choices are numbers"),
        },
    }
}
