//! Copies of tensors that preserve which of them share storages.

use crate::dispatch::cpu_exec;
use crate::dispatch::mode::{self, Question};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::borrow::{Access, unobserved};
use crate::tensor::holder::Holder;
use crate::tensor::meta::Meta;
use maquette_ir::{DType, Loc};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Copies tensors together with their whole storages, each storage once. Copies of views of one
/// storage are views of one copied storage, with the same strides and offsets. A kernel therefore
/// cannot distinguish the copies from the originals.
#[derive(Default)]
pub struct StorageCloner {
    /// Keyed by the storage's address: an original tensor, which keeps the address from being
    /// reused, and the copied bytes.
    by_storage: FxHashMap<usize, (Tensor, Tensor)>,
}

impl StorageCloner {
    /// A copy of `t`. Its contents are those at the time its storage was first copied, plus any
    /// writes through other copies since then.
    ///
    /// # Errors
    /// A trace runs, and the tensor is from outside; it is poisoned, traced or fake, or
    /// somebody is writing to it.
    #[track_caller]
    pub fn clone_of(&mut self, t: &Tensor) -> Result<Tensor> {
        let loc = Loc::caller();
        let what = "the contents of a tensor from outside of the trace";
        mode::ask(Question::State(t), what, loc)?;
        let storage = t.alive()?.own_storage()?;
        t.raw_on_device()?;
        let key = Arc::as_ptr(storage).addr();
        if let Some((_, copy)) = self.by_storage.get(&key) {
            return copy.view_of(t.meta().clone());
        }
        let bytes = Meta::contiguous([storage.len()], DType::U8).on(t.device());
        let from = t.view_of(bytes.clone())?;
        let copy = Tensor::allocate(bytes)?;
        let borrow = unobserved(|| from.borrow(Access::Read, Holder::Guard(loc)))?;
        match t.is_on_host() {
            true => cpu_exec::copy(&from, &copy)?,
            false => copy.copy_elements_of(&from)?,
        }
        drop(borrow);
        let view = copy.view_of(t.meta().clone());
        self.by_storage.insert(key, (t.without_grant(), copy));
        view
    }
}
