//! Fake kernels in traces: what they say of sizes, what becomes of their guards and checks, and how
//! a wrong one is found.

mod common;

use common::{COUNT, NONZERO, call, matrix, vector};
use insta::assert_snapshot;
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_ir::graph::{Graph, Stmt};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Loc};
use maquette_ops::{
    ErrorKind, FakeCtx, FakeError, IntoDims, Op, Result, RunError, Tensor, args, custom_op,
};
use maquette_trace::{TraceOptions, trace};

/// An error without line numbers.
fn text(e: &maquette_ops::Error) -> String {
    let text = e.to_string();
    let mut parts = text.split(".rs:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, rest| {
        text + ".rs:N" + rest.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

fn symbolic() -> TraceOptions {
    TraceOptions::symbolic().names(["x"])
}

/// An operator of one tensor with this kernel and fake kernel.
fn op(
    name: &str,
    kernel: fn(&Tensor) -> Result<Tensor>,
    fake: fn(&FakeCtx, &Tensor) -> Result<Tensor>,
) -> Op {
    let op = custom_op(name)
        .schema("(Tensor x) -> Tensor")
        .kernel(move |x: &Tensor| -> Result<Tensor> { kernel(x) })
        .register()
        .unwrap();
    op.register_fake(move |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { fake(cx, x) }).unwrap();
    op
}

fn copy(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from_vec(x.to_vec::<f32>()?, x.sizes()))
}

/// The source line of each guard.
fn guard_locs(graph: &Graph) -> Vec<Loc> {
    (0..graph.guards().len()).filter_map(|i| graph.guard_loc(i)).collect()
}

fn like(x: &Tensor) -> Tensor {
    x.new_empty(x.sizes(), x.dtype())
}

/// The positive elements.
fn positive(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_vec::<f32>()?.into_iter().filter(|v| *v > 0.0).collect::<Vec<f32>>()))
}

#[test]
fn one_size_in_expressions_lists_and_integers() {
    let kernel = |x: &Tensor| -> Result<(Tensor, Vec<Tensor>, i64)> {
        let found = positive(x)?.to_vec::<f32>()?;
        let n = found.len() as i64;
        let twice = Tensor::from_vec([found.clone(), found.clone()].concat(), [n, 2]);
        Ok((twice, vec![Tensor::from(found), Tensor::from(vec![0i64; n as usize + 1])], n))
    };
    let op = custom_op("f::shares")
        .schema("(Tensor x) -> (Tensor, Tensor[], int)")
        .kernel(kernel)
        .register()
        .unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<(Tensor, Vec<Tensor>, SymInt)> {
        let n = cx.new_dynamic_size()?;
        Ok((
            x.new_empty([n, 2.into()], x.dtype()),
            vec![x.new_empty([n], x.dtype()), x.new_empty([n + 1], DType::I64)],
            n,
        ))
    })
    .unwrap();
    let model = move |x: Tensor| -> Result<(Tensor, Tensor, SymInt)> {
        let (first, second) = (op.call(args![&x])?, op.call(args![&x])?);
        let row = first[1].tensors().next().cloned().unwrap_or_else(|| x.clone());
        Ok((row, second[0].tensor()?.clone(), first[2].int()? + second[2].int()? * 2))
    };
    let t = symbolic().trace(model, vector(4)).unwrap();
    assert_snapshot!("one_size_shared", t);
    let (row, twice, sum) = t.run(Tensor::from([1.0f32, -1.0, 5.0])).unwrap();
    assert_eq!(
        (row.to_vec::<f32>().unwrap(), twice.sizes_i64().unwrap(), sum.as_i64()),
        (vec![1.0, 5.0], vec![2, 2], Some(6))
    );
}

#[test]
fn sizes_that_are_products_of_a_data_dependent_one() {
    let kernel = |x: &Tensor| -> Result<(Tensor, Tensor)> {
        let found = positive(x)?;
        let n = found.size(0).guard_int()?;
        Ok((found, Tensor::zeros([n, 2 * n], DType::F32)))
    };
    let op = custom_op("f::products")
        .schema("(Tensor x) -> (Tensor, Tensor)")
        .kernel(kernel)
        .register()
        .unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<(Tensor, Tensor)> {
        let n = cx.new_dynamic_size()?;
        Ok((x.new_empty([n], x.dtype()), x.new_empty([n, n * 2], x.dtype())))
    })
    .unwrap();
    let t = symbolic()
        .trace(
            move |x: Tensor| Ok::<_, maquette_ops::Error>(op.call(args![&x])?[1].tensor()?.clone()),
            vector(4),
        )
        .unwrap();
    assert_snapshot!("sizes_that_are_products", t);
    assert_eq!(t.run(Tensor::from([1.0f32, 2.0, -3.0])).unwrap().sizes_i64().unwrap(), [2, 4]);
}

