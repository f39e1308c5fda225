//! An embedded language for scalar expressions: a formula is arithmetic on handles ([`X`]), so that
//! most operators are one line.
//!
//! Handles cannot carry errors. The first error is kept in the [`Formula`], the rest of the formula
//! is built with a placeholder register, and [`formula`] returns the error instead of the
//! expression.

use super::super::dims::{require_mask, require_rank};
use super::super::lowering::PointwiseCx;
use super::super::number::require_fits;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use maquette_ir::scalar_expr::{BinaryOp, BuildError, CmpOp, ExprBuilder, Reg, UnaryOp};
use maquette_ir::schema::Arg;
use maquette_ir::{DType, Scalar};
use std::cell::RefCell;

/// A formula under construction, with the arguments of the operator.
pub struct Formula<'a> {
    b: RefCell<ExprBuilder>,
    error: RefCell<Option<Error>>,
    /// The compute dtype. It is a float if the operator has `Types::Float`.
    pub dtype: DType,
    /// The result dtype. It is narrower than `dtype` for half precision.
    pub result: DType,
    args: &'a [Value],
    declared: &'a [Arg],
    regs: &'a [Option<Reg>],
}

/// A handle to a value of a formula.
#[derive(Clone, Copy)]
pub struct X<'c> {
    f: &'c Formula<'c>,
    reg: Reg,
}

/// Builds the expression of the formula `f`.
pub fn formula(
    cx: &mut PointwiseCx,
    f: impl for<'c> FnOnce(&'c Formula<'c>) -> X<'c>,
) -> Result<Reg> {
    let b = RefCell::new(std::mem::take(&mut cx.b));
    let formula = Formula {
        b,
        error: RefCell::new(None),
        dtype: cx.dtype,
        result: cx.result,
        args: cx.args,
        declared: cx.declared,
        regs: &cx.regs,
    };
    let reg = f(&formula).reg;
    cx.b = formula.b.into_inner();
    match formula.error.into_inner() {
        Some(e) => Err(e),
        None => Ok(reg),
    }
}

impl<'c> Formula<'c> {
    fn or<T>(&self, r: Result<T>, otherwise: impl FnOnce() -> T) -> T {
        r.unwrap_or_else(|e| {
            self.error.borrow_mut().get_or_insert(e);
            otherwise()
        })
    }

    /// A placeholder for a value that could not be built.
    fn placeholder(&self) -> Reg {
        self.b.borrow_mut().constant(0, self.dtype)
    }

