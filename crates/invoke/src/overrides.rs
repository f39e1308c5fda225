//! Overrides of operators on which a graph relies although it does not call them.

use maquette_ir::Loc;
use maquette_ir::graph::{Arg, Def, Graph, NodeId, ViewSource};
use maquette_ops::library::builtins_changed;
use maquette_ops::{Error, Op, Result, RunError};

/// Checks that nothing overrides the operators whose results became views of values, and the
/// operator that copies the data which a program creates. `viewers` are those of the
/// [`FunctionalGraph`](maquette_ir::functional_program::FunctionalGraph).
///
/// # Errors
/// The first operator that is overridden, with the line of its first call.
pub fn check_overrides(graph: &Graph, viewers: &[(String, Option<Loc>)]) -> Result<()> {
    if !builtins_changed() {
        return Ok(());
    }
    let overridden = |(op, _): &&(String, Option<Loc>)| {
        Op::find(op).is_ok_and(|op| op.view_source() == ViewSource::Kernel)
    };
    let at = |e: RunError, loc: Option<Loc>| match loc {
        Some(loc) => Err(Error::from(e).at(loc)),
        None => Err(e.into()),
    };
    if let Some((op, loc)) = viewers.iter().find(overridden) {
        let graph = graph.name().to_owned();
        return at(RunError::OverriddenView { graph, op: op.clone() }, *loc);
    }
    let copy = Op::lift_fresh_copy()?;
    if copy.is_plain_builtin() {
        return Ok(());
    }
    let of_constant = |node: &NodeId| {
        let arg = graph.args(*node).first();
        graph.op_name(*node) == copy.name()
            && matches!(arg, Some(Arg::Value(v)) if matches!(graph.def(*v), Def::Const(_)))
    };
    match graph.nodes().find(of_constant) {
        Some(node) => at(RunError::OverriddenData { op: copy.name() }, graph.loc(node)),
        None => Ok(()),
    }
}
