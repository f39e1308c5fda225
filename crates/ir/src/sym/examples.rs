//! Examples: canonical texts, known answers of the prover, errors, and scopes.

use super::*;
use crate::Loc;

fn table() -> SymTable {
    let mut t = SymTable::new();
    for name in ["s0", "s1", "batch"] {
        t.symbol(name, SymbolKind::Backed, Range::SIZE).unwrap();
    }
    for name in ["u0", "u1", "u2"] {
        t.symbol(name, SymbolKind::Unbacked, Range::SIZE).unwrap();
    }
    t.symbol("any", SymbolKind::Backed, Range::ALL).unwrap();
    t
}

fn expr(text: &str) -> String {
    let mut t = table();
    match t.parse_expr(text) {
        Ok(e) => t.display(e).to_string(),
        Err(e) => e.to_string(),
    }
}

fn cond(text: &str) -> String {
    let mut t = table();
    match t.parse_bool(text) {
        Ok(e) => t.display_bool(e).to_string(),
        Err(e) => e.to_string(),
    }
}

/// Asserts the prover's answers to goals after assuming facts, in one table.
fn check_proofs(facts: &[&str], goals: &[(&str, Option<bool>)]) {
    let mut t = table();
    for f in facts {
        let b = t.parse_bool(f).unwrap();
        t.assume(b).unwrap();
    }
    for (goal, expected) in goals {
        let b = t.parse_bool(goal).unwrap();
        assert_eq!(t.prove(b), *expected, "{goal} after {facts:?}");
    }
}

#[test]
fn remainders_of_products_beyond_128_bits() {
    let mut t = SymTable::new();
    t.symbol("n", SymbolKind::Backed, Range::new(1 << 43, i64::MAX)).unwrap();
    let e = t.parse_expr("-n*n*n % 7").unwrap();
    assert_eq!(t.display(e).to_string(), "(-n * n * n) % 7");
}

#[test]
fn equal_expressions_print_one_canonical_text() {
    let cases = [
        ("1 + batch", "batch + 1"),
        ("batch * 10", "10 * batch"),
        ("s0 // 2", "s0 // 2"),
        ("(1 + s0) % 4", "(s0 + 1) % 4"),
        ("min(s1, s0)", "min(s0, s1)"),
        ("s1 * 2 * s0 - 3", "2 * s0 * s1 - 3"),
        ("5 - s0", "5 - s0"),
        ("0 - s0 - s1", "-s0 - s1"),
        ("s1 - s0 + 3", "s1 - s0 + 3"),
        ("-(s0 // 2)", "-(s0 // 2)"),
        ("s1 - 2 * (s0 // 2)", "s1 - 2 * (s0 // 2)"),
        ("(4 * s0) // 2", "2 * s0"),
        ("(4 * s0) % 2", "0"),
        ("(2 * s0 + 1) % 2", "1"),
        ("(2 * s0 + 3) // 4", "(s0 + 1) // 2"),
        ("(6 * s0 + 4) % 4", "2 * (s0 % 2)"),
        ("s0 // 2 // 3", "s0 // 6"),
        ("(s0 % 8) % 4", "s0 % 4"),
        ("(s0 % 4) // 4", "0"),
        ("(s0 * s1) // s1", "s0"),
        ("(s0 * s1 + s1) // (s0 + 1)", "s1"),
        ("(3 * s0 * u0) % (6 * s0)", "3 * s0 * (u0 % 2)"),
        ("s0 // -2", "(-s0) // 2"),
        ("max(min(s0, 0 - 1), s0)", "s0"),
        ("max(s0, 0)", "s0"),
        ("max(any, 0, 3, any)", "max(3, any)"),
        ("-7 // 2", "-4"),
        ("-7 % 2", "1"),
        ("7 % -2", "-1"),
        ("-9223372036854775808", "-9223372036854775808"),
    ];
    for (text, expected) in cases {
        assert_eq!(expr(text), expected, "{text}");
    }
}

#[test]
fn the_least_integer_prints_as_it_parses() {
    // Without its sign, the number is no 64-bit integer.
    let cases = [
        ("-9223372036854775808 - s0", "-s0 + -9223372036854775808"),
        ("s0 + -9223372036854775808", "s0 + -9223372036854775808"),
        ("-9223372036854775808 * s0", "-9223372036854775808 * s0"),
        ("s0 + -9223372036854775808 * s1", "s0 + -9223372036854775808 * s1"),
    ];
    for (text, canonical) in cases {
        assert_eq!(expr(text), canonical);
        assert_eq!(expr(canonical), canonical);
    }
}

