//! The forms of a program between tracing and execution: as it was traced, functional, in planned
//! memory, and fused.
//!
//! Passes turn one form into the next, and every form can run. An executable is made of the form
//! that the last pass leaves. So this type is what passes and a runtime have in common: neither
//! needs the other.
//!
//! An [`ExecutionMode`] names what the reference interpreter can run, which knows no fused program.
//! [`ProgramForm::mode`] is the way from a form to a mode.

use crate::buffer_plan::BufferPlan;
use crate::functional_program::{ExecutionMode, FunctionalGraph};
use crate::fused::{FusedProgram, Refusal};
use crate::graph::Graph;

/// A program in one of its forms.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for a program, and none is stored often"
)]
pub enum ProgramForm {
    /// As it was traced or written: operators that mutate write in place.
    Original(Graph),
    /// A functional graph, whose values have new memory.
    Functional(FunctionalGraph),
    /// A functional graph in planned memory.
    Planned(Box<PlannedProgram>),
}

/// A functional program in the memory of a plan, and its fused form.
#[derive(Clone, Debug)]
pub struct PlannedProgram {
    /// The program before fusion.
    pub program: FunctionalGraph,
    /// Its plan.
    pub plan: BufferPlan,
    /// The fused program with its plan, if operators are fused. Where a region has no kernel for
    /// the sizes of a call, the program before fusion runs.
    pub fused: Option<(FusedProgram, BufferPlan)>,
    /// The edges between operators that are not fused, if there is no fused program.
    pub refusals: Vec<Refusal>,
}

impl PlannedProgram {
    /// A program in planned memory, not fused.
    pub fn new(program: FunctionalGraph, plan: BufferPlan) -> PlannedProgram {
        PlannedProgram { program, plan, fused: None, refusals: Vec::new() }
    }
}

impl ProgramForm {
    /// A program in planned memory, not fused.
    pub fn planned(program: FunctionalGraph, plan: BufferPlan) -> ProgramForm {
        ProgramForm::Planned(Box::new(PlannedProgram::new(program, plan)))
    }

    /// The graph. Of a fused program, the one in which each region is a node.
    pub fn graph(&self) -> &Graph {
        match self {
            ProgramForm::Original(graph) => graph,
            ProgramForm::Functional(program) => &program.graph,
            ProgramForm::Planned(planned) => match &planned.fused {
                Some((fused, _)) => &fused.program.graph,
                None => &planned.program.graph,
            },
        }
    }

    /// How the reference interpreter executes the program: before fusion.
    pub fn mode(&self) -> ExecutionMode<'_> {
        match self {
            ProgramForm::Original(graph) => graph.into(),
            ProgramForm::Functional(program) => program.into(),
            ProgramForm::Planned(planned) => (&planned.program, &planned.plan).into(),
        }
    }
}

/// The program that a mode executes. It is not fused.
impl From<ExecutionMode<'_>> for ProgramForm {
    fn from(mode: ExecutionMode<'_>) -> ProgramForm {
        match mode {
            ExecutionMode::Original(graph) => ProgramForm::Original(graph.into_owned()),
            ExecutionMode::Functional(program) => ProgramForm::Functional(program.into_owned()),
            ExecutionMode::Buffered(program, plan) => {
                ProgramForm::planned(program.into_owned(), plan.into_owned())
            }
        }
    }
}
