//! The derivative of a register with respect to another, as further instructions.
//!
//! This is forward differentiation: each instruction gets a tangent from the tangents of its
//! operands. A register that does not depend on the variable has none, so that no zero is computed.
//! A selection selects between the tangents of its branches; a branch that is not taken may have
//! an infinite or undefined tangent. The cost is a few instructions for each instruction that
//! depends on the variable.
//!
//! Where a function has no derivative, PyTorch's convention holds: 0 for `abs` and `sign` at 0, and
//! half of the tangent for each operand of `min` and `max` that are equal.
//!
//! Source: R. E. Wengert, "A simple automatic derivative evaluation program", 1964.

use super::{BinaryOp, BuildError, CmpOp, ExprBuilder, Instr, Op, Reg, UnaryOp};
use std::f64::consts::{LN_2, LN_10, PI};

/// The derivative of a function of one operand.
enum Slope {
    Zero,
    MinusOne,
    Is(Reg),
    OneOver(Reg),
    MinusOneOver(Reg),
}

impl ExprBuilder {
    /// Adds the derivative of `of` with respect to `variable`, in the dtype of `of`. `None` if it
    /// is zero everywhere.
    ///
    /// # Errors
    /// A register is not defined in this builder.
    pub fn derivative(&mut self, of: Reg, variable: Reg) -> Result<Option<Reg>, BuildError> {
        self.dtype(of)?;
        let dtype = self.dtype(variable)?;
        if !dtype.is_float() {
            return Ok(None);
        }
        let mut tangents: Vec<Option<Reg>> = vec![None; of.index() + 1];
        for index in 0..=of.index() {
            tangents[index] = if index == variable.index() {
                Some(self.constant(1, dtype))
            } else {
                let instr = self.instruction(index);
                self.tangent(Reg(index as u32), instr, &tangents)?
            };
        }
        Ok(tangents[of.index()])
    }

    /// `factor` times the derivative `slope`, by the chain rule. Where `slope` chooses a constant
    /// 0, the product does so, too: an infinite factor has no part in it, and a multiplication
    /// would give NaN.
    ///
    /// # Errors
    /// A register is not defined in this builder, or the dtypes differ.
    pub fn chained(&mut self, factor: Reg, slope: Reg) -> Result<Reg, BuildError> {
        self.dtype(slope)?;
        match self.instruction(slope.index()).op {
            Op::Select(condition, a, b) if self.chooses_zero(slope) => {
                let mut branch = |r: Reg| match self.instruction(r.index()).op {
                    Op::Const(c) if c.to_f64() == 0.0 => Ok(r),
                    Op::Const(c) if c.to_f64() == 1.0 => Ok(factor),
                    _ => self.chained(factor, r),
                };
                let (a, b) = (branch(a)?, branch(b)?);
                self.select(condition, a, b)
            }
            _ => self.binary(BinaryOp::Mul, factor, slope),
        }
    }

    /// Whether a register is a selection with a branch that is a constant 0.
    fn chooses_zero(&self, r: Reg) -> bool {
        let Op::Select(_, a, b) = self.instruction(r.index()).op else { return false };
        let is_zero = |r: Reg| match self.instruction(r.index()).op {
            Op::Const(c) => c.to_f64() == 0.0,
            _ => self.chooses_zero(r),
        };
        is_zero(a) || is_zero(b)
    }

