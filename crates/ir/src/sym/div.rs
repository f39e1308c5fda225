//! Canonical floor division and remainder, as `FloorDiv` and `Mod` of PyTorch's symbolic shapes.
//!
//! Both split the dividend by the same identities. With `b = factor * den`, `factor > 0`,
//! `0 <= extra < factor` and
//!
//! ```text
//! a = b * quotient + factor * num + extra
//! ```
//!
//! it follows that `a // b = quotient + num // den` and `a % b = factor * (num % den) + extra`. For
//! example `(6 * s0 + 4) % 4` is `2 * (s0 % 2)`: `factor` is 2, `num` is `s0`, `den` is 2. A
//! division or remainder node remains only for `num` and `den`, and disappears if declared ranges
//! fix its value. A negative divisor negates both operands first.

use super::arith::Op;
use super::poly::{Mono, Poly, Term, gcd};
use super::range::{floor_div, floor_mod};
use super::table::Node;
use super::{Expr, SymError, SymTable};
use smallvec::SmallVec;

impl SymTable {
    /// `a // b` in canonical form; [`SymTable::floor_div`] caches it.
    pub(super) fn floor_div_new(&mut self, a: Expr, b: Expr) -> Result<Expr, SymError> {
        match b {
            Expr::Int(0) => {
                Err(SymError::DivisionByZero(format!("({}) // 0", self.display(a)).into()))
            }
            Expr::Int(1) => Ok(a),
            Expr::Int(d) if d < 0 => {
                let minus = self.mul(a, Expr::Int(-1))?;
                let d = d.checked_neg().ok_or_else(|| self.overflow(Op::FloorDiv, a, b))?;
                self.floor_div(minus, Expr::Int(d))
            }
            Expr::Int(d) => self.floor_div_number(a, d),
            Expr::Id(_) => self.floor_div_symbolic(a, b),
        }
    }

    /// `a % b` in canonical form; [`SymTable::modulo`] caches it.
    pub(super) fn modulo_new(&mut self, a: Expr, b: Expr) -> Result<Expr, SymError> {
        match b {
            Expr::Int(0) => {
                Err(SymError::DivisionByZero(format!("({}) % 0", self.display(a)).into()))
            }
            Expr::Int(1 | -1) => Ok(Expr::Int(0)),
            Expr::Int(d) if d < 0 => {
                let minus = self.mul(a, Expr::Int(-1))?;
                let d = d.checked_neg().ok_or_else(|| self.overflow(Op::Mod, a, b))?;
                let remainder = self.modulo(minus, Expr::Int(d))?;
                self.mul(remainder, Expr::Int(-1))
            }
            Expr::Int(d) => self.modulo_number(a, d),
            Expr::Id(_) => self.modulo_symbolic(a, b),
        }
    }

    /// `a // d` for a number `d > 1`: terms whose coefficient `d` divides move to the quotient.
    fn floor_div_number(&mut self, a: Expr, d: i64) -> Result<Expr, SymError> {
        let p = self.poly(a);
        let (whole, rest): (Vec<Term>, Vec<Term>) =
            p.terms.into_iter().partition(|t| t.coeff % d == 0);
        let quotient = Poly {
            terms: whole.into_iter().map(|t| Term { coeff: t.coeff / d, ..t }).collect(),
            constant: p.constant.div_euclid(d),
        };
        let mut num = Poly { terms: rest.into(), constant: p.constant.rem_euclid(d) };
        let content = gcd(num.content(), d.unsigned_abs()) as i64;
        let den = divide_content(&mut num, content, d);
        let part = self.reduced_floor_div(num, den)?;
        let quotient = self.intern_poly(quotient)?;
        self.add(quotient, part)
    }

    /// `num // d` for `d > 0`, where the constant of `num` is in `[0, d)` and `num` and `d` have no
    /// common factor.
    fn reduced_floor_div(&mut self, num: Poly, d: i64) -> Result<Expr, SymError> {
        let bounds = self.declared_poly(&num);
        if let (Some(lo), Some(hi)) =
            (floor_div(bounds.lo, d.into()), floor_div(bounds.hi, d.into()))
            && lo == hi
            && let Ok(n) = i64::try_from(lo)
        {
            return Ok(Expr::Int(n));
        }
        // (x // m + c) // d = (x + c * m) // (m * d)
        if let [Term { coeff: 1, mono }] = num.terms.as_slice()
            && let [f] = mono.as_slice()
            && let &Node::FloorDiv(x, Expr::Int(m)) = self.node(*f)
            && let (Some(shift), Some(product)) = (num.constant.checked_mul(m), m.checked_mul(d))
        {
            let x = self.add(x, Expr::Int(shift))?;
            return self.floor_div(x, Expr::Int(product));
        }
        let num = self.intern_poly(num)?;
        self.intern(Node::FloorDiv(num, Expr::Int(d)))
    }

