//! This crate's elementary functions, for the reference evaluator.

use maquette_ir::DType;
use maquette_ir::scalar_expr::{BinaryOp, Functions, UnaryOp};
use maquette_math::{double, single};

/// The elementary functions of the kernels, one element at a time. The reference evaluator of
/// [loop nests](maquette_ir::loops) with these functions has the kernels' bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelFunctions;

impl Functions for KernelFunctions {
    fn unary(&self, op: UnaryOp, x: f64, dtype: DType) -> f64 {
        match dtype {
            DType::F64 => double::unary(op, x).unwrap_or(x),
            _ => single::unary(op, x as f32).map_or(x, f64::from),
        }
    }

    fn binary(&self, op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64 {
        match dtype {
            DType::F64 => double::binary(op, a, b).unwrap_or(a),
            _ => single::binary(op, a as f32, b as f32).map_or(a, f64::from),
        }
    }
}
