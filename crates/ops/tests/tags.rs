//! Tags, what they ask of schemas and kernels, and what can be inferred from signatures.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::library::{
    self, Const, ConstArg, IntoKernel, Kind, Library, Tag, TagSet, infer_schema,
    register_out_variant, to_out_variant,
};
use maquette_ops::{
    CallError, Error, ErrorKind, FakeCtx, Op, RegisterError, Result, Tensor, Value, args, custom_op,
};

fn one(x: f32) -> Tensor {
    Tensor::from([x])
}

fn first(values: &[Value]) -> f32 {
    values[0].tensor().unwrap().item().unwrap()
}

fn define<M, F: IntoKernel<M>>(name: &str, names: &[&str], tags: &[Tag], kernel: F) -> Result<Op> {
    custom_op(name)
        .arg_names(names.iter().copied())
        .tags(tags.iter().copied())
        .kernel(kernel)
        .register()
}

#[test]
fn tags_are_kept_and_named_as_in_pytorch() {
    let op = define(
        "tags::f",
        &["x"],
        &[Tag::Pointwise, Tag::FlexibleLayout, Tag::NeedsContiguousStrides],
        |x: &Tensor| -> Result<Tensor> { Tensor::from(x.to_vec::<f32>()?).ok().cloned() },
    )
    .unwrap();
    assert_eq!(
        op.tags().to_string(),
        "pt2_compliant_tag needs_contiguous_strides flexible_layout pointwise"
    );
    assert_eq!(op.tags().layout(), Tag::NeedsContiguousStrides, "the strictest");
    assert_eq!(TagSet::default().layout(), Tag::NeedsExactStrides);
    for tag in Tag::ALL {
        assert_eq!(tag.name().parse::<Tag>().unwrap(), *tag);
    }
    assert_eq!(
        "pointwize".parse::<Tag>().unwrap_err().to_string(),
        "unknown tag `pointwize`; did you mean `pointwise`?"
    );
    for (name, tag) in [
        ("aten::relu", Tag::Pointwise),
        ("aten::sum", Tag::Reduction),
        ("aten::bernoulli", Tag::NondeterministicSeeded),
        ("aten::normal_", Tag::NondeterministicSeeded),
        ("aten::dropout", Tag::NondeterministicSeeded),
        ("aten::dropout_", Tag::NondeterministicSeeded),
        ("aten::native_dropout", Tag::NondeterministicSeeded),
        ("aten::lstm.input", Tag::NondeterministicSeeded),
        ("aten::nonzero", Tag::DynamicOutputShape),
        ("aten::equal", Tag::DataDependentOutput),
        ("aten::mm", Tag::Pt2Compliant),
    ] {
        assert!(Op::find(name).unwrap().tags().contains(tag), "{name} {tag}");
    }
}

#[test]
fn inplace_operators_return_their_argument() {
    let write = |x: &mut Tensor| -> Result<()> {
        x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
        Ok(())
    };
    let silent = define("tags::inc_", &["x"], &[Tag::Inplace], write).unwrap();
    let returning =
        define("tags::inc2_", &["x"], &[Tag::Inplace], move |x: &mut Tensor| -> Result<Tensor> {
            write(x)?;
            Ok(x.clone())
        })
        .unwrap();
    for op in [silent, returning] {
        assert_eq!(op.schema().unwrap().returns.len(), 1);
        assert!(op.schema().unwrap().to_string().ends_with("(Tensor(a0!) x) -> Tensor(a0!)"));
        let x = one(1.0);
        let before = x.version();
        let out = op.call(args![&x]).unwrap();
        assert!(out[0].tensor().unwrap().is_same(&x), "the caller's own handle");
        assert_eq!((first(&out), x.version()), (2.0, before + 1));
        out[0].tensor().unwrap().fill_(9.0);
        assert_eq!(x.item::<f32>().unwrap(), 9.0);
        let fake = Tensor::fake([3], DType::F32);
        assert!(
            op.call(args![&fake]).unwrap()[0].tensor().unwrap().is_same(&fake) && op.has_fake(),
            "no fake kernel is needed"
        );
        assert!(
            op.register_fake(|_: &FakeCtx, x: &mut Tensor| -> Result<Tensor> { Ok(x.clone()) })
                .is_err(),
            "nor taken"
        );
    }
    for (name, make) in [
        (
            "tags::copy_",
            (|x: &mut Tensor| Ok(x.clone_tensor())) as fn(&mut Tensor) -> Result<Tensor>,
        ),
        ("tags::view_", |x| Ok(x.view([-1]))),
    ] {
        let op = define(name, &["x"], &[Tag::Inplace], make).unwrap();
        let e = op.call(args![&one(1.0)]).unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Call(CallError::NotTheArgument { output: 0, .. })),
            "{e}"
        );
    }
}