    /// The tangent of one instruction. `tangents` has those of all earlier registers.
    fn tangent(
        &mut self,
        result: Reg,
        Instr { op, dtype }: Instr,
        tangents: &[Option<Reg>],
    ) -> Result<Option<Reg>, BuildError> {
        let of = |r: Reg| tangents[r.index()];
        if !dtype.is_float() {
            return Ok(None);
        }
        Ok(match op {
            Op::Unary(op, x) => match of(x) {
                Some(t) => self.unary_tangent(op, (x, t), result)?,
                None => None,
            },
            Op::Binary(op, a, b) => {
                let left = match of(a) {
                    Some(t) => self.left_tangent(op, (a, t), b, result)?,
                    None => None,
                };
                let right = match of(b) {
                    Some(t) => self.right_tangent(op, a, (b, t), result)?,
                    None => None,
                };
                match (left, right) {
                    (Some(l), Some(r)) => Some(self.binary(BinaryOp::Add, l, r)?),
                    (one, other) => one.or(other),
                }
            }
            Op::Select(condition, a, b) => match (of(a), of(b)) {
                (None, None) => None,
                (a, b) => {
                    let zero = self.constant(0, dtype);
                    Some(self.select(condition, a.unwrap_or(zero), b.unwrap_or(zero))?)
                }
            },
            Op::Cast(x) => match of(x) {
                Some(t) => Some(self.cast(t, dtype)?),
                None => None,
            },
            Op::Input(_)
            | Op::Const(_)
            | Op::Compare(..)
            | Op::Coord(_)
            | Op::Launch(_)
            | Op::Read(_)
            | Op::Assert(..) => None,
        })
    }

    /// The tangent of `y = op(x)`, where `t` is that of `x`.
    fn unary_tangent(
        &mut self,
        op: UnaryOp,
        (x, t): (Reg, Reg),
        y: Reg,
    ) -> Result<Option<Reg>, BuildError> {
        Ok(match self.slope(op, x, y)? {
            Slope::Zero => None,
            Slope::MinusOne => Some(self.unary(UnaryOp::Neg, t)?),
            Slope::Is(slope) => Some(self.binary(BinaryOp::Mul, t, slope)?),
            Slope::OneOver(divisor) => Some(self.binary(BinaryOp::Div, t, divisor)?),
            Slope::MinusOneOver(divisor) => {
                let quotient = self.binary(BinaryOp::Div, t, divisor)?;
                Some(self.unary(UnaryOp::Neg, quotient)?)
            }
        })
    }

    /// The derivative of `y = op(x)`.
    fn slope(&mut self, op: UnaryOp, x: Reg, y: Reg) -> Result<Slope, BuildError> {
        use BinaryOp::{Add, Mul, Sub};
        use UnaryOp as U;
        let dtype = self.dtype(x)?;
        let one = |b: &mut ExprBuilder| b.constant(1, dtype);
        Ok(match op {
            U::Neg => Slope::MinusOne,
            U::Abs => Slope::Is(self.unary(U::Sign, x)?),
            U::Sqrt => Slope::OneOver(self.binary(Add, y, y)?),
            U::Rsqrt => {
                let square = self.binary(Mul, y, y)?;
                let cube = self.binary(Mul, square, y)?;
                let half = self.constant(-0.5, dtype);
                Slope::Is(self.binary(Mul, half, cube)?)
            }
            U::Reciprocal => {
                let square = self.binary(Mul, y, y)?;
                Slope::Is(self.unary(U::Neg, square)?)
            }
            U::Exp => Slope::Is(y),
            U::Exp2 => Slope::Is(self.scaled(y, LN_2)?),
            U::Expm1 => {
                let one = one(self);
                Slope::Is(self.binary(Add, y, one)?)
            }
            U::Log => Slope::OneOver(x),
            U::Log2 => Slope::OneOver(self.scaled(x, LN_2)?),
            U::Log10 => Slope::OneOver(self.scaled(x, LN_10)?),
            U::Log1p => {
                let one = one(self);
                Slope::OneOver(self.binary(Add, x, one)?)
            }
            U::Erf | U::Erfc => {
                let (square, sign) =
                    (self.binary(Mul, x, x)?, if op == U::Erf { 1.0 } else { -1.0 });
                let negative = self.unary(U::Neg, square)?;
                let bell = self.unary(U::Exp, negative)?;
                Slope::Is(self.scaled(bell, sign * 2.0 / PI.sqrt())?)
            }
            U::Sigmoid => {
                let one = one(self);
                let rest = self.binary(Sub, one, y)?;
                Slope::Is(self.binary(Mul, rest, y)?)
            }
            U::Sin => Slope::Is(self.unary(U::Cos, x)?),
            U::Cos => {
                let sin = self.unary(U::Sin, x)?;
                Slope::Is(self.unary(U::Neg, sin)?)
            }
            U::Tan => Slope::Is(self.one_plus_square(y)?),
            U::Asin => Slope::OneOver(self.root_of_one_minus_square(x)?),
            U::Acos => Slope::MinusOneOver(self.root_of_one_minus_square(x)?),
            U::Atan => Slope::OneOver(self.one_plus_square(x)?),
            U::Sinh => Slope::Is(self.unary(U::Cosh, x)?),
            U::Cosh => Slope::Is(self.unary(U::Sinh, x)?),
            U::Tanh => Slope::Is(self.one_minus_square(y)?),
            U::Asinh => {
                let sum = self.one_plus_square(x)?;
                Slope::OneOver(self.unary(U::Sqrt, sum)?)
            }
            U::Acosh => {
                let (square, one) = (self.binary(Mul, x, x)?, one(self));
                let difference = self.binary(Sub, square, one)?;
                Slope::OneOver(self.unary(U::Sqrt, difference)?)
            }
            U::Atanh => Slope::OneOver(self.one_minus_square(x)?),
            U::Sign | U::Floor | U::Ceil | U::Round | U::Trunc | U::IsNan | U::IsInf | U::Not => {
                Slope::Zero
            }
        })
    }

