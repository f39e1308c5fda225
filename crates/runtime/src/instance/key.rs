//! What an instance depends on: the layouts of tensors and the values of numbers among the inputs,
//! and the registrations of operators.

use maquette_ir::Device;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::sym::Expr;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::library::generation;
use maquette_ops::{Tensor, Value};

/// A name that the caller of a program gives to the layouts and the numbers of a call's inputs.
///
/// Calls of one program with one stamp have inputs of equal sizes, strides, offsets, dtypes and
/// devices, and equal numbers. So the instance of the last call serves, and nothing is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutStamp(pub u64);

/// The layouts and numbers of the inputs of a call, and the generation of the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceKey(Vec<i64>);

impl InstanceKey {
    /// Whether no operator was registered since the key was made.
    pub fn is_current(&self) -> bool {
        self.0.first() == Some(&(generation() as i64))
    }

    /// Whether two keys agree in everything but the generation of the registry.
    pub fn has_layouts_of(&self, other: &InstanceKey) -> bool {
        self.0.get(1..) == other.0.get(1..)
    }

    /// Becomes the key of a call. `None` if an input has no key: it is poisoned, or has no data.
    /// Tensors are on `device`.
    pub fn set(
        &mut self,
        program: &FunctionalGraph,
        device: Device,
        inputs: &[Value],
    ) -> Option<()> {
        let InstanceKey(key) = self;
        key.clear();
        key.push(generation() as i64);
        for (value, &declared) in inputs.iter().zip(program.graph.inputs()) {
            match value {
                Value::Tensor(t) => {
                    let is_elsewhere = t.device() != device;
                    if is_elsewhere || t.ok().is_err() || t.is_fake() || t.slot().is_some() {
                        return None;
                    }
                    // A type with offset 0 accepts any offset.
                    let declared = program.graph.tensor_type(declared);
                    let any_offset = declared.is_some_and(|ty| ty.offset == Expr::Int(0));
                    push_tensor(key, t, any_offset && !program.absolute_offsets)?;
                }
                Value::Int(i) => key.extend([-2, i.as_i64()?]),
                Value::Float(x) => key.extend([-3, x.to_bits() as i64]),
                Value::Bool(b) => key.extend([-4, i64::from(*b)]),
                _ => return None,
            }
        }
        (inputs.len() == program.graph.inputs().len()).then_some(())
    }
}

fn push_tensor(key: &mut Vec<i64>, t: &Tensor, any_offset: bool) -> Option<()> {
    let meta = t.meta();
    key.push((meta.rank() as i64) << 16 | meta.dtype as i64);
    if fault_injected(Fault::InstanceOfAnySizes) {
        // of as much memory, so that wrong elements are read, and none that do not exist
        key.extend([t.own_storage().ok()?.len() as i64, meta.offset().as_i64()?]);
        return Some(());
    }
    for n in meta.sizes.iter().chain(&meta.strides) {
        key.push(n.as_i64()?);
    }
    if !any_offset {
        key.push(meta.offset().as_i64()?);
    }
    Some(())
}
