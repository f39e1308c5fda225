//! Evaluation of expressions and conditions, and their free symbols. Each is a recursive walk,
//! linear in the tree size of the expression.

use super::boolean::BoolNode;
use super::poly::Poly;
use super::range::{floor_div, floor_mod};
use super::table::Node;
use super::{BoolExpr, BoolId, Expr, SymError, SymInt, SymTable, SymbolId};
use smallvec::SmallVec;

/// A list of distinct symbols.
pub type Symbols = SmallVec<[SymbolId; 4]>;

impl SymTable {
    /// The exact value of an expression. Intermediate values have 128 bits.
    ///
    /// # Errors
    /// A symbol has no value, a divisor is zero, or a value overflows: 64 bits for the result, 128
    /// bits for an intermediate value.
    pub fn eval(&self, e: Expr, env: &dyn Fn(SymbolId) -> Option<i64>) -> Result<i64, SymError> {
        let wide = self.eval_wide(e, env)?;
        i64::try_from(wide).map_err(|_| SymError::Overflow(self.display(e).to_string().into()))
    }

    /// [`SymTable::eval`] with a 128-bit result.
    fn eval_wide(&self, e: Expr, env: &dyn Fn(SymbolId) -> Option<i64>) -> Result<i128, SymError> {
        let id = match e {
            Expr::Int(n) => return Ok(n.into()),
            Expr::Id(id) => id,
        };
        match self.node(id) {
            Node::Symbol(s) => self
                .declares(*s)
                .then(|| env(*s))
                .flatten()
                .map(i128::from)
                .ok_or_else(|| SymError::Unbound(self.name(*s).into())),
            Node::FloorDiv(a, b) | Node::Mod(a, b) => {
                let (x, y) = (self.eval_wide(*a, env)?, self.eval_wide(*b, env)?);
                let value = if matches!(self.node(id), Node::Mod(..)) {
                    floor_mod(x, y)
                } else {
                    floor_div(x, y)
                };
                value.ok_or_else(|| SymError::DivisionByZero(self.display(e).to_string().into()))
            }
            Node::Min(args) | Node::Max(args) => {
                let max = matches!(self.node(id), Node::Max(_));
                let mut best = None;
                for &a in args {
                    let x = self.eval_wide(a, env)?;
                    best = Some(best.map_or(x, |b: i128| if max { b.max(x) } else { b.min(x) }));
                }
                Ok(best.unwrap_or(0))
            }
            Node::Poly(p) => self
                .eval_poly(p, env)?
                .ok_or_else(|| SymError::Overflow(self.display(e).to_string().into())),
        }
    }

    /// The value of a polynomial; `None` if it overflows 128 bits.
    pub(super) fn eval_poly(
        &self,
        p: &Poly,
        env: &dyn Fn(SymbolId) -> Option<i64>,
    ) -> Result<Option<i128>, SymError> {
        let mut sum = Some(i128::from(p.constant));
        for t in &p.terms {
            let mut product = Some(i128::from(t.coeff));
            for &f in &t.mono {
                let x = self.eval_wide(Expr::Id(f), env)?;
                product = product.and_then(|p| p.checked_mul(x));
            }
            sum = sum.zip(product).and_then(|(s, p)| s.checked_add(p));
        }
        Ok(sum)
    }

    /// The value of an expression with a handle for each symbol. The handles are numbers or belong
    /// to one scope. An error of their arithmetic poisons the result.
    ///
    /// # Errors
    /// [`SymError::Unbound`] if a symbol has no handle.
    pub fn eval_handles(
        &self,
        e: Expr,
        env: &dyn Fn(SymbolId) -> Option<SymInt>,
    ) -> Result<SymInt, SymError> {
        let id = match e {
            Expr::Int(n) => return Ok(n.into()),
            Expr::Id(id) => id,
        };
        let of = |e: Expr| self.eval_handles(e, env);
        match self.node(id) {
            Node::Symbol(s) => self
                .declares(*s)
                .then(|| env(*s))
                .flatten()
                .ok_or_else(|| SymError::Unbound(self.name(*s).into())),
            Node::FloorDiv(a, b) => Ok(of(*a)?.floor_div(of(*b)?)),
            Node::Mod(a, b) => Ok(of(*a)?.modulo(of(*b)?)),
            Node::Min(args) | Node::Max(args) => {
                let max = matches!(self.node(id), Node::Max(_));
                let mut best: Option<SymInt> = None;
                for &a in args {
                    let x = of(a)?;
                    best = Some(best.map_or(x, |b| if max { b.max(x) } else { b.min(x) }));
                }
                Ok(best.unwrap_or(0.into()))
            }
            Node::Poly(p) => {
                let mut sum = SymInt::from(p.constant);
                for t in &p.terms {
                    let mut product = SymInt::from(t.coeff);
                    for &f in &t.mono {
                        product *= of(Expr::Id(f))?;
                    }
                    sum += product;
                }
                Ok(sum)
            }
        }
    }

