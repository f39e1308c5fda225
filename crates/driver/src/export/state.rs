//! The parameters and buffers of a module, in the order in which a program takes them.

use maquette_ops::internals::TensorInternals;
use maquette_ops::module::Slot;
use maquette_ops::{ExportError, Module, Result, Tensor};
use maquette_trace::State;

/// A parameter or buffer.
pub(crate) struct NamedTensor {
    pub(crate) name: String,
    pub(crate) slot: Slot,
    tensor: Tensor,
}

/// The tensors that a module names: its parameters, then its buffers.
pub(crate) struct ModuleTensors(pub(crate) Vec<NamedTensor>);

impl ModuleTensors {
    pub(crate) fn of<M: Module + ?Sized>(module: &M) -> Result<ModuleTensors> {
        let mut all: Vec<NamedTensor> = Vec::new();
        module.visit(&mut |name, slot, t| {
            all.push(NamedTensor { name: name.to_owned(), slot, tensor: t.clone() })
        });
        for (i, n) in all.iter().enumerate() {
            if all.iter().take(i).any(|m| m.name == n.name) {
                return Err(ExportError::SameName { name: n.name.clone() }.into());
            }
            if let Some(problem) = problem(&n.tensor) {
                return Err(ExportError::State {
                    slot: n.slot.name(),
                    name: n.name.clone(),
                    problem,
                }
                .into());
            }
        }
        all.sort_by_key(|n| n.slot == Slot::Buffer);
        Ok(ModuleTensors(all))
    }

    /// The tensors with their names as inputs of the graph: `p_layers_0_weight`, as in PyTorch.
    pub(crate) fn inputs(&self) -> Vec<(String, Tensor)> {
        let prefix = |slot| if slot == Slot::Buffer { 'b' } else { 'p' };
        self.0
            .iter()
            .map(|n| (format!("{}_{}", prefix(n.slot), n.name.replace('.', "_")), n.tensor.clone()))
            .collect()
    }
}

/// The reason that a tensor has no contents; `None` if it has.
fn problem(t: &Tensor) -> Option<String> {
    if let Some(slot) = t.slot() {
        return Some(format!("is a tensor of the running trace `{}`", slot.trace.name));
    }
    match t.ok() {
        Err(e) => Some(format!(
            "is the result of a failed operation ({})",
            e.to_string().lines().next().unwrap_or_default()
        )),
        Ok(t) if t.is_fake() => Some(format!("is a fake tensor {}", t.meta())),
        Ok(_) => None,
    }
}

/// The groups of mutated tensors that share storage, by index; groups of one are left out.
pub(crate) fn mutated_alias_groups(state: &[State]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, s) in state.iter().enumerate().filter(|(_, s)| s.is_mutated) {
        let first = |group: &&mut Vec<usize>| {
            group
                .first()
                .and_then(|&j| state.get(j))
                .is_some_and(|t| t.tensor.has_storage_of(&s.tensor))
        };
        match groups.iter_mut().find(first) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    groups.retain(|g| g.len() > 1);
    groups
}
