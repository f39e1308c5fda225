//! A program on its way through the passes, and what they report.

use crate::decompose::KeptComposite;
use crate::{AttentionExplanation, Observer, Pass, PassOptions, RecomputeExplanation};
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::{Op, Result};
use maquette_rewrite::FunctionalizeError;

/// What the passes made of a graph, and what they say about it.
#[derive(Clone, Debug)]
pub struct Compilation {
    /// The program.
    pub program: ProgramForm,
    /// The composites that stayed, in program order.
    pub kept: Vec<KeptComposite>,
    /// Operators on which the program depends although it may not call them: those whose
    /// registrations decided on a rewrite, and composites that were replaced.
    pub deciding: Vec<Op>,
    /// The attentions that were recognised, if [`FastMath`](crate::FastMath) allows it.
    pub attention: Option<AttentionExplanation>,
    /// What is computed again, if it was asked for, and the program has a plan.
    pub recomputed: Option<RecomputeExplanation>,
    /// Why the program has no functional form or no plan, if it was to have one.
    pub why_unplanned: Option<WhyUnplanned>,
    /// The graph from which the functional program was made.
    pub(crate) original: Option<Graph>,
    /// The last pass that ran.
    last: Option<Pass>,
}

/// Why a program runs as it was traced.
#[derive(Clone, Debug)]
pub enum WhyUnplanned {
    /// It has no functional form, or the planner refused it.
    Refused(FunctionalizeError),
    /// No plan is known to copy as little as the program itself.
    Copies,
}

impl Compilation {
    /// Of a program that no pass has seen.
    pub(crate) fn of(program: ProgramForm) -> Compilation {
        Compilation {
            program,
            kept: Vec::new(),
            deciding: Vec::new(),
            attention: None,
            recomputed: None,
            why_unplanned: None,
            original: None,
            last: None,
        }
    }

    /// Runs the passes after the one at which the list [ended](PassOptions::until), which none has
    /// seen yet. Several results of one prefix of the list are made of clones.
    ///
    /// # Errors
    /// As [`compile_observed`](crate::compile_observed).
    pub fn resume(
        self,
        options: &PassOptions<'_>,
        observer: &mut Observer<'_>,
    ) -> Result<Compilation> {
        let passes = self.last.map_or(Pass::ALL, Pass::later);
        self.run(passes, options, observer)
    }

    /// Runs passes, in their order.
    ///
    /// # Errors
    /// The program is not valid, or the observer's.
    pub(crate) fn run(
        mut self,
        passes: &[Pass],
        options: &PassOptions<'_>,
        observer: &mut Observer<'_>,
    ) -> Result<Compilation> {
        for &pass in passes {
            pass.run(&mut self, options)?;
            self.last = Some(pass);
            if observer(pass, &self.program)?.is_break() || options.until == Some(pass) {
                break;
            }
        }
        Ok(self)
    }
}
