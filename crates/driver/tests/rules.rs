//! Rules about operators, in more programs than `crates/rewrite/filetests/rules` has of each; and
//! what holds of every result.

mod common;

use common::{arange, check, check_under, uses_of};
use maquette_interp::Interpreter;
use maquette_ir::DType::{F16, F32, F64, I64, U8};
use maquette_ir::MemoryFormat;
use maquette_ops::library::Facts;
use maquette_ops::{Tensor, Value, args};
use maquette_rewrite::{FunctionalGraph, Level, Options, functionalize};
use maquette_trace::trace;

fn call(op: &str, args: maquette_ops::Args) -> Tensor {
    maquette_ops::call(op, args).unwrap().remove(0).tensor().unwrap().clone()
}

fn fired(f: &FunctionalGraph, rule: &str) -> bool {
    uses_of(f, rule) > 0
}

/// How often the graph calls an operator.
fn count(f: &FunctionalGraph, op: &str) -> usize {
    f.graph.nodes().filter(|&n| f.graph.op_name(n) == op).count()
}

/// Numbers, zeros and infinities of both signs, and NaN.
fn special() -> Tensor {
    Tensor::from_vec(
        vec![-0.0f32, 0.0, 1.5, -2.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45],
        [8i64],
    )
}

/// Runs a program of one input, and says whether a rule was of use.
#[track_caller]
fn uses(rule: &str, program: impl Fn(&Tensor) -> Tensor) -> bool {
    fired(&check(|x| program(&x[0]), || vec![special()]), rule)
}

#[test]
fn numbers_that_change_nothing() {
    assert!(uses("identity-operand", |x| x * 1.0));
    assert!(uses("identity-operand", |x| x / 1.0));
    assert!(uses("identity-operand", |x| x - 0.0));
    assert!(uses("identity-operand", |x| x + -0.0));
    assert!(uses("identity-operand", |x| (x.to_dtype(F16) * 1.0).to_dtype(F32)));
    assert!(uses("identity-operand", |x| (x.isnan().to_dtype(I64) + 0i64).to_dtype(F32)));
    // -0.0 + 0.0 is 0.0; -0.0 - -0.0 is 0.0
    assert!(!uses("identity-operand", |x| x + 0.0));
    assert!(!uses("identity-operand", |x| x - -0.0));
    assert!(!uses("identity-operand", |x| x * 2.0));
    // another dtype
    assert!(!uses("identity-operand", |x| x.isnan().to_dtype(I64) * 1.0));
    // a scale
    assert!(!uses("identity-operand", |x| call("aten::add.Tensor", args![x, -0.0, 2.0]) * 3.0));
}

#[test]
fn signed_zeros_count_unless_said_otherwise() {
    let t = trace(|x: Tensor| x + 0.0, special()).unwrap();
    let rewritten =
        |o: Options| fired(&functionalize(t.graph(), &Facts, &o).unwrap(), "identity-operand");
    assert!(!rewritten(Options::new()));
    assert!(rewritten(Options::new().no_signed_zeros(true)));
}

#[test]
fn operators_that_undo_themselves() {
    assert!(uses("involution-or-idempotent", |x| x.neg().neg()));
    assert!(uses("involution-or-idempotent", |x| x.relu().relu()));
    assert!(uses("involution-or-idempotent", |x| x.abs().abs()));
    assert!(uses("involution-or-idempotent", |x| x.neg().abs()));
    assert!(!uses("involution-or-idempotent", |x| x.neg().relu()));
    // 255 is its own absolute value
    assert!(!uses("involution-or-idempotent", |x| x
        .isnan()
        .to_dtype(U8)
        .neg()
        .abs()
        .to_dtype(F32)));
}

#[test]
fn conversions_there_and_back() {
    assert!(uses("round-trip", |x| x.to_dtype(F64).to_dtype(F32)));
    assert!(uses("round-trip", |x| x
        .isnan()
        .to_dtype(I64)
        .to_dtype(maquette_ir::DType::Bool)
        .to_dtype(F32)));
    assert!(!uses("round-trip", |x| x.to_dtype(F16).to_dtype(F32)));
}

