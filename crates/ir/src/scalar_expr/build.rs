//! The builder of scalar expressions. It type-checks each instruction, so a finished [`ScalarExpr`]
//! is well typed.

use super::read::{Bounds, Positions, Read};
use super::{BinaryOp, CmpOp, Instr, Op, Reg, ScalarExpr, UnaryOp, cast_scalar};
use crate::{DType, Scalar};

/// The error of an instruction that is not well typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The register is not defined in this builder.
    #[error("register {reg} is not defined; this expression has {len} registers")]
    UnknownReg {
        /// The register.
        reg: Reg,
        /// The number of defined registers.
        len: usize,
    },
    /// The operation does not accept the operand's dtype.
    #[error("`{op}` takes {expected}, found {found}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The accepted dtypes.
        expected: &'static str,
        /// The operand's dtype.
        found: DType,
    },
    /// The operands must have one dtype and do not.
    #[error("`{op}` takes two operands of the same dtype, found {left} and {right}; insert a cast")]
    Mismatch {
        /// The operation.
        op: &'static str,
        /// The first operand.
        left: DType,
        /// The second operand.
        right: DType,
    },
    /// A read has more computed positions than [`Positions::MAX`].
    #[error("a read has at most {} computed positions, found {found}", Positions::MAX)]
    Positions {
        /// The number of positions.
        found: usize,
    },
    /// An expression that is not pure cannot be part of another.
    #[error("`{op}` belongs to the loop nest of its expression, which cannot be inlined")]
    NotPure {
        /// The operation.
        op: &'static str,
    },
}

/// The dtypes that an operation accepts.
#[derive(Clone, Copy)]
enum Accepts {
    Any,
    Numbers,
    Floats,
    Bits,
    Ints,
}

impl Accepts {
    fn check(self, op: &'static str, found: DType) -> Result<(), BuildError> {
        let (ok, expected) = match self {
            Accepts::Any => (true, "any dtype"),
            Accepts::Numbers => (found != DType::Bool, "numbers"),
            Accepts::Floats => (found.is_float(), "floats"),
            Accepts::Bits => (!found.is_float(), "integers and bool"),
            Accepts::Ints => (found.is_int(), "integers"),
        };
        if ok { Ok(()) } else { Err(BuildError::DType { op, expected, found }) }
    }
}

