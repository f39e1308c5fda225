//! What a wrong registration or call says, reviewed like code: one snapshot a family, to be read from top to bottom.

use insta::assert_snapshot;
use maquette_ops::library::{self, Kind, Library, Tag, get_kernel, register_out_variant};
use maquette_ops::{self as ops, FakeCtx, Op, Result, Tensor, args, kwargs};
use std::fmt::Write;

fn id(x: &Tensor) -> Result<Tensor> {
    Tensor::from(x.to_vec::<f32>()?).ok().cloned()
}

fn id_fake(_: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

fn x() -> Tensor {
    Tensor::from([1.0f32])
}

type Cases = Vec<(&'static str, Box<dyn FnOnce() -> Result<()>>)>;

macro_rules! cases {
    ($($name:literal => $run:expr,)*) => { vec![$(($name, Box::new(|| -> Result<()> { $run.map(drop) }) as _)),*] };
}

fn fragment(namespace: &str) -> Library {
    Library::new(namespace, Kind::Fragment).unwrap()
}

fn definitions() -> Cases {
    cases![
        "a reserved namespace" => Library::new("prim", Kind::Def),
        "a namespace that is no name" => Library::new("my-lib", Kind::Def),
        "the builtin operators' namespace" => Library::new("aten", Kind::Def),
        "two libraries that define one namespace" => {
            let _first = Library::new("err_two", Kind::Def)?;
            Library::new("err_two", Kind::Def)
        },
        "a definition in a library of kernels" => Library::new("err_kind", Kind::Impl)?.define("f(Tensor x) -> Tensor", &[]),
        "a definition in another namespace" => fragment("err_ns").define("elsewhere::f(Tensor x) -> Tensor", &[]),
        "a definition of what exists" => {
            let lib = fragment("err_dup");
            lib.define("f(Tensor x) -> Tensor", &[])?;
            library::define("err_dup::f", "(Tensor x) -> Tensor")
        },
        "a definition of a builtin operator" => library::define("aten::relu", "(Tensor x) -> Tensor"),
        "a builtin operator replaced" => ops::custom_op("aten::relu").kernel(id).replace().register(),
        "a name with two `::`" => library::define("err::a::b", "(Tensor x) -> Tensor"),
        "a schema with its name" => library::define("err::named", "named(Tensor x) -> Tensor"),
        "neither a schema nor a kernel" => ops::custom_op("err::nothing").register(),
        "nothing that shows that it ran" => fragment("err_purpose").define("f(Tensor x) -> ()", &[]),
        "two arguments of one name" => ops::custom_op("err::dup_arg").arg_names(["a", "a"]).kernel(|_: &Tensor, n: i64| -> Result<i64> { Ok(n) }).register(),
        "more names than arguments" => ops::custom_op("err::names").arg_names(["a", "b"]).kernel(id).register(),
        "unknown mutation of a written schema" => ops::custom_op("err::unknown").schema("(Tensor x) -> Tensor").mutates_unknown().register(),
        "a default without its brackets" => library::define("err::list", "(Tensor x, int[] n=1) -> Tensor"),
        "an alias of nothing" => library::define("err::alias", "(Tensor x) -> Tensor(a)"),
    ]
}

fn tags() -> Cases {
    let define = |schema: &'static str, tags: &'static [Tag]| move || fragment("err_tags").define(schema, tags).map(drop);
    let mut all: Cases = Vec::new();
    let mut add = |name, run: Box<dyn FnOnce() -> Result<()>>| all.push((name, run));
    add("inplace and out", Box::new(define("f(Tensor(a!) x) -> Tensor(a!)", &[Tag::Inplace, Tag::Out])));
    add("inplace that mutates nothing", Box::new(define("f(Tensor x) -> Tensor", &[Tag::Inplace])));
    add("inplace that mutates two", Box::new(define("f(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)", &[Tag::Inplace])));
    add("inplace that returns another", Box::new(define("f(Tensor(a!) x) -> Tensor", &[Tag::Inplace])));
    add("out that is positional", Box::new(define("f(Tensor x, Tensor(a!) out) -> Tensor(a!)", &[Tag::Out])));
    add("out that mutates nothing", Box::new(define("f(Tensor x) -> Tensor", &[Tag::Out])));
    add("out in another order", Box::new(define("f(*, Tensor(a!) a, Tensor(b!) b) -> (Tensor(b!), Tensor(a!))", &[Tag::Out])));
    add("out without all of them", Box::new(define("f(*, Tensor(a!) a, Tensor(b!) b) -> Tensor(a!)", &[Tag::Out])));
    add("maybe mutating", Box::new(define("f(Tensor x) -> Tensor", &[Tag::MaybeAliasingOrMutating])));
    add(
        "an out argument before others",
        Box::new(|| {
            let kernel = |_: &mut Tensor, _: &Tensor| -> Result<()> { Ok(()) };
            ops::custom_op("err_tags::late").arg_names(["out", "x"]).tags([Tag::Out]).kernel(kernel).register().map(drop)
        }),
    );
    add(
        "a fake kernel of an inplace operator",
        Box::new(|| {
            let lib = fragment("err_tags");
            lib.define("g(Tensor(a!) x) -> Tensor(a!)", &[Tag::Inplace])?;
            lib.register_fake("g", |_: &FakeCtx, x: &mut Tensor| -> Result<Tensor> { Ok(x.clone()) })
        }),
    );
    add(
        "an inplace kernel that returns a copy",
        Box::new(|| {
            let kernel = |x: &mut Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) };
            ops::custom_op("err_tags::copy_").arg_names(["x"]).tags([Tag::Inplace]).kernel(kernel).register()?.call(args![x()]).map(drop)
        }),
    );
    add(
        "an out variant of other arguments",
        Box::new(|| {
            let lib = fragment("err_tags");
            lib.define("h(Tensor x, int n) -> Tensor", &[])?;
            lib.define("h.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", &[Tag::Out])?;
            register_out_variant("err_tags::h", "err_tags::h.out")
        }),
    );
    all
}

