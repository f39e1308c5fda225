//! Plans of programs that mutate: what is done in place, what is copied, and why. Each also runs,
//! and does what the eager program does.

mod common;

use common::{arange, check, copied, fresh};
use maquette_interp::{Execution, Interpreter};
use maquette_ir::DType;
use maquette_ops::library::Facts;
use maquette_ops::{Result, Tensor, Tree, Value, args, custom_op};
use maquette_rewrite::{ExecutionMode, FunctionalGraph, Options, functionalize_in_place, plan};
use std::fmt::Write;
use std::sync::Once;

/// Operators that no pass looks into, which read and write element after element.
fn operators() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let two = |x: &mut Tensor, y: &mut Tensor| -> Result<()> {
            x.mul_(2.0).ok()?;
            y.add_(1.0).ok().map(drop)
        };
        custom_op("plans::two")
            .schema("(Tensor(a!) x, Tensor(b!) y) -> ()")
            .kernel(two)
            .register()
            .unwrap();
        let swap = |x: &mut Tensor, y: &mut Tensor| -> Result<()> {
            let (mut x, mut y) = (x.write::<f32>()?, y.write::<f32>()?);
            x.iter_mut().zip(y.iter_mut()).for_each(|(x, y)| std::mem::swap(x, y));
            Ok(())
        };
        custom_op("plans::swap")
            .schema("(Tensor(a!) x, Tensor(b!) y) -> ()")
            .kernel(swap)
            .register()
            .unwrap();
        let running = |x: &Tensor, out: &mut Tensor| -> Result<()> {
            let (x, mut out) = (x.to_vec::<f32>()?, out.write::<f32>()?);
            let sums = x.iter().scan(0.0, |sum, x| {
                *sum += x;
                Some(*sum)
            });
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum);
            Ok(())
        };
        custom_op("plans::running")
            .schema("(Tensor x, Tensor(a!) out) -> ()")
            .kernel(running)
            .register()
            .unwrap();
    });
}

fn call(op: &str, args: maquette_ops::Args) {
    maquette_ops::call(&format!("plans::{op}"), args).unwrap();
}

#[derive(Default)]
struct Book(String);

impl Book {
    /// Adds a program, which copies so many elements.
    fn page<O: Tree>(
        &mut self,
        title: &str,
        copies: u64,
        inputs: impl Fn() -> Vec<Tensor>,
        program: impl Fn(Vec<Tensor>) -> O,
    ) {
        let f: FunctionalGraph = check(program, &inputs);
        let plan = plan(&f, &Facts).unwrap();
        assert_eq!(
            copied(&f, &plan, inputs()),
            copies,
            "{title}\n{}\n{}",
            f.graph,
            plan.display(&f.graph)
        );
        writeln!(self.0, "# {title}: {copies} elements copied\n{}", plan.display(&f.graph))
            .unwrap();
    }
}

#[test]
fn plans() {
    operators();
    let mut book = Book::default();
    let (one, two) = (|| vec![arange(8)], || vec![arange(8), arange(8)]);
    book.page("an input, in place", 0, two, |x| x[0].add_(&x[1]));
    book.page("a part of new memory: made where it is stored", 0, one, |x| {
        let t = x[0].neg();
        t.slice(0, 0..4).add_(t.slice(0, 4..8));
        t
    });
    book.page("a copy onto itself, shifted: to a temporary, and from there", 14, one, |x| {
        x[0].slice(0, 1..8).copy_(&x[0].slice(0, 0..7));
    });
    book.page(
        "keys and values are two halves of one allocation, and both are mutated",
        0,
        || vec![arange(8).reshape([2, 4])],
        |x| {
            call("two", args![&x[0].select(0, 0), &x[0].select(0, 1)]);
        },
    );
    book.page("op(y!, clone(y)!): one of them is y", 8, one, |x| {
        let y = &x[0] + 1.0;
        let w = &y * 2.0;
        let z = fresh(&y);
        call("two", args![&y, &z]);
        (w, y, z)
    });
    book.page(
        "a part of the fused buffer is handed to an operator, then read again",
        0,
        || vec![arange(12)],
        |x| {
            let t = x[0].neg();
            call("swap", args![&t.slice(0, 0..4), &t.slice(0, 4..8)]);
            t.slice(0, 0..4) + t.slice(0, 4..8) + t.slice(0, 8..12)
        },
    );
    book.page("an output must not lie in the input that is filled", 0, one, |x| {
        let y = x[0].neg();
        x[0].fill_(0.0);
        y
    });
    book.page("the value before is an output: one copy, out of the way", 8, one, |x| {
        let before = fresh(&x[0]);
        x[0].add_(1.0);
        before
    });
    book.page("inputs change places: three copies, as eagerly", 24, two, |x| {
        let t = fresh(&x[0]);
        x[0].copy_(&x[1]);
        x[1].copy_(&t);
    });
    book.page(
        "an operator that looks at strides is given them, without a copy",
        0,
        || vec![arange(6).reshape([2, 3]), arange(6).reshape([3, 2])],
        |x| {
            let t = x[0].t();
            call("running", args![&t, &x[1]]);
        },
    );
    book.page("two outputs see one memory", 0, one, |x| {
        let t = x[0].neg();
        (t.slice(0, 2..6), t)
    });
    book.page("an output begins inside its memory", 0, one, |x| {
        let t = x[0].neg();
        t.slice(0, 4..8).mul_(2.0);
        t.slice(0, 4..8)
    });
    book.page(
        "a row is stored in a cache, and the cache is read",
        0,
        || vec![arange(12).reshape([4, 3]), arange(3)],
        |x| {
            x[0].select(0, 2).copy_(&(&x[1] * 2.0));
            x[0].slice(0, 0..3).sum_dim([0], false)
        },
    );
    book.page(
        "a size that depends on data is known once it is checked: no copy to other strides",
        0,
        || vec![Tensor::ones([4], DType::F32), arange(8).reshape([2, 4])],
        |x| {
            let n = x[0].nonzero().size(0);
            let twice = x[0].neg().expand([2.into(), n]);
            call("running", args![&twice, &x[1]]);
        },
    );
    insta::assert_snapshot!(book.0);
}

