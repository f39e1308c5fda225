//! Programs that other systems get wrong, or copy for: each with the graph of values it becomes,
//! and why that is right. The program itself, run eagerly, is what the graph is compared with,
//! memory and aliasing included.

#[path = "aliasing_regressions/builtin.rs"]
mod builtin;
mod common;
#[path = "aliasing_regressions/symbols.rs"]
mod symbols;

use common::{arange, check, fresh, results};
use maquette_ir::DType;
use maquette_ops::library::{Facts, Tag};
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Effect, FakeCtx, Result, Tensor, Value, args, custom_op};
use maquette_rewrite::{FunctionalGraph, Options, functionalize};
use maquette_trace::trace;
use std::fmt::Write;
use std::sync::Once;

fn plus(x: &mut Tensor, y: &Tensor) -> Result<()> {
    x.add_(y).ok().map(drop)
}

/// Operators that no pass looks into.
fn operators() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let op = |schema: &str| {
            let (name, rest) = schema.split_at(schema.find('(').unwrap());
            custom_op(&format!("aliasing::{name}")).schema(rest)
        };
        op("one(Tensor(a!) x) -> ()")
            .kernel(|x: &mut Tensor| -> Result<()> { x.add_(1.0).ok().map(drop) })
            .register()
            .unwrap();
        let two = |x: &mut Tensor, y: &mut Tensor| -> Result<()> {
            plus(x, y)?;
            y.mul_(2.0).ok().map(drop)
        };
        op("two(Tensor(a!) x, Tensor(b!) y) -> ()").kernel(two).register().unwrap();
        op("acc(Tensor x, Tensor(a!) out) -> ()")
            .kernel(|x: &Tensor, out: &mut Tensor| plus(out, x))
            .register()
            .unwrap();
        let scan = |x: &Tensor, out: &mut Tensor| -> Result<()> {
            let mut out = out.write::<f32>()?;
            x.read::<f32>()?.iter().zip(out.iter_mut()).for_each(|(x, out)| *out += x);
            Ok(())
        };
        op("scan(Tensor x, Tensor(a!) out) -> ()").kernel(scan).register().unwrap();
        let inc = |x: &mut Tensor| -> Result<Tensor> { Ok(x.add_(1.0).ok()?.clone()) };
        op("inc_(Tensor(a!) x) -> Tensor(a!)").kernel(inc).tags([Tag::Inplace]).register().unwrap();
        let reads = |x: &Tensor, out: &mut Tensor| -> Result<Tensor> {
            plus(out, x)?;
            Ok(out.clone())
        };
        op("acc_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
            .kernel(reads)
            .tags([Tag::Out])
            .register()
            .unwrap();
        let mr = |x: &Tensor, out: &mut Tensor| -> Result<Tensor> {
            plus(out, x)?;
            Ok(&*out * 2.0)
        };
        let mr = op("mr(Tensor x, Tensor(a!) out) -> Tensor").kernel(mr).register().unwrap();
        mr.register_fake(|_: &FakeCtx, x: &Tensor, _: &mut Tensor| -> Result<Tensor> {
            Ok(x.new_empty(x.sizes(), x.dtype()))
        })
        .unwrap();
        let some = |x: &Tensor, outs: &mut [Option<Tensor>]| -> Result<()> {
            outs.iter_mut().flatten().try_for_each(|out| plus(out, x))
        };
        op("some(Tensor x, Tensor(a!)?[] outs) -> ()").kernel(some).register().unwrap();
        let draw = |x: &Tensor, seed: i64, offset: i64| -> Result<Tensor> {
            apart(&mut Philox { seed: seed as u64, offset: offset as u64 }, || {
                x.rand_like().ok().cloned()
            })
        };
        let draw =
            op("draw(Tensor x, int seed, int offset) -> Tensor").kernel(draw).register().unwrap();
        draw.register_fake(|_: &FakeCtx, x: &Tensor, _: i64, _: i64| -> Result<Tensor> {
            Ok(x.new_empty(x.sizes(), x.dtype()))
        })
        .unwrap();
        let log = |_: &Tensor| -> Result<()> { Ok(()) };
        op("log(Tensor x) -> ()").effect(Effect::Ordered).kernel(log).register().unwrap();
        op("em(Tensor(a!) x) -> ()")
            .effect(Effect::Ordered)
            .kernel(|x: &mut Tensor| -> Result<()> { x.add_(1.0).ok().map(drop) })
            .register()
            .unwrap();
    });
}

fn call(op: &str, args: maquette_ops::Args) -> Vec<Tensor> {
    results(&format!("aliasing::{op}"), args)
}

/// A page for each program: what it is, its graph, why.
#[derive(Default)]
struct Book(String);

