//! The interval of a nonlinear polynomial, refined by factoring out an atom.
//!
//! `a * b - a` is `a * (b - 1)`, which is nonnegative for `a >= 0` and `b >= 1`, while the terms
//! one by one give no bound. A polynomial is `atom * inner + rest` for each of its first
//! [`MAX_ATOMS`] atoms, and its interval is in the intersection of the intervals of these sums.
//!
//! Cost: a polynomial of more than [`MAX_REFINED_TERMS`] terms, or of a degree above
//! [`MAX_DEGREE`], is not factored, so that the depth and [`MAX_ATOMS`] bound the work. The prover
//! asks this of most goals of its search, and most have no proof. Therefore:
//!
//! - The interval of an atom is found once. The polynomials that factoring gives are lists of
//!   numbers, the positions of their atoms among these intervals.
//! - If every [wanted](Wanted) bound of `rest` is infinite, `inner` is not computed.
//! - Intervals treat atoms as independent. So a polynomial that is positive at a corner of the box
//!   of its atoms has a positive upper bound, however it is factored.

use super::poly::Poly;
use super::range::Interval;
use super::{Expr, ExprId};
use smallvec::SmallVec;

/// The most terms of a polynomial that is factored.
const MAX_REFINED_TERMS: usize = 16;
/// The highest degree of a polynomial that is factored.
const MAX_DEGREE: usize = 8;
/// How far from zero, or from its least value, an atom without an upper bound is at a corner.
const FAR: i128 = 1 << 10;
/// How many atoms are factored out of one polynomial, each in turn.
const MAX_ATOMS: usize = 4;

/// The bounds that are asked for. Every other bound is valid, but may be loose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    lower: bool,
    upper: bool,
}

impl Wanted {
    pub const BOTH: Wanted = Wanted { lower: true, upper: true };
    pub const LOWER: Wanted = Wanted { lower: true, upper: false };
    pub const UPPER: Wanted = Wanted { lower: false, upper: true };

    /// What is wanted of a number, if this is wanted of the product with numbers of an interval.
    fn of_factor(self, other: Interval) -> Wanted {
        match (other.lo >= 0, other.hi <= 0) {
            (true, _) => self,
            (_, true) => Wanted { lower: self.upper, upper: self.lower },
            _ => Wanted::BOTH,
        }
    }

    /// Whether every wanted bound of an interval is infinite. Then those of a sum with another
    /// interval are infinite, too.
    fn is_infinite_in(self, i: Interval) -> bool {
        let Interval { lo, hi } = Interval::ALL;
        (!self.lower || i.lo == lo) && (!self.upper || i.hi == hi)
    }
}

/// Whether factoring may refine the interval of a polynomial. A linear one has no product.
pub(super) fn may_refine(p: &Poly) -> bool {
    let degree = p.terms.first().map_or(0, |t| t.mono.len());
    (2..=MAX_DEGREE).contains(&degree) && p.terms.len() <= MAX_REFINED_TERMS
}

/// The interval of a polynomial that [may be refined](may_refine) by those of its atoms, after at
/// most `depth` levels of factoring.
pub(super) fn interval(
    p: &Poly,
    depth: u32,
    wanted: Wanted,
    part: impl Fn(Expr) -> Interval,
) -> Interval {
    let (sum, atoms) = numbered(p, part);
    sum.interval(&atoms, depth, wanted)
}

/// Whether the upper bound of [`interval`] is not positive.
pub(super) fn is_never_positive(p: &Poly, depth: u32, part: impl Fn(Expr) -> Interval) -> bool {
    let (sum, atoms) = numbered(p, part);
    sum.by_terms(&atoms).hi <= 0
        || !sum.is_positive_at_a_corner(&atoms)
            && sum.interval(&atoms, depth, Wanted::UPPER).hi <= 0
}

/// A polynomial with numbers for atoms, and their intervals.
fn numbered(p: &Poly, part: impl Fn(Expr) -> Interval) -> (Sum, Atoms) {
    let mut ids: SmallVec<[ExprId; 8]> = SmallVec::new();
    let mut position = |id: ExprId| {
        let found = ids.iter().position(|&other| other == id);
        let at = found.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        at as u8
    };
    let mut sum = Sum { terms: SmallVec::new(), constant: p.constant };
    for t in &p.terms {
        let mut term = Term { coeff: t.coeff, degree: 0, atoms: [0; MAX_DEGREE] };
        for &id in &t.mono {
            term.atoms[term.degree] = position(id);
            term.degree += 1;
        }
        sum.terms.push(term);
    }
    (sum, ids.iter().map(|&id| part(Expr::Id(id))).collect())
}

/// The intervals of all atoms: at most [`MAX_REFINED_TERMS`] times [`MAX_DEGREE`].
type Atoms = SmallVec<[Interval; 8]>;

/// A term. Equal atoms are adjacent.
#[derive(Clone, Copy)]
struct Term {
    coeff: i64,
    degree: usize,
    /// The positions of its atoms, of which the first `degree` count.
    atoms: [u8; MAX_DEGREE],
}

impl Term {
    fn atoms(&self) -> &[u8] {
        &self.atoms[..self.degree]
    }

    /// The term without one factor `atom`; `None` if the atom is not a factor.
    fn divided(mut self, atom: u8) -> Option<Term> {
        let at = self.atoms().iter().position(|&other| other == atom)?;
        self.atoms.copy_within(at + 1..self.degree, at);
        self.degree -= 1;
        Some(self)
    }
}

/// A constant plus terms, those of the highest degree first.
struct Sum {
    terms: SmallVec<[Term; 4]>,
    constant: i64,
}

