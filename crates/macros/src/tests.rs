//! Every message, by a part of its text. Where it points to is in the facade's `tests/ui`.

use crate::{custom_op, module, register, tree};
use proc_macro2::TokenStream;
use syn::Result;

/// All messages of an expansion, one per line.
fn errors(result: Result<TokenStream>) -> String {
    match result {
        Ok(_) => String::new(),
        Err(all) => all.into_iter().map(|e| format!("{e}\n")).collect(),
    }
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("the test's own tokens")
}

fn op(args: &str, item: &str) -> String {
    errors(custom_op::expand(tokens(args), tokens(item)))
}

const GOOD: &str = "fn f(x: &Tensor) -> Result<Tensor> { x.ok().cloned() }";

#[test]
fn names_and_options() {
    for (args, part) in [
        ("", "expected the operator's name first"),
        ("name = \"a::b\"", "expected the operator's name first"),
        (
            "\"sin\"",
            "the operator name `sin` has no namespace; write `namespace::sin`, such as \
                `mylib::sin`",
        ),
        ("\"a::b::c\"", "the operator name `a::b::c` has 2 `::`, expected one"),
        ("\"::b\"", "has an empty namespace"),
        ("\"a::\"", "has an empty name"),
        ("\"a::b.\"", "has an empty overload"),
        ("\"a::my-op\"", "the name `my-op` of the operator name `a::my-op` has the character '-'"),
        ("\"a::2d\"", "starts with a digit"),
        (
            "\"a::b.c.d\"",
            "the overload `c.d` of the operator name `a::b.c.d` has the character '.'",
        ),
        ("\"a::b\" device_types(\"cpu\")", "expected `,`"),
        (
            "\"a::b\", devices(\"cpu\")",
            "unknown option `devices`; expected one of `device_types`, `schema`, `effect`, `tags`, \
                `mutates_unknown`, `crate`",
        ),
        ("\"a::b\", 3", "expected an option: `device_types`"),
        ("\"a::b\", schema(\"() -> ()\"), schema(\"() -> ()\")", "duplicate option `schema`"),
        (
            "\"a::b\", device_types = \"cpu\"",
            "expected strings in parentheses, as in `device_types(\"cpu\", \"cuda\")`",
        ),
        ("\"a::b\", device_types()", "expected strings in parentheses"),
        ("\"a::b\", device_types(cpu)", "expected strings in parentheses"),
        ("\"a::b\", effect(\"ordered\", \"ordered\")", "`effect` takes one string"),
        (
            "\"a::b\", tags(\"inplace\")",
            "expected names in parentheses, as in `tags(Inplace, Pointwise)`",
        ),
        ("\"a::b\", tags = Inplace", "expected names in parentheses"),
        ("\"a::b\", effect(at(\"wire\"))", "unknown effect `at`; expected `on"),
        ("\"a::b\", effect(on())", "expected strings in parentheses"),
        ("\"a::b\", effect(on(\"a\", \"b\"))", "`on` takes one string"),
        ("\"a::b\", effect(on(\"wire\"))", ""),
        ("\"a::b\", effect(\"io\")", "unknown effect `io`; expected `ordered`"),
        ("\"a::b\", crate(a)", "expected a path, as in `crate = ::maquette`"),
    ] {
        let found = op(args, GOOD);
        assert!(found.contains(part), "{args}: expected {part:?}, found {found:?}");
    }
    for args in [
        "\"a::b\"",
        "\"a::b.Tensor\",",
        "\"a::b\", device_types(\"cpu\", \"cuda\",), schema(\"\"), effect(\"ordered\"), crate = \
            ::m::n",
        "\"a::b\", tags(Inplace, Pointwise,), mutates_unknown",
    ] {
        assert_eq!(op(args, GOOD), "", "{args}");
    }
}

