//! Polynomials over atoms, the canonical form of expressions.

use super::{Expr, ExprId, SymError, SymTable, table::Node};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// A product of atoms, in structural order, repeated for powers.
pub(super) type Mono = SmallVec<[ExprId; 2]>;

/// A product with a nonzero coefficient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub coeff: i64,
    pub mono: Mono,
}

/// A sum of terms with different monomials, in structural order (highest degree first), and a
/// constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Poly {
    pub terms: SmallVec<[Term; 2]>,
    pub constant: i64,
}

/// The most terms of one sum.
pub(super) const MAX_TERMS: usize = 4096;
/// The highest degree of a term.
pub(super) const MAX_DEGREE: usize = 64;

impl Poly {
    pub fn constant(n: i64) -> Poly {
        Poly { terms: SmallVec::new(), constant: n }
    }

    pub fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The polynomial of one atom.
    pub fn atom(id: ExprId) -> Poly {
        Poly {
            terms: SmallVec::from_elem(Term { coeff: 1, mono: SmallVec::from_elem(id, 1) }, 1),
            constant: 0,
        }
    }

    pub fn scale(mut self, k: i64) -> Option<Poly> {
        if k == 0 {
            return Some(Poly::default());
        }
        for t in &mut self.terms {
            t.coeff = t.coeff.checked_mul(k)?;
        }
        self.constant = self.constant.checked_mul(k)?;
        Some(self)
    }

    /// The greatest common divisor of the coefficients, without the constant; zero if there are
    /// none.
    pub fn content(&self) -> u64 {
        self.terms.iter().fold(0, |g, t| gcd(g, t.coeff.unsigned_abs()))
    }

