//! Programs whose operators could mutate what they are given, or would have to copy it: how many
//! elements a plan copies, and why no more. Each also runs, and does what the eager program does.

mod common;

use common::{arange, check, check_dynamic, check_shared, copied, fresh, results};
use maquette_ir::DType;
use maquette_ops::library::{Facts, Tag};
use maquette_ops::{Result, Tensor, Tree, args, custom_op};
use maquette_rewrite::{FunctionalGraph, plan};
use std::fmt::Write;
use std::sync::Once;

/// Operators that no pass looks into.
fn operators() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let op = |schema: &str| {
            let (name, rest) = schema.split_at(schema.find('(').unwrap());
            custom_op(&format!("in_place::{name}")).schema(rest)
        };
        op("one(Tensor(a!) x) -> ()")
            .kernel(|x: &mut Tensor| -> Result<()> { x.add_(1.0).ok().map(drop) })
            .register()
            .unwrap();
        let two = |x: &mut Tensor, y: &mut Tensor| -> Result<()> {
            x.add_(&*y).ok()?;
            y.mul_(2.0).ok().map(drop)
        };
        op("two(Tensor(a!) x, Tensor(b!) y) -> ()").kernel(two).register().unwrap();
        let set =
            |x: &Tensor, out: &mut Tensor| -> Result<Tensor> { Ok(out.copy_(x).ok()?.clone()) };
        op("set_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
            .kernel(set)
            .tags([Tag::Out])
            .register()
            .unwrap();
        let ends = |x: &Tensor, min: &mut Tensor, max: &mut Tensor| -> Result<(Tensor, Tensor)> {
            let x = x.to_vec::<f32>()?;
            min.fill_(f64::from(x.iter().copied().fold(f32::INFINITY, f32::min))).ok()?;
            max.fill_(f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max))).ok()?;
            Ok((min.clone(), max.clone()))
        };
        op("ends(Tensor x, *, Tensor(a!) min, Tensor(b!) max) -> (Tensor(a!), Tensor(b!))")
            .kernel(ends)
            .tags([Tag::Out])
            .register()
            .unwrap();
    });
}

fn call(op: &str, args: maquette_ops::Args) -> Vec<Tensor> {
    results(&format!("in_place::{op}"), args)
}

#[derive(Default)]
struct Book(String);

impl Book {
    /// A program whose plan copies so many elements.
    fn case<O: Tree>(
        &mut self,
        title: &str,
        why: &str,
        copies: u64,
        inputs: &dyn Fn() -> Vec<Tensor>,
        program: impl Fn(Vec<Tensor>) -> O,
    ) {
        self.page(title, why, copies, inputs, &check(program, inputs));
    }

    /// The same of a program that was compared before. Gives the plan.
    fn page(
        &mut self,
        title: &str,
        why: &str,
        copies: u64,
        inputs: &dyn Fn() -> Vec<Tensor>,
        f: &FunctionalGraph,
    ) -> String {
        let plan = plan(f, &Facts).unwrap();
        let shown = plan.display(&f.graph).to_string();
        assert_eq!(copied(f, &plan, inputs()), copies, "{title}\n{}\n{shown}", f.graph);
        writeln!(self.0, "# {title}: {copies} elements copied\n{shown}-- {why}\n").unwrap();
        shown
    }
}

fn one_row() -> Vec<Tensor> {
    vec![arange(8)]
}

fn two_rows() -> Vec<Tensor> {
    vec![arange(8), arange(8).neg()]
}

#[test]
fn memory_that_is_free_to_be_written() {
    operators();
    let mut book = Book::default();
    book.case(
        "y = x + 1; z = y + 2; two(y!, z!); return y, z",
        "both are values of their own",
        0,
        &one_row,
        |v| {
            let y = &v[0] + 1.0;
            let z = &y + 2.0;
            call("two", args![&y, &z]);
            (y, z)
        },
    );
    let halves = || {
        let kv = arange(8).reshape([2i64, 4]);
        vec![kv.select(0, 0), kv.select(0, 1)]
    };
    let f = check_shared(
        |v| {
            call("two", args![&v[0], &v[1]]);
        },
        halves,
    );
    book.page(
        "two(k!, v!) of two inputs that are halves of one allocation",
        "the halves do not meet",
        0,
        &halves,
        &f,
    );
    book.case(
        "one(x!); y = neg(x); x.copy_(z + 3); return y",
        "what x holds is needed no more when it is written over",
        0,
        &two_rows,
        |v| {
            call("one", args![&v[0]]);
            let y = v[0].neg();
            v[0].copy_(&(&v[1] + 3.0));
            y
        },
    );
    book.case(
        "y = clone(x); one(y!); return y",
        "x is the caller's, who sees no change",
        8,
        &one_row,
        |v| {
            let y = fresh(&v[0]);
            call("one", args![&y]);
            y
        },
    );
    insta::assert_snapshot!(book.0);
}

#[test]
fn values_that_are_used_later() {
    operators();
    let mut book = Book::default();
    let rows = |n: i64| move || vec![arange(n)];
    let f = check_dynamic(
        &[(0, 0, "n")],
        |v| {
            let y = v[0].neg();
            let t = fresh(&y);
            call("one", args![&t]);
            (t, Tensor::ones([y.size(0)], DType::F32))
        },
        &[&rows(8), &rows(3), &rows(1), &rows(0)],
    );
    book.page(
        "y = neg(x); t = clone(y); one(t!); return t, ones(y.size(0))",
        "a size is no element of y",
        0,
        &rows(8),
        &f,
    );
    let apart = "of y only elements are used that the operator does not write in t";
    book.case(
        "y = neg(x); t = clone(y); one(t[0:4]!); return t, exp(y[4:8])",
        apart,
        0,
        &one_row,
        |v| {
            let y = v[0].neg();
            let t = fresh(&y);
            call("one", args![&t.slice(0, 0..4)]);
            (t, y.slice(0, 4..8).exp())
        },
    );
    let needed = "all of y is needed as it was: it is copied once, as the program says";
    book.case("y = neg(x); t = clone(y); one(t!); return t, exp(y)", needed, 8, &one_row, |v| {
        let y = v[0].neg();
        let t = fresh(&y);
        call("one", args![&t]);
        (t, y.exp())
    });
    insta::assert_snapshot!(book.0);
}

#[test]
fn results_in_memory_that_was_made_for_them() {
    operators();
    let mut book = Book::default();
    let set = |v: Vec<Tensor>| {
        let out = Tensor::empty([8i64], DType::F32);
        call("set_out", args![&v[0], &out]);
        out
    };
    let f = check(set, one_row);
    let plan = book.page(
        "out = empty(8); set_out(x, out=out); return out",
        "one allocation, which nothing fills before",
        0,
        &one_row,
        &f,
    );
    assert_eq!(
        (plan.matches(" = alloc ").count(), plan.matches(" writes ").count()),
        (1, 1),
        "{plan}"
    );
    assert!(plan.contains("aten::empty.memory_format writes %empty"), "{plan}");
    let ends = |v: Vec<Tensor>| {
        let b = Tensor::zeros([2i64, 2], DType::F32);
        let r = call("ends", args![&v[0], &b.select(0, 0), &b.select(1, 1).slice(0, 1..2)]);
        b.add_(10.0);
        (r, b)
    };
    book.case(
        "b = zeros(2, 2); min, max = ends(x, min=b[0], max=b[1, 1:]); b.add_(10); return min, \
            max, b",
        "two results of one operator, each a view of b, which see what happens to b afterwards",
        0,
        &one_row,
        ends,
    );
    insta::assert_snapshot!(book.0);
}
