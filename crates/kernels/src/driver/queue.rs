//! The commands of the CPU. Each is done when its call returns, so that a fence is a formality.

use crate::copy::copy;
use crate::view::{View, ViewMut};
use maquette_device::{Address, Elements, Fault, Fence, Queue};
use maquette_ir::DType;

pub(super) struct HostQueue;

/// The dtype that stands for elements of a width: a copy of it keeps all bits.
fn bits(width: usize) -> Option<DType> {
    match width {
        1 => Some(DType::U8),
        2 => Some(DType::I16),
        4 => Some(DType::I32),
        8 => Some(DType::I64),
        _ => None,
    }
}

impl Queue for HostQueue {
    unsafe fn upload(&self, from: &[u8], to: Address) -> Result<(), Fault> {
        // SAFETY: the caller's promise: `to` has as many bytes, which nobody else accesses.
        unsafe { to.as_ptr().copy_from(from.as_ptr(), from.len()) };
        Ok(())
    }

    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: the caller's promise: `from` has as many bytes, which nobody writes.
        unsafe { from.as_ptr().copy_to(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn copy(&self, from: Elements<'_>, to: Elements<'_>) -> Result<(), Fault> {
        let refused = || Fault::Unsupported {
            command: "copy",
            operands: format!("elements of {} bytes", from.width),
        };
        let dtype = bits(from.width).ok_or_else(refused)?;
        // SAFETY: the caller's promise: all elements are allocated, those of the target are apart.
        let (from, mut to) = unsafe {
            (
                View::from_raw(from.at.as_ptr(), dtype, from.sizes, from.strides),
                ViewMut::from_raw(to.at.as_ptr(), dtype, to.sizes, to.strides),
            )
        };
        Ok(copy(&from, &mut to)?)
    }

    fn fence(&self) -> Fence {
        Fence(0)
    }

    fn wait(&self, _fence: Fence) -> Result<(), Fault> {
        Ok(())
    }
}