    /// The coefficient of a monomial, zero if it does not occur.
    pub fn coeff(&self, mono: &[ExprId]) -> i64 {
        self.terms.iter().find(|t| t.mono.as_slice() == mono).map_or(0, |t| t.coeff)
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl SymTable {
    /// The polynomial of an expression.
    pub(super) fn poly(&self, e: Expr) -> Poly {
        match e {
            Expr::Int(n) => Poly::constant(n),
            Expr::Id(id) => match self.node(id) {
                Node::Poly(p) => p.clone(),
                _ => Poly::atom(id),
            },
        }
    }

    /// Higher degrees first, then by the first atom that differs.
    pub(super) fn cmp_mono(&self, a: &[ExprId], b: &[ExprId]) -> Ordering {
        b.len().cmp(&a.len()).then_with(|| {
            a.iter()
                .zip(b)
                .map(|(&x, &y)| self.cmp_id(x, y))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        })
    }

    /// `a + k * b`; `None` on overflow.
    pub(super) fn add_scaled(&self, a: &Poly, k: i64, b: &Poly) -> Option<Poly> {
        let constant = a.constant.checked_add(b.constant.checked_mul(k)?)?;
        let mut out =
            Poly { terms: SmallVec::with_capacity(a.terms.len() + b.terms.len()), constant };
        if k == 0 {
            return Some(a.clone());
        }
        let (mut i, mut j) = (a.terms.iter().peekable(), b.terms.iter().peekable());
        loop {
            let order = match (i.peek(), j.peek()) {
                (None, None) => return Some(out),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(x), Some(y)) => self.cmp_mono(&x.mono, &y.mono),
            };
            let left = if order.is_le() { i.next() } else { None };
            let right = if order.is_ge() { j.next() } else { None };
            let coeff = match (left, right) {
                (Some(x), Some(y)) => x.coeff.checked_add(y.coeff.checked_mul(k)?)?,
                (Some(x), None) => x.coeff,
                (None, Some(y)) => y.coeff.checked_mul(k)?,
                (None, None) => 0,
            };
            if let (true, Some(t)) = (coeff != 0, left.or(right)) {
                out.terms.push(Term { coeff, mono: t.mono.clone() });
            }
        }
    }

    /// The product of two monomials.
    pub(super) fn mul_mono(&self, a: &[ExprId], b: &[ExprId]) -> Mono {
        let mut out: Mono = a.iter().chain(b).copied().collect();
        if !a.is_empty() && !b.is_empty() {
            out.sort_by(|&x, &y| self.cmp_id(x, y));
        }
        out
    }

    /// The product of two polynomials; `None` on overflow.
    pub(super) fn mul_poly(&self, a: &Poly, b: &Poly) -> Result<Option<Poly>, SymError> {
        let degree = |p: &Poly| p.terms.first().map_or(0, |t| t.mono.len());
        if degree(a) + degree(b) > MAX_DEGREE {
            return Err(SymError::TooLarge { what: "factors", limit: MAX_DEGREE });
        }
        if (a.terms.len() + 1).saturating_mul(b.terms.len() + 1) > 4 * MAX_TERMS {
            return Err(SymError::TooLarge { what: "terms", limit: MAX_TERMS });
        }
        let all = |p: &Poly| -> Vec<Term> {
            let constant = (p.constant != 0).then(|| Term { coeff: p.constant, mono: Mono::new() });
            p.terms.iter().cloned().chain(constant).collect()
        };
        let (left, right) = (all(a), all(b));
        let mut products = Vec::with_capacity(left.len() * right.len());
        for x in &left {
            for y in &right {
                let Some(coeff) = x.coeff.checked_mul(y.coeff) else { return Ok(None) };
                products.push(Term { coeff, mono: self.mul_mono(&x.mono, &y.mono) });
            }
        }
        Ok(self.collect(products))
    }

    /// Sorts terms and adds those of one monomial; `None` on overflow.
    pub(super) fn collect(&self, mut terms: Vec<Term>) -> Option<Poly> {
        terms.sort_by(|x, y| self.cmp_mono(&x.mono, &y.mono));
        let mut out = Poly::default();
        for group in terms.chunk_by(|x, y| x.mono == y.mono) {
            // Summed wide, so that the order of addition cannot matter.
            let sum = group.iter().try_fold(0i128, |s, t| s.checked_add(t.coeff.into()))?;
            let coeff = i64::try_from(sum).ok()?;
            match group.first() {
                Some(t) if t.mono.is_empty() => out.constant = coeff,
                Some(t) if coeff != 0 => out.terms.push(Term { coeff, mono: t.mono.clone() }),
                _ => {}
            }
        }
        Some(out)
    }

    /// `a` without the factors `b`, if `b` divides it.
    pub(super) fn div_mono(a: &[ExprId], b: &[ExprId]) -> Option<Mono> {
        let mut rest: Mono = a.iter().copied().collect();
        for f in b {
            let at = rest.iter().position(|x| x == f)?;
            rest.remove(at);
        }
        Some(rest)
    }

    /// The quotient `a / b` if `b` divides `a` exactly.
    pub(super) fn div_exact(&self, a: &Poly, b: &Poly) -> Option<Poly> {
        let lead = b.terms.first()?;
        let mut rest = a.clone();
        let mut quotient = Vec::new();
        // Each step removes the leading term; the bound keeps hostile divisions short.
        for _ in 0..64 {
            let Some(top) = rest.terms.first() else {
                return if rest.constant == 0 { self.collect(quotient) } else { None };
            };
            let mono = Self::div_mono(&top.mono, &lead.mono)?;
            let coeff = top.coeff.checked_div(lead.coeff)?;
            if coeff.checked_mul(lead.coeff)? != top.coeff {
                return None;
            }
            let step = Term { coeff, mono };
            let factor = if step.mono.is_empty() {
                Poly::constant(coeff)
            } else {
                Poly { terms: SmallVec::from_elem(step.clone(), 1), constant: 0 }
            };
            rest = self.add_scaled(&rest, -1, &self.mul_poly(&factor, b).ok()??)?;
            quotient.push(step);
        }
        None
    }
}
