//! Source information that a graph does not contain, for errors of a run.

use maquette_ir::Loc;
use maquette_ops::Error;

/// Names of the inputs and the line of a run, for error messages. The lines of nodes, guards and
/// assertions are in the graph itself.
#[derive(Clone, Copy, Debug)]
pub struct SourceInfo<'a> {
    /// The name of each input. If empty, messages use the graph's names.
    pub input_names: &'a [String],
    /// The line that started the run. It stands for nodes without a line.
    pub call_site: Loc,
}

impl SourceInfo<'_> {
    /// For a graph without a traced program, such as parsed text. The caller's line starts the run.
    #[track_caller]
    pub fn of_caller() -> SourceInfo<'static> {
        SourceInfo { input_names: &[], call_site: Loc::caller() }
    }

    /// Gives an error without a line the line that started the run.
    pub fn locate(&self, e: Error) -> Error {
        if e.loc().is_some() { e } else { e.at(self.call_site) }
    }
}
