//! What is refused, by trace and by run, and what the errors say.

mod common;
#[path = "refusals/discarded.rs"]
mod discarded;
#[path = "refusals/threads.rs"]
mod threads;

use common::{COUNT, FEW, NONZERO, call, matrix, vector};
use insta::assert_snapshot;
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ir::sym::SymInt;
use maquette_ops::{
    ErrorKind, FakeCtx, FakeError, IntoDims, Op, Result, RunError, Tensor, TraceError, args,
    custom_op,
};
use maquette_trace::{Dim, TraceOptions, trace};
use std::sync::Mutex;

/// An error without line numbers.
fn text(e: &maquette_ops::Error) -> String {
    let text = e.to_string();
    let mut parts = text.split(".rs:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, rest| {
        text + ".rs:N" + rest.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

fn identity(name: &str, fake: fn(&FakeCtx, &Tensor) -> Result<Tensor>) -> Op {
    let op = custom_op(name)
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> {
            Ok(Tensor::from_vec(x.to_vec::<f32>()?, x.sizes()))
        })
        .register()
        .unwrap();
    op.register_fake(move |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { fake(cx, x) }).unwrap();
    op
}

#[test]
fn options_that_do_not_fit() {
    let id = |x: (Tensor, Tensor)| x;
    let inputs = || (matrix(2, 3), vector(3));
    let dim = |i, d, s: Dim| TraceOptions::new().dynamic(i, d, s);
    let cases = [
        dim(2, 0, Dim::new("a")),
        dim(1, 1, Dim::new("a")),
        dim(0, 0, Dim::new("a").min(3)),
        dim(0, 0, Dim::new("a").min(3).max(2)),
        dim(0, 0, Dim::new("a")).dynamic(0, 1, Dim::new("a")),
        dim(0, 1, Dim::new("a")).dynamic(1, 0, Dim::new("a").max(9)),
        dim(0, 1, Dim::new("a")).dynamic(0, 1, Dim::new("b")),
        dim(0, 1, Dim::new("not a name")),
        dim(0, 1, Dim::new("f32")),
        TraceOptions::new().names(["x"]),
        TraceOptions::new().names(["x", "x"]),
        TraceOptions::new().names(["x", "2y"]),
    ];
    let errors: Vec<String> =
        cases.iter().map(|o| o.trace(id, inputs()).unwrap_err().kind().to_string()).collect();
    assert_snapshot!(errors.join("\n"), @r"
    dynamic dimension `a` refers to input 2, but there are 2 inputs
    dynamic dimension `a` is dimension 1 of input 1, which has 1 dimensions
    input 0 has size 2 in dimension 0, outside the range [3, oo) of `a`
    the range of dimension `a` is [3, 2]; expected 0 <= min <= max
    `a` is dimension 0 of input 0, of size 2, and dimension 1 of input 0, of size 3; dimensions of one name must have equal sizes
    dimension `a` is declared with two ranges, [0, oo) and [0, 9]
    dimension 1 of input 0 is declared dynamic twice
    `not a name` cannot name a symbol: expected an identifier (letters, digits, `_`, not starting with a digit) other than `and`, `or`, `not`, `true`, `false`, `min`, `max`, `oo`
    a symbol cannot be named `f32`: the name is a reserved word of graph text
    1 names were given for 2 inputs
    inputs 0 and 1 are both named `x`
    `2y` cannot name input 1: expected letters, digits and `_`, not starting with a digit
    ");
    let e = TraceOptions::symbolic()
        .dynamic(1, 0, Dim::new("n"))
        .trace(|x: (Tensor, i64)| x.0, (vector(1), 2))
        .unwrap_err();
    assert_snapshot!(e.kind(), @"dynamic dimension `n` refers to input 1, which is the integer 2, \
        not a tensor");
}

#[test]
fn branching_on_data() {
    let e = trace(
        |x: Tensor| -> Result<bool> { Ok(call(&NONZERO, args![&x])?.size(0).gt(3).guard()?) },
        vector(4),
    )
    .unwrap_err();
    assert_snapshot!(text(&e), @r#"cannot branch on `u0 > 3` at crates/trace/tests/refusals.rs:N: u0 is the data-dependent size made by t::nonzero at crates/trace/tests/refusals.rs:N, unknown while tracing; use .check("message") to assert what you know about it, or .statically_known() to ask without deciding"#);
}

#[test]
fn the_first_error_is_returned_even_if_its_value_is_dead() {
    let op = custom_op("t::no_fake")
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone()) })
        .register()
        .unwrap();
    let e = trace(
        move |x: Tensor| {
            let _dead = op.call(args![&x]);
            let _later = maquette_ops::call("t::unknown", args![&x]);
            x.relu()
        },
        vector(4),
    )
    .unwrap_err();
    assert_snapshot!(text(&e), @r"
    t::no_fake: has no fake kernel, which tracing needs to know its outputs' sizes and dtypes; register one with `#[register_fake(no_fake)]` or `op.register_fake(…)`, such as
        |_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.new_empty(x.sizes(), x.dtype())) }
      at crates/trace/tests/refusals.rs:N
    ");
}