#[test]
fn out_operators_return_the_written_tensors() {
    let kernel = |x: &Tensor, a: &mut Tensor, b: &mut Tensor| -> Result<()> {
        a.write::<f32>()?.fill(x.item::<f32>()? + 1.0);
        b.write::<f32>()?.fill(x.item::<f32>()? + 2.0);
        Ok(())
    };
    let op = define("tags::f2.out", &["x", "a", "b"], &[Tag::Out], kernel).unwrap();
    let schema =
        "tags::f2.out(Tensor x, *, Tensor(a1!) a, Tensor(a2!) b) -> (Tensor(a1!), Tensor(a2!))";
    assert_eq!(op.schema().unwrap().to_string(), schema);
    let (a, b) = (one(0.0), one(0.0));
    let out = op.call_kw(args![one(1.0)], maquette_ops::kwargs![b = &b, a = &a]).unwrap();
    assert!(out[0].tensor().unwrap().is_same(&a) && out[1].tensor().unwrap().is_same(&b));
    assert_eq!((a.item::<f32>().unwrap(), b.item::<f32>().unwrap()), (2.0, 3.0));

    let swapped = |_: &Tensor, a: &mut Tensor, b: &mut Tensor| -> Result<(Tensor, Tensor)> {
        Ok((b.clone(), a.clone()))
    };
    let op = define("tags::swapped.out", &["x", "a", "b"], &[Tag::Out], swapped).unwrap();
    let e = op.call(args![one(1.0), &a, &b]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Call(CallError::NotTheArgument { .. })), "{e}");

    let wants_grad = Tensor::fake([1], DType::F32).requires_grad_();
    let plain = Tensor::fake([1], DType::F32);
    assert!(op.call(args![&plain, &plain, &plain]).is_ok());
    for args in [args![&wants_grad, &plain, &plain], args![&plain, &plain, &wants_grad]] {
        let e = op.call(args).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Call(CallError::OutRequiresGrad { .. })), "{e}");
    }
}

#[test]
fn tags_that_contradict_the_schema_are_refused() {
    let refused = |schema: &str, tags: &[Tag]| {
        let lib = Library::new("tags", Kind::Fragment).unwrap();
        lib.define(schema, tags).unwrap_err().kind().to_string()
    };
    for (schema, tags, why) in [
        (
            "g(Tensor(a!) x) -> Tensor(a!)",
            [Tag::Inplace, Tag::Out].as_slice(),
            "exclude each other",
        ),
        ("g() -> Tensor", &[Tag::Inplace], "no positional argument"),
        ("g(Tensor x) -> Tensor", &[Tag::Inplace], "`x` is not a mutated tensor"),
        ("g(Tensor(a!)[] x) -> Tensor(a!)", &[Tag::Inplace], "`x` is not a mutated tensor"),
        ("g(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)", &[Tag::Inplace], "it mutates `y` too"),
        ("g(Tensor(a!) x) -> Tensor", &[Tag::Inplace], "it does not return `x`"),
        ("g(Tensor(a!) x) -> ()", &[Tag::Inplace], "it does not return `x`"),
        ("g(Tensor x) -> Tensor", &[Tag::Out], "it mutates no argument"),
        ("g(Tensor x, Tensor(a!) out) -> Tensor(a!)", &[Tag::Out], "`out` is not keyword-only"),
        (
            "g(Tensor x, *, Tensor(a!)[] out) -> Tensor(a!)",
            &[Tag::Out],
            "`out` is Tensor[], not a tensor",
        ),
        ("g(Tensor x, *, Tensor(a!) out) -> ()", &[Tag::Out], "0 returned, 1 mutated"),
        (
            "g(Tensor x, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(b!), Tensor(a!))",
            &[Tag::Out],
            "return 0 is not the argument `a`",
        ),
        ("g(Tensor(a!) x) -> Tensor(a)", &[Tag::Inplace], "it does not return `x`"),
        ("g(Tensor x) -> Tensor", &[Tag::InplaceView], "immutable"),
        ("g(Tensor x) -> Tensor", &[Tag::MaybeAliasingOrMutating], "checked against its schema"),
    ] {
        let e = refused(schema, tags);
        assert!(e.contains(why), "{schema}: {e}");
    }
    let e = define(
        "tags::late.out",
        &["out", "x"],
        &[Tag::Out],
        |_: &mut Tensor, _: &Tensor| -> Result<()> { Ok(()) },
    )
    .unwrap_err();
    assert!(e.to_string().contains("`x` follows `out`"), "{e}");
}

