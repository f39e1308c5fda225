//! Dtype promotion: PyTorch's `result_type`.

use crate::{DType, Scalar};

/// The priority class of an operand in promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandKind {
    /// A tensor of at least one dimension.
    Tensor,
    /// A tensor without dimensions. It does not raise the dtype within the category of a
    /// [`OperandKind::Tensor`].
    ZeroDim,
    /// A number. It does not raise the dtype within the category of a tensor.
    Scalar,
}

/// The dtype and kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The dtype. For a floating-point number, any float dtype represents the default one.
    pub dtype: DType,
    /// The priority class.
    pub kind: OperandKind,
}

impl Operand {
    /// A tensor of `dim` dimensions.
    pub const fn tensor(dtype: DType, dim: usize) -> Operand {
        Operand { dtype, kind: if dim == 0 { OperandKind::ZeroDim } else { OperandKind::Tensor } }
    }

    /// A number.
    pub const fn scalar(value: Scalar) -> Operand {
        Operand { dtype: value.dtype(), kind: OperandKind::Scalar }
    }
}

/// The dtype in which an operator on `operands` computes: PyTorch's `result_type` with default
/// float dtype `f32`, which is also the result for no operands.
///
/// Operands of one kind promote among themselves. The result is the dtype of the tensors, unless
/// the 0-d tensors have a higher category; likewise for 0-d tensors and numbers.
pub fn promote(operands: impl IntoIterator<Item = Operand>) -> DType {
    let (mut tensors, mut zero_dim, mut scalars) = (None, None, None);
    for Operand { dtype, kind } in operands {
        let (slot, dtype) = match kind {
            OperandKind::Tensor => (&mut tensors, dtype),
            OperandKind::ZeroDim => (&mut zero_dim, dtype),
            OperandKind::Scalar if dtype.is_float() => (&mut scalars, DType::F32),
            OperandKind::Scalar => (&mut scalars, dtype),
        };
        *slot = Some(slot.map_or(dtype, |before| promote_pair(before, dtype)));
    }
    prefer(tensors, prefer(zero_dim, scalars)).unwrap_or(DType::F32)
}

/// `first`, unless `second` has a higher category.
fn prefer(first: Option<DType>, second: Option<DType>) -> Option<DType> {
    match (first, second) {
        (Some(a), Some(b)) if a.category() < b.category() => Some(promote_pair(a, b)),
        (a, b) => a.or(b),
    }
}

/// The smallest dtype to which both convert (`torch.promote_types`): the higher category wins, `u8`
/// with a signed integer gives at least `i16`, and `f16` with `bf16` gives `f32`.
pub fn promote_pair(a: DType, b: DType) -> DType {
    let (low, high) =
        if (a.category(), a.size(), a) <= (b.category(), b.size(), b) { (a, b) } else { (b, a) };
    match (low, high) {
        (DType::U8, DType::I8) => DType::I16,
        (DType::F16, DType::BF16) => DType::F32,
        (_, high) => high,
    }
}

/// Whether a result of dtype `from` may be stored into a tensor of dtype `to` (`torch.can_cast`):
/// the category must not decrease. Values may still be rounded.
pub fn can_cast(from: DType, to: DType) -> bool {
    from.category() <= to.category()
}
