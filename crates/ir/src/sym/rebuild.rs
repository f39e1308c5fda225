//! Expressions made again with other leaves: copies between tables, substitution.

use super::arith::Op;
use super::boolean::BoolNode;
use super::table::Node;
use super::{BoolExpr, Expr, SymError, SymTable, SymbolId};

/// What a symbol becomes.
type Leaf<'a> = &'a dyn Fn(&mut SymTable, SymbolId) -> Result<Expr, SymError>;

impl SymTable {
    /// An expression of another table, by symbol names; an error if one is unknown here.
    pub fn import(&mut self, other: &SymTable, e: Expr) -> Result<Expr, SymError> {
        self.rebuild(Some(other), e, &|t, s| t.named(other.name(s)))
    }

    /// A condition of another table, by symbol names; an error if one is unknown here.
    pub fn import_bool(&mut self, other: &SymTable, b: BoolExpr) -> Result<BoolExpr, SymError> {
        self.rebuild_bool(Some(other), b, &|t, s| t.named(other.name(s)))
    }

    /// The expression of the symbol of a name.
    pub(super) fn named(&mut self, name: &str) -> Result<Expr, SymError> {
        match self.lookup(name) {
            Some(s) => Ok(self.expr(s)),
            None => Err(SymError::UnknownSymbol(name.chars().take(80).collect::<String>().into())),
        }
    }

    /// The expression with its symbols replaced, made in this table; its nodes are in `source`, or
    /// here.
    pub(super) fn rebuild(
        &mut self,
        source: Option<&SymTable>,
        e: Expr,
        leaf: Leaf,
    ) -> Result<Expr, SymError> {
        let Expr::Id(id) = e else { return Ok(e) };
        let node = source.unwrap_or(self).node(id).clone();
        match node {
            Node::Symbol(s) => leaf(self, s),
            Node::FloorDiv(a, b) => self.rebuild_binary(Op::FloorDiv, source, a, b, leaf),
            Node::Mod(a, b) => self.rebuild_binary(Op::Mod, source, a, b, leaf),
            Node::Min(ref args) | Node::Max(ref args) => {
                let args: Result<Vec<Expr>, SymError> =
                    args.iter().map(|&a| self.rebuild(source, a, leaf)).collect();
                self.extremum(matches!(node, Node::Max(_)), args?)
            }
            Node::Poly(p) => {
                let mut sum = Expr::Int(0);
                for t in p.terms {
                    let mut product = Expr::Int(t.coeff);
                    for f in t.mono {
                        let f = self.rebuild(source, Expr::Id(f), leaf)?;
                        product = self.mul(product, f)?;
                    }
                    sum = self.add(sum, product)?;
                }
                self.add(sum, Expr::Int(p.constant))
            }
        }
    }

    fn rebuild_binary(
        &mut self,
        op: Op,
        source: Option<&SymTable>,
        a: Expr,
        b: Expr,
        leaf: Leaf,
    ) -> Result<Expr, SymError> {
        let a = self.rebuild(source, a, leaf)?;
        let b = self.rebuild(source, b, leaf)?;
        self.binary(op, a, b)
    }

    /// As [`SymTable::rebuild`], for conditions.
    pub(super) fn rebuild_bool(
        &mut self,
        source: Option<&SymTable>,
        b: BoolExpr,
        leaf: Leaf,
    ) -> Result<BoolExpr, SymError> {
        let BoolExpr::Id(id) = b else { return Ok(b) };
        let node = source.unwrap_or(self).bool_node(id).clone();
        match node {
            BoolNode::Rel(op, x, y) => {
                let x = self.rebuild(source, x, leaf)?;
                let y = self.rebuild(source, y, leaf)?;
                Ok(self.rel(op, x, y))
            }
            BoolNode::And(ref parts) | BoolNode::Or(ref parts) => {
                let parts: Result<Vec<BoolExpr>, SymError> = parts
                    .iter()
                    .map(|&p| self.rebuild_bool(source, BoolExpr::Id(p), leaf))
                    .collect();
                self.junction(matches!(node, BoolNode::And(_)), &parts?)
            }
        }
    }
}
