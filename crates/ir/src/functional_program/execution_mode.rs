//! The ways to execute one program.

use super::FunctionalGraph;
use crate::buffer_plan::BufferPlan;
use crate::graph::Graph;
use std::borrow::Cow;

/// How a program is executed.
///
/// A pass that selects a mode returns it owned; a caller who has the parts lends them:
/// `ExecutionMode::from(&graph)`, `ExecutionMode::from((&functional, &plan))`.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for a program, and none is stored often"
)]
pub enum ExecutionMode<'a> {
    /// The program as it was traced: operators that mutate write in place. It accepts inputs that
    /// share memory in any way.
    Original(Cow<'a, Graph>),
    /// The functional graph in new memory. Results are then written back and laid out as the
    /// original program would leave them.
    Functional(Cow<'a, FunctionalGraph>),
    /// The functional graph in the memory of a plan: only the plan's copies are made.
    Buffered(Cow<'a, FunctionalGraph>, Cow<'a, BufferPlan>),
}

impl<'a> From<&'a Graph> for ExecutionMode<'a> {
    fn from(graph: &'a Graph) -> Self {
        ExecutionMode::Original(Cow::Borrowed(graph))
    }
}

impl<'a> From<&'a FunctionalGraph> for ExecutionMode<'a> {
    fn from(functional: &'a FunctionalGraph) -> Self {
        ExecutionMode::Functional(Cow::Borrowed(functional))
    }
}

impl<'a> From<(&'a FunctionalGraph, &'a BufferPlan)> for ExecutionMode<'a> {
    fn from((functional, plan): (&'a FunctionalGraph, &'a BufferPlan)) -> Self {
        ExecutionMode::Buffered(Cow::Borrowed(functional), Cow::Borrowed(plan))
    }
}

impl<'a> From<&'a ExecutionMode<'_>> for ExecutionMode<'a> {
    fn from(mode: &'a ExecutionMode<'_>) -> Self {
        match mode {
            ExecutionMode::Original(graph) => ExecutionMode::from(&**graph),
            ExecutionMode::Functional(functional) => ExecutionMode::from(&**functional),
            ExecutionMode::Buffered(functional, plan) => {
                ExecutionMode::from((&**functional, &**plan))
            }
        }
    }
}
