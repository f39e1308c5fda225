//! Which well-known computation a nest is: the inverse of [`named`](super::named).
//!
//! A matcher reads parameters off a nest, builds the named nest with them, and compares the texts.
//! So a nest that differs in any operation, cast or order is not taken for another. The cost is
//! that of building and printing a few nests; most matchers look at the first stage and build none.
//!
//! A driver that has a kernel of its own for a computation asks once per nest, when it compiles the
//! nest.

mod contractions;
mod moves;
mod reductions;
mod rows;
mod template;
#[cfg(test)]
mod tests;

pub use contractions::{Attention, Convolution, Product};
pub use moves::{Fill, Pad, Select, Triangle};
pub use reductions::{Extremes, Norm, Reduce, Variance};
pub use rows::{LayerNorm, Scan, Softmax};

use super::LoopNest;

/// A well-known computation with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Recognised {
    /// The softmax of lines, or its logarithm.
    Softmax(Softmax),
    /// A reduction of one operand.
    Reduce(Reduce),
    /// Two extremes of one operand.
    Extremes(Extremes),
    /// Layer norm, with the statistics of its rows.
    LayerNorm(LayerNorm),
    /// Variances or standard deviations, with or without means.
    Variance(Variance),
    /// Vector norms.
    Norm(Norm),
    /// A product of matrices or vectors, or a batch of them.
    Product(Product),
    /// A convolution, or a transposed one.
    Convolution(Convolution),
    /// Scaled dot-product attention.
    Attention(Attention),
    /// Cumulative sums, products or extremes.
    Scan(Scan),
    /// One number in every element.
    Fill(Fill),
    /// Each element, cast to the dtype of the result.
    Copy,
    /// Elements or slices at the positions of an index.
    Select(Select),
    /// An operand with a constant around it.
    Pad(Pad),
    /// The triangles of matrices, with zeros elsewhere.
    Triangle(Triangle),
}

impl Recognised {
    /// The name of the computation.
    pub fn name(&self) -> &'static str {
        match self {
            Recognised::Softmax(_) => "softmax",
            Recognised::Reduce(_) => "reduce",
            Recognised::Extremes(_) => "extreme",
            Recognised::LayerNorm(_) => "layer_norm",
            Recognised::Variance(_) => "variance",
            Recognised::Norm(_) => "norm",
            Recognised::Product(_) => "product",
            Recognised::Convolution(_) => "convolution",
            Recognised::Attention(_) => "attention",
            Recognised::Scan(_) => "scan",
            Recognised::Fill(_) => "fill",
            Recognised::Copy => "copy",
            Recognised::Select(_) => "select",
            Recognised::Pad(_) => "pad",
            Recognised::Triangle(_) => "triangle",
        }
    }
}

/// Reads the parameters of one computation off a nest. `None` for every other nest.
type Matcher = fn(&LoopNest) -> Option<Recognised>;

const MATCHERS: [Matcher; 15] = [
    |nest| rows::softmax(nest).map(Recognised::Softmax),
    |nest| reductions::reduce(nest).map(Recognised::Reduce),
    |nest| reductions::extremes(nest).map(Recognised::Extremes),
    |nest| rows::layer_norm(nest).map(Recognised::LayerNorm),
    |nest| reductions::variance(nest).map(Recognised::Variance),
    |nest| reductions::norm(nest).map(Recognised::Norm),
    |nest| contractions::product(nest).map(Recognised::Product),
    |nest| contractions::convolution(nest).map(Recognised::Convolution),
    |nest| contractions::attention(nest).map(Recognised::Attention),
    |nest| rows::scan(nest).map(Recognised::Scan),
    |nest| moves::fill(nest).map(Recognised::Fill),
    |nest| moves::copy(nest).then_some(Recognised::Copy),
    |nest| moves::select(nest).map(Recognised::Select),
    |nest| moves::pad(nest).map(Recognised::Pad),
    |nest| moves::triangle(nest).map(Recognised::Triangle),
];

/// The computation of a nest, if it is a well-known one.
pub fn recognise(nest: &LoopNest) -> Option<Recognised> {
    MATCHERS.iter().find_map(|matcher| matcher(nest))
}
