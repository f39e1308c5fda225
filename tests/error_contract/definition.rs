//! Names, signatures, schemas and libraries.

use super::*;
use maquette::library::{Kind, Library, define};

pub fn rows() -> Vec<Row> {
    vec![
        without("a parameter without a type", "a Rust function without types does not parse"),
        refused("no return type", "functions", "no_return"),
        refused("a return type that cannot say that it failed", "functions", "no_result"),
        refused("arguments without a name", "arguments", "patterns"),
        without(
            "varargs, keyword dictionaries, positional-only parameters",
            "a Rust function has none",
        ),
        refused("tuples, owned tensors and lists", "arguments", "containers"),
        refused("other types that no schema has", "arguments", "numbers"),
        without(
            "a type that is not defined",
            "it is the compiler's: cannot find type `NotDefined` in this scope",
        ),
        refused("an unsupported return", "returns", "optional"),
        fails!("the default of a list", define("err::list", "(Tensor x, int[] y=1) -> Tensor")),
        without(
            "`mutates_args` with an unknown name, with a string, left out",
            "what is mutated is `&mut` in the signature",
        ),
        fails!(
            "names of other arguments",
            ops::custom_op("err::names").arg_names(["x", "y"]).kernel(copy).register()
        ),
        fails!(
            "an integer that is mutated",
            define("err::number", "(Tensor x, int(a!) n) -> Tensor")
        ),
        without("a keyword-only tensor", "allowed, and arguments by keyword stand anywhere"),
        refused("a name without a namespace", "names", "no_namespace"),
        fails!("a name without a namespace, at run time", define("foo", "(Tensor x) -> Tensor")),
        refused("a name with two `::`", "names", "two_namespaces"),
        fails!("a name with two `::`, at run time", define("err::a::b", "(Tensor x) -> Tensor")),
        refused("a character that is in no name", "names", "character"),
        fails!(
            "a character that is in no name, at run time",
            define("err::b-c", "(Tensor x) -> Tensor")
        ),
        fails!("the namespace `prim`", Library::new("prim", Kind::Def)),
        fails!("two definitions of an operator", {
            let lib = Library::new("err_dup", Kind::Fragment)?;
            lib.define("foo(Tensor x) -> Tensor", &[])?;
            lib.define("foo(Tensor x) -> Tensor", &[])
        }),
        fails!("two libraries that define a namespace", {
            let _first = Library::new("err_two", Kind::Def)?;
            Library::new("err_two", Kind::Def)
        }),
        without("an unknown kind of library", "`Kind` is an enum"),
        fails!("a kernel that is not the schema's", {
            ops::custom_op("err::other")
                .schema("(Tensor(a!) x, int n) -> ()")
                .kernel(|x: &Tensor, _: i64| x.ok().map(drop))
                .register()
        }),
        fails!("a misspelt type", define("err::typo", "(Tensr x) -> Tensor")),
        fails!("`int64_t`", define("err::int64", "(Tensor x, int64_t n) -> Tensor")),
        fails!("`double`", define("err::double", "(Tensor x, double s) -> Tensor")),
        fails!("a parenthesis that is not closed", define("err::open", "(Tensor x -> Tensor")),
        fails!("no returns", define("err::arrow", "(Tensor x)")),
        fails!("a schema with a name", define("err::named", "bar(Tensor x) -> Tensor")),
        fails!("the same, of an operator with a kernel", {
            ops::custom_op("err::named").schema("named(Tensor x) -> Tensor").kernel(copy).register()
        }),
        fails!(
            "a device type that does not exist",
            ops::custom_op("err::gpu").device_types(["gpu"]).kernel(copy).register()
        ),
        fails!("kernels for devices, and nothing that has a device", {
            ops::custom_op("err::factory")
                .device_types(["cpu"])
                .arg_names(["n"])
                .kernel(|n: i64| Ok(Tensor::from([n])))
                .register()
        }),
        fails!("neither results nor mutations nor an effect", {
            ops::custom_op("err::none")
                .arg_names(["x"])
                .kernel(|x: &Tensor| x.ok().map(drop))
                .register()
        }),
    ]
}
