//! Errors of runs: what they say of the graph, and what refuses a run.

use crate::source_info::SourceInfo;
use maquette_ir::functional_ops::Callee;
use maquette_ir::graph::{Graph, Stmt};
use maquette_ops::{Error, Result, RunError, TraceError, autocast_dtype, internals, mode};

/// How many statements of the graph an error shows on each side.
const WINDOW: usize = 2;

/// Adds the graph's text around statement `at` to an error. The error then names the operator that
/// the program called.
pub fn in_window(graph: &Graph, e: Error, at: usize) -> Error {
    let e = match graph.body().get(at) {
        Some(Stmt::Node(node)) => e
            .called_as(Callee::of(graph, *node).op, graph.called_op(*node))
            .in_scope(graph.scope(*node)),
        _ => e,
    };
    e.in_statement(at, graph.window_at(at, WINDOW))
}

/// The error of a plan whose parts do not fit its graph.
pub fn wrong_graph() -> Error {
    Error::msg("the plan belongs to another graph")
}

/// The error of a layout beyond `i64`.
#[cold]
pub fn too_large() -> Error {
    Error::msg("a tensor of the program is larger than memory")
}

/// Runs a graph, outside of the modes of this thread. A graph does not depend on them: what they
/// would change is in its nodes.
///
/// # Errors
/// The error of the run; one without a line gets that of `source_info`. A trace is running on this
/// thread, or `autocast` is.
pub fn outside_modes<R>(
    source_info: &SourceInfo<'_>,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    if mode::is_active() {
        return Err(mode::failed(Error::from(TraceError::Run).at(source_info.call_site)));
    }
    if autocast_dtype().is_some() {
        return Err(Error::from(RunError::Autocast).at(source_info.call_site));
    }
    internals::without_modes(run).map_err(|e| source_info.locate(e))
}
