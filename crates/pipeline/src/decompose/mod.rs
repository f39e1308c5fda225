//! Decomposition: replaces composites by the operators that they call, as
//! `ExportedProgram.run_decompositions` of PyTorch. A traced graph has operators as called
//! (`aten::linear`); a backend needs their parts.
//!
//! A composite is first called on trial, on fake tensors of the types that the graph declares. If
//! the trial neither decides on a size that the graph leaves open nor asserts anything, and its
//! results have the declared types, it is called again, and its calls are recorded in the place of
//! the node. Otherwise the node stays, with a [reason](KeptReason). A composite in a composite is
//! decomposed in the next round.
//!
//! **Invariants.** The parts make the calls that the composite makes eagerly, in the same order, so
//! the graphs compute the same bits, draw the same random numbers, write the same memory and return
//! the same aliases. Each part has the source line of its composite, whose name its errors have.
//! Inputs, guards and assertions do not change. Of assertions, only those before a node are taken
//! for granted in its trial.
//!
//! **Cost.** Two fake runs of each composite, one more for each level of nesting of one that stays,
//! and a copy of the graph for each level and one at the end.

mod emit;
mod trial;

use crate::{Compilation, PassOptions};
use emit::Emitter;
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, NodeId, Stmt};
use maquette_ir::program_form::ProgramForm;
use maquette_ops::{Op, Result, Tree};
use maquette_trace::Traced;
use std::fmt;
use trial::Trial;

/// A graph whose composites are decomposed; see [`decompose`].
#[derive(Clone, Debug)]
pub struct Decomposed {
    /// The graph.
    pub graph: Graph,
    /// The composites that stayed, in program order.
    pub kept: Vec<KeptComposite>,
    /// The names of the composites that were replaced, in order of their first replacement. The
    /// graph depends on them, although it does not call them.
    pub replaced: Vec<String>,
}

/// A composite that is still a node of the graph.
#[derive(Clone, Debug)]
pub struct KeptComposite {
    /// The name of the operator.
    pub op: String,
    /// The source line of the call.
    pub loc: Option<Loc>,
    /// Why the composite stayed.
    pub reason: KeptReason,
}

/// Why a composite was not decomposed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptReason {
    /// A condition on sizes that the graph leaves open decides what it does, or its call fails: the
    /// error.
    Undecided(String),
    /// It makes an assertion of its own.
    Asserts(String),
    /// It has sizes that depend on data.
    SizeFromData,
    /// An argument is a number, a flag or a text that only a run knows.
    UnknownArgument,
    /// Its results do not have the types that the graph declares: the difference.
    Results(String),
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptReason::Undecided(e) => write!(f, "the sizes do not decide what it does: {e}"),
            KeptReason::Asserts(condition) => write!(f, "it asserts `{condition}`"),
            KeptReason::SizeFromData => f.write_str("it has sizes that depend on data"),
            KeptReason::UnknownArgument => f.write_str("only a run knows one of its arguments"),
            KeptReason::Results(difference) => {
                write!(f, "its results are not those that the graph declares: {difference}")
            }
        }
    }
}

/// Replaces the composites of a traced graph by the operators that they call. A builtin with a
/// kernel that overrides it is not a composite.
///
/// ```
/// # use maquette_aten as _;
/// use maquette_ir::graph::Graph;
///
/// let graph: Graph = "graph g(%x: f32[n, 4], %w: f32[3, 4]) -> (f32[n, 3])
///   where n in [2, oo)
/// {
///   %y: f32[n, 3] = aten::linear(%x, %w)
///   return %y
/// }"
/// .parse()?;
/// let decomposed = maquette_pipeline::decompose(&graph)?;
/// assert!(decomposed.kept.is_empty());
/// assert_eq!(
///     decomposed.graph.to_string(),
///     "graph g(%x: f32[n, 4], %w: f32[3, 4]) -> (f32[n, 3])
///   where n in [2, oo)
/// {
///   %t: f32[4, 3] strides [1, 4] = aten::t(%w)
///   %y: f32[n, 3] = aten::mm(%x, %t)
///   return %y
/// }"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The graph is not valid.
pub fn decompose(graph: &Graph) -> Result<Decomposed> {
    let mut graph = graph.clone();
    let mut replaced: Vec<String> = Vec::new();
    loop {
        let (next, kept, ops) = round(&graph)?;
        if ops.is_empty() {
            return Ok(Decomposed { graph: next, kept, replaced });
        }
        for name in ops.iter().map(Op::name) {
            if !replaced.iter().any(|known| known == name) {
                replaced.push(name.to_owned());
            }
        }
        graph = next;
    }
}

/// The pass: decomposes a graph unless the options keep composites.
///
/// # Errors
/// The graph is not valid.
pub(crate) fn run(compilation: &mut Compilation, options: &PassOptions<'_>) -> Result<()> {
    if let ProgramForm::Original(graph) = &mut compilation.program
        && options.decompose
    {
        let Decomposed { graph: decomposed, kept, replaced } = decompose(graph)?;
        *graph = decomposed;
        compilation.kept = kept;
        compilation.deciding.extend(replaced.iter().filter_map(|name| Op::find(name).ok()));
    }
    Ok(())
}

/// Adds decomposition to traced programs.
pub trait Decompose: Sized {
    /// The program with the composites of its graph [decomposed](decompose()), and the composites
    /// that stayed.
    ///
    /// # Errors
    /// As [`decompose()`].
    fn decompose(&self) -> Result<(Self, Vec<KeptComposite>)>;
}

impl<I: Tree, O: Tree> Decompose for Traced<I, O> {
    fn decompose(&self) -> Result<(Traced<I, O>, Vec<KeptComposite>)> {
        let Decomposed { graph, kept, .. } = decompose(self.graph())?;
        Ok((self.with_graph(graph), kept))
    }
}

/// Decomposes each composite once. Returns the graph, the composites that stayed, and those that
/// did not, each once.
fn round(graph: &Graph) -> Result<(Graph, Vec<KeptComposite>, Vec<Op>)> {
    let (mut emitter, mut trial) = (Emitter::new(graph), Trial::new(graph));
    let (mut kept, mut replaced) = (Vec::new(), Vec::new());
    for (at, stmt) in graph.body().iter().enumerate() {
        if let Stmt::Node(node) = *stmt
            && let Some(op) = composite(graph, node)
        {
            match trial.run(op, node) {
                Ok(()) => {
                    emitter.decompose(op, node)?;
                    if !replaced.contains(&op) {
                        replaced.push(op);
                    }
                    continue;
                }
                Err(reason) => {
                    let (op, loc) = (op.name().to_owned(), graph.loc(node));
                    kept.push(KeptComposite { op, loc, reason });
                }
            }
        }
        if let Stmt::Assert { cond, .. } = *stmt {
            trial.assume(cond);
        }
        emitter.copy(at, stmt)?;
    }
    Ok((emitter.finish()?, kept, replaced))
}

/// The composite that a node calls.
fn composite(graph: &Graph, node: NodeId) -> Option<Op> {
    Op::find(graph.op_name(node)).ok().filter(|op| op.is_composite())
}
