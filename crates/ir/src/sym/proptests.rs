//! Property tests: algebraic laws of the canonical form, text round trips, and proofs compared with
//! brute force.

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
type Ranges = [Range; 3];
/// Ranges so small that every value is tried.
const NARROW: Ranges = [Range::new(-4, 5), Range::new(0, 3), Range::new(-2, -1)];
/// Infinite ranges, of which some values are tried.
const WIDE: Ranges = [Range::ALL, Range::SIZE, Range::new(i64::MIN, -1)];

fn table(ranges: Ranges) -> SymTable {
    let mut t = SymTable::new();
    for (name, range) in NAMES.iter().zip(ranges) {
        let kind = if *name == "u0" { SymbolKind::Unbacked } else { SymbolKind::Backed };
        t.symbol(name, kind, range).unwrap();
    }
    t
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        (-7i64..8).prop_map(Tree::Int),
        (0usize..3).prop_map(Tree::Symbol),
        (0usize..3).prop_map(Tree::Symbol)
    ];
    let ops = prop::sample::select(vec!["+", "-", "*", "//", "%", "min", "max"]);
    leaf.prop_recursive(4, 24, 2, move |inner| {
        (ops.clone(), inner.clone(), inner)
            .prop_map(|(op, a, b)| Tree::Binary(op, Box::new(a), Box::new(b)))
    })
}

/// Builds the canonical expression of a tree; an error if a divisor is the number zero.
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

/// The value by the definition of each operation; `None` if a divisor is zero.
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
                "%" => Some(a - b * ((a as f64 / b as f64).floor() as i128))
                    .filter(|_| a.abs() < 1 << 40),
                "min" => Some(a.min(b)),
                _ => Some(a.max(b)),
            }
        }
    }
}

type Relation = (Rel, Tree, Tree);

fn relations() -> impl Strategy<Value = Relation> {
    (
        prop::sample::select(vec![Rel::Eq, Rel::Ne, Rel::Lt, Rel::Le, Rel::Gt, Rel::Ge]),
        trees(),
        trees(),
    )
}

/// The condition and its two sides, if they can be built.
fn relation(t: &mut SymTable, (op, a, b): &Relation) -> Option<(BoolExpr, Vec<Expr>)> {
    let (a, b) = (build(t, a).ok()?, build(t, b).ok()?);
    Some((t.rel(*op, a, b), vec![a, b]))
}

fn ranges() -> impl Strategy<Value = Ranges> {
    prop::sample::select(vec![NARROW, WIDE])
}

fn assignments(ranges: Ranges) -> Vec<[i64; 3]> {
    let all = |r: Range| {
        (-13..=13).filter(move |&n| r.contains(n) && (r.hi < 99 && r.lo > -99 || n % 3 != 0))
    };
    let [a, b, c] = ranges.map(all);
    let pairs = a.flat_map(|x| b.clone().map(move |y| (x, y)));
    pairs.flat_map(|(x, y)| c.clone().map(move |z| [x, y, z])).collect()
}