    /// The part of the tangent of `y = op(a, b)` that comes from `t`, the tangent of `a`.
    fn left_tangent(
        &mut self,
        op: BinaryOp,
        (a, t): (Reg, Reg),
        b: Reg,
        y: Reg,
    ) -> Result<Option<Reg>, BuildError> {
        use BinaryOp as B;
        let dtype = self.dtype(a)?;
        Ok(Some(match op {
            B::Add | B::Sub | B::Fmod | B::Remainder => t,
            B::Mul => self.binary(B::Mul, t, b)?,
            B::Div => self.binary(B::Div, t, b)?,
            B::Pow => {
                // b * a^(b - 1), and 0 where b is 0, whatever a is
                let (zero, one) = (self.constant(0, dtype), self.constant(1, dtype));
                let exponent = self.binary(B::Sub, b, one)?;
                let power = self.binary(B::Pow, a, exponent)?;
                let slope = self.binary(B::Mul, b, power)?;
                let scaled = self.binary(B::Mul, t, slope)?;
                let constant = self.compare(CmpOp::Eq, b, zero)?;
                self.select(constant, zero, scaled)?
            }
            B::Min | B::Max => self.share(op, t, a, b)?,
            B::Atan2 => {
                let slope = self.over_square_of_norm(b, a, b)?;
                self.binary(B::Mul, t, slope)?
            }
            B::Hypot => {
                let slope = self.binary(B::Div, a, y)?;
                self.binary(B::Mul, t, slope)?
            }
            B::Copysign => {
                let zero = self.constant(0, dtype);
                let ratio = self.binary(B::Div, y, a)?;
                let scaled = self.binary(B::Mul, t, ratio)?;
                let at_zero = self.compare(CmpOp::Eq, a, zero)?;
                self.select(at_zero, zero, scaled)?
            }
            B::FloorDiv | B::TruncDiv | B::And | B::Or | B::Xor | B::Shl | B::Shr => {
                return Ok(None);
            }
        }))
    }

