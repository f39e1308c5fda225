use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;

fn parse(text: &str) -> Schema {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn name() -> OpName {
    "mylib::f".parse().unwrap()
}

#[test]
fn recorded_schemas_round_trip() {
    let recorded = include_str!("../../tests/data/aten_schemas.txt");
    let schemas: Vec<&str> = recorded.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(schemas.len(), 567);
    for text in schemas {
        let schema = parse(text);
        assert_eq!(schema.to_string(), text);
        assert_eq!(
            Schema::new(schema.name.clone(), schema.args.clone(), schema.returns.clone()).unwrap(),
            schema
        );
    }
}

#[test]
fn texts_print_in_canonical_form() {
    let table = [
        ("a::b()->()", "a::b() -> ()"),
        (
            "a::b.c ( Tensor  x ,*, int y = 3 ) -> ( Tensor )",
            "a::b.c(Tensor x, *, int y=3) -> Tensor",
        ),
        ("a::b(Tensor?(a!) x) -> ()", "a::b(Tensor(a!)? x) -> ()"),
        ("a::b(Tensor(a1!)?[] x) -> ()", "a::b(Tensor?(a1!)[] x) -> ()"),
        (
            "a::b(Tensor(a!)[]? x, Tensor(b)[][] y) -> ()",
            "a::b(Tensor(a!)[]? x, Tensor(b)[][] y) -> ()",
        ),
        ("a::b(Tensor(b|a! -> *) x) -> Tensor(*)[]", "a::b(Tensor(a|b! -> *) x) -> Tensor(*)[]"),
        ("a::b(Tensor(a -> a) x) -> Tensor(a)[]", "a::b(Tensor(a) x) -> Tensor(a)[]"),
        ("a::b(Tensor(a! -> a|b) x) -> Tensor(b) y", "a::b(Tensor(a! -> a|b) x) -> Tensor(b) y"),
        (
            "a::b(int[2] x=0, SymInt[2] y=1, int[1] z=2, int[2]? w=3) -> ()",
            "a::b(int[2] x=0, SymInt[2] y=[1, 1], int[1] z=[2], int[2]? w=[3, 3]) -> ()",
        ),
        (
            "a::b(int[] x=[1,1], int[2] y=[-1,1], int[2] z=[]) -> ()",
            "a::b(int[] x=[1, 1], int[2] y=[-1, 1], int[2] z=[]) -> ()",
        ),
        (
            "a::b(int x=Mean, ScalarType y=float32, ScalarType? z=long) -> ()",
            "a::b(int x=1, ScalarType y=6, ScalarType? z=4) -> ()",
        ),
        (
            "a::b(Layout x=strided, MemoryFormat? y=contiguous_format) -> ()",
            "a::b(Layout x=0, MemoryFormat? y=0) -> ()",
        ),
        (
            "a::b(Device x='cuda', Device? y=\"cpu:0\") -> ()",
            "a::b(Device x=\"cuda:0\", Device? y=\"cpu\") -> ()",
        ),
        (
            "a::b(float x=1, float y=1e-5, Scalar z=1.0, Scalar w=1, Scalar v=True) -> ()",
            "a::b(float x=1., float y=1.0000000000000001e-05, Scalar z=1., Scalar w=1, Scalar \
                v=True) -> ()",
        ),
        (
            "a::b(float x=-0.0, float y=0.1, float z=1e300, float w=-inf, float[] v=[nan]) -> ()",
            "a::b(float x=-0., float y=0.10000000000000001, float z=1.0000000000000001e+300, \
                float w=-inf, float[] v=[nan]) -> ()",
        ),
        (
            "a::b(str x='a\\n\\'\\001', str y=\"é\") -> ()",
            "a::b(str x=\"a\\n\\'\\001\", str y=\"é\") -> ()",
        ),
    ];
    for (text, canonical) in table {
        assert_eq!(parse(text).to_string(), canonical);
        assert_eq!(parse(canonical), parse(text));
    }
}

#[test]
fn signatures_and_namespaces() {
    assert_eq!(
        Schema::parse_signature(name(), "(Tensor x) -> Tensor").unwrap().to_string(),
        "mylib::f(Tensor x) -> Tensor"
    );
    assert_eq!(
        Schema::parse_in("my", "sin.out(Tensor x) -> Tensor").unwrap().to_string(),
        "my::sin.out(Tensor x) -> Tensor"
    );
    assert_eq!(
        Schema::parse_in("my", "my::sin(Tensor x) -> Tensor").unwrap().to_string(),
        "my::sin(Tensor x) -> Tensor"
    );
    assert_eq!(
        "aten::mm.default".parse::<OpName>().unwrap(),
        "aten::mm".parse::<OpName>().unwrap()
    );
    assert_eq!("aten::add.Tensor".parse::<OpName>().unwrap().to_string(), "aten::add.Tensor");
}

#[test]
fn queries() {
    let schema = parse("a::b(Tensor(a) x, Tensor(b!) y, int n=1) -> (Tensor(a), Tensor(b!), int)");
    assert_eq!(schema.mutates().collect::<Vec<_>>(), [1]);
    assert!(schema.is_mutable() && schema.is_view());
    assert_eq!(
        (0..3).map(|r| schema.aliased_args(r).collect::<Vec<_>>()).collect::<Vec<_>>(),
        [vec![0], vec![1], vec![]]
    );
    assert_eq!((schema.arg_index("n"), schema.arg_index("m")), (Some(2), None));
    assert!(!schema.returns_tensor_only());
    let inplace = parse("aten::relu_(Tensor(a!) self) -> Tensor(a!)");
    assert!(inplace.is_mutable() && !inplace.is_view() && inplace.returns_tensor_only());
    assert!(!parse("a::b(Tensor(a!) x) -> ()").returns_tensor_only());
    let split = parse("a::split(Tensor(a -> *) self, int n) -> Tensor(a)[]");
    assert!(split.is_view() && !split.is_mutable());
    // Exported files store this number, so it must not change.
    assert_eq!(inplace.hash64(), 3_908_592_787_740_567_266);
}

#[test]
fn built_schemas_follow_the_same_rules() {
    let arg = |name: &str, kwarg_only| Arg {
        name: name.to_owned(),
        ty: Type::Int,
        alias: None,
        default: None,
        kwarg_only,
    };
    assert!(Schema::new(name(), vec![arg("x", false), arg("y", true)], vec![]).is_ok());
    let error = Schema::new(name(), vec![arg("x", true), arg("y", false)], vec![]).unwrap_err();
    assert_eq!(*error.kind(), SchemaErrorKind::NotCanonical);
    let error = Schema::new(name(), vec![arg("x", false), arg("x", false)], vec![]).unwrap_err();
    assert_eq!(
        *error.kind(),
        SchemaErrorKind::Duplicate { what: "argument", name: "x".to_owned() }
    );
    let mut odd = arg("x", false);
    odd.default = Some(Default::Str("s".to_owned()));
    assert!(Schema::new(name(), vec![odd], vec![]).is_err());
}

#[test]
fn error_texts() {
    let mut texts = String::new();
    let wrong_names = [
        "sin",
        "a::b::c",
        "",
        "a::",
        "::b",
        "my-lib::sin",
        "a::b.c.d",
        "a::b(Tensor x) -> Tensor",
        "a::b é",
    ];
    for text in wrong_names {
        writeln!(texts, "{}\n", text.parse::<OpName>().unwrap_err()).unwrap();
    }
    writeln!(
        texts,
        "{}\n",
        Schema::parse_signature(name(), "bar(Tensor x) -> Tensor").unwrap_err()
    )
    .unwrap();
    writeln!(texts, "{}\n", Schema::parse_in("my", "your::sin(Tensor x) -> Tensor").unwrap_err())
        .unwrap();
    let wrong_schemas = [
        "sin(Tensor x) -> Tensor",
        "a::b-c(Tensor x) -> Tensor",
        "a::b.default(Tensor x) -> Tensor",
        "a::b",
        "a::b(Tensor x)",
        "a::b(Tensor x -> Tensor",
        "a::b(Tensor x",
        "a::b(Tensor x) -> (Tensor, Tensor",
        "a::b(Tensor x) -> Tensor) and more",
        "a::b(Tensr x) -> Tensor",
        "a::b(x) -> Tensor",
        "a::b(int64_t x) -> Tensor",
        "a::b(double x) -> Tensor",
        "a::b(tensor x) -> Tensor",
        "a::b(Quaternion x) -> Tensor",
        "a::b(Dict(str, int) x) -> Tensor",
        "a::b(Tensor) -> Tensor",
        "a::b(x: Tensor) -> Tensor",
        "a::b(Tensor x?) -> Tensor",
        "a::b(Tensor x, ...) -> Tensor",
        "a::b(Tensor x, *) -> Tensor",
        "a::b(Tensor x, *, int y, *, int z) -> Tensor",
        "a::b(Tensor?? x) -> Tensor",
        "a::b(Tensor[][][][][][][][][] x) -> Tensor",
        "a::b(int[4000000000] x=0) -> Tensor",
        "a::b(int[2 x) -> Tensor",
        "a::b(Tensor! x) -> ()",
        "a::b(Tensor(!) x) -> ()",
        "a::b(Tensor(a! x) -> ()",
        "a::b(Tensor[](a!) x) -> ()",
        "a::b(int(a!) x) -> ()",
        "a::b(Tensor x) -> Tensor(a)",
        "a::b(Tensor(a) x) -> Tensor(a!)",
        "a::b(Tensor x, int x) -> Tensor",
        "a::b(Tensor x) -> (Tensor y, Tensor y)",
        "a::b(Tensor x, int y=1, int z) -> Tensor",
        "a::b(int x=1.5) -> Tensor",
        "a::b(int x=-) -> Tensor",
        "a::b(int x=) -> Tensor",
        "a::b(bool x=true) -> Tensor",
        "a::b(float x='1') -> Tensor",
        "a::b(int[] x=1) -> Tensor",
        "a::b(int[] x=[1, 2) -> Tensor",
        "a::b(int[] x=[1, 2.5]) -> Tensor",
        "a::b(Tensor x=None) -> Tensor",
        "a::b(Tensor x=1) -> Tensor",
        "a::b(Generator? x=1) -> Tensor",
        "a::b(ScalarType x=float33) -> Tensor",
        "a::b(ScalarType x=8) -> Tensor",
        "a::b(Device x=cpu) -> Tensor",
        "a::b(Device x=\"gpu\") -> Tensor",
        "a::b(str x=\"abc) -> Tensor",
        "a::b(Tensor x) -> Tensor; drop",
        "a::a_very_long_name(Tensor first_argument, Tensor second_argument, Tensor \
            third_argument, Tensr fourth_argument, Tensor fifth_argument, Tensor last) -> Tensor",
    ];
    for text in wrong_schemas {
        writeln!(texts, "{}\n", text.parse::<Schema>().unwrap_err()).unwrap();
    }
    let too_long = format!("a::b(Tensor x) -> Tensor{}", " ".repeat(1 << 16));
    writeln!(texts, "{}", too_long.parse::<Schema>().unwrap_err()).unwrap();
    insta::assert_snapshot!(texts);
}

fn types() -> impl Strategy<Value = Type> {
    let leaf = proptest::sample::select(Type::LEAVES.to_vec());
    leaf.prop_recursive(3, 4, 1, |inner| {
        let optional = inner
            .clone()
            .prop_map(|t| if t.is_optional() { t } else { Type::Optional(Box::new(t)) });
        prop_oneof![
            optional,
            (inner, proptest::option::of(0u32..5)).prop_map(|(t, n)| Type::List(Box::new(t), n))
        ]
    })
}

fn default_of(ty: &Type) -> BoxedStrategy<Default> {
    match ty {
        Type::Int | Type::SymInt => any::<i64>().prop_map(Default::Int).boxed(),
        Type::Float => any::<f64>()
            .prop_filter("all NaNs print alike", |x| !x.is_nan())
            .prop_map(Default::Float)
            .boxed(),
        Type::Bool => any::<bool>().prop_map(Default::Bool).boxed(),
        Type::Str => any::<String>().prop_map(Default::Str).boxed(),
        Type::Scalar => {
            prop_oneof![default_of(&Type::Int), default_of(&Type::Float), default_of(&Type::Bool)]
                .boxed()
        }
        Type::ScalarType => {
            proptest::sample::select(crate::DType::ALL.to_vec()).prop_map(Default::DType).boxed()
        }
        Type::Optional(inner) if matches!(**inner, Type::Tensor) => Just(Default::None).boxed(),
        Type::Optional(inner) => prop_oneof![Just(Default::None), default_of(inner)].boxed(),
        Type::List(inner, _) if !matches!(**inner, Type::Tensor) => {
            proptest::collection::vec(default_of(inner), 0..4).prop_map(Default::List).boxed()
        }
        _ => Just(Default::List(vec![])).boxed(),
    }
}

fn has_values(ty: &Type) -> bool {
    !matches!(
        ty.leaf(),
        Type::Tensor
            | Type::Layout
            | Type::Device
            | Type::MemoryFormat
            | Type::Dimname
            | Type::Generator
            | Type::Stream
    ) && !matches!(ty.leaf(), Type::Storage | Type::QScheme | Type::Any)
}

fn aliases() -> impl Strategy<Value = Alias> {
    let sets = || proptest::collection::btree_set("[a-c]".prop_map(AliasSet::Named), 1..3);
    let wild = Just(BTreeSet::from([AliasSet::Wildcard]));
    (prop_oneof![sets(), wild.clone()], any::<bool>(), prop_oneof![sets(), wild])
        .prop_map(|(before, write, after)| Alias { before, write, after })
}

fn args() -> impl Strategy<Value = Arg> {
    types().prop_flat_map(|ty| {
        let default = if has_values(&ty) {
            proptest::option::of(default_of(&ty)).boxed()
        } else {
            Just(None).boxed()
        };
        let alias = if ty.is_tensors() {
            proptest::option::of(aliases()).boxed()
        } else {
            Just(None).boxed()
        };
        (Just(ty), default, alias).prop_map(|(ty, default, alias)| Arg {
            name: String::new(),
            ty,
            alias,
            default,
            kwarg_only: false,
        })
    })
}

proptest! {
    #[test]
    fn printed_schemas_parse_to_themselves(
        mut args in proptest::collection::vec(args(), 0..5),
        positional in 0usize..5,
        returns in types(),
    ) {
        for (i, arg) in args.iter_mut().enumerate() {
            arg.name = format!("x{i}");
            arg.kwarg_only = i >= positional;
        }
        let defaults = args.iter().filter(|a| !a.kwarg_only).any(|a| a.default.is_some());
        if defaults {
            args.iter_mut().for_each(|a| a.kwarg_only = true);
        }
        let returns = vec![Ret { name: None, ty: returns, alias: None }];
        let schema = Schema { name: name(), args, returns };
        let text = schema.to_string();
        prop_assert_eq!(&parse(&text), &schema, "{}", text);
        prop_assert_eq!(parse(&text).to_string(), text);
    }

    #[test]
    fn hostile_texts_give_errors(text in "(a::b\\()?([ \
        -~é]|Tensor|int|\\[|\\]|->|\\(a!\\)|=|,|\\?|'){0,30}") {
        let errors = [
            text.parse::<Schema>().err(),
            text.parse::<OpName>().err(),
            Schema::parse_signature(name(), &text).err(),
        ];
        for error in errors {
            prop_assert!(error.is_none_or(|e| !e.to_string().is_empty()));
        }
    }
}