impl Book {
    fn check(self, name: &str) {
        insta::assert_snapshot!(name, self.0);
    }

    fn page(&mut self, title: &str, why: &str, f: &FunctionalGraph) {
        let (mutations, outputs) = (&f.mutations, &f.outputs);
        writeln!(
            self.0,
            "# {title}\n{}\nleaves {mutations:?}\ngives {outputs:?}\n-- {why}\n",
            f.graph
        )
        .unwrap();
    }

    fn case(
        &mut self,
        title: &str,
        why: &str,
        inputs: &dyn Fn() -> Vec<Tensor>,
        program: &dyn Fn(Vec<Tensor>) -> Vec<Tensor>,
    ) {
        self.page(title, why, &check(program, inputs));
    }

    fn refused(
        &mut self,
        title: &str,
        why: &str,
        inputs: Vec<Tensor>,
        program: &dyn Fn(Vec<Tensor>) -> Result<()>,
    ) {
        let eager = program(inputs.clone()).unwrap_err();
        // where memory is all that decides, a trace does not see it
        let here = match trace(|x: Vec<Tensor>| program(x), inputs) {
            Ok(t) => {
                functionalize(t.graph(), &Facts, &Options::new()).unwrap_err().kind.to_string()
            }
            Err(e) => e.kind().to_string(),
        };
        writeln!(self.0, "# {title}\nrefused: {here}\neagerly: {}\n-- {why}\n", eager.kind())
            .unwrap();
    }
}

fn four() -> Vec<Tensor> {
    vec![Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [4])]
}

fn vector(n: i64) -> Vec<Tensor> {
    vec![arange(n)]
}

#[test]
fn arguments_that_overlap() {
    operators();
    let mut book = Book::default();
    let scan = |v: Vec<Tensor>| {
        let y = fresh(&v[0]);
        call("scan", args![&y.slice(0, 0..3), &y.slice(0, 1..4)]);
        vec![y]
    };
    assert_eq!(scan(four())[0].to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0, 7.0]);
    book.case(
        "y = clone(x); scan(y[:-1], y[1:]!); return y",
        "what is read is read as it was before the call",
        &four,
        &scan,
    );
    book.case("acc(y, y!)", "the same where both are one tensor: it is doubled", &four, &|v| {
        call("acc", args![&v[0], &v[0]]);
        vec![]
    });
    book.refused("two(x!, x!)", "the order of the writes would decide", four(), &|v| {
        maquette_ops::call("aliasing::two", args![&v[0], &v[0]]).map(drop)
    });
    book.refused(
        "y = clone(x); two(y[:2]!, y[1:3]!)",
        "one element is written twice",
        four(),
        &|v| {
            let y = fresh(&v[0]);
            maquette_ops::call("aliasing::two", args![&y.slice(0, 0..2), &y.slice(0, 1..3)])
                .map(drop)
        },
    );
    book.refused(
        "one(clone(x).expand(3, 4)!)",
        "an element would be written three times",
        four(),
        &|v| maquette_ops::call("aliasing::one", args![&fresh(&v[0]).expand([3i64, 4])]).map(drop),
    );
    book.refused("x.expand(3, 4).add_(1)", "and so with builtin operators", four(), &|v| {
        v[0].expand([3i64, 4]).add_(1.0).ok().map(drop)
    });
    book.case("return x.expand(2, 4).sum(0)", "only read, it is a view like others", &four, &|v| {
        vec![v[0].expand([2i64, 4]).sum_dim([0], false)]
    });
    book.check("arguments_that_overlap");
}

#[test]
fn results_that_are_arguments() {
    operators();
    let mut book = Book::default();
    book.case(
        "z = zeros; r = inc_(z); inc_(z); return r, z",
        "r is z, and sees what happens to z afterwards",
        &|| vector(2),
        &|_| {
            let z = Tensor::zeros([2i64], DType::F32);
            let r = call("inc_", args![&z]).remove(0);
            call("inc_", args![&z]);
            vec![r, z]
        },
    );
    book.case(
        "b = zeros(2, 4); r = acc_out(x, out=b[0]); b.add_(10); return r, b",
        "so does an out= argument that is a view",
        &four,
        &|v| {
            let b = Tensor::zeros([2i64, 4], DType::F32);
            let r = call("acc_out", args![&v[0], &b.select(0, 0)]).remove(0);
            b.add_(10.0);
            vec![r, b]
        },
    );
    book.case(
        "out = ones; acc_out(x, out=out); return out",
        "an operator may read `out`: it is an operand of the call",
        &four,
        &|v| {
            let out = Tensor::ones([4i64], DType::F32);
            call("acc_out", args![&v[0], &out]);
            vec![out]
        },
    );
    book.case(
        "r = inc_(x); return r + 1, r",
        "r is the input itself, with its new value",
        &four,
        &|v| {
            let r = call("inc_", args![&v[0]]).remove(0);
            vec![&r + 1.0, r]
        },
    );
    book.case(
        "r = mr(x, y!); return r",
        "a fresh result comes before what was written",
        &four,
        &|v| call("mr", args![&v[0], &v[0].neg()]),
    );
    book.check("results_that_are_arguments");
}

