//! The prover: decides conditions that hold, or fail, for every assignment allowed by declared
//! ranges and assumed facts. It is sound and incomplete; `None` means that no proof was found.
//!
//! A relation is reduced to goals of the form `d <= 0`, where `d` is a polynomial. The prover
//! tries, in this order:
//!
//! 1. the interval of `d`;
//! 2. dropping a factor that is never negative: `a * e <= 0` follows from `e <= 0` and `a >= 0`;
//! 3. a case split on a minimum or maximum: the goal must hold with each operand in its place;
//! 4. cancelling a term with a known inequality `f <= 0`: if `d` and `f` have a monomial with
//!    coefficients of the same sign, positive multiples of both are subtracted, and
//!    `m * d - n * f <= 0` implies `d <= 0`. This step is Fourier-Motzkin elimination directed by
//!    the goal; repeated, it searches for a nonnegative combination of facts, as in Farkas' lemma.
//!
//! The inequalities of step 4 are assumed facts, and those that define an atom: for `q = x // b`
//! with `b > 0`, `b * q <= x` and `x < b * q + b`. For example, `u0 <= u1` and `u1 < s0` prove
//! `u0 < s0`: the goal `u0 - s0 + 1 <= 0` minus the first fact is `u1 - s0 + 1 <= 0`, which is the
//! second.
//!
//! A goal that is false in a model of the facts has no proof ([`models`](super::models)).
//!
//! The search depth is at most [`DEPTH`], and all steps of one goal share [`BUDGET`] terms. Steps
//! in another order lead to the same goals, so goals without a proof are kept, and not searched
//! again at the same depth or a lesser one.

use super::boolean::BoolNode;
use super::poly::{Mono, Poly, Term, gcd};
use super::table::Node;
use super::{BoolExpr, Expr, ExprId, Rel, SymTable};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most terms visited in the search for one goal.
const BUDGET: u32 = 2048;
/// The greatest depth of the search: the most steps on one path of a proof.
const DEPTH: u32 = 4;
/// The most facts tried for one term.
const CANDIDATES: usize = 12;
/// The most facts examined for one term: the newest that contain its first atom.
const SCANNED: usize = 64;

/// The state of the search for one goal.
struct Search {
    /// The terms that may still be visited.
    budget: u32,
    /// Goals without a proof, and the depth to which they were searched.
    failed: FxHashMap<Poly, u32>,
}

impl SymTable {
    /// `Some(true)` if the condition always holds, `Some(false)` if it never holds, by declared
    /// ranges and assumed facts; `None` if no proof was found. Answers are cached until a fact is
    /// added.
    pub fn prove(&mut self, b: BoolExpr) -> Option<bool> {
        let BoolExpr::Id(id) = b else { return b.as_bool() };
        if let Some(known) = self.facts.cached_answer(id) {
            return known;
        }
        let known = match self.simplify_bool(b) {
            BoolExpr::Const(b) => Some(b),
            BoolExpr::Id(id) => {
                self.find_models();
                self.prove_new(id)
            }
        };
        self.facts.cache_answer(id, known);
        known
    }

    /// [`SymTable::prove`] of a simplified condition, without the cache.
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

