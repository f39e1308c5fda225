//! Reads and writes at computed positions.

use super::{Generator, expression};
use maquette_ir::DType;
use maquette_ir::loops::{
    AxisId, Combine, Index, IndexMap, LoopError, Source, StageBuilder, StageId, StageKind,
};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, CmpOp, Reg, UnaryOp};
use maquette_ir::sym::Expr;

impl Generator {
    /// A read at a computed position, with some bounds policy.
    #[allow(clippy::type_complexity, reason = "a closure of one use")]
    pub(super) fn gather(
        &mut self,
        over: &[AxisId],
        dtype: DType,
    ) -> Option<Box<dyn FnOnce(&mut StageBuilder<'_>) -> Result<Reg, LoopError>>> {
        if !self.random.chance(2) {
            return None;
        }
        let size = 12 + self.random.below(12) as i64;
        let table = self.new_operand(dtype, &[size, 2]);
        let (at, map) = self.operand(DType::I64, over);
        let policy = self.random.below(5);
        self.used.push(["wraps", "fails", "clamps", "else", "inside"][policy]);
        let padding = self.scalar(dtype);
        let modulus = size + 2 * i64::from(self.random.chance(6));
        let when = self.random.chance(3);
        Some(Box::new(move |s| {
            let mut position = s.load(at, map)?;
            // most positions are inside
            if matches!(policy, 0 | 1 | 4) {
                let modulus = s.expr.constant(modulus, DType::I64);
                position = s.expr.binary(BinaryOp::Fmod, position, modulus)?;
                if policy != 0 {
                    position = s.expr.unary(UnaryOp::Abs, position)?;
                }
            }
            let padding = s.expr.constant(padding, dtype);
            let bounds = [
                Bounds::Wraps,
                Bounds::Fails,
                Bounds::Clamps,
                Bounds::Else(padding),
                Bounds::Inside,
            ][policy];
            let zero = s.expr.constant(0, DType::I64);
            let odd = s.expr.compare(CmpOp::Ge, position, zero)?;
            let map: IndexMap = [Index::Computed, Index::from(Expr::Int(1))].into_iter().collect();
            s.read(table, map, &[position], bounds, when.then_some(odd))
        }))
    }

    pub(super) fn scatter(
        &mut self,
        over: &[AxisId],
        dtype: DType,
        loads: &[(Source, IndexMap)],
    ) -> Result<StageId, LoopError> {
        let size = 5 + self.random.below(30) as i64;
        let into = self.new_operand(dtype, &[size]);
        let (at, map) = self.operand(DType::I64, over);
        let combine = match self.random.below(3) {
            0 => Combine::Op(BinaryOp::Max),
            1 => Combine::Op(BinaryOp::Add),
            _ => Combine::Replace,
        };
        self.used.push("scatter");
        let seed = self.random.clone();
        let fails = self.random.chance(6);
        self.nest.stage(over, StageKind::Scatter { into, combine }, |s| {
            let x = expression(s, seed, dtype, loads, over)?;
            let mut position = s.load(at, map)?;
            let size = s.expr.constant(if fails { size + 1 } else { size }, DType::I64);
            position = s.expr.binary(BinaryOp::Remainder, position, size)?;
            Ok(vec![x, position])
        })
    }
}
