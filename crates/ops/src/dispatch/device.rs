//! The device of a call: its tensors are on one, but for what PyTorch lets stay on the host.

use crate::dispatch::value::Value;
use crate::error::Error;
use crate::error::{CallError, Result};
use crate::library::OpState;
use crate::operator::Lowering;
use crate::scoped_cell::with_value;
use crate::tensor::Tensor;
use maquette_ir::Device;
use std::cell::Cell;

thread_local! {
    static DEFAULT: Cell<Device> = const { Cell::new(Device::Cpu) };
}

/// Runs `f` with a device on which operators make tensors if they are given neither tensors nor a
/// device. Data from the host, such as vectors, stay there. Source: a `torch.device` as a context.
pub fn with_default_device<R>(device: Device, f: impl FnOnce() -> R) -> R {
    // Each run of a kernel comes here, and nearly all find what they need.
    if DEFAULT.get() == device { f() } else { with_value(&DEFAULT, device, f) }
}

/// The device of [`with_default_device`], for the library itself.
pub fn default_device() -> Device {
    DEFAULT.get()
}

/// Gives a call that makes tensors from nothing the default device, so that a graph names the
/// device and does not depend on where it runs.
#[inline]
pub(crate) fn add_default_device(state: &OpState, args: &mut [Value]) {
    let default = DEFAULT.get();
    if default != Device::Cpu
        && let Some(i) = state.facts.device_arg
        && let given @ Value::None = &mut args[usize::from(i)]
    {
        *given = Value::Device(default);
    }
}

/// The device of a call: that of its tensors, which must agree, or its argument `device`, or the
/// host.
///
/// # Errors
/// The tensors are on two devices.
pub(crate) fn device_of(state: &OpState, args: &[Value]) -> Result<Device> {
    let mut first: Option<Device> = None;
    for &i in &state.facts.tensor_args {
        for t in args[usize::from(i)].tensors() {
            match first {
                None => first = Some(t.device()),
                Some(d) if d == t.device() => {}
                Some(_) => return of_two(state, args),
            }
        }
    }
    Ok(match (first, state.facts.device_arg) {
        (Some(d), _) => d,
        (None, Some(i)) => args[usize::from(i)].opt(Value::device)?.unwrap_or(Device::Cpu),
        (None, None) => Device::Cpu,
    })
}

/// What a builtin operator takes from the host while the call is on another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromHost {
    Nothing,
    /// Tensors without dimensions, which stand for numbers.
    Numbers,
    /// The lists of indices, too.
    Indices,
    /// It copies between devices.
    Anything,
}

pub(crate) fn from_host(state: &OpState) -> FromHost {
    let Some(def) = state.builtin else { return FromHost::Nothing };
    if let Some(stated) = def.role.host_args() {
        return stated;
    }
    match &def.lowering {
        Lowering::Pointwise(_) => FromHost::Numbers,
        Lowering::InPlace(_) => {
            let of_variant = || Ok::<_, Error>(from_host(&*state.functional_variant()?.0.state()?));
            of_variant().unwrap_or(FromHost::Nothing)
        }
        // each part sees to its own
        Lowering::Composite(_)
        | Lowering::RandomComposite(_)
        | Lowering::UnannotatedComposite { .. } => FromHost::Anything,
        Lowering::Compute(_) | Lowering::View(_) | Lowering::Dynamic { .. } => FromHost::Nothing,
    }
}

/// The device of tensors that are not all on one.
#[cold]
fn of_two(state: &OpState, args: &[Value]) -> Result<Device> {
    let from_host = from_host(state);
    if from_host == FromHost::Anything {
        let mut tensors =
            state.facts.tensor_args.iter().flat_map(|&i| args[usize::from(i)].tensors());
        return Ok(tensors.next().map_or(Device::Cpu, Tensor::device));
    }
    let may_stay = |i: u16, t: &Tensor| {
        t.device() == Device::Cpu
            && !state.facts.mutated.contains(&i)
            && match from_host {
                FromHost::Nothing | FromHost::Anything => false,
                FromHost::Numbers => t.dim() == 0,
                FromHost::Indices => {
                    t.dim() == 0 || state.schema.args[usize::from(i)].name == "indices"
                }
            }
    };
    let mut first: Option<(String, Device)> = None;
    for &i in &state.facts.tensor_args {
        let value = &args[usize::from(i)];
        for (place, t) in value.tensors().enumerate() {
            let name = || match value {
                Value::List(_) => format!("{}[{place}]", state.schema.args[usize::from(i)].name),
                _ => state.schema.args[usize::from(i)].name.clone(),
            };
            match &first {
                None if may_stay(i, t) => {}
                None => first = Some((name(), t.device())),
                Some((_, d)) if *d == t.device() || may_stay(i, t) => {}
                Some((first_arg, d)) => {
                    let (first_arg, second_arg) = (first_arg.clone(), name());
                    return Err(CallError::MixedDevices {
                        first_arg,
                        first: *d,
                        second_arg,
                        second: t.device(),
                    }
                    .into());
                }
            }
        }
    }
    Ok(first.map_or(Device::Cpu, |(_, d)| d))
}