    /// Decides `x op y` through goals on the difference `x - y`; `p < 0` is `p + 1 <= 0` over
    /// integers.
    fn prove_rel(&self, op: Rel, x: Expr, y: Expr) -> Option<bool> {
        let difference = self.difference(x, y)?;
        let minus = difference.clone().scale(-1)?;
        let plus =
            |p: &Poly, n: i64| Some(Poly { constant: p.constant.checked_add(n)?, ..p.clone() });
        match op {
            Rel::Le if self.nonpositive(&difference) => Some(true),
            Rel::Le if self.nonpositive(&plus(&minus, 1)?) => Some(false),
            Rel::Lt if self.nonpositive(&plus(&difference, 1)?) => Some(true),
            Rel::Lt if self.nonpositive(&minus) => Some(false),
            Rel::Eq | Rel::Ne => {
                let ne = op == Rel::Ne;
                if self.never_zero(&difference)
                    || self.nonpositive(&plus(&difference, 1)?)
                    || self.nonpositive(&plus(&minus, 1)?)
                {
                    Some(ne)
                } else if self.nonpositive(&difference) && self.nonpositive(&minus) {
                    Some(!ne)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// Whether the search proves `d <= 0`.
    pub(super) fn nonpositive(&self, d: &Poly) -> bool {
        self.search(d, DEPTH, &mut Search { budget: BUDGET, failed: FxHashMap::default() })
    }

    /// One level of the search described at the head of the module.
    fn search(&self, goal: &Poly, depth: u32, search: &mut Search) -> bool {
        if search.budget == 0 || search.failed.get(goal).is_some_and(|tried| depth <= *tried) {
            return false;
        }
        if self.is_refuted(goal) {
            return false;
        }
        search.budget = search.budget.saturating_sub(1 + goal.terms.len() as u32);
        let proven = self.is_never_positive(goal) || depth > 0 && self.step(goal, depth, search);
        if !proven {
            search.failed.insert(goal.clone(), depth);
        }
        proven
    }

    /// Whether a step leads from a goal to one that the search proves.
    fn step(&self, goal: &Poly, depth: u32, search: &mut Search) -> bool {
        if let Some(rest) = self.without_common_atom(goal)
            && self.search(&rest, depth - 1, search)
        {
            return true;
        }
        let atoms = goal.terms.iter().flat_map(|term| term.mono.iter().copied());
        if let Some((atom, arms)) =
            atoms.into_iter().find_map(|f| Some((f, self.arms(self.node(f))?)))
            && arms.iter().all(|&a| {
                self.replace(goal, atom, &self.poly(a))
                    .is_some_and(|goal| self.search(&goal, depth - 1, search))
            })
        {
            return true;
        }
        goal.terms.iter().any(|term| {
            let facts = self.candidates(term);
            facts.iter().any(|f| {
                search.budget > 0
                    && self
                        .cancel(goal, term, f)
                        .is_some_and(|goal| self.search(&goal, depth - 1, search))
            })
        })
    }

    /// The goal after step 4 with the inequality `fact <= 0`: a positive multiple of `goal` minus a
    /// positive multiple of `fact`, such that `term` cancels. `None` if the signs differ or on
    /// overflow.
    fn cancel(&self, goal: &Poly, term: &Term, fact: &Poly) -> Option<Poly> {
        let coeff = fact.coeff(&term.mono);
        if coeff == 0 || (coeff < 0) != (term.coeff < 0) {
            return None;
        }
        let gcd = gcd(coeff.unsigned_abs(), term.coeff.unsigned_abs());
        let (up, down) = (
            i64::try_from(coeff.unsigned_abs() / gcd).ok()?,
            i64::try_from(term.coeff.unsigned_abs() / gcd).ok()?,
        );
        self.add_scaled(&goal.clone().scale(up)?, -down, fact)
    }

    /// The polynomials of known inequalities that contain the term's monomial with a coefficient of
    /// the same sign.
    fn candidates(&self, term: &Term) -> SmallVec<[Poly; 4]> {
        let fits = |p: &&Poly| {
            let coeff = p.coeff(&term.mono);
            coeff != 0 && (coeff < 0) == (term.coeff < 0)
        };
        let mut out: SmallVec<[Poly; 4]> = self
            .facts
            .constraints_on(term.mono[0])
            .take(SCANNED)
            .filter(fits)
            .take(CANDIDATES)
            .cloned()
            .collect();
        for &f in &term.mono {
            out.extend(self.implied(f).into_iter().filter(|p| fits(&p)));
        }
        out
    }

    /// The polynomials of inequalities that hold by the definition of an atom.
    fn implied(&self, atom: ExprId) -> SmallVec<[Poly; 4]> {
        let this = Poly::atom(atom);
        let mut out = SmallVec::new();
        let mut push = |p: Option<Poly>| out.extend(p);
        let shift = |p: Poly, n: i128| {
            Some(Poly { constant: i64::try_from(n).ok()?.checked_add(p.constant)?, ..p })
        };
        match self.node(atom) {
            // d * q + r = x, where r is between the least and the greatest remainder.
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

    /// The polynomial with an atom replaced by another polynomial; `None` on overflow.
    pub(super) fn replace(&self, p: &Poly, atom: ExprId, by: &Poly) -> Option<Poly> {
        let mut sum = Poly::constant(p.constant);
        for t in &p.terms {
            let kept: Mono = t.mono.iter().copied().filter(|&f| f != atom).collect();
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