#[test]
fn checks_and_guards_of_a_fake_kernel_have_its_lines() {
    let op = op("f::checked", positive, |cx, x| {
        let n = cx.new_dynamic_size()?;
        n.le(x.size(0)).check("not more positive elements than elements")?; // line A
        let many = x.size(0).gt(2).guard()?; // line B
        maquette_ops::ensure!(many, "too few");
        x.size(0).guard_int()?; // line C
        Ok(x.new_empty([n], x.dtype()))
    });
    let line = |mark: &str| {
        include_str!("fakes.rs")
            .lines()
            .position(|l| l.ends_with(mark))
            .map(|i| i as u32 + 1)
            .unwrap()
    };
    let t = symbolic().trace(move |x: Tensor| call(&op, args![&x]), vector(4)).unwrap();
    assert_snapshot!("checks_and_guards", t);
    let graph = t.graph();
    let is_assert = |at: &usize| matches!(graph.body()[*at], Stmt::Assert { .. });
    let asserts = (0..graph.body().len()).filter(is_assert).map(|at| graph.stmt_loc(at));
    assert_eq!(asserts.map(|l| l.unwrap().line).collect::<Vec<_>>(), [line("// line A")]);
    assert_eq!(
        guard_locs(graph).iter().map(|l| l.line).collect::<Vec<_>>(),
        [line("// line B"), line("// line C")]
    );
    let e = t.run(vector(2)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. })), "{e}");
    assert!(e.to_string().contains(&format!("fakes.rs:{}", line("// line B"))), "{e}");
}

#[test]
fn a_check_that_fails_in_a_run_says_its_message_and_line() {
    let op = op("f::at_most_one", positive, |cx, x| {
        let n = cx.new_dynamic_size()?;
        n.le(1).check("at most one positive element")?;
        Ok(x.new_empty([n], x.dtype()))
    });
    let t = symbolic().trace(move |x: Tensor| call(&op, args![&x]), vector(4)).unwrap();
    assert_snapshot!("a_check_that_fails", text(&t.run(Tensor::from([1.0f32, 2.0])).unwrap_err()));
    // and through the text form
    let again: Graph = t.graph().to_string().parse().unwrap();
    let x = Tensor::from([1.0f32, 2.0]);
    let e = Interpreter::new(&again).run(&[x.into()]).unwrap_err();
    assert!(e.to_string().contains("at most one positive element"), "{e}");
}

#[test]
fn a_symbol_given_to_a_fake_kernel_that_wants_a_number() {
    let op = custom_op("f::repeat")
        .schema("(Tensor x, SymInt n) -> Tensor")
        .kernel(|x: &Tensor, n: i64| -> Result<Tensor> {
            Ok(Tensor::from(x.to_vec::<f32>()?.repeat(n as usize)))
        })
        .register()
        .unwrap();
    op.register_fake(|_cx: &FakeCtx, x: &Tensor, n: i64| -> Result<Tensor> {
        Ok(x.new_empty([x.size(0) * n], x.dtype()))
    })
    .unwrap();
    let program = move |x: Tensor| call(&op, args![&x, x.size(0)]); // this line
    let t = symbolic().trace(program, vector(3)).unwrap();
    let line = include_str!("fakes.rs").lines().position(|l| l.ends_with("// this line")).unwrap()
        as u32
        + 1;
    assert_eq!(
        guard_locs(t.graph()).iter().map(|l| (l.file, l.line)).collect::<Vec<_>>(),
        [(file!(), line)]
    );
    assert_snapshot!("a_number_for_a_symbol", t);
    let e = symbolic()
        .trace(move |x: Tensor| call(&op, args![&x, COUNT.call(args![&x])?[0].int()?]), vector(3))
        .unwrap_err();
    assert_snapshot!("a_number_for_data", text(&e));
}