#[test]
fn operands_that_are_one() {
    assert!(uses("same-operands", |x| call("aten::maximum", args![x, x])));
    assert!(!uses("same-operands", |x| call("aten::maximum", args![x, &(x * 2.0)])));
}

#[test]
fn operands_in_either_order() {
    let two = || vec![arange(8).to_dtype(I64), arange(8).neg().to_dtype(I64)];
    let f = check(|x| (&x[0] + &x[1]) * (&x[1] + &x[0]), two);
    assert!(fired(&f, "commute") && count(&f, "aten::add.Tensor") == 1, "{}", f.graph);
    let f = check(|x| (&x[0] - &x[1]) * (&x[1] - &x[0]), two);
    assert!(!fired(&f, "commute") && count(&f, "aten::sub.Tensor") == 2, "{}", f.graph);
    // of two NaNs the first is the sum, sign and all
    let f = check(|x| (&x[0] + &x[1], &x[1] + &x[0]), || vec![special(), special().neg()]);
    assert!(!fired(&f, "commute") && count(&f, "aten::add.Tensor") == 2, "{}", f.graph);
}

#[test]
fn operators_that_mutate_leave() {
    let x = || vec![arange(9).reshape([3i64, 3]), arange(9).neg().reshape([3i64, 3])];
    let gone = |program: &dyn Fn(&Tensor, &Tensor)| {
        let f = check(
            |x| {
                let t = &x[0] + 1.0;
                program(&t, &x[1]);
                t
            },
            x,
        );
        assert!(fired(&f, "functional-variant") && count(&f, "ir::call") == 0, "{}", f.graph);
    };
    let index = || Tensor::from_vec(vec![2i64, 0, 1], [1i64, 3]);
    gone(&|t, _| drop(call("aten::tril_", args![t])));
    gone(&|t, _| drop(call("aten::triu_", args![t, 1i64])));
    gone(&|t, y| drop(call("aten::masked_fill_.Scalar", args![t, &y.isnan(), 2.0])));
    gone(&|t, y| drop(call("aten::scatter_.src", args![t, 0i64, &index(), y])));
    gone(&|t, _| drop(call("aten::scatter_.value", args![t, 1i64, &index(), 5.0])));
    gone(&|t, y| drop(call("aten::index_add_", args![t, 0i64, &index().reshape([3i64]), y])));
    gone(&|t, y| drop(call("aten::addmm_", args![t, y, &y.t()])));
    gone(&|t, _| drop(call("aten::clamp_", args![t, 0.0, 2.0])));
    gone(&|t, _| drop(call("aten::cumsum_", args![t, 0i64])));
    gone(&|t, y| {
        let at = Value::List(
            [Value::Tensor(index().reshape([3i64])), Value::Tensor(index().reshape([3i64]))].into(),
        );
        drop(call("aten::index_put_", args![t, at, &y.select(0, 0)]));
    });
    // of a row, in another dtype than the functional variant's
    gone(&|t, y| drop(t.select(0, 1).copy_(&y.select(1, 1).to_dtype(F64))));
}

/// A trace cannot say so, but a text can.
#[test]
fn calls_with_invalid_writes_have_no_functional_variant() {
    for call in [
        "add_.Tensor(%n, %x)",
        "mul_.Tensor(%n, 0.5)",
        "div_.Tensor(%n, 2)",
        "exp_(%n)",
        "clamp_(%n, 1.5)",
    ] {
        let text = format!(
            "graph g(%n: i64[4], %x: f32[4]) -> (i64[4])\n{{\n  %a: i64[4] = aten::{call}\n  \
                return %a\n}}\n"
        );
        let f = functionalize(&text.parse().unwrap(), &Facts, &Options::new()).unwrap();
        assert!(!fired(&f, "functional-variant"), "{}", f.graph);
        let inputs = [Tensor::from_vec(vec![1i64, 2, 3, 4], [4i64]), arange(4)];
        let e =
            Interpreter::new(&f).run(&inputs.each_ref().map(Value::from)).unwrap_err().to_string();
        assert!(e.contains("cannot be written"), "{call}: {e}");
        assert_eq!(inputs[0].to_vec::<i64>().unwrap(), [1, 2, 3, 4]);
    }
}

