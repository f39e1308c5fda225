//! Pointwise operators: a scalar expression each.

use super::lower::{Lowering, Pointwise, PointwiseCx, Types};
use super::table;
use crate::error::{Error, Result};
use maquette_ir::scalar_expr::{BinaryOp, Reg, UnaryOp};

const fn pointwise(types: Types, build: fn(&mut PointwiseCx) -> Result<Reg>) -> Lowering {
    Lowering::Pointwise(Pointwise { types, build })
}

impl PointwiseCx<'_> {
    fn unary(&mut self, op: UnaryOp, a: Reg) -> Result<Reg> {
        self.b.unary(op, a).map_err(Error::other)
    }

    fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg> {
        self.b.binary(op, a, b).map_err(Error::other)
    }

    /// `arg(1)`, scaled by the argument `alpha` unless that is 1.
    fn scaled_other(&mut self, alpha: usize) -> Result<Reg> {
        let (other, alpha) = (self.arg(1)?, self.scalar(alpha)?);
        if alpha.to_f64() == 1.0 {
            return Ok(other);
        }
        let alpha = self.constant(alpha);
        self.binary(BinaryOp::Mul, other, alpha)
    }
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::relu(Tensor self) -> Tensor" => pointwise(Types::Promote, |cx| {
            let (x, zero) = (cx.arg(0)?, cx.constant(0));
            cx.binary(BinaryOp::Max, x, zero)
        }),
        "aten::sin(Tensor self) -> Tensor" => pointwise(Types::Float, |cx| { let x = cx.arg(0)?; cx.unary(UnaryOp::Sin, x) }),
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" => pointwise(Types::Promote, |cx| {
            let (x, y) = (cx.arg(0)?, cx.scaled_other(2)?);
            cx.binary(BinaryOp::Add, x, y)
        }),
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)" => Lowering::InPlace("aten::add.Tensor"),
        "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor" => pointwise(Types::Promote, |cx| {
            let (x, y) = (cx.arg(0)?, cx.arg(1)?);
            cx.binary(BinaryOp::Mul, x, y)
        }),
        "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => Lowering::InPlace("aten::mul.Tensor"),
    }
}