#[test]
fn a_fake_kernel_whose_metadata_differs_from_the_kernel() {
    let wrong = [
        identity("t::wrong_size", |_, x| Ok(Tensor::fake([x.size(0), x.size(1) + 1], x.dtype()))),
        identity("t::wrong_rank", |_, x| Ok(Tensor::fake([x.size(0)], x.dtype()))),
        identity("t::wrong_dtype", |_, x| Ok(Tensor::fake(x.sizes(), DType::F64))),
        identity("t::wrong_strides", |_, x| {
            Ok(Tensor::fake_of(
                x.meta().with_dims(x.sizes().into(), [SymInt::from(1), x.size(0)].into_dims()),
            ))
        }),
    ];
    let mut errors = String::new();
    for op in wrong {
        let t = TraceOptions::symbolic()
            .names(["x"])
            .trace(move |x: Tensor| call(&op, args![&x]), matrix(2, 3))
            .unwrap();
        let e = t.run(matrix(4, 5)).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Fake(FakeError::Mismatch { .. })), "{e}");
        assert_eq!(e.op().unwrap(), op.name());
        errors += &format!("{}\n", text(&e));
    }
    assert_snapshot!(errors, @r"
    t::wrong_size: output 0: its fake kernel promises size 1 to be 6, but its kernel returned 5. Fix the fake kernel
      at crates/trace/tests/refusals.rs:N
    > %wrong_size: f32[s0, s1 + 1] = t::wrong_size(%x)

    t::wrong_rank: output 0: its fake kernel promises rank to be 1, but its kernel returned 2. Fix the fake kernel
      at crates/trace/tests/refusals.rs:N
    > %wrong_rank: f32[s0] = t::wrong_rank(%x)

    t::wrong_dtype: output 0: its fake kernel promises dtype to be f64, but its kernel returned f32. Fix the fake kernel
      at crates/trace/tests/refusals.rs:N
    > %wrong_dtype: f64[s0, s1] = t::wrong_dtype(%x)

    t::wrong_strides: output 0: its fake kernel promises stride 0 to be 1, but its kernel returned 5. Fix the fake kernel
      at crates/trace/tests/refusals.rs:N
    > %wrong_strides: f32[s0, s1] strides [1, s0] = t::wrong_strides(%x)
    ");
}

#[test]
fn strides_that_cannot_be_seen_are_not_compared() {
    let op = identity("t::other_strides", |_, x| {
        Ok(Tensor::fake_of(x.meta().with_dims(x.sizes().into(), [7, 9].into_dims())))
    });
    let t = TraceOptions::symbolic()
        .trace(move |x: Tensor| call(&op, args![&x]), matrix(2, 3))
        .unwrap();
    assert!(t.run(matrix(1, 1)).is_ok());
    assert!(t.run(matrix(0, 3)).is_ok());
    assert!(t.run(matrix(1, 2)).is_err());
}

#[test]
fn sizes_outside_their_declared_range() {
    let t = trace(|x: Tensor| call(&FEW, args![&x]), vector(4)).unwrap();
    let e = t.run(vector(4)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Range { .. })));
    assert_snapshot!(text(&e), @r"
    t::few: the data-dependent size u0 is 4, outside its declared range [0, 2]
      at crates/trace/tests/refusals.rs:N
      %few: i64[u0, 1] = t::few(%in0)
    > bind u0 = size(%few, 0)
    ");
}

