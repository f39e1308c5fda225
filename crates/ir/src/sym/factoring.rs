//! The interval of a nonlinear polynomial, refined by factoring out an atom.
//!
//! `a * b - a` is `a * (b - 1)`, which is nonnegative for `a >= 0` and `b >= 1`, while the terms
//! one by one give no bound. A polynomial is `atom * inner + rest` for each of its first
//! [`MAX_ATOMS`] atoms, and its interval is in the intersection of the intervals of these sums.
//!
//! Cost: a polynomial of more than [`MAX_REFINED_TERMS`] terms is not factored, so that the depth
//! and [`MAX_ATOMS`] bound the work. The prover asks this of most goals of its search. Therefore
//! the interval of an atom is found once, and the polynomials that factoring gives are lists of
//! numbers: the positions of their atoms among these intervals.

use super::poly::Poly;
use super::range::Interval;
use super::{Expr, ExprId};
use smallvec::SmallVec;

/// The most terms of a polynomial that is factored.
const MAX_REFINED_TERMS: usize = 16;
/// How many atoms are factored out of one polynomial, each in turn.
const MAX_ATOMS: usize = 4;

/// Whether factoring may refine the interval of a polynomial. A linear one has no product.
pub(super) fn may_refine(p: &Poly) -> bool {
    p.terms.first().is_some_and(|t| t.mono.len() > 1) && p.terms.len() <= MAX_REFINED_TERMS
}

/// The interval of a polynomial by those of its atoms, after at most `depth` levels of factoring.
pub(super) fn interval(p: &Poly, depth: u32, part: impl Fn(Expr) -> Interval) -> Interval {
    let mut ids: SmallVec<[ExprId; 8]> = SmallVec::new();
    let mut position = |id: ExprId| {
        let found = ids.iter().position(|&other| other == id);
        let at = found.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        at as u32
    };
    let terms = p
        .terms
        .iter()
        .map(|t| Term { coeff: t.coeff, atoms: t.mono.iter().map(|&id| position(id)).collect() });
    let sum = Sum { terms: terms.collect(), constant: p.constant };
    let atoms: Atoms = ids.iter().map(|&id| part(Expr::Id(id))).collect();
    sum.interval(&atoms, depth)
}

/// The intervals of all atoms.
type Atoms = SmallVec<[Interval; 8]>;

/// A term. Equal atoms are adjacent.
struct Term {
    coeff: i64,
    /// The positions of its atoms.
    atoms: SmallVec<[u32; 6]>,
}

/// A constant plus terms, those of the highest degree first.
#[derive(Default)]
struct Sum {
    terms: SmallVec<[Term; 4]>,
    constant: i64,
}

impl Sum {
    fn interval(&self, atoms: &[Interval], depth: u32) -> Interval {
        let terms = self
            .terms
            .iter()
            .map(|t| Interval::of_product(t.coeff, &t.atoms, |at| atoms[at as usize]));
        let mut interval = terms.fold(Interval::point(self.constant), Interval::add);
        let is_nonlinear = self.terms.first().is_some_and(|t| t.atoms.len() > 1);
        if depth == 0 || !is_nonlinear || interval.is_finite() {
            return interval;
        }
        let mut seen: SmallVec<[u32; MAX_ATOMS]> = SmallVec::new();
        for &atom in self.terms.iter().flat_map(|t| &t.atoms) {
            if seen.len() == MAX_ATOMS {
                break;
            }
            if seen.contains(&atom) {
                continue;
            }
            seen.push(atom);
            if let Some((inner, rest)) = self.divided(atom) {
                let product = atoms[atom as usize].mul(inner.interval(atoms, depth - 1));
                interval = interval.intersect(product.add(rest.interval(atoms, depth - 1)));
            }
        }
        interval
    }

    /// The sums `inner` and `rest` of `atom * inner + rest`; `None` if fewer than two terms contain
    /// the atom.
    fn divided(&self, atom: u32) -> Option<(Sum, Sum)> {
        if self.terms.iter().filter(|t| t.atoms.contains(&atom)).count() < 2 {
            return None;
        }
        let mut inner = Sum::default();
        let mut rest = Sum { constant: self.constant, ..Sum::default() };
        for t in &self.terms {
            let mut atoms = t.atoms.clone();
            let Some(at) = atoms.iter().position(|&other| other == atom) else {
                rest.terms.push(Term { coeff: t.coeff, atoms });
                continue;
            };
            atoms.remove(at);
            match atoms.is_empty() {
                true => inner.constant = t.coeff,
                false => inner.terms.push(Term { coeff: t.coeff, atoms }),
            }
        }
        Some((inner, rest))
    }
}
