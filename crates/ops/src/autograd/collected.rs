//! Gradients that a sweep adds to in place.
//!
//! The gradients of several views of a base are parts of one tensor. The first is written into
//! zeros; the others are added where they are, so that a base of many parts costs one tensor.
//!
//! **Invariant:** the sweep alone has a handle to such a tensor. It is a fresh tensor of a rule
//! that says so, and no hook has seen it yet. Where gradients are recorded, nothing is added in
//! place. A sum of it and of another gradient may lie in another order in memory, and does not
//! count.

use super::grad_mode::is_grad_enabled;
use crate::error::Result;
use crate::tensor::Tensor;

/// The gradient that a sweep has collected for the first operand of a node, while the node's rule
/// runs.
#[derive(Default)]
pub(crate) struct Collected {
    /// The sum so far, if the sweep alone has it and the rule has not added to it.
    pub(crate) sum: Option<Tensor>,
    /// Whether the rule's gradient of the first operand is a fresh tensor.
    pub(crate) is_fresh: bool,
}

impl Collected {
    /// Gives a rule the sum so far. What it returns is that sum with its gradient added, or a fresh
    /// tensor.
    ///
    /// # Errors
    /// Those of the rule.
    pub(crate) fn add(
        &mut self,
        rule: impl FnOnce(Option<Tensor>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let sum = if is_grad_enabled() { None } else { self.sum.take() };
        self.is_fresh = true;
        rule(sum)
    }
}