impl Sum {
    /// The sum of the intervals of the terms.
    fn by_terms(&self, atoms: &[Interval]) -> Interval {
        let of = |t: &Term| Interval::of_product(t.coeff, t.atoms(), |at| atoms[usize::from(at)]);
        self.terms.iter().map(of).fold(Interval::point(self.constant), Interval::add)
    }

    fn interval(&self, atoms: &[Interval], depth: u32, wanted: Wanted) -> Interval {
        let mut interval = self.by_terms(atoms);
        let is_nonlinear = self.terms.first().is_some_and(|t| t.degree > 1);
        if depth == 0 || !is_nonlinear || interval.is_finite() {
            return interval;
        }
        let mut seen: SmallVec<[u8; MAX_ATOMS]> = SmallVec::new();
        for &atom in self.terms.iter().flat_map(Term::atoms) {
            if seen.len() == MAX_ATOMS {
                break;
            }
            if seen.contains(&atom) {
                continue;
            }
            seen.push(atom);
            let Some(rest) = self.without(atom) else { continue };
            let rest = rest.interval(atoms, depth - 1, wanted);
            if wanted.is_infinite_in(rest) {
                continue;
            }
            let factor = atoms[usize::from(atom)];
            let inner = self.divided(atom).interval(atoms, depth - 1, wanted.of_factor(factor));
            interval = interval.intersect(factor.mul(inner).add(rest));
        }
        interval
    }

    /// The terms without the atom, and the constant; `None` if fewer than two terms contain the
    /// atom.
    fn without(&self, atom: u8) -> Option<Sum> {
        let terms = self.terms.iter().filter(|t| !t.atoms().contains(&atom));
        let terms: SmallVec<[Term; 4]> = terms.copied().collect();
        (terms.len() + 2 <= self.terms.len()).then_some(Sum { terms, constant: self.constant })
    }

    /// The sum of the terms that contain the atom, divided by the atom.
    fn divided(&self, atom: u8) -> Sum {
        let mut inner = Sum { terms: SmallVec::new(), constant: 0 };
        for term in self.terms.iter().filter_map(|t| t.divided(atom)) {
            match term.degree {
                0 => inner.constant = term.coeff,
                _ => inner.terms.push(term),
            }
        }
        inner
    }

    /// Whether the sum is positive at one of these points of the box: all atoms near zero, all far
    /// from it, or those of one positive term. `false` if the box is empty.
    fn is_positive_at_a_corner(&self, atoms: &[Interval]) -> bool {
        if atoms.iter().any(|i| i.lo > i.hi) {
            return false;
        }
        let near: SmallVec<[i128; 8]> = atoms.iter().map(|i| i.lo.max(i.hi.min(0))).collect();
        let far: SmallVec<[i128; 8]> =
            atoms.iter().map(|i| i.hi.min(i.lo.max(0).saturating_add(FAR))).collect();
        let is_positive = |point: &[i128]| self.value(point).is_some_and(|n| n > 0);
        is_positive(&near)
            || is_positive(&far)
            || self.terms.iter().filter(|t| t.coeff > 0).any(|t| {
                let mut point = near.clone();
                t.atoms().iter().for_each(|&at| point[usize::from(at)] = far[usize::from(at)]);
                is_positive(&point)
            })
    }

    /// The value of the sum; `None` on overflow.
    fn value(&self, point: &[i128]) -> Option<i128> {
        self.terms.iter().try_fold(i128::from(self.constant), |sum, t| {
            let mut factors = t.atoms().iter().map(|&at| point[usize::from(at)]);
            let term = factors.try_fold(i128::from(t.coeff), i128::checked_mul);
            sum.checked_add(term?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sym::{Range, SymTable, SymbolKind};
    use proptest::prelude::*;

    const RANGES: [Range; 6] = [
        Range::SIZE,
        Range::new(1, i64::MAX),
        Range::new(0, 4),
        Range::new(-3, 2),
        Range::new(i64::MIN, -1),
        Range::ALL,
    ];

    /// The coefficients of a polynomial, and the symbols of each term.
    fn polynomials() -> impl Strategy<Value = Vec<(i64, Vec<usize>)>> {
        let symbols = prop::collection::vec(0usize..3, 1..4);
        prop::collection::vec((-3i64..4, symbols), 1..7)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn one_bound_is_that_of_both_and_corners_refute_no_proof(
            ranges in prop::array::uniform3(prop::sample::select(&RANGES[..])),
            terms in polynomials(),
            constant in -4i64..5,
        ) {
            let mut t = SymTable::new();
            let symbols = [0, 1, 2].map(|i| {
                let symbol = t.symbol(&format!("s{i}"), SymbolKind::Backed, ranges[i]).unwrap();
                t.expr(symbol)
            });
            let mut sum = Expr::Int(constant);
            for (coeff, factors) in terms {
                let mut product = Expr::Int(coeff);
                for i in factors {
                    product = t.mul(product, symbols[i]).unwrap();
                }
                sum = t.add(sum, product).unwrap();
            }
            let p = t.poly(sum);
            if may_refine(&p) {
                let part = |e| t.proven(e);
                let both = interval(&p, 3, Wanted::BOTH, part);
                prop_assert_eq!(interval(&p, 3, Wanted::UPPER, part).hi, both.hi);
                prop_assert_eq!(interval(&p, 3, Wanted::LOWER, part).lo, both.lo);
                prop_assert_eq!(is_never_positive(&p, 3, part), both.hi <= 0);
            }
        }
    }
}
