//! Which values an expression can have: intervals, and remainders known by assumption.

use super::poly::{Poly, Term, gcd};
use super::range::{Interval, floor_div, floor_mod};
use super::table::Node;
use super::{Expr, ExprId, Range, SymTable, SymbolId};
use smallvec::SmallVec;

/// All values are `rem` plus a multiple of `modulus`; modulus zero means the value `rem`, one means
/// nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Congruence {
    pub modulus: i128,
    pub rem: i128,
}

impl Congruence {
    const NONE: Congruence = Congruence { modulus: 1, rem: 0 };

    /// Reduced; unknown if the numbers grow too large to multiply safely.
    pub fn new(modulus: i128, rem: i128) -> Congruence {
        const LIMIT: i128 = 1 << 62;
        match modulus {
            0 if rem.abs() < LIMIT => Congruence { modulus: 0, rem },
            m if 0 < m && m < LIMIT => Congruence { modulus: m, rem: rem.rem_euclid(m) },
            _ => Congruence::NONE,
        }
    }

    fn add(self, o: Congruence) -> Congruence {
        Congruence::new(wide_gcd(self.modulus, o.modulus), self.rem + o.rem)
    }

    fn mul(self, o: Congruence) -> Congruence {
        let cross = wide_gcd(self.modulus * o.rem, o.modulus * self.rem);
        Congruence::new(wide_gcd(self.modulus * o.modulus, cross), self.rem * o.rem)
    }

    /// What both say, or the stronger of them where that is not one congruence.
    pub fn and(self, o: Congruence) -> Congruence {
        let rank = |c: Congruence| if c.modulus == 0 { i128::MAX } else { c.modulus };
        if rank(o) > rank(self) { o } else { self }
    }
}

fn wide_gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a).unwrap_or(1)
}

/// Atoms taken out of a polynomial, one after the other.
const FACTORED: u32 = 3;

impl SymTable {
    /// The values an expression can have, by declared ranges and assumed facts.
    pub fn bounds(&self, e: Expr) -> Range {
        self.proven(e).into()
    }

    /// The range of a symbol by declaration and assumed facts.
    pub fn proven_range(&self, s: SymbolId) -> Range {
        match (self.facts.subst.get(&s), self.find(&Node::Symbol(s))) {
            (Some(&e), _) => self.bounds(e).intersect(self.range(s)),
            (None, Some(id)) => self.bounds(Expr::Id(id)),
            (None, None) => self.range(s),
        }
    }

    /// The values of a node, given those of its parts.
    pub(super) fn interval_of(&self, node: &Node, part: &dyn Fn(Expr) -> Interval) -> Interval {
        match node {
            Node::Symbol(s) => self.range(*s).into(),
            Node::FloorDiv(a, b) => part(*a).floor_div(part(*b)),
            Node::Mod(a, b) => part(*a).modulo(part(*b)),
            Node::Min(args) => {
                args.iter().map(|&e| part(e)).reduce(Interval::min).unwrap_or(Interval::ALL)
            }
            Node::Max(args) => {
                args.iter().map(|&e| part(e)).reduce(Interval::max).unwrap_or(Interval::ALL)
            }
            Node::Poly(p) => self.interval_of_poly(p, part),
        }
    }

    /// The values of a polynomial, term by term.
    pub(super) fn interval_of_poly(&self, p: &Poly, part: &dyn Fn(Expr) -> Interval) -> Interval {
        p.terms
            .iter()
            .map(|t| self.interval_of_term(t, part))
            .fold(Interval::point(p.constant), Interval::add)
    }

    fn interval_of_term(&self, t: &Term, part: &dyn Fn(Expr) -> Interval) -> Interval {
        let mut product = Interval::point(t.coeff);
        for power in t.mono.chunk_by(|x, y| x == y) {
            let base = part(Expr::Id(power[0]));
            let mut i = power.iter().fold(Interval::point(1), |i, _| i.mul(base));
            if power.len() % 2 == 0 {
                i.lo = i.lo.max(0);
            }
            product = product.mul(i);
        }
        product
    }

    pub(super) fn proven(&self, e: Expr) -> Interval {
        self.proven_within(e, FACTORED)
    }

    /// `depth`: how often an atom may be taken out, of a polynomial and of those nested in it.
    fn proven_within(&self, e: Expr, depth: u32) -> Interval {
        let part = |e| self.proven_within(e, depth);
        let id = match e {
            Expr::Int(n) => return Interval::point(n),
            Expr::Id(id) => id,
        };
        let node = self.node(id);
        let known = match node {
            Node::Symbol(s) => match self.facts.subst.get(s) {
                Some(&e) => part(e).intersect(self.range(*s).into()),
                None => self.range(*s).into(),
            },
            Node::Poly(p) => return self.factored(p, depth),
            Node::Mod(x, Expr::Int(d)) if *d > 0 => {
                self.remainder(*x, *d).intersect(self.interval_of(node, &part))
            }
            _ => self.interval_of(node, &part),
        };
        match self.facts.ranges.get(&id) {
            Some(&r) => known.intersect(r.into()),
            None => known,
        }
    }

