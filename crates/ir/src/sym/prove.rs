//! Proving conditions, without guessing: an answer holds for every value the symbols may have.
//!
//! An inequality `d <= 0` is proved by the interval of `d`, by cases of a minimum or maximum in it,
//! or by adding known inequalities (asserted, or implied by what a division or remainder is) that
//! cancel a term, or by leaving out a factor that is never negative. The search has a fixed budget.

use super::boolean::BoolNode;
use super::poly::{Poly, Term};
use super::table::Node;
use super::{BoolExpr, Expr, ExprId, Rel, SymTable};
use smallvec::SmallVec;

/// Terms looked at for one question, in all the inequalities that are tried.
const BUDGET: u32 = 2048;
/// Inequalities added in one proof.
const DEPTH: u32 = 4;
/// Inequalities tried for one term, of the latest so many with its atom.
const CANDIDATES: usize = 12;
const SCANNED: usize = 64;

impl SymTable {
    /// Whether a condition always or never holds, by declared ranges and assumed facts; none if
    /// that is not known.
    pub fn prove(&mut self, b: BoolExpr) -> Option<bool> {
        let BoolExpr::Id(id) = b else { return b.as_bool() };
        if let Some(known) = self.facts.cached_answer(id) {
            return known;
        }
        let known = match self.simplify_bool(b) {
            BoolExpr::Const(b) => Some(b),
            BoolExpr::Id(id) => self.prove_new(id),
        };
        self.facts.cache_answer(id, known);
        known
    }

    fn prove_new(&mut self, id: super::BoolId) -> Option<bool> {
        if let Some(&b) = self.facts.conds.get(&id) {
            return Some(b);
        }
        let (and, parts) = match self.bool_node(id).clone() {
            BoolNode::Rel(op, x, y) => return self.prove_rel(op, x, y),
            BoolNode::And(parts) => (true, parts),
            BoolNode::Or(parts) => (false, parts),
        };
        let mut all = Some(and);
        for p in parts {
            match self.prove(BoolExpr::Id(p)) {
                Some(b) if b == and => {}
                Some(b) => return Some(b),
                None => all = None,
            }
        }
        all
    }

