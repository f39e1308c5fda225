//! The reference evaluator: one element at a time, without optimization. Backends are tested
//! against it.

use super::environment::{self, Elements, Environment};
use super::functions::{Functions, StdFunctions};
use super::{BinaryOp, CmpOp, Op, Reg, ScalarExpr, UnaryOp};
use crate::{DType, Scalar};
use half::{bf16, f16};

/// The error of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// An integer was divided by zero.
    #[error("integer division by zero")]
    DivisionByZero,
    /// The number of inputs is wrong.
    #[error("the expression takes {expected} inputs, found {found}")]
    Inputs {
        /// The number of inputs that the expression has.
        expected: usize,
        /// The number of inputs passed.
        found: usize,
    },
    /// The expression needs a loop nest, and has none around it.
    #[error("`{op}` needs a loop nest")]
    NotPure {
        /// The operation.
        op: &'static str,
    },
    /// A computed position is outside its dimension.
    #[error("index {position} is out of bounds for dimension {dim} with size {size}")]
    Index {
        /// The position.
        position: i64,
        /// The dimension.
        dim: usize,
        /// Its size.
        size: i64,
    },
    /// The affine position of an input is outside its source.
    #[error("input {input} is read outside its source")]
    Outside {
        /// The input.
        input: u32,
    },
    /// An assertion does not hold.
    #[error("assertion {message} does not hold")]
    Assertion {
        /// The index of its message.
        message: u32,
    },
}

/// 2^63.
const I64_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// Converts a scalar to a dtype, by the rules of [`Op::Cast`].
pub fn cast_scalar(x: Scalar, to: DType) -> Scalar {
    match to {
        DType::Bool => Scalar::Bool(x.to_bool()),
        dtype if dtype.is_int() => Scalar::Int(wrap(
            dtype,
            match x {
                Scalar::Float(f) if !(-I64_LIMIT..I64_LIMIT).contains(&f) => i64::MIN,
                x => x.to_i64(),
            },
        )),
        // An integer converts to f32 with a single rounding, as in hardware; through f64 it would
        // round twice.
        DType::F64 => Scalar::Float(x.to_f64()),
        dtype => Scalar::Float(match x {
            Scalar::Int(i) => round(dtype, f64::from(i as f32)),
            x => round(dtype, x.to_f64()),
        }),
    }
}

/// Truncates an integer to the width of an integer dtype.
fn wrap(dtype: DType, i: i64) -> i64 {
    match dtype {
        DType::U8 => i64::from(i as u8),
        DType::I8 => i64::from(i as i8),
        DType::I16 => i64::from(i as i16),
        DType::I32 => i64::from(i as i32),
        _ => i,
    }
}

/// Rounds to a float dtype. `bf16` and `f16` round through `f32`, because they compute in `f32`.
fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::BF16 => bf16::from_f32(x as f32).to_f64(),
        DType::F16 => f16::from_f32(x as f32).to_f64(),
        _ => x,
    }
}

impl ScalarExpr {
    /// Evaluates a pure expression on one element of each input. Inputs are first cast to their
    /// declared dtype. Elementary functions are those of [`StdFunctions`].
    ///
    /// # Errors
    /// The number of inputs is wrong, an integer is divided by zero, or the expression is not pure.
    pub fn eval(&self, inputs: &[Scalar]) -> Result<Vec<Scalar>, EvalError> {
        self.eval_with(inputs, &StdFunctions)
    }

    /// As [`ScalarExpr::eval`], with other elementary functions.
    ///
    /// # Errors
    /// As [`ScalarExpr::eval`].
    pub fn eval_with(
        &self,
        inputs: &[Scalar],
        functions: &dyn Functions,
    ) -> Result<Vec<Scalar>, EvalError> {
        if inputs.len() != self.inputs().len() {
            return Err(EvalError::Inputs { expected: self.inputs().len(), found: inputs.len() });
        }
        self.eval_in(&Elements(inputs), functions)
    }