    /// `a % d` for a number `d > 1`.
    fn modulo_number(&mut self, a: Expr, d: i64) -> Result<Expr, SymError> {
        let mut p = self.poly(a);
        // x % m is congruent to x modulo d if d divides m, so the inner remainder is dropped.
        let inner = |t: &Term| match t.mono.as_slice() {
            [f] => match *self.node(*f) {
                Node::Mod(x, Expr::Int(m)) if m % d == 0 => Some(x),
                _ => None,
            },
            _ => None,
        };
        let nested: SmallVec<[(Term, Expr); 2]> =
            p.terms.iter().filter_map(|t| Some((t.clone(), inner(t)?))).collect();
        if !nested.is_empty() {
            let mut sum = Some(p);
            for (t, x) in nested {
                let atom = Poly {
                    terms: SmallVec::from_elem(Term { coeff: 1, ..t.clone() }, 1),
                    constant: 0,
                };
                let reduced = self.reduce_coefficients(self.poly(x), d);
                let without = sum.and_then(|s| self.add_scaled(&s, t.coeff.checked_neg()?, &atom));
                sum = without.and_then(|s| self.add_scaled(&s, t.coeff % d, &reduced));
            }
            let e = self.intern_checked(sum, Op::Mod, a, Expr::Int(d))?;
            return self.modulo(e, Expr::Int(d));
        }
        p = self.reduce_coefficients(p, d);
        let content = gcd(p.content(), d.unsigned_abs()) as i64;
        if content > 1 {
            let extra = p.constant.rem_euclid(content);
            let den = divide_content(&mut p, content, d);
            let num = self.intern_poly(p)?;
            let rest = if den == 1 { Expr::Int(0) } else { self.modulo(num, Expr::Int(den))? };
            let scaled = self.mul(rest, Expr::Int(content))?;
            return self.add(scaled, Expr::Int(extra));
        }
        let bounds = self.declared_poly(&p);
        let num = self.intern_poly(p)?;
        if let (Some(lo), Some(hi)) =
            (floor_div(bounds.lo, d.into()), floor_div(bounds.hi, d.into()))
            && lo == hi
            && let Some(Ok(shift)) = lo.checked_mul(d.into()).map(i64::try_from)
        {
            return self.sub(num, Expr::Int(shift));
        }
        match num {
            Expr::Int(n) => Ok(Expr::Int(n.rem_euclid(d))),
            Expr::Id(_) => self.intern(Node::Mod(num, Expr::Int(d))),
        }
    }

    /// The polynomial with its coefficients reduced modulo `d`: those of terms to `(-d/2, d/2]`, so
    /// that `s0 - s1` keeps its coefficient -1, and the constant to `[0, d)`.
    fn reduce_coefficients(&self, mut p: Poly, d: i64) -> Poly {
        for t in &mut p.terms {
            t.coeff = t.coeff.rem_euclid(d);
            if t.coeff > d / 2 {
                t.coeff -= d;
            }
        }
        p.terms.retain(|t| t.coeff != 0);
        p.constant = p.constant.rem_euclid(d);
        p
    }

    /// `a // b` for a divisor that is not a number.
    fn floor_div_symbolic(&mut self, a: Expr, b: Expr) -> Result<Expr, SymError> {
        let Some((quotient, num, den, _)) = self.split(a, b)? else {
            let (a, b) = (self.mul(a, Expr::Int(-1))?, self.mul(b, Expr::Int(-1))?);
            return self.floor_div(a, b);
        };
        let part = if num == Expr::Int(0) || self.below(num, den) {
            Expr::Int(0)
        } else if (num, den) == (a, b) {
            self.intern(Node::FloorDiv(num, den))?
        } else {
            self.floor_div(num, den)?
        };
        self.add(quotient, part)
    }

    /// `a % b` for a divisor that is not a number.
    fn modulo_symbolic(&mut self, a: Expr, b: Expr) -> Result<Expr, SymError> {
        let Some((_, num, den, factor)) = self.split(a, b)? else {
            let (a, b) = (self.mul(a, Expr::Int(-1))?, self.mul(b, Expr::Int(-1))?);
            let remainder = self.modulo(a, b)?;
            return self.mul(remainder, Expr::Int(-1));
        };
        let part = if num == Expr::Int(0) || self.below(num, den) {
            num
        } else if (num, den) == (a, b) {
            self.intern(Node::Mod(num, den))?
        } else {
            self.modulo(num, den)?
        };
        self.mul(factor, part)
    }

