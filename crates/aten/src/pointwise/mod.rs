//! Pointwise operators: broadcasting, type promotion, and one scalar expression for each element.
//! The dtypes follow from a `Types`, and the expression is written as a formula (`formula`).

mod activation;
pub(crate) mod alias;
mod backward;
mod binary;
mod compare;
pub(crate) mod derivative;
mod special;
mod ternary;
mod unary;

/// A pointwise lowering: a variant of `Types` and a formula.
macro_rules! pointwise {
    ($types:ident $(($arg:literal))?, |$f:ident| $body:expr) => {
        ::maquette_ops::operator::Lowering::Pointwise(::maquette_ops::operator::Pointwise {
            types: ::maquette_ops::operator::Types::$types $(($arg))?,
            build: ::maquette_ops::operator::lowering::Formula::Built(|cx| {
                ::maquette_ops::operator::pointwise::formula::formula(cx, |$f| $body)
            }),
        })
    };
}
use pointwise;

/// A table of operators that each have an in-place variant. A row is a name, an overload, the
/// arguments after `self`, and the fields of the functional operator, with `types` and `formula` in
/// place of a lowering. Rows after the `;` are as in [`table`](maquette_ops::operator::table).
macro_rules! with_in_place {
    ($(#[$doc:meta])* static $table:ident = {
        $(
            $name:literal $overload:literal $args:literal => {
                role: $role:ident $(($op:ident))?,
                types: $types:ident $(($arg:literal))?,
                formula: |$f:ident| $body:expr
                $(, vjp: $vjp:expr)? $(,)?
            },
        )*
        $(; $($schema:literal => { $($row:tt)* },)*)?
    }) => {
        $(#[$doc])*
        static $table: &[::maquette_ops::operator::OpDef] = &[
            $(
                ::maquette_ops::operator::op_row!(
                    concat!("aten::", $name, $overload, "(Tensor self", $args, ") -> Tensor") => {
                        role: $role $(($op))?,
                        lowering: $crate::pointwise::pointwise!($types $(($arg))?, |$f| $body)
                        $(, vjp: $vjp)?
                    }
                ),
                ::maquette_ops::operator::op_row!(
                    concat!(
                        "aten::", $name, "_", $overload, "(Tensor(a!) self", $args,
                        ") -> Tensor(a!)"
                    ) => {
                        role: General,
                        lowering: ::maquette_ops::operator::Lowering::InPlace(concat!(
                            "aten::", $name, $overload
                        )),
                    }
                ),
            )*
            $($(::maquette_ops::operator::op_row!($schema => { $($row)* }),)*)?
        ];
        ::maquette_ops::operator::register_table!($table);
    };
}
use with_in_place;