#[test]
fn equal_conditions_print_one_canonical_text() {
    let cases = [
        ("u0 <= 10 * batch", "u0 <= 10 * batch"),
        ("u0 > 3", "u0 > 3"),
        ("3 >= u0", "u0 <= 3"),
        ("s0 % 4 == 0", "s0 % 4 == 0"),
        ("s1 != s0", "s0 != s1"),
        ("u0 + u1 == 10", "u0 + u1 == 10"),
        ("u0 == 10 - u1", "u0 + u1 == 10"),
        ("2 * s0 == 3", "false"),
        ("2 * s0 <= 5", "s0 <= 2"),
        ("2 * s0 < 5", "s0 < 3"),
        ("s0 + 1 > s0", "true"),
        ("not (s0 > 1 and s1 == 2)", "s0 <= 1 or s1 != 2"),
        ("s0 > 1 and not (s0 > 1)", "false"),
        ("(s0 > 1 or s1 > 1) and u0 > 1", "u0 > 1 and (s0 > 1 or s1 > 1)"),
    ];
    for (text, expected) in cases {
        assert_eq!(cond(text), expected, "{text}");
    }
}

#[test]
fn facts_decide_goals() {
    let yes = Some(true);
    let no = Some(false);
    check_proofs(
        &["u0 > 4"],
        &[("u0 != 3", yes), ("u0 != 4", yes), ("u0 >= 5", yes), ("u0 != 5", None), ("u0 < 2", no)],
    );
    check_proofs(
        &["u0 < s0"],
        &[
            ("u0 != s0", yes),
            ("u0 >= s0", no),
            ("u0 + 1 <= s0", yes),
            ("s0 > 0", yes),
            ("u0 > 0", None),
        ],
    );
    check_proofs(
        &["u0 + u1 == 10"],
        &[
            ("u0 + u1 == 10", yes),
            ("u0 <= 10", yes),
            ("2 * u0 + 2 * u1 == 20", yes),
            ("u0 == 5", None),
        ],
    );
    check_proofs(&["u0 == s0"], &[("u0 + 1 == s0 + 1", yes), ("u0 * s1 == s0 * s1", yes)]);
    check_proofs(&["s1 == 2 * s0"], &[("s1 % 2 == 0", yes), ("s1 >= s0", yes)]);
    check_proofs(
        &["u0 <= u1", "u1 <= u2", "u2 < s0"],
        &[("u0 < s0", yes), ("u0 <= u2", yes), ("u2 <= u0", None)],
    );
    check_proofs(
        &["u0 % 4 == 0"],
        &[
            ("u0 % 2 == 0", yes),
            ("u0 // 4 * 4 == u0", yes),
            ("u0 != 3", yes),
            ("u0 == 4", None),
            ("(u0 + 1) % 4 == 1", yes),
        ],
    );
    check_proofs(
        &["u0 % 2 == 1"],
        &[("u0 != 0", yes), ("(u0 + s0 + s0) % 2 == 1", yes), ("u0 % 4 == 2", no)],
    );
    check_proofs(&["s0 >= 2", "s1 >= 2"], &[("s0 * s1 > s1", yes), ("s0 * s1 >= 4", yes)]);
    check_proofs(&["s0 // 4 == 3"], &[("s0 >= 12", yes), ("s0 <= 15", yes), ("s0 == 13", None)]);
    check_proofs(&["u0 <= 10 * batch"], &[("u0 <= 20 * batch", yes), ("u0 > 10 * batch", no)]);
    check_proofs(&["u0 != 0"], &[("u0 >= 1", yes)]);
    check_proofs(&["u0 <= s0", "u0 != s0"], &[("u0 < s0", yes)]);
    check_proofs(&["s0 > 1 and s1 > s0"], &[("s1 > 2", yes)]);
    check_proofs(&["s0 == 1 or s0 == 3"], &[("s0 == 3 or s0 == 1", yes), ("s0 == 1", None)]);
    check_proofs(&["s0 == 3", "u0 == s0"], &[("u0 == 3", yes), ("u0 * s1 == 3 * s1", yes)]);
    let always = [
        ("u0 >= 0", yes),
        ("u0 == 0", None),
        ("min(s0, u0) <= s0", yes),
        ("max(1, u0) > 0", yes),
        ("max(s0, u0) >= u0", yes),
        ("s0 // 2 <= s0", yes),
        ("s0 // 2 * 2 >= s0 - 1", yes),
        ("s0 % 4 < 4", yes),
        ("s0 % 4 <= s0", yes),
        ("2 * s0 != 2 * s1 + 1", yes),
        ("any * any >= 0", yes),
        ("any >= 0", None),
    ];
    check_proofs(&[], &always);
}