fn env(values: &[i64; 3]) -> impl Fn(SymbolId) -> Option<i64> + '_ {
    |s| values.get(s.0 as usize).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn canonical_expressions_keep_their_values(tree in trees(), ranges in ranges()) {
        let mut t = table(ranges);
        let Ok(e) = build(&mut t, &tree) else { return Ok(()) };
        let bounds = t.bounds(e);
        for a in assignments(ranges) {
            let Some(expected) = value(&tree, &a) else { continue };
            let found = t.eval(e, &env(&a));
            prop_assert_eq!(found.clone().ok().map(i128::from), Some(expected), "{} at {:?}: \
                {:?}", t.display(e), a, found);
            prop_assert!(bounds.contains(found.unwrap()), "{} outside {bounds}", t.display(e));
        }
    }

    #[test]
    fn ring_laws_give_identical_expressions(
        a in trees(),
        b in trees(),
        c in trees(),
        ranges in ranges(),
    ) {
        let mut t = table(ranges);
        let built = (build(&mut t, &a), build(&mut t, &b), build(&mut t, &c));
        let (Ok(a), Ok(b), Ok(c)) = built else { return Ok(()) };
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
    fn polynomial_division_satisfies_its_identity(a in trees(), b in trees(), ranges in ranges()) {
        let mut t = table(ranges);
        let (Ok(a), Ok(b)) = (build(&mut t, &a), build(&mut t, &b)) else { return Ok(()) };
        let Some((q, r)) = t.divide_terms(a, b) else { return Ok(()) };
        let product = t.mul(q, b).unwrap();
        prop_assert_eq!(t.add(product, r).unwrap(), a, "{} / {}", t.display(a), t.display(b));
    }

    #[test]
    fn positive_sizes_simplify_maxima(a in trees(), size in trees(), ranges in ranges()) {
        let mut t = table(ranges);
        let (Ok(a), Ok(size)) = (build(&mut t, &a), build(&mut t, &size)) else { return Ok(()) };
        let (Ok(at_least_one), Ok(product)) = (t.max(size, Expr::Int(1)), t.mul(size, a)) else {
            return Ok(());
        };
        let Ok(stride) = t.mul(at_least_one, a) else { return Ok(()) };
        let simple = t.given_positive(stride, &[size]);
        // A factor of a positive product is positive only if none can be negative.
        let by_product = t.given_positive(stride, &[product]);
        let Ok(clamped) = t.max(size, Expr::Int(0)) else { return Ok(()) };
        let by_clamped = t.given_positive(stride, &[clamped]);
        for v in assignments(ranges) {
            let value = |e| t.eval(e, &env(&v)).ok();
            if value(product).is_some_and(|n| n >= 1) {
                let found = value(by_product);
                prop_assert_eq!(found, value(stride), "{} at {:?}", t.display(stride), v);
            }
            if value(size).is_some_and(|n| n >= 1) {
                prop_assert_eq!(value(simple), value(stride), "{} at {:?}", t.display(stride), v);
                let found = value(by_clamped);
                prop_assert_eq!(found, value(stride), "{} at {:?}", t.display(stride), v);
                let agrees = value(product).is_none() || value(product) == value(simple);
                prop_assert!(agrees, "{} at {:?}", t.display(stride), v);
            }
        }
    }

    #[test]
    fn text_parses_back(tree in trees(), other in trees(), ranges in ranges()) {
        let mut t = table(ranges);
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
        // Another table with other ids prints the same text.
        let mut fresh = SymTable::new();
        for i in [2, 0, 1] {
            fresh.symbol(NAMES[i], SymbolKind::Backed, ranges[i]).unwrap();
        }
        let copy = fresh.import(&t, a).unwrap();
        prop_assert_eq!(fresh.display(copy).to_string(), text);
    }

    #[test]
    fn proofs_agree_with_brute_force(
        goal in relations(),
        facts in prop::collection::vec(relations(), 1..4),
        ranges in ranges(),
    ) {
        let mut t = table(ranges);
        let Some((goal, mut parts)) = relation(&mut t, &goal) else { return Ok(()) };
        let mut conds = Vec::new();
        for f in &facts {
            let Some((cond, sides)) = relation(&mut t, f) else { return Ok(()) };
            conds.push(cond);
            parts.extend(sides);
        }
        let defined =
            |t: &SymTable, v: &[i64; 3]| parts.iter().all(|&e| t.eval(e, &env(v)).is_ok());
        let mut cases = assignments(ranges);
        cases.retain(|v| defined(&t, v));
        let mut assumed = String::new();
        for cond in std::iter::once(BoolExpr::Const(true)).chain(conds) {
            cases.retain(|v| t.eval_bool(cond, &env(v)).unwrap());
            assumed += &format!("; {}", t.display_bool(cond));
            if t.assume(cond).is_err() {
                prop_assert!(cases.is_empty(), "can hold: {}", assumed);
                return Ok(());
            }
            if let Some(known) = t.prove(goal) {
                let always = cases.iter().all(|v| t.eval_bool(goal, &env(v)).unwrap() == known);
                prop_assert!(always, "{} is not always {known} after \
                    {}", t.display_bool(goal), assumed);
            }
            for &e in &parts {
                let (simple, bounds) = (t.simplify(e), t.bounds(e));
                for v in &cases {
                    let value = t.eval(e, &env(v)).unwrap();
                    prop_assert_eq!(t.eval(simple, &env(v)).unwrap(), value, "simplify {} after \
                        {}", t.display(e), assumed);
                    prop_assert!(bounds.contains(value), "{} in {bounds} after \
                        {}", t.display(e), assumed);
                }
            }
        }
    }

    #[test]
    fn hostile_text_is_an_error_or_an_expression(text in "[su0n()+*/%<=!, \
        a-z-]{0,40}|\\PC{0,40}", ranges in ranges()) {
        let mut t = table(ranges);
        if let Err(e) = t.parse_expr(&text) {
            prop_assert!(!e.to_string().is_empty());
        }
        if let Ok(b) = t.parse_bool(&text) {
            let shown = t.display_bool(b).to_string();
            prop_assert_eq!(t.parse_bool(&shown).unwrap(), b);
        }
    }
}
