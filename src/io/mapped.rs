//! Files mapped into memory: tensors over the file's own pages.
//!
//! Safety of this module: each tensor has its bytes to itself, since the parts of a safetensors
//! file do not overlap, and keeps the map alive. The map is private: a write to a tensor changes a
//! copy of a page, never the file. That nobody else rewrites or truncates the file meanwhile cannot
//! be checked here; whoever calls [`Weights::map`] promises it.
#![allow(unsafe_code)]

use super::{TensorEntry, Weights, copy_tensor, of_file, refusal, tensor_entries};
use crate::{DType, Loc, Result, Tensor};
use memmap2::{MmapOptions, MmapRaw};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

impl Weights {
    /// As [`Weights::load`] without reading the file: the tensors are its pages, which the system
    /// reads when they are first used and shares between programs. A write to a tensor is private
    /// to it; the file never changes.
    ///
    /// Copied are only bools, and tensors whose bytes do not lie as their dtype needs.
    ///
    /// # Errors
    /// As [`Weights::load`].
    ///
    /// # Safety
    /// While a tensor of the file lives, nobody writes to the file or truncates it.
    #[track_caller]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Weights> {
        let (path, loc) = (path.as_ref(), Loc::caller());
        // SAFETY: nobody changes the file, by this function's own contract.
        unsafe { Weights::map_file(path) }.map_err(|e| of_file("map", path, &e).at(loc))
    }

    /// As [`Weights::map`], with errors that name no file.
    ///
    /// # Safety
    /// As [`Weights::map`].
    unsafe fn map_file(path: &Path) -> Result<Weights> {
        let file = File::open(path).map_err(refusal)?;
        // SAFETY: nobody changes the file, by this function's own contract.
        let map = unsafe { MmapOptions::new().map_copy(&file) }.map_err(refusal)?;
        let mut weights = BTreeMap::new();
        let mut own_pages = Vec::new();
        for part in tensor_entries(&map)? {
            let bytes = map.get(part.range.clone()).unwrap_or_default();
            let as_is = cfg!(target_endian = "little") && part.dtype != DType::Bool;
            if as_is && bytes.as_ptr().addr().is_multiple_of(part.dtype.size()) {
                own_pages.push(part);
            } else {
                weights.insert(part.name, copy_tensor(part.dtype, bytes, part.sizes).ok()?.clone());
            }
        }
        let map = Arc::new(MmapRaw::from(map));
        for TensorEntry { name, dtype, sizes, range } in own_pages {
            // SAFETY: `tensor_entries` gave a range inside the map, which starts at no null
            // pointer.
            let start = unsafe { NonNull::new_unchecked(map.as_mut_ptr().add(range.start)) };
            let bytes = NonNull::slice_from_raw_parts(start, range.len());
            // SAFETY: the bytes live as long as the map, are any value of their dtype, and are this
            // tensor's alone.
            let tensor =
                unsafe { Tensor::from_foreign(bytes, sizes, dtype, Box::new(map.clone())) };
            weights.insert(name, tensor.ok()?.clone());
        }
        Ok(Weights(weights))
    }
}
