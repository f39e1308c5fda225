//! The schemas to which a graph binds its operators.
//!
//! A pass asks what an operator does now, and the graph was made for what it did then. So a graph
//! is refused if an operator was given another schema in between, and the schemas pass on to the
//! functional graph, whose runs check them again. For a graph of text, which carries no schemas,
//! the first pass binds those of today.

use crate::error::{FunctionalizeError, Reason};
use maquette_ir::functional_ops::{CALL, Callee};
use maquette_ir::graph::{Graph, OpFacts, Stmt};
use maquette_ir::schema::Schema;
use std::sync::Arc;

/// The operators of a graph that can be defined anew, with their schemas.
///
/// # Errors
/// An operator has another schema than the graph was made for.
pub(crate) fn bound_schemas<'g>(
    graph: &'g Graph,
    facts: &dyn OpFacts,
) -> Result<Vec<(&'g str, Arc<Schema>)>, FunctionalizeError> {
    let (mut seen, mut schemas): (Vec<bool>, _) = (Vec::new(), Vec::new());
    for (at, stmt) in graph.body().iter().enumerate() {
        let Stmt::Node(node) = *stmt else { continue };
        if seen.get(graph.op(node).index()) == Some(&true) {
            continue;
        }
        let callee = Callee::of(graph, node);
        let index = callee.id.index();
        if index >= seen.len() {
            seen.resize(index + 1, false);
        }
        // each node of `ir::call` names its own operator, so that name is never marked
        if std::mem::replace(&mut seen[index], callee.op != CALL) {
            continue;
        }
        let found = facts.custom_schema(callee.op);
        if let Some(found) = &found {
            graph.require_bound_schema(callee.id, found).map_err(|redefined| {
                FunctionalizeError::from(Reason::from(redefined)).at_statement(graph, at)
            })?;
        }
        if let Some(schema) = graph.bound_schema(callee.id).cloned().or(found) {
            schemas.push((callee.op, schema));
        }
    }
    Ok(schemas)
}
