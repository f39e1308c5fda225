//! Conditions: relations, conjunctions and disjunctions, in negation normal form. Negation is
//! pushed down to the relations, so no node is a negation.
//!
//! A relation `a op b` is normalized from the difference `a - b`. Common terms cancel, and the
//! coefficients are divided by their greatest common divisor. The constant of an inequality is then
//! rounded to the next integer, as in the Omega test (Pugh 1991): `2 * s0 <= 5` becomes `s0 <= 2`.
//! An equation whose constant is not divisible is false: `2 * s0 == 3`. Terms with negative
//! coefficients move to the right-hand side. The operands of `and` and `or` are flattened, sorted
//! and deduplicated.

use super::poly::{Poly, Term};
use super::range::{floor_div, floor_mod};
use super::table::{Node, check_weight};
use super::{BoolExpr, BoolId, Expr, Rel, SymError, SymTable};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The operands of a conjunction or disjunction.
pub(super) type Conds = SmallVec<[BoolId; 2]>;

/// A canonical condition that is not a constant. The relation is `Eq`, `Ne`, `Lt` or `Le`; `Gt` and
/// `Ge` exchange their operands. The operands of `And` and `Or` are sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum BoolNode {
    Rel(Rel, Expr, Expr),
    And(Conds),
    Or(Conds),
}

/// Size and depth of a condition; see [`super::table::Info`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BoolInfo {
    id: BoolId,
    size: u32,
    depth: u32,
}

/// The node of an id that this table does not have, which can only belong to another table.
static FOREIGN: BoolNode = BoolNode::Rel(Rel::Ne, Expr::Int(0), Expr::Int(0));

impl SymTable {
    pub(super) fn bool_node(&self, id: BoolId) -> &BoolNode {
        self.bools.get_index(id.0 as usize).map_or(&FOREIGN, |(n, _)| n)
    }

    /// Interns a condition of known size and depth.
    fn insert_bool(&mut self, node: BoolNode, size: u32, depth: u32) -> BoolExpr {
        if let Some(i) = self.bools.get_index_of(&node) {
            return BoolExpr::Id(BoolId(i as u32));
        }
        let id = BoolId(self.bools.len() as u32);
        self.bools.insert(node, BoolInfo { id, size, depth });
        BoolExpr::Id(id)
    }

    /// The condition `a op b` in canonical form; a constant if `a - b` is constant.
    pub fn rel(&mut self, op: Rel, a: Expr, b: Expr) -> BoolExpr {
        if let (Expr::Int(x), Expr::Int(y)) = (a, b) {
            return BoolExpr::Const(op.holds(x, y));
        }
        match op {
            Rel::Gt | Rel::Ge => return self.rel(op.swap(), b, a),
            _ if a == b => return BoolExpr::Const(op.holds(0, 0)),
            _ => {}
        }
        if let Some(&b) = self.relations.0.get(&(op, a, b)) {
            return b;
        }
        let relation = self.rel_new(op, a, b);
        self.relations.0.insert((op, a, b), relation);
        relation
    }

    /// [`SymTable::rel`] without the cache, for relations other than `Gt` and `Ge`.
    fn rel_new(&mut self, op: Rel, a: Expr, b: Expr) -> BoolExpr {
        let (op, a, b) = match self.normalized_sides(op, a, b) {
            Some(Ok(sides)) => sides,
            Some(Err(known)) => return BoolExpr::Const(known),
            // The difference overflows, so the sides keep their common terms; the relation is still
            // valid. Symmetric relations sort their sides.
            None if matches!(op, Rel::Eq | Rel::Ne) && self.cmp_expr(a, b) == Ordering::Less => {
                (op, b, a)
            }
            None => (op, a, b),
        };
        let ((s, d), (t, e)) = (self.weight(a), self.weight(b));
        self.insert_bool(BoolNode::Rel(op, a, b), s.saturating_add(t), d.max(e))
    }

    /// The sides of the canonical relation, or `Err` with the truth value if it is constant, or
    /// `None` on overflow.
    fn normalized_sides(
        &mut self,
        op: Rel,
        a: Expr,
        b: Expr,
    ) -> Option<Result<(Rel, Expr, Expr), bool>> {
        let mut difference = self.add_scaled(&self.poly(a), -1, &self.poly(b))?;
        if let Some(n) = difference.as_const() {
            return Some(Err(op.holds(n, 0)));
        }
        let content = i64::try_from(difference.content()).ok()?;
        if content > 1 {
            let (constant, wide_content) = (i128::from(difference.constant), i128::from(content));
            match op {
                Rel::Eq | Rel::Ne if floor_mod(constant, wide_content) != Some(0) => {
                    return Some(Err(op == Rel::Ne));
                }
                // With `content` g, and `constant` c: g * p + c < 0 is p < ceil(-c / g), and g * p
                // + c <= 0 is p <= floor(-c / g).
                Rel::Lt => {
                    difference.constant = floor_div(constant, wide_content)?.try_into().ok()?
                }
                _ => {
                    difference.constant =
                        i64::try_from(-floor_div(-constant, wide_content)?).ok()?
                }
            }
            for t in &mut difference.terms {
                t.coeff /= content;
            }
        }
        if matches!(op, Rel::Eq | Rel::Ne) && difference.terms.first().is_some_and(|t| t.coeff < 0)
        {
            difference = difference.scale(-1)?;
        }
        let minus = difference.constant.checked_neg()?;
        let (left, right): (Vec<Term>, Vec<Term>) =
            difference.terms.into_iter().partition(|t| t.coeff > 0);
        let mut left = Poly { terms: left.into(), constant: 0 };
        let mut right = Poly { terms: right.into(), constant: 0 }.scale(-1)?;
        if right.terms.is_empty() || (!left.terms.is_empty() && minus > 0) {
            right.constant = minus;
        } else {
            left.constant = difference.constant;
        }
        Some(Ok((op, self.intern_poly(left).ok()?, self.intern_poly(right).ok()?)))
    }

