//! What errors of a run can say of the program beside its graph.

use maquette_ir::Loc;
use maquette_ops::Error;

/// Lines of the program and names of inputs, for messages about a run. The graph itself knows the
/// lines of its nodes.
#[derive(Clone, Copy, Debug)]
pub struct SourceInfo<'a> {
    /// By guard.
    pub guard_locs: &'a [Loc],
    /// By assertion in the body.
    pub assert_locs: &'a [Loc],
    /// By input; the graph's names where there are none.
    pub input_names: &'a [String],
    /// Where the run was asked for: the line of nodes that have none.
    pub call_site: Loc,
}

impl SourceInfo<'_> {
    /// For a graph without a program, run by the caller.
    #[track_caller]
    pub fn of_caller() -> SourceInfo<'static> {
        SourceInfo { guard_locs: &[], assert_locs: &[], input_names: &[], call_site: Loc::caller() }
    }

    /// Gives an error without a line the line where the run was asked for.
    pub fn locate(&self, e: Error) -> Error {
        if e.loc().is_some() { e } else { e.at(self.call_site) }
    }
}
