//! Compiled programs.

use super::caller::Caller;
use super::functionalize_error;
use crate::operators::{Guarded, add_ops};
use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ops::library::generation;
use maquette_ops::{Op, Result, Tensor, Tree};
use maquette_pipeline::{Compilation, Pass, PassOptions, WhyUnplanned, compile_observed};
use maquette_rewrite::{Options, Reason};
use maquette_runtime::Executable;
use maquette_runtime::profile::{Profile, ProfileOptions};
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A [`Program`](super::Program) that was compiled for a device, from inputs `I` to outputs `O`. It
/// shares the program's parameters and buffers.
pub struct CompiledProgram<I, O> {
    traced: Graph,
    options: Options,
    caller: Arc<Caller>,
    executable: Guarded<Executable>,
    types: PhantomData<fn(I) -> O>,
}

/// Compiles a program. Also returns the operators on which the executable depends.
fn compiled(
    traced: &Graph,
    options: &Options,
    state: usize,
    loc: Loc,
) -> Result<(Executable, Vec<Op>)> {
    let options = PassOptions::new().functionalize(options.clone());
    let mut ops = Vec::new();
    add_ops(traced, &mut ops);
    let compilation = compile_observed(traced, &options, &mut |pass, program| {
        if pass == Pass::Decompose {
            add_ops(program.graph(), &mut ops);
        }
        Ok(ControlFlow::Continue(()))
    });
    let Compilation { program, deciding, why_unplanned, .. } =
        compilation.map_err(|e| e.at(loc))?;
    match why_unplanned {
        Some(WhyUnplanned::Refused(e)) if !matches!(e.kind, Reason::UnknownView { .. }) => {
            return Err(functionalize_error(e, loc));
        }
        _ => {}
    }
    let executable = Executable::new(program).map_err(|e| e.at(loc))?.with_fixed_inputs(state);
    ops.extend(deciding);
    add_ops(executable.graph(), &mut ops);
    Ok((executable, ops))
}

impl<I, O> CompiledProgram<I, O> {
    pub(crate) fn new(
        traced: Graph,
        options: Options,
        caller: Arc<Caller>,
        loc: Loc,
    ) -> Result<CompiledProgram<I, O>> {
        let since = generation();
        let (executable, ops) = compiled(&traced, &options, caller.state.len(), loc)?;
        let executable = Guarded::new(Arc::new(executable), ops, since);
        Ok(CompiledProgram { traced, options, caller, executable, types: PhantomData })
    }

    /// What runs now. The program is compiled again if an operator has changed that it calls, or
    /// that was replaced by its parts.
    fn current(&self, loc: Loc) -> Result<Arc<Executable>> {
        let state = self.caller.state.len();
        self.executable.valid(|| compiled(&self.traced, &self.options, state, loc))
    }

    /// Calls `f` with what runs now, and the program's own tensors.
    pub(crate) fn with_latest<R>(&self, f: impl FnOnce(&Executable, &[Tensor]) -> R) -> R {
        f(&self.executable.latest(), &self.caller.state)
    }

    /// The graph that runs: functional, if the program has a plan.
    pub fn graph(&self) -> Graph {
        self.executable.latest().graph().clone()
    }

    /// The bytes of parameters and constants in packed form, which products read: copies that are
    /// made at the first call, and again when a weight was written.
    pub fn packed_bytes(&self) -> usize {
        self.executable.latest().packed_bytes()
    }

    /// Whether the program runs compiled; `false` if it runs operator by operator.
    pub fn is_compiled(&self) -> bool {
        self.executable.latest().is_compiled()
    }
}

impl<I: Tree, O: Tree> CompiledProgram<I, O> {
    /// Runs the program, as [`Program::call`](super::Program::call) does. The first call with
    /// tensors of given layouts finds the memory and the kernels of all operators for them.
    ///
    /// A failed call may leave intermediate values in the buffers and inputs that the program
    /// mutates.
    ///
    /// # Errors
    /// As [`Program::call`](super::Program::call).
    #[track_caller]
    pub fn call(&self, inputs: I) -> Result<O> {
        let loc = Loc::caller();
        self.caller
            .call(&inputs, loc, |given, source_info| self.current(loc)?.run(given, source_info))
    }
}

impl<I: Tree, O: Tree> CompiledProgram<I, O> {
    /// As [`CompiledProgram::call`], and writes the results into given tensors, one for each tensor
    /// that the program returns. See [`Compiled::call_into`](crate::Compiled::call_into) for what
    /// they may be, and for what is copied.
    ///
    /// # Errors
    /// As [`CompiledProgram::call`], and for the given tensors as
    /// [`Compiled::call_into`](crate::Compiled::call_into).
    #[track_caller]
    pub fn call_into(&self, inputs: I, outputs: &O) -> Result<()> {
        let loc = Loc::caller();
        self.caller.call_into(&inputs, outputs, loc, |given, outputs, source_info| {
            self.current(loc)?.run_into(given, outputs, source_info)
        })
    }
}

impl<I: Tree, O: Tree> CompiledProgram<I, O> {
    /// Runs the program on these inputs again and again, and times its kernels. Each run is that of
    /// [`CompiledProgram::call`]: it mutates the buffers and inputs that the program mutates, and
    /// its results are dropped.
    ///
    /// # Errors
    /// As [`CompiledProgram::call`].
    #[track_caller]
    pub fn profile(&self, inputs: I, options: &ProfileOptions) -> Result<Profile> {
        let loc = Loc::caller();
        self.caller.run(&inputs, loc, |given, source_info| {
            self.current(loc)?.profile(given, options, source_info)
        })
    }
}

impl<I, O> fmt::Debug for CompiledProgram<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledProgram")
            .field("graph", &self.traced.name())
            .finish_non_exhaustive()
    }
}
