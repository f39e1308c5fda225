//! What a program takes for granted of sizes that were declared dynamic.

mod common;

use common::{arange, over};
use maquette_driver::{ExportOptions, Program};
use maquette_ops::{Error, Result, Tensor};
use maquette_trace::Dim;
use std::fmt::Write;

fn of(sizes: &[i64]) -> Tensor {
    arange(sizes.iter().product()).reshape(sizes)
}

fn batch() -> Dim {
    Dim::new("batch")
}

/// The error, with this file's lines called by the comments at their ends.
fn text(e: &Error) -> String {
    let lines: Vec<&str> = include_str!("export_constraints.rs").lines().collect();
    let mut out = String::new();
    for part in e.to_string().split_inclusive(".rs:") {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let named =
            part[..digits].parse::<usize>().ok().and_then(|n| lines.get(n - 1)?.rsplit_once("// "));
        match named {
            Some((_, name)) => out += &format!("{name}{}", &part[digits..]),
            None if digits > 0 => out += &format!("LINE{}", &part[digits..]),
            None => out += part,
        }
    }
    out
}

/// Exports a program of inputs of these sizes, with dimensions declared dynamic, and gives the
/// refusal.
fn refusal(
    sizes: &[&[i64]],
    dims: &[(usize, usize, Dim)],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> String {
    let module = over(vec![], |_, x| vec![f(&x).unwrap_or_else(Tensor::poison)]);
    let options = dims.iter().fold(ExportOptions::new(), |o, (input, dim, symbol)| {
        o.dynamic(*input, *dim, symbol.clone())
    });
    let inputs = sizes.iter().map(|s| of(s)).collect();
    match options.export(&module, inputs) {
        Ok(program) => format!("exported: {}", program.graph()),
        Err(e) => text(&e),
    }
}

#[test]
fn violations() {
    let mut book = String::new();
    let mut case = |title: &str, text: String| writeln!(book, "# {title}\n{text}\n").unwrap();
    let one = [(0, 0, batch())];

    let branch = |x: &[Tensor]| {
        let four = x[0].size(0).eq(4).guard()?; // line A
        Ok(if four { x[0].neg() } else { x[0].relu() })
    };
    case("a size is taken for a number", refusal(&[&[4, 2]], &one, branch));
    case(
        "a reshape that fits one size",
        refusal(&[&[4, 3]], &one, |x| Ok(x[0].reshape([6i64, 2]))),
    ); // line B
    let small = |x: &[Tensor]| {
        let small = x[0].size(0).le(8).guard()?; // line C
        Ok(if small { x[0].neg() } else { x[0].relu() })
    };
    case("an upper bound", refusal(&[&[4, 2]], &one, small));
    case("an upper bound that was declared", refusal(&[&[4, 2]], &[(0, 0, batch().max(8))], small));
    let between = |x: &[Tensor]| {
        let large = x[0].size(0).gt(2).guard()?; // line D
        let small = x[0].size(0).lt(100).guard()?; // line E
        Ok(if large && small { x[0].neg() } else { x[0].relu() })
    };
    case("two bounds", refusal(&[&[4, 2]], &[(0, 0, batch().max(64))], between));
    case("two bounds, none declared", refusal(&[&[4, 2]], &one, between));
    let even = |x: &[Tensor]| {
        let even = (x[0].size(0) % 2).eq(0).guard()?; // line F
        Ok(if even { x[0].neg() } else { x[0].relu() })
    };
    case("an even size", refusal(&[&[4, 2]], &one, even));
    let two = [(0, 0, batch()), (1, 0, Dim::new("other"))];
    let sum = |x: &[Tensor]| Ok(&x[0] + &x[1]); // line G
    case("a size that another is asked to be", refusal(&[&[4], &[4]], &two, sum));
    case("one more", refusal(&[&[5], &[4]], &two, |x| Ok(x[0].slice(0, 1..) + &x[1]))); // line H
    case("a size that is another's number", refusal(&[&[4], &[4]], &one, sum));
    case(
        "rows of a product",
        refusal(&[&[2, 3], &[3, 4]], &[(0, 1, batch())], |x| Ok(x[0].matmul(&x[1]))),
    ); // line J
    case(
        "one name in two places",
        refusal(&[&[4], &[4]], &[(0, 0, batch()), (1, 0, batch())], |x| {
            x[0].size(0).le(16).guard()?; // line K
            Ok(&x[0] + &x[1])
        }),
    );
    case(
        "several at once",
        refusal(
            &[&[4, 6], &[3]],
            &[(0, 0, batch()), (0, 1, Dim::new("width")), (1, 0, Dim::new("rest").min(1))],
            |x| {
                let n = x[1].size(0).guard_int()?; // line L
                x[0].size(1).ge(x[0].size(0)).guard()?; // line M
                x[0].size(0).lt(50).guard()?; // line N
                Ok(x[0].sum() * n as f64)
            },
        ),
    );
    insta::assert_snapshot!("violations", book);
}

/// Exports as [`refusal`] does.
fn exported(
    options: ExportOptions,
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    sizes: &[&[i64]],
) -> Result<Program<Vec<Tensor>, Vec<Tensor>>> {
    let module = over(vec![], |_, x| vec![f(&x).unwrap_or_else(Tensor::poison)]);
    options.export(&module, sizes.iter().map(|s| of(s)).collect())
}

#[test]
fn suggested_fixes_make_the_export_succeed() {
    let one = |dim: Dim| ExportOptions::new().dynamic(0, 0, dim);
    let small =
        |x: &[Tensor]| Ok(if x[0].size(0).le(8).guard()? { x[0].neg() } else { x[0].relu() });
    let program = exported(one(batch().max(8)), small, &[&[4]]).unwrap();
    assert_eq!(program.call(vec![of(&[8])]).unwrap()[0].sizes_i64().unwrap(), [8]);
    assert!(
        program
            .call(vec![of(&[9])])
            .unwrap_err()
            .to_string()
            .contains("size 0 must be in [0, 8], found 9")
    );

    let both = one(batch()).dynamic(1, 0, batch());
    let program = exported(both, |x| Ok(&x[0] + &x[1]), &[&[4], &[4]]).unwrap();
    assert!(program.call(vec![of(&[3]), of(&[3])]).is_ok());
    assert!(program.call(vec![of(&[3]), of(&[2])]).is_err());

    let even = |x: &[Tensor]| {
        (x[0].size(0) % 2).eq(0).check("rows come in pairs")?; // line O
        Ok(if (x[0].size(0) % 2).eq(0).guard()? { x[0].neg() } else { x[0].relu() })
    };
    let program = exported(one(batch()), even, &[&[4]]).unwrap();
    assert!(program.guards().is_empty());
    assert!(program.call(vec![of(&[6])]).is_ok());
    let e = program.call(vec![of(&[5])]).unwrap_err();
    let expected = "assertion failed: rows come in pairs: `batch % 2 == 0` does not hold: batch = \
        5\n  at crates/driver/tests/export_constraints.rs:line O";
    assert_eq!(text(&e).lines().take(2).collect::<Vec<_>>().join("\n"), expected);
    let [assertion] = &program.assertions()[..] else { panic!("{:?}", program.assertions()) };
    assert_eq!(
        (assertion.cond.as_str(), assertion.message.as_deref()),
        ("batch % 2 == 0", Some("rows come in pairs"))
    );
    assert_eq!(assertion.loc, e.loc());
}

#[test]
fn symbols_that_were_not_declared_may_be_restricted() {
    let pairs = |x: &[Tensor]| {
        let small = x[0].size(0).le(8).guard()?; // line P
        Ok(if small { &x[0] + &x[1] } else { x[0].relu() })
    };
    let program = exported(ExportOptions::symbolic(), pairs, &[&[4], &[4]]).unwrap();
    let guards: Vec<String> = program.guards().into_iter().map(|g| g.cond).collect();
    assert_eq!(guards, ["s0 <= 8", "s0 == s1"]);
    let ranges: Vec<String> = program
        .range_constraints()
        .into_iter()
        .map(|r| format!("{} in {} {:?}", r.symbol, r.range, r.dims))
        .collect();
    assert_eq!(ranges, [r#"s0 in [0, 8] [("in0", 0)]"#, r#"s1 in [0, 8] [("in1", 0)]"#]);
    assert!(program.call(vec![of(&[7]), of(&[7])]).is_ok());
    let e = program.call(vec![of(&[9]), of(&[9])]).unwrap_err();
    let (guard, place) =
        ("the guard `s0 <= 8` does not hold: s0 = 9", "export_constraints.rs:line P");
    assert!(text(&e).starts_with(guard) && text(&e).contains(place), "{}", text(&e));
    // a declared dimension may not, not even by one that was not
    let mixed = exported(
        ExportOptions::symbolic().dynamic(0, 0, batch()),
        |x| Ok(&x[0] + &x[1]),
        &[&[4], &[4]],
    )
    .unwrap_err();
    let fix =
        "declare `.dynamic(1, 0, Dim::new(\"batch\"))`: dimensions of one name have equal sizes";
    assert!(mixed.to_string().contains(fix), "{mixed}");
}

#[test]
fn a_static_program_has_no_constraints() {
    let program = exported(ExportOptions::new(), |x| Ok(x[0].relu()), &[&[4]]).unwrap();
    assert!(
        program.range_constraints().is_empty()
            && program.guards().is_empty()
            && program.assertions().is_empty()
    );
    fn shared_between_threads<T: Send + Sync>(_: &T) {}
    shared_between_threads(&program);
}

#[test]
fn data_dependent_sizes_keep_their_ranges_and_assertions() {
    let rows = |x: &[Tensor]| {
        let found = x[0].nonzero();
        found.size(0).ge(1).check("something must be there")?;
        Ok(found)
    };
    let program = exported(ExportOptions::new().dynamic(0, 0, batch()), rows, &[&[4]]).unwrap();
    let ranges: Vec<String> = program
        .range_constraints()
        .into_iter()
        .map(|r| format!("{} in {} {:?}", r.symbol, r.range, r.dims))
        .collect();
    assert_eq!(ranges, [r#"batch in [0, oo) [("in0", 0)]"#, "u0 in [0, oo) []"]);
    assert_eq!(program.call(vec![of(&[5])]).unwrap()[0].sizes_i64().unwrap(), [4, 1]);
    let e = program.call(vec![Tensor::from([0.0f32, 0.0])]).unwrap_err().to_string();
    assert!(e.contains("something must be there"), "{e}");
}