#[test]
fn branching_on_data_in_a_fake_kernel() {
    let op = op("f::branches", positive, |cx, x| {
        let n = cx.new_dynamic_size()?;
        let n = if n.gt(3).guard()? { n } else { 0.into() };
        Ok(x.new_empty([n], x.dtype()))
    });
    let e = symbolic().trace(move |x: Tensor| call(&op, args![&x]), vector(3)).unwrap_err();
    assert_snapshot!("branching_in_a_fake_kernel", text(&e));
}

#[test]
fn fake_kernel_errors_in_a_trace() {
    let unreturned = op("f::unreturned", copy, |cx, x| cx.new_dynamic_size().map(|_| like(x)));
    let real = op("f::real", copy, |_, _| Ok(Tensor::from([1.0f32, 2.0])));
    let mixes = op("f::mixes", copy, |_, x| (x + Tensor::from([1.0f32, 2.0])).ok().cloned());
    let calls = op("f::calls", copy, |_, _| call(&NONZERO, args![&Tensor::from([1.0f32])]));
    let item =
        op("f::item", copy, |_, x| Ok(x.new_empty([x.sum().item::<f32>()? as i64], x.dtype())));
    let errors: Vec<String> = [unreturned, real, mixes, calls, item]
        .into_iter()
        .map(|op| {
            text(&symbolic().trace(move |x: Tensor| call(&op, args![&x]), vector(2)).unwrap_err())
        })
        .collect();
    assert_snapshot!("not_in_a_fake_kernel", errors.join("\n\n"));
}

/// Kernels that return something other than promised: what is promised, on which input it shows,
/// and what the error names.
#[test]
fn every_promise_is_checked_in_every_run() {
    let offset = |x: &Tensor| -> Result<Tensor> {
        Ok(Tensor::from([copy(x)?.to_vec::<f32>()?, vec![0.0]].concat()).slice(0, 1..))
    };
    let transposed = |x: &Tensor| -> Result<Tensor> { copy(x)?.t().ok().cloned() };
    type Fake = fn(&FakeCtx, &Tensor) -> Result<Tensor>;
    type Kernel = fn(&Tensor) -> Result<Tensor>;
    let cases: [(&str, Kernel, Fake, Tensor, Tensor); 12] = [
        (
            "f::rank",
            copy,
            |_, x| Ok(x.new_empty([x.numel()], x.dtype())),
            matrix(2, 3),
            matrix(2, 3),
        ),
        (
            "f::size",
            copy,
            |_, x| Ok(x.new_empty([x.size(0) + 1, x.size(1)], x.dtype())),
            matrix(2, 3),
            matrix(2, 3),
        ),
        (
            "f::stride",
            transposed,
            |_, x| Ok(x.new_empty([x.size(1), x.size(0)], x.dtype())),
            matrix(2, 3),
            matrix(2, 3),
        ),
        ("f::offset", offset, |_, x| Ok(like(x)), vector(3), vector(3)),
        (
            "f::promised_offset",
            copy,
            |_, x| Ok(Tensor::fake_of(x.meta().clone().with_offset(2))),
            vector(3),
            vector(3),
        ),
        ("f::dtype", copy, |_, x| Ok(x.new_empty(x.sizes(), DType::F64)), vector(3), vector(3)),
        (
            "f::device",
            copy,
            |_, x| Ok(Tensor::fake_of(x.meta().clone().on(Device::cuda(0)))),
            vector(3),
            vector(3),
        ),
        // right on the sample, wrong elsewhere
        ("f::hard_coded", copy, |_, x| Ok(x.new_empty([3], x.dtype())), vector(3), vector(4)),
        (
            "f::specialised",
            copy,
            |_, x| Ok(x.new_empty([x.size(0).hint().unwrap_or(0)], x.dtype())),
            vector(3),
            vector(4),
        ),
        (
            "f::max",
            positive,
            |cx, x| Ok(x.new_empty([cx.new_dynamic_size_in(0, 1)?], x.dtype())),
            vector(3),
            vector(9),
        ),
        (
            "f::min",
            positive,
            |cx, x| Ok(x.new_empty([cx.new_dynamic_size_in(5, 9)?], x.dtype())),
            vector(3),
            vector(4),
        ),
        (
            "f::dynamic_stride",
            |x| Tensor::zeros([3, positive(x)?.size(0).guard_int()?], DType::F32).t().ok().cloned(),
            |cx, x| Ok(x.new_empty([cx.new_dynamic_size()?, 3.into()], x.dtype())),
            vector(3),
            vector(9),
        ),
    ];
    let mut errors = String::new();
    for (name, kernel, fake, sample, other) in cases {
        let op = op(name, kernel, fake);
        let t = symbolic().trace(move |x: Tensor| call(&op, args![&x]), sample.clone()).unwrap();
        let e = t.run(other.clone()).unwrap_err();
        assert_eq!(e.op(), Some(name), "{e}");
        assert!(
            matches!(
                e.kind(),
                ErrorKind::Fake(FakeError::Mismatch { .. })
                    | ErrorKind::Run(RunError::Range { .. })
            ),
            "{e}"
        );
        // a graph read from text promises the same
        let parsed: Graph = t.graph().to_string().parse().unwrap();
        let again = Interpreter::new(&parsed).run(&[other.into()]).unwrap_err();
        assert_eq!(e.kind().to_string(), again.kind().to_string());
        errors += &format!("{}\n", e.to_string().lines().next().unwrap_or_default());
    }
    assert_snapshot!("every_promise", errors);
}