#[test]
fn a_symbol_that_no_result_shows_by_itself() {
    let op =
        identity("t::doubled", |cx, _| Ok(Tensor::fake([cx.new_dynamic_size()? * 2], DType::F32)));
    let e = trace(move |x: Tensor| call(&op, args![&x]), vector(4)).unwrap_err();
    assert_snapshot!(text(&e), @r"
    t::doubled: its fake kernel returned sizes that depend on u0, but no size is u0 itself, so a run cannot determine it; return an output with u0 as a size, or make a data-dependent size for the whole expression
      at crates/trace/tests/refusals.rs:N
    ");
}

#[test]
fn guards_and_assertions_at_run_time() {
    let program = |x: Tensor| -> Result<Tensor> {
        let n = COUNT.call(args![&x, 0.0])?[0].int()?;
        n.lt(x.size(0)).check("some element must not be positive")?;
        Ok(if x.size(0).gt(2).guard()? { x.relu() } else { x })
    };
    let t = TraceOptions::symbolic().names(["x"]).trace(program, vector(4)).unwrap();
    assert_snapshot!(t, @r#"
    graph graph(%x: f32[s0]) -> (f32[s0])
      where s0 in [0, oo), u0 in [0, oo)
      guard s0 > 2
    {
      %count: int(u0) = t::count(%x)
      bind u0 = %count
      assert u0 < s0 "some element must not be positive"
      %relu: f32[s0] = aten::relu(%x)
      return %relu
    }
    "#);
    let e = t.run(vector(2)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. })));
    assert_snapshot!(text(&e), @r"
    the guard `s0 > 2` does not hold: s0 = 2. The traced program branched on it at crates/trace/tests/refusals.rs:N; trace again for such inputs
      at crates/trace/tests/refusals.rs:N
    ");
    let e = t.run(Tensor::from([1.0f32, 1.0, 1.0])).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Assertion { .. })));
    assert_snapshot!(text(&e), @r#"
    assertion failed: some element must not be positive: `u0 < s0` does not hold: u0 = 3, s0 = 3
      at crates/trace/tests/refusals.rs:N
      %count: int(u0) = t::count(%x)
      bind u0 = %count
    > assert u0 < s0 "some element must not be positive"
      %relu: f32[s0] = aten::relu(%x)
    "#);
}

#[test]
fn inputs_that_were_not_traced_for() {
    let t =
        trace(|(x, y): (Tensor, Option<Tensor>)| (x.relu(), y), (matrix(2, 3), Some(vector(2))))
            .unwrap();
    let errors = [
        t.run((matrix(2, 4), Some(vector(2)))),
        t.run((vector(2), Some(vector(2)))),
        t.run((Tensor::from([1.0f64]), Some(vector(2)))),
        t.run((matrix(2, 3), None)),
        t.run((Tensor::fake([2, 3], DType::F32), Some(vector(2)))),
    ]
    .map(|r| r.unwrap_err().kind().to_string());
    assert_snapshot!(errors.join("\n"), @r"
    input `in0`: size 1 must be 3, found 4 (the trace is specialized to this value; make the dimension dynamic to vary it)
    input `in0`: the type must be f32[2, 3], found f32[2]
    input `in0`: dtype must be f32, found f64
    the input `in1` must be a single value, found an absent value; trace again for inputs of another structure
    input `in0`: the value must be a tensor with data, found a fake tensor f32[2, 3]
    ");
}

#[test]
fn tensors_that_leave_their_trace() {
    let leaked = Mutex::new(Vec::new());
    trace(|x: Tensor| leaked.lock().unwrap().push(x.relu()), vector(2)).unwrap();
    let dead = leaked.lock().unwrap().pop().unwrap();
    let e = dead.relu().ok().unwrap_err().clone();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::Ended { .. })), "{e}");
    let e = trace(|x: Tensor| x + &dead, vector(2)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::Ended { .. })), "{e}");
    let e = trace(|_: Tensor| dead.clone(), vector(2)).unwrap_err();
    assert!(
        matches!(
            e.kind(),
            ErrorKind::Trace(TraceError::OtherTrace { .. } | TraceError::Ended { .. })
        ),
        "{e}"
    );
    assert!(dead.size(0).as_i64().is_some());
}

