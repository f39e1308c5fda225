//! Chooses a plan that copies no more than the original program, or none.

use crate::bufferize::plan;
use crate::error::FunctionalizeError;
use crate::{Level, Options, functionalize};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::{ExecutionMode, FunctionalGraph};
use maquette_ir::graph::{Graph, OpFacts};
use std::borrow::Cow;

/// Makes a program functional and plans it, as it was rewritten or as it was lifted: first
/// [`functionalize()`], then [`select_plan`]. If there is no plan, the original program runs.
///
/// # Errors
/// As [`functionalize()`].
pub fn functionalize_in_place(
    graph: &Graph,
    facts: &dyn OpFacts,
    options: &Options,
) -> Result<ExecutionMode<'static>, FunctionalizeError> {
    let functional = functionalize(graph, facts, options)?;
    Ok(match select_plan(graph, functional, facts, options)? {
        Some((functional, plan)) => {
            ExecutionMode::Buffered(Cow::Owned(functional), Cow::Owned(plan))
        }
        None => ExecutionMode::Original(Cow::Owned(graph.clone())),
    })
}

/// Plans a functional program as it was rewritten, and as it is when its original, `graph`, is only
/// lifted. Of the plans that provably [copy no more](FunctionalGraph::within_eager_copies) elements
/// than the original program, it takes the one that writes fewer elements, copied and computed.
/// `None` if there is no such plan.
///
/// # Errors
/// The functional graph is not valid.
pub fn select_plan(
    graph: &Graph,
    functional: FunctionalGraph,
    facts: &dyn OpFacts,
    options: &Options,
) -> Result<Option<(FunctionalGraph, BufferPlan)>, FunctionalizeError> {
    let planned = |functional: FunctionalGraph| {
        let plan = plan(&functional, facts)?;
        let within_bound = functional.within_eager_copies(&plan);
        Ok::<_, FunctionalizeError>(within_bound.then_some((functional, plan)))
    };
    let lifted = || planned(functionalize(graph, facts, &options.clone().level(Level::LiftOnly))?);
    let first = planned(functional)?;
    let writes = |(_, plan): &(FunctionalGraph, BufferPlan)| plan.cost.estimate.written();
    let copies_nothing = |(functional, plan): &(FunctionalGraph, BufferPlan)| {
        functional.copies_at_most(plan) == Some(0)
    };
    Ok(match first {
        // a second plan could not copy less
        Some(best) if copies_nothing(&best) || options.level == Level::LiftOnly => Some(best),
        None if options.level == Level::LiftOnly => None,
        // the lifted program may be refused although the rewritten one is not
        rewritten => rewritten.into_iter().chain(lifted().ok().flatten()).min_by_key(writes),
    })
}
