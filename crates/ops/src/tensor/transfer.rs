//! Transfers of tensors between the host and the memory of other devices.
//!
//! A transfer moves bytes, and keeps sizes and strides: conversions are left to whoever computes on
//! one side. Only elements are written, never the bytes between them, which may belong to another
//! tensor that somebody else writes meanwhile.
//!
//! Safety of this module: a tensor is read or written only while the running call has borrowed the
//! tensor's region, or if the call has made the tensor and not yet shared it. Its layout lies
//! inside its storage ([`Tensor::raw_on_device`]).
#![allow(unsafe_code)]

use crate::dispatch::failures::failed as dispatch_failed;
use crate::error::{AccessError, Error, Result};
use crate::functional_call;
use crate::mode;
use crate::tensor::Tensor;
use crate::tensor::access::Raw;
use crate::tensor::borrow::Access;
use crate::tensor::create::opened;
use crate::tensor::holder::Holder;
use crate::tensor::meta::{Concrete, Meta};
use crate::tensor::overlap::is_nested;
use maquette_device::{Address, Block, Contents, Elements, Fault};
use maquette_ir::{Device, Loc};
use std::borrow::Cow;

/// The number of bytes from the first element to the end of the last.
fn span(layout: &Concrete) -> usize {
    let from_start = Concrete { offset: 0, ..layout.clone() };
    match layout.sizes.contains(&0) {
        true => 0,
        false => from_start.span().and_then(|(_, end)| usize::try_from(end).ok()).unwrap_or(0),
    }
}

fn elements(at: Address, layout: &Concrete) -> Elements<'_> {
    Elements { at, width: layout.width as usize, sizes: &layout.sizes, strides: &layout.strides }
}

fn failed(device: Device) -> impl Fn(Fault) -> Error {
    move |fault| Error::of_fault(device, fault, None)
}

impl Tensor {
    /// Whether host code can read the memory of the tensor.
    pub(crate) fn is_on_host(&self) -> bool {
        self.device() == Device::Cpu
            || opened(self.device()).is_ok_and(|device| device.target().is_host_memory)
    }

    /// A copy on the host, of the same sizes and strides. The caller has borrowed the tensor.
    ///
    /// # Errors
    /// The tensor is poisoned or fake; memory runs out; a command on the device has failed.
    pub(crate) fn downloaded(&self) -> Result<Tensor> {
        let device = self.device();
        let Raw { ptr, layout } = self.raw_on_device()?;
        let meta = Meta { offset: 0.into(), device: Device::Cpu, ..self.meta().clone() };
        let host = Tensor::allocate_to_fill(meta)?;
        let to = host.raw()?.ptr;
        // SAFETY: the copy is new, and has as many bytes as its layout, which is that of `self`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), span(&layout)) };
        // SAFETY: the bytes lie in the storage; nobody writes the elements among them.
        unsafe { opened(device)?.queue().download(Address::of_host(ptr), bytes) }
            .map_err(failed(device))?;
        // The launches before are done, and one of them may have failed.
        self.alive()?;
        Ok(host)
    }

    /// A copy of a new tensor of the host on a device, of the same sizes and strides.
    ///
    /// # Errors
    /// Memory runs out, or the device is lost.
    pub(crate) fn uploaded(&self, device: Device) -> Result<Tensor> {
        let meta = Meta { offset: 0.into(), device, ..self.meta().clone() };
        let copy = Tensor::allocate_to_fill(meta)?;
        self.upload_bytes(device, Address::of_host(copy.raw_on_device()?.ptr))?;
        Ok(copy)
    }

    /// Copies the bytes from the first element to the last.
    fn upload_bytes(&self, device: Device, to: Address) -> Result<()> {
        let Raw { ptr, layout } = self.raw()?;
        // SAFETY: the bytes lie in a storage of the host that only the running call has.
        let bytes = unsafe { std::slice::from_raw_parts(ptr.as_ptr(), span(&layout)) };
        // SAFETY: the target has memory for this layout, which only the running call accesses.
        unsafe { opened(device)?.queue().upload(bytes, to) }.map_err(failed(device))
    }

    /// Copies a new tensor of the host, of the same sizes and dtype, into this one, which the
    /// caller has borrowed to write.
    ///
    /// # Errors
    /// As [`Tensor::uploaded`].
    pub(crate) fn upload_from(&self, host: &Tensor) -> Result<()> {
        let device = self.device();
        let to = self.raw_on_device()?;
        let from = host.raw()?.layout;
        let at = Address::of_host(to.ptr);
        let numel: i64 = from.sizes.iter().product();
        let is_dense = is_nested(&from) && span(&from) as i64 == numel * from.width;
        if is_dense && from.strides == to.layout.strides {
            return host.upload_bytes(device, at);
        }
        let opened = opened(device)?;
        let staged =
            Block::allocate(opened.memory(), span(&from), Contents::Any).map_err(|_| {
                AccessError::Allocation {
                    sizes: super::dims_text(self.sizes()),
                    dtype: self.dtype(),
                }
            })?;
        host.upload_bytes(device, staged.at())?;
        let source = elements(staged.at(), &from);
        let target = elements(at, &to.layout);
        // SAFETY: both layouts lie in their memory. The staged bytes are new; the target is
        // borrowed, and no two of its elements share a byte, since it is written.
        unsafe { opened.queue().copy(source, target) }.map_err(failed(device))
    }

    /// Copies the elements of a tensor of the same device, sizes and dtype into this one. The
    /// caller has borrowed both, which do not overlap.
    ///
    /// # Errors
    /// As [`Tensor::uploaded`].
    pub(crate) fn copy_elements_of(&self, from: &Tensor) -> Result<()> {
        let device = self.device();
        let (read, written) = (from.raw_on_device()?, self.raw_on_device()?);
        let source = elements(Address::of_host(read.ptr), &read.layout);
        let target = elements(Address::of_host(written.ptr), &written.layout);
        // SAFETY: the layouts lie in their storages, which are borrowed.
        unsafe { opened(device)?.queue().copy(source, target) }.map_err(failed(device))?;
        self.own_storage()?.poison_late(&from.own_storage()?.late_slots());
        Ok(())
    }

    /// The tensor, or a copy on the host if host code cannot read the tensor's memory. A tensor
    /// without contents is returned as it is, and so is each tensor while a trace runs: the access
    /// that follows reports them.
    ///
    /// # Errors
    /// As [`Tensor::read`]; a command on the device has failed.
    #[track_caller]
    pub(crate) fn readable(&self) -> Result<Cow<'_, Tensor>> {
        let is_elsewhere = self.device() != Device::Cpu && !self.is_on_host();
        if !is_elsewhere || self.alive().is_err() || self.is_fake() || mode::is_active() {
            return Ok(Cow::Borrowed(self));
        }
        let loc = Loc::caller();
        let copy = || {
            functional_call::check_access(self, "read")?;
            let _borrow = self.borrow(Access::Read, Holder::Guard(loc))?;
            self.downloaded()
        };
        copy().map(Cow::Owned).map_err(|e| dispatch_failed(e.at(loc)))
    }
}
