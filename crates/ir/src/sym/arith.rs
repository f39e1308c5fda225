//! Sums, products, minima and maxima, and the cached entry point of all binary operations.
//!
//! A minimum is flattened, deduplicated and sorted, and drops each operand that declared ranges
//! prove to be no smaller than another operand; a maximum mirrors it. The result does not depend on
//! the order of the operands. The dominance test is quadratic in the number of operands, at most
//! [`MAX_ARGS`].

use super::poly::Poly;
use super::range::Interval;
use super::table::{Args, Node};
use super::{Expr, SymError, SymTable};

/// A binary operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Mod,
    Min,
    Max,
}

impl Op {
    fn symbol(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::FloorDiv => "//",
            Op::Mod => "%",
            Op::Min => "min",
            Op::Max => "max",
        }
    }

    /// The value on two numbers; `None` if it overflows or divides by zero.
    pub(super) fn on_numbers(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Op::Add => a.checked_add(b),
            Op::Sub => a.checked_sub(b),
            Op::Mul => a.checked_mul(b),
            Op::FloorDiv => i64::try_from(super::range::floor_div(a.into(), b.into())?).ok(),
            Op::Mod => i64::try_from(super::range::floor_mod(a.into(), b.into())?).ok(),
            Op::Min => Some(a.min(b)),
            Op::Max => Some(a.max(b)),
        }
    }

    /// The error for operands on which [`Op::on_numbers`] is `None`.
    pub(super) fn number_error(self, a: i64, b: i64) -> SymError {
        let text = format!("{a} {} {b}", self.symbol()).into();
        if b == 0 && matches!(self, Op::FloorDiv | Op::Mod) {
            SymError::DivisionByZero(text)
        } else {
            SymError::Overflow(text)
        }
    }
}

/// The most operands of one minimum or maximum.
const MAX_ARGS: usize = 256;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $op:ident),*) => {
        impl SymTable {
            $($(#[$doc])*
            pub fn $name(&mut self, a: Expr, b: Expr) -> Result<Expr, SymError> {
                self.binary(Op::$op, a, b)
            })*
        }
    };
}
operations!(
    /// The sum `a + b`.
    ///
    /// # Errors
    /// A coefficient overflows, or the result exceeds a size limit.
    add = Add,
    /// The difference `a - b`.
    ///
    /// # Errors
    /// A coefficient overflows, or the result exceeds a size limit.
    sub = Sub,
    /// The product `a * b`.
    ///
    /// # Errors
    /// A coefficient overflows, or the result exceeds a size limit.
    mul = Mul,
    /// The quotient `a // b`, rounded down.
    ///
    /// # Errors
    /// `b` is the number zero, a coefficient overflows, or the result exceeds a size limit. A
    /// symbolic divisor that may be zero is not an error here but on evaluation.
    floor_div = FloorDiv,
    /// The remainder `a % b` of [`SymTable::floor_div`], with the sign of `b`.
    ///
    /// # Errors
    /// As [`SymTable::floor_div`].
    modulo = Mod,
    /// The minimum of `a` and `b`.
    ///
    /// # Errors
    /// The result exceeds a size limit.
    min = Min,
    /// The maximum of `a` and `b`.
    ///
    /// # Errors
    /// The result exceeds a size limit.
    max = Max
);

impl SymTable {
    /// A binary operation, folded on numbers and cached otherwise.
    pub(super) fn binary(&mut self, op: Op, a: Expr, b: Expr) -> Result<Expr, SymError> {
        if let (Expr::Int(x), Expr::Int(y)) = (a, b) {
            return op.on_numbers(x, y).map(Expr::Int).ok_or_else(|| op.number_error(x, y));
        }
        let key = (op, a, b);
        if let Some(&e) = self.memo.0.get(&key) {
            return Ok(e);
        }
        let e = match op {
            Op::Add | Op::Sub => {
                let k = if op == Op::Add { 1 } else { -1 };
                let sum = self.add_scaled(&self.poly(a), k, &self.poly(b));
                self.intern_checked(sum, op, a, b)
            }
            Op::Mul => {
                let product = self.mul_poly(&self.poly(a), &self.poly(b))?;
                self.intern_checked(product, op, a, b)
            }
            Op::FloorDiv => self.floor_div_new(a, b),
            Op::Mod => self.modulo_new(a, b),
            Op::Min | Op::Max => self.extremum(op == Op::Max, [a, b]),
        }?;
        self.memo.0.insert(key, e);
        Ok(e)
    }

    /// Interns the polynomial of `a op b`, where `None` stands for an overflow.
    pub(super) fn intern_checked(
        &mut self,
        p: Option<Poly>,
        op: Op,
        a: Expr,
        b: Expr,
    ) -> Result<Expr, SymError> {
        match p {
            Some(p) => self.intern_poly(p),
            None => Err(self.overflow(op, a, b)),
        }
    }

    /// The overflow error of `a op b`.
    pub(super) fn overflow(&self, op: Op, a: Expr, b: Expr) -> SymError {
        SymError::Overflow(
            format!("({}) {} ({})", self.display(a), op.symbol(), self.display(b)).into(),
        )
    }

    /// The canonical minimum or maximum of operands.
    pub(super) fn extremum(
        &mut self,
        max: bool,
        operands: impl IntoIterator<Item = Expr>,
    ) -> Result<Expr, SymError> {
        let mut args = Args::new();
        let mut number: Option<i64> = None;
        for operand in operands {
            let flat: Args = match operand {
                Expr::Id(id) => match self.node(id) {
                    Node::Min(inner) if !max => inner.clone(),
                    Node::Max(inner) if max => inner.clone(),
                    _ => Args::from_elem(operand, 1),
                },
                Expr::Int(_) => Args::from_elem(operand, 1),
            };
            for operand in flat {
                match operand {
                    Expr::Int(n) => {
                        number = Some(number.map_or(n, |m| if max { m.max(n) } else { m.min(n) }))
                    }
                    Expr::Id(_) => args.push(operand),
                }
            }
        }
        args.extend(number.map(Expr::Int));
        args.sort_by(|&x, &y| self.cmp_expr(x, y));
        args.dedup();
        if args.len() > MAX_ARGS {
            return Err(SymError::TooLarge { what: "operands of `min` or `max`", limit: MAX_ARGS });
        }
        let mut kept = Args::new();
        for (i, &operand) in args.iter().enumerate() {
            let dominated = args.iter().enumerate().any(|(j, &other)| {
                // Of operands that are provably equal, only the first is kept.
                j != i
                    && self.ordered(if max { (operand, other) } else { (other, operand) })
                    && (j < i
                        || !self.ordered(if max { (other, operand) } else { (operand, other) }))
            });
            if !dominated {
                kept.push(operand);
            }
        }
        match kept.as_slice() {
            [operand] => Ok(*operand),
            _ if max => self.intern(Node::Max(kept)),
            _ => self.intern(Node::Min(kept)),
        }
    }

    /// Whether `a <= b` by the declared ranges of the difference's terms. A stronger test (through
    /// facts, or a search) would not be transitive, and the result would depend on the order of the
    /// operands.
    fn ordered(&self, (a, b): (Expr, Expr)) -> bool {
        self.add_scaled(&self.poly(a), -1, &self.poly(b))
            .is_some_and(|d| self.declared_poly(&d).hi <= 0)
    }

    /// The values of a polynomial by the declared ranges of its atoms, term by term.
    pub(super) fn declared_poly(&self, p: &Poly) -> Interval {
        self.interval_of_poly(p, &|e| self.declared(e))
    }
}