#[test]
fn a_tensor_on_another_thread() {
    let found = Mutex::new(None);
    let e = trace(
        |x: Tensor| {
            let y = x.clone();
            *found.lock().unwrap() =
                std::thread::scope(|s| s.spawn(move || y.relu().ok().err()).join().unwrap());
            x
        },
        vector(2),
    )
    .unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::OtherThread { .. })), "{e}");
    assert!(e.is_same(&found.into_inner().unwrap().unwrap()), "the program discarded it");
}

#[test]
fn a_tensor_in_another_trace() {
    let sample = vector(2);
    let e = TraceOptions::new()
        .name("outer")
        .trace(
            |x: Tensor| {
                TraceOptions::new().name("inner").trace(|y: Tensor| &y + &x, sample).map(|_| ())
            },
            vector(2),
        )
        .unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::OtherTrace { .. })), "{e}");
    let run = |x: Tensor| trace(|y: Tensor| y, x.clone())?.run(x).map(|_| ());
    let e = trace(run, vector(2)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::Run)), "{e}");
    let mut leaked = None;
    let identity = trace(|x: Tensor| leaked.insert(x.clone()).clone(), vector(2)).unwrap();
    let e = identity.run(leaked.unwrap()).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::Nested { .. })), "{e}");
    let fake = Tensor::fake([2], DType::F32);
    let e = trace(|x: Tensor| x + &fake, vector(2)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::Fake { .. })), "{e}");
}

#[test]
fn symbols_after_the_trace() {
    let kept = Mutex::new(None);
    TraceOptions::symbolic()
        .trace(|x: Tensor| *kept.lock().unwrap() = Some(x.size(0)), vector(2))
        .unwrap();
    let s = kept.into_inner().unwrap().unwrap();
    assert!((s + 1).guard_int().unwrap_err().to_string().contains("ended"));
}

#[test]
fn a_graph_read_from_text() {
    let run = |text: &str| {
        let graph = text.parse::<Graph>().unwrap();
        Interpreter::new(&graph).run(&[vector(2).into()]).map(|run| run.results)
    };
    let ok = "graph g(%x: f32[n]) -> (f32[n])\n  where n in [0, \
        oo)\n{\n  %y: f32[n] = aten::relu(%x)\n  return %y\n}";
    assert_eq!(run(ok).unwrap()[0].tensor().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    let e = run(&ok.replace("aten::relu", "t::unheard_of")).unwrap_err();
    assert_snapshot!(text(&e), @r"
    there is no operator `t::unheard_of`; if a crate defines it, that crate must be linked: write `use t as _;`
      at crates/trace/tests/refusals.rs:N
    > %y: f32[n] = t::unheard_of(%x)
    ");
    let constant = "graph g(%x: f32[2]) -> (f32[2])\n  const %w: f32[2] = \
        sha256:0123456789abcdef\n{\n  return %w\n}";
    assert_snapshot!(text(&run(constant).unwrap_err()), @r"
    the constant `w` has no contents: graph text stores only the digest of a constant
      at crates/trace/tests/refusals.rs:N
    ");
}

#[test]
fn a_panic_in_the_program() {
    let panicked = std::panic::catch_unwind(|| {
        trace(|_: Tensor| -> Tensor { panic!("model") }, vector(2)).map(drop)
    });
    assert!(panicked.is_err());
    assert!(vector(2).relu().ok().is_ok(), "no mode is left behind");
}

#[test]
fn a_tensor_of_more_dimensions_than_a_graph_can_hold() {
    let x = Tensor::zeros([1; 64], DType::F32);
    let t = trace(|x: Tensor| x.relu(), x.clone()).unwrap();
    assert_eq!(&t.graph().to_string().parse::<Graph>().unwrap(), t.graph());
    let e = trace(|x: Tensor| x.unsqueeze(0), x).unwrap_err();
    let refused = trace(|x: Tensor| x, Tensor::zeros([1; 65], DType::F32)).unwrap_err();
    assert_snapshot!(format!("{}\n{}", text(&e), text(&refused)), @r"
    aten::unsqueeze: a tensor has 65 dimensions; a graph's tensors have at most 64
      at crates/trace/tests/refusals.rs:N
    a tensor has 65 dimensions; a graph's tensors have at most 64
      at crates/trace/tests/refusals.rs:N
    ");
}