    /// The negation, pushed down to the relations by De Morgan's laws.
    pub fn not(&mut self, b: BoolExpr) -> BoolExpr {
        let id = match b {
            BoolExpr::Const(b) => return BoolExpr::Const(!b),
            BoolExpr::Id(id) => id,
        };
        let (and, parts) = match self.bool_node(id).clone() {
            BoolNode::Rel(op, x, y) => return self.rel(op.negate(), x, y),
            BoolNode::And(parts) => (false, parts),
            BoolNode::Or(parts) => (true, parts),
        };
        let parts: Vec<BoolExpr> = parts.into_iter().map(|p| self.not(BoolExpr::Id(p))).collect();
        // The negation has the size and depth of the operand, so the limits cannot be exceeded.
        self.junction(and, &parts).unwrap_or(BoolExpr::Const(and))
    }

    /// The conjunction.
    ///
    /// # Errors
    /// The condition exceeds a size limit.
    pub fn and(&mut self, a: BoolExpr, b: BoolExpr) -> Result<BoolExpr, SymError> {
        self.junction(true, &[a, b])
    }

    /// The disjunction.
    ///
    /// # Errors
    /// The condition exceeds a size limit.
    pub fn or(&mut self, a: BoolExpr, b: BoolExpr) -> Result<BoolExpr, SymError> {
        self.junction(false, &[a, b])
    }

    /// The conjunction (`and`) or disjunction of conditions.
    pub(super) fn junction(
        &mut self,
        and: bool,
        operands: &[BoolExpr],
    ) -> Result<BoolExpr, SymError> {
        let mut parts = Conds::new();
        for &b in operands {
            match b {
                BoolExpr::Const(b) if b == and => {}
                BoolExpr::Const(_) => return Ok(b),
                BoolExpr::Id(id) => match self.bool_node(id) {
                    BoolNode::And(inner) if and => parts.extend_from_slice(inner),
                    BoolNode::Or(inner) if !and => parts.extend_from_slice(inner),
                    _ => parts.push(id),
                },
            }
        }
        parts.sort_by(|&x, &y| self.cmp_bool(x, y));
        parts.dedup();
        for i in 0..parts.len() {
            // A relation and its negation among the operands decide the junction. Negating a
            // compound operand is too costly here; `prove` handles it.
            if let BoolNode::Rel(op, x, y) = *self.bool_node(parts[i])
                && let BoolExpr::Id(opposite) = self.rel(op.negate(), x, y)
                && parts.contains(&opposite)
            {
                return Ok(BoolExpr::Const(!and));
            }
        }
        match parts.as_slice() {
            [] => return Ok(BoolExpr::Const(and)),
            [b] => return Ok(BoolExpr::Id(*b)),
            _ => {}
        }
        let infos = parts.iter().filter_map(|p| self.bools.get_index(p.0 as usize));
        let (size, depth) =
            infos.fold((0u32, 0), |(s, d), (_, i)| (s.saturating_add(i.size), d.max(i.depth)));
        check_weight(size, depth)?;
        let node = if and { BoolNode::And(parts) } else { BoolNode::Or(parts) };
        Ok(self.insert_bool(node, size + 1, depth + 1))
    }

    /// Structural order of conditions.
    fn cmp_bool(&self, a: BoolId, b: BoolId) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        match (self.bool_node(a), self.bool_node(b)) {
            (BoolNode::Rel(o, x, y), BoolNode::Rel(p, z, w)) => {
                self.cmp_expr(*x, *z).then_with(|| self.cmp_expr(*y, *w)).then(o.cmp(p))
            }
            (BoolNode::And(x), BoolNode::And(y)) | (BoolNode::Or(x), BoolNode::Or(y)) => {
                x.len().cmp(&y.len()).then_with(|| {
                    x.iter()
                        .zip(y)
                        .map(|(&x, &y)| self.cmp_bool(x, y))
                        .find(|o| o.is_ne())
                        .unwrap_or(Ordering::Equal)
                })
            }
            (x, y) => rank(x).cmp(&rank(y)),
        }
    }

    /// The polynomial `a - b`, so that `a op b` is `difference op 0`; `None` on overflow.
    pub(super) fn difference(&self, a: Expr, b: Expr) -> Option<Poly> {
        self.add_scaled(&self.poly(a), -1, &self.poly(b))
    }

    /// The operands, if the atom is a minimum or maximum.
    pub(super) fn arms(&self, n: &Node) -> Option<SmallVec<[Expr; 2]>> {
        match n {
            Node::Min(args) | Node::Max(args) => Some(args.clone()),
            _ => None,
        }
    }
}

/// The order of node kinds.
fn rank(n: &BoolNode) -> u8 {
    match n {
        BoolNode::Rel(..) => 0,
        BoolNode::And(_) => 1,
        BoolNode::Or(_) => 2,
    }
}
