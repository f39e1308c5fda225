//! Weights that nobody writes any more.
//!
//! A packed weight belongs to one version of its memory, which each run compares. A program whose
//! weights are final needs no comparison: their storages are frozen, so that every later write is
//! refused, and a packed form that was made of the last version stays right for good.
//!
//! Frozen storages keep their memory. Tensors that others hold view it, and products of one row,
//! operators that fall back to calls, and instances for new sizes read it.

use crate::executable::{Executable, Form};
use maquette_invoke::Captured;
use maquette_ir::functional_program::ExternalTensor;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Result, Storage, Tensor};
use std::sync::Arc;

/// The storages of a program's weights, each once.
#[derive(Clone, Default)]
pub struct Weights {
    /// Those that the program only reads.
    pub read: Vec<Arc<Storage>>,
    /// Those that it writes; all of a program that runs operator by operator.
    pub written: Vec<Arc<Storage>>,
}

impl Weights {
    /// Adds a storage that another one may view.
    fn add(storages: &mut Vec<Arc<Storage>>, t: &Tensor) -> Result<()> {
        let storage = t.own_storage()?;
        if !storages.iter().any(|known| Arc::ptr_eq(known, storage)) {
            storages.push(storage.clone());
        }
        Ok(())
    }
}

impl Executable {
    /// The weights of the program: constants, and `fixed`, the tensors of its
    /// [fixed inputs](Executable::with_fixed_inputs).
    ///
    /// # Errors
    /// A tensor is poisoned.
    pub fn weights(&self, fixed: &[Tensor]) -> Result<Weights> {
        let mut weights = Weights::default();
        let (graph, planned) = match &self.form {
            Form::Planned(planned) => (&planned.program.graph, Some(planned)),
            Form::Unplanned(_) => (self.graph(), None),
        };
        let consts = graph.consts().iter().enumerate();
        let consts = consts
            .filter_map(|(i, c)| Some((ExternalTensor::Const(i), &c.source_as::<Captured>()?.0)));
        let inputs = fixed.iter().enumerate().map(|(i, t)| (ExternalTensor::Input(i), t));
        for (which, t) in consts.chain(inputs) {
            let storages = match planned.is_none_or(|planned| planned.writes(which)) {
                true => &mut weights.written,
                false => &mut weights.read,
            };
            Weights::add(storages, t)?;
        }
        let Weights { read, written } = &mut weights;
        read.retain(|storage| !written.iter().any(|w| Arc::ptr_eq(w, storage)));
        Ok(weights)
    }

    /// Keeps the packed forms of frozen weights, without a comparison at later runs.
    pub fn keep_packed(&self) {
        if let Form::Planned(planned) = &self.form {
            planned.packed.keep_frozen();
            if let Some(unfused) = &planned.unfused {
                unfused.packed.keep_frozen();
            }
        }
    }
}
