//! What a program takes for granted of sizes that were declared dynamic.

mod common;

use common::{arange, over};
use maquette_driver::ExportOptions;
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
        let named = part[..digits].parse::<usize>().ok().and_then(|n| lines.get(n - 1)?.rsplit_once("// "));
        match named {
            Some((_, name)) => out += &format!("{name}{}", &part[digits..]),
            None if digits > 0 => out += &format!("LINE{}", &part[digits..]),
            None => out += part,
        }
    }
    out
}

/// Exports a program of inputs of these sizes, with dimensions declared dynamic, and gives the refusal.
fn refusal(sizes: &[&[i64]], dims: &[(usize, usize, Dim)], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> String {
    let module = over(vec![], |_, x| vec![f(&x).unwrap_or_else(Tensor::poison)]);
    let options = dims.iter().fold(ExportOptions::new(), |o, (input, dim, symbol)| o.dynamic(*input, *dim, symbol.clone()));
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

    let branch = |x: &[Tensor]| Ok(if x[0].size(0).eq(4).guard()? { x[0].neg() } else { x[0].relu() }); // line A
    case("a size is taken for a number", refusal(&[&[4, 2]], &one, branch));
    case("a reshape that fits one size", refusal(&[&[4, 3]], &one, |x| Ok(x[0].reshape([6i64, 2])))); // line B
    let small = |x: &[Tensor]| Ok(if x[0].size(0).le(8).guard()? { x[0].neg() } else { x[0].relu() }); // line C
    case("an upper bound", refusal(&[&[4, 2]], &one, small));
    case("an upper bound that was declared", refusal(&[&[4, 2]], &[(0, 0, batch().max(8))], small));
    let between = |x: &[Tensor]| {
        let large = x[0].size(0).gt(2).guard()?; // line D
        let small = x[0].size(0).lt(100).guard()?; // line E
        Ok(if large && small { x[0].neg() } else { x[0].relu() })
    };
    case("two bounds", refusal(&[&[4, 2]], &[(0, 0, batch().max(64))], between));
    case("two bounds, none declared", refusal(&[&[4, 2]], &one, between));
    let even = |x: &[Tensor]| Ok(if (x[0].size(0) % 2).eq(0).guard()? { x[0].neg() } else { x[0].relu() }); // line F
    case("an even size", refusal(&[&[4, 2]], &one, even));
    case("a size that another is asked to be", refusal(&[&[4], &[4]], &[(0, 0, batch()), (1, 0, Dim::new("other"))], |x| Ok(&x[0] + &x[1]))); // line G
    case("one more", refusal(&[&[5], &[4]], &[(0, 0, batch()), (1, 0, Dim::new("other"))], |x| Ok(x[0].slice(0, 1..) + &x[1]))); // line H
    case("a size that is another's number", refusal(&[&[4], &[4]], &one, |x| Ok(&x[0] + &x[1]))); // line I
    case("rows of a product", refusal(&[&[2, 3], &[3, 4]], &[(0, 1, batch())], |x| Ok(x[0].matmul(&x[1])))); // line J
    case("one name in two places", refusal(&[&[4], &[4]], &[(0, 0, batch()), (1, 0, batch())], |x| {
        x[0].size(0).le(16).guard()?; // line K
        Ok(&x[0] + &x[1])
    }));
    case("several at once", refusal(&[&[4, 6], &[3]], &[(0, 0, batch()), (0, 1, Dim::new("width")), (1, 0, Dim::new("rest").min(1))], |x| {
        let n = x[1].size(0).guard_int()?; // line L
        x[0].size(1).ge(x[0].size(0)).guard()?; // line M
        x[0].size(0).lt(50).guard()?; // line N
        Ok(x[0].sum() * n as f64)
    }));
    insta::assert_snapshot!("violations", book);
}
