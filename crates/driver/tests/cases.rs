//! The textbook of functionalization: small programs and the graphs they become, in one file to
//! read from top to bottom. What is missing in the numbers is in `aliasing_regressions.rs`: 19
//! (`arguments_that_overlap`), 21 and 25 (`sizes_that_are_symbols`, `effects_and_random_numbers`);
//! and in `scale.rs`: 27 and 28. The plan of 22 is in `in_place.rs`.

mod common;

use common::{arange, check, check_shared};
use maquette_interp::Interpreter;
use maquette_ir::DType::{F16, F32, F64};
use maquette_ir::MemoryFormat;
use maquette_ops::library::Facts;
use maquette_ops::{Effect, FakeCtx, Result, Tensor, Value, custom_op};
use maquette_rewrite::{Options, functionalize};
use maquette_trace::trace;
use std::fmt::Write;
use std::sync::Once;

/// Operators that no pass looks into.
fn operators() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        custom_op("cases::swap_")
            .schema("(Tensor(a!) x, Tensor(b!) y) -> ()")
            .kernel(|x: &mut Tensor, y: &mut Tensor| -> Result<()> {
                let old = x.clone_as(MemoryFormat::Contiguous);
                x.copy_(y).ok()?;
                y.copy_(&old).ok().map(drop)
            })
            .register()
            .unwrap();
        let acc = custom_op("cases::acc_")
            .schema("(Tensor(a!) x, Tensor y) -> Tensor")
            .kernel(|x: &mut Tensor, y: &Tensor| -> Result<Tensor> {
                x.add_(y).ok()?;
                Ok(x.sum() + y.sum())
            })
            .register()
            .unwrap();
        acc.register_fake(|_: &FakeCtx, x: &mut Tensor, _: &Tensor| -> Result<Tensor> {
            Ok(x.new_empty([0i64; 0], x.dtype()))
        })
        .unwrap();
        custom_op("cases::set_")
            .schema("(Tensor(a!) x, Tensor y) -> ()")
            .kernel(|x: &mut Tensor, y: &Tensor| -> Result<()> { x.copy_(y).ok().map(drop) })
            .register()
            .unwrap();
        let show = custom_op("cases::show")
            .schema("(Tensor x) -> ()")
            .effect(Effect::Ordered)
            .kernel(|_: &Tensor| -> Result<()> { Ok(()) });
        show.register().unwrap();
    });
}

/// Zeros and infinities of both signs, NaN, the smallest number and the largest.
fn awkward() -> Vec<Tensor> {
    vec![Tensor::from_vec(
        vec![
            -0.0f32,
            0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(1),
            f32::MAX,
            -1.5,
        ],
        [8],
    )]
}

fn call(op: &str, tensors: &[&Tensor]) -> Vec<Tensor> {
    let args = tensors.iter().map(|t| (*t).clone().into()).collect();
    let out = maquette_ops::call(op, args).unwrap();
    out.iter().flat_map(Value::tensors).cloned().collect()
}