#[test]
fn substitutions_follow_the_rules() {
    let mut t = table();
    let assume = |t: &mut SymTable, text: &str| {
        let b = t.parse_bool(text).unwrap();
        t.assume(b)
    };
    let simple = |t: &mut SymTable, text: &str| {
        let e = t.parse_expr(text).unwrap();
        let e = t.simplify(e);
        t.display(e).to_string()
    };
    assume(&mut t, "u0 == s0 + 1").unwrap();
    assume(&mut t, "u1 + u2 == 10").unwrap();
    assert_eq!(simple(&mut t, "u0 * 2"), "2 * s0 + 2");
    assert_eq!(simple(&mut t, "u1 + u2"), "u1 + u2", "data are not expressed by other data");
    assume(&mut t, "s0 <= 6").unwrap();
    assume(&mut t, "s0 >= 6").unwrap();
    assert_eq!(simple(&mut t, "u0"), "7");
    let u0 = t.lookup("u0").unwrap();
    assert_eq!((t.proven_range(u0), t.range(u0)), (Range::point(7), Range::SIZE));
    let error = assume(&mut t, "u0 == 8").unwrap_err().to_string();
    assert_eq!(error, "`u0 == 8` contradicts known facts: u0 == 7");
    let error = assume(&mut t, "u1 > 20").unwrap_err().to_string();
    assert_eq!(error, "`u1 > 20` contradicts known facts: u1 in [0, 10]");
}

#[test]
fn bad_input_is_an_error() {
    let mut t = table();
    let bad = [
        ("s0 +", "expected a number, a name or `(`, found the end at column 5 of `s0 +`"),
        ("s0 ? 1", "expected an operator, a number or a name, found `?` at column 4 of `s0 ? 1`"),
        ("s0 s1", "expected the end or an operator, found `s1` at column 4 of `s0 s1`"),
        ("min(s0", "expected `)`, found the end at column 7 of `min(s0`"),
        ("nope + 1", "no symbol is named `nope`"),
        ("s0 // 0", "`(s0) // 0` divides by zero"),
        ("3 % (s0 - s0)", "`3 % 0` divides by zero"),
        (
            "99999999999999999999",
            "expected a 64-bit integer, found 20 digits at column 1 of `99999999999999999999`",
        ),
        (
            "9223372036854775807 * s0 * 2",
            "`(9223372036854775807 * s0) * (2)` overflows a 64-bit integer",
        ),
        ("s0 < 3", "expected an integer expression, found a condition at column 1 of `s0 < 3`"),
        (
            "(s0 < 3) + 1",
            "expected an integer expression, found a condition at column 1 of `(s0 < 3) + 1`",
        ),
    ];
    for (text, message) in bad {
        assert_eq!(t.parse_expr(text).unwrap_err().to_string(), message);
    }
    let message =
        "expected a condition such as `s0 <= 4`, found an integer expression at column 1 of `s0`";
    assert_eq!(t.parse_bool("s0").unwrap_err().to_string(), message);
    for (open, close) in [("(", ")"), ("-", ""), ("min(s0, ", ")"), ("not ", "")] {
        let deep = format!("{}s0{}", open.repeat(100_000), close.repeat(100_000));
        assert!(matches!(t.parse_bool(&deep), Err(SymError::TooLarge { .. })), "{open}");
    }
    for name in ["", "1x", "a-b", "min", "oo", "é"] {
        assert!(
            matches!(t.symbol(name, SymbolKind::Backed, Range::ALL), Err(SymError::InvalidName(_))),
            "{name}"
        );
    }
    assert!(matches!(
        t.symbol("s0", SymbolKind::Backed, Range::ALL),
        Err(SymError::DuplicateName(_))
    ));
    assert!(matches!(
        t.symbol("e", SymbolKind::Backed, Range::new(5, 3)),
        Err(SymError::EmptyRange { lo: 5, hi: 3, .. })
    ));
    // Unbounded growth is an error, in depth, size and degree.
    let (s0, two) = (t.parse_expr("s0 + s1").unwrap(), Expr::Int(2));
    type Step = fn(&mut SymTable, Expr, Expr) -> Result<Expr, SymError>;
    let steps: [Step; 3] = [
        |t, x, s| t.mul(x, s),
        |t, x, s| t.floor_div(Expr::Int(100), x).and_then(|x| t.add(x, s)),
        |t, x, _| {
            let (a, b) = (t.floor_div(x, Expr::Int(3))?, t.modulo(x, Expr::Int(5))?);
            t.add(a, b)
        },
    ];
    for step in steps {
        let mut x = s0;
        let end = (0..1000).try_for_each(|_| step(&mut t, x, s0).map(|y| x = y));
        assert!(
            matches!(end, Err(SymError::TooLarge { .. }) | Err(SymError::Overflow(_))),
            "{end:?}"
        );
    }
    assert!(t.add(two, s0).is_ok());
    // An id of another table is an unbound symbol here.
    let empty = SymTable::new();
    assert!(matches!(empty.eval(s0, &|_| Some(1)), Err(SymError::Unbound(_))));
}