#[test]
fn promises_of_lists_and_integers() {
    let lists = custom_op("f::list")
        .schema("(Tensor x) -> Tensor[]")
        .kernel(|x: &Tensor| -> Result<Vec<Tensor>> { Ok(vec![copy(x)?, copy(x)?]) })
        .register()
        .unwrap();
    lists
        .register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<Vec<Tensor>> { Ok(vec![like(x)]) })
        .unwrap();
    let ints = custom_op("f::int")
        .schema("(Tensor x) -> int")
        .kernel(|_x: &Tensor| -> Result<i64> { Ok(7) })
        .register()
        .unwrap();
    ints.register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<SymInt> { Ok(x.size(0)) }).unwrap();
    let negative = custom_op("f::negative")
        .schema("(Tensor x) -> int")
        .kernel(|_x: &Tensor| -> Result<i64> { Ok(-7) })
        .register()
        .unwrap();
    negative
        .register_fake(|cx: &FakeCtx, _x: &Tensor| -> Result<SymInt> { cx.new_dynamic_int() })
        .unwrap();
    let t = symbolic()
        .trace(
            move |x: Tensor| lists.call(args![&x]).map(|out| out[0].tensors().count() as i64),
            vector(2),
        )
        .unwrap();
    let u = symbolic().trace(move |x: Tensor| ints.call(args![&x])?[0].int(), vector(2)).unwrap();
    assert_snapshot!(
        "lists_and_integers",
        format!(
            "{}\n\n{}",
            text(&t.run(vector(2)).unwrap_err()),
            text(&u.run(vector(2)).unwrap_err())
        )
    );
    let n =
        symbolic().trace(move |x: Tensor| negative.call(args![&x])?[0].int(), vector(2)).unwrap();
    assert!(n.to_string().contains("u0 in (-oo, oo)"), "{n}");
    assert_eq!(n.run(vector(2)).unwrap().as_i64(), Some(-7));
}

#[test]
fn strides_and_offsets_that_can_be_promised() {
    let op = op(
        "f::column_major",
        |x| copy(&x.t())?.t().ok().cloned(),
        |_, x| {
            Ok(Tensor::fake_of(
                x.meta().with_dims(x.sizes().into(), [SymInt::from(1), x.size(0)].into_dims()),
            ))
        },
    );
    let t = symbolic().trace(move |x: Tensor| call(&op, args![&x]), matrix(2, 3)).unwrap();
    for (rows, columns) in [(2, 3), (5, 4), (1, 3), (0, 3)] {
        assert!(t.run(matrix(rows, columns)).is_ok());
    }
}

#[test]
fn a_static_trace_has_numbers_where_data_decide_nothing() {
    let t = trace(|x: Tensor| call(&NONZERO, args![&x]), matrix(2, 3)).unwrap();
    assert!(t.to_string().contains("%nonzero: i64[u0, 2] = t::nonzero(%in0)"), "{t}");
}