    /// The values of a polynomial by all that is known of its atoms, also with a common atom taken
    /// out: `a * b - a` is `a * (b - 1)`.
    pub(super) fn proven_poly(&self, p: &Poly) -> Interval {
        self.factored(p, FACTORED)
    }

    /// What is nested has fewer turns left: the work does not multiply with each level.
    fn factored(&self, p: &Poly, depth: u32) -> Interval {
        let part = |e| self.proven_within(e, depth.saturating_sub(1));
        let mut i = self.interval_of_poly(p, &part);
        let nonlinear = p.terms.first().is_some_and(|t| t.mono.len() > 1);
        let infinite = i.lo == i128::MIN || i.hi == i128::MAX;
        if !nonlinear || !infinite || depth == 0 || p.terms.len() > 16 {
            return i;
        }
        let mut seen: SmallVec<[ExprId; 4]> = SmallVec::new();
        for f in p.terms.iter().flat_map(|t| &t.mono) {
            if seen.contains(f) || seen.len() == 4 {
                continue;
            }
            seen.push(*f);
            let (with, rest): (Vec<Term>, Vec<Term>) =
                p.terms.iter().cloned().partition(|t| t.mono.contains(f));
            if with.len() < 2 {
                continue;
            }
            let mut inner = Poly::default();
            for t in with {
                match Self::div_mono(&t.mono, &[*f]) {
                    Some(mono) if mono.is_empty() => inner.constant = t.coeff,
                    Some(mono) => inner.terms.push(Term { coeff: t.coeff, mono }),
                    None => {}
                }
            }
            let rest = Poly { terms: rest.into(), constant: p.constant };
            let product = part(Expr::Id(*f)).mul(self.factored(&inner, depth - 1));
            i = i.intersect(product.add(self.factored(&rest, depth - 1)));
        }
        i
    }

    /// The values of `x % d` for positive `d`.
    pub(super) fn remainder(&self, x: Expr, d: i64) -> Interval {
        let d128 = i128::from(d);
        let c = self.congruence(x);
        let step = wide_gcd(c.modulus, d128);
        let lo = c.rem.rem_euclid(step);
        Interval { lo, hi: d128 - step + lo }
    }

    /// What is known of the remainders of an expression.
    pub(super) fn congruence(&self, e: Expr) -> Congruence {
        let id = match e {
            Expr::Int(n) => return Congruence::new(0, n.into()),
            Expr::Id(id) => id,
        };
        let known = match self.node(id) {
            Node::Symbol(s) => {
                self.facts.subst.get(s).map_or(Congruence::NONE, |&e| self.congruence(e))
            }
            Node::Mod(x, Expr::Int(d)) => {
                let c = self.congruence(*x);
                Congruence::new(wide_gcd(c.modulus, (*d).into()), c.rem)
            }
            Node::FloorDiv(x, Expr::Int(d)) => {
                let (c, d) = (self.congruence(*x), i128::from(*d));
                match (c.modulus != 0 && floor_mod(c.modulus, d) == Some(0), floor_div(c.rem, d)) {
                    (true, Some(q)) => Congruence::new(c.modulus / d, q),
                    _ => Congruence::NONE,
                }
            }
            Node::Min(args) | Node::Max(args) => {
                let all = args.iter().map(|&a| self.congruence(a));
                all.reduce(|a, b| {
                    Congruence::new(wide_gcd(wide_gcd(a.modulus, b.modulus), a.rem - b.rem), a.rem)
                })
                .unwrap_or(Congruence::NONE)
            }
            Node::Poly(p) => return self.congruence_poly(p),
            _ => Congruence::NONE,
        };
        known.and(self.facts.congruences.get(&id).copied().unwrap_or(Congruence::NONE))
    }

    pub(super) fn congruence_poly(&self, p: &Poly) -> Congruence {
        let mut sum = Congruence::new(0, p.constant.into());
        for t in &p.terms {
            let factors = t.mono.iter().map(|&f| self.congruence(Expr::Id(f)));
            sum = sum.add(factors.fold(Congruence::new(0, t.coeff.into()), Congruence::mul));
        }
        // A fact about the whole sum, which is kept without its constant.
        let base = Poly { constant: 0, ..p.clone() };
        match self.find(&Node::Poly(base)).and_then(|id| self.facts.congruences.get(&id)) {
            Some(&c) => sum.and(c.add(Congruence::new(0, p.constant.into()))),
            None => sum,
        }
    }

    /// The common factor of all coefficients does not divide the constant, or a known remainder is
    /// not zero.
    pub(super) fn never_zero(&self, p: &Poly) -> bool {
        let g = i128::from(gcd(p.content(), 0));
        if g > 1 && floor_mod(p.constant.into(), g) != Some(0) {
            return true;
        }
        let c = self.congruence_poly(p);
        if c.modulus == 0 { c.rem != 0 } else { c.rem % c.modulus != 0 }
    }
}
