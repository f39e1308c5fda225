//! Conditions: relations, conjunctions, disjunctions. Negation is pushed inwards, so no node is a
//! negation.

use super::poly::{Poly, Term};
use super::range::{floor_div, floor_mod};
use super::table::{Node, check_weight};
use super::{BoolExpr, BoolId, Expr, Rel, SymError, SymTable};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The operands of a conjunction or disjunction.
pub(super) type Conds = SmallVec<[BoolId; 2]>;

/// A canonical condition that is not a constant. Relations are `Eq`, `Ne`, `Lt` or `Le`; operands
/// of `And` and `Or` are sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum BoolNode {
    Rel(Rel, Expr, Expr),
    And(Conds),
    Or(Conds),
}

/// As [`super::table::Info`], for conditions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BoolInfo {
    id: BoolId,
    size: u32,
    depth: u32,
}

static FOREIGN: BoolNode = BoolNode::Rel(Rel::Ne, Expr::Int(0), Expr::Int(0));

impl SymTable {
    pub(super) fn bool_node(&self, id: BoolId) -> &BoolNode {
        self.bools.get_index(id.0 as usize).map_or(&FOREIGN, |(n, _)| n)
    }

    fn insert_bool(&mut self, node: BoolNode, size: u32, depth: u32) -> BoolExpr {
        if let Some(i) = self.bools.get_index_of(&node) {
            return BoolExpr::Id(BoolId(i as u32));
        }
        let id = BoolId(self.bools.len() as u32);
        self.bools.insert(node, BoolInfo { id, size, depth });
        BoolExpr::Id(id)
    }

    /// The relation between two expressions, common terms cancelled; constant if their difference
    /// is.
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
        let made = self.rel_new(op, a, b);
        self.relations.0.insert((op, a, b), made);
        made
    }

    fn rel_new(&mut self, op: Rel, a: Expr, b: Expr) -> BoolExpr {
        let (op, a, b) = match self.balanced(op, a, b) {
            Some(Ok(sides)) => sides,
            Some(Err(known)) => return BoolExpr::Const(known),
            // Too large to cancel: kept as it is, which is still right.
            None if matches!(op, Rel::Eq | Rel::Ne) && self.cmp_expr(a, b) == Ordering::Less => {
                (op, b, a)
            }
            None => (op, a, b),
        };
        let ((s, d), (t, e)) = (self.weight(a), self.weight(b));
        self.insert_bool(BoolNode::Rel(op, a, b), s.saturating_add(t), d.max(e))
    }

    /// Both sides after cancelling common terms and factors; or the answer; or nothing on overflow.
    fn balanced(&mut self, op: Rel, a: Expr, b: Expr) -> Option<Result<(Rel, Expr, Expr), bool>> {
        let mut d = self.add_scaled(&self.poly(a), -1, &self.poly(b))?;
        if let Some(n) = d.as_const() {
            return Some(Err(op.holds(n, 0)));
        }
        let g = i64::try_from(d.content()).ok()?;
        if g > 1 {
            let (c, g128) = (i128::from(d.constant), i128::from(g));
            match op {
                Rel::Eq | Rel::Ne if floor_mod(c, g128) != Some(0) => {
                    return Some(Err(op == Rel::Ne));
                }
                // g * p + c < 0 is p < ceil(-c / g), and likewise for <=, rounding down.
                Rel::Lt => d.constant = floor_div(c, g128)?.try_into().ok()?,
                _ => d.constant = i64::try_from(-floor_div(-c, g128)?).ok()?,
            }
            for t in &mut d.terms {
                t.coeff /= g;
            }
        }
        if matches!(op, Rel::Eq | Rel::Ne) && d.terms.first().is_some_and(|t| t.coeff < 0) {
            d = d.scale(-1)?;
        }
        let minus = d.constant.checked_neg()?;
        let (left, right): (Vec<Term>, Vec<Term>) = d.terms.into_iter().partition(|t| t.coeff > 0);
        let mut left = Poly { terms: left.into(), constant: 0 };
        let mut right = Poly { terms: right.into(), constant: 0 }.scale(-1)?;
        if right.terms.is_empty() || (!left.terms.is_empty() && minus > 0) {
            right.constant = minus;
        } else {
            left.constant = d.constant;
        }
        Some(Ok((op, self.intern_poly(left).ok()?, self.intern_poly(right).ok()?)))
    }

    /// The negation.
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
        // As large as what is negated, so within the limits.
        self.junction(and, &parts).unwrap_or(BoolExpr::Const(and))
    }

    /// Both; an error if the condition becomes too large.
    pub fn and(&mut self, a: BoolExpr, b: BoolExpr) -> Result<BoolExpr, SymError> {
        self.junction(true, &[a, b])
    }

    /// One or both; an error if the condition becomes too large.
    pub fn or(&mut self, a: BoolExpr, b: BoolExpr) -> Result<BoolExpr, SymError> {
        self.junction(false, &[a, b])
    }

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
            // Only relations can be exact opposites cheaply; others are left to `prove`.
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

    /// The relation as `difference op 0`; `None` on overflow.
    pub(super) fn difference(&self, a: Expr, b: Expr) -> Option<Poly> {
        self.add_scaled(&self.poly(a), -1, &self.poly(b))
    }

    /// Whether an atom is a minimum or maximum, and its operands.
    pub(super) fn arms(&self, n: &Node) -> Option<SmallVec<[Expr; 2]>> {
        match n {
            Node::Min(args) | Node::Max(args) => Some(args.clone()),
            _ => None,
        }
    }
}

fn rank(n: &BoolNode) -> u8 {
    match n {
        BoolNode::Rel(..) => 0,
        BoolNode::And(_) => 1,
        BoolNode::Or(_) => 2,
    }
}
