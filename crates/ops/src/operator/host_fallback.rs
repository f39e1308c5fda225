//! Calls that run on the host although their tensors are on another device.
//!
//! An operator without a kernel for the device of its tensors computes on copies in host memory.
//! What the call mutates is copied back, and new results are copied to the device. The bits are
//! those of the CPU. No other module falls back to the host. [`host_fallback_counts`] says which
//! operators did, and [`HostFallback::Refuse`] makes an error of each such call.

use crate::dispatch::custom_kernel::custom;
use crate::dispatch::device::{device_of, with_default_device};
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{CallError, Result};
use crate::library::{KernelFn, Op, OpState};
use crate::operator::lowering::How;
use crate::operator::{Lowering, OpDef};
use crate::random;
use crate::scoped_cell::with_value;
use crate::tensor::Tensor;
use crate::tensor::create::opened;
use crate::tensor::meta::Meta;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::{DType, Device, Loc};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What becomes of a call whose operator has no kernel for the device of its tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostFallback {
    /// The call runs on copies in host memory.
    #[default]
    Allow,
    /// The call is an error.
    Refuse,
}

static REFUSES: AtomicBool = AtomicBool::new(false);
static COUNTS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    static OF_THREAD: Cell<Option<HostFallback>> = const { Cell::new(None) };
}

/// Sets the rule for the process. It is [`HostFallback::Allow`] at first.
pub fn set_host_fallback(rule: HostFallback) {
    REFUSES.store(rule == HostFallback::Refuse, Ordering::Relaxed);
}

/// Runs `f` with a rule for this thread in place of the rule of the process.
pub fn with_host_fallback<R>(rule: HostFallback, f: impl FnOnce() -> R) -> R {
    with_value(&OF_THREAD, Some(rule), f)
}

/// The rule that holds for this thread now.
fn rule() -> HostFallback {
    let of_process = || match REFUSES.load(Ordering::Relaxed) {
        true => HostFallback::Refuse,
        false => HostFallback::Allow,
    };
    OF_THREAD.get().unwrap_or_else(of_process)
}

/// How often each operator has run on the host for tensors of another device, by name.
pub fn host_fallback_counts() -> BTreeMap<String, u64> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a tensor or an argument `device` is of a device whose memory the host cannot read.
#[inline]
pub(crate) fn is_elsewhere(args: &[Value]) -> bool {
    args.iter().any(|v| match v {
        // A tensor without contents needs no memory, wherever the others are.
        Value::Device(d) => *d != Device::Cpu && *d != Device::Meta,
        other => other.tensors().any(|t| t.device() != Device::Cpu && !t.is_on_host()),
    })
}

/// The device of the results of a builtin operator: its argument `device`, or that of its tensors.
///
/// # Errors
/// The tensors are on two devices; the device of the results cannot be used.
pub(crate) fn device_of_results(state: &OpState, args: &[Value]) -> Result<Device> {
    let given = args.iter().find_map(|v| match v {
        Value::Device(device) => Some(*device),
        _ => None,
    });
    let device = given.map_or_else(|| device_of(state, args), Ok)?;
    opened(device)?;
    Ok(device)
}

impl Op {
    /// Whether calls with tensors on a device run on copies in host memory, as far as that follows
    /// from the operator alone.
    #[doc(hidden)]
    pub fn falls_back_to_host(self, device: Device) -> bool {
        if matches!(device, Device::Cpu | Device::Meta) {
            return false;
        }
        let Ok(state) = self.state() else { return false };
        match state.plain_builtin() {
            Some(def) => def.falls_back_to_host(&state),
            None => kernel_of_host(&state, device).is_some_and(|kernel| kernel.is_some()),
        }
    }
}

impl OpDef {
    fn falls_back_to_host(&self, state: &OpState) -> bool {
        match &self.lowering {
            Lowering::Compute(c) => matches!(c.how, How::Host(_) | How::Kernel(_)),
            Lowering::InPlace(_) => state
                .functional_variant()
                .is_ok_and(|(op, def)| op.state().is_ok_and(|of| def.falls_back_to_host(&of))),
            Lowering::Dynamic { .. } => true,
            Lowering::Pointwise(_)
            | Lowering::View(_)
            | Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::UnannotatedComposite { .. } => false,
        }
    }
}

/// The kernel for the CPU, if it serves a call on another device: on copies in host memory. `None`
/// in it if there is no such kernel, either. A kernel for every device that is not made of
/// operators reads memory of the host.
pub(crate) fn kernel_of_host(state: &OpState, device: Device) -> Option<Option<&KernelFn>> {
    if device == Device::Cpu {
        return None;
    }
    let (own, of_host) = (state.kernel(device.kind()), state.kernel(Device::Cpu.kind()));
    let is_of_host = own.is_none_or(|own| of_host.is_some_and(|host| Arc::ptr_eq(own, host)));
    (is_of_host && runs_host_kernels(device)).then_some(of_host)
}

/// Whether the kernels that users register for the CPU serve a device, too.
pub(crate) fn runs_host_kernels(device: Device) -> bool {
    opened(device).is_ok_and(|device| device.target().runs_host_kernels)
}