#[test]
fn contents_that_no_operator_reads() {
    let f = check(|x| x[0].exp().sin().fill_(2.0), || vec![arange(8)]);
    assert!(fired(&f, "ignored-operand") && count(&f, "aten::exp") == 0, "{}", f.graph);
    let f = check(|x| x[0].exp().mul_(2.0), || vec![arange(8)]);
    assert!(!fired(&f, "ignored-operand") && count(&f, "aten::exp") == 1, "{}", f.graph);
}

#[test]
fn stores_that_leave_nothing_of_the_base() {
    let program = |end: i64| {
        move |x: Vec<Tensor>| {
            let t = x[0].exp();
            t.slice(0, 0..3).copy_(&x[1].slice(0, 2..5));
            t.slice(0, 3..end).copy_(&x[1].slice(0, 0..end - 3));
            t
        }
    };
    let inputs = || vec![arange(8), arange(8).neg()];
    let f = check(program(8), inputs);
    assert!(fired(&f, "full-cover-stores") && count(&f, "aten::exp") == 0, "{}", f.graph);
    let f = check(program(7), inputs);
    assert!(!fired(&f, "full-cover-stores") && count(&f, "aten::exp") == 1, "{}", f.graph);
}

/// Stores that lie beside each other, and what reads them.
fn tiles(n: i64) -> impl Fn(Vec<Tensor>) -> Vec<Tensor> {
    move |x| {
        let t = x[0].clone_as(MemoryFormat::Contiguous);
        (0..n).for_each(|i| drop(t.slice(0, i..i + 1).mul_(2.0)));
        (0..n).map(|i| t.slice(0, i..i + 1).neg()).collect()
    }
}

#[test]
fn loads_see_stores_without_steps() {
    let f = check(tiles(300), || vec![arange(300)]);
    assert_eq!(count(&f, "ir::scatter"), 0);
    assert!(f.stats.after <= 5 * 300 + 10 && f.stats.applied <= 310, "{:?}", f.stats);
    // an operator that no pass looks into sees all of them
    let f = check(|x| (tiles(9)(x.clone()), x[0].slice(0, 0..9).cumsum(0)), || vec![arange(300)]);
    assert_eq!(count(&f, "ir::scatter"), 0);
}

#[test]
fn stores_that_meet_stay_in_order() {
    let program = |x: Vec<Tensor>| {
        let t = &x[0] * 1.5;
        let even = t.as_strided([6i64], [2i64], Some(0.into()));
        t.slice(0, 1..7).fill_(1.0);
        even.add_(10.0);
        let seen = t.slice(0, 2..5).neg();
        t.slice(0, 3..4).fill_(2.0);
        even.mul_(3.0);
        t.slice(0, 0..9).fill_(5.0);
        t.slice(0, 4..12).sub_(1.0);
        (seen, t.slice(0, 3..10).neg(), t.clone(), even.sum())
    };
    check(program, || vec![arange(12)]);
}

/// A program with a bit of everything.
fn mixture(rounds: i64) -> impl Fn(Vec<Tensor>) -> Vec<Tensor> {
    move |x| {
        let (h, cache) = (&x[0], Tensor::zeros([4i64, 12], F32));
        for i in 0..rounds {
            let fused = h * 3.0;
            let [q, k, v] = [0, 1, 2].map(|j| fused.slice(0, j * 4..j * 4 + 4));
            q.mul_(2.0);
            k.add_(&q);
            let row = cache.select(0, i % 4);
            row.slice(0, 0..4).copy_(&k);
            row.slice(0, 4..8).copy_(&v);
            q.relu_();
            cache.t().select(0, i % 12).add_(0.5);
            h.neg().fill_(0.0);
            h.add_(&fused);
        }
        vec![cache.sum(), cache]
    }
}

fn functional(rounds: i64, options: &Options) -> FunctionalGraph {
    let t = trace(|x: Vec<Tensor>| mixture(rounds)(x), vec![arange(12)]).unwrap();
    functionalize(t.graph(), &Facts, options).unwrap()
}

