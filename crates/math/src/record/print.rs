//! Programs as C.
//!
//! The text names operations that C and its relatives spell differently, and a prelude defines
//! them, beside the types `bool`, `uint32_t` and `uint64_t`: `fma_f32`, `trunc_f32`,
//! `copysign_f32`, `abs_f32`, `bits_f32`, `float_f32`, `signed_f32`, `sar_f32`, and the same of
//! `f64`. The compiler must not contract products and sums into fused operations.
//!
//! A function of `libm` is a call of `libm_` with its name. [`LIBM_C`](super::LIBM_C) defines them
//! all. A prelude for it also has `sqrt_f64`, `LIBM_FUNCTION` and `LIBM_TABLE`.

use super::{Constant, Op, Operand, Program, Step, Type};
use std::fmt::Write;

impl Type {
    /// The name in C.
    fn in_c(self) -> &'static str {
        match self {
            Type::Flag => "bool",
            Type::U32 => "uint32_t",
            Type::U64 => "uint64_t",
            Type::F32 => "float",
            Type::F64 => "double",
        }
    }

    /// The end of the names of operations on floats.
    fn suffix(self) -> &'static str {
        match self {
            Type::F32 | Type::U32 => "f32",
            Type::F64 | Type::U64 | Type::Flag => "f64",
        }
    }
}

impl Constant {
    fn in_c(self) -> String {
        let Constant { ty, bits } = self;
        match ty {
            Type::Flag => (bits != 0).to_string(),
            Type::U32 => format!("{bits}u"),
            Type::U64 => format!("{bits}ull"),
            Type::F32 => match f32::from_bits(bits as u32) {
                x if x.is_finite() => format!("{x:e}f"),
                _ => format!("float_f32({bits:#x}u)"),
            },
            Type::F64 => match f64::from_bits(bits) {
                x if x.is_finite() => format!("{x:e}"),
                _ => format!("float_f64({bits:#x}ull)"),
            },
        }
    }
}

impl Operand {
    fn in_c(self) -> String {
        match self {
            Operand::Argument(position) => format!("x{position}"),
            Operand::Step(position) => format!("v{position}"),
            Operand::Constant(constant) => constant.in_c(),
        }
    }
}

impl Program {
    /// This program as a C function of a name. `kind` is what stands before the type of the result,
    /// such as `static inline`.
    pub fn to_c(&self, kind: &str, name: &str) -> String {
        let arguments = self.arguments.iter().enumerate();
        let arguments: Vec<String> =
            arguments.map(|(i, ty)| format!("{} x{i}", ty.in_c())).collect();
        let (result, ty) = self.result;
        let mut text = format!("{kind} {} {name}({}) {{\n", ty.in_c(), arguments.join(", "));
        for (i, step) in self.steps.iter().enumerate() {
            let _ = writeln!(text, "    const {} v{i} = {};", step.ty.in_c(), self.step_in_c(step));
        }
        let _ = writeln!(text, "    return {};\n}}", result.in_c());
        text
    }

    fn step_in_c(&self, step: &Step) -> String {
        let operands: Vec<String> = step.operands.iter().map(|o| o.in_c()).collect();
        let infix = |op: &str| operands.join(&format!(" {op} "));
        let prefix = |op: &str| format!("{op}{}", operands[0]);
        let call = |name: &str| format!("{name}({})", operands.join(", "));
        let of_class = |name: &str, ty: Type| call(&format!("{name}_{}", ty.suffix()));
        match step.op {
            Op::Add => infix("+"),
            Op::Sub => infix("-"),
            Op::Mul => infix("*"),
            Op::Div => infix("/"),
            Op::Lt => infix("<"),
            Op::Le => infix("<="),
            Op::Eq => infix("=="),
            Op::And => infix("&"),
            Op::Or => infix("|"),
            Op::Shl => infix("<<"),
            Op::Neg => prefix("-"),
            Op::Not => prefix("!"),
            Op::IsZero => format!("{} == 0", operands[0]),
            Op::IsNan => format!("{0} != {0}", operands[0]),
            Op::Select => format!("{} ? {} : {}", operands[0], operands[1], operands[2]),
            Op::MulAdd => of_class("fma", step.ty),
            Op::Abs => of_class("abs", step.ty),
            Op::Trunc => of_class("trunc", step.ty),
            Op::Copysign => of_class("copysign", step.ty),
            Op::FromBits => of_class("float", step.ty),
            Op::FromSigned => of_class("signed", step.ty),
            Op::ToBits => of_class("bits", step.ty),
            Op::Sar => of_class("sar", step.ty),
            Op::Widen => format!("(double){}", operands[0]),
            Op::Narrow => format!("(float){}", operands[0]),
            Op::Libm(function) => call(&format!("libm_{}", function.name())),
            Op::Libm2(function) => call(&format!("libm_{}", function.name())),
        }
    }
}
