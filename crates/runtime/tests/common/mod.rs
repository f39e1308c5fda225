//! Programs of graph texts in planned memory, and executables of them.
#![allow(dead_code)]

use maquette_interp::ExecutionMode;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;
use maquette_ops::library::Facts;
use maquette_pipeline::{PassOptions, compile_planned};
use maquette_rewrite::{Options, functionalize, plan};
use maquette_runtime::Executable;
use std::borrow::Cow;

/// The functional program of a graph in planned memory, before the passes that take such a program.
pub fn planned(text: &str) -> ExecutionMode<'static> {
    let graph: Graph = text.parse().unwrap();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    ExecutionMode::Buffered(Cow::Owned(functional), Cow::Owned(plan))
}

/// The executable of a program in planned memory, after these passes.
pub fn try_fused(mode: ExecutionMode<'_>) -> Result<Executable> {
    let ProgramForm::Planned(planned) = ProgramForm::from(mode) else { panic!("no plan") };
    let made = compile_planned(planned.program, planned.plan, &PassOptions::new())?;
    Executable::new(made.program)
}

/// As [`try_fused`], for a valid plan.
pub fn fused(mode: &ExecutionMode<'_>) -> Executable {
    try_fused(mode.into()).unwrap()
}
