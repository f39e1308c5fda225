//! Expressions that move elements of half precision without computing with them.

use super::{Instr, Op, ScalarExpr};
use crate::{DType, Scalar};
use half::{bf16, f16};

const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// A constant of a half-precision dtype as its bits.
fn bits(dtype: DType, value: Scalar) -> Scalar {
    let bits = match dtype {
        DType::F16 => f16::from_f64(value.to_f64()).to_bits(),
        _ => bf16::from_f64(value.to_f64()).to_bits(),
    };
    Scalar::Int(i64::from(bits as i16))
}

impl ScalarExpr {
    /// The expression in which elements of half precision are `i16`s of the same bits, if it only
    /// moves them: by inputs, reads and selections. `None` if it computes with such an element, or
    /// has none. Launch scalars of half precision are then the bits of the number, too.
    ///
    /// Half precision is computed in `f32`, and that conversion changes the bits of a NaN. A move
    /// keeps them.
    pub fn moving_bits(&self) -> Option<ScalarExpr> {
        let half = |r: super::Reg| is_half(self.dtype(r));
        let only_moves = |i: &Instr| match i.op {
            Op::Input(_) | Op::Const(_) | Op::Launch(_) | Op::Read(_) | Op::Select(..) => true,
            op => !is_half(i.dtype) && !op.operands().any(half),
        };
        let has_half = self.instrs.iter().any(|i| is_half(i.dtype));
        if !has_half || !self.instrs.iter().all(only_moves) {
            return None;
        }
        let integer = |dtype: DType| if is_half(dtype) { DType::I16 } else { dtype };
        let instr = |i: &Instr| {
            let op = match i.op {
                Op::Const(value) if is_half(i.dtype) => Op::Const(bits(i.dtype, value)),
                op => op,
            };
            Instr { op, dtype: integer(i.dtype) }
        };
        Some(ScalarExpr {
            inputs: self.inputs.iter().map(|d| integer(*d)).collect(),
            instrs: self.instrs.iter().map(instr).collect(),
            outputs: self.outputs.clone(),
        })
    }
}