/// A kernel for a device that calls the CPU's on copies in host memory. The copies are borrowed as
/// the schema says, so that the kernel has the rights that it has on the CPU.
pub(crate) fn of_kernel(op: Op, kernel: &KernelFn, device: Device, loc: Loc) -> KernelFn {
    let kernel = kernel.clone();
    Arc::new(move |args: &[Value]| {
        let state = op.state()?;
        on_host(op, &state, device, args, |host| {
            let mut host: Args = host.iter().cloned().collect();
            custom(op, &state, &kernel, Device::Cpu, &mut host, loc)
        })
    })
}

/// Whether a call moves elements between the host and a device, or between devices: the host has a
/// part in that.
fn is_transfer(state: &OpState, device: Device, args: &[Value]) -> bool {
    state.builtin.is_some_and(|def| def.role.is_data_movement())
        && args.iter().flat_map(Value::tensors).any(|t| t.device() != device)
}

/// Runs a call on copies in host memory. `args` are borrowed for the call, `device` is that of the
/// results, and `run` computes on arguments of the host.
///
/// # Errors
/// The fall-back is refused; a transfer fails; otherwise those of `run`.
#[cold]
pub(crate) fn on_host(
    op: Op,
    state: &OpState,
    device: Device,
    args: &[Value],
    run: impl FnOnce(&mut [Value]) -> Result<Outputs>,
) -> Result<Outputs> {
    if !is_transfer(state, device, args) {
        let name = op.shared_name().to_string();
        if rule() == HostFallback::Refuse {
            return Err(CallError::HostFallback { device: device.kind(), op: name }.into());
        }
        *COUNTS.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }
    let mut copies: Vec<(Tensor, Tensor)> = Vec::new();
    let mut to_host = |t: &Tensor| -> Result<Tensor> {
        if t.is_on_host() {
            return Ok(t.clone());
        }
        if let Some((_, host)) = copies.iter().find(|(original, _)| original.is_same_handle(t)) {
            return Ok(host.clone());
        }
        let host = t.downloaded()?;
        copies.push((t.clone(), host.clone()));
        Ok(host)
    };
    let mut host: SmallVec<[Value; 8]> = SmallVec::new();
    for v in args {
        host.push(match v {
            Value::Device(_) => Value::Device(Device::Cpu),
            other => other.map_tensors(&mut to_host)?,
        });
    }
    let originals: SmallVec<[Value; 4]> =
        state.facts.mutated.iter().map(|i| host[usize::from(*i)].clone()).collect();
    let outputs = with_default_device(Device::Cpu, || {
        random::in_place_of_the_host(device, || run(&mut host))
    })?;
    for (i, host) in state.facts.mutated.iter().zip(&originals) {
        for (t, host) in args[usize::from(*i)].tensors().zip(host.tensors()) {
            if !t.is_on_host() {
                t.upload_from(host)?;
            }
        }
    }
    let mut shared = SharedStorages { device, uploaded: Vec::new() };
    let mut from_host = |t: &Tensor| -> Result<Tensor> {
        if let Some((original, copy)) = copies.iter().find(|(_, copy)| copy.has_storage_of(t)) {
            return in_original(original, copy, t);
        }
        let is_given = args.iter().flat_map(Value::tensors).any(|arg| arg.has_storage_of(t));
        if is_given || device == Device::Cpu || fault_injected(Fault::ResultsOnTheHost) {
            return Ok(t.clone());
        }
        let results = outputs.iter().flat_map(Value::tensors);
        match results.filter(|other| other.has_storage_of(t)).count() {
            1 if t.meta().offset.as_i64() == Some(0) => t.uploaded(device),
            _ => shared.upload(t),
        }
    };
    outputs.iter().map(|v| v.map_tensors(&mut from_host)).collect()
}

/// The storages of new results that share memory, or do not begin where their memory does.
struct SharedStorages {
    device: Device,
    /// A result, and all bytes of its storage on the device.
    uploaded: Vec<(Tensor, Tensor)>,
}

impl SharedStorages {
    /// A result on the device, in a storage that it shares there, too.
    fn upload(&mut self, result: &Tensor) -> Result<Tensor> {
        let of_result = |(earlier, _): &&(Tensor, Tensor)| earlier.has_storage_of(result);
        let bytes = match self.uploaded.iter().find(of_result) {
            Some((_, bytes)) => bytes.clone(),
            None => {
                let all = Meta::contiguous([result.own_storage()?.len()], DType::U8);
                let bytes = result.view_of(all)?.uploaded(self.device)?;
                self.uploaded.push((result.clone(), bytes.clone()));
                bytes
            }
        };
        bytes.view_of(Meta { device: self.device, ..result.meta().clone() })
    }
}

/// What a result that shares memory with the copy of an argument is of the argument.
fn in_original(original: &Tensor, copy: &Tensor, result: &Tensor) -> Result<Tensor> {
    if copy.is_same_handle(result) {
        return Ok(original.clone());
    }
    let offset = original.meta().offset + result.meta().offset;
    original.view_of(Meta { offset, device: original.device(), ..result.meta().clone() })
}
