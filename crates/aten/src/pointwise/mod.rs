//! Pointwise operators: broadcasting, type promotion, and one scalar expression for each element.
//! The dtypes follow from a `Types`, and the expression is written as a formula (`formula`).

mod activation;
mod backward;
mod binary;
mod compare;
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

/// A table of operators that each have an in-place variant. A row is a role, a name, an overload,
/// the arguments after `self`, and the functional lowering. Entries after the `;` are as in
/// [`table`](maquette_ops::operator::table).
macro_rules! with_in_place {
    ($(#[$doc:meta])* static $table:ident = {
        $(
            $role:ident $(($op:ident))? $name:literal $overload:literal $args:literal =>
                $types:ident $(($arg:literal))? |$f:ident| $body:expr $(=> $derivative:expr)?;
        )*
        $(; $(
            $other:ident $(($other_op:ident))? $schema:literal => $lowering:expr
            $(=> $other_derivative:expr)?,
        )*)?
    }) => {
        $(#[$doc])*
        static $table: &[::maquette_ops::operator::OpDef] = &[
            $(
                ::maquette_ops::operator::OpDef::new(
                    concat!("aten::", $name, $overload, "(Tensor self", $args, ") -> Tensor"),
                    ::maquette_ops::operator::Role::$role $((::maquette_ir::graph::ArithOp::$op))?,
                    $crate::pointwise::pointwise!($types $(($arg))?, |$f| $body),
                    ::maquette_ops::operator::optional!($($derivative)?),
                    ::maquette_ir::Loc { file: file!(), line: line!() },
                ),
                ::maquette_ops::operator::OpDef::new(
                    concat!(
                        "aten::", $name, "_", $overload, "(Tensor(a!) self", $args,
                        ") -> Tensor(a!)"
                    ),
                    ::maquette_ops::operator::Role::General,
                    ::maquette_ops::operator::Lowering::InPlace(concat!("aten::", $name, $overload)),
                    None,
                    ::maquette_ir::Loc { file: file!(), line: line!() },
                ),
            )*
            $($(::maquette_ops::operator::OpDef::new(
                $schema,
                ::maquette_ops::operator::Role::$other $((::maquette_ir::graph::ArithOp::$other_op))?,
                $lowering,
                ::maquette_ops::operator::optional!($($other_derivative)?),
                ::maquette_ir::Loc { file: file!(), line: line!() },
            ),)*)?
        ];
        ::maquette_ops::operator::register_table!($table);
    };
}
use with_in_place;
