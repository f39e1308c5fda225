//! Polynomials over atoms: the canonical form of integer expressions.
//!
//! A polynomial is a constant plus terms with nonzero coefficients and distinct monomials, in
//! graded lexicographic order: higher degree first, then the structural order of the atoms. In this
//! form equal polynomials have equal term lists, so hash-consing decides equality. Coefficients are
//! `i64`; an operation that overflows gives `None` and the caller reports or avoids it.
//!
//! Addition merges two sorted term lists in linear time. A short list is instead inserted into a
//! long one by binary search, because atoms such as minima are slow to compare. Multiplication
//! forms all pairs of terms and sorts them. [`MAX_TERMS`] and [`MAX_DEGREE`] bound both. A sum that
//! a caller makes by one addition after another is in the table with its partial sums. So the
//! memory is quadratic in [`MAX_TERMS`].

use super::{Expr, ExprId, SymError, SymTable, table::Node};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// A monomial: a product of atoms in structural order. A power repeats its atom: `x * x * y`.
pub(super) type Mono = SmallVec<[ExprId; 2]>;

/// A monomial with a nonzero coefficient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub coeff: i64,
    pub mono: Mono,
}

/// A constant plus terms with distinct monomials, in graded lexicographic order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Poly {
    pub terms: SmallVec<[Term; 2]>,
    pub constant: i64,
}

/// The most terms of one sum.
pub(super) const MAX_TERMS: usize = 1024;
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

    /// The polynomial times `k`; `None` on overflow.
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

    /// The content: the greatest common divisor of the coefficients, without the constant. Zero if
    /// there are no terms.
    pub fn content(&self) -> u64 {
        self.terms.iter().fold(0, |g, t| gcd(g, t.coeff.unsigned_abs()))
    }

    /// The coefficient of a monomial; zero if the monomial does not occur.
    pub fn coeff(&self, mono: &[ExprId]) -> i64 {
        self.terms.iter().find(|t| t.mono.as_slice() == mono).map_or(0, |t| t.coeff)
    }
}

/// The greatest common divisor, by Euclid's algorithm; `gcd(0, n)` is `n`.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl SymTable {
    /// The polynomial that an expression stands for.
    pub(super) fn poly(&self, e: Expr) -> Poly {
        match e {
            Expr::Int(n) => Poly::constant(n),
            Expr::Id(id) => match self.node(id) {
                Node::Poly(p) => p.clone(),
                _ => Poly::atom(id),
            },
        }
    }

    /// Graded lexicographic order: higher degrees first, then the first atom that differs.
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
        if b.terms.len() * 8 < a.terms.len() {
            return self.insert_scaled(a, k, b, constant);
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

    /// `a + k * b` with the given constant, for a `b` with few terms. `None` on overflow.
    fn insert_scaled(&self, a: &Poly, k: i64, b: &Poly, constant: i64) -> Option<Poly> {
        let mut out = Poly { terms: a.terms.clone(), constant };
        for t in &b.terms {
            let coeff = t.coeff.checked_mul(k)?;
            match out.terms.binary_search_by(|x| self.cmp_mono(&x.mono, &t.mono)) {
                Err(at) => out.terms.insert(at, Term { coeff, mono: t.mono.clone() }),
                Ok(at) => match out.terms[at].coeff.checked_add(coeff)? {
                    0 => drop(out.terms.remove(at)),
                    sum => out.terms[at].coeff = sum,
                },
            }
        }
        Some(out)
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

    /// Sorts terms and adds the coefficients of equal monomials; `None` if a coefficient overflows.
    pub(super) fn collect(&self, mut terms: Vec<Term>) -> Option<Poly> {
        terms.sort_by(|x, y| self.cmp_mono(&x.mono, &y.mono));
        let mut out = Poly::default();
        for group in terms.chunk_by(|x, y| x.mono == y.mono) {
            // Partial sums are 128 bits wide: whether the sum overflows must not depend on the
            // order of the terms.
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

    /// The monomial `a / b`, if `b` divides `a`.
    pub(super) fn div_mono(a: &[ExprId], b: &[ExprId]) -> Option<Mono> {
        let mut rest: Mono = a.iter().copied().collect();
        for f in b {
            let at = rest.iter().position(|x| x == f)?;
            rest.remove(at);
        }
        Some(rest)
    }

    /// The quotient `a / b` if `b` divides `a` exactly, by multivariate polynomial long division.
    pub(super) fn div_exact(&self, a: &Poly, b: &Poly) -> Option<Poly> {
        let leading = b.terms.first()?;
        let mut remainder = a.clone();
        let mut quotient = Vec::new();
        // Each step removes the leading term of the remainder. The iteration limit bounds the time
        // that an adversarial dividend can cost.
        for _ in 0..64 {
            let Some(top) = remainder.terms.first() else {
                return if remainder.constant == 0 { self.collect(quotient) } else { None };
            };
            let mono = Self::div_mono(&top.mono, &leading.mono)?;
            let coeff = top.coeff.checked_div(leading.coeff)?;
            if coeff.checked_mul(leading.coeff)? != top.coeff {
                return None;
            }
            let step = Term { coeff, mono };
            let factor = if step.mono.is_empty() {
                Poly::constant(coeff)
            } else {
                Poly { terms: SmallVec::from_elem(step.clone(), 1), constant: 0 }
            };
            remainder = self.add_scaled(&remainder, -1, &self.mul_poly(&factor, b).ok()??)?;
            quotient.push(step);
        }
        None
    }
}
