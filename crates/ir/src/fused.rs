//! Fused programs: functional programs in which operators that are computed together are one node.
//!
//! A *region* is a set of nodes of a functional graph that one kernel computes. In the fused graph
//! it is a node `ir::fused`, which takes the tensors and the integers that the region reads, and
//! returns the values that something outside of it reads. The other values of a region have no
//! memory. A fused graph is planned like every other functional graph.
//!
//! **Invariants.** An *ordered* operator has an effect, draws random numbers, or may fail depending
//! on data. Of these, only builtin operators that may fail are members of regions. No ordered
//! operator outside of a region, assertion or binding stands between two of its members. So a run
//! of the fused program has the values, the effects and the errors of the original, in the same
//! order: where the kernel of a region fails, its first operator that fails has the error. For
//! that, the kernel leaves what it reads as it is. No path of the graph leaves a region and comes
//! back to it.

use crate::functional_ops::VIEW;
use crate::functional_program::FunctionalGraph;
use crate::graph::{Graph, NodeId, ValueId};
use crate::sym::Expr;
use std::fmt;

/// A functional program and its fused form.
#[derive(Clone, Debug)]
pub struct FusedProgram {
    /// The program before fusion.
    pub original: FunctionalGraph,
    /// The program whose regions are nodes.
    pub program: FunctionalGraph,
    /// The regions, by the number that the nodes name.
    pub regions: Vec<FusedRegion>,
    /// Products that are in one region because they share a factor.
    pub joined: Vec<ProductPair>,
    /// The edges between operators of which no region has both ends, and the products that share a
    /// factor and are apart, in the order of the consumers.
    pub refusals: Vec<Refusal>,
}

/// Two products that share their left factor, neighbours in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductPair {
    /// The first product.
    pub first: NodeId,
    /// The second product.
    pub second: NodeId,
}

impl ProductPair {
    /// Why both are apart.
    pub fn refusal(&self, reason: NoFusionReason) -> Refusal {
        Refusal { producer: self.first, consumer: self.second, reason }
    }
}

/// The nodes that one kernel computes. Ids and expressions are those of the original graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FusedRegion {
    /// How the region is computed.
    pub kind: FusionKind,
    /// The number of leading dimensions that all results have in common: the rows.
    pub outer: usize,
    /// The nodes, in program order.
    pub nodes: Vec<NodeId>,
    /// The tensors that it reads, in the order of the node's operands.
    pub operands: Vec<ValueId>,
    /// The integers among its operators' arguments that are not constants, in the order of the
    /// node's.
    pub integers: Vec<Expr>,
    /// The values that something outside reads, in the order of the node's results.
    pub results: Vec<ValueId>,
    /// For a product or a convolution: pairs of an operand and of a result that may be written over
    /// it, since only elementwise operators read the operand, at the positions of the result and
    /// before it.
    pub overwrites: Vec<(usize, usize)>,
    /// Whether an operator may fail, depending on data. Then no result may be written over an
    /// operand, since the operators read them again to find the error.
    pub may_fail: bool,
}

/// How a region is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusionKind {
    /// By one expression for each element of one index space.
    Elements,
    /// By a loop nest whose stages run for each row: each coordinate of the leading dimensions that
    /// all results have in common.
    Rows,
    /// By a loop nest of maps, whose result has one index space.
    Maps,
    /// By products of matrices that have one left factor, and maps over their elements.
    Product,
    /// By a convolution, and maps over its elements. The input is the first operand.
    Convolution,
}

impl FusionKind {
    /// The name in graph text.
    pub const fn name(self) -> &'static str {
        match self {
            FusionKind::Elements => "elements",
            FusionKind::Rows => "rows",
            FusionKind::Maps => "maps",
            FusionKind::Product => "product",
            FusionKind::Convolution => "convolution",
        }
    }

    /// Whether maps follow a contraction, whose elements they take.
    pub const fn is_contraction(self) -> bool {
        matches!(self, FusionKind::Product | FusionKind::Convolution)
    }

    /// The kind of a name.
    pub fn named(name: &str) -> Option<FusionKind> {
        let kinds = [
            FusionKind::Elements,
            FusionKind::Rows,
            FusionKind::Maps,
            FusionKind::Product,
            FusionKind::Convolution,
        ];
        kinds.into_iter().find(|kind| kind.name() == name)
    }
}

/// What fusion has to know of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionClass {
    /// Each element of the only result depends on elements of the operands at its position, with
    /// broadcasting.
    Elements,
    /// A loop nest that computes each coordinate of the leading dimensions on its own.
    Rows {
        /// The number of these dimensions.
        outer: usize,
    },
    /// A loop nest of maps with one result.
    Maps,
    /// A product of matrices.
    Product {
        /// Which of the tensors that the node reads is the left factor, if that is known.
        left: Option<usize>,
    },
    /// A convolution.
    Convolution,
}

/// How a node can be fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusible {
    /// What its kernel is like.
    pub class: FusionClass,
    /// Whether it may fail, depending on data. Then it is no [`FusionClass::Elements`], whose
    /// results may be written over operands.
    pub may_fail: bool,
    /// With what it is computed in less time than alone.
    pub gain: Gain,
}