    /// Evaluates the expression in an environment.
    ///
    /// # Errors
    /// An integer is divided by zero, an assertion fails, a computed position is outside its
    /// dimension, or the environment lacks something that the expression uses.
    pub fn eval_in(
        &self,
        environment: &dyn Environment,
        functions: &dyn Functions,
    ) -> Result<Vec<Scalar>, EvalError> {
        let mut regs: Vec<Scalar> = Vec::with_capacity(self.instrs().len());
        for instr in self.instrs() {
            let get = |r: Reg| regs.get(r.index()).copied().unwrap_or(Scalar::Bool(false));
            let dtype = instr.dtype;
            let value = match instr.op {
                Op::Input(k) => cast_scalar(environment.input(k)?, dtype),
                Op::Const(c) => c,
                Op::Unary(op, a) => unary(op, get(a), dtype, functions),
                Op::Binary(op, a, b) => binary(op, get(a), get(b), dtype, functions)?,
                Op::Compare(op, a, b) => Scalar::Bool(compare(op, get(a), get(b))),
                Op::Select(c, a, b) => get(if get(c).to_bool() { a } else { b }),
                Op::Cast(a) => cast_scalar(get(a), dtype),
                Op::Coord(axis) => Scalar::Int(environment.coord(axis)?),
                Op::Launch(k) => cast_scalar(environment.launch(k)?, dtype),
                Op::Read(read) => cast_scalar(environment::read(&read, environment, &get)?, dtype),
                Op::Assert(a, message) if !get(a).to_bool() => {
                    return Err(EvalError::Assertion { message });
                }
                Op::Assert(a, _) => get(a),
            };
            regs.push(value);
        }
        let get = |r: &Reg| regs.get(r.index()).copied().unwrap_or(Scalar::Bool(false));
        Ok(self.outputs().iter().map(get).collect())
    }
}

fn unary(op: UnaryOp, x: Scalar, dtype: DType, functions: &dyn Functions) -> Scalar {
    use UnaryOp::*;
    match x {
        Scalar::Bool(b) => Scalar::Bool(!b),
        Scalar::Int(i) => Scalar::Int(wrap(
            dtype,
            match op {
                Neg => i.wrapping_neg(),
                Abs => i.wrapping_abs(),
                Sign => i.signum(),
                _ => !i,
            },
        )),
        Scalar::Float(v) if op == IsNan => Scalar::Bool(v.is_nan()),
        Scalar::Float(v) if op == IsInf => Scalar::Bool(v.is_infinite()),
        Scalar::Float(v) => Scalar::Float(round(dtype, float_unary(op, v, dtype, functions))),
    }
}

fn float_unary(op: UnaryOp, x: f64, dtype: DType, functions: &dyn Functions) -> f64 {
    use UnaryOp::*;
    match op {
        Neg => -x,
        Abs => x.abs(),
        Sign => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        Floor => x.floor(),
        Ceil => x.ceil(),
        Round => x.round_ties_even(),
        Trunc => x.trunc(),
        Sqrt => x.sqrt(),
        Rsqrt if dtype == DType::F64 => 1.0 / x.sqrt(),
        Rsqrt => 1.0 / f64::from((x as f32).sqrt()),
        Reciprocal => 1.0 / x,
        op => functions.unary(op, x, dtype),
    }
}

/// A binary operation on operands of one dtype, which is also the result's.
///
/// # Errors
/// An integer is divided by zero.
pub fn binary(
    op: BinaryOp,
    a: Scalar,
    b: Scalar,
    dtype: DType,
    functions: &dyn Functions,
) -> Result<Scalar, EvalError> {
    match (a, b) {
        (Scalar::Bool(a), Scalar::Bool(b)) => Ok(Scalar::Bool(bool_binary(op, a, b))),
        (Scalar::Int(a), Scalar::Int(b)) => {
            Ok(Scalar::Int(wrap(dtype, int_binary(op, a, b, dtype)?)))
        }
        (a, b) => Ok(Scalar::Float(float_binary(op, a.to_f64(), b.to_f64(), dtype, functions))),
    }
}

fn bool_binary(op: BinaryOp, a: bool, b: bool) -> bool {
    use BinaryOp::*;
    match op {
        Add | Or | Max => a | b,
        Xor => a ^ b,
        _ => a & b,
    }
}

