//! Pointwise operators: a scalar expression each.

mod activation;
mod binary;
pub(crate) mod cache;
mod compare;
mod formula;
mod special;
mod ternary;
mod unary;

use super::OpDef;

/// The tables of this family.
pub(super) const TABLES: [&[OpDef]; 6] = [
    unary::TABLE,
    activation::TABLE,
    binary::TABLE,
    compare::TABLE,
    ternary::TABLE,
    special::TABLE,
];

/// A pointwise lowering: how dtypes follow, and the formula.
macro_rules! pointwise {
    ($types:ident $(($arg:literal))?, |$f:ident| $body:expr) => {
        $crate::aten::Lowering::Pointwise($crate::aten::Pointwise {
            types: $crate::aten::Types::$types $(($arg))?,
            build: |cx| $crate::aten::pointwise::formula::formula(cx, |$f| $body),
        })
    };
}
use pointwise;

/// A table of operators that each have an in-place variant: role, name, overload, arguments after
/// `self`, then the functional lowering. Other operators follow, as in [`table`](super::table).
macro_rules! with_in_place {
    ($(#[$doc:meta])* $vis:vis static $table:ident = {
        $(
            $role:ident $(($op:ident))? $name:literal $overload:literal $args:literal =>
                $types:ident $(($arg:literal))? |$f:ident| $body:expr;
        )*
        $(; $($other:ident $(($other_op:ident))? $schema:literal => $lowering:expr,)*)?
    }) => {
        $(#[$doc])*
        $vis static $table: &[$crate::aten::OpDef] = &[
            $(
                $crate::aten::OpDef {
                    schema: concat!(
                        "aten::", $name, $overload, "(Tensor self", $args, ") -> Tensor"
                    ),
                    role: $crate::aten::Role::$role $((::maquette_ir::graph::ArithOp::$op))?,
                    lowering: $crate::aten::pointwise::pointwise!($types $(($arg))?, |$f| $body),
                    loc: ::maquette_ir::Loc { file: file!(), line: line!() },
                },
                $crate::aten::OpDef {
                    schema: concat!(
                        "aten::", $name, "_", $overload, "(Tensor(a!) self", $args,
                        ") -> Tensor(a!)"
                    ),
                    role: $crate::aten::Role::General,
                    lowering: $crate::aten::Lowering::InPlace(concat!("aten::", $name, $overload)),
                    loc: ::maquette_ir::Loc { file: file!(), line: line!() },
                },
            )*
            $($($crate::aten::OpDef {
                schema: $schema,
                role: $crate::aten::Role::$other $((::maquette_ir::graph::ArithOp::$other_op))?,
                lowering: $lowering,
                loc: ::maquette_ir::Loc { file: file!(), line: line!() },
            },)*)?
        ];
    };
}
use with_in_place;