    /// Whether `0 <= a < b` by declared ranges, which makes `a // b` zero and `a % b` equal to `a`.
    fn below(&self, a: Expr, b: Expr) -> bool {
        self.declared(a).lo >= 0
            && self
                .add_scaled(&self.poly(a), -1, &self.poly(b))
                .is_some_and(|d| self.declared_poly(&d).hi < 0)
    }

    /// The quotient, the numerator, the denominator and the common factor of the module's identity,
    /// with `extra` zero: `a = b * quotient + factor * num` and `b = factor * den`. `None` if the
    /// leading coefficient of `b` is negative; the caller then negates both operands.
    fn split(&mut self, a: Expr, b: Expr) -> Result<Option<(Expr, Expr, Expr, Expr)>, SymError> {
        let (dividend, divisor) = (self.poly(a), self.poly(b));
        if divisor.terms.first().is_some_and(|t| t.coeff < 0) {
            return Ok(None);
        }
        if let Some(whole) = self.div_exact(&dividend, &divisor) {
            let whole = self.intern_poly(whole)?;
            return Ok(Some((whole, Expr::Int(0), b, Expr::Int(1))));
        }
        let mut quotient = Vec::new();
        let mut rest = dividend;
        if let ([t], 0) = (divisor.terms.as_slice(), divisor.constant) {
            rest.terms.retain(|x| match Self::div_mono(&x.mono, &t.mono) {
                Some(mono) if x.coeff % t.coeff == 0 => {
                    quotient.push(Term { coeff: x.coeff / t.coeff, mono });
                    false
                }
                _ => true,
            });
        }
        let quotient = match self.collect(quotient) {
            Some(quotient) => self.intern_poly(quotient)?,
            None => return Err(self.overflow(Op::FloorDiv, a, b)),
        };
        let (coeff, mono) = self.common_factor(&rest, &divisor);
        if rest.as_const() == Some(0) || (coeff == 1 && mono.is_empty()) {
            return Ok(Some((quotient, self.intern_poly(rest)?, b, Expr::Int(1))));
        }
        let cancel = |p: Poly| Poly {
            terms: p
                .terms
                .iter()
                .filter_map(|t| {
                    Some(Term { coeff: t.coeff / coeff, mono: Self::div_mono(&t.mono, &mono)? })
                })
                .filter(|t| !t.mono.is_empty())
                .collect(),
            constant: p.constant / coeff
                + p.terms
                    .iter()
                    .find(|t| t.mono == mono && !mono.is_empty())
                    .map_or(0, |t| t.coeff / coeff),
        };
        let (rest, den) = (self.intern_poly(cancel(rest))?, self.intern_poly(cancel(divisor))?);
        let factor = if mono.is_empty() {
            Poly::constant(coeff)
        } else {
            Poly { terms: SmallVec::from_elem(Term { coeff, mono }, 1), constant: 0 }
        };
        let factor = self.intern_poly(factor)?;
        Ok(Some((quotient, rest, den, factor)))
    }

    /// The greatest common factor of all terms of both polynomials: a positive coefficient and a
    /// monomial.
    fn common_factor(&self, a: &Poly, b: &Poly) -> (i64, Mono) {
        let constants = gcd(a.constant.unsigned_abs(), b.constant.unsigned_abs());
        let coeff = gcd(gcd(a.content(), b.content()), constants);
        let mut all = a.terms.iter().chain(&b.terms);
        let mut mono = match all.next() {
            Some(term) if constants == 0 => term.mono.clone(),
            _ => Mono::new(),
        };
        for term in all {
            let mut left = term.mono.clone();
            mono.retain(|f| left.iter().position(|x| x == f).map(|i| left.remove(i)).is_some());
        }
        // The gcd exceeds `i64` only if every coefficient is zero or `i64::MIN`.
        (i64::try_from(coeff).unwrap_or(1).max(1), mono)
    }
}

/// Divides the terms by `factor`, which divides them exactly, and the constant by `factor` rounding
/// down. Returns `d / factor`.
fn divide_content(p: &mut Poly, factor: i64, d: i64) -> i64 {
    for t in &mut p.terms {
        t.coeff /= factor;
    }
    p.constant = floor_div(p.constant.into(), factor.into())
        .and_then(|c| i64::try_from(c).ok())
        .unwrap_or(p.constant);
    debug_assert_eq!(floor_mod(d.into(), factor.into()), Some(0));
    d / factor
}
