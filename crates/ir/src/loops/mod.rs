//! Loop nests: what an operator computes, as data.
//!
//! A [`LoopNest`] has axes, operands and stages. An axis is a loop with an extent. A stage
//! evaluates a [`ScalarExpr`] once for each point of its axes and combines the values by its
//! [`StageKind`]; the results of a stage form a tensor over axes, which later stages load. So
//! softmax has five stages: the maximum of a row, `exp(x - max)`, the sum of the row, `1 / sum`,
//! and the product.
//!
//! The form is near that of linalg in MLIR, whose operations have index maps, iterator kinds and a
//! scalar region; loads with computed positions are those of Inductor's loop IR.
//!
//! A nest is executed by `maquette-kernels`, and [`LoopNest::eval`] is the reference: slow, and
//! written to be obviously right. Every executor has its bits.
//!
//! # Positions
//!
//! A [`Load`] reads an operand or an earlier stage. Its [`IndexMap`] has an [`Index`] for each
//! dimension of the source: an affine function of the axes, or computed. An affine load is an
//! element of the expression, [`Op::Input`](crate::scalar_expr::Op::Input). A load with computed
//! dimensions is read by [`Op::Read`](crate::scalar_expr::Op::Read), whose registers are the
//! positions, with a policy for those out of bounds. The position of a broadcast dimension is 0.
//!
//! # Orders
//!
//! Floating-point sums depend on the order of addition, so the order is part of the description.
//! [`fold`] defines the orders of [`Order`], [`scan`] those of [`ScanOrder`], and `contract` that
//! of [`StageKind::Contract`]. They are the same on every device. An accumulator has the dtype of
//! the folded register: a sum of `bf16` in `f32` is a cast, a fold and a cast. A NaN that a fold,
//! scan or contraction gives is the one NaN of its dtype.

mod array;
mod build;
mod compose;
mod contract;
mod eval;
pub mod fold;
mod index;
pub mod named;
mod parse;
mod print;
pub mod recognise;
pub mod scan;
mod schedule;
mod sort;
mod verify;
pub mod work;

pub use array::Array;
pub use build::{LoopBuilder, StageBuilder};
pub use compose::{ComposedTensor, Composition, Extent, Extents};
pub use contract::{GROUP, SEGMENT};
pub use eval::EvalError;
pub use index::{Affine, Index, IndexMap};
pub use schedule::outer_axes;
pub use verify::{LoopError, UnprovenLoad};

use crate::DType;
use crate::scalar_expr::{BinaryOp, ScalarExpr};
use crate::sym::{Expr, SymTable};
use fold::{Fold, Order};
use scan::ScanOrder;
use smallvec::SmallVec;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as `usize`.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        })*
    };
}

ids! {
    /// An axis of a nest.
    AxisId
    /// An operand of a nest.
    OperandId
    /// A launch scalar of a nest.
    ScalarId
    /// A stage of a nest.
    StageId
}

/// Axes, outermost first.
pub type Axes = SmallVec<[AxisId; 4]>;

/// The computation of an operator; see the [module documentation](self). Built by [`LoopBuilder`]
/// or [`LoopNest::parse`], which verify each stage.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopNest {
    symbols: SymTable,
    axes: Vec<Expr>,
    operands: Vec<Operand>,
    scalars: Vec<LaunchScalar>,
    stages: Vec<Stage>,
    results: Vec<StageOutput>,
    messages: Vec<Box<str>>,
    unproven: Vec<UnprovenLoad>,
}

/// A tensor that a nest reads. Strides belong to a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The dtype.
    pub dtype: DType,
    /// The sizes, outermost dimension first.
    pub sizes: SmallVec<[Expr; 4]>,
}

/// A number that is known when a nest is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaunchScalar {
    /// The value of a size expression, an `i64`.
    Size(Expr),
    /// A number of this dtype, given with each launch. Another number needs no other nest.
    Number(DType),
}

impl LaunchScalar {
    /// The dtype.
    pub const fn dtype(self) -> DType {
        match self {
            LaunchScalar::Size(_) => DType::I64,
            LaunchScalar::Number(dtype) => dtype,
        }
    }
}

/// An output of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StageOutput {
    /// The stage.
    pub stage: StageId,
    /// The output: most stages have one.
    pub output: u8,
}

impl From<StageId> for StageOutput {
    fn from(stage: StageId) -> StageOutput {
        StageOutput { stage, output: 0 }
    }
}

/// A tensor that a load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An operand.
    Operand(OperandId),
    /// An output of an earlier stage.
    Stage(StageOutput),
}

impl From<OperandId> for Source {
    fn from(operand: OperandId) -> Source {
        Source::Operand(operand)
    }
}

impl From<StageOutput> for Source {
    fn from(output: StageOutput) -> Source {
        Source::Stage(output)
    }
}

impl From<StageId> for Source {
    fn from(stage: StageId) -> Source {
        Source::Stage(stage.into())
    }
}

/// A read of a source: input `k` of a stage's expression is its load `k`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// What is read.
    pub from: Source,
    /// Where.
    pub at: IndexMap,
}

/// One step of a nest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stage {
    /// The axes at whose points the expression is evaluated, in row-major order.
    pub over: Axes,
    /// What the expression reads.
    pub loads: SmallVec<[Load; 2]>,
    /// The expression.
    pub expr: ScalarExpr,
    /// What becomes of its outputs.
    pub kind: StageKind,
}

