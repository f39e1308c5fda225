//! Laws of the canonical form, text round trips, and proofs against brute force.

use super::*;
use proptest::prelude::*;

/// An expression before any simplification.
#[derive(Clone, Debug)]
enum Tree {
    Int(i64),
    Symbol(usize),
    Binary(&'static str, Box<Tree>, Box<Tree>),
}

const NAMES: [&str; 3] = ["s0", "u0", "n"];
const RANGES: [Range; 3] = [Range::new(-4, 5), Range::new(0, 3), Range::new(-2, -1)];

fn table() -> SymTable {
    let mut t = SymTable::new();
    for (name, range) in NAMES.iter().zip(RANGES) {
        let kind = if *name == "u0" { SymbolKind::Unbacked } else { SymbolKind::Backed };
        t.symbol(name, kind, range).unwrap();
    }
    t
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![(-7i64..8).prop_map(Tree::Int), (0usize..3).prop_map(Tree::Symbol), (0usize..3).prop_map(Tree::Symbol)];
    let ops = prop::sample::select(vec!["+", "-", "*", "//", "%", "min", "max"]);
    leaf.prop_recursive(4, 24, 2, move |inner| {
        (ops.clone(), inner.clone(), inner).prop_map(|(op, a, b)| Tree::Binary(op, Box::new(a), Box::new(b)))
    })
}

/// Divisors that are the number zero become two, so that building succeeds.
fn build(t: &mut SymTable, tree: &Tree) -> Result<Expr, SymError> {
    match tree {
        Tree::Int(n) => Ok(Expr::Int(*n)),
        Tree::Symbol(i) => t.named(NAMES[*i]),
        Tree::Binary(op, a, b) => {
            let (a, b) = (build(t, a)?, build(t, b)?);
            match *op {
                "+" => t.add(a, b),
                "-" => t.sub(a, b),
                "*" => t.mul(a, b),
                "//" => t.floor_div(a, b),
                "%" => t.modulo(a, b),
                "min" => t.min(a, b),
                _ => t.max(a, b),
            }
        }
    }
}

/// The value by the definition of each operation; `None` where it divides by zero.
fn value(tree: &Tree, env: &[i64; 3]) -> Option<i128> {
    match tree {
        Tree::Int(n) => Some((*n).into()),
        Tree::Symbol(i) => Some(env[*i].into()),
        Tree::Binary(op, a, b) => {
            let (a, b) = (value(a, env)?, value(b, env)?);
            match *op {
                "+" => Some(a + b),
                "-" => Some(a - b),
                "*" => a.checked_mul(b),
                "//" | "%" if b == 0 => None,
                "//" => Some((a as f64 / b as f64).floor() as i128).filter(|_| a.abs() < 1 << 40),
                "%" => Some(a - b * ((a as f64 / b as f64).floor() as i128)).filter(|_| a.abs() < 1 << 40),
                "min" => Some(a.min(b)),
                _ => Some(a.max(b)),
            }
        }
    }
}

fn assignments() -> Vec<[i64; 3]> {
    let mut out = Vec::new();
    for a in RANGES[0].lo..=RANGES[0].hi {
        for b in RANGES[1].lo..=RANGES[1].hi {
            for c in RANGES[2].lo..=RANGES[2].hi {
                out.push([a, b, c]);
            }
        }
    }
    out
}

fn env(values: &[i64; 3]) -> impl Fn(SymbolId) -> Option<i64> + '_ {
    |s| values.get(s.0 as usize).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn simplified_values_are_right(tree in trees()) {
        let mut t = table();
        let Ok(e) = build(&mut t, &tree) else { return Ok(()) };
        let bounds = t.bounds(e);
        for a in assignments() {
            let Some(expected) = value(&tree, &a) else { continue };
            let found = t.eval(e, &env(&a));
            prop_assert_eq!(found.clone().ok().map(i128::from), Some(expected), "{} at {:?}: {:?}", t.display(e), a, found);
            prop_assert!(bounds.contains(found.unwrap()), "{} outside {bounds}", t.display(e));
        }
    }