#[test]
fn textbook() {
    operators();
    let mut book = String::new();
    let mut case = |title: &str,
                    inputs: &dyn Fn() -> Vec<Tensor>,
                    program: &dyn Fn(Vec<Tensor>) -> Vec<Tensor>| {
        let f = check(program, inputs);
        let (mutations, outputs) = (&f.mutations, &f.outputs);
        writeln!(book, "# {title}\n{}\nleaves {mutations:?}\ngives {outputs:?}\n", f.graph)
            .unwrap();
    };
    let two = || vec![arange(8), arange(8).neg()];
    let x8 = || vec![arange(8)];

    case("1. x.add_(y); return x", &two, &|v| vec![v[0].add_(&v[1])]);
    case("2. t = neg(x); t.add_(x); return t", &x8, &|v| vec![v[0].neg().add_(&v[0])]);
    case("3. v = t[0:4]; v.add_(v); return t", &x8, &|v| {
        let t = v[0].neg();
        let s = t.slice(0, 0..4);
        s.add_(&s);
        vec![t]
    });
    case("4. v = t[2:5]; t.mul_(x); return v", &x8, &|v| {
        let t = v[0].neg();
        let s = t.slice(0, 2..5);
        t.mul_(&v[0]);
        vec![s]
    });
    case("5. a = t[0:4]; b = t[4:8]; a.add_(b); return neg(b)", &x8, &|v| {
        let t = v[0].neg();
        let (a, b) = (t.slice(0, 0..4), t.slice(0, 4..8));
        a.add_(&b);
        vec![b.neg()]
    });
    case("6. v = t[0:4]; v.fill_(0); t.copy_(y); return t", &two, &|v| {
        let t = v[0].neg();
        t.slice(0, 0..4).fill_(0.0);
        t.copy_(&v[1]);
        vec![t]
    });
    case("7. t[2:8][1:3].add_(t[0:2]); return t", &x8, &|v| {
        let t = v[0].neg();
        t.slice(0, 2..8).slice(0, 1..3).add_(t.slice(0, 0..2));
        vec![t]
    });
    case("8. e = t[0::2]; o = t[1::2]; e.fill_(0); o.add_(o); return o", &x8, &|v| {
        let t = v[0].neg();
        let (e, o) = (
            t.as_strided([4i64], [2i64], Some(0.into())),
            t.as_strided([4i64], [2i64], Some(1.into())),
        );
        e.fill_(0.0);
        o.add_(&o);
        vec![o]
    });
    case("9. x[1:6].copy_(x[0:5])", &x8, &|v| {
        v[0].slice(0, 1..6).copy_(&v[0].slice(0, 0..5));
        vec![]
    });
    case(
        "10. swap_(q!, k!) on parts of one buffer, which is split again",
        &|| vec![arange(12)],
        &|v| {
            let t = v[0].neg();
            call("cases::swap_", &[&t.slice(0, 0..4), &t.slice(0, 4..8)]);
            vec![t.slice(0, 0..4) + t.slice(0, 4..8) + t.slice(0, 8..12)]
        },
    );
    case("11. two clones mutated alike", &two, &|v| {
        let (a, b) =
            (v[0].clone_as(MemoryFormat::Contiguous), v[0].clone_as(MemoryFormat::Contiguous));
        a.add_(&v[1]);
        b.add_(&v[1]);
        vec![a * b]
    });
    // that the store changes nothing is seen only once algebra is through
    case("12. v = t[0:3]; v.copy_(neg(neg(v))); return t", &x8, &|v| {
        let t = v[0].neg();
        let s = t.slice(0, 0..3);
        s.copy_(&s.neg().neg());
        vec![t]
    });
    case("13. y = neg(x[0:4]); x.fill_(0); return y", &x8, &|v| {
        let y = v[0].slice(0, 0..4).neg();
        v[0].fill_(0.0);
        vec![y]
    });
    case("14. show x; x.fill_(1); show x; show x", &x8, &|v| {
        call("cases::show", &[&v[0]]);
        v[0].fill_(1.0);
        call("cases::show", &[&v[0]]);
        call("cases::show", &[&v[0]]);
        vec![]
    });
    case("15. an empty buffer filled by two tiles, then one tile read", &two, &|v| {
        let t = Tensor::empty([8i64], v[0].dtype());
        t.slice(0, 0..4).copy_(&v[0].slice(0, 0..4));
        t.slice(0, 4..8).copy_(&v[1].slice(0, 4..8));
        vec![t.slice(0, 0..4).neg()]
    });
    case("16. r = acc_(v!, b) with v = x[0:3]", &two, &|v| {
        call("cases::acc_", &[&v[0].slice(0, 0..3), &v[1].slice(0, 0..3)])
    });
    case(
        "17. t.t().copy_(y)",
        &|| vec![arange(6).reshape([2i64, 3]), arange(6).reshape([3i64, 2])],
        &|v| {
            let t = v[0].neg();
            t.t().copy_(&v[1]);
            vec![t]
        },
    );
    case(
        "18. a = x.view(2, 3); b = x.view(3, 2); a[0].zero_(); return b",
        &|| vec![arange(6)],
        &|v| {
            let (a, b) = (v[0].view([2i64, 3]), v[0].view([3i64, 2]));
            a.select(0, 0).zero_();
            vec![b]
        },
    );
    case("23. integers: i.mul_(2) keeps i64; f32 t.add_(i) keeps f32", &|| vec![arange(4)], &|v| {
        let i = v[0].to_dtype(maquette_ir::DType::I64);
        i.mul_(2i64);
        let t = v[0].neg();
        t.add_(&i);
        vec![t.clone(), t + i]
    });
    case("22. out = empty(8); set_(out!, x); return out", &x8, &|v| {
        let out = Tensor::empty([8i64], v[0].dtype());
        call("cases::set_", &[&out, &v[0]]);
        vec![out]
    });
    case("24. x + 0.0 is not x where x is -0.0; x - 0.0 and x * 1.0 are", &awkward, &|v| {
        vec![&v[0] + 0.0, &v[0] - 0.0, &v[0] * 1.0]
    });
    case("26. a mutable operator on memory that nobody reads", &x8, &|v| {
        let t = v[0].neg();
        call("cases::swap_", &[&t.slice(0, 0..4), &t.slice(0, 4..8)]);
        vec![v[0].neg()]
    });
    insta::assert_snapshot!("textbook", book);
}

