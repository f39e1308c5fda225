//! The builtin operators: one table a family, one entry an operator, with ATen's own names and
//! schemas.
//!
//! An entry is a schema and a [`Lowering`]; the fake rule, the eager kernel and the graph's kernel
//! class all follow from the lowering.

mod alias;
mod arrange;
mod attention;
mod batch_norm;
mod calculus;
mod checks;
mod classification;
mod combinatorics;
mod convolution;
mod copies;
mod creation;
mod dims;
mod distance;
mod einsum;
mod execute;
mod expand;
mod functional;
mod host;
mod indexing;
mod join;
mod layers;
mod linalg;
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
mod reshape;
mod rnn;
mod role;
mod scan;
mod scatter;
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

pub use loss::Reduction;
pub use lowering::{Class, Compute, Lowering, Metas, Pointwise, PointwiseCx, Strides, Types};
pub use role::Role;
pub use unsupported::{all_unsupported, unsupported};

use maquette_ir::Loc;

/// A builtin operator.
pub struct OpDef {
    /// PyTorch's schema, name included.
    pub schema: &'static str,
    /// What passes may rely on beyond the schema and the lowering.
    pub role: Role,
    /// What it computes.
    pub lowering: Lowering,
    /// Where its table is.
    pub loc: Loc,
}

impl OpDef {
    /// The full name, `aten::add.Tensor`.
    pub fn name(&self) -> &'static str {
        self.schema.split_once('(').map_or(self.schema, |(name, _)| name)
    }
}

/// One table: `Role "schema" => lowering,` an entry each.
macro_rules! table {
    ($(#[$doc:meta])* $vis:vis static $name:ident = {
        $($role:ident $schema:expr => $lowering:expr,)*
    }) => {
        $(#[$doc])*
        $vis static $name: &[$crate::aten::OpDef] = &[$($crate::aten::OpDef {
            schema: $schema,
            role: $crate::aten::Role::$role,
            lowering: $lowering,
            loc: ::maquette_ir::Loc { file: file!(), line: line!() },
        }),*];
    };
}
pub(crate) use table;

/// Whether a name is in the namespace of builtin operators, which nobody else registers.
pub fn is_builtin_name(op: &str) -> bool {
    op.starts_with("aten::")
}

/// Every table.
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