#[test]
fn a_program_runs_in_place_by_a_plan_or_as_it_is() {
    let program = "graph program(%x: f32[4]) -> (f32[2])
{
  %slice: f32[2] = aten::slice.Tensor(%x, 0, 0, 2)
  %mul_: f32[2] = aten::mul_.Tensor(%slice, 10.0)
  return %mul_
}";
    let graph: maquette_ir::graph::Graph = program.parse().unwrap();
    let planned = functionalize_in_place(&graph, &Facts, &Options::new()).unwrap();
    assert!(matches!(planned, ExecutionMode::Buffered(..)));
    for in_place in [planned, ExecutionMode::from(&graph)] {
        let x = arange(4);
        let Execution { results, traffic } =
            Interpreter::new(&in_place).run(&[Value::Tensor(x.clone())]).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [-30.0, -20.0, -1.0, 0.0]);
        let [Value::Tensor(out)] = results.as_slice() else { panic!("one tensor is returned") };
        assert!(out.shares_storage(&x));
        assert_eq!(
            traffic.is_some_and(|t| t.copied == 0),
            matches!(in_place, ExecutionMode::Buffered(..))
        );
    }
}

#[test]
fn a_failed_assertion_prevents_later_writes() {
    let program = |before: &str| {
        format!(
            "graph program(%x: f32[4], %m: f32[4]) -> ()
  where u0 in [0, oo)
{{
{before}  %y: f32[4] = aten::mul.Tensor(%x, %m)
  %rows: i64[u0, 1] = aten::nonzero(%m)
  bind u0 = size(%rows, 0)
  assert u0 <= 2 \"too many\"
  %copy_: f32[4] = aten::copy_(%x, %y)
  return ()
}}"
        )
    };
    let run = |before: &str, m: [f32; 4]| {
        let graph: maquette_ir::graph::Graph = program(before).parse().unwrap();
        let in_place = functionalize_in_place(&graph, &Facts, &Options::new()).unwrap();
        assert!(matches!(in_place, ExecutionMode::Buffered(..)));
        let x = arange(4);
        let done = Interpreter::new(&in_place)
            .run(&[Value::Tensor(x.clone()), Value::Tensor(Tensor::from(m))]);
        (x.to_vec::<f32>().unwrap(), done.map(drop).map_err(|e| e.to_string()))
    };
    let before = "  %neg_: f32[4] = aten::neg_(%x)\n";
    assert_eq!(run("", [2.0, 0.0, 2.0, 0.0]), (vec![-6.0, 0.0, -2.0, 0.0], Ok(())));
    assert_eq!(run(before, [2.0, 0.0, 2.0, 0.0]), (vec![6.0, 0.0, 2.0, 0.0], Ok(())));
    let (x, done) = run("", [3.0; 4]);
    assert!(done.unwrap_err().contains("too many"));
    assert_eq!(x, [-3.0, -2.0, -1.0, 0.0]);
    // where the program writes before the assertion, too, what x holds is open
    assert!(run(before, [3.0; 4]).1.unwrap_err().contains("too many"));
}
