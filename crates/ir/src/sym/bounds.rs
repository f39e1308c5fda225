//! Value analysis of expressions, with two abstract domains over the structure of an expression:
//!
//! - intervals, by interval arithmetic from declared ranges and assumed facts;
//! - congruences `rem + modulus * Z` (Granger 1989), from assumed facts such as `u0 % 4 == 0`.
//!
//! Both are sound: the abstract value contains every value that the expression can take. The
//! interval of a nonlinear polynomial with an infinite bound is refined by
//! [factoring](super::factoring).

use super::factoring::{self, Wanted};
use super::poly::{Poly, gcd};
use super::range::{Interval, floor_div, floor_mod};
use super::table::Node;
use super::{Expr, Range, SymTable, SymbolId};

/// The set `rem + modulus * Z`. Modulus zero is the single value `rem`; modulus one is every
/// integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Congruence {
    pub modulus: i128,
    pub rem: i128,
}

impl Congruence {
    /// Every integer: nothing is known.
    const NONE: Congruence = Congruence { modulus: 1, rem: 0 };

    /// A congruence with `0 <= rem < modulus`, or [`Congruence::NONE`] if the numbers are so large
    /// that a later product could overflow.
    pub fn new(modulus: i128, rem: i128) -> Congruence {
        /// The products of two numbers below the limit fit `i128`.
        const LIMIT: i128 = 1 << 62;
        match modulus {
            0 if rem.abs() < LIMIT => Congruence { modulus: 0, rem },
            m if 0 < m && m < LIMIT => Congruence { modulus: m, rem: rem.rem_euclid(m) },
            _ => Congruence::NONE,
        }
    }

    fn add(self, other: Congruence) -> Congruence {
        Congruence::new(wide_gcd(self.modulus, other.modulus), self.rem + other.rem)
    }

    fn mul(self, other: Congruence) -> Congruence {
        let cross = wide_gcd(self.modulus * other.rem, other.modulus * self.rem);
        Congruence::new(wide_gcd(self.modulus * other.modulus, cross), self.rem * other.rem)
    }

    /// An approximation of the intersection: the congruence with the greater modulus. The exact
    /// intersection would need the Chinese remainder theorem.
    pub fn and(self, other: Congruence) -> Congruence {
        let rank = |c: Congruence| if c.modulus == 0 { i128::MAX } else { c.modulus };
        if rank(other) > rank(self) { other } else { self }
    }
}

fn wide_gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a).unwrap_or(1)
}

/// How many levels deep an atom is factored out of a polynomial.
const MAX_FACTORINGS: u32 = 3;

impl SymTable {
    /// The values of an expression by declared ranges and assumed facts.
    pub fn bounds(&self, e: Expr) -> Range {
        self.proven(e).into()
    }

    /// The values of a symbol by its declared range and assumed facts.
    pub fn proven_range(&self, s: SymbolId) -> Range {
        match (self.facts.subst.get(&s), self.find(&Node::Symbol(s))) {
            (Some(&e), _) => self.bounds(e).intersect(self.range(s)),
            (None, Some(id)) => self.bounds(Expr::Id(id)),
            (None, None) => self.range(s),
        }
    }

    /// The values of a node, given those of its operands.
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

    /// The values of a polynomial: the sum of the intervals of its terms.
    pub(super) fn interval_of_poly(&self, p: &Poly, part: &dyn Fn(Expr) -> Interval) -> Interval {
        p.terms
            .iter()
            .map(|t| Interval::of_product(t.coeff, &t.mono, |atom| part(Expr::Id(atom))))
            .fold(Interval::point(p.constant), Interval::add)
    }

    /// [`SymTable::bounds`] with 128-bit bounds.
    pub(super) fn proven(&self, e: Expr) -> Interval {
        self.proven_within(e, MAX_FACTORINGS)
    }

    /// [`SymTable::proven`] with at most `depth` further levels of factoring.
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
            Node::Poly(p) => return self.factored(p, depth, Wanted::BOTH),
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

