//! Tests of sums with many terms: the canonical form and the limit.

use super::poly::MAX_TERMS;
use super::*;

/// `min(a, b)` of two new symbols.
fn minimum(t: &mut SymTable) -> Expr {
    let [a, b] = [0; 2].map(|_| {
        let symbol = t.fresh(SymbolKind::Backed, Range::SIZE);
        t.expr(symbol)
    });
    t.min(a, b).unwrap()
}

fn sum<'a>(t: &mut SymTable, mut terms: impl Iterator<Item = &'a Expr>) -> Expr {
    terms.try_fold(Expr::Int(0), |sum, &e| t.add(sum, e)).unwrap()
}

/// A sum of new minima, multiplied by one factor and the other in turn.
fn sum_of_multiples(t: &mut SymTable, count: usize, factors: [Expr; 2]) -> Expr {
    (0..count).fold(Expr::Int(3), |sum, i| {
        let term = minimum(t);
        let term = t.mul(term, factors[i % 2]).unwrap();
        t.add(sum, term).unwrap()
    })
}

/// Addition merges terms or inserts them one by one. Both must give the canonical form.
#[test]
fn a_sum_does_not_depend_on_how_it_is_made() {
    let mut t = SymTable::new();
    let terms: Vec<Expr> = (0..100).map(|_| minimum(&mut t)).collect();
    let forward = sum(&mut t, terms.iter());
    assert_eq!(sum(&mut t, terms.iter().rev()), forward);
    let even = sum(&mut t, terms.iter().step_by(2));
    let odd = sum(&mut t, terms.iter().skip(1).step_by(2));
    assert_eq!(t.add(even, odd).unwrap(), forward);
    let rest = terms.iter().try_fold(forward, |rest, &e| t.sub(rest, e)).unwrap();
    assert_eq!(rest, Expr::Int(0));
}

/// The table keeps every partial sum of repeated additions, so the limit bounds memory and time
/// quadratically.
#[test]
fn a_long_sum_is_refused_at_the_limit() {
    let mut t = SymTable::new();
    let mut sum = Expr::Int(0);
    for _ in 0..MAX_TERMS {
        let term = minimum(&mut t);
        sum = t.add(sum, term).unwrap();
    }
    let term = minimum(&mut t);
    let e = t.add(sum, term).unwrap_err();
    assert!(matches!(e, SymError::TooLarge { what: "terms", limit: MAX_TERMS }), "{e}");
    const { assert!(MAX_TERMS * MAX_TERMS / 2 <= 1 << 20) };
}

/// A substitution keeps no sums of the first terms, of which a long sum has many.
#[test]
fn a_substitution_in_a_long_sum_adds_few_expressions() {
    let mut t = SymTable::new();
    let [x, y] = [0; 2].map(|_| t.fresh(SymbolKind::Backed, Range::SIZE));
    let [x, y] = [x, y].map(|s| t.expr(s));
    let long = sum_of_multiples(&mut t, MAX_TERMS / 2, [x, y]);
    let equal = t.rel(Rel::Eq, x, y);
    t.assume(equal).unwrap();
    let before = t.expression_count();
    let [simple_x, simple_y] = [x, y].map(|e| t.simplify(e));
    assert_eq!(simple_x, simple_y);
    let substituted = t.simplify(long);
    assert_eq!(t.simplify(substituted), substituted);
    let added = t.expression_count() - before;
    assert!(added <= 2, "{added} expressions");
}

/// Without a substituted symbol, an expression stays as it is, and nothing is made.
#[test]
fn what_no_substitution_concerns_is_not_made_again() {
    let mut t = SymTable::new();
    let terms: Vec<Expr> = (0..100).map(|_| minimum(&mut t)).collect();
    let long = sum(&mut t, terms.iter().rev());
    let [x, y] = [0; 2].map(|_| t.fresh(SymbolKind::Backed, Range::SIZE));
    let [x, y] = [x, y].map(|s| t.expr(s));
    let equal = t.rel(Rel::Eq, x, y);
    t.assume(equal).unwrap();
    let positive = t.rel(Rel::Ge, long, Expr::Int(0));
    let made = |t: &SymTable| (t.expression_count(), t.memo.0.len());
    let before = made(&t);
    assert_eq!(t.simplify(long), long);
    assert_eq!(t.simplify_bool(positive), positive);
    assert_eq!(made(&t), before);
}

/// A substitution that would make too many terms is left out.
#[test]
fn a_substitution_in_a_long_sum_ends_at_the_limit() {
    let mut t = SymTable::new();
    let [x, s] = [0; 2].map(|_| t.fresh(SymbolKind::Backed, Range::SIZE));
    let [x, s] = [x, s].map(|symbol| t.expr(symbol));
    let long = sum_of_multiples(&mut t, MAX_TERMS - 1, [s, s]);
    // s becomes a sum of eight terms, so that the long sum would have eight times as many.
    let sum_of = (0..7).fold(s, |sum, _| {
        let term = minimum(&mut t);
        t.add(sum, term).unwrap()
    });
    let equal = t.rel(Rel::Eq, x, sum_of);
    t.assume(equal).unwrap();
    assert_ne!(t.simplify(s), s);
    assert_eq!(t.simplify(long), long);
}
