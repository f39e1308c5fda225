//! The pass `functionalize`.

use crate::{Compilation, PassOptions, WhyUnplanned, target};
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;
use maquette_rewrite::functionalize;

/// Makes a program functional. A program without a functional form stays as it is.
pub(crate) fn run(compilation: &mut Compilation, options: &PassOptions<'_>) -> Result<()> {
    let ProgramForm::Original(graph) = &compilation.program else { return Ok(()) };
    match functionalize(graph, target::OPERATORS, &options.functionalize) {
        Ok(functional) => {
            let functional = ProgramForm::Functional(functional);
            let original = std::mem::replace(&mut compilation.program, functional);
            if let ProgramForm::Original(graph) = original {
                compilation.original = Some(graph);
            }
        }
        Err(e) => compilation.why_unplanned = Some(WhyUnplanned::Refused(e)),
    }
    Ok(())
}
