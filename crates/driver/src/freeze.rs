//! Weights that nobody writes any more, for compiled functions and programs.

use crate::compile::Compiled;
use crate::export::CompiledProgram;
use maquette_ir::Loc;
use maquette_ops::{Result, Storage};
use maquette_runtime::{Executable, Weights};
use std::fmt;
use std::sync::Arc;

/// What was frozen. Displays as text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreezeReport {
    /// The storages of weights that nobody can write any more.
    pub weights: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The storages of weights that a program writes, or may write because it does not run
    /// compiled. They stay as they are.
    pub written: usize,
    /// The bytes of packed forms, which exist beside the weights.
    pub packed_bytes: usize,
}

impl fmt::Display for FreezeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FreezeReport { weights, bytes, written, packed_bytes } = self;
        write!(
            f,
            "{weights} weights of {bytes} bytes are frozen, {packed_bytes} bytes are packed beside \
                them; {written} weights are written by a program"
        )
    }
}

/// Freezes the weights of several programs, except those that one of them writes.
fn freeze<'e>(
    executables: impl Iterator<Item = (&'e Executable, Weights)>,
) -> Result<FreezeReport> {
    let (mut frozen, mut written) = (Vec::<Arc<Storage>>::new(), Vec::<Arc<Storage>>::new());
    let mut programs = Vec::new();
    for (executable, weights) in executables {
        programs.push(executable);
        for (all, some) in [(&mut frozen, weights.read), (&mut written, weights.written)] {
            for storage in some {
                if !all.iter().any(|known| Arc::ptr_eq(known, &storage)) {
                    all.push(storage);
                }
            }
        }
    }
    frozen.retain(|storage| !written.iter().any(|other| Arc::ptr_eq(other, storage)));
    frozen.iter().try_for_each(|storage| storage.freeze())?;
    programs.iter().for_each(|executable| executable.keep_packed());
    Ok(FreezeReport {
        weights: frozen.len(),
        bytes: frozen.iter().map(|storage| storage.len()).sum(),
        written: written.len(),
        packed_bytes: programs.iter().map(|executable| executable.packed_bytes()).sum(),
    })
}

impl<I, O, F> Compiled<I, O, F> {
    /// Promises that nobody writes the weights of the function any more: the tensors that its
    /// programs so far have captured, except those that a program writes. Every later write to
    /// their memory is an error, through any tensor and for good. Calls no longer look whether
    /// packed weights are current. Call it once the function was called with every kind of input
    /// that it will get.
    ///
    /// The weights keep their memory: others may hold tensors that view it, and calls of other
    /// sizes read it.
    ///
    /// # Errors
    /// Someone writes or has borrowed a weight for a write now. Some weights may be frozen then.
    #[track_caller]
    pub fn freeze(&self) -> Result<FreezeReport> {
        let loc = Loc::caller();
        let programs = self.programs();
        let executables = programs.iter().map(|program| program.executor.executable());
        let weights = executables.map(|e| Ok((e, e.weights(&[])?)));
        let weights = weights.collect::<Result<Vec<_>>>().map_err(|e| e.at(loc))?;
        freeze(weights.into_iter()).map_err(|e| e.at(loc))
    }
}

impl<I, O> CompiledProgram<I, O> {
    /// Promises that nobody writes the parameters and constants of the program any more, as
    /// [`Compiled::freeze`]. Buffers that the program writes stay as they are.
    ///
    /// # Errors
    /// As [`Compiled::freeze`].
    #[track_caller]
    pub fn freeze(&self) -> Result<FreezeReport> {
        let loc = Loc::caller();
        let weights = self.with_latest(|executable, state| {
            freeze(std::iter::once((executable, executable.weights(state)?)))
        });
        weights.map_err(|e| e.at(loc))
    }
}
