//! Operators that are second names of other operators.

use crate::shape::views;
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Error, Meta, Outputs, Result, Value};

fn forward(name: &str, args: &[Value]) -> Result<Outputs> {
    maquette_ops::call(name, args.iter().cloned().collect())
}

/// Each row is a second name, the operator's name, the overload, and the arguments after `self`.
/// Each row makes a functional and an in-place entry.
macro_rules! names {
    ($(#[$doc:meta])* static $table:ident = {
        $($alias:literal = $name:literal $overload:literal $args:literal;)*
    }) => {
        table! {
            $(#[$doc])*
            static $table = { $(
                concat!("aten::", $alias, $overload, "(Tensor self", $args, ") -> Tensor") => {
                    role: General,
                    lowering: Lowering::Composite(|a| {
                        forward(concat!("aten::", $name, $overload), a)
                    }),
                },
                concat!(
                    "aten::", $alias, "_", $overload, "(Tensor(a!) self", $args, ") -> Tensor(a!)"
                ) => {
                    role: General,
                    lowering: Lowering::Composite(|a| {
                        forward(concat!("aten::", $name, "_", $overload), a)
                    }),
                },
            )* }
        }
    };
}

names! {
    /// Second names of arithmetic operators.
    static TABLE = {
        "absolute" = "abs" "" "";
        "negative" = "neg" "" "";
        "fix" = "trunc" "" "";
        "arccos" = "acos" "" "";
        "arcsin" = "asin" "" "";
        "arctan" = "atan" "" "";
        "arccosh" = "acosh" "" "";
        "arcsinh" = "asinh" "" "";
        "arctanh" = "atanh" "" "";
        "arctan2" = "atan2" "" ", Tensor other";
        "multiply" = "mul" ".Tensor" ", Tensor other";
        "multiply" = "mul" ".Scalar" ", Scalar other";
        "subtract" = "sub" ".Tensor" ", Tensor other, *, Scalar alpha=1";
        "subtract" = "sub" ".Scalar" ", Scalar other, Scalar alpha=1";
        "divide" = "div" ".Tensor" ", Tensor other";
        "divide" = "div" ".Scalar" ", Scalar other";
        "divide" = "div" ".Tensor_mode" ", Tensor other, *, str? rounding_mode";
        "divide" = "div" ".Scalar_mode" ", Scalar other, *, str? rounding_mode";
        "true_divide" = "div" ".Tensor" ", Tensor other";
        "true_divide" = "div" ".Scalar" ", Scalar other";
        "greater" = "gt" ".Tensor" ", Tensor other";
        "greater" = "gt" ".Scalar" ", Scalar other";
        "greater_equal" = "ge" ".Tensor" ", Tensor other";
        "greater_equal" = "ge" ".Scalar" ", Scalar other";
        "less" = "lt" ".Tensor" ", Tensor other";
        "less" = "lt" ".Scalar" ", Scalar other";
        "less_equal" = "le" ".Tensor" ", Tensor other";
        "less_equal" = "le" ".Scalar" ", Scalar other";
        "not_equal" = "ne" ".Tensor" ", Tensor other";
        "not_equal" = "ne" ".Scalar" ", Scalar other";
    }
}

/// Swaps the last two dimensions.
fn matrix_transpose(m: &Meta) -> Result<Meta> {
    if m.rank() < 2 {
        return Err(Error::value(format!(
            "argument `self` must have at least 2 dimensions, found sizes {}",
            dims_text(&m.sizes)
        )));
    }
    views::transpose(m, -2, -1)
}

/// The identity view: complex operators such as `conj` do nothing to a real tensor.
const ITSELF: Lowering = views::view(|_, a| views::one(views::meta(a)?.clone()));

table! {
    /// Other second names, and views that are the identity for real tensors.
    static OTHERS = {
        "aten::__iand__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bitwise_and.Tensor"),
        },
        "aten::__iand__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bitwise_and.Scalar"),
        },
        "aten::__ior__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bitwise_or.Tensor"),
        },
        "aten::__ior__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bitwise_or.Scalar"),
        },
        "aten::__ixor__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bitwise_xor.Tensor"),
        },
        "aten::__ixor__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::bitwise_xor.Scalar"),
        },
        "aten::__ilshift__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::__lshift__.Tensor"),
        },
        "aten::__ilshift__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::__lshift__.Scalar"),
        },
        "aten::__irshift__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::__rshift__.Tensor"),
        },
        "aten::__irshift__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::__rshift__.Scalar"),
        },
        "aten::concat(Tensor[] tensors, int dim=0) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::cat", a)),
        },
        "aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::cat", a)),
        },
        "aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor" => {
            role: TakesHostIndices,
            lowering: Lowering::Composite(|a| forward("aten::index.Tensor", a)),
        },
        "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, \
            bool accumulate=False) -> Tensor" => {
            role: TakesHostIndices,
            lowering: Lowering::Composite(|a| forward("aten::index_put", a)),
        },
        "aten::where(Tensor condition) -> Tensor[]" => {
            role: General,
            lowering: Lowering::UnannotatedComposite {
                when: |_| Ok(true),
                body: |a| forward("aten::nonzero_numpy", a),
            },
        },
        "aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, \
            int dim=0) -> Tensor(a)[]" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::split_with_sizes", a)),
        },
        "aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::movedim.int", a)),
            vjp: crate::grad::PLACED,
        },
        "aten::moveaxis.intlist(Tensor(a) self, int[] source, \
            int[] destination) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::movedim.intlist", a)),
            vjp: crate::grad::PLACED,
        },
        "aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::transpose.int", a)),
            vjp: crate::grad::PLACED,
        },
        "aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::Composite(|a| forward("aten::transpose.int", a)),
            vjp: crate::grad::PLACED,
        },
        "aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)" => {
            role: General,
            lowering: views::view(|_, a| views::one(views::expand(views::meta(a)?, a[1].ints()?)?)),
            vjp: crate::grad::EXPANDED,
        },
        "aten::mT(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: views::view(|_, a| views::one(matrix_transpose(views::meta(a)?)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::mH(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: views::view(|_, a| views::one(matrix_transpose(views::meta(a)?)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::adjoint(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: views::view(|_, a| views::one(matrix_transpose(views::meta(a)?)?)),
            vjp: crate::grad::PLACED,
        },
        "aten::matrix_H(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: views::view(|_, a| {
                maquette_ops::operator::dims::require_rank("self", a[0].tensor()?, 2..=2)?;
                views::one(matrix_transpose(views::meta(a)?)?)
            }),
            vjp: crate::grad::PLACED,
        },
        "aten::numpy_T(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: views::view(|_, a| {
                let m = views::meta(a)?;
                views::one(m.with_dims(
                    m.sizes.iter().rev().copied().collect(),
                    m.strides.iter().rev().copied().collect(),
                ))
            }),
            vjp: crate::grad::PLACED,
        },
        "aten::real(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: ITSELF,
            vjp: crate::grad::EXPANDED,
        },
        "aten::conj(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: ITSELF,
            vjp: crate::grad::PLACED,
        },
        "aten::resolve_conj(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: ITSELF,
            vjp: crate::grad::EXPANDED,
        },
        "aten::resolve_neg(Tensor(a) self) -> Tensor(a)" => {
            role: General,
            lowering: ITSELF,
            vjp: crate::grad::EXPANDED,
        },
    }
}