#[test]
fn ranges_round_trip_through_text() {
    for text in ["[0, oo)", "[1, 64]", "(-oo, oo)", "(-oo, -3]"] {
        assert_eq!(text.parse::<Range>().unwrap().to_string(), text);
    }
    for text in ["", "[1, 2", "0, 1", "[a, 2]", "[1 2]"] {
        assert!(text.parse::<Range>().is_err(), "{text}");
    }
}

#[test]
fn guards_are_decided_on_example_values() {
    let scope = Scope::new();
    let s = scope.backed(Some("batch"), Range::SIZE, 6).unwrap();
    let n = scope.backed(None, Range::SIZE, 3).unwrap();
    assert_eq!((s + 1).to_string(), "batch + 1");
    assert!(s.gt(4).guard().unwrap());
    assert!(s.ge(5).guard().unwrap(), "known by the first guard");
    assert!(!n.eq(s).guard().unwrap());
    assert_eq!(n.guard_int().unwrap(), 3);
    assert_eq!((n * 2).guard_int().unwrap(), 6, "known by the first specialisation");
    assert_eq!((n.statically_known_value(), (s + n).hint()), (Some(3), Some(9)));
    let data = scope.close();
    let texts: Vec<String> =
        data.guards.iter().map(|g| data.table.display_bool(g.cond).to_string()).collect();
    assert_eq!(texts, ["batch > 4", "batch != s0", "s0 == 3"]);
    assert!(data.guards.iter().all(|g| g.loc.file.ends_with("examples.rs")));
    assert!(matches!(s.guard_int(), Err(SymError::ScopeClosed)));
    assert!((s + 1).poisoned().is_some());
}

impl SymInt {
    fn statically_known_value(self) -> Option<i64> {
        self.range().single()
    }
}

#[test]
fn an_assertion_about_data_does_not_exclude_an_example() {
    let scope = Scope::new();
    let n = scope.backed(None, Range::SIZE, 4).unwrap();
    let u = scope.unbacked(Range::SIZE, "mylib::count", Loc::caller());
    (u * 4).eq(n).check("rows of 4").unwrap();
    let error = u.eq(0).check("none").unwrap_err();
    assert!(matches!(error, SymError::Contradiction { .. }), "{error}");
    u.eq(1).check("it was not assumed").unwrap();
    assert_eq!(n.eq(4).statically_known(), Some(true));
}

#[test]
fn data_cannot_be_branched_on() {
    let scope = Scope::new();
    let loc = Loc { file: "model.rs", line: 7 };
    let u = scope.unbacked(Range::SIZE, "mylib::custom_nonzero", loc);
    let error = u.gt(3).guard().unwrap_err();
    let SymError::DataDependent(d) = &error else { panic!("{error}") };
    assert_eq!((d.expr.as_str(), d.symbol.as_str(), d.origin_loc), ("u0 > 3", "u0", loc));
    assert!(
        error
            .to_string()
            .contains("the data-dependent size made by mylib::custom_nonzero at model.rs:7"),
        "{error}"
    );
    assert!(u.ge(0).guard().unwrap(), "known by its range");
    assert!(u.guard_int().is_err());
    u.gt(3).check("few").unwrap();
    u.gt(3).check("again").unwrap();
    assert!(u.gt(2).guard().unwrap(), "known by the check");
    assert_eq!(u.gt(5).statically_known(), None);
    let error = u.lt(1).check("none").unwrap_err().to_string();
    assert_eq!(error, "assertion `u0 < 1` is false: none");
    let data = scope.close();
    assert!(data.guards.is_empty());
    assert_eq!(
        data.assertions.iter().map(|a| a.message.as_deref()).collect::<Vec<_>>(),
        [Some("few")]
    );
}

