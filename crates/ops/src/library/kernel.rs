//! [`Kernel`], a handle to one kernel of an operator, and [`KernelSwitch`], which disables a kernel
//! temporarily.

use super::KernelFn;
use super::key::{DispatchKey, IntoKey, key_for};
use super::op::{Op, ask_registrations};
use super::registrations::{Registered, RegistrationOwner};
use super::registry;
use crate::dispatch::value::{Args, Outputs};
use crate::error::{CallError, Error, RegisterError, Result};
use maquette_ir::Loc;
use std::fmt;
use std::sync::atomic::Ordering;

/// A handle to the kernel that was active when [`get_kernel`] was called. Later registrations do
/// not affect it, so an overriding kernel can call the kernel that it overrides.
///
/// ```
/// # use maquette_aten as _;
/// use maquette_ops::library::{Kind, Library, get_kernel};
/// use maquette_ops::{Result, Tensor, args};
/// let former = get_kernel("aten::relu", "cpu")?;
/// let lib = Library::new("aten", Kind::Impl)?;
/// lib.impl_("relu", "cpu", move |x: &Tensor| -> Result<Tensor> {
///     match x.numel().as_i64() {
///         Some(1) => Ok(Tensor::from([42.0f32])),
///         _ => former.call(args![x])?[0].tensor().cloned(),
///     }
/// })?;
/// assert_eq!(Tensor::from([-1.0f32]).relu().to_vec::<f32>()?, [42.0]);
/// assert_eq!(Tensor::from([-1.0f32, 1.0]).relu().to_vec::<f32>()?, [0.0, 1.0]);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel {
    op: Op,
    key: DispatchKey,
    /// `None` for the kernel of a builtin operator's table entry.
    registered: Option<Registered<KernelFn>>,
}

/// The active kernel of an operator on a device, or with `"default"` the one for devices without
/// their own.
///
/// # Errors
/// The operator does not exist, or has no such kernel.
#[track_caller]
pub fn get_kernel(op: &str, key: impl IntoKey) -> Result<Kernel> {
    let loc = Loc::caller();
    ask_registrations(loc);
    let get = || {
        let op = registry::find(op)?;
        let key = key_for(op, key, loc)?;
        let registrations = op.lock_registrations();
        let registered = match key.device() {
            Some(device) if key != DispatchKey::Meta => registrations.resolve_kernel(device),
            Some(_) => None,
            None => registrations.default_kernel(),
        };
        // The table's kernels run on the CPU only.
        if registered.is_none() && !(op.is_builtin() && key == DispatchKey::Cpu) {
            return Err(Error::from(RegisterError::NoKernel {
                op: op.name().into(),
                what: key.what(),
                registered: registrations.describe(),
            }));
        }
        drop(registrations);
        Ok(Kernel { op, key, registered })
    };
    get().map_err(|e| e.at(loc))
}

impl Kernel {
    /// The kernel's operator.
    pub fn op(&self) -> Op {
        self.op
    }

    /// Calls the kernel under the contract of [`Op::call`], whatever the arguments' device.
    ///
    /// # Errors
    /// As [`Op::call`]; also if the kernel is no longer registered or an argument has no data.
    #[track_caller]
    pub fn call(&self, args: Args) -> Result<Outputs> {
        let loc = Loc::caller();
        if let Some(r) = &self.registered
            && !r.alive.load(Ordering::Acquire)
        {
            let gone = CallError::Gone { what: self.key.what(), registered: r.loc };
            return Err(Error::from(gone).in_call(self.op.shared_name(), loc));
        }
        crate::dispatch::call_kernel(self.op, self.registered.as_ref().map(|r| &r.f), args, loc)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({}, {})", self.op.name(), self.key)
    }
}

/// A guard that keeps a kernel enabled or disabled. Of several live guards, the newest decides.
#[must_use = "the kernel is as before once this is dropped"]
#[derive(Debug)]
pub struct KernelSwitch {
    op: Op,
    owner: RegistrationOwner,
}

impl Op {
    /// Disables the kernel of a device, or enables it again within a disabled region. The setting
    /// holds for all threads until the returned guard is dropped. Calls meanwhile run the default
    /// kernel, the definition's or the builtin one. It also applies to kernels that are registered
    /// while it holds.
    ///
    /// # Errors
    /// The operator has no registered kernel for the device.
    #[track_caller]
    pub fn set_kernel_enabled(&self, device: impl IntoKey, enabled: bool) -> Result<KernelSwitch> {
        let (loc, owner) = (Loc::caller(), RegistrationOwner::new());
        let switch = || {
            let key = key_for(*self, device, loc)?;
            let missing = |registered| {
                Error::from(RegisterError::NoKernel {
                    op: self.name().into(),
                    what: key.what(),
                    registered,
                })
            };
            let Some(device) = key.device().filter(|_| key != DispatchKey::Meta) else {
                return Err(RegisterError::Invalid {
                    op: self.name().into(),
                    detail: format!(
                        "only a device's kernel can be disabled, not the {}",
                        key.what()
                    ),
                }
                .into());
            };
            self.update(|registrations| {
                if registrations.kernels[device as usize].is_empty() {
                    return Err(missing(registrations.describe()));
                }
                registrations.switches[device as usize].push((owner, enabled));
                Ok(())
            })
        };
        switch().map_err(|e| e.at(loc))?;
        Ok(KernelSwitch { op: *self, owner })
    }
}

impl Drop for KernelSwitch {
    fn drop(&mut self) {
        self.op.release(self.owner);
    }
}
