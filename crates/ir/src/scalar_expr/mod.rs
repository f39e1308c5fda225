//! The scalar language: the computation of one element of a pointwise kernel.
//!
//! A [`ScalarExpr`] is straight-line SSA code. Each instruction defines one register, identified by
//! the instruction's index, and has a [`DType`]; its operands are earlier registers. No conversion
//! is implicit: mixing dtypes needs an [`Op::Cast`].
//!
//! # Semantics
//!
//! The result of every instruction is rounded to the dtype of its register:
//!
//! - `f32` and `f64` compute in their own precision. `bf16` and `f16` compute in `f32`, and the
//!   result is rounded to nearest even.
//! - Integers wrap around. Division of an integer by zero is [`EvalError::DivisionByZero`].
//! - A cast from float to integer truncates. A value that does not fit `i64`, or NaN, becomes
//!   `i64::MIN`, as with the x86 instruction `cvttsd2si`, which PyTorch uses; narrower integers
//!   keep the low bits of the `i64`. A cast to bool is `x != 0`.
//!
//! Transcendental functions are defined as correctly rounded. A backend may differ by a few units
//! in the last place.

mod build;
mod eval;
mod ops;
#[cfg(test)]
mod tests;

pub use build::{BuildError, ExprBuilder};
pub use eval::{EvalError, cast_scalar};
pub use ops::{BinaryOp, CmpOp, UnaryOp};

use crate::{DType, Scalar};
use std::fmt;

/// A register, identified by the index of the instruction that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

impl Reg {
    /// The register's index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// The operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The element of the input with this index.
    Input(u32),
    /// A constant of the register's dtype.
    Const(Scalar),
    /// A unary operation.
    Unary(UnaryOp, Reg),
    /// A binary operation on operands of one dtype.
    Binary(BinaryOp, Reg, Reg),
    /// A comparison of operands of one dtype; the result is bool.
    Compare(CmpOp, Reg, Reg),
    /// `if r0 { r1 } else { r2 }`: the condition is bool and the other operands have one dtype.
    Select(Reg, Reg, Reg),
    /// A conversion to the register's dtype.
    Cast(Reg),
}

impl Op {
    /// The operand registers, in order.
    pub fn operands(&self) -> impl Iterator<Item = Reg> + use<> {
        let (regs, n) = match *self {
            Op::Input(_) | Op::Const(_) => ([Reg(0); 3], 0),
            Op::Unary(_, a) | Op::Cast(a) => ([a; 3], 1),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => ([a, b, b], 2),
            Op::Select(c, a, b) => ([c, a, b], 3),
        };
        regs.into_iter().take(n)
    }
}

/// One instruction: an operation and the dtype of the register it defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instr {
    /// The operation.
    pub op: Op,
    /// The dtype of the register that it defines.
    pub dtype: DType,
}

/// A type-checked program from input elements to output elements; built by [`ExprBuilder`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScalarExpr {
    inputs: Vec<DType>,
    instrs: Vec<Instr>,
    outputs: Vec<Reg>,
}

impl ScalarExpr {
    /// The dtypes of the inputs.
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// The instructions. The index of an instruction is its register.
    pub fn instrs(&self) -> &[Instr] {
        &self.instrs
    }

    /// The output registers.
    pub fn outputs(&self) -> &[Reg] {
        &self.outputs
    }

    /// The dtypes of the outputs.
    pub fn output_dtypes(&self) -> impl Iterator<Item = DType> + '_ {
        self.outputs.iter().map(|r| self.dtype(*r))
    }

    /// The dtype of a register; `bool` for a register that this expression does not define.
    pub fn dtype(&self, r: Reg) -> DType {
        self.instrs.get(r.index()).map_or(DType::Bool, |i| i.dtype)
    }

    /// The expression that casts its only input to `to`; a copy if the dtypes are equal.
    pub fn cast(from: DType, to: DType) -> ScalarExpr {
        let mut instrs = vec![Instr { op: Op::Input(0), dtype: from }];
        if from != to {
            instrs.push(Instr { op: Op::Cast(Reg(0)), dtype: to });
        }
        let last = Reg(u32::from(from != to));
        ScalarExpr { inputs: vec![from], instrs, outputs: vec![last] }
    }

    /// The expression of one unary operation on one input.
    ///
    /// # Errors
    /// The operation does not accept the dtype.
    pub fn unary(op: UnaryOp, dtype: DType) -> Result<ScalarExpr, BuildError> {
        let mut builder = ExprBuilder::new();
        let x = builder.input(dtype);
        let result = builder.unary(op, x)?;
        builder.finish(&[result])
    }

    /// The expression of one binary operation on two inputs of one dtype.
    ///
    /// # Errors
    /// The operation does not accept the dtype.
    pub fn binary(op: BinaryOp, dtype: DType) -> Result<ScalarExpr, BuildError> {
        let mut builder = ExprBuilder::new();
        let (x, y) = (builder.input(dtype), builder.input(dtype));
        let result = builder.binary(op, x, y)?;
        builder.finish(&[result])
    }
}

impl fmt::Display for ScalarExpr {
    /// One line per instruction, then the outputs: `r2: f32 = add r0, r1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, instr) in self.instrs.iter().enumerate() {
            write!(f, "r{i}: {} = ", instr.dtype)?;
            match instr.op {
                Op::Input(k) => write!(f, "input {k}")?,
                Op::Const(c) => write!(f, "const {c}")?,
                Op::Unary(op, _) => write!(f, "{op}")?,
                Op::Binary(op, ..) => write!(f, "{op}")?,
                Op::Compare(op, ..) => write!(f, "{op}")?,
                Op::Select(..) => f.write_str("select")?,
                Op::Cast(_) => f.write_str("cast")?,
            }
            for (k, r) in instr.op.operands().enumerate() {
                write!(f, "{}{r}", if k == 0 { " " } else { ", " })?;
            }
            writeln!(f)?;
        }
        f.write_str("return")?;
        for (k, r) in self.outputs.iter().enumerate() {
            write!(f, "{}{r}", if k == 0 { " " } else { ", " })?;
        }
        writeln!(f)
    }
}
