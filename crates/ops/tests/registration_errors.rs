//! What a wrong registration or call says, reviewed like code: one snapshot a family, to be read
//! from top to bottom.

use insta::assert_snapshot;
use maquette_aten as _;
use maquette_ops::library::{self, Kind, Library, Tag, get_kernel, register_out_variant};
use maquette_ops::{self as ops, FakeCtx, Op, Result, Tensor, args};
use std::fmt::Write;

fn id(x: &Tensor) -> Result<Tensor> {
    Tensor::from(x.to_vec::<f32>()?).ok().cloned()
}

fn x() -> Tensor {
    Tensor::from([1.0f32])
}

type Cases = Vec<(&'static str, Box<dyn FnOnce() -> Result<()>>)>;

macro_rules! cases {
    ($($name:literal => $run:expr,)*) => {
        vec![$(($name, Box::new(|| -> Result<()> { $run.map(drop) }) as _)),*]
    };
}

fn fragment(namespace: &str) -> Library {
    Library::new(namespace, Kind::Fragment).unwrap()
}

fn definitions() -> Cases {
    cases![
        "a namespace that is no name" => Library::new("my-lib", Kind::Def),
        "the builtin operators' namespace" => Library::new("aten", Kind::Def),
        "a definition in a library of \
            kernels" => Library::new("err_kind", Kind::Impl)?.define("f(Tensor x) -> Tensor", &[]),
        "a definition in another \
            namespace" => fragment("err_ns").define("elsewhere::f(Tensor x) -> Tensor", &[]),
        "a definition of a builtin \
            operator" => library::define("aten::relu", "(Tensor x) -> Tensor"),
        "a builtin operator \
            replaced" => ops::custom_op("aten::relu").kernel(id).replace().register(),
        "neither a schema nor a kernel" => ops::custom_op("err::nothing").register(),
        "two arguments of one \
            name" => {
            let kernel = |_: &Tensor, n: i64| -> Result<i64> { Ok(n) };
            ops::custom_op("err::dup_arg").arg_names(["a", "a"]).kernel(kernel).register()
        },
        "unknown mutation of a written \
            schema" => ops::custom_op("err::unknown").schema("(Tensor x) -> \
                Tensor").mutates_unknown().register(),
        "an alias of nothing" => library::define("err::alias", "(Tensor x) -> Tensor(a)"),
    ]
}

fn tags() -> Cases {
    let define = |schema: &'static str, tags: &'static [Tag]| {
        move || fragment("err_tags").define(schema, tags).map(drop)
    };
    let mut all: Cases = Vec::new();
    let mut add = |name, run: Box<dyn FnOnce() -> Result<()>>| all.push((name, run));
    add(
        "out without all of them",
        Box::new(define("f(*, Tensor(a!) a, Tensor(b!) b) -> Tensor(a!)", &[Tag::Out])),
    );
    add(
        "maybe mutating",
        Box::new(define("f(Tensor x) -> Tensor", &[Tag::MaybeAliasingOrMutating])),
    );
    add(
        "a fake kernel of an inplace operator",
        Box::new(|| {
            let lib = fragment("err_tags");
            lib.define("g(Tensor(a!) x) -> Tensor(a!)", &[Tag::Inplace])?;
            lib.register_fake("g", |_: &FakeCtx, x: &mut Tensor| -> Result<Tensor> {
                Ok(x.clone())
            })
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
        "a key of autograd" => library::impl_("err_kernel::f", "AutogradCPU", id),
        "another namespace" => fragment("err_other").impl_("err_kernel::f", "cpu", id),
        "another signature of a fake \
            kernel" => {
            let fake = |_: &FakeCtx, _: &mut Tensor| -> Result<i64> { Ok(0) };
            library::register_fake("err_kernel::f", fake)
        },
        "one place filled twice" => {
            let lib = Library::new("err_kernel", Kind::Impl)?;
            lib.impl_("f", "cpu", id)?;
            lib.impl_("f", "cpu", id)
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
        "a kernel to disable that is not \
            there" => Op::find("err_kernel::f")?.set_kernel_enabled("cpu", false),
        "the default kernel \
            disabled" => Op::find("err_kernel::f")?.set_kernel_enabled("default", false),
        "a call without any kernel" => ops::call("err_kernel::f", args![x()]),
    ]
}

fn calls() -> Cases {
    for schema in
        ["f(Tensor x, int n=1) -> Tensor", "f.two(Tensor x, Tensor y, *, float alpha=1.) -> Tensor"]
    {
        let lib = fragment("err_call");
        lib.define(schema, &[]).unwrap();
        lib.leak();
    }
    cases![
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