#[test]
fn numbers_need_no_scope() {
    let three = SymInt::from(3);
    assert_eq!(((three + 4) * 2 - 1i64).as_i64(), Some(13));
    assert_eq!(
        (SymInt::from(-7).floor_div(2).as_i64(), (SymInt::from(-7) % 2).as_i64()),
        (Some(-4), Some(1))
    );
    assert_eq!((10 - three).as_i64(), Some(7));
    assert_eq!(
        [2usize, 3, 4].iter().map(|&n| SymInt::from(n)).product::<SymInt>().as_i64(),
        Some(24)
    );
    assert_eq!((three.lt(4) & three.gt(1)).as_bool(), Some(true));
    assert_eq!((!three.lt(4) | false).as_bool(), Some(false));
    let poison = SymInt::from(i64::MAX) + 1;
    assert_eq!(poison.to_string(), "<`9223372036854775807 + 1` overflows a 64-bit integer>");
    assert_eq!(
        (three + poison * 2).guard_int().unwrap_err().to_string(),
        "`9223372036854775807 + 1` overflows a 64-bit integer"
    );
    assert!(matches!(three.floor_div(0).guard_int(), Err(SymError::DivisionByZero(_))));
    assert!(matches!(SymInt::from(usize::MAX).guard_int(), Err(SymError::Overflow(_))));
}

#[test]
fn handles_of_different_scopes_do_not_mix() {
    let (a, b) = (Scope::new(), Scope::new());
    let x = a.backed(None, Range::SIZE, 2).unwrap();
    let y = b.backed(None, Range::SIZE, 2).unwrap();
    assert!(matches!((x + y).guard_int(), Err(SymError::DifferentScopes)));
    assert!(matches!(x.eq(y).guard(), Err(SymError::DifferentScopes)));
    assert!(matches!(b.lower(x), Err(SymError::DifferentScopes)));
    assert!(a.with(|_| (x + 1).poisoned()).is_some(), "busy");
    assert!(a.with(|_| (y + 1).poisoned()).is_none(), "another scope is not");
    assert!(matches!(
        a.backed(Some("bad"), Range::new(5, 9), 4),
        Err(SymError::HintOutOfRange { hint: 4, .. })
    ));
    let sum = std::thread::spawn(move || (x + 1).to_string()).join().unwrap();
    assert_eq!(sum, "s0 + 1");
    let clone = a.clone();
    drop(a);
    assert!(clone.lower(x + 1).is_ok());
    drop(clone);
    assert!(matches!((x + 1).guard_int(), Err(SymError::ScopeClosed)));
}

#[test]
fn imports_match_symbols_by_name() {
    let mut t = table();
    let e = t.parse_expr("min(s0, u0 // 2) + batch * s1").unwrap();
    let b = t.parse_bool("s0 <= 4 or batch % 2 == 1").unwrap();
    let mut other = SymTable::new();
    assert!(matches!(other.import(&t, e), Err(SymError::UnknownSymbol(_))));
    for name in ["batch", "u0", "s1", "s0"] {
        other.symbol(name, SymbolKind::Backed, Range::SIZE).unwrap();
    }
    let (f, c) = (other.import(&t, e).unwrap(), other.import_bool(&t, b).unwrap());
    assert_eq!(other.display(f).to_string(), t.display(e).to_string());
    assert_eq!(other.display_bool(c).to_string(), t.display_bool(b).to_string());
}

#[test]
fn bounds_of_nested_products_take_bounded_time() {
    let mut t = table();
    let mut text = "s0".to_owned();
    for _ in 0..20 {
        text = format!("max(1, ({text}) * s1 - s0 * s1 + s0)");
    }
    let e = t.parse_expr(&text).unwrap();
    assert_eq!(t.bounds(e).lo, 1);
}