#[test]
fn functions() {
    for (item, part) in [
        ("struct S;", "applies to a function with a body"),
        ("mod m {}", "applies to a function with a body"),
        ("fn f(&self) -> Result<Tensor> {}", "cannot take `self`"),
        ("async fn f() -> Result<Tensor> {}", "cannot be `async`"),
        ("unsafe fn f() -> Result<Tensor> {}", "cannot be `unsafe`"),
        ("const fn f() -> Result<Tensor> {}", "cannot be `const`"),
        ("extern \"C\" fn f() -> Result<Tensor> {}", "cannot be `extern`"),
        ("fn f<T>(x: T) -> Result<Tensor> {}", "cannot be generic"),
        ("fn f<'a>(x: &'a Tensor) -> Result<Tensor> {}", "cannot be generic"),
        ("fn f(x: &Tensor) -> Result<Tensor> where i64: Copy {}", "cannot have a `where` clause"),
        ("fn f((x, y): &Tensor) -> Result<Tensor> {}", "an argument needs a plain name"),
        ("fn f(_: &Tensor) -> Result<Tensor> {}", "an argument needs a plain name"),
        ("fn f(x: &Tensor) {}", "write its return type"),
        ("fn f(x: &Tensor) -> Tensor {}", "return `Result<Tensor>`"),
        ("fn f(x: &Tensor) -> (Tensor, Option<i64>) {}", "return `Result<(Tensor, Option<i64>)>`"),
        ("fn f(x: &Tensor) -> Result {}", "`Result` needs a type argument"),
    ] {
        let found = op("\"a::b\"", item);
        assert!(found.contains(part), "{item}: expected {part:?}, found {found:?}");
    }
    let all = op("\"ab\"", "fn f((x, y): Vec<Tensor>, z: String) -> Tensor {}");
    assert_eq!(all.lines().count(), 5 + 1, "every mistake is reported at once: {all}");
}

#[test]
fn argument_types() {
    for (ty, hint) in [
        ("Tensor", "use `&Tensor`, or `&mut Tensor` for one that the operator mutates"),
        ("Vec<Tensor>", "use `&[Tensor]`"),
        ("&Vec<i64>", "use `&[i64]`"),
        ("&mut Vec<Tensor>", "use `&mut [Tensor]`"),
        ("String", "use `&str`"),
        ("&String", "use `&str`"),
        ("str", "use `&str`"),
        ("(Tensor, i64)", "make each element a separate argument"),
        ("()", "remove the argument"),
        ("usize", "use `i64`"),
        ("&f32", "use `f64`"),
        ("&i64", "use `i64`"),
        ("&&Tensor", "use `&Tensor`"),
        ("&[&Tensor]", "use `&[Tensor]`"),
        ("&[f32]", "use `&[f64]`"),
        ("&[usize]", "use `&[i64]`"),
        ("[i64; 2]", "use `&[i64]`"),
        ("&[i64; 2]", "use `&[i64]`"),
        ("&mut [i64]", "only tensors can be mutated; use `&[i64]`"),
        ("&mut str", "only tensors can be mutated"),
        ("Option<Tensor>", "use `Option<&Tensor>`"),
        ("&Option<Tensor>", "use `Option<&Tensor>`"),
        ("&mut Option<Tensor>", "use `Option<&mut Tensor>`"),
        ("Option<Vec<i64>>", "use `Option<&[i64]>`"),
        ("Option<usize>", "use `Option<i64>`"),
        ("Option<Option<i64>>", "cannot be nested"),
        ("Option<&mut [Tensor]>", "use `&mut [Tensor]`, which may be empty"),
        ("&[Device]", "is not an argument type"),
        ("HashMap<i64, Tensor>", "is not an argument type"),
        ("impl Fn()", "plain data"),
        ("&'static str", "remove `'static`"),
        ("*const f32", "is not an argument type"),
    ] {
        let found = op("\"a::b\"", &format!("fn f(x: {ty}) -> Result<Tensor> {{}}"));
        assert!(found.contains(hint), "{ty}: expected {hint:?}, found {found:?}");
    }
    for ty in [
        "&Tensor",
        "&mut maquette::Tensor",
        "&[Tensor]",
        "&mut [Tensor]",
        "&[Option<Tensor>]",
        "&mut [Option<Tensor>]",
        "Const<Mode>",
        "Option<&Tensor>",
        "Option<&mut Tensor>",
        "Option<&[i64]>",
        "Option<&str>",
        "&'_ [SymInt]",
        "(i64)",
        "Option<DType>",
        "&[Scalar]",
        "std::option::Option<f64>",
        "Alias",
        "&Alias",
    ] {
        assert_eq!(op("\"a::b\"", &format!("fn f(x: {ty}) -> Result<Tensor> {{}}")), "", "{ty}");
    }
}

