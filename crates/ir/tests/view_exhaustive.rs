//! Exhaustive comparison of views of plain numbers with enumeration: every spec over small bases,
//! every pair, every function. All answers must be correct, and none may be missing.

use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::{TriBool, ViewSpec};
use std::collections::{BTreeMap, HashMap};

/// A spec and its enumerated positions.
#[derive(Clone, Debug)]
struct Case {
    spec: ViewSpec,
    sizes: Vec<i64>,
    /// Base positions in flat order.
    seq: Vec<i64>,
}

impl Case {
    fn new(offset: i64, sizes: &[i64], strides: &[i64], t: &mut SymTable) -> Case {
        let spec = ViewSpec::strided(Expr::Int(offset), &ints(sizes), &ints(strides), t).unwrap();
        Case { spec, sizes: sizes.to_vec(), seq: enumerate(offset, sizes, strides) }
    }

    fn set(&self) -> u64 {
        self.seq.iter().fold(0, |set, p| set | 1 << p)
    }

    fn is_injective(&self) -> bool {
        self.set().count_ones() as usize == self.seq.len()
    }
}

fn ints(numbers: &[i64]) -> Vec<Expr> {
    numbers.iter().map(|&n| Expr::Int(n)).collect()
}

/// All tuples below the bounds, in lexicographic order.
fn tuples(bounds: &[i64]) -> Vec<Vec<i64>> {
    bounds.iter().fold(vec![vec![]], |all, &n| {
        all.iter().flat_map(|t| (0..n).map(move |i| [t.as_slice(), &[i]].concat())).collect()
    })
}

fn enumerate(offset: i64, sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    tuples(sizes)
        .iter()
        .map(|index| offset + index.iter().zip(strides).map(|(i, s)| i * s).sum::<i64>())
        .collect()
}

/// The enumerated positions of a spec that the library returned.
fn sequence(spec: &ViewSpec) -> Vec<i64> {
    let number = |e: Expr| e.as_i64().expect("numbers give numbers");
    let sizes: Vec<i64> = spec.sizes().map(number).collect();
    let strides: Vec<i64> = spec.dims().iter().map(|d| number(d.stride)).collect();
    enumerate(number(spec.offset()), &sizes, &strides)
}

/// The strides of the only strided spec with these sizes that can enumerate a sequence; `None` if
/// none does. Any correct composition has these strides.
fn strided(seq: &[i64], sizes: &[i64]) -> Option<Vec<i64>> {
    let mut weight = seq.len() as i64;
    let mut strides = Vec::new();
    for &n in sizes {
        weight /= n.max(1);
        strides.push(if n > 1 && !seq.is_empty() { seq[weight as usize] - seq[0] } else { 0 });
    }
    let fits = seq.is_empty()
        || (strides.iter().all(|&s| s >= 0) && enumerate(seq[0], sizes, &strides) == seq);
    fits.then_some(strides)
}

/// Every spec over a base: sizes up to a limit for each rank, and strides below the size of the
/// base.
fn specs(base: i64, limits: &[i64], t: &mut SymTable) -> Vec<Case> {
    let mut out = Vec::new();
    for (rank, &limit) in limits.iter().enumerate() {
        for sizes in tuples(&vec![limit + 1; rank]) {
            // The stride of a dimension with at most one element is arbitrary.
            let bounds: Vec<i64> = sizes.iter().map(|&n| if n > 1 { base } else { 1 }).collect();
            for strides in tuples(&bounds) {
                let strides: Vec<i64> = strides
                    .iter()
                    .zip(&sizes)
                    .map(|(&s, &n)| if n > 1 { s } else { 3 * n })
                    .collect();
                let last: i64 = sizes.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum();
                let offsets = if sizes.contains(&0) { 1 } else { base - last };
                out.extend((0..offsets).map(|offset| Case::new(offset, &sizes, &strides, t)));
            }
        }
    }
    out
}

/// One spec for each sequence, the one of the highest rank. The other specs of the sequence have
/// the same canonical form.
fn representatives(cases: &[Case]) -> Vec<Case> {
    let all: BTreeMap<&[i64], &Case> = cases.iter().map(|c| (c.seq.as_slice(), c)).collect();
    all.into_values().cloned().collect()
}

fn yes(b: bool) -> TriBool {
    b.into()
}

#[test]
fn canonical_forms_are_equal_exactly_for_equal_sequences() {
    let t = &mut SymTable::new();
    let (mut by_key, mut by_seq) = (HashMap::new(), HashMap::new());
    for case in specs(8, &[1, 8, 4, 3], t) {
        let canonical = case.spec.canonical(t);
        if !case.seq.is_empty() {
            assert_eq!(sequence(&canonical), case.seq, "{case:?}");
        }
        assert_eq!(canonical.canonical(t), canonical, "{case:?}");
        assert_eq!(
            by_key.entry(canonical.clone()).or_insert_with(|| case.seq.clone()),
            &case.seq,
            "{case:?}"
        );
        assert_eq!(
            by_seq.entry(case.seq.clone()).or_insert_with(|| canonical.clone()),
            &canonical,
            "{case:?}"
        );
    }
    assert!(by_key.len() > 1500);
}

