//! Dtype promotion.

use crate::{DType, Scalar};

/// What an operand of a promoting operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandKind {
    /// A tensor of at least one dimension.
    Tensor,
    /// A tensor of no dimensions. It does not raise the dtype within the category of a
    /// [`OperandKind::Tensor`].
    ZeroDim,
    /// A number. It does not raise the dtype within the category of a tensor.
    Scalar,
}

/// The dtype and kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The dtype; of a floating-point number, any float stands for the default one.
    pub dtype: DType,
    /// Tensor or number.
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

/// The dtype in which an operator on `operands` computes: PyTorch's `result_type`, with default
/// float f32, which is also the result for no operands.
///
/// Operands of one kind promote among themselves; then tensors give way to 0-d tensors, and those
/// to numbers, only if the latter's category is higher.
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

/// `first`, unless `second` is of a higher category.
fn prefer(first: Option<DType>, second: Option<DType>) -> Option<DType> {
    match (first, second) {
        (Some(a), Some(b)) if a.category() < b.category() => Some(promote_pair(a, b)),
        (a, b) => a.or(b),
    }
}

/// The smallest dtype that both convert to: the higher category wins; `u8` with a signed integer is
/// at least `i16`; `f16` with `bf16` is `f32`.
pub fn promote_pair(a: DType, b: DType) -> DType {
    let (low, high) =
        if (a.category(), a.size(), a) <= (b.category(), b.size(), b) { (a, b) } else { (b, a) };
    match (low, high) {
        (DType::U8, DType::I8) => DType::I16,
        (DType::F16, DType::BF16) => DType::F32,
        (_, high) => high,
    }
}

/// A result of dtype `from` may be stored into a tensor of dtype `to`: its category may not fall.
/// (Values may still be rounded.)
pub fn can_cast(from: DType, to: DType) -> bool {
    from.category() <= to.category()
}