#[test]
fn writes_through_views() {
    operators();
    let mut book = Book::default();
    let square = || vec![arange(9).reshape([3i64, 3])];
    book.case(
        "y = neg(x); one(y.t()!); one(y.view(-1)[::2]!); one(y.diagonal()!); return y",
        "each sees what the others wrote",
        &square,
        &|v| {
            let y = v[0].neg();
            call("one", args![&y.t()]);
            call("one", args![&y.view([-1i64]).as_strided([5i64], [2i64], None)]);
            call("one", args![&y.diagonal(0, 0, 1)]);
            vec![y]
        },
    );
    book.case(
        "v = x.unfold(1, 1, 5); v.add_(v)",
        "only columns 0 and 5 change; between them nothing is written",
        &|| vec![arange(24).reshape([4i64, 6])],
        &|v| {
            let w = v[0].unfold(1, 1, 5);
            w.add_(&w);
            vec![]
        },
    );
    book.case(
        "a = y + 1; one(y!); b = y + 1; return a, b",
        "a is of the old value, b of the new one",
        &four,
        &|v| {
            let y = v[0].neg();
            let a = &y + 1.0;
            call("one", args![&y]);
            vec![a, &y + 1.0]
        },
    );
    book.case(
        "one(y!); one(y!); one(y!); return y",
        "three versions, one after the other",
        &four,
        &|v| {
            let y = v[0].neg();
            (0..3).for_each(|_| drop(call("one", args![&y])));
            vec![y]
        },
    );
    book.case("some(x, [y!, None]); return y", "what is absent stays absent", &four, &|v| {
        let y = v[0].neg();
        call("some", args![&v[0], Value::List([Value::from(&y), Value::None].into())]);
        vec![y]
    });
    book.case("some(x, [None])", "nothing is written and nothing comes of it", &four, &|v| {
        call("some", args![&v[0], Value::List([Value::None].into())]);
        vec![]
    });
    book.case("one(neg(x)!)", "memory that nobody reads is not written", &four, &|v| {
        call("one", args![&v[0].neg()]);
        vec![]
    });
    book.case(
        "two(kv[0]!, kv[1]!) on two halves of one allocation",
        "the halves do not meet: nothing else of it is touched",
        &|| vec![arange(8).reshape([2i64, 4])],
        &|v| {
            call("two", args![&v[0].select(0, 0), &v[0].select(0, 1)]);
            vec![]
        },
    );
    book.case(
        "y = x + 1; w = y * 2; two(y!, clone(y)!); return y, w",
        "w is of the old y, wherever it is computed",
        &four,
        &|v| {
            let y = &v[0] + 1.0;
            let w = &y * 2.0;
            call("two", args![&y, &fresh(&y)]);
            vec![y, w]
        },
    );
    book.check("writes_through_views");
}

#[test]
fn effects_and_random_numbers() {
    operators();
    let mut book = Book::default();
    book.case(
        "log(x); y = x + 1; log(y); log(y)",
        "in order, and as often as it says",
        &four,
        &|v| {
            call("log", args![&v[0]]);
            let y = &v[0] + 1.0;
            call("log", args![&y]);
            call("log", args![&y]);
            vec![]
        },
    );
    book.case(
        "log(x); em(neg(x)!); log(x)",
        "an effect happens though what it writes is never read",
        &four,
        &|v| {
            call("log", args![&v[0]]);
            call("em", args![&v[0].neg()]);
            call("log", args![&v[0]]);
            vec![]
        },
    );
    book.case("return rand_like(x) - rand_like(x)", "two draws are two draws", &four, &|v| {
        vec![v[0].rand_like() - v[0].rand_like()]
    });
    let replayed = "numbers that an operator draws from its arguments alone are drawn once; those \
        at another offset are others";
    book.case("return draw(x, 7, 0) - draw(x, 7, 0), draw(x, 7, 1)", replayed, &four, &|v| {
        let draw = |offset: i64| call("draw", args![&v[0], 7i64, offset]).remove(0);
        vec![draw(0) - draw(0), draw(1)]
    });
    book.check("effects_and_random_numbers");
}
