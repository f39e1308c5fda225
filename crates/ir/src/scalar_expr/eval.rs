//! The reference evaluator: one element at a time, without optimization. Backends are tested
//! against it.

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
    /// Evaluates the expression on one element of each input. Inputs are first cast to their
    /// declared dtype.
    ///
    /// # Errors
    /// The number of inputs is wrong, or an integer is divided by zero.
    pub fn eval(&self, inputs: &[Scalar]) -> Result<Vec<Scalar>, EvalError> {
        if inputs.len() != self.inputs().len() {
            return Err(EvalError::Inputs { expected: self.inputs().len(), found: inputs.len() });
        }
        let mut regs: Vec<Scalar> = Vec::with_capacity(self.instrs().len());
        for instr in self.instrs() {
            let get = |r: Reg| regs.get(r.index()).copied().unwrap_or(Scalar::Bool(false));
            let dtype = instr.dtype;
            let value = match instr.op {
                Op::Input(k) => {
                    cast_scalar(inputs.get(k as usize).copied().unwrap_or(Scalar::Int(0)), dtype)
                }
                Op::Const(c) => c,
                Op::Unary(op, a) => unary(op, get(a), dtype),
                Op::Binary(op, a, b) => binary(op, get(a), get(b), dtype)?,
                Op::Compare(op, a, b) => Scalar::Bool(compare(op, get(a), get(b))),
                Op::Select(c, a, b) => get(if get(c).to_bool() { a } else { b }),
                Op::Cast(a) => cast_scalar(get(a), dtype),
            };
            regs.push(value);
        }
        Ok(self
            .outputs()
            .iter()
            .map(|r| regs.get(r.index()).copied().unwrap_or(Scalar::Bool(false)))
            .collect())
    }
}

fn unary(op: UnaryOp, x: Scalar, dtype: DType) -> Scalar {
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
        Scalar::Float(v) => Scalar::Float(round(dtype, float_unary(op, v, dtype))),
    }
}

fn float_unary(op: UnaryOp, x: f64, dtype: DType) -> f64 {
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
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.ln_1p(),
        Sin => x.sin(),
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
        Erf if x.abs() < 2.0 => erf_series(x),
        Erf if x.is_nan() => x,
        Erf => (1.0 - erfc_tail(x.abs())).copysign(x),
        Erfc if x > 0.75 => erfc_tail(x),
        Erfc if x < -2.0 => 2.0 - erfc_tail(-x),
        Erfc => 1.0 - erf_series(x),
        Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        IsNan | IsInf | Not => x,
    }
}

/// The error function by a series of positive terms, which has no cancellation (Abramowitz and
/// Stegun 7.1.6): `2/sqrt(pi) e^{-x^2} sum 2^n x^{2n+1} / (2n+1)!!`.
fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// The complementary error function for `x >= 0.75`, by a continued fraction (Abramowitz and Stegun
/// 7.1.14).
fn erfc_tail(x: f64) -> f64 {
    if x > 30.0 {
        return 0.0;
    }
    let tail = (1..=400).rev().fold(0.0, |t, k| f64::from(k) / 2.0 / (x + t));
    (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x + tail))
}

fn binary(op: BinaryOp, a: Scalar, b: Scalar, dtype: DType) -> Result<Scalar, EvalError> {
    match (a, b) {
        (Scalar::Bool(a), Scalar::Bool(b)) => Ok(Scalar::Bool(bool_binary(op, a, b))),
        (Scalar::Int(a), Scalar::Int(b)) => {
            Ok(Scalar::Int(wrap(dtype, int_binary(op, a, b, dtype)?)))
        }
        (a, b) => Ok(Scalar::Float(float_binary(op, a.to_f64(), b.to_f64(), dtype))),
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

fn float_binary(op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64 {
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
        Pow => a.powf(b),
        Min => nan(if a < b { a } else { b }),
        Max => nan(if a > b { a } else { b }),
        Atan2 => a.atan2(b),
        Hypot => a.hypot(b),
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
