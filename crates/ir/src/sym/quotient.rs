//! Decompositions of expressions for the view algebra: division with remainder, content, and
//! simplifications that hold for positive sizes.

use super::poly::{Poly, Term, gcd};
use super::table::Node;
use super::{Expr, ExprId, SymTable};
use smallvec::SmallVec;

/// The most division steps, which bounds the cost of one division.
const STEPS: usize = 64;

impl SymTable {
    /// The quotient `q` and the remainder `r` of polynomial long division, with `a = q * b + r`.
    ///
    /// Each term of `a` that the leading monomial of `b` divides contributes a term of `q`.
    /// Coefficients round towards zero; the constant rounds down. The result depends only on the
    /// canonical forms of `a` and `b`: no ranges are used, and `r` may be larger than `b`. `None`
    /// if `b` is a number below one, on overflow, and after [`STEPS`] terms.
    pub(crate) fn divide_terms(&mut self, a: Expr, b: Expr) -> Option<(Expr, Expr)> {
        let (mut rest, divisor) = (self.poly(a), self.poly(b));
        let (leading, mono) = match divisor.terms.first() {
            Some(t) => (t.coeff, t.mono.clone()),
            None => (divisor.constant, SmallVec::new()),
        };
        if leading <= 0 {
            // Divides by `-b`, whose leading coefficient is positive.
            let minus =
                if mono.is_empty() { return None } else { self.mul(b, Expr::Int(-1)).ok()? };
            let (q, r) = self.divide_terms(a, minus)?;
            return Some((self.mul(q, Expr::Int(-1)).ok()?, r));
        }
        let (mut quotient, mut remainder) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let Some(top) = rest.terms.first().cloned() else {
                let whole =
                    if divisor.terms.is_empty() { rest.constant.div_euclid(leading) } else { 0 };
                quotient.push(Term { coeff: whole, mono: SmallVec::new() });
                remainder.push(Term {
                    coeff: rest.constant.checked_sub(whole.checked_mul(leading)?)?,
                    mono: SmallVec::new(),
                });
                let (q, r) = (self.collect(quotient)?, self.collect(remainder)?);
                return Some((self.intern_poly(q).ok()?, self.intern_poly(r).ok()?));
            };
            rest.terms.remove(0);
            let coeff = top.coeff / leading;
            let factor_mono = if coeff == 0 { None } else { Self::div_mono(&top.mono, &mono) };
            let Some(factor_mono) = factor_mono else {
                remainder.push(top);
                continue;
            };
            let leftover = top.coeff % leading;
            if leftover != 0 {
                remainder.push(Term { coeff: leftover, mono: top.mono.clone() });
            }
            // Subtracts the product of the new quotient term and the divisor's other terms. The
            // leading term cancels by construction.
            let mut tail = divisor.clone();
            if divisor.terms.is_empty() {
                tail.constant = 0;
            } else {
                tail.terms.remove(0);
            }
            let factor = match factor_mono.is_empty() {
                true => Poly::constant(coeff),
                false => Poly {
                    terms: SmallVec::from_elem(Term { coeff, mono: factor_mono.clone() }, 1),
                    constant: 0,
                },
            };
            rest = self.add_scaled(&rest, -1, &self.mul_poly(&factor, &tail).ok()??)?;
            quotient.push(Term { coeff, mono: factor_mono });
        }
        None
    }

    /// The greatest number that divides every coefficient and the constant; zero for the expression
    /// zero.
    pub(crate) fn content_of(&self, e: Expr) -> u64 {
        let p = self.poly(e);
        gcd(p.content(), p.constant.unsigned_abs())
    }

    /// Simplifies an expression under the assumption that every expression in `positive` is at
    /// least one: `max(x, 1)` becomes `x` if `x` is provably at least one, is one of them, or is a
    /// factor of one of them. It becomes `max(x, 0)`, the size of a slice, if that is one of them
    /// or a factor. An overflow leaves the expression unchanged.
    pub(crate) fn given_positive(&mut self, e: Expr, positive: &[Expr]) -> Expr {
        let mut p = self.poly(e);
        let atoms: SmallVec<[ExprId; 4]> =
            p.terms.iter().flat_map(|t| t.mono.iter().copied()).collect();
        for atom in atoms {
            if let Node::Max(args) = self.node(atom)
                && let [Expr::Int(1), x] | [x, Expr::Int(1)] = *args.as_slice()
                && let Some(simple) = self.positive_form(x, positive)
                && let Some(replaced) = self.replace(&p, atom, &self.poly(simple))
            {
                p = replaced;
            }
        }
        self.intern_poly(p).unwrap_or(e)
    }

    /// An expression that equals `max(x, 1)` if those in `positive` are at least one.
    fn positive_form(&mut self, x: Expr, positive: &[Expr]) -> Option<Expr> {
        let is_factor = |t: &SymTable, e| positive.iter().any(|&whole| t.has_factor(whole, e));
        if self.proven(x).lo >= 1 || is_factor(self, x) {
            return Some(x);
        }
        let size = self.max(x, Expr::Int(0)).ok()?;
        is_factor(self, size).then_some(size)
    }

    /// Whether `whole >= 1` implies `part >= 1`: `whole` is `part`, or a product of a positive
    /// number and atoms that are never negative, one of which is `part`.
    fn has_factor(&self, whole: Expr, part: Expr) -> bool {
        let Expr::Id(atom) = part else { return false };
        whole == part
            || match self.poly(whole) {
                Poly { terms, constant: 0 } => match terms.as_slice() {
                    [t] => {
                        t.coeff > 0
                            && t.mono.contains(&atom)
                            && t.mono.iter().all(|&f| self.proven(Expr::Id(f)).lo >= 0)
                    }
                    _ => false,
                },
                _ => false,
            }
    }

    /// `d` divided by an atom that every term contains and that is never negative: if the quotient
    /// is at most zero, so is `d`. `None` if there is no such atom.
    pub(super) fn without_common_atom(&self, d: &Poly) -> Option<Poly> {
        let mono = &d.terms.first().filter(|_| d.constant == 0)?.mono;
        let everywhere = |f: &ExprId| d.terms.iter().all(|t| t.mono.contains(f));
        let &atom = mono.iter().find(|f| everywhere(f) && self.proven(Expr::Id(**f)).lo >= 0)?;
        let mut rest = Poly::default();
        for t in &d.terms {
            match Self::div_mono(&t.mono, &[atom])? {
                mono if mono.is_empty() => rest.constant = t.coeff,
                mono => rest.terms.push(Term { coeff: t.coeff, mono }),
            }
        }
        Some(rest)
    }
}