#[test]
fn an_out_variant_is_found_or_registered() {
    let lib = Library::new("tags_out", Kind::Def).unwrap();
    let define = |schema: &str, tags: &[Tag]| lib.define(schema, tags).unwrap();
    let f = define("f(Tensor x, int n=2) -> (Tensor, Tensor)", &[]);
    define("f.one(Tensor x, int n=2, *, Tensor(a!) out) -> Tensor(a!)", &[Tag::Out]);
    define(
        "f.other(Tensor x, int n=3, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(a!), Tensor(b!))",
        &[Tag::Out],
    );
    assert_eq!(to_out_variant(&f).unwrap(), None);
    let out = define(
        "f.out(Tensor x, int n=2, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(a!), Tensor(b!))",
        &[Tag::Out],
    );
    assert_eq!(to_out_variant(&f).unwrap(), Some(out));
    assert!(to_out_variant(&out).is_err(), "it is no functional operator");
    define(
        "into(Tensor x, int n=2, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(a!), Tensor(b!))",
        &[Tag::Out],
    );
    let other = Library::new("tags_out", Kind::Impl).unwrap();
    other.register_out_variant("tags_out::f", "tags_out::into").unwrap();
    assert_eq!(to_out_variant(&f).unwrap().unwrap().name(), "tags_out::into");
    drop(other);
    assert_eq!(to_out_variant(&f).unwrap(), Some(out));
    assert!(
        register_out_variant("tags_out::f", "tags_out::f.one")
            .unwrap_err()
            .to_string()
            .contains("1 written, 2 returned")
    );
    assert!(
        register_out_variant("tags_out::f", "tags_out::f")
            .unwrap_err()
            .to_string()
            .contains("no tag `out`")
    );
    assert!(
        register_out_variant("tags_out::f", "tags_out::f.other")
            .unwrap_err()
            .to_string()
            .contains("`int n=3`")
    );
    register_out_variant("tags_out::f", "tags_out::into").unwrap();
    assert!(register_out_variant("tags_out::f", "tags_out::f.out").is_err());
}

#[test]
fn schemas_are_inferred_from_signatures() {
    let all = |_: &Tensor,
               _: &mut Tensor,
               _: &mut [Tensor],
               _: &mut [Option<Tensor>],
               _: Option<&mut Tensor>,
               _: f64|
     -> Result<(Tensor, i64)> { Err(Error::msg("never called")) };
    let schema = infer_schema("tags::all", &all, ["a", "b", "c", "d", "e", "f"]).unwrap();
    let expected = "tags::all(Tensor a, Tensor(a1!) b, Tensor(a2!)[] c, Tensor(a3!)?[] d, \
        Tensor(a4!)? e, float f) -> (Tensor, SymInt)";
    assert_eq!(schema.to_string().replace("Tensor?(a3!)[]", "Tensor(a3!)?[]"), expected);
    let read = |_: &Tensor, _: &[Option<Tensor>], n: i64| -> Result<i64> { Ok(n) };
    assert!(
        infer_schema("tags::dup", &read, ["a", "a", "b"]).is_err(),
        "two arguments of one name"
    );
    assert!(
        infer_schema("tags", &read, ["a", "b", "c"]).is_err()
            && infer_schema("tags::x", &read, ["a", "b c"]).is_err()
    );
    assert!(
        infer_schema("tags::x", &read, ["a", "b", "c", "d"]).is_err(),
        "more names than arguments"
    );
}

#[test]
fn mutated_arguments_may_be_unknown() {
    let kernel = |x: &Tensor, l: &[Option<Tensor>], n: i64| -> Result<()> {
        x.clone().write::<f32>()?.fill(n as f32);
        l.iter().flatten().try_for_each(|t| t.clone().write::<f32>().map(|mut w| w.fill(n as f32)))
    };
    let op = custom_op("tags::unknown")
        .arg_names(["x", "l", "n"])
        .mutates_unknown()
        .kernel(kernel)
        .register()
        .unwrap();
    assert_eq!(op.schema().unwrap().mutates().collect::<Vec<_>>(), [0, 1]);
    let (x, y) = (one(0.0), one(0.0));
    let (vx, vy) = (x.version(), y.version());
    op.call(args![&x, [None, Some(y.clone())], 3]).unwrap();
    assert_eq!((x.item::<f32>().unwrap(), y.item::<f32>().unwrap()), (3.0, 3.0));
    assert_eq!((x.version(), y.version()), (vx + 1, vy + 1));
    assert!(
        custom_op("tags::unknown2")
            .schema("(Tensor x) -> Tensor")
            .mutates_unknown()
            .register()
            .is_err()
    );
}