#[test]
fn registrations() {
    let fake = "fn g(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {}";
    let (kernel, fake_kernel, autograd) = (register::kernel, register::fake, register::autograd);
    let backward = "fn g(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {}";
    type Attribute = fn(TokenStream, TokenStream) -> Result<TokenStream>;
    for (attribute, args, item, part) in [
        (kernel as Attribute, "f, \"cuda\"", GOOD, ""),
        (kernel, "crate::m::f, \"cuda\", crate = m,", GOOD, ""),
        (
            kernel,
            "",
            GOOD,
            "expected the path of the function with `#[custom_op]`, as in \
                `#[register_kernel(my_op, \"cuda\")]`",
        ),
        (kernel, "f", GOOD, "expected the device type"),
        (kernel, "f, cuda", GOOD, "expected the device type"),
        (kernel, "\"a::b\", \"cuda\"", GOOD, "`Op::find(name)?.register_kernel(…)`"),
        (
            kernel,
            "f, \"cuda\", schema(\"\")",
            GOOD,
            "unknown option `schema`; expected one of `crate`",
        ),
        (kernel, "f, \"cuda\"", "fn g(x: &Tensor) -> Tensor {}", "return `Result<Tensor>`"),
        (fake_kernel, "f", fake, ""),
        (autograd, "f", backward, ""),
        (autograd, "f, setup_context = m::setup, crate = m", backward, ""),
        (autograd, "f, setup = m", backward, "expected one of `setup_context`, `crate`"),
        (
            autograd,
            "f, setup_context(m)",
            backward,
            "expected a path, as in `setup_context = setup`",
        ),
        (autograd, "f", GOOD, "a derivative takes `ctx: &AutogradCtx, grads: &[Tensor]`"),
        (fake_kernel, "f, \"cuda\"", fake, "expected an option"),
        (fake_kernel, "f", GOOD, "takes `cx: &FakeCtx` before the operator's arguments"),
        (fake_kernel, "f", "fn g() -> Result<Tensor> {}", "takes `cx: &FakeCtx`"),
        (fake_kernel, "f", "fn g<T>(cx: &FakeCtx) -> Result<Tensor> {}", "cannot be generic"),
        (fake_kernel, "f", "struct S;", "`#[register_fake]` applies to a function"),
    ] {
        let found = errors(attribute(tokens(args), tokens(item)));
        assert!(
            found.contains(part) && found.is_empty() == part.is_empty(),
            "{args} {item}: expected {part:?}, found {found:?}"
        );
    }
}

#[test]
fn trees() {
    for (item, part) in [
        ("struct S { a: Tensor, r#type: i64 }", ""),
        ("struct S<T: Clone, const N: usize>(Vec<T>) where T: Send;", ""),
        ("#[tree(crate = a::b)] struct S;", ""),
        ("enum E { A(Tensor) }", "is for structs; this is an enum"),
        ("union U { a: i64 }", "is for structs; this is a union"),
        ("#[tree(skip)] struct S;", "unknown option `skip`; expected one of `crate`"),
        ("#[tree(crate = a)] #[tree(crate = b)] struct S;", "duplicate option `crate`"),
        ("#[tree(crate = a, crate = b)] struct S;", "expected the end of the options"),
    ] {
        let found = errors(tree::expand(tokens(item)));
        assert!(
            found.contains(part) && found.is_empty() == part.is_empty(),
            "{item}: expected {part:?}, found {found:?}"
        );
    }
}

#[test]
fn modules() {
    for (item, part) in [
        ("struct S { w: Tensor, #[buffer] mean: Tensor, #[module(skip)] config: Config }", ""),
        ("#[module(Tensor -> Tensor)] struct S;", ""),
        (
            "#[module((Tensor, Tensor) -> Result<Vec<Tensor>>, crate = a::b)] struct S<'a, T>(&'a \
                T, [T; 2]);",
            "",
        ),
        ("#[module(crate::A -> crate::B,)] struct S;", ""),
        ("enum E { A(Tensor) }", "is for structs; this is an enum"),
        ("union U { a: i64 }", "is for structs; this is a union"),
        ("#[module(Tensor)] struct S;", "expected the argument and return types of `forward`"),
        ("#[module(Tensor -> Tensor, A -> B)] struct S;", "duplicate argument and return types"),
        ("#[module(crate = a)] #[module(crate = b)] struct S;", "duplicate option `crate`"),
        ("#[buffer] struct S;", "applies to a field"),
        ("struct S { #[buffer(a)] x: Tensor }", "takes no arguments"),
        (
            "struct S { #[module(hidden)] x: Tensor }",
            "unknown option `hidden`; expected one of `skip`",
        ),
        ("struct S { #[buffer] #[module(skip)] x: Tensor }", "either a buffer or skipped"),
    ] {
        let found = errors(module::expand(tokens(item)));
        assert!(
            found.contains(part) && found.is_empty() == part.is_empty(),
            "{item}: expected {part:?}, found {found:?}"
        );
    }
    let all = errors(module::expand(tokens(
        "struct S { #[buffer(a)] x: Tensor, #[module(b)] y: Tensor }",
    )));
    assert_eq!(all.lines().count(), 2, "{all}");
}
