//! Source information that a graph does not contain, for errors of a run.

use maquette_ir::Loc;
use maquette_ops::Error;

/// Lines of the traced program and names of its inputs, for error messages. The lines of nodes are
/// in the graph itself.
#[derive(Clone, Copy, Debug)]
pub struct SourceInfo<'a> {
    /// The line of each guard.
    pub guard_locs: &'a [Loc],
    /// The line of each assertion in the body, in order.
    pub assert_locs: &'a [Loc],
    /// The name of each input. If empty, messages use the graph's names.
    pub input_names: &'a [String],
    /// The line that started the run. It stands for nodes without a line.
    pub call_site: Loc,
}

impl SourceInfo<'_> {
    /// For a graph without a traced program, such as parsed text. The caller's line starts the run.
    #[track_caller]
    pub fn of_caller() -> SourceInfo<'static> {
        SourceInfo { guard_locs: &[], assert_locs: &[], input_names: &[], call_site: Loc::caller() }
    }

    /// Gives an error without a line the line that started the run.
    pub fn locate(&self, e: Error) -> Error {
        if e.loc().is_some() { e } else { e.at(self.call_site) }
    }
}
