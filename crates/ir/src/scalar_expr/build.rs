//! The builder, which is also the type checker.

use super::{BinaryOp, CmpOp, Instr, Op, Reg, ScalarExpr, UnaryOp, cast_scalar};
use crate::{DType, Scalar};

/// Why an instruction was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The register is not of this builder.
    #[error("register {reg} is not defined; this expression has {len} registers")]
    UnknownReg {
        /// The register.
        reg: Reg,
        /// How many there are.
        len: usize,
    },
    /// The operation takes other dtypes.
    #[error("`{op}` takes {expected}, found {found}")]
    DType {
        /// The operation.
        op: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What it was given.
        found: DType,
    },
    /// Two operands that must agree do not.
    #[error("`{op}` takes two operands of one dtype, found {left} and {right}; insert a cast")]
    Mismatch {
        /// The operation.
        op: &'static str,
        /// The first operand.
        left: DType,
        /// The second operand.
        right: DType,
    },
}

/// Which dtypes an operation takes.
#[derive(Clone, Copy)]
enum Takes {
    Any,
    Numbers,
    Floats,
    Bits,
    Ints,
}

impl Takes {
    fn check(self, op: &'static str, found: DType) -> Result<(), BuildError> {
        let (ok, expected) = match self {
            Takes::Any => (true, "any dtype"),
            Takes::Numbers => (found != DType::Bool, "numbers"),
            Takes::Floats => (found.is_float(), "floats"),
            Takes::Bits => (!found.is_float(), "integers and bool"),
            Takes::Ints => (found.is_int(), "integers"),
        };
        if ok { Ok(()) } else { Err(BuildError::DType { op, expected, found }) }
    }
}

/// Builds a [`ScalarExpr`], an instruction at a time. It inserts nothing by itself.
#[derive(Clone, Debug, Default)]
pub struct ExprBuilder {
    inputs: Vec<DType>,
    instrs: Vec<Instr>,
}

impl ExprBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, op: Op, dtype: DType) -> Reg {
        self.instrs.push(Instr { op, dtype });
        Reg(u32::try_from(self.instrs.len() - 1).unwrap_or(u32::MAX))
    }

    /// The dtype of a register.
    pub fn dtype(&self, reg: Reg) -> Result<DType, BuildError> {
        self.instrs
            .get(reg.index())
            .map(|i| i.dtype)
            .ok_or(BuildError::UnknownReg { reg, len: self.instrs.len() })
    }

    /// The next input.
    pub fn input(&mut self, dtype: DType) -> Reg {
        self.inputs.push(dtype);
        self.push(Op::Input(u32::try_from(self.inputs.len() - 1).unwrap_or(u32::MAX)), dtype)
    }

    /// A constant, converted to `dtype` as a cast would.
    pub fn constant(&mut self, value: impl Into<Scalar>, dtype: DType) -> Reg {
        self.push(Op::Const(cast_scalar(value.into(), dtype)), dtype)
    }

    /// A unary operation.
    pub fn unary(&mut self, op: UnaryOp, a: Reg) -> Result<Reg, BuildError> {
        use UnaryOp::*;
        let d = self.dtype(a)?;
        let takes = match op {
            Neg | Abs | Sign => Takes::Numbers,
            Not => Takes::Bits,
            _ => Takes::Floats,
        };
        takes.check(op.name(), d)?;
        let result = if matches!(op, IsNan | IsInf) { DType::Bool } else { d };
        Ok(self.push(Op::Unary(op, a), result))
    }

    fn same(&self, op: &'static str, a: Reg, b: Reg) -> Result<DType, BuildError> {
        let (left, right) = (self.dtype(a)?, self.dtype(b)?);
        if left == right { Ok(left) } else { Err(BuildError::Mismatch { op, left, right }) }
    }

    /// A binary operation.
    pub fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        use BinaryOp::*;
        let d = self.same(op.name(), a, b)?;
        let takes = match op {
            Sub | FloorDiv | TruncDiv | Fmod | Remainder | Pow => Takes::Numbers,
            Add | Mul | Min | Max => Takes::Any,
            Div | Atan2 | Hypot | Copysign => Takes::Floats,
            And | Or | Xor => Takes::Bits,
            Shl | Shr => Takes::Ints,
        };
        takes.check(op.name(), d)?;
        Ok(self.push(Op::Binary(op, a, b), d))
    }

    /// A comparison.
    pub fn compare(&mut self, op: CmpOp, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        self.same(op.name(), a, b)?;
        Ok(self.push(Op::Compare(op, a, b), DType::Bool))
    }

    /// `if cond { a } else { b }`.
    pub fn select(&mut self, cond: Reg, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        let found = self.dtype(cond)?;
        if found != DType::Bool {
            return Err(BuildError::DType { op: "select", expected: "a bool condition", found });
        }
        let d = self.same("select", a, b)?;
        Ok(self.push(Op::Select(cond, a, b), d))
    }

    /// Converts to `dtype`; the register itself if it already is.
    pub fn cast(&mut self, a: Reg, dtype: DType) -> Result<Reg, BuildError> {
        if self.dtype(a)? == dtype { Ok(a) } else { Ok(self.push(Op::Cast(a), dtype)) }
    }

    /// Appends another expression with `args` for its inputs; gives its outputs.
    pub fn inline(&mut self, expr: &ScalarExpr, args: &[Reg]) -> Result<Vec<Reg>, BuildError> {
        let mut map: Vec<Reg> = Vec::with_capacity(expr.instrs().len());
        let at = |map: &[Reg], r: Reg| {
            map.get(r.index()).copied().ok_or(BuildError::UnknownReg { reg: r, len: map.len() })
        };
        for instr in expr.instrs() {
            let op = match instr.op {
                Op::Input(k) => {
                    let arg = args
                        .get(k as usize)
                        .copied()
                        .ok_or(BuildError::UnknownReg { reg: Reg(k), len: args.len() })?;
                    let (left, right) = (self.dtype(arg)?, instr.dtype);
                    if left != right {
                        return Err(BuildError::Mismatch { op: "inline", left, right });
                    }
                    map.push(arg);
                    continue;
                }
                Op::Const(c) => Op::Const(c),
                Op::Unary(o, a) => Op::Unary(o, at(&map, a)?),
                Op::Binary(o, a, b) => Op::Binary(o, at(&map, a)?, at(&map, b)?),
                Op::Compare(o, a, b) => Op::Compare(o, at(&map, a)?, at(&map, b)?),
                Op::Select(c, a, b) => Op::Select(at(&map, c)?, at(&map, a)?, at(&map, b)?),
                Op::Cast(a) => Op::Cast(at(&map, a)?),
            };
            let r = self.push(op, instr.dtype);
            map.push(r);
        }
        expr.outputs().iter().map(|r| at(&map, *r)).collect()
    }

    /// The finished expression.
    pub fn finish(self, outputs: &[Reg]) -> Result<ScalarExpr, BuildError> {
        for r in outputs {
            self.dtype(*r)?;
        }
        Ok(ScalarExpr { inputs: self.inputs, instrs: self.instrs, outputs: outputs.to_vec() })
    }
}
