//! Tensors over storages of their own.

use super::Tensor;
use crate::error::{AccessError, Result};
use crate::tensor::borrow::Grant;
use crate::tensor::meta::{IntoDims, Meta, dims_text};
use crate::tensor::storage::{Buffer, Data, Storage};
use maquette_device::{Contents, Missing, OpenDevice};
use maquette_ir::{DType, Device};
use std::sync::Arc;

/// A device on which tensors can be.
///
/// # Errors
/// It has no driver here, or cannot be used.
pub(crate) fn opened(device: Device) -> Result<&'static dyn OpenDevice> {
    maquette_device::open(device).map_err(|missing| match missing {
        Missing::Driver(_) => AccessError::NoAllocator(device).into(),
        found => AccessError::Unavailable(device, found.to_string()).into(),
    })
}

impl Tensor {
    /// Zeroed memory of this metadata (strides and offset as given, which must be non-negative).
    #[doc(hidden)]
    pub fn allocate(meta: Meta) -> Result<Tensor> {
        Tensor::allocate_as(meta, Contents::Zeros)
    }

    /// As [`Tensor::allocate`], for a kernel that writes every element: what is in memory before is
    /// of any value.
    pub(crate) fn allocate_to_fill(meta: Meta) -> Result<Tensor> {
        // not every byte is a bool
        let is_bool = meta.dtype == DType::Bool;
        Tensor::allocate_as(meta, if is_bool { Contents::Zeros } else { Contents::Any })
    }

    fn allocate_as(meta: Meta, contents: Contents) -> Result<Tensor> {
        let failed =
            || AccessError::Allocation { sizes: dims_text(&meta.sizes), dtype: meta.dtype };
        let data = if meta.device == Device::Meta {
            Data::Fake
        } else {
            let bytes = match (meta.checked_dense_numel(), meta.offset.as_i64()) {
                (Some(n), Some(0)) => n.checked_mul(meta.dtype.size() as i64).ok_or_else(failed)?,
                _ => {
                    let c = meta.concrete().ok_or_else(failed)?;
                    if c.sizes.iter().any(|&n| n < 0) || c.strides.iter().any(|&s| s < 0) {
                        return Err(failed().into());
                    }
                    if c.sizes.contains(&0) { 0 } else { c.span().ok_or_else(failed)?.1 }
                }
            };
            let bytes = usize::try_from(bytes).map_err(|_| failed())?;
            let device = opened(meta.device)?;
            Data::Memory(Buffer::allocate(device, bytes, contents).map_err(|_| failed())?)
        };
        let storage = Arc::new(Storage::new(data));
        Ok(Tensor::live_node(meta, storage, None, Grant::NONE))
    }

    /// Adopts a host vector of `sizes` in row-major order.
    #[doc(hidden)]
    pub fn adopt<T: crate::Element>(data: Vec<T>, sizes: impl IntoDims) -> Result<Tensor> {
        Tensor::over(Buffer::from_vec(data), sizes, T::DTYPE)
    }

    /// Row-major of `sizes`, over all of `buffer`.
    pub(crate) fn over(buffer: Buffer, sizes: impl IntoDims, dtype: DType) -> Result<Tensor> {
        let meta = Meta::contiguous(sizes, dtype);
        let size = dtype.size() as i64;
        let bytes = meta
            .sizes
            .iter()
            .try_fold(size, |n, s| s.as_i64().filter(|s| *s >= 0).and_then(|s| n.checked_mul(s)));
        if bytes != i64::try_from(buffer.len()).ok() {
            return Err(AccessError::Shape {
                sizes: dims_text(&meta.sizes),
                found: buffer.len() / dtype.size(),
            }
            .into());
        }
        Ok(Tensor::live_node(meta, Arc::new(Storage::new(Data::Memory(buffer))), None, Grant::NONE))
    }

    /// A tensor of this metadata without contents, over a storage of its own.
    pub fn fake_of(meta: Meta) -> Tensor {
        let storage = Arc::new(Storage::new(Data::Fake));
        Tensor::live_node(meta, storage, None, Grant::NONE)
    }

    /// A row-major tensor on the host without contents: for asking operators about sizes.
    pub fn fake(sizes: impl IntoDims, dtype: DType) -> Tensor {
        Tensor::fake_of(Meta::contiguous(sizes, dtype))
    }
}