    /// The truth value of a condition. `and` and `or` stop at the first operand that decides them.
    ///
    /// # Errors
    /// As [`SymTable::eval`].
    pub fn eval_bool(
        &self,
        b: BoolExpr,
        env: &dyn Fn(SymbolId) -> Option<i64>,
    ) -> Result<bool, SymError> {
        let id = match b {
            BoolExpr::Const(b) => return Ok(b),
            BoolExpr::Id(id) => id,
        };
        match self.bool_node(id) {
            BoolNode::Rel(op, x, y) => {
                Ok(op.holds(self.eval_wide(*x, env)?, self.eval_wide(*y, env)?))
            }
            BoolNode::And(parts) | BoolNode::Or(parts) => {
                let and = matches!(self.bool_node(id), BoolNode::And(_));
                for &p in parts {
                    if self.eval_bool(BoolExpr::Id(p), env)? != and {
                        return Ok(!and);
                    }
                }
                Ok(and)
            }
        }
    }

    /// The symbols of an expression, in order of first occurrence.
    pub fn free_symbols(&self, e: Expr) -> Symbols {
        let mut out = Symbols::new();
        self.visit_symbols(e, &mut out);
        out
    }

    /// The symbols of a condition, in order of first occurrence.
    pub fn free_symbols_bool(&self, b: BoolExpr) -> Symbols {
        let mut out = Symbols::new();
        if let BoolExpr::Id(id) = b {
            self.visit_bool(id, &mut out);
        }
        out
    }

    /// Whether a symbol of an expression is one of these.
    pub(super) fn mentions(&self, e: Expr, these: &dyn Fn(SymbolId) -> bool) -> bool {
        let Expr::Id(id) = e else { return false };
        match self.node(id) {
            Node::Symbol(s) => these(*s),
            Node::FloorDiv(a, b) | Node::Mod(a, b) => {
                self.mentions(*a, these) || self.mentions(*b, these)
            }
            Node::Min(args) | Node::Max(args) => args.iter().any(|&e| self.mentions(e, these)),
            Node::Poly(p) => {
                let mut atoms = p.terms.iter().flat_map(|t| &t.mono);
                atoms.any(|&atom| self.mentions(Expr::Id(atom), these))
            }
        }
    }

    /// Whether a symbol of a condition is one of these.
    pub(super) fn mentions_bool(&self, b: BoolExpr, these: &dyn Fn(SymbolId) -> bool) -> bool {
        let BoolExpr::Id(id) = b else { return false };
        match self.bool_node(id) {
            BoolNode::Rel(_, x, y) => self.mentions(*x, these) || self.mentions(*y, these),
            BoolNode::And(parts) | BoolNode::Or(parts) => {
                parts.iter().any(|&part| self.mentions_bool(BoolExpr::Id(part), these))
            }
        }
    }

    /// Appends the symbols of a condition to `out`, each once.
    fn visit_bool(&self, id: BoolId, out: &mut Symbols) {
        match self.bool_node(id) {
            BoolNode::Rel(_, x, y) => {
                self.visit_symbols(*x, out);
                self.visit_symbols(*y, out);
            }
            BoolNode::And(parts) | BoolNode::Or(parts) => {
                parts.iter().for_each(|&p| self.visit_bool(p, out))
            }
        }
    }

    /// Appends the symbols of an expression to `out`, each once.
    fn visit_symbols(&self, e: Expr, out: &mut Symbols) {
        let Expr::Id(id) = e else { return };
        match self.node(id) {
            Node::Symbol(s) if out.contains(s) => {}
            Node::Symbol(s) => out.push(*s),
            Node::FloorDiv(a, b) | Node::Mod(a, b) => {
                [a, b].into_iter().for_each(|&e| self.visit_symbols(e, out))
            }
            Node::Min(args) | Node::Max(args) => {
                args.iter().for_each(|&e| self.visit_symbols(e, out))
            }
            Node::Poly(p) => p
                .terms
                .iter()
                .flat_map(|t| &t.mono)
                .for_each(|&f| self.visit_symbols(Expr::Id(f), out)),
        }
    }
}
