//! Bottom-up reconstruction of expressions with new parts. It serves copies between tables (matched
//! by symbol name), substitution, and the choice of the operand that a minimum or maximum provably
//! is, and canonicalizes every node anew.

use super::arith::Op;
use super::boolean::BoolNode;
use super::poly::{MAX_TERMS, Mono, Poly, Term};
use super::table::Node;
use super::{BoolExpr, Expr, Rel, SymError, SymTable, SymbolId};

/// Beyond this many collected terms, like terms are combined before more are collected.
const LONG: usize = 4 * MAX_TERMS;

/// What takes the place of the parts of an expression.
pub(super) trait Replace {
    /// The replacement of a symbol.
    fn symbol(&self, table: &mut SymTable, symbol: SymbolId) -> Result<Expr, SymError>;

    /// The minimum or maximum of replaced operands.
    fn extremum(
        &self,
        table: &mut SymTable,
        max: bool,
        operands: Vec<Expr>,
    ) -> Result<Expr, SymError> {
        table.extremum(max, operands)
    }
}

impl<F: Fn(&mut SymTable, SymbolId) -> Result<Expr, SymError>> Replace for F {
    fn symbol(&self, table: &mut SymTable, symbol: SymbolId) -> Result<Expr, SymError> {
        self(table, symbol)
    }
}

/// Replaces each minimum and maximum by the operand that it provably is.
struct ProvedExtrema;

impl Replace for ProvedExtrema {
    fn symbol(&self, table: &mut SymTable, symbol: SymbolId) -> Result<Expr, SymError> {
        Ok(table.expr(symbol))
    }

    fn extremum(
        &self,
        table: &mut SymTable,
        max: bool,
        operands: Vec<Expr>,
    ) -> Result<Expr, SymError> {
        let rel = if max { Rel::Ge } else { Rel::Le };
        let bounds_all = |table: &mut SymTable, x: Expr| {
            operands.iter().all(|&y| {
                let bounds = table.rel(rel, x, y);
                table.prove(bounds) == Some(true)
            })
        };
        match operands.iter().find(|&&x| bounds_all(table, x)) {
            Some(&x) => Ok(x),
            None => table.extremum(max, operands),
        }
    }
}

impl SymTable {
    /// Copies an expression of another table; symbols are matched by name.
    ///
    /// # Errors
    /// [`SymError::UnknownSymbol`] if this table has no symbol with a name, or an error of the
    /// arithmetic.
    pub fn import(&mut self, other: &SymTable, e: Expr) -> Result<Expr, SymError> {
        self.rebuild(Some(other), e, &|t: &mut SymTable, s| t.named(other.name(s)))
    }

    /// Copies a condition of another table; symbols are matched by name.
    ///
    /// # Errors
    /// As [`SymTable::import`].
    pub fn import_bool(&mut self, other: &SymTable, b: BoolExpr) -> Result<BoolExpr, SymError> {
        self.rebuild_bool(Some(other), b, &|t: &mut SymTable, s| t.named(other.name(s)))
    }

    /// Copies an expression of another table, with an expression of this table for each symbol.
    ///
    /// # Errors
    /// [`SymError::UnknownSymbol`] if a symbol has no expression, or an error of the arithmetic.
    pub fn import_with(
        &mut self,
        other: &SymTable,
        e: Expr,
        value: &dyn Fn(SymbolId) -> Option<Expr>,
    ) -> Result<Expr, SymError> {
        let unknown = |s| SymError::UnknownSymbol(other.name(s).into());
        self.rebuild(Some(other), e, &|_: &mut SymTable, s| value(s).ok_or_else(|| unknown(s)))
    }

    /// The expression with each minimum and maximum replaced by the operand that it provably is, if
    /// there is one. Arithmetic alone compares operands by their declared ranges; this proves, so
    /// that facts count, and costs as much.
    pub fn with_proved_extrema(&mut self, e: Expr) -> Expr {
        // On overflow the expression stays as it is, which is still correct.
        self.rebuild(None, e, &ProvedExtrema).unwrap_or(e)
    }

    /// The expression of the symbol with a name.
    pub(super) fn named(&mut self, name: &str) -> Result<Expr, SymError> {
        match self.lookup(name) {
            Some(s) => Ok(self.expr(s)),
            None => Err(SymError::UnknownSymbol(name.chars().take(80).collect::<String>().into())),
        }
    }

