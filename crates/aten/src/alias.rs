//! Operators that are second names of other operators.

use super::views;
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{Role, dims_text, register_table, table};
use maquette_ops::{Error, Meta, Outputs, Result, Value};

fn forward(name: &str, args: &[Value]) -> Result<Outputs> {
    maquette_ops::call(name, args.iter().cloned().collect())
}

/// Each row is a second name, the operator's name, the overload, and the arguments after `self`.
/// Each row makes a functional and an in-place entry.
macro_rules! names {
    ($($alias:literal = $name:literal $overload:literal $args:literal;)*) => { &[$(
        ::maquette_ops::operator::OpDef::new(
            concat!("aten::", $alias, $overload, "(Tensor self", $args, ") -> Tensor"),
            Role::General,
            Lowering::Composite(|a| forward(concat!("aten::", $name, $overload), a)),
            None,
            ::maquette_ir::Loc { file: file!(), line: line!() },
        ),
        ::maquette_ops::operator::OpDef::new(
            concat!(
                "aten::", $alias, "_", $overload, "(Tensor(a!) self", $args, ") -> Tensor(a!)"
            ),
            Role::General,
            Lowering::Composite(|a| forward(concat!("aten::", $name, "_", $overload), a)),
            None,
            ::maquette_ir::Loc { file: file!(), line: line!() },
        ),
    )*] };
}

/// Second names of arithmetic operators.
static TABLE: &[maquette_ops::operator::OpDef] = names! {
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
};
register_table!(TABLE);

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
        General "aten::__iand__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::bitwise_and.Tensor"),
        General "aten::__iand__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::bitwise_and.Scalar"),
        General "aten::__ior__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::bitwise_or.Tensor"),
        General "aten::__ior__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::bitwise_or.Scalar"),
        General "aten::__ixor__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::bitwise_xor.Tensor"),
        General "aten::__ixor__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::bitwise_xor.Scalar"),
        General "aten::__ilshift__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::__lshift__.Tensor"),
        General "aten::__ilshift__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::__lshift__.Scalar"),
        General "aten::__irshift__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::__rshift__.Tensor"),
        General "aten::__irshift__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)" =>
            Lowering::InPlace("aten::__rshift__.Scalar"),
        General "aten::concat(Tensor[] tensors, int dim=0) -> Tensor" =>
            Lowering::Composite(|a| forward("aten::cat", a)),
        General "aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor" =>
            Lowering::Composite(|a| forward("aten::cat", a)),
        TakesHostIndices "aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor" =>
            Lowering::Composite(|a| forward("aten::index.Tensor", a)),
        TakesHostIndices "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, \
            bool accumulate=False) -> Tensor" =>
            Lowering::Composite(|a| forward("aten::index_put", a)),
        General "aten::where(Tensor condition) -> Tensor[]" =>
            Lowering::UnannotatedComposite {
                when: |_| Ok(true),
                body: |a| forward("aten::nonzero_numpy", a),
            },
        General "aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, \
            int dim=0) -> Tensor(a)[]" =>
            Lowering::Composite(|a| forward("aten::split_with_sizes", a)),
        General "aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)" =>
            Lowering::Composite(|a| forward("aten::movedim.int", a))
                => crate::grad::PLACED,
        General "aten::moveaxis.intlist(Tensor(a) self, int[] source, \
            int[] destination) -> Tensor(a)" =>
            Lowering::Composite(|a| forward("aten::movedim.intlist", a))
                => crate::grad::PLACED,
        General "aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)" =>
            Lowering::Composite(|a| forward("aten::transpose.int", a))
                => crate::grad::PLACED,
        General "aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)" =>
            Lowering::Composite(|a| forward("aten::transpose.int", a))
                => crate::grad::PLACED,
        General "aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)" =>
            views::view(|_, a| views::one(views::expand(views::meta(a)?, a[1].ints()?)?))
                => crate::grad::EXPANDED,
        General "aten::mT(Tensor(a) self) -> Tensor(a)" =>
            views::view(|_, a| views::one(matrix_transpose(views::meta(a)?)?))
                => crate::grad::PLACED,
        General "aten::mH(Tensor(a) self) -> Tensor(a)" =>
            views::view(|_, a| views::one(matrix_transpose(views::meta(a)?)?))
                => crate::grad::PLACED,
        General "aten::adjoint(Tensor(a) self) -> Tensor(a)" =>
            views::view(|_, a| views::one(matrix_transpose(views::meta(a)?)?))
                => crate::grad::PLACED,
        General "aten::matrix_H(Tensor(a) self) -> Tensor(a)" =>
            views::view(|_, a| {
                maquette_ops::operator::dims::require_rank("self", a[0].tensor()?, 2..=2)?;
                views::one(matrix_transpose(views::meta(a)?)?)
            })
                => crate::grad::PLACED,
        General "aten::numpy_T(Tensor(a) self) -> Tensor(a)" =>
            views::view(|_, a| {
                let m = views::meta(a)?;
                views::one(m.with_dims(
                    m.sizes.iter().rev().copied().collect(),
                    m.strides.iter().rev().copied().collect(),
                ))
            })
                => crate::grad::PLACED,
        General "aten::real(Tensor(a) self) -> Tensor(a)" => ITSELF
                => crate::grad::EXPANDED,
        General "aten::conj(Tensor(a) self) -> Tensor(a)" => ITSELF
                => crate::grad::PLACED,
        General "aten::resolve_conj(Tensor(a) self) -> Tensor(a)" => ITSELF
                => crate::grad::EXPANDED,
        General "aten::resolve_neg(Tensor(a) self) -> Tensor(a)" => ITSELF
                => crate::grad::EXPANDED,
    }
}
