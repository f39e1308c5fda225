//! Compiled programs.

use super::caller::Caller;
use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ops::{Result, Tree};
use maquette_runtime::Executable;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A [`Program`](super::Program) that was compiled for a device, from inputs `I` to outputs `O`. It
/// shares the program's parameters and buffers.
pub struct CompiledProgram<I, O> {
    executable: Executable,
    caller: Arc<Caller>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> CompiledProgram<I, O> {
    pub(crate) fn new(executable: Executable, caller: Arc<Caller>) -> CompiledProgram<I, O> {
        CompiledProgram { executable, caller, types: PhantomData }
    }

    /// The graph that runs: functional, if the program has a plan.
    pub fn graph(&self) -> &Graph {
        self.executable.graph()
    }

    /// Whether the program runs compiled; `false` if it runs operator by operator.
    pub fn is_compiled(&self) -> bool {
        self.executable.is_compiled()
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
        self.caller.call(&inputs, Loc::caller(), |given, source_info| {
            self.executable.run(given, source_info)
        })
    }
}

impl<I, O> fmt::Debug for CompiledProgram<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledProgram")
            .field("graph", &self.graph().name())
            .finish_non_exhaustive()
    }
}