fn kernels() -> Cases {
    library::define("err_kernel::f", "(Tensor x) -> Tensor").unwrap();
    library::define("err_kernel::n", "(int n) -> int").unwrap();
    cases![
        "an unknown device" => library::impl_("err_kernel::f", "gpu", id),
        "a key of autograd" => library::impl_("err_kernel::f", "AutogradCPU", id),
        "another namespace" => fragment("err_other").impl_("err_kernel::f", "cpu", id),
        "a kernel for nobody's device" => library::impl_("err_kernel::n", "cuda", |n: i64| -> Result<i64> { Ok(n) }),
        "another signature" => library::impl_("err_kernel::f", "cpu", |x: &Tensor, _: i64| -> Result<Tensor> { id(x) }),
        "another signature of a fake kernel" => library::register_fake("err_kernel::f", |_: &FakeCtx, _: &mut Tensor| -> Result<i64> { Ok(0) }),
        "one place filled twice" => {
            let lib = Library::new("err_kernel", Kind::Impl)?;
            lib.impl_("f", "cpu", id)?;
            lib.impl_("f", "cpu", id)
        },
        "two fake kernels" => {
            let lib = Library::new("err_kernel", Kind::Impl)?;
            lib.register_fake("f", id_fake)?;
            lib.impl_("f", "meta", id)
        },
        "a kernel that came before its schema" => {
            let lib = Library::new("err_early", Kind::Impl)?;
            lib.impl_("f", "cpu", id)?;
            library::define("err_early::f", "(Tensor x, int n) -> Tensor")
        },
        "a call of what only has kernels" => {
            let lib = Library::new("err_undefined", Kind::Impl)?;
            lib.impl_("f", "cpu", id)?;
            ops::call("err_undefined::f", args![x()])
        },
        "no kernel to get" => get_kernel("err_kernel::f", "cuda"),
        "a kernel that is gone" => {
            let lib = Library::new("err_kernel", Kind::Impl)?;
            lib.impl_("f", "cpu", id)?;
            let kernel = get_kernel("err_kernel::f", "cpu")?;
            drop(lib);
            kernel.call(args![x()])
        },
        "a kernel to disable that is not there" => Op::find("err_kernel::f")?.set_kernel_enabled("cpu", false),
        "the default kernel disabled" => Op::find("err_kernel::f")?.set_kernel_enabled("default", false),
        "a call without any kernel" => ops::call("err_kernel::f", args![x()]),
    ]
}

fn calls() -> Cases {
    for schema in ["f(Tensor x, int n=1) -> Tensor", "f.two(Tensor x, Tensor y, *, float alpha=1.) -> Tensor"] {
        let lib = fragment("err_call");
        lib.define(schema, &[]).unwrap();
        lib.leak();
    }
    cases![
        "an unknown keyword" => ops::call_kw("err_call::f.two", args![x(), x()], kwargs![alhpa = 2.0]),
        "an argument given twice" => ops::call_kw("err_call::f.two", args![x(), x()], kwargs![y = x()]),
        "an argument that is missing" => ops::call_kw("err_call::f.two", args![x()], kwargs![alpha = 2.0]),
        "no overload that fits" => ops::call("err_call::f", args![x(), "two"]),
        "a float for an integer" => ops::call("err_call::f.default", args![x(), 2.0]),
        "an overload that does not exist" => ops::call("err_call::f.three", args![x()]),
    ]
}

/// The text without the numbers of this file's lines, which change, and the folders before it.
fn without_lines(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("registration_errors.rs:") {
        let folders = before.rfind(|c: char| c.is_whitespace() || c == '(').map_or(0, |i| i + 1);
        out += &before[..folders];
        out += "FILE:LINE";
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

fn texts(cases: Cases) -> String {
    let mut out = String::new();
    for (name, run) in cases {
        let text = run().map_or_else(|e| e.to_string(), |()| panic!("{name} must be an error"));
        writeln!(out, "## {name}\n\n{}\n", without_lines(&text)).unwrap();
    }
    out
}

#[test]
fn definitions_are_refused_in_words() {
    assert_snapshot!("definitions", texts(definitions()));
}

#[test]
fn tags_are_refused_in_words() {
    assert_snapshot!("tags", texts(tags()));
}

#[test]
fn kernels_are_refused_in_words() {
    assert_snapshot!("kernels", texts(kernels()));
}

#[test]
fn calls_are_refused_in_words() {
    assert_snapshot!("calls", texts(calls()));
}
