//! This crate's elementary functions, for the reference evaluator.

use crate::math::Float;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{BinaryOp, Functions, UnaryOp};

/// The elementary functions of the kernels, one element at a time. The reference evaluator of
/// [loop nests](maquette_ir::loops) with these functions has the kernels' bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelFunctions;

fn unary<A: Float>(op: UnaryOp, x: A) -> A {
    use UnaryOp::*;
    match op {
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.expm1(),
        Log => x.log(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.log1p(),
        Sin if x.trig_is_slow() => x.sin_slow(),
        Sin => x.sin(),
        Cos if x.trig_is_slow() => x.cos_slow(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => x.asinh(),
        Acosh => x.acosh(),
        Atanh => x.atanh(),
        Erf => x.erf(),
        Erfc => x.erfc(),
        Sigmoid => x.sigmoid(),
        Neg | Abs | Sign | Floor | Ceil | Round | Trunc | Sqrt | Rsqrt | Reciprocal | IsNan
        | IsInf | Not => x,
    }
}

fn binary<A: Float>(op: BinaryOp, a: A, b: A) -> A {
    match op {
        BinaryOp::Pow => a.pow(b),
        BinaryOp::Atan2 => a.atan2(b),
        _ => a.hypot(b),
    }
}

impl Functions for KernelFunctions {
    fn unary(&self, op: UnaryOp, x: f64, dtype: DType) -> f64 {
        match dtype {
            DType::F64 => unary(op, x),
            _ => f64::from(unary(op, x as f32)),
        }
    }

    fn binary(&self, op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64 {
        match dtype {
            DType::F64 => binary(op, a, b),
            _ => f64::from(binary(op, a as f32, b as f32)),
        }
    }
}