    #[test]
    fn ring_laws_give_identical_expressions(a in trees(), b in trees(), c in trees()) {
        let mut t = table();
        let (Ok(a), Ok(b), Ok(c)) = (build(&mut t, &a), build(&mut t, &b), build(&mut t, &c)) else { return Ok(()) };
        let ab = t.add(a, b).unwrap();
        prop_assert_eq!(ab, t.add(b, a).unwrap());
        let bc = t.add(b, c).unwrap();
        prop_assert_eq!(t.add(ab, c).unwrap(), t.add(a, bc).unwrap());
        let (Ok(xy), Ok(yx)) = (t.mul(a, b), t.mul(b, a)) else { return Ok(()) };
        prop_assert_eq!(xy, yx);
        let yz = t.mul(b, c).unwrap();
        prop_assert_eq!(t.mul(xy, c).unwrap(), t.mul(a, yz).unwrap());
        let left = t.mul(a, bc).unwrap();
        let ac = t.mul(a, c).unwrap();
        prop_assert_eq!(left, t.add(xy, ac).unwrap());
        prop_assert_eq!(t.sub(ab, b).unwrap(), a);
        for max in [false, true] {
            let f = |t: &mut SymTable, x, y| if max { t.max(x, y) } else { t.min(x, y) }.unwrap();
            let (m, n) = (f(&mut t, a, b), f(&mut t, b, c));
            prop_assert_eq!(m, f(&mut t, b, a));
            prop_assert_eq!(f(&mut t, m, c), f(&mut t, a, n));
            prop_assert_eq!(f(&mut t, m, a), m);
        }
    }

    #[test]
    fn text_parses_back(tree in trees(), other in trees()) {
        let mut t = table();
        let (Ok(a), Ok(b)) = (build(&mut t, &tree), build(&mut t, &other)) else { return Ok(()) };
        let text = t.display(a).to_string();
        prop_assert_eq!(t.parse_expr(&text).unwrap(), a, "{}", text);
        let mut conds = Vec::new();
        for op in [Rel::Eq, Rel::Ne, Rel::Lt, Rel::Le, Rel::Gt, Rel::Ge] {
            conds.push(t.rel(op, a, b));
        }
        let (x, y) = (t.or(conds[0], conds[2]).unwrap(), t.and(conds[1], conds[3]).unwrap());
        conds.extend([x, y, t.and(x, y).unwrap(), t.or(x, y).unwrap(), t.not(x), t.not(y)]);
        for c in conds {
            let text = t.display_bool(c).to_string();
            prop_assert_eq!(t.parse_bool(&text).unwrap(), c, "{}", text);
        }
        // Another table, with other ids, gives the same text.
        let mut fresh = SymTable::new();
        for i in [2, 0, 1] {
            fresh.symbol(NAMES[i], SymbolKind::Backed, RANGES[i]).unwrap();
        }
        let copy = fresh.import(&t, a).unwrap();
        prop_assert_eq!(fresh.display(copy).to_string(), text);
    }

    #[test]
    fn proofs_agree_with_brute_force(a in trees(), b in trees(), fact in (trees(), trees()), ops in (0usize..6, 0usize..6)) {
        const OPS: [Rel; 6] = [Rel::Eq, Rel::Ne, Rel::Lt, Rel::Le, Rel::Gt, Rel::Ge];
        let mut t = table();
        let (Ok(a), Ok(b)) = (build(&mut t, &a), build(&mut t, &b)) else { return Ok(()) };
        let (Ok(x), Ok(y)) = (build(&mut t, &fact.0), build(&mut t, &fact.1)) else { return Ok(()) };
        let (goal, fact) = (t.rel(OPS[ops.0], a, b), t.rel(OPS[ops.1], x, y));
        let defined = |t: &SymTable, v: &[i64; 3]| [a, b, x, y].iter().all(|&e| t.eval(e, &env(v)).is_ok());
        let cases: Vec<_> = assignments().into_iter().filter(|v| defined(&t, v)).collect();
        let truth = |t: &SymTable, v: &[i64; 3]| t.eval_bool(goal, &env(v)).unwrap();
        if let Some(known) = t.prove(goal) {
            prop_assert!(cases.iter().all(|v| truth(&t, v) == known), "{} is not always {known}", t.display_bool(goal));
        }
        let cases: Vec<_> = cases.into_iter().filter(|v| t.eval_bool(fact, &env(v)).unwrap()).collect();
        if t.assume(fact).is_err() {
            prop_assert!(cases.is_empty(), "{} can hold", t.display_bool(fact));
            return Ok(());
        }
        let simple = t.simplify(a);
        for v in &cases {
            prop_assert_eq!(t.eval(simple, &env(v)).unwrap(), t.eval(a, &env(v)).unwrap(), "simplify");
            prop_assert!(t.bounds(a).contains(t.eval(a, &env(v)).unwrap()), "bounds");
        }
        if let Some(known) = t.prove(goal) {
            prop_assert!(
                cases.iter().all(|v| truth(&t, v) == known),
                "{} is not always {known} after {}", t.display_bool(goal), t.display_bool(fact)
            );
        }
    }

    #[test]
    fn hostile_text_is_an_error_or_an_expression(text in "[su0n()+*/%<=!, a-z-]{0,40}|\\PC{0,40}") {
        let mut t = table();
        if let Err(e) = t.parse_expr(&text) {
            prop_assert!(!e.to_string().is_empty());
        }
        if let Ok(b) = t.parse_bool(&text) {
            let shown = t.display_bool(b).to_string();
            prop_assert_eq!(t.parse_bool(&shown).unwrap(), b);
        }
    }
}