/// An integer operation on `i64`; the caller truncates the result to the dtype.
fn int_binary(op: BinaryOp, a: i64, b: i64, dtype: DType) -> Result<i64, EvalError> {
    use BinaryOp::*;
    let bits = dtype.size() as i64 * 8;
    if b == 0 && matches!(op, FloorDiv | TruncDiv | Fmod | Remainder | Div) {
        return Err(EvalError::DivisionByZero);
    }
    let adjust = |r: i64| r != 0 && ((r < 0) != (b < 0));
    Ok(match op {
        Add => a.wrapping_add(b),
        Sub => a.wrapping_sub(b),
        Mul => a.wrapping_mul(b),
        FloorDiv => a.wrapping_div(b).wrapping_sub(i64::from(adjust(a.wrapping_rem(b)))),
        Div | TruncDiv => a.wrapping_div(b),
        Fmod => a.wrapping_rem(b),
        Remainder if adjust(a.wrapping_rem(b)) => a.wrapping_rem(b).wrapping_add(b),
        Remainder => a.wrapping_rem(b),
        Pow => int_pow(a, b),
        Min => a.min(b),
        Max => a.max(b),
        And => a & b,
        Or => a | b,
        Xor => a ^ b,
        Shl if (0..bits).contains(&b) => a.wrapping_shl(b as u32),
        Shl => 0,
        Shr if (0..bits).contains(&b) => a >> b,
        Shr => a >> 63,
        Atan2 | Hypot | Copysign => a,
    })
}

/// Integer power by repeated squaring, wrapping. A negative exponent gives 0 except for bases 1 and
/// -1, as in PyTorch.
fn int_pow(base: i64, exp: i64) -> i64 {
    match (base, exp) {
        (1, _) => 1,
        (-1, e) => {
            if e % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, e) if e < 0 => 0,
        _ => {
            let (mut base, mut exp, mut acc) = (base, exp, 1i64);
            while exp > 0 {
                if exp & 1 == 1 {
                    acc = acc.wrapping_mul(base);
                }
                base = base.wrapping_mul(base);
                exp >>= 1;
            }
            acc
        }
    }
}

fn float_binary(op: BinaryOp, a: f64, b: f64, dtype: DType, functions: &dyn Functions) -> f64 {
    use BinaryOp::*;
    // PyTorch computes `f32`, `bf16` and `f16` in `f32`, so each step of a composite operation is
    // rounded to `f32`.
    let step = |x: f64| if dtype == DType::F64 { x } else { f64::from(x as f32) };
    let fmod = a % b;
    let nan = |pick: f64| {
        if a.is_nan() {
            a
        } else if b.is_nan() {
            b
        } else {
            pick
        }
    };
    let value = match op {
        Add | Or => a + b,
        Sub | Xor => a - b,
        Mul | And => a * b,
        Div => a / b,
        FloorDiv if b == 0.0 => a / b,
        // As PyTorch's `c10::div_floor_floating`: exact quotient of `a - fmod`, corrected for
        // signs, then snapped to the nearest integer.
        FloorDiv => {
            let adjusted = step(step(a - fmod) / b)
                - f64::from(u8::from(fmod != 0.0 && (b < 0.0) != (fmod < 0.0)));
            let floor = adjusted.floor();
            match adjusted {
                0.0 => 0f64.copysign(step(a / b)),
                _ if adjusted - floor > 0.5 => floor + 1.0,
                _ => floor,
            }
        }
        TruncDiv => step(a / b).trunc(),
        Fmod => fmod,
        Remainder if fmod != 0.0 && (b < 0.0) != (fmod < 0.0) => fmod + b,
        Remainder => fmod,
        Pow | Atan2 | Hypot => functions.binary(op, a, b, dtype),
        Min => nan(if a < b { a } else { b }),
        Max => nan(if a > b { a } else { b }),
        Copysign => a.copysign(b),
        Shl | Shr => a,
    };
    round(dtype, value)
}

fn compare(op: CmpOp, a: Scalar, b: Scalar) -> bool {
    fn go<T: PartialOrd>(op: CmpOp, a: T, b: T) -> bool {
        match op {
            CmpOp::Eq => a == b,
            CmpOp::Ne => a != b,
            CmpOp::Lt => a < b,
            CmpOp::Le => a <= b,
            CmpOp::Gt => a > b,
            CmpOp::Ge => a >= b,
        }
    }
    match (a, b) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => go(op, a.to_f64(), b.to_f64()),
        (a, b) => go(op, a.to_i64(), b.to_i64()),
    }
}
