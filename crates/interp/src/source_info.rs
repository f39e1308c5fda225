//! What errors of a run can say of the program beside its graph.

use maquette_ir::Loc;
use maquette_ops::Error;

/// Names of inputs and the line of a run, for messages about it. The graph itself knows the lines
/// of its nodes, guards and assertions.
#[derive(Clone, Copy, Debug)]
pub struct SourceInfo<'a> {
    /// By input; the graph's names where there are none.
    pub input_names: &'a [String],
    /// Where the run was asked for: the line of nodes that have none.
    pub call_site: Loc,
}

impl SourceInfo<'_> {
    /// For a graph without a program, run by the caller.
    #[track_caller]
    pub fn of_caller() -> SourceInfo<'static> {
        SourceInfo { input_names: &[], call_site: Loc::caller() }
    }

    /// Gives an error without a line the line where the run was asked for.
    pub fn locate(&self, e: Error) -> Error {
        if e.loc().is_some() { e } else { e.at(self.call_site) }
    }
}