    /// Rebuilds an expression in this table with its symbols replaced. Its nodes are in `source`,
    /// or in this table if `source` is `None`.
    pub(super) fn rebuild(
        &mut self,
        source: Option<&SymTable>,
        e: Expr,
        replace: &dyn Replace,
    ) -> Result<Expr, SymError> {
        let Expr::Id(id) = e else { return Ok(e) };
        let node = source.unwrap_or(self).node(id).clone();
        match node {
            Node::Symbol(s) => replace.symbol(self, s),
            Node::FloorDiv(a, b) => self.rebuild_binary(Op::FloorDiv, source, a, b, replace),
            Node::Mod(a, b) => self.rebuild_binary(Op::Mod, source, a, b, replace),
            Node::Min(ref args) | Node::Max(ref args) => {
                let args: Result<Vec<Expr>, SymError> =
                    args.iter().map(|&a| self.rebuild(source, a, replace)).collect();
                replace.extremum(self, matches!(node, Node::Max(_)), args?)
            }
            Node::Poly(p) => self.rebuild_poly(source, e, p, replace),
        }
    }

    /// [`SymTable::rebuild`] of a polynomial. Its terms are collected and sorted once. Sums of the
    /// first terms are not interned: of a long polynomial, they would take quadratic memory.
    fn rebuild_poly(
        &mut self,
        source: Option<&SymTable>,
        e: Expr,
        p: Poly,
        replace: &dyn Replace,
    ) -> Result<Expr, SymError> {
        let number = |coeff: i64| Term { coeff, mono: Mono::new() };
        let mut terms = Vec::new();
        for t in p.terms {
            let mut product = Some(Poly::constant(t.coeff));
            for f in t.mono {
                let f = self.rebuild(source, Expr::Id(f), replace)?;
                product = match product {
                    Some(product) => self.mul_poly(&product, &self.poly(f))?,
                    None => None,
                };
            }
            let product = product.ok_or_else(|| self.overflow_of(source, e))?;
            terms.extend(product.terms);
            terms.push(number(product.constant));
            if terms.len() > LONG {
                let sum = self.collect(terms).ok_or_else(|| self.overflow_of(source, e))?;
                if sum.terms.len() > MAX_TERMS {
                    return Err(SymError::TooLarge { what: "terms", limit: MAX_TERMS });
                }
                terms = sum.terms.into_iter().collect();
                terms.push(number(sum.constant));
            }
        }
        terms.push(number(p.constant));
        let sum = self.collect(terms);
        self.intern_poly(sum.ok_or_else(|| self.overflow_of(source, e))?)
    }

    /// The error of an expression of `source`, or of this table, that overflows.
    fn overflow_of(&self, source: Option<&SymTable>, e: Expr) -> SymError {
        SymError::Overflow(source.unwrap_or(self).display(e).to_string().into())
    }

    fn rebuild_binary(
        &mut self,
        op: Op,
        source: Option<&SymTable>,
        a: Expr,
        b: Expr,
        replace: &dyn Replace,
    ) -> Result<Expr, SymError> {
        let a = self.rebuild(source, a, replace)?;
        let b = self.rebuild(source, b, replace)?;
        self.binary(op, a, b)
    }

    /// [`SymTable::rebuild`] for conditions.
    pub(super) fn rebuild_bool(
        &mut self,
        source: Option<&SymTable>,
        b: BoolExpr,
        replace: &dyn Replace,
    ) -> Result<BoolExpr, SymError> {
        let BoolExpr::Id(id) = b else { return Ok(b) };
        let node = source.unwrap_or(self).bool_node(id).clone();
        match node {
            BoolNode::Rel(op, x, y) => {
                let x = self.rebuild(source, x, replace)?;
                let y = self.rebuild(source, y, replace)?;
                Ok(self.rel(op, x, y))
            }
            BoolNode::And(ref parts) | BoolNode::Or(ref parts) => {
                let parts: Result<Vec<BoolExpr>, SymError> = parts
                    .iter()
                    .map(|&p| self.rebuild_bool(source, BoolExpr::Id(p), replace))
                    .collect();
                self.junction(matches!(node, BoolNode::And(_)), &parts?)
            }
        }
    }
}
