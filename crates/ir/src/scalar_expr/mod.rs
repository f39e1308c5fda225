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
//!
//! # In a loop nest
//!
//! A stage of a [loop nest](crate::loops) has an expression that can also use its place in the
//! nest: [`Op::Coord`], [`Op::Launch`], [`Op::Read`] and [`Op::Assert`]. An expression without
//! these operations is pure: it computes outputs from inputs alone ([`ScalarExpr::is_pure`]).

mod build;
mod environment;
mod eval;
mod functions;
mod moves;
mod ops;
mod read;
mod split;
mod tangent;
#[cfg(test)]
mod tests;

pub use build::{BuildError, ExprBuilder};
pub use environment::Environment;
pub use eval::{EvalError, binary, cast_scalar};
pub use functions::{Functions, StdFunctions};
pub use ops::{BinaryOp, CmpOp, UnaryOp};
pub use read::{Bounds, Positions, Read};

use crate::{DType, Scalar};
use smallvec::{SmallVec, smallvec};
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
    /// The coordinate along the axis with this index, an `i64`.
    Coord(u32),
    /// The launch scalar with this index: a number that is known when the nest is launched.
    Launch(u32),
    /// The element of an input at computed positions.
    Read(Read),
    /// The operand, a bool. If it is false, the evaluation fails with the message of this index.
    Assert(Reg, u32),
}

impl Op {
    /// The operand registers, in order.
    pub fn operands(&self) -> impl Iterator<Item = Reg> + use<> {
        let regs: SmallVec<[Reg; 6]> = match *self {
            Op::Input(_) | Op::Const(_) | Op::Coord(_) | Op::Launch(_) => smallvec![],
            Op::Unary(_, a) | Op::Cast(a) | Op::Assert(a, _) => smallvec![a],
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => smallvec![a, b],
            Op::Select(c, a, b) => smallvec![c, a, b],
            Op::Read(read) => read.operands().collect(),
        };
        regs.into_iter()
    }

    /// The operation on other registers.
    pub fn renamed(&self, to: &dyn Fn(Reg) -> Reg) -> Op {
        match *self {
            op @ (Op::Input(_) | Op::Const(_) | Op::Coord(_) | Op::Launch(_)) => op,
            Op::Unary(op, a) => Op::Unary(op, to(a)),
            Op::Binary(op, a, b) => Op::Binary(op, to(a), to(b)),
            Op::Compare(op, a, b) => Op::Compare(op, to(a), to(b)),
            Op::Select(c, a, b) => Op::Select(to(c), to(a), to(b)),
            Op::Cast(a) => Op::Cast(to(a)),
            Op::Read(read) => Op::Read(read.renamed(to)),
            Op::Assert(a, message) => Op::Assert(to(a), message),
        }
    }

    /// Whether the operation uses nothing but its operands and the inputs.
    pub const fn is_pure(&self) -> bool {
        !matches!(self, Op::Coord(_) | Op::Launch(_) | Op::Read(_) | Op::Assert(..))
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

    /// The axes whose coordinates the expression uses, in ascending order.
    pub fn coords(&self) -> SmallVec<[u32; 4]> {
        let coord = |i: &Instr| if let Op::Coord(axis) = i.op { Some(axis) } else { None };
        let mut axes: SmallVec<[u32; 4]> = self.instrs.iter().filter_map(coord).collect();
        axes.sort_unstable();
        axes.dedup();
        axes
    }

    /// Whether every operation is pure: the outputs depend on the inputs alone.
    pub fn is_pure(&self) -> bool {
        self.instrs.iter().all(|i| i.op.is_pure())
    }

    /// Whether an evaluation can end with an error that depends on data.
    pub fn may_fail(&self) -> bool {
        use BinaryOp::{FloorDiv, Fmod, Remainder, TruncDiv};
        self.instrs.iter().any(|instr| match instr.op {
            Op::Binary(FloorDiv | TruncDiv | Fmod | Remainder, ..) => !instr.dtype.is_float(),
            Op::Read(read) => matches!(read.bounds, Bounds::Wraps | Bounds::Fails | Bounds::Clamps),
            Op::Assert(..) => true,
            _ => false,
        })
    }

    /// The expression with each operation replaced by one of the same operands and dtype.
    pub(crate) fn with_ops(&self, replace: &dyn Fn(Op) -> Op) -> ScalarExpr {
        let instr = |i: &Instr| Instr { op: replace(i.op), ..*i };
        ScalarExpr { instrs: self.instrs.iter().map(instr).collect(), ..self.clone() }
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
                Op::Coord(axis) => write!(f, "coord {axis}")?,
                Op::Launch(k) => write!(f, "launch {k}")?,
                Op::Read(read) => write!(f, "read {}", read.input)?,
                Op::Assert(_, k) => write!(f, "assert {k}")?,
                op => op.fmt_name(f)?,
            }
            instr.op.fmt_operands(f)?;
            writeln!(f)?;
        }
        self.fmt_outputs(f)?;
        writeln!(f)
    }
}

impl Op {
    /// Writes the name of an operation on registers, with its constant.
    pub(crate) fn fmt_name(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Op::Const(c) => write!(f, "const {c}"),
            op => f.write_str(op.name()),
        }
    }

    /// Writes the operands: ` r0, r1`.
    pub(crate) fn fmt_operands(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        for (k, r) in self.operands().enumerate() {
            write!(f, "{}{r}", if k == 0 { " " } else { ", " })?;
        }
        Ok(())
    }

    /// The name in text.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::Const(_) => "const",
            Op::Unary(op, _) => op.name(),
            Op::Binary(op, ..) => op.name(),
            Op::Compare(op, ..) => op.name(),
            Op::Select(..) => "select",
            Op::Cast(_) => "cast",
            Op::Coord(_) => "coord",
            Op::Launch(_) => "launch",
            Op::Read(_) => "read",
            Op::Assert(..) => "assert",
        }
    }
}

impl ScalarExpr {
    /// Writes the last line: `return r2`.
    pub(crate) fn fmt_outputs(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        f.write_str("return")?;
        for (k, r) in self.outputs.iter().enumerate() {
            write!(f, "{}{r}", if k == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}
