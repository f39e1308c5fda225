//! The pipeline: the one list of passes that make a program which runs fast of a graph.
//!
//! ```text
//! pass           takes                 gives
//! fast-math      the graph as traced   the same, with attention as one operator
//! decompose      the graph as traced   the same, without composites
//! functionalize  the graph as traced   a functional graph
//! select-plan    a functional graph    a functional graph in planned memory
//! rematerialize  in planned memory     the same, with values that are computed again
//! concats        in planned memory     the same, with concatenations computed in place
//! fuse           in planned memory     the same, and its fused form in planned memory
//! ```
//!
//! [`compile`] runs the list. A [`Pass`] is a row of the list in `pass.rs`, and nothing else knows
//! their order. A program that has another form than a pass takes goes through unchanged. The
//! result of each pass can run, so the list may end after any of them, as [`PassOptions::until`] or
//! an observer says.
//!
//! **Why this order.**
//!
//! - Fast math reads a graph in which a `matmul` is one node, so it comes before decomposition.
//! - Functionalization treats views and operators that mutate. A composite hides both, so
//!   decomposition comes before.
//! - A program may have no functional form, or no plan that is known to copy as little as the
//!   program itself. It then stays as it is, decomposed, and runs operator by operator:
//!   [`Compilation::why_unplanned`] has the reason.
//! - Rematerialization needs single operators to choose from, so it comes before fusion. What a
//!   program needs is known after fusion. So this pass runs the rest of the list for each program
//!   that it measures.
//! - A part of a concatenation is computed in place by the kernel that produces it. Fusion has to
//!   know where a kernel writes, so concatenations come before fusion.
//!
//! There is no pass that only plans. From `select-plan` on, a pass keeps what it does if the plan
//! of the result provably copies no more than the original program. So each of them plans anew what
//! it changes ([`plan`](maquette_rewrite::plan())).
//!
//! The passes themselves are in `maquette-rewrite`, except for those that call operators on fake
//! tensors or that know builtin operators: [`decompose()`] and fast math are modules of this crate.
//!
//! **Invariant.** A program has the results, mutations, aliases, effects and errors of the graph
//! that it is made of, in bits, unless [`FastMath`] allows otherwise.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod compilation;
mod concats;
mod decompose;
mod fast_math;
mod functionalize;
mod fuse;
mod options;
mod pass;
mod rematerialize;
mod select_plan;
mod target;

pub use compilation::{Compilation, WhyUnplanned};
pub use decompose::{Decompose, Decomposed, KeptComposite, KeptReason, decompose};
pub use fast_math::{AttentionExplanation, FastMath, NoAttentionReason};
pub use options::PassOptions;
pub use pass::Pass;
pub use rematerialize::RecomputeExplanation;

use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;
use std::ops::ControlFlow;

/// Sees a program after each pass, and says whether the list goes on.
pub type Observer<'a> = dyn FnMut(Pass, &ProgramForm) -> Result<ControlFlow<()>> + 'a;

/// Makes a program that runs fast of a graph.
///
/// ```
/// use maquette_ir::graph::Graph;
/// use maquette_ir::program_form::ProgramForm;
/// use maquette_pipeline::{PassOptions, compile};
///
/// let graph: Graph = "graph g(%x: f32[n, 4], %w: f32[3, 4]) -> (f32[n, 3])
///   where n in [2, oo)
/// {
///   %y: f32[n, 3] = aten::linear(%x, %w)
///   %z: f32[n, 3] = aten::relu(%y)
///   return %z
/// }"
/// .parse()?;
/// let program = compile(&graph, &PassOptions::new())?.program;
/// assert!(matches!(&program, ProgramForm::Planned(planned) if planned.fused.is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The graph is not valid. That a program has no functional form, or no plan, is not an error.
pub fn compile(graph: &Graph, options: &PassOptions<'_>) -> Result<Compilation> {
    compile_observed(graph, options, &mut unobserved)
}

/// As [`compile`]. The observer sees the program after each pass.
///
/// # Errors
/// As [`compile`], and the observer's.
pub fn compile_observed(
    graph: &Graph,
    options: &PassOptions<'_>,
    observer: &mut Observer<'_>,
) -> Result<Compilation> {
    let compilation = Compilation::of(ProgramForm::Original(graph.clone()));
    compilation.run(Pass::ALL, options, observer)
}

/// As [`compile`], for a functional program that has a plan: the passes that take such a program
/// change it.
///
/// # Errors
/// As [`compile`].
pub fn compile_planned(
    program: FunctionalGraph,
    plan: BufferPlan,
    options: &PassOptions<'_>,
) -> Result<Compilation> {
    let compilation = Compilation::of(ProgramForm::planned(program, plan));
    compilation.run(Pass::ALL, options, &mut unobserved)
}

/// The observer of a compilation that nobody observes.
pub(crate) fn unobserved(_: Pass, _: &ProgramForm) -> Result<ControlFlow<()>> {
    Ok(ControlFlow::Continue(()))
}
