//! What runs a compiled program.
//!
//! The program runs compiled, in the memory of a buffer plan, where there is one that copies no
//! more than the eager program. Otherwise it runs as it was traced, decomposed.

use super::CompileOptions;
use super::sharing::SharingGuard;
use crate::operators::add_ops;
use maquette_invoke::SourceInfo;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::{Error, Op, Result, Value};
use maquette_pipeline::{
    AttentionExplanation, Compilation, KeptComposite, Pass, PassOptions, RecomputeExplanation,
    WhyUnplanned, compile_observed,
};
use maquette_runtime::memory_map::BufferMemory;
use maquette_runtime::{Executable, LayoutStamp};
use std::ops::ControlFlow;

/// Runs a program on values.
#[derive(Debug)]
pub(crate) struct Executor {
    executable: Executable,
    description: String,
    recomputed: Option<RecomputeExplanation>,
}

/// What is made of a traced graph.
pub(crate) struct Prepared {
    pub executor: Executor,
    /// The graph, decomposed.
    pub graph: Graph,
    pub sharing: SharingGuard,
    /// The composites that stayed.
    pub kept: Vec<KeptComposite>,
    /// The attentions that were recognised, if it was allowed.
    pub attention: Option<AttentionExplanation>,
    /// The operators whose registrations decided on the graph, and those that were replaced.
    pub deciding: Vec<Op>,
}

impl Executor {
    /// Prepares a traced graph. `sharing` makes the guard of the decomposed graph: a program whose
    /// inputs share memory that it writes runs as it was traced. `inputs` are those of the call,
    /// for whose sizes memory is measured if values are to be computed again.
    ///
    /// # Errors
    /// The program cannot be run, or the guard cannot be made.
    pub(crate) fn prepare(
        traced: &Graph,
        options: &CompileOptions,
        sharing: &dyn Fn(&Graph) -> Result<SharingGuard>,
        inputs: &dyn Fn() -> Vec<Value>,
    ) -> Result<Prepared> {
        let memory = |program: ProgramForm| Ok(memory_bytes(&Executable::new(program)?, &inputs()));
        let mut passes = PassOptions::new().fast_math(options.fast_math).measured_by(&memory);
        if let Some(options) = options.rematerialize {
            passes = passes.rematerialize(options);
        }
        let (mut decomposed, mut description) = (None, String::new());
        let compilation = compile_observed(traced, &passes, &mut |pass, program| {
            match (pass, program) {
                (Pass::Decompose, ProgramForm::Original(graph)) => {
                    let guard = sharing(graph)?;
                    let shared = guard.shared;
                    decomposed = Some((graph.clone(), guard));
                    if shared {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                (Pass::SelectPlan, ProgramForm::Planned(planned)) => {
                    description = format!(
                        "{}, in planned memory of {}",
                        count(planned.program.graph.node_count(), "node"),
                        count(planned.plan.buffers.len(), "buffer")
                    );
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let Compilation { program, kept, deciding, attention, recomputed, why_unplanned, .. } =
            compilation;
        let missing = || Error::msg("no pass has decomposed the program");
        let (graph, sharing) = decomposed.ok_or_else(missing)?;
        if let ProgramForm::Original(graph) = &program {
            let why = match &why_unplanned {
                None => "inputs share memory that the program writes".to_owned(),
                Some(WhyUnplanned::Copies) => {
                    "no plan is known to copy as little as the eager program".to_owned()
                }
                Some(WhyUnplanned::Refused(e)) => {
                    e.to_string().lines().next().unwrap_or_default().to_owned()
                }
            };
            description = format!("{}, as traced: {why}", count(graph.node_count(), "node"));
        }
        let executable = Executable::new(program)?;
        let executor = Executor { executable, description, recomputed };
        Ok(Prepared { executor, graph, sharing, kept, attention, deciding })
    }

    /// Runs the program. The values are the inputs of its graph.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub(crate) fn run(
        &self,
        inputs: &[Value],
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
    ) -> Result<Vec<Value>> {
        self.executable.run_stamped(inputs, stamp, source_info)
    }

    /// The operators that a run calls.
    pub(crate) fn ops(&self) -> Vec<Op> {
        let mut ops = Vec::new();
        add_ops(self.executable.graph(), &mut ops);
        ops
    }

    /// What runs the program.
    pub(crate) fn executable(&self) -> &Executable {
        &self.executable
    }

    /// What is computed again, if it was asked for, and the program has a plan.
    pub(crate) fn recomputed(&self) -> Option<RecomputeExplanation> {
        self.recomputed
    }

    /// How the program runs, for `explain`.
    pub(crate) fn describe(&self) -> &str {
        &self.description
    }
}

/// The bytes of memory that a run on these inputs needs, beside inputs, constants and outputs: the
/// arena, and what operators return at one time.
fn memory_bytes(executable: &Executable, inputs: &[Value]) -> u64 {
    let map = executable.memory_map(inputs, &SourceInfo::of_caller());
    let Some(map) = map.ok().flatten() else { return 0 };
    let returned = |kernel: usize| {
        let buffers = map.buffers.iter().filter(|b| b.memory == BufferMemory::Returned);
        let alive = buffers.filter(|b| b.lifetime.0 <= kernel && kernel <= b.lifetime.1);
        alive.fold(0u64, |sum, b| sum.saturating_add(b.bytes))
    };
    let most = (0..map.kernels.len()).map(returned).max().unwrap_or_default();
    map.arena_bytes.saturating_add(most)
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
