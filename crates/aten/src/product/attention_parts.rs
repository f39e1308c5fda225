//! The operators as which programs write attention, `softmax(q kᵀ scale + mask) v`, and the
//! operator that computes all of them: facts for the pass that recognises it.

use maquette_ir::DType;
use maquette_ir::graph::ArgKind;
use maquette_ops::Op;

/// What a call does in an attention. Operands are numbers of arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttentionPart {
    /// The product of arguments 0 and 1, matrices or batches of them.
    Product,
    /// Argument 0 with the last two dimensions in the other order.
    Transpose,
    /// An operand times a number.
    Scale {
        /// The operand.
        of: usize,
        /// The number.
        by: f64,
    },
    /// The sum of arguments 0 and 1.
    Sum,
    /// An operand where a mask says so, and a number elsewhere.
    Select {
        /// The operand.
        of: usize,
        /// The mask.
        mask: usize,
        /// Whether the operand is taken where the mask is true.
        where_true: bool,
        /// The number.
        other: f64,
    },
    /// The softmax of argument 0.
    Softmax {
        /// The dimension; negative ones count from the end.
        dim: i64,
        /// The dtype to which the argument is converted.
        dtype: Option<DType>,
    },
    /// Dropout of argument 0.
    Dropout {
        /// Whether it draws random numbers. Otherwise the result is a copy.
        draws: bool,
    },
}

/// The operator of query, key, value, mask and factor that computes an attention.
pub const ATTENTION: &str = "fast::attention";
/// The operator that makes a bool mask of the opposite one.
pub const OPPOSITE: &str = "aten::logical_not";
/// The operator that exchanges two dimensions.
pub const TRANSPOSE: &str = "aten::transpose.int";

/// The operators above, those that are parts, and those that parts call.
const NAMES: [&str; 27] = [
    ATTENTION,
    OPPOSITE,
    TRANSPOSE,
    "aten::_softmax",
    "aten::add.Tensor",
    "aten::bmm",
    "aten::clone",
    "aten::div.Scalar",
    "aten::div.Tensor",
    "aten::dropout",
    "aten::expand",
    "aten::mT",
    "aten::masked_fill.Scalar",
    "aten::matmul",
    "aten::mm",
    "aten::mul.Scalar",
    "aten::mul.Tensor",
    "aten::permute",
    "aten::reshape",
    "aten::softmax.int",
    "aten::swapaxes",
    "aten::swapdims",
    "aten::t",
    "aten::to.dtype",
    "aten::view",
    "aten::where.ScalarOther",
    "aten::where.ScalarSelf",
];

/// The operators on whose registrations it depends whether an attention may be recognised.
pub fn operators() -> Vec<Op> {
    NAMES.iter().filter_map(|name| Op::find(name).ok()).collect()
}

/// What a call without keywords does in an attention; `None` if it is not part of one.
pub fn attention_part(op: &str, args: &[ArgKind<'_>]) -> Option<AttentionPart> {
    use ArgKind::{Bool, Float, Int, Tensor};
    Some(match (op, args) {
        ("aten::matmul" | "aten::bmm" | "aten::mm", [Tensor { .. }, Tensor { .. }]) => {
            AttentionPart::Product
        }
        ("aten::mul.Tensor" | "aten::mul.Scalar", [Tensor { .. }, by]) if is_number(by) => {
            AttentionPart::Scale { of: 0, by: number(by)? }
        }
        ("aten::mul.Tensor", [by, Tensor { .. }]) => {
            AttentionPart::Scale { of: 1, by: number(by)? }
        }
        ("aten::div.Tensor" | "aten::div.Scalar", [Tensor { .. }, by]) => {
            AttentionPart::Scale { of: 0, by: 1.0 / number(by)? }
        }
        ("aten::add.Tensor", [Tensor { .. }, Tensor { .. }]) => AttentionPart::Sum,
        ("aten::masked_fill.Scalar", [Tensor { .. }, Tensor { .. }, other]) => {
            AttentionPart::Select { of: 0, mask: 1, where_true: false, other: number(other)? }
        }
        ("aten::where.ScalarOther", [Tensor { .. }, Tensor { .. }, other]) => {
            AttentionPart::Select { of: 1, mask: 0, where_true: true, other: number(other)? }
        }
        ("aten::where.ScalarSelf", [Tensor { .. }, other, Tensor { .. }]) => {
            AttentionPart::Select { of: 2, mask: 0, where_true: false, other: number(other)? }
        }
        ("aten::softmax.int", [Tensor { .. }, Int(Some(dim)), dtype @ ..]) => {
            let dtype = match dtype {
                [] | [ArgKind::None] => None,
                [ArgKind::DType(dtype)] => Some(*dtype),
                _ => return None,
            };
            AttentionPart::Softmax { dim: *dim, dtype }
        }
        ("aten::_softmax", [Tensor { .. }, Int(Some(dim)), Bool(false)]) => {
            AttentionPart::Softmax { dim: *dim, dtype: None }
        }
        ("aten::dropout", [Tensor { .. }, Float(p), Bool(train)]) => {
            AttentionPart::Dropout { draws: *train && *p != 0.0 }
        }
        (_, [Tensor { sizes, .. }, dims @ ..]) if exchanges_last(op, sizes.len(), dims) => {
            AttentionPart::Transpose
        }
        _ => return None,
    })
}

fn is_number(arg: &ArgKind<'_>) -> bool {
    number(arg).is_some()
}

fn number(arg: &ArgKind<'_>) -> Option<f64> {
    match arg {
        ArgKind::Float(x) => Some(*x),
        ArgKind::Int(x) => x.map(|x| x as f64),
        _ => None,
    }
}

/// Whether a view of a tensor of this rank exchanges its last two dimensions, and no others.
fn exchanges_last(op: &str, rank: usize, dims: &[ArgKind<'_>]) -> bool {
    let rank = rank as i64;
    let wrapped = |dim: &ArgKind<'_>| match dim {
        ArgKind::Int(Some(dim)) => Some(if *dim < 0 { dim + rank } else { *dim }),
        _ => None,
    };
    let last = [Some(rank - 2), Some(rank - 1)];
    rank >= 2
        && match (op, dims) {
            ("aten::mT", []) => true,
            ("aten::t", []) => rank == 2,
            (TRANSPOSE | "aten::swapaxes" | "aten::swapdims", [a, b]) => {
                let (a, b) = (wrapped(a), wrapped(b));
                [a, b] == last || [b, a] == last
            }
            ("aten::permute", [ArgKind::List(dims)]) => {
                let exchanged = (0..rank - 2).chain([rank - 1, rank - 2]).map(Some);
                dims.iter().map(wrapped).eq(exchanged)
            }
            _ => false,
        }
}