#[test]
fn a_return_aliases_one_argument_at_most() {
    for (schema, says) in [
        ("(Tensor(a) x, Tensor(b) y) -> Tensor(a|b)", "return 0 may alias `x` and `y`"),
        ("(Tensor(a) x, Tensor(a) y) -> Tensor(a)", "return 0 may alias `x` and `y`"),
        (
            "(Tensor(a!) x, Tensor z, Tensor(b)[] y) -> (Tensor, Tensor(*))",
            "return 1 may alias `x` and `y`",
        ),
    ] {
        let e = library::define("tags::of_two", schema).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Register(RegisterError::Invalid { .. })), "{e}");
        assert!(e.to_string().contains(says), "{e}");
        assert!(Op::find("tags::of_two").is_err(), "nothing is defined");
    }
    for (name, schema) in [
        ("tags::one_of_two", "(Tensor(a) x, Tensor(b) y) -> (Tensor(b), Tensor(a))"),
        ("tags::two_sets", "(Tensor(a|b) x, Tensor y) -> Tensor(a)"),
        ("tags::two_of_one_set", "(Tensor(a!) x, Tensor(a!) y) -> Tensor"),
    ] {
        library::define(name, schema).unwrap();
    }
}

#[test]
fn a_schema_has_the_names_of_its_kernel_in_their_order() {
    let define = |name: &str, schema: &str, names: &[&str]| {
        custom_op(name)
            .schema(schema)
            .arg_names(names.iter().copied())
            .kernel(|_: &Tensor, a: i64, b: i64| -> Result<i64> { Ok(a - b) })
            .register()
    };
    let schema = "(Tensor self, int left, int top=0) -> int";
    let e = define("tags::swapped", schema, &["x", "top", "left"]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Register(RegisterError::SchemaMismatch { .. })), "{e}");
    let e = e.to_string();
    assert!(e.contains("argument 1 is `left` in the schema, `top` in the kernel"), "{e}");
    assert!(e.contains("tags::swapped(Tensor x, SymInt top, SymInt left) -> SymInt"), "{e}");
    let e = define("tags::swapped", schema, &["x", "left", "top", "more"]).unwrap_err();
    assert!(e.to_string().contains("`more` is named, but the schema has only 3"), "{e}");
    // other types say more than other names
    let e = define("tags::swapped", "(Tensor x, str mode, int n) -> int", &["x", "a", "b"]);
    assert!(e.unwrap_err().to_string().contains("argument 1 `mode` is str in the schema"));
    let e = custom_op("tags::swapped").schema(schema).arg_names(["x", "top"]).register();
    assert!(e.unwrap_err().to_string().contains("argument 1 is `left` in the schema, `top`"));
    for (i, names) in [&["x", "left", "top"][..], &["self_", "_left", "_top"], &["x"], &[]]
        .into_iter()
        .enumerate()
    {
        define(&format!("tags::same_names{i}"), schema, names).unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Padding {
    Zeros,
    Reflect,
}

impl ConstArg for Padding {
    const NAME: &'static str = "Padding";
    fn to_text(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
    fn from_text(text: &str) -> Result<Padding> {
        match text {
            "zeros" => Ok(Padding::Zeros),
            "reflect" => Ok(Padding::Reflect),
            other => Err(Error::value(format!("there is no padding {other:?}"))),
        }
    }
}

#[test]
fn constants_of_the_users_own_types() {
    let kernel = |x: &Tensor, mode: Const<Padding>| -> Result<Tensor> {
        Ok(one(if *mode == Padding::Zeros { 0.0 } else { x.item::<f32>()? }))
    };
    let op = custom_op("tags::pad").arg_names(["x", "mode"]).kernel(kernel).register().unwrap();
    assert_eq!(op.schema().unwrap().to_string(), "tags::pad(Tensor x, str mode) -> Tensor");
    assert_eq!(first(&op.call(args![one(5.0), Const(Padding::Reflect)]).unwrap()), 5.0);
    assert_eq!(
        first(&op.call(args![one(5.0), "Padding(zeros)"]).unwrap()),
        0.0,
        "as a graph's text has it"
    );
    for bad in ["zeros", "Padding(none)", "Padding(zeros"] {
        let e = op.call(args![one(5.0), bad]).unwrap_err();
        assert!(e.to_string().contains("Padding") || e.to_string().contains("no padding"), "{e}");
    }
    assert!(op.call(args![one(5.0), 1]).is_err());
}