    fn built(&'c self, build: impl FnOnce(&mut ExprBuilder) -> Result<Reg, BuildError>) -> X<'c> {
        let built = build(&mut self.b.borrow_mut());
        X { f: self, reg: self.or(built.map_err(Error::other), || self.placeholder()) }
    }

    fn missing(&self, i: usize) -> Error {
        Error::value(format!("argument {i} is not an operand"))
    }

    /// The operand in argument `i`.
    pub fn arg(&'c self, i: usize) -> X<'c> {
        let reg = self.regs.get(i).copied().flatten().ok_or_else(|| self.missing(i));
        X { f: self, reg: self.or(reg, || self.placeholder()) }
    }

    /// The mask in argument `i`, of dtype bool or `also`.
    pub fn mask(&'c self, i: usize, also: Option<DType>) -> X<'c> {
        if let Some(Value::Tensor(t)) = self.args.get(i) {
            self.or(require_mask(self.name(i), t, also), || ());
        }
        self.arg(i)
    }

    /// The element of the 0-d tensor in argument `i`, in the compute dtype.
    pub fn element(&'c self, i: usize) -> X<'c> {
        if let Some(Value::Tensor(t)) = self.args.get(i) {
            self.or(require_rank(self.name(i), t, 0..=0), || ());
        }
        self.arg(i).cast(self.dtype)
    }

    /// Whether argument `i` is present.
    pub fn has(&self, i: usize) -> bool {
        self.args.get(i).is_some_and(|v| !v.is_none())
    }

    /// The number in argument `i`.
    pub fn scalar(&self, i: usize) -> Scalar {
        let v = self.args.get(i).ok_or_else(|| self.missing(i)).and_then(Value::scalar);
        self.or(v, || Scalar::Int(0))
    }

    /// The number in argument `i`, as a float.
    pub fn float(&self, i: usize) -> f64 {
        self.scalar(i).to_f64()
    }

    /// The number in argument `i`, as a constant of the compute dtype. The number must be in its
    /// range.
    pub fn number(&'c self, i: usize) -> X<'c> {
        self.number_of(i, self.dtype)
    }

    fn name(&self, i: usize) -> &str {
        self.declared.get(i).map_or("", |a| a.name.as_str())
    }

    /// The number in argument `i`, as a constant of the compute dtype. The number must be in the
    /// range of `dtype`.
    pub fn number_of(&'c self, i: usize, dtype: DType) -> X<'c> {
        let x = self.scalar(i);
        self.or(require_fits(self.name(i), x, dtype), || ());
        self.c(x)
    }

    /// The maximum of `x` and the bound in argument `i`.
    pub fn at_least(&'c self, x: X<'c>, i: usize) -> X<'c> {
        self.bound(i, false).map_or(x, |low| x.max(low))
    }

    /// The minimum of `x` and the bound in argument `i`.
    pub fn at_most(&'c self, x: X<'c>, i: usize) -> X<'c> {
        self.bound(i, true).map_or(x, |high| x.min(high))
    }

    /// The bound in argument `i`. `None` if the bound is beyond all integers of the dtype and so
    /// has no effect.
    fn bound(&'c self, i: usize, upper: bool) -> Option<X<'c>> {
        if let Some(Value::Tensor(_)) = self.args.get(i) {
            return Some(self.arg(i));
        }
        let Some((least, most)) = self.dtype.int_range() else {
            return Some(self.number_of(i, self.result));
        };
        let x = self.scalar(i);
        self.or(require_fits(self.name(i), x, DType::I64), || ());
        let n = x.to_i64();
        if (least..=most).contains(&n) {
            return Some(self.c(n));
        }
        // A bound beyond the other end of the range excludes every value of the dtype.
        self.refuse(
            upper != (n > most),
            &format!(
                "argument `{}` must not exclude all values of {}, found {x}",
                self.name(i),
                self.dtype
            ),
        );
        None
    }

    /// The string in argument `i`, or `otherwise` if the argument is absent.
    pub fn text(&self, i: usize, otherwise: &'static str) -> &str {
        let s = self.args.get(i).ok_or_else(|| self.missing(i)).and_then(|v| v.opt(Value::str));
        self.or(s, || None).unwrap_or(otherwise)
    }

    /// A constant of the compute dtype.
    pub fn c(&'c self, x: impl Into<Scalar>) -> X<'c> {
        let reg = self.b.borrow_mut().constant(x, self.dtype);
        X { f: self, reg }
    }

    /// Whether argument `i` is a tensor.
    pub fn is_tensor(&self, i: usize) -> bool {
        matches!(self.args.get(i), Some(Value::Tensor(_)))
    }

    /// The operand in argument `i`. As in PyTorch's products and quotients, a number is not rounded
    /// to the common dtype.
    pub fn exact(&'c self, i: usize) -> X<'c> {
        if self.is_tensor(i) { self.arg(i) } else { self.c(self.scalar(i)) }
    }

    /// A bool constant.
    pub fn bool(&'c self, x: bool) -> X<'c> {
        let reg = self.b.borrow_mut().constant(x, DType::Bool);
        X { f: self, reg }
    }

    /// A value rounded to the result dtype, if that is a narrower float than the compute dtype.
    pub fn narrow(&'c self, x: X<'c>) -> X<'c> {
        if self.result.is_float() && self.result != self.dtype {
            x.cast(self.result).cast(self.dtype)
        } else {
            x
        }
    }

    /// Records an error if `bad`.
    pub fn refuse(&self, bad: bool, why: &str) {
        if bad {
            self.or(Err(Error::value(why)), || ());
        }
    }

    /// Argument `i`, multiplied by the number in argument `alpha` unless that is 1.
    pub fn scaled(&'c self, i: usize, alpha: usize) -> X<'c> {
        let a = self.scalar(alpha);
        self.refuse(
            !self.dtype.is_float() && matches!(a, Scalar::Float(_)),
            "`alpha` must be an integer if the operands are integers",
        );
        self.refuse(
            self.dtype != DType::Bool && matches!(a, Scalar::Bool(_)),
            "`alpha` must not be a bool if the operands are numbers",
        );
        if a.to_f64() == 1.0 {
            self.arg(i)
        } else {
            self.arg(i) * self.narrow(self.number_of(alpha, self.result))
        }
    }
}

/// An operand of a formula: a handle or a number.
pub trait IntoX<'c> {
    fn into_x(self, f: &'c Formula<'c>, dtype: DType) -> X<'c>;
}

impl<'c> IntoX<'c> for X<'c> {
    fn into_x(self, _: &'c Formula<'c>, _: DType) -> X<'c> {
        self
    }
}

macro_rules! numbers {
    ($($t:ty)*) => { $(impl<'c> IntoX<'c> for $t {
        fn into_x(self, f: &'c Formula<'c>, dtype: DType) -> X<'c> {
            let reg = f.b.borrow_mut().constant(self, dtype);
            X { f, reg }
        }
    })* };
}
numbers!(f64 i32 bool);

macro_rules! unary {
    ($($name:ident $op:ident)*) => { impl<'c> X<'c> { $(
        #[allow(clippy::should_implement_trait, reason = "named after the scalar language")]
        pub fn $name(self) -> X<'c> {
            self.f.built(|b| b.unary(UnaryOp::$op, self.reg))
        }
    )* } };
}
unary! {
    abs Abs sign Sign neg Neg not Not isnan IsNan isinf IsInf
    floor Floor ceil Ceil round Round trunc Trunc
    sqrt Sqrt rsqrt Rsqrt reciprocal Reciprocal
    exp Exp exp2 Exp2 expm1 Expm1 log Log log2 Log2 log10 Log10 log1p Log1p
    sin Sin cos Cos tan Tan asin Asin acos Acos atan Atan
    sinh Sinh cosh Cosh tanh Tanh asinh Asinh acosh Acosh atanh Atanh
    erf Erf erfc Erfc sigmoid Sigmoid
}

macro_rules! binary {
    ($($name:ident $op:ident)*) => { impl<'c> X<'c> { $(
        #[allow(clippy::should_implement_trait, reason = "named after the scalar language")]
        pub fn $name(self, other: impl IntoX<'c>) -> X<'c> {
            let other = other.into_x(self.f, self.dtype());
            self.f.built(|b| b.binary(BinaryOp::$op, self.reg, other.reg))
        }
    )* } };
}
binary! {
    plus Add minus Sub times Mul over Div pow Pow min Min max Max
    floor_div FloorDiv trunc_div TruncDiv fmod Fmod remainder Remainder
    atan2 Atan2 hypot Hypot copysign Copysign and And or Or xor Xor shl Shl shr Shr
}

macro_rules! compare {
    ($($name:ident $op:ident)*) => { impl<'c> X<'c> { $(
        pub fn $name(self, other: impl IntoX<'c>) -> X<'c> {
            let other = other.into_x(self.f, self.dtype());
            self.f.built(|b| b.compare(CmpOp::$op, self.reg, other.reg))
        }
    )* } };
}
compare!(eq Eq ne Ne lt Lt le Le gt Gt ge Ge);

impl<'c> X<'c> {
    pub fn dtype(self) -> DType {
        self.f.b.borrow().dtype(self.reg).unwrap_or(self.f.dtype)
    }

    pub fn cast(self, dtype: DType) -> X<'c> {
        self.f.built(|b| b.cast(self.reg, dtype))
    }

    /// `if self { a } else { b }`. A condition of another dtype is true if it is nonzero.
    pub fn select(self, a: impl IntoX<'c>, b: impl IntoX<'c>) -> X<'c> {
        let cond = self.cast(DType::Bool);
        let (a, b) = (a.into_x(self.f, self.f.dtype), b.into_x(self.f, self.f.dtype));
        self.f.built(|e| e.select(cond.reg, a.reg, b.reg))
    }

    /// Whether the value is nonzero, as a bool.
    pub fn truth(self) -> X<'c> {
        if self.dtype() == DType::Bool { self } else { self.ne(0) }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:ident)*) => { $(
        impl<'c, R: IntoX<'c>> std::ops::$trait<R> for X<'c> {
            type Output = X<'c>;
            fn $method(self, other: R) -> X<'c> {
                self.$name(other)
            }
        }
    )* };
}
operators!(Add add plus Sub sub minus Mul mul times Div div over);

impl<'c> std::ops::Neg for X<'c> {
    type Output = X<'c>;
    fn neg(self) -> X<'c> {
        X::neg(self)
    }
}
