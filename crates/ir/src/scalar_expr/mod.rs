//! The scalar language: what one element of a pointwise kernel computes.
//!
//! A [`ScalarExpr`] is straight-line SSA code. Each instruction defines one register, named by its
//! position, with a [`DType`]; operands are earlier registers. Nothing is converted implicitly:
//! mixing dtypes needs a [`Op::Cast`].
//!
//! **Meaning.** Every instruction's result is rounded to its register's dtype:
//! * `f32` and `f64` compute in themselves; `bf16` and `f16` compute in `f32`, then round to
//!   nearest even;
//! * integers wrap around; dividing an integer by zero is [`EvalError::DivisionByZero`];
//! * a cast from float to integer truncates; what does not fit an `i64` (NaN too) becomes
//!   `i64::MIN`, as x86's `cvttsd2si` and so PyTorch do, and narrower integers keep the low bits of
//!   that; a cast to bool is `x != 0`.
//!
//! Transcendental functions are meant as the correctly rounded ones; a backend may be off by a few
//! units in the last place.

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

/// A register: the position of the instruction that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

impl Reg {
    /// The position as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The element of the input with this position.
    Input(u32),
    /// A constant, already of the register's dtype.
    Const(Scalar),
    /// One operand.
    Unary(UnaryOp, Reg),
    /// Two operands of one dtype.
    Binary(BinaryOp, Reg, Reg),
    /// Compares two operands of one dtype.
    Compare(CmpOp, Reg, Reg),
    /// `if r0 { r1 } else { r2 }`; the condition is bool, the others are of one dtype.
    Select(Reg, Reg, Reg),
    /// Converts to the register's dtype.
    Cast(Reg),
}

impl Op {
    /// The registers read, in order.
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
    /// What it does.
    pub op: Op,
    /// The dtype of its register.
    pub dtype: DType,
}

/// A checked program from input elements to output elements; made by [`ExprBuilder`].
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

    /// The instructions; the position of each is its register.
    pub fn instrs(&self) -> &[Instr] {
        &self.instrs
    }

    /// The registers returned.
    pub fn outputs(&self) -> &[Reg] {
        &self.outputs
    }

    /// The dtypes of the outputs.
    pub fn output_dtypes(&self) -> impl Iterator<Item = DType> + '_ {
        self.outputs.iter().map(|r| self.dtype(*r))
    }

    /// The dtype of a register of this expression; `bool` for one that is not.
    pub fn dtype(&self, r: Reg) -> DType {
        self.instrs.get(r.index()).map_or(DType::Bool, |i| i.dtype)
    }

    /// The expression that returns its one input cast to `to`: a copy.
    pub fn cast(from: DType, to: DType) -> ScalarExpr {
        let mut instrs = vec![Instr { op: Op::Input(0), dtype: from }];
        if from != to {
            instrs.push(Instr { op: Op::Cast(Reg(0)), dtype: to });
        }
        let last = Reg(u32::from(from != to));
        ScalarExpr { inputs: vec![from], instrs, outputs: vec![last] }
    }

    /// One unary operation on one input.
    pub fn unary(op: UnaryOp, dtype: DType) -> Result<ScalarExpr, BuildError> {
        let mut b = ExprBuilder::new();
        let x = b.input(dtype);
        let r = b.unary(op, x)?;
        b.finish(&[r])
    }

    /// One binary operation on two inputs of one dtype.
    pub fn binary(op: BinaryOp, dtype: DType) -> Result<ScalarExpr, BuildError> {
        let mut b = ExprBuilder::new();
        let (x, y) = (b.input(dtype), b.input(dtype));
        let r = b.binary(op, x, y)?;
        b.finish(&[r])
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