    /// The part of the tangent of `y = op(a, b)` that comes from `t`, the tangent of `b`.
    fn right_tangent(
        &mut self,
        op: BinaryOp,
        a: Reg,
        (b, t): (Reg, Reg),
        y: Reg,
    ) -> Result<Option<Reg>, BuildError> {
        use BinaryOp as B;
        let dtype = self.dtype(b)?;
        Ok(Some(match op {
            B::Add => t,
            B::Sub => self.unary(UnaryOp::Neg, t)?,
            B::Mul => self.binary(B::Mul, a, t)?,
            B::Div => {
                let quotient = self.binary(B::Div, y, b)?;
                let slope = self.unary(UnaryOp::Neg, quotient)?;
                self.binary(B::Mul, t, slope)?
            }
            B::Fmod | B::Remainder => {
                let round = if op == B::Fmod { B::TruncDiv } else { B::FloorDiv };
                let quotient = self.binary(round, a, b)?;
                let slope = self.unary(UnaryOp::Neg, quotient)?;
                self.binary(B::Mul, t, slope)?
            }
            B::Pow => {
                // a^b * log(a), and 0 where a is 0 and b is not negative
                let zero = self.constant(0, dtype);
                let log = self.unary(UnaryOp::Log, a)?;
                let slope = self.binary(B::Mul, y, log)?;
                let scaled = self.binary(B::Mul, t, slope)?;
                let no_base = self.compare(CmpOp::Eq, a, zero)?;
                let defined = self.compare(CmpOp::Ge, b, zero)?;
                let constant = self.binary(B::And, no_base, defined)?;
                self.select(constant, zero, scaled)?
            }
            B::Min | B::Max => self.share(op, t, b, a)?,
            B::Atan2 => {
                let slope = self.over_square_of_norm(a, a, b)?;
                let negative = self.unary(UnaryOp::Neg, slope)?;
                self.binary(B::Mul, t, negative)?
            }
            B::Hypot => {
                let slope = self.binary(B::Div, b, y)?;
                self.binary(B::Mul, t, slope)?
            }
            B::Copysign | B::FloorDiv | B::TruncDiv | B::And | B::Or | B::Xor | B::Shl | B::Shr => {
                return Ok(None);
            }
        }))
    }

    /// The share of the operand `own` in the tangent of the smaller or larger of two operands: all
    /// of it, half of it if they are equal, or nothing.
    fn share(&mut self, op: BinaryOp, t: Reg, own: Reg, other: Reg) -> Result<Reg, BuildError> {
        let dtype = self.dtype(own)?;
        let (zero, half) = (self.constant(0, dtype), self.constant(0.5, dtype));
        let lost = if op == BinaryOp::Max { CmpOp::Lt } else { CmpOp::Gt };
        let loses = self.compare(lost, own, other)?;
        let equal = self.compare(CmpOp::Eq, own, other)?;
        let halved = self.binary(BinaryOp::Mul, t, half)?;
        let rest = self.select(equal, halved, t)?;
        self.select(loses, zero, rest)
    }

    /// `x / (a * a + b * b)`, and 0 where both are 0.
    fn over_square_of_norm(&mut self, x: Reg, a: Reg, b: Reg) -> Result<Reg, BuildError> {
        let dtype = self.dtype(x)?;
        let (aa, bb) = (self.binary(BinaryOp::Mul, a, a)?, self.binary(BinaryOp::Mul, b, b)?);
        let sum = self.binary(BinaryOp::Add, aa, bb)?;
        let zero = self.constant(0, dtype);
        let quotient = self.binary(BinaryOp::Div, x, sum)?;
        let origin = self.compare(CmpOp::Eq, sum, zero)?;
        self.select(origin, zero, quotient)
    }

    fn scaled(&mut self, x: Reg, factor: f64) -> Result<Reg, BuildError> {
        let dtype = self.dtype(x)?;
        let factor = self.constant(factor, dtype);
        self.binary(BinaryOp::Mul, x, factor)
    }

    fn one_plus_square(&mut self, x: Reg) -> Result<Reg, BuildError> {
        let dtype = self.dtype(x)?;
        let (square, one) = (self.binary(BinaryOp::Mul, x, x)?, self.constant(1, dtype));
        self.binary(BinaryOp::Add, square, one)
    }

    fn one_minus_square(&mut self, x: Reg) -> Result<Reg, BuildError> {
        let dtype = self.dtype(x)?;
        let (square, one) = (self.binary(BinaryOp::Mul, x, x)?, self.constant(1, dtype));
        self.binary(BinaryOp::Sub, one, square)
    }

    fn root_of_one_minus_square(&mut self, x: Reg) -> Result<Reg, BuildError> {
        let difference = self.one_minus_square(x)?;
        self.unary(UnaryOp::Sqrt, difference)
    }
}