    /// The least value of a polynomial by declared ranges and assumed facts, refined by factoring.
    pub(super) fn least(&self, p: &Poly) -> i128 {
        self.factored(p, MAX_FACTORINGS, Wanted::LOWER).lo
    }

    /// Whether the greatest value, found likewise, is not positive.
    pub(super) fn is_never_positive(&self, p: &Poly) -> bool {
        let part = |e| self.proven_within(e, MAX_FACTORINGS - 1);
        match factoring::may_refine(p) {
            true => factoring::is_never_positive(p, MAX_FACTORINGS, part),
            false => self.interval_of_poly(p, &part).hi <= 0,
        }
    }

    /// The term-by-term interval, refined by factoring. Nested polynomials get a smaller `depth`, so
    /// the work does not multiply with the nesting.
    fn factored(&self, p: &Poly, depth: u32, wanted: Wanted) -> Interval {
        let part = |e| self.proven_within(e, depth.saturating_sub(1));
        if depth == 0 || !factoring::may_refine(p) {
            return self.interval_of_poly(p, &part);
        }
        factoring::interval(p, depth, wanted, part)
    }

    /// The values of `x % d` for positive `d`. If `x` is in `rem + modulus * Z`, the remainder is
    /// `rem` modulo `gcd(modulus, d)`.
    pub(super) fn remainder(&self, x: Expr, d: i64) -> Interval {
        let d128 = i128::from(d);
        let congruence = self.congruence(x);
        let step = wide_gcd(congruence.modulus, d128);
        let lo = congruence.rem.rem_euclid(step);
        Interval { lo, hi: d128 - step + lo }
    }

    /// The congruence of an expression.
    pub(super) fn congruence(&self, e: Expr) -> Congruence {
        let id = match e {
            Expr::Int(n) => return Congruence::new(0, n.into()),
            Expr::Id(id) => id,
        };
        let known = match self.node(id) {
            Node::Symbol(s) => {
                self.facts.subst.get(s).map_or(Congruence::NONE, |&e| self.congruence(e))
            }
            Node::Mod(x, Expr::Int(divisor)) => {
                let dividend = self.congruence(*x);
                Congruence::new(wide_gcd(dividend.modulus, (*divisor).into()), dividend.rem)
            }
            Node::FloorDiv(x, Expr::Int(divisor)) => {
                let (c, divisor) = (self.congruence(*x), i128::from(*divisor));
                match (
                    c.modulus != 0 && floor_mod(c.modulus, divisor) == Some(0),
                    floor_div(c.rem, divisor),
                ) {
                    (true, Some(q)) => Congruence::new(c.modulus / divisor, q),
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

    /// The congruence of a polynomial.
    pub(super) fn congruence_poly(&self, p: &Poly) -> Congruence {
        let mut sum = Congruence::new(0, p.constant.into());
        for t in &p.terms {
            let factors = t.mono.iter().map(|&f| self.congruence(Expr::Id(f)));
            sum = sum.add(factors.fold(Congruence::new(0, t.coeff.into()), Congruence::mul));
        }
        // Facts about the remainder of a sum are stored under the sum without its constant.
        let base = Poly { constant: 0, ..p.clone() };
        match self.find(&Node::Poly(base)).and_then(|id| self.facts.congruences.get(&id)) {
            Some(&c) => sum.and(c.add(Congruence::new(0, p.constant.into()))),
            None => sum,
        }
    }

    /// Whether `p` cannot be zero: the content does not divide the constant, or zero is not in the
    /// congruence of `p`.
    pub(super) fn never_zero(&self, p: &Poly) -> bool {
        let content = i128::from(gcd(p.content(), 0));
        if content > 1 && floor_mod(p.constant.into(), content) != Some(0) {
            return true;
        }
        let congruence = self.congruence_poly(p);
        if congruence.modulus == 0 {
            congruence.rem != 0
        } else {
            congruence.rem % congruence.modulus != 0
        }
    }
}