/// What a stage makes of the outputs of its expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StageKind {
    /// Each output is a tensor over the stage's axes.
    Map,
    /// The values at the points of some axes are folded. The outputs are tensors over the others.
    Reduce {
        /// The folded axes. Their points come in the order of the stage's axes.
        along: Axes,
        /// The fold.
        fold: Fold,
        /// The order of the fold.
        order: Order,
    },
    /// Inclusive scan: the output at a coordinate is the fold of the values up to it.
    Scan {
        /// The axis.
        along: AxisId,
        /// The fold; it has the same output as input dtypes.
        fold: Fold,
        /// The order in which values are combined.
        order: ScanOrder,
    },
    /// The sum of products of the two outputs, over some axes, in the
    /// [order of contractions](fold#contractions).
    Contract {
        /// The contracted axes.
        along: Axes,
    },
    /// A stable sort by the first output. Outputs are the sorted values and their coordinates along
    /// the axis, an `i64`. NaN is greater than every number.
    Sort {
        /// The axis that is sorted.
        along: AxisId,
        /// The axis that stands in its place: the first `extent` elements are kept.
        keep: AxisId,
        /// Whether the greatest comes first. Equal elements keep their order all the same.
        descending: bool,
    },
    /// A copy of a source into which the first output is combined, at the positions that the other
    /// outputs give, an `i64` for each dimension. Points come in row-major order. A position out of
    /// bounds is an error before anything is combined.
    Scatter {
        /// The source, read as a whole.
        into: Source,
        /// How a value is combined with the one in place.
        combine: Combine,
    },
}

/// How a scattered value is combined with the value in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// It replaces it.
    Replace,
    /// By an operation: old value, new value.
    Op(BinaryOp),
}

impl LoopNest {
    /// The table of the nest's sizes.
    pub fn symbols(&self) -> &SymTable {
        &self.symbols
    }

    /// The extents of the axes.
    pub fn axes(&self) -> &[Expr] {
        &self.axes
    }

    /// The extent of an axis; 0 for an axis that the nest does not have.
    pub fn extent(&self, axis: AxisId) -> Expr {
        self.axes.get(axis.index()).copied().unwrap_or(Expr::Int(0))
    }

    /// The operands.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// The launch scalars.
    pub fn scalars(&self) -> &[LaunchScalar] {
        &self.scalars
    }

    /// The stages, in an order in which each reads earlier ones alone.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The outputs of stages that are the results of the operator.
    pub fn results(&self) -> &[StageOutput] {
        &self.results
    }

    /// Whether the values of operands can make the nest fail: by a position out of bounds, an
    /// integer divided by zero, or an assertion that does not hold.
    pub fn may_fail(&self) -> bool {
        let fails = |stage: &Stage| {
            stage.expr.may_fail() || matches!(stage.kind, StageKind::Scatter { .. })
        };
        !self.messages.is_empty() || self.stages.iter().any(fails)
    }

    /// The messages of assertions.
    pub fn messages(&self) -> &[Box<str>] {
        &self.messages
    }

    /// The loads that a launch has to check, because the extents do not prove that they are inside
    /// their sources.
    pub fn unproven(&self) -> &[UnprovenLoad] {
        &self.unproven
    }

    /// A stage.
    pub fn stage(&self, id: StageId) -> Option<&Stage> {
        self.stages.get(id.index())
    }

    /// The dtype of an output of a stage; `None` if there is no such output.
    pub fn dtype(&self, of: StageOutput) -> Option<DType> {
        self.stage(of.stage)?.output_dtypes().into_iter().nth(of.output as usize)
    }

    /// The sizes of a stage's outputs; `None` if there is no such stage.
    pub fn sizes(&self, of: StageId) -> Option<SmallVec<[Expr; 4]>> {
        let stage = self.stage(of)?;
        match stage.kind {
            StageKind::Scatter { into, .. } => self.source(into).map(|(_, sizes)| sizes),
            _ => stage.axes().iter().map(|a| self.axes.get(a.index()).copied()).collect(),
        }
    }

    /// The dtype and sizes of a source; `None` if there is no such source.
    pub fn source(&self, from: Source) -> Option<(DType, SmallVec<[Expr; 4]>)> {
        match from {
            Source::Operand(o) => self.operands.get(o.index()).map(|o| (o.dtype, o.sizes.clone())),
            Source::Stage(output) => Some((self.dtype(output)?, self.sizes(output.stage)?)),
        }
    }
}

impl Stage {
    /// The axes of the outputs. Those of a scatter are the dimensions of its source instead, and
    /// the stage has none.
    pub fn axes(&self) -> Axes {
        let but = |left_out: &[AxisId]| {
            self.over.iter().copied().filter(|a| !left_out.contains(a)).collect()
        };
        match &self.kind {
            StageKind::Map | StageKind::Scan { .. } => self.over.clone(),
            StageKind::Reduce { along, .. } | StageKind::Contract { along } => but(along),
            StageKind::Sort { along, keep, .. } => {
                self.over.iter().map(|a| if a == along { *keep } else { *a }).collect()
            }
            StageKind::Scatter { .. } => Axes::new(),
        }
    }

    /// The dtypes of the outputs.
    pub fn output_dtypes(&self) -> SmallVec<[DType; 2]> {
        let values = self.expr.output_dtypes();
        match &self.kind {
            StageKind::Map => values.collect(),
            StageKind::Reduce { fold, .. } | StageKind::Scan { fold, .. } => {
                fold.output_dtypes(values)
            }
            StageKind::Contract { .. } | StageKind::Scatter { .. } => values.take(1).collect(),
            StageKind::Sort { .. } => values.take(1).chain([DType::I64]).collect(),
        }
    }
}