#[test]
fn inputs_of_one_memory() {
    let parts = || {
        let x = arange(8);
        vec![x.slice(0, 0..4), x.slice(0, 2..6)]
    };
    let program = |v: Vec<Tensor>| -> Vec<Tensor> {
        v[0].fill_(0.0);
        vec![v[1].clone(), v[1].neg()]
    };
    // one memory for both, and each a view of it at its own offset
    let f = check_shared(program, parts);
    let mut book =
        format!("# 20. a = x[0:4], b = x[2:6]; a.fill_(0); return b, neg(b)\n{}\n", f.graph);
    writeln!(book, "leaves {:?}\ngives {:?}\n", f.mutations, f.outputs).unwrap();
    // not told so, a program is not made for it, and says so when it is called
    let f = check(program, || vec![arange(4), arange(4)]);
    let inputs: Vec<Value> = parts().iter().map(Value::from).collect();
    writeln!(
        book,
        "# The same, made for inputs apart\nrefused: {}",
        Interpreter::new(&f).run(&inputs).unwrap_err().kind()
    )
    .unwrap();
    insta::assert_snapshot!("inputs_of_one_memory", book);
}

/// How many calls are left of a program that does as little as it says, and how many where the sign
/// of a zero does not matter.
fn left(program: impl Fn(&Tensor) -> Tensor) -> (usize, usize) {
    let exact = check(|v| program(&v[0]), awkward);
    let t = trace(|v: Vec<Tensor>| program(&v[0]), awkward()).unwrap();
    let loose = functionalize(t.graph(), &Facts, &Options::new().no_signed_zeros(true)).unwrap();
    (exact.graph.node_count(), loose.graph.node_count())
}

#[test]
fn exact_algebra() {
    let unary = |op: &str, x: &Tensor| call(op, &[x]).remove(0);
    // 24. what is true of every number, to the bit, goes
    assert_eq!(left(|x| x + -0.0), (0, 0));
    assert_eq!(left(|x| x - 0.0), (0, 0));
    assert_eq!(left(|x| x * 1.0), (0, 0));
    assert_eq!(left(|x| x / 1.0), (0, 0));
    assert_eq!(left(|x| x.neg().neg()), (0, 0));
    assert_eq!(left(|x| x.to_dtype(F64).to_dtype(F32)), (0, 0));
    assert_eq!(left(|x| call("aten::maximum", &[x, x]).remove(0)), (0, 0));
    assert_eq!(left(|x| unary("aten::relu", &x.relu())), (1, 1));
    assert_eq!(left(|x| unary("aten::abs", &x.neg())), (1, 1));
    // what is not true of -0.0 stays, unless that may go
    assert_eq!(left(|x| x + 0.0), (1, 0));
    assert_eq!(left(|x| x - -0.0), (1, 0));
    // what is not true of infinities, of NaN, or of numbers that round, stays in any case
    assert_eq!(left(|x| x - x), (1, 1));
    assert_eq!(left(|x| x / x), (1, 1));
    assert_eq!(left(|x| x * 0.0), (1, 1));
    assert_eq!(left(|x| x / 3.0), (1, 1));
    assert_eq!(left(|x| (x + 1.0) - 1.0), (2, 2));
    assert_eq!(left(|x| x.to_dtype(F16).to_dtype(F32)), (2, 2));
}
