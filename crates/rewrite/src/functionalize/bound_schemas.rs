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
        match (graph.bound_schema(callee.id), facts.custom_schema(callee.op)) {
            (Some(bound), Some(found)) if *bound != found => {
                let (bound, found) = (bound.to_string(), found.to_string());
                let error = FunctionalizeError::from(Reason::Redefined { bound, found });
                return Err(error.at_statement(graph, at));
            }
            (Some(schema), _) => schemas.push((callee.op, schema.clone())),
            (None, Some(schema)) => schemas.push((callee.op, schema)),
            (None, None) => {}
        }
    }
    Ok(schemas)
}
