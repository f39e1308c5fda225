//! The builtin operators, with ATen's names and schemas. Each family of operators is a file or a
//! folder with a table, and each operator is an entry of a table.
//!
//! An entry has a schema, a [`Lowering`] and a [`Role`]. The fake kernel, the host kernel and the
//! kernel class for backends all follow from the lowering (`execute`). The role states the facts
//! that passes use and that follow from neither schema nor lowering.
//!
//! Most operators lower to data: a pointwise expression or a loop nest (`loops`). Others lower to
//! a class of `crates/kernels`, and rare ones to a plain loop over host data (`host`).
//! `unsupported` lists the operators of PyTorch that are missing.

mod alias;
mod arrange;
mod attention;
pub mod attention_parts;
mod batch_norm;
mod calculus;
mod checks;
mod class;
mod classification;
mod combinatorics;
mod convolution;
mod copies;
mod creation;
pub(crate) mod dims;
mod distance;
mod einsum;
mod embedding;
pub(crate) mod execute;
mod expand;
mod functional;
mod grad;
pub(crate) use grad::ZEROS;
mod host;
mod indexing;
mod join;
mod layers;
mod linalg;
pub(crate) mod loops;
mod loss;
pub(crate) mod lowering;
mod matmul;
mod matrix;
mod norm;
mod number;
mod order;
mod permute;
pub(crate) mod pointwise;
mod pooling;
mod products;
mod random;
mod ranges;
mod reduce;
pub(crate) mod reshape;
mod rnn;
mod role;
mod scan;
mod scatter;
mod shift;
mod slices;
mod slicing;
mod softmax;
mod sort;
mod spatial;
mod special;
mod split;
mod structure;
mod take;
mod unsupported;
mod variance;
mod vector_norm;
mod view_scatter;
mod views;

pub use crate::autograd::rule::{Backward, Derivative, RuleDef, Saved};
pub use loss::Reduction;
pub use lowering::{Class, Compute, Lowering, Metas, Pointwise, PointwiseCx, Strides, Types};
pub use role::Role;
pub use unsupported::{all_unsupported, unsupported};

use maquette_ir::Loc;

/// A builtin operator.
pub struct OpDef {
    /// PyTorch's schema, name included.
    pub schema: &'static str,
    /// The facts that passes use and that follow from neither the schema nor the lowering.
    pub role: Role,
    /// How the operator is computed.
    pub lowering: Lowering,
    /// How gradients of the results become gradients of the operands.
    pub derivative: Derivative,
    /// The source location of the entry, or of the macro call that makes it.
    pub loc: Loc,
}

impl OpDef {
    /// A table entry. Without a derivative, a scalar expression has its own, and composites and
    /// in-place operators have that of the operators that they call. Of every other entry a missing
    /// derivative is an error of the build.
    pub(crate) const fn new(
        schema: &'static str,
        role: Role,
        lowering: Lowering,
        derivative: Option<Derivative>,
        loc: Loc,
    ) -> OpDef {
        let derivative = match derivative {
            Some(derivative) => derivative,
            None => match lowering.derivative(role) {
                Some(derivative) => derivative,
                None => panic!("the table entry has no derivative, and none follows from it"),
            },
        };
        OpDef { schema, role, lowering, derivative, loc }
    }

    /// Whether the result is the first argument, which the call writes.
    pub(crate) fn writes_its_result(&self) -> bool {
        self.schema.contains("(Tensor(a!) self") && self.schema.ends_with("-> Tensor(a!)")
    }

    /// The full name, `aten::add.Tensor`.
    pub fn name(&self) -> &'static str {
        self.schema.split_once('(').map_or(self.schema, |(name, _)| name)
    }
}

/// Defines a table. Each entry is `Role "schema" => lowering => derivative,`. The derivative may be
/// absent if it follows from the lowering ([`OpDef::new`]).
macro_rules! table {
    ($(#[$doc:meta])* $vis:vis static $name:ident = {
        $($role:ident $schema:expr => $lowering:expr $(=> $derivative:expr)?,)*
    }) => {
        $(#[$doc])*
        $vis static $name: &[$crate::aten::OpDef] = &[$(
            $crate::aten::OpDef::new(
                $schema,
                $crate::aten::Role::$role,
                $lowering,
                $crate::aten::optional!($($derivative)?),
                ::maquette_ir::Loc { file: file!(), line: line!() },
            )
        ),*];
    };
}

/// `Some` of an expression, or `None` without one.
macro_rules! optional {
    () => {
        None
    };
    ($e:expr) => {
        Some($e)
    };
}
pub(crate) use optional;
pub(crate) use table;

/// Whether a name is in a namespace that is reserved for the builtin operators: `aten::`, `grad::`
/// for the derivatives of scalar expressions, or `fast::` for what compiled programs call in place
/// of operators that round otherwise.
pub fn is_builtin_name(op: &str) -> bool {
    ["aten::", "grad::", "fast::"].iter().any(|namespace| op.starts_with(namespace))
}

/// All tables of builtin operators.
pub(crate) fn tables() -> impl Iterator<Item = &'static [OpDef]> {
    let folders = linalg::TABLES
        .into_iter()
        .chain(order::TABLES)
        .chain(pointwise::TABLES)
        .chain(spatial::TABLES)
        .chain(special::TABLES);
    folders.chain([
        alias::TABLE,
        alias::OTHERS,
        arrange::TABLE,
        attention::TABLE,
        batch_norm::TABLE,
        calculus::TABLE,
        checks::TABLE,
        classification::TABLE,
        combinatorics::TABLE,
        convolution::TABLE,
        copies::TABLE,
        creation::TABLE,
        distance::TABLE,
        einsum::TABLE,
        embedding::TABLE,
        functional::TABLE,
        indexing::TABLE,
        join::TABLE,
        layers::TABLE,
        loss::TABLE,
        matmul::TABLE,
        matrix::TABLE,
        norm::TABLE,
        number::TABLE,
        pooling::TABLE,
        products::TABLE,
        random::TABLE,
        ranges::TABLE,
        reduce::TABLE,
        rnn::TABLE,
        scan::TABLE,
        scatter::TABLE,
        shift::TABLE,
        slices::TABLE,
        softmax::TABLE,
        sort::TABLE,
        split::TABLE,
        structure::TABLE,
        take::TABLE,
        variance::TABLE,
        vector_norm::TABLE,
        view_scatter::TABLE,
        views::TABLE,
    ])
}