#[test]
fn the_same_program_gives_the_same_graph() {
    let t = trace(|x: Vec<Tensor>| mixture(40)(x), vec![arange(12)]).unwrap();
    let text = |seed: i64| {
        functional(seed, &Options::new());
        functionalize(t.graph(), &Facts, &Options::new()).unwrap().graph.to_string()
    };
    let first = text(1);
    std::thread::scope(|s| {
        let texts: Vec<_> = (1..8).map(|i| s.spawn(move || text(i))).collect();
        texts.into_iter().for_each(|t| assert!(t.join().unwrap() == first));
    });
}

#[test]
fn invariants_of_every_rewritten_program() {
    check(mixture(6), || vec![arange(12)]);
    let (lifted, exact) =
        (functional(12, &Options::new().level(Level::LiftOnly)), functional(12, &Options::new()));
    let stats = &exact.stats;
    assert!(stats.after <= 4 * stats.before + 1000 && stats.stopped == "saturated", "{stats:?}");
    assert_eq!(count(&exact, "ir::call"), 0);
    // the cheapest tree of a deep program costs more than can be counted
    for options in [Options::new(), Options::new().only(["functional-variant"])] {
        assert_eq!(count(&functional(200, &options), "ir::call"), 0);
    }
    assert!(exact.graph.node_count() < lifted.graph.node_count());
    for n in exact.graph.nodes() {
        assert!(exact.graph.loc(n).is_some(), "no line: {}", exact.graph.op_name(n));
    }
    // what is functional stays as it is
    let again = functionalize(&exact.graph, &Facts, &Options::new()).unwrap();
    assert_eq!(again.graph.to_string(), exact.graph.to_string());
    assert!(again.mutations.is_empty());
}

#[test]
fn a_rule_that_does_not_exist_is_an_error_with_a_similar_name() {
    let traced = trace(|x: Tensor| x.neg(), arange(4)).unwrap();
    let options = Options::new().only(["store-to-lode"]);
    assert_eq!(
        functionalize(traced.graph(), &Facts, &options).unwrap_err().to_string(),
        "`only`: there is no rule `store-to-lode` (similar: store-to-load); `rules` lists the \
            names"
    );
}

#[test]
fn a_program_may_stop_after_every_equality() {
    // the mixture, and what leaves the cache as it is
    let program = |x: Vec<Tensor>| {
        let left = mixture(2)(x);
        let part = left[1].slice(0, 1..3);
        part.copy_(&part.neg().neg().mul_(1.0));
        left
    };
    for (disable_forwarding, rules) in [(false, 5), (true, 7)] {
        let run = |stop: Option<u64>| {
            let options = Options::new().disable_forwarding(disable_forwarding);
            let [f] = check_under(
                [stop.map_or(options.clone(), |n| options.stopping_at(n))],
                program,
                || vec![arange(12)],
            );
            f
        };
        let whole = run(None);
        let total = whole.stats.applied;
        assert!(total > 20 && whole.stats.rules.len() >= rules, "{:?}", whole.stats);
        let mut before = Vec::new();
        for n in 0..=total + 1 {
            let f = run(Some(n));
            let stats = &f.stats;
            assert_eq!(
                (stats.applied, stats.rules.iter().map(|(_, n)| n).sum::<u64>()),
                (n.min(total), n.min(total)),
                "{stats:?}"
            );
            // one more than with one less, and all others as before
            let more = stats.rules.iter().filter(|now| !before.contains(*now)).count();
            assert_eq!(more, usize::from((1..=total).contains(&n)), "{before:?} {:?}", stats.rules);
            before.clone_from(&stats.rules);
            // behind the last one rules may find what is known, and end there
            if n != total {
                assert_eq!(stats.stopped == "step limit", n < total, "{n} of {total}: {stats:?}");
            }
            let as_whole = f.graph.to_string() == whole.graph.to_string();
            assert!(
                if n == 0 { !as_whole } else { as_whole || n < total },
                "{n} of {total}: {}",
                f.graph
            );
        }
    }
}
