//! The printer of expressions and conditions; [`SymTable::parse_expr`] and [`SymTable::parse_bool`]
//! read its text back.

use super::boolean::BoolNode;
use super::poly::{Poly, Term};
use super::table::Node;
use super::{BoolExpr, Expr, Rel, SymTable};
use std::fmt::{self, Display, Formatter};

struct WithSymbols<'a, T>(&'a SymTable, T);

impl Display for WithSymbols<'_, Expr> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.write_expr(f, self.1)
    }
}

impl Display for WithSymbols<'_, BoolExpr> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.write_bool(f, self.1)
    }
}

impl SymTable {
    /// The text of an expression: `batch + 1`, `10 * batch`, `s0 // 2`, `(s0 + 1) % 4`,
    /// `min(s0, s1)`.
    pub fn display(&self, e: Expr) -> impl Display + '_ {
        WithSymbols(self, e)
    }

    /// The text of a condition: `u0 <= 10 * batch`, `s0 % 4 == 0`, `s0 > 1 and s0 != s1`.
    pub fn display_bool(&self, b: BoolExpr) -> impl Display + '_ {
        WithSymbols(self, b)
    }

    fn write_expr(&self, f: &mut Formatter<'_>, e: Expr) -> fmt::Result {
        let id = match e {
            Expr::Int(n) => return write!(f, "{n}"),
            Expr::Id(id) => id,
        };
        match self.node(id) {
            Node::Symbol(s) => f.write_str(self.name(*s)),
            Node::FloorDiv(a, b) => self.write_infix(f, *a, "//", *b),
            Node::Mod(a, b) => self.write_infix(f, *a, "%", *b),
            Node::Min(args) => self.write_call(f, "min", args),
            Node::Max(args) => self.write_call(f, "max", args),
            Node::Poly(p) => self.write_poly(f, p),
        }
    }

    fn write_infix(&self, f: &mut Formatter<'_>, a: Expr, op: &str, b: Expr) -> fmt::Result {
        self.write_factor(f, a)?;
        write!(f, " {op} ")?;
        self.write_factor(f, b)
    }

    fn write_call(&self, f: &mut Formatter<'_>, name: &str, args: &[Expr]) -> fmt::Result {
        write!(f, "{name}(")?;
        for (i, &a) in args.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            self.write_expr(f, a)?;
        }
        f.write_str(")")
    }

    /// Writes an operand of a product, a division or a sign, in parentheses unless it is a symbol,
    /// a call or a nonnegative number.
    fn write_factor(&self, f: &mut Formatter<'_>, e: Expr) -> fmt::Result {
        let tight = match e {
            Expr::Int(n) => n >= 0,
            Expr::Id(id) => matches!(self.node(id), Node::Symbol(_) | Node::Min(_) | Node::Max(_)),
        };
        if tight {
            return self.write_expr(f, e);
        }
        f.write_str("(")?;
        self.write_expr(f, e)?;
        f.write_str(")")
    }

    fn write_poly(&self, f: &mut Formatter<'_>, p: &Poly) -> fmt::Result {
        // A sum starts with a positive term or constant if it has one: `5 - s0`. The least integer
        // keeps its sign, because its magnitude is no 64-bit integer: `s0 + -9223372036854775808`.
        let starts_negative = p.terms.first().is_none_or(|t| t.coeff < 0);
        let constant_first =
            starts_negative && p.constant > 0 && p.terms.iter().all(|t| t.coeff < 0);
        let lead = p.terms.iter().position(|t| t.coeff > 0).unwrap_or(0);
        let mut first = true;
        if constant_first {
            write!(f, "{}", p.constant)?;
            first = false;
        }
        let others = p.terms.iter().enumerate().filter(|(i, _)| *i != lead).map(|(_, t)| t);
        for t in p.terms.get(lead).into_iter().chain(others) {
            f.write_str(match (first, t.coeff < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) if t.coeff == i64::MIN => " + -",
                (false, true) => " - ",
            })?;
            self.write_term(f, t, first)?;
            first = false;
        }
        match p.constant {
            0 => Ok(()),
            _ if constant_first => Ok(()),
            i64::MIN => write!(f, " + {}", i64::MIN),
            c => write!(f, " {} {}", if c < 0 { '-' } else { '+' }, c.unsigned_abs()),
        }
    }

    /// Writes a term without its sign, which the caller has written.
    fn write_term(&self, f: &mut Formatter<'_>, t: &Term, first: bool) -> fmt::Result {
        let size = t.coeff.unsigned_abs();
        let signed = first && t.coeff < 0;
        match t.mono.as_slice() {
            [e] if size == 1 && signed => return self.write_factor(f, Expr::Id(*e)),
            [e] if size == 1 => return self.write_expr(f, Expr::Id(*e)),
            _ if size != 1 => write!(f, "{size}")?,
            _ => {}
        }
        for (i, &e) in t.mono.iter().enumerate() {
            f.write_str(if i > 0 || size != 1 { " * " } else { "" })?;
            self.write_factor(f, Expr::Id(e))?;
        }
        Ok(())
    }

    fn write_bool(&self, f: &mut Formatter<'_>, b: BoolExpr) -> fmt::Result {
        let id = match b {
            BoolExpr::Const(b) => return write!(f, "{b}"),
            BoolExpr::Id(id) => id,
        };
        match self.bool_node(id) {
            // A number is written on the right-hand side.
            BoolNode::Rel(op, x @ Expr::Int(_), y) => self.write_rel(f, op.swap(), *y, *x),
            BoolNode::Rel(op, x, y) => self.write_rel(f, *op, *x, *y),
            BoolNode::And(parts) => {
                for (i, &p) in parts.iter().enumerate() {
                    f.write_str(if i > 0 { " and " } else { "" })?;
                    let or = matches!(self.bool_node(p), BoolNode::Or(_));
                    f.write_str(if or { "(" } else { "" })?;
                    self.write_bool(f, BoolExpr::Id(p))?;
                    f.write_str(if or { ")" } else { "" })?;
                }
                Ok(())
            }
            BoolNode::Or(parts) => {
                for (i, &p) in parts.iter().enumerate() {
                    f.write_str(if i > 0 { " or " } else { "" })?;
                    self.write_bool(f, BoolExpr::Id(p))?;
                }
                Ok(())
            }
        }
    }

    fn write_rel(&self, f: &mut Formatter<'_>, op: Rel, x: Expr, y: Expr) -> fmt::Result {
        self.write_expr(f, x)?;
        write!(f, " {} ", op.symbol())?;
        self.write_expr(f, y)
    }
}
