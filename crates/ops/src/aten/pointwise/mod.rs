//! Pointwise operators: broadcasting, type promotion, and one scalar expression for each element.
//! The dtypes follow from a `Types`, and the expression is written as a formula (`formula`).

mod activation;
mod backward;
mod binary;
pub(crate) mod cache;
mod compare;
mod formula;
mod special;
mod ternary;
mod unary;

use super::OpDef;

/// The tables of this family.
pub(super) const TABLES: [&[OpDef]; 7] = [
    backward::TABLE,
    unary::TABLE,
    activation::TABLE,
    binary::TABLE,
    compare::TABLE,
    ternary::TABLE,
    special::TABLE,
];

/// A pointwise lowering: a variant of `Types` and a formula.
macro_rules! pointwise {
    ($types:ident $(($arg:literal))?, |$f:ident| $body:expr) => {
        $crate::aten::Lowering::Pointwise($crate::aten::Pointwise {
            types: $crate::aten::Types::$types $(($arg))?,
            build: $crate::aten::lowering::Formula::Built(|cx| {
                $crate::aten::pointwise::formula::formula(cx, |$f| $body)
            }),
        })
    };
}
use pointwise;

/// A table of operators that each have an in-place variant. A row is a role, a name, an overload,
/// the arguments after `self`, and the functional lowering. Entries after the `;` are as in
/// [`table`](super::table).
macro_rules! with_in_place {
    ($(#[$doc:meta])* $vis:vis static $table:ident = {
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
        $vis static $table: &[$crate::aten::OpDef] = &[
            $(
                $crate::aten::OpDef::new(
                    concat!("aten::", $name, $overload, "(Tensor self", $args, ") -> Tensor"),
                    $crate::aten::Role::$role $((::maquette_ir::graph::ArithOp::$op))?,
                    $crate::aten::pointwise::pointwise!($types $(($arg))?, |$f| $body),
                    $crate::aten::optional!($($derivative)?),
                    ::maquette_ir::Loc { file: file!(), line: line!() },
                ),
                $crate::aten::OpDef::new(
                    concat!(
                        "aten::", $name, "_", $overload, "(Tensor(a!) self", $args,
                        ") -> Tensor(a!)"
                    ),
                    $crate::aten::Role::General,
                    $crate::aten::Lowering::InPlace(concat!("aten::", $name, $overload)),
                    None,
                    ::maquette_ir::Loc { file: file!(), line: line!() },
                ),
            )*
            $($($crate::aten::OpDef::new(
                $schema,
                $crate::aten::Role::$other $((::maquette_ir::graph::ArithOp::$other_op))?,
                $lowering,
                $crate::aten::optional!($($other_derivative)?),
                ::maquette_ir::Loc { file: file!(), line: line!() },
            ),)*)?
        ];
    };
}
use with_in_place;