/// Builds a [`ScalarExpr`], one instruction at a time. It inserts no implicit conversions.
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

    /// Adds an instruction that is right by construction.
    pub(crate) fn instr(&mut self, op: Op, dtype: DType) -> Reg {
        self.push(op, dtype)
    }

    /// The instruction with an index that a register has.
    pub(super) fn instruction(&self, index: usize) -> Instr {
        self.instrs[index]
    }

    /// The dtype of a register.
    pub fn dtype(&self, reg: Reg) -> Result<DType, BuildError> {
        self.instrs
            .get(reg.index())
            .map(|i| i.dtype)
            .ok_or(BuildError::UnknownReg { reg, len: self.instrs.len() })
    }

    /// Adds an input.
    pub fn input(&mut self, dtype: DType) -> Reg {
        self.inputs.push(dtype);
        self.push(Op::Input(u32::try_from(self.inputs.len() - 1).unwrap_or(u32::MAX)), dtype)
    }

    /// Adds an input that only [`ExprBuilder::read`] reads, and returns its index.
    pub fn source(&mut self, dtype: DType) -> u32 {
        self.inputs.push(dtype);
        u32::try_from(self.inputs.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds the coordinate along an axis of the loop nest, an `i64`.
    pub fn coord(&mut self, axis: u32) -> Reg {
        self.push(Op::Coord(axis), DType::I64)
    }

    /// Adds a launch scalar of the loop nest.
    pub fn launch(&mut self, scalar: u32, dtype: DType) -> Reg {
        self.push(Op::Launch(scalar), dtype)
    }

    /// Adds the element of an input at computed positions.
    ///
    /// # Errors
    /// The input does not exist; there are more positions than [`Positions::MAX`]; a position is
    /// not `i64`, the condition not bool, or the padding of another dtype than the input.
    pub fn read(
        &mut self,
        input: u32,
        at: &[Reg],
        bounds: Bounds,
        when: Option<Reg>,
    ) -> Result<Reg, BuildError> {
        let unknown = BuildError::UnknownReg { reg: Reg(input), len: self.inputs.len() };
        let dtype = *self.inputs.get(input as usize).ok_or(unknown)?;
        let of_dtype = |r: Reg, expected: DType, text: &'static str| match self.dtype(r)? {
            found if found == expected => Ok(()),
            found => Err(BuildError::DType { op: "read", expected: text, found }),
        };
        at.iter().try_for_each(|&r| of_dtype(r, DType::I64, "i64 positions"))?;
        when.map_or(Ok(()), |r| of_dtype(r, DType::Bool, "a bool condition"))?;
        if let Bounds::Else(r) = bounds {
            let right = self.dtype(r)?;
            if right != dtype {
                return Err(BuildError::Mismatch { op: "read", left: dtype, right });
            }
        }
        let at = Positions::new(at).ok_or(BuildError::Positions { found: at.len() })?;
        Ok(self.push(Op::Read(Read { input, at, bounds, when }), dtype))
    }

    /// Adds the assertion that a bool holds; `message` is the index of its message.
    ///
    /// # Errors
    /// The operand is not bool.
    pub fn assert(&mut self, holds: Reg, message: u32) -> Result<Reg, BuildError> {
        match self.dtype(holds)? {
            DType::Bool => Ok(self.push(Op::Assert(holds, message), DType::Bool)),
            found => Err(BuildError::DType { op: "assert", expected: "a bool", found }),
        }
    }

    /// Adds a constant, converted to `dtype` by the rules of a cast.
    pub fn constant(&mut self, value: impl Into<Scalar>, dtype: DType) -> Reg {
        self.push(Op::Const(cast_scalar(value.into(), dtype)), dtype)
    }

    /// Adds a unary operation.
    ///
    /// # Errors
    /// The operation does not accept the operand's dtype.
    pub fn unary(&mut self, op: UnaryOp, a: Reg) -> Result<Reg, BuildError> {
        use UnaryOp::*;
        let dtype = self.dtype(a)?;
        let accepts = match op {
            Neg | Abs | Sign => Accepts::Numbers,
            Not => Accepts::Bits,
            _ => Accepts::Floats,
        };
        accepts.check(op.name(), dtype)?;
        let result = if matches!(op, IsNan | IsInf) { DType::Bool } else { dtype };
        Ok(self.push(Op::Unary(op, a), result))
    }

    /// The common dtype of two operands.
    fn common_dtype(&self, op: &'static str, a: Reg, b: Reg) -> Result<DType, BuildError> {
        let (left, right) = (self.dtype(a)?, self.dtype(b)?);
        if left == right { Ok(left) } else { Err(BuildError::Mismatch { op, left, right }) }
    }

    /// Adds a binary operation.
    ///
    /// # Errors
    /// The operands' dtypes differ, or the operation does not accept them.
    pub fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        use BinaryOp::*;
        let dtype = self.common_dtype(op.name(), a, b)?;
        let accepts = match op {
            Sub | FloorDiv | TruncDiv | Fmod | Remainder | Pow => Accepts::Numbers,
            Add | Mul | Min | Max => Accepts::Any,
            Div | Atan2 | Hypot | Copysign => Accepts::Floats,
            And | Or | Xor => Accepts::Bits,
            Shl | Shr => Accepts::Ints,
        };
        accepts.check(op.name(), dtype)?;
        Ok(self.push(Op::Binary(op, a, b), dtype))
    }

    /// Adds a comparison.
    ///
    /// # Errors
    /// The operands' dtypes differ.
    pub fn compare(&mut self, op: CmpOp, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        self.common_dtype(op.name(), a, b)?;
        Ok(self.push(Op::Compare(op, a, b), DType::Bool))
    }

    /// Adds `if cond { a } else { b }`.
    ///
    /// # Errors
    /// The condition is not bool, or the other operands' dtypes differ.
    pub fn select(&mut self, cond: Reg, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        let found = self.dtype(cond)?;
        if found != DType::Bool {
            return Err(BuildError::DType { op: "select", expected: "a bool condition", found });
        }
        let dtype = self.common_dtype("select", a, b)?;
        Ok(self.push(Op::Select(cond, a, b), dtype))
    }

    /// Adds a conversion to `dtype`; returns the register itself if it already has this dtype.
    pub fn cast(&mut self, a: Reg, dtype: DType) -> Result<Reg, BuildError> {
        if self.dtype(a)? == dtype { Ok(a) } else { Ok(self.push(Op::Cast(a), dtype)) }
    }

    /// Appends another expression with its inputs replaced by `args`; returns its output registers.
    ///
    /// # Errors
    /// An argument is missing or has another dtype than the input.
    pub fn inline(&mut self, expr: &ScalarExpr, args: &[Reg]) -> Result<Vec<Reg>, BuildError> {
        let mut map: Vec<Reg> = Vec::with_capacity(expr.instrs().len());
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
                op if !op.is_pure() => return Err(BuildError::NotPure { op: op.name() }),
                // An instruction of an expression uses earlier registers.
                op => op.renamed(&|r| map.get(r.index()).copied().unwrap_or(r)),
            };
            let r = self.push(op, instr.dtype);
            map.push(r);
        }
        let output = |r: &Reg| map.get(r.index()).copied();
        let unknown = |r: &Reg| BuildError::UnknownReg { reg: *r, len: map.len() };
        expr.outputs().iter().map(|r| output(r).ok_or_else(|| unknown(r))).collect()
    }

    /// The finished expression with these outputs.
    ///
    /// # Errors
    /// An output is not defined.
    pub fn finish(self, outputs: &[Reg]) -> Result<ScalarExpr, BuildError> {
        for r in outputs {
            self.dtype(*r)?;
        }
        Ok(ScalarExpr { inputs: self.inputs, instrs: self.instrs, outputs: outputs.to_vec() })
    }
}