#[test]
fn properties_of_one_view_are_exact() {
    let t = &mut SymTable::new();
    for case in specs(8, &[1, 8, 4, 3], t) {
        assert_eq!(case.spec.numel(t), Some(Expr::Int(case.seq.len() as i64)), "{case:?}");
        assert_eq!(case.spec.is_empty(t), yes(case.seq.is_empty()), "{case:?}");
        assert_eq!(case.spec.injective(t), yes(case.is_injective()), "{case:?}");
        for n in 0..=8 {
            let numel = Expr::Int(n);
            assert_eq!(
                case.spec.is_full(numel, t),
                yes(case.seq.iter().copied().eq(0..n)),
                "{case:?} of {n}"
            );
            let bijective = case.seq.len() as i64 == n
                && case.is_injective()
                && case.seq.iter().all(|&p| p < n);
            assert_eq!(case.spec.is_permutation(numel, t), yes(bijective), "{case:?} of {n}");
            let inverse = case.spec.inverse(numel, t);
            assert_eq!(inverse.is_some(), bijective, "{case:?} of {n}");
            if let Some(inverse) = inverse {
                assert!(
                    sequence(&inverse).iter().map(|&i| case.seq[i as usize]).eq(0..n),
                    "{case:?} of {n}: {inverse:?}"
                );
            }
        }
    }
}

/// Checks every function on an ordered pair of views of one base.
fn check_pair(a: &Case, b: &Case, t: &mut SymTable) {
    let shown = || format!("{a:?} and {b:?}");
    assert_eq!(a.spec.disjoint(&b.spec, t), yes(a.set() & b.set() == 0), "{}", shown());
    assert_eq!(a.spec.contained_in(&b.spec, t), yes(a.set() & !b.set() == 0), "{}", shown());
    assert_eq!(a.spec.same(&b.spec, t), yes(a.seq == b.seq), "{}", shown());
    let found = a.spec.relative(&b.spec, t);
    if let Some(relative) = &found {
        assert!(relative.sizes().eq(a.spec.sizes()), "{}", shown());
        let flat_positions = sequence(relative);
        let through: Vec<Option<i64>> =
            flat_positions.iter().map(|&i| b.seq.get(i as usize).copied()).collect();
        assert!(
            through.iter().copied().eq(a.seq.iter().copied().map(Some)),
            "{}: {relative:?}",
            shown()
        );
        assert!(
            b.spec.compose(relative, t).is_some_and(|c| c.same(&a.spec, t).is_yes()),
            "{}: {relative:?}",
            shown()
        );
    }
    if b.is_injective() {
        let flat_positions: Option<Vec<i64>> =
            a.seq.iter().map(|p| b.seq.iter().position(|q| p == q).map(|i| i as i64)).collect();
        let exists = flat_positions
            .is_some_and(|flat_positions| strided(&flat_positions, &a.sizes).is_some());
        assert_eq!(found.is_some(), exists, "{}", shown());
    }
}

#[test]
fn relations_of_all_pairs_are_exact() {
    let t = &mut SymTable::new();
    let cases = representatives(&specs(5, &[1, 5, 3, 2], t));
    for a in &cases {
        for b in &cases {
            check_pair(a, b, t);
        }
    }
}

#[test]
fn relations_to_injective_views_are_exact() {
    let t = &mut SymTable::new();
    let cases = representatives(&specs(8, &[1, 8, 4, 2], t));
    for b in cases.iter().filter(|b| b.is_injective()) {
        for a in &cases {
            check_pair(a, b, t);
        }
    }
}

/// All pairs over a base of eight elements: about four million.
#[test]
#[ignore = "minutes"]
fn relations_of_all_larger_pairs_are_exact() {
    let t = &mut SymTable::new();
    let cases = representatives(&specs(8, &[1, 8, 4, 3], t));
    for a in &cases {
        for b in &cases {
            check_pair(a, b, t);
        }
    }
}

#[test]
fn compositions_are_exact() {
    let t = &mut SymTable::new();
    let outer = representatives(&specs(7, &[1, 7, 4, 2], t));
    let mut inner: HashMap<usize, Vec<Case>> = HashMap::new();
    for a in outer {
        let numel = a.seq.len();
        let views = inner.entry(numel).or_insert_with(|| {
            specs(numel as i64, if numel > 6 { &[1, 8, 3] } else { &[1, 6, 3, 2] }, t)
        });
        for b in views.iter() {
            let seq: Vec<i64> = b.seq.iter().map(|&i| a.seq[i as usize]).collect();
            let found = a.spec.compose(&b.spec, t);
            assert_eq!(
                found.is_some(),
                strided(&seq, &b.sizes).is_some(),
                "{a:?} then {b:?}: {found:?}"
            );
            if let Some(found) = found {
                assert!(found.sizes().eq(b.spec.sizes()), "{a:?} then {b:?}: {found:?}");
                assert_eq!(sequence(&found), seq, "{a:?} then {b:?}: {found:?}");
            }
        }
    }
}