    fn prove_rel(&self, op: Rel, x: Expr, y: Expr) -> Option<bool> {
        let d = self.difference(x, y)?;
        let minus = d.clone().scale(-1)?;
        let plus =
            |p: &Poly, n: i64| Some(Poly { constant: p.constant.checked_add(n)?, ..p.clone() });
        match op {
            Rel::Le if self.nonpositive(&d) => Some(true),
            Rel::Le if self.nonpositive(&plus(&minus, 1)?) => Some(false),
            Rel::Lt if self.nonpositive(&plus(&d, 1)?) => Some(true),
            Rel::Lt if self.nonpositive(&minus) => Some(false),
            Rel::Eq | Rel::Ne => {
                let ne = op == Rel::Ne;
                if self.never_zero(&d)
                    || self.nonpositive(&plus(&d, 1)?)
                    || self.nonpositive(&plus(&minus, 1)?)
                {
                    Some(ne)
                } else if self.nonpositive(&d) && self.nonpositive(&minus) {
                    Some(!ne)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// Whether `d <= 0` is proved.
    pub(super) fn nonpositive(&self, d: &Poly) -> bool {
        self.search(d, DEPTH, &mut { BUDGET })
    }

    fn search(&self, d: &Poly, depth: u32, budget: &mut u32) -> bool {
        if *budget == 0 {
            return false;
        }
        *budget = budget.saturating_sub(1 + d.terms.len() as u32);
        if self.proven_poly(d).hi <= 0 {
            return true;
        }
        if depth == 0 {
            return false;
        }
        if let Some(rest) = self.without_common_atom(d)
            && self.search(&rest, depth - 1, budget)
        {
            return true;
        }
        let atoms = d.terms.iter().flat_map(|t| t.mono.iter().copied());
        if let Some((atom, arms)) =
            atoms.into_iter().find_map(|f| Some((f, self.arms(self.node(f))?)))
            && arms.iter().all(|&a| {
                self.replace(d, atom, &self.poly(a))
                    .is_some_and(|d| self.search(&d, depth - 1, budget))
            })
        {
            return true;
        }
        d.terms.iter().any(|t| {
            let facts = self.candidates(t);
            facts.iter().any(|f| {
                *budget > 0
                    && self.cancel(d, t, f).is_some_and(|d| self.search(&d, depth - 1, budget))
            })
        })
    }

    /// A positive multiple of `d` minus a positive multiple of `fact`, without the term.
    fn cancel(&self, d: &Poly, t: &Term, fact: &Poly) -> Option<Poly> {
        let c = fact.coeff(&t.mono);
        if c == 0 || (c < 0) != (t.coeff < 0) {
            return None;
        }
        let g = super::poly::gcd(c.unsigned_abs(), t.coeff.unsigned_abs());
        let (up, down) = (
            i64::try_from(c.unsigned_abs() / g).ok()?,
            i64::try_from(t.coeff.unsigned_abs() / g).ok()?,
        );
        self.add_scaled(&d.clone().scale(up)?, -down, fact)
    }

    /// Known inequalities `f <= 0` with the term's monomial and the sign of its coefficient.
    fn candidates(&self, t: &Term) -> SmallVec<[Poly; 4]> {
        let fits = |p: &&Poly| {
            let c = p.coeff(&t.mono);
            c != 0 && (c < 0) == (t.coeff < 0)
        };
        let mut out: SmallVec<[Poly; 4]> = self
            .facts
            .constraints_on(t.mono[0])
            .take(SCANNED)
            .filter(fits)
            .take(CANDIDATES)
            .cloned()
            .collect();
        for &f in &t.mono {
            out.extend(self.implied(f).into_iter().filter(|p| fits(&p)));
        }
        out
    }

    /// Inequalities `f <= 0` that hold by what the atom is.
    fn implied(&self, atom: ExprId) -> SmallVec<[Poly; 4]> {
        let this = Poly::atom(atom);
        let mut out = SmallVec::new();
        let mut push = |p: Option<Poly>| out.extend(p);
        let shift = |p: Poly, n: i128| {
            Some(Poly { constant: i64::try_from(n).ok()?.checked_add(p.constant)?, ..p })
        };
        match self.node(atom) {
            // d * q + r = x with r between the least and greatest remainder
            Node::FloorDiv(x, b) if self.proven(*b).lo > 0 => {
                let times = self.mul_poly(&self.poly(*b), &this).ok().flatten();
                let below = times.and_then(|p| self.add_scaled(&p, -1, &self.poly(*x)));
                let above = below.clone().and_then(|p| p.scale(-1));
                if let Expr::Int(d) = b {
                    let r = self.remainder(*x, *d);
                    push(below.and_then(|p| shift(p, r.lo)));
                    push(above.and_then(|p| shift(p, -r.hi)));
                } else {
                    push(below);
                    push(
                        above
                            .and_then(|p| self.add_scaled(&p, -1, &self.poly(*b)))
                            .and_then(|p| shift(p, 1)),
                    );
                }
            }
            Node::Mod(x, b) if self.proven(*b).lo > 0 => {
                push(self.add_scaled(&this, -1, &self.poly(*b)).and_then(|p| shift(p, 1)));
                if self.proven(*x).lo >= 0 {
                    push(self.add_scaled(&this, -1, &self.poly(*x)));
                }
            }
            Node::Min(args) => {
                args.iter().for_each(|&a| push(self.add_scaled(&this, -1, &self.poly(a))))
            }
            Node::Max(args) => {
                args.iter().for_each(|&a| push(self.add_scaled(&self.poly(a), -1, &this)))
            }
            _ => {}
        }
        out
    }

    /// The polynomial with an atom replaced; `None` on overflow.
    pub(super) fn replace(&self, p: &Poly, atom: ExprId, by: &Poly) -> Option<Poly> {
        let mut sum = Poly::constant(p.constant);
        for t in &p.terms {
            let kept: super::poly::Mono = t.mono.iter().copied().filter(|&f| f != atom).collect();
            let mut product = match kept.is_empty() {
                true => Poly::constant(t.coeff),
                false => Poly {
                    terms: SmallVec::from_elem(Term { coeff: t.coeff, mono: kept.clone() }, 1),
                    constant: 0,
                },
            };
            for _ in kept.len()..t.mono.len() {
                product = self.mul_poly(&product, by).ok()??;
            }
            sum = self.add_scaled(&sum, 1, &product)?;
        }
        Some(sum)
    }
}
