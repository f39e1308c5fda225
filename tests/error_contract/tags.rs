//! Tags that the schema or the kernel contradicts.

use super::*;
use maquette::Result;
use maquette::library::{Kind, Library, Tag};

fn define(schema: &str, tags: &[Tag]) -> Result<Op> {
    Library::new("err_tags", Kind::Fragment)?.define(schema, tags)
}

fn write(x: &mut Tensor) -> Result<()> {
    x.write::<f32>()?.fill(0.0);
    Ok(())
}

pub fn rows() -> Vec<Row> {
    vec![
        fails!(
            "inplace and out",
            define("f(Tensor(a!) x) -> Tensor(a!)", &[Tag::Inplace, Tag::Out])
        ),
        fails!("inplace without arguments", {
            ops::custom_op("err::none_")
                .tags([Tag::Inplace])
                .kernel(|| Ok(Tensor::from([0.0f32])))
                .register()
        }),
        fails!("inplace whose first argument is no tensor", {
            ops::custom_op("err::number_")
                .tags([Tag::Inplace])
                .arg_names(["n", "x"])
                .kernel(|_: i64, x: &mut Tensor| write(x))
                .register()
        }),
        fails!("inplace that mutates another argument", {
            ops::custom_op("err::second_")
                .tags([Tag::Inplace])
                .arg_names(["x", "y"])
                .kernel(|_: &Tensor, y: &mut Tensor| write(y))
                .register()
        }),
        fails!("inplace that returns something else", {
            ops::custom_op("err::integer_")
                .tags([Tag::Inplace])
                .arg_names(["x"])
                .kernel(|x: &mut Tensor| write(x).map(|()| 1i64))
                .register()
        }),
        fails!(
            "inplace of a written schema that returns something else",
            define("f(Tensor(a!) x) -> Tensor", &[Tag::Inplace])
        ),
        fails!(
            "inplace of a written schema that mutates two",
            define("f(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)", &[Tag::Inplace])
        ),
        fails!(
            "inplace of a written schema that mutates nothing",
            define("f(Tensor x) -> Tensor", &[Tag::Inplace])
        ),
        fails!("out whose mutated arguments are not last", {
            ops::custom_op("err::late")
                .tags([Tag::Out])
                .arg_names(["out", "x"])
                .kernel(|out: &mut Tensor, _: &Tensor| write(out))
                .register()
        }),
        fails!(
            "out that mutates nothing",
            ops::custom_op("err::no_out").tags([Tag::Out]).arg_names(["x"]).kernel(copy).register()
        ),
        fails!("out that mutates a list", {
            ops::custom_op("err::lists")
                .tags([Tag::Out])
                .arg_names(["out"])
                .kernel(|out: &mut [Tensor]| out.iter_mut().try_for_each(write))
                .register()
        }),
        fails!("out that returns something else", {
            ops::custom_op("err::count")
                .tags([Tag::Out])
                .arg_names(["out"])
                .kernel(|out: &mut Tensor| write(out).map(|()| 1i64))
                .register()
        }),
        fails!(
            "out of a written schema that is positional",
            define("f(Tensor x, Tensor(a!) out) -> Tensor(a!)", &[Tag::Out])
        ),
        fails!(
            "out of a written schema that mutates nothing",
            define("f(Tensor x) -> Tensor", &[Tag::Out])
        ),
        fails!("out of a written schema that returns another", {
            define("f(*, Tensor(a!) a, Tensor(b!) b) -> (Tensor(b!), Tensor(a!))", &[Tag::Out])
        }),
        fails!("out of a written schema that returns an alias that is not written", {
            define("f(Tensor x, *, Tensor(a!) out) -> Tensor(a)", &[Tag::Out])
        }),
    ]
}
