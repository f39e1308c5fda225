//! Fake kernels without a trace: what they may do, what the schema generates, what is refused and
//! how that reads.

use maquette_aten as _;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::{DType, Device, Layout, Loc};
use maquette_ops::{
    AccessError, ErrorKind, FakeCtx, FakeError, Meta, Op, Outputs, Result, Tensor, args, custom_op,
    fake,
};

/// An error without line numbers.
fn text(e: &maquette_ops::Error) -> String {
    let text = e.to_string();
    let mut parts = text.split(".rs:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, rest| {
        text + ".rs:N" + rest.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

fn define(name: &str, schema: &str) -> Op {
    custom_op(name).schema(schema).register().unwrap()
}

/// An operator of one tensor with this fake kernel.
fn with_fake(
    name: &str,
    f: impl Fn(&FakeCtx, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Op {
    let kernel =
        |x: &Tensor| -> Result<Tensor> { Ok(Tensor::from_vec(x.to_vec::<f32>()?, x.sizes())) };
    let op = custom_op(name).schema("(Tensor x) -> Tensor").kernel(kernel).register().unwrap();
    op.register_fake(move |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { f(cx, x) }).unwrap();
    op
}

fn on_fake(op: &Op) -> Result<Outputs> {
    op.call(args![&Tensor::fake([2, 3], DType::F32)])
}

/// Calls with symbols, as a tracer does.
fn in_scope(scope: &Scope, op: &Op, x: &Tensor) -> Result<Outputs> {
    fake::call(*op, &args![x], Some(scope), Loc::caller())
}

#[test]
fn fake_kernel_errors() {
    let real = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let (mixed, called) = (Tensor::from([[1.0f32; 3]; 2]), Tensor::from([[1.0f32; 3]; 2]));
    let other = with_fake("fakes::other", |_, x| Ok(x.new_empty(x.sizes(), x.dtype())));
    let cases = [
        with_fake("fakes::reads", |_, x| Ok(Tensor::from(x.to_array::<f32>()?))),
        with_fake("fakes::takes_an_item", |_, x| {
            Ok(x.new_empty([x.sum().item::<f32>()? as i64], x.dtype()))
        }),
        with_fake("fakes::writes", |_, x| {
            x.clone().write::<f32>()?.fill(0.0);
            Ok(x.new_empty(x.sizes(), x.dtype()))
        }),
        with_fake("fakes::mixes", move |_, x| (x + &mixed).ok().cloned()),
        with_fake("fakes::writes_real", move |_, x| real.add_(x).ok().cloned()),
        with_fake("fakes::calls_a_kernel", move |_, _| {
            other.call(args![&called])?[0].tensor().cloned()
        }),
        with_fake("fakes::returns_real", |_, _| Ok(Tensor::from([[1.0f32; 3]; 2]))),
        with_fake("fakes::returns_its_argument", |_, x| Ok(x.clone())),
        with_fake("fakes::needs_a_trace", |cx, x| {
            Ok(x.new_empty([cx.new_dynamic_size()?], x.dtype()))
        }),
        with_fake("fakes::sparse", |_, x| {
            let mut meta = x.meta().clone();
            meta.layout = Layout::SparseCoo;
            Ok(Tensor::fake_of(meta))
        }),
        with_fake("fakes::negative", |_, x| Ok(x.new_empty([x.size(0) - 5], x.dtype()))),
    ];
    let errors: Vec<String> = cases.iter().map(|op| text(&on_fake(op).unwrap_err())).collect();
    insta::assert_snapshot!("fake_kernel_errors", errors.join("\n\n"));
    let kind = |i: usize| on_fake(&cases[i]).unwrap_err();
    assert!(matches!(kind(0).kind(), ErrorKind::Access(AccessError::Fake)));
    assert!(matches!(kind(3).kind(), ErrorKind::Fake(FakeError::RealOperand { .. })));
    assert!(matches!(kind(5).kind(), ErrorKind::Fake(FakeError::RealKernel)));
    assert!(matches!(kind(8).kind(), ErrorKind::Fake(FakeError::NoTrace)));
    // the same on the `meta` device, which is not in a trace either
    let meta = Tensor::fake_of(Meta::contiguous([2, 3], DType::F32).on(Device::Meta));
    assert!(matches!(
        cases[8].call(args![&meta]).unwrap_err().kind(),
        ErrorKind::Fake(FakeError::NoTrace)
    ));
}

#[test]
fn bounds_of_a_dynamic_size() {
    let scope = Scope::new();
    let n = scope.backed(None, Range { lo: 0, hi: i64::MAX }, 4).unwrap();
    let x = Tensor::fake([n], DType::F32);
    let bounded = |name: &str, f: fn(&FakeCtx, &Tensor) -> Result<SymInt>| {
        with_fake(name, move |cx, x| Ok(x.new_empty([f(cx, x)?], x.dtype())))
    };
    let cases = [
        bounded("fakes::min_negative", |cx, _| cx.new_dynamic_size_in(-1, 4)),
        bounded("fakes::min_above_max", |cx, _| cx.new_dynamic_size_in(5, 3)),
        bounded("fakes::symbolic_max", |cx, x| cx.new_dynamic_size_in(0, x.size(0))),
        bounded("fakes::poisoned_max", |cx, x| cx.new_dynamic_size_in(0, x.size(7))),
    ];
    let errors: Vec<String> =
        cases.iter().map(|op| text(&in_scope(&scope, op, &x).unwrap_err())).collect();
    insta::assert_snapshot!("bounds_of_a_dynamic_size", errors.join("\n"));
    let fits = bounded("fakes::one_size", |cx, _| cx.new_dynamic_size_in(3, 3));
    let out = in_scope(&scope, &fits, &x).unwrap();
    assert_eq!(out[0].tensor().unwrap().size(0).range(), Range::point(3));
}

#[test]
fn two_calls_give_two_sizes_and_one_call_may_share_one() {
    let scope = Scope::new();
    let op = custom_op("fakes::shares")
        .schema("(Tensor x) -> (Tensor, Tensor[], int)")
        .register()
        .unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<(Tensor, Vec<Tensor>, SymInt)> {
        let n = cx.new_dynamic_size()?;
        Ok((
            x.new_empty([n, n * 2], DType::I64),
            vec![x.new_empty([n], DType::Bool), x.new_empty([n + 1], x.dtype())],
            n,
        ))
    })
    .unwrap();
    let x = Tensor::fake([2], DType::F32);
    let show = |out: Outputs| {
        out.iter()
            .map(|v| format!("{:?}", v.tensors().map(|t| t.meta().to_string()).collect::<Vec<_>>()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let first = in_scope(&scope, &op, &x).unwrap();
    assert_eq!(first[2].int().unwrap().to_string(), "u0");
    assert_eq!(show(first), r#"["i64[u0, 2 * u0]"] ["bool[u0]", "f32[u0 + 1]"] []"#);
    assert_eq!(
        show(in_scope(&scope, &op, &x).unwrap()),
        r#"["i64[u1, 2 * u1]"] ["bool[u1]", "f32[u1 + 1]"] []"#
    );
}

#[test]
fn the_schema_is_enough_where_every_return_is_a_mutated_argument() {
    let x = Tensor::fake([2], DType::F32);
    let nothing = define("fakes::nothing_", "(Tensor(a!) x) -> ()");
    assert!(nothing.has_fake() && nothing.call(args![&x]).unwrap().is_empty());
    let both =
        define("fakes::both_", "(Tensor(a!) x, Tensor(b!)[] y) -> (Tensor(b!)[], Tensor(a!))");
    let out = both.call(args![&x, vec![x.new_empty([3], DType::I64)]]).unwrap();
    assert!(
        both.has_fake() && out[1].tensor().unwrap().is_same(&x) && out[0].tensors().count() == 1
    );
    assert!(!define("fakes::also_fresh_", "(Tensor(a!) x) -> (Tensor(a!), Tensor)").has_fake());
    assert!(!define("fakes::a_view", "(Tensor(a) x) -> Tensor(a)").has_fake());
}

#[test]
fn a_registered_fake_kernel_beats_the_generated_one() {
    let op = define("fakes::checked_", "(Tensor(a!) x) -> Tensor(a!)");
    op.register_fake(|_cx: &FakeCtx, x: &mut Tensor| -> Result<Tensor> {
        maquette_ops::ensure!(x.dim() == 2, "expected a matrix, found {} dimensions", x.dim());
        Ok(x.clone())
    })
    .unwrap();
    let matrix = Tensor::fake([2, 3], DType::F32);
    assert!(op.call(args![&matrix]).unwrap()[0].tensor().unwrap().is_same(&matrix));
    let e = op.call(args![&Tensor::fake([2], DType::F32)]).unwrap_err();
    assert!(e.to_string().contains("expected a matrix, found 1 dimensions"), "{e}");

    let wrong = define("fakes::fresh_", "(Tensor(a!) x) -> Tensor(a!)");
    wrong
        .register_fake(|_cx: &FakeCtx, x: &mut Tensor| -> Result<Tensor> {
            Ok(x.new_empty(x.sizes(), x.dtype()))
        })
        .unwrap();
    let e = wrong.call(args![&matrix]).unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::Fake(FakeError::Contract(_)))
            && e.to_string().contains("must be argument `x` itself"),
        "{e}"
    );
}

#[test]
fn a_missing_fake_kernel_is_shown_how_to_be_written() {
    let schemas = [
        "(Tensor x) -> Tensor",
        "(Tensor x, int n, float eps=1e-5, *, bool keep=True) -> (Tensor, int)",
        "(Tensor[] xs, Tensor? w, SymInt[] sizes, str mode) -> Tensor[]",
        "(Tensor(a!) x, Tensor?[] idx, ScalarType? dtype=None) -> (Tensor(a!), Tensor)",
        "(int n, *, Device device) -> Tensor",
    ];
    let errors: Vec<String> = schemas
        .iter()
        .enumerate()
        .map(|(i, schema)| {
            let op = define(&format!("fakes::missing_{i}"), schema);
            let e = match i {
                0 => op.call(args![&Tensor::fake([2], DType::F32)]),
                1 => op.call(args![&Tensor::fake([2], DType::F32), 1]),
                2 => op.call(args![vec![Tensor::fake([2], DType::F32)], (), vec![1i64, 2], "mean"]),
                3 => op.call(args![&Tensor::fake([2], DType::F32), Vec::<Tensor>::new()]),
                _ => op.call(args![1, Device::Meta]),
            };
            text(&e.unwrap_err())
        })
        .collect();
    insta::assert_snapshot!("a_missing_fake_kernel", errors.join("\n\n"));
}

#[test]
fn fake_kernels_call_operators() {
    let inner =
        with_fake("fakes::inner", |_, x| Ok(x.new_empty([x.size(0), 7.into()], DType::I64)));
    let composed = with_fake("fakes::composed", move |_, x| {
        let y = inner.call(args![&x.t()])?[0].tensor()?.clone();
        (y.to_dtype(DType::F32).relu() + Tensor::zeros([7], DType::F32)).ok().cloned()
    });
    assert_eq!(on_fake(&composed).unwrap()[0].tensor().unwrap().meta().to_string(), "f32[3, 7]");
    // one without tensors too: it makes a fake tensor there
    let factory = custom_op("fakes::factory")
        .schema("(int n) -> Tensor")
        .kernel(|n: i64| -> Result<Tensor> { Ok(Tensor::from(vec![0.0f32; n as usize])) })
        .register()
        .unwrap();
    factory
        .register_fake(|_cx: &FakeCtx, n: SymInt| -> Result<Tensor> {
            Ok(Tensor::fake([n], DType::F32))
        })
        .unwrap();
    let makes = with_fake("fakes::makes", move |_, _| factory.call(args![4])?[0].tensor().cloned());
    assert_eq!(on_fake(&makes).unwrap()[0].tensor().unwrap().meta().to_string(), "f32[4]");
    assert_eq!(
        factory.call(args![2]).unwrap()[0].tensor().unwrap().to_vec::<f32>().unwrap(),
        [0.0; 2]
    );
}

#[test]
fn fake_and_real_operands_do_not_mix() {
    let (fake, real) = (Tensor::fake([2], DType::F32), Tensor::from([1.0f32, 2.0]));
    for (name, arguments, arg) in [
        ("aten::add.Tensor", args![&fake, &real], "`other`"),
        ("aten::add.Tensor", args![&real, &fake], "`self`"),
        ("aten::add_.Tensor", args![&real, &fake], "`self`"),
        ("aten::cat", args![vec![fake.clone(), real.clone()]], "`tensors`"),
    ] {
        let e = maquette_ops::call(name, arguments).unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Fake(FakeError::RealOperand { .. }))
                && e.to_string().contains(arg),
            "{e}"
        );
    }
    assert_eq!(real.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert!((&fake * 2.0).ok().is_ok(), "numbers are no tensors");
}

#[test]
fn two_fake_kernels_and_a_signature_that_is_not_the_schemas() {
    let op = with_fake("fakes::once", |_, x| Ok(x.new_empty(x.sizes(), x.dtype())));
    let again = op
        .register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.clone()) })
        .unwrap_err();
    let other = define("fakes::other_types", "(Tensor x, int n) -> Tensor");
    let wrong = other
        .register_fake(|_cx: &FakeCtx, x: &Tensor, _n: f64| -> Result<Tensor> { Ok(x.clone()) })
        .unwrap_err();
    assert!(!other.has_fake(), "a failed registration leaves nothing behind");
    insta::assert_snapshot!(
        "registering_fake_kernels",
        format!("{}\n\n{}", text(&again), text(&wrong))
    );
}