impl From<FusionClass> for Fusible {
    fn from(class: FusionClass) -> Fusible {
        Fusible { class, may_fail: false, gain: Gain::Always }
    }
}

/// With what an operator is computed in less time than alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// With all that it can be fused with.
    Always,
    /// With a reduction, a scan or a norm by rows. Alone it copies whole rows, or takes so long for
    /// an element that a transfer counts for little.
    WithFold,
    /// With nothing.
    Never,
}

/// Facts about operators for fusion.
pub trait FusionFacts {
    /// How a node of a functional graph can be fused.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn class(&self, graph: &Graph, node: NodeId) -> Result<Fusible, NoFusionReason>;

    /// Whether products that share their left factor are computed together.
    fn joins_products(&self) -> bool;

    /// Whether there is a kernel for a region, for sizes that runs may have.
    fn has_kernel(&self, graph: &Graph, region: &FusedRegion) -> bool;
}

/// An edge between operators that are not computed together, or two products that share a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The operator that computes the value, or the first product.
    pub producer: NodeId,
    /// The operator that reads it, or the second product.
    pub consumer: NodeId,
    /// Why.
    pub reason: NoFusionReason,
}

/// Why two operators are not computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoFusionReason {
    /// One of them is custom, or a function that is not a loop nest.
    Opaque,
    /// One of them is overridden.
    Overridden,
    /// One of them may fail, depending on data, and has no kernel with others, or one kernel for
    /// both might leave other memory behind where it fails.
    Assert,
    /// An ordered operator or an assertion is between them, or one of them has an effect or draws
    /// random numbers.
    Effect,
    /// A size of one of them depends on data.
    SizeFromData,
    /// They have no rows in common.
    OtherRows,
    /// One of them is a view other than a reshape, or a copy, which no kernel takes up yet.
    NotAffine,
    /// The kernel of one of them is faster alone.
    LosesSpecialisation,
    /// One of them is computed again, later than the other.
    Barrier,
    /// What one of them reads is overwritten between them.
    Written,
    /// An operator outside would have to run between them.
    Cycle,
    /// The region would be too large.
    Limits,
    /// Many operators are between two products that share a factor.
    TooDistant,
    /// Values would be in memory for longer if two products that share a factor were one kernel.
    Lifetimes,
    /// No kernel computes the region, for example one of tensors without elements.
    NoKernel,
}

impl fmt::Display for NoFusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoFusionReason::Opaque => "one of them is not a loop nest",
            NoFusionReason::Overridden => "one of them is overridden",
            NoFusionReason::Assert => "one of them may fail, depending on data",
            NoFusionReason::Effect => {
                "an effect, an assertion or an operator that may fail is between them"
            }
            NoFusionReason::SizeFromData => "a size of one of them depends on data",
            NoFusionReason::OtherRows => "they have no rows in common",
            NoFusionReason::NotAffine => "one of them only moves elements",
            NoFusionReason::LosesSpecialisation => "the kernel of one of them is faster alone",
            NoFusionReason::Barrier => "one of them is computed again, to save memory",
            NoFusionReason::Written => "what one of them reads is overwritten between them",
            NoFusionReason::Cycle => "another operator has to run between them",
            NoFusionReason::Limits => "one kernel for both would be too large",
            NoFusionReason::TooDistant => "many operators are between them",
            NoFusionReason::Lifetimes => "values would be in memory for longer",
            NoFusionReason::NoKernel => "no kernel computes both for these sizes",
        })
    }
}

impl FusedRegion {
    /// The edges between its operators, for a region that is given up.
    pub fn refusals(&self, graph: &Graph, reason: NoFusionReason) -> Vec<Refusal> {
        let mut refusals: Vec<Refusal> = Vec::new();
        let is_view = |node: NodeId| graph.op_name(node) == VIEW;
        let own = |v: ValueId| graph.producer(v).filter(|p| self.nodes.binary_search(p).is_ok());
        for &consumer in self.nodes.iter().filter(|node| !is_view(**node)) {
            graph.for_each_operand(consumer, |v| {
                let mut producer = own(v);
                while let Some(view) = producer.filter(|node| is_view(*node)) {
                    let mut base = None;
                    graph.for_each_operand(view, |v| base = own(v));
                    producer = base;
                }
                refusals.extend(producer.map(|producer| Refusal { producer, consumer, reason }));
            });
        }
        refusals.dedup();
        refusals
    }
}

impl FusedProgram {
    /// A region in a line: its kind, and the names of its operators.
    pub fn describe_region(&self, region: usize) -> String {
        let Some(FusedRegion { kind, nodes, .. }) = self.regions.get(region) else {
            return String::new();
        };
        let names = nodes.iter().map(|node| self.original.graph.op_name(*node));
        let names = names.filter(|name| *name != VIEW);
        format!("{}: {}", kind.name(), names.collect::<Vec<_>>().join(", "))
    }
}
