//! Calls of custom operators whose arguments are checked once.
//!
//! [`Op::prepare_kernel`] does what the dispatcher does before it borrows the arguments: coercion,
//! the choice of the device and the kernel, and the check of overlap. A call then takes the path of
//! every call of a registered kernel ([`custom_kernel`](crate::dispatch::custom_kernel)): borrows,
//! the limits on the kernel, poison, versions, and the checks of its returns.

use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::custom_kernel::without_overlap;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::dispatch::{failures, fake, for_caller, poison_in};
use crate::error::{FakeError, Result};
use crate::library::{KernelFn, Op, OpState, Tag};
use crate::mode;
use crate::operator::host_fallback;
use crate::tensor::Tensor;
use crate::tensor::overlap::may_self_overlap;
use maquette_ir::{Device, Loc};
use std::sync::Arc;

/// A call of a custom operator, for arguments of given kinds and layouts. What depends on these
/// alone is done before.
pub struct PreparedKernel {
    op: Op,
    device: Device,
    state: Arc<OpState>,
    kernel: KernelFn,
}

impl Op {
    /// Prepares calls with arguments of these kinds and layouts, and coerces them. Tensors are
    /// fake, on one device, with plain sizes and a storage of their own each.
    ///
    /// `None` if calls have to go through the dispatcher: the operator is builtin, has no kernel
    /// that reads memory of the device, or returns a view of an argument that it does not mutate;
    /// the arguments do not fit it; or a mutated one overlaps itself.
    #[track_caller]
    pub fn prepare_kernel(self, args: &mut Args) -> Option<PreparedKernel> {
        crate::library::ask_registrations(Loc::caller());
        let state = self.shared_state().ok()?;
        let first = args.iter().flat_map(Value::tensors).next();
        let device = first.map_or(Device::Cpu, Tensor::device);
        if host_fallback::kernel_of_host(&state, device).is_some() {
            return None;
        }
        let kernel = state.kernel(device.kind())?.clone();
        let facts = &state.facts;
        if state.builtin.is_some()
            || facts.tags.contains(Tag::Out)
            || facts.device_arg.is_some()
            || facts.aliases.iter().flatten().any(|a| !facts.mutated.contains(a))
        {
            return None;
        }
        coerce_args(&state, args).ok()?;
        let overlaps = |v: &Value| {
            let mut tensors = v.tensors();
            tensors.any(|t| t.meta().concrete().is_none_or(|at| may_self_overlap(&at)))
        };
        if args.iter().flat_map(Value::tensors).any(|t| t.device() != device)
            || facts.mutated.iter().filter_map(|i| args.get(usize::from(*i))).any(overlaps)
        {
            return None;
        }
        Some(PreparedKernel { op: self, device, state, kernel })
    }
}

impl PreparedKernel {
    /// Calls the operator, as [`Op::call_at`], and writes its outputs to `outputs`. `args` are
    /// coerced, with real tensors of the layouts of the preparation, of which no mutated one
    /// overlaps another. They are the same handles afterwards.
    ///
    /// # Errors
    /// As [`Op::call_at`].
    pub fn call(&self, args: &mut [Value], outputs: &mut Outputs, loc: Loc) -> Result<()> {
        if let Some(e) = args.iter().find_map(poison_in) {
            return Err(failures::failed(e));
        }
        let PreparedKernel { op, device, state, kernel } = self;
        let loc = mode::user_loc().unwrap_or(loc);
        let called = match fake::is_running() && mode::user_loc().is_none() {
            true => Err(FakeError::RealKernel.into()),
            false => without_overlap(*op, state, (kernel, *device), args, &[], outputs, loc),
        };
        called.map_err(|e| failures::failed(for_caller(e, *op, loc)))
    }
}
