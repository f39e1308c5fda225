//! A kernel of fused operators as data: what a device compiles once, for all sizes.

use crate::fused::FusionKind;
use crate::loops::Composition;
use crate::scalar_expr::ScalarExpr;

/// A kernel of fused operators. Its operands and results are those of its body, in their order.
/// Layouts, the values of symbols and numbers belong to a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelDef {
    /// How the operators are computed together.
    pub kind: FusionKind,
    /// The number of leading dimensions that all results have in common: the rows.
    pub outer: usize,
    /// What is computed.
    pub body: KernelBody,
}

/// What a kernel computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelBody {
    /// An expression, for each element of one index space.
    Elements(ScalarExpr),
    /// A loop nest.
    Nest(Composition),
}
