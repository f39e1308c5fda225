//! Constants of a trace: real tensors that existed before it, by reference to their live storage.

use maquette_ir::DType;
use maquette_ir::graph::ValueId;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::{Concrete, Result, Tensor};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A real tensor that the graph refers to: its value in the graph, and the fake tensor that
/// represents it in fake kernels.
#[derive(Clone)]
pub(crate) struct ConstEntry {
    pub(crate) value: ValueId,
    pub(crate) tensor: Tensor,
    pub(crate) fake: Tensor,
}

impl ConstEntry {
    /// Whether the program writes to the tensor's memory: the version of the fake storage counts
    /// writes.
    pub(crate) fn is_mutated(&self) -> bool {
        self.fake.writes() > 0
    }
}

/// The real tensors of a trace, in the order of their first use.
#[derive(Default)]
pub(crate) struct Consts {
    entries: Vec<ConstEntry>,
    /// Indices by storage address, dtype and layout. Each handle has its own: of the handles of
    /// one view, some may require a gradient.
    by_view: FxHashMap<(usize, DType, Vec<i64>), SmallVec<[usize; 1]>>,
    /// By storage address: the index of one tensor with that storage. Fake tensors of one storage
    /// share a fake storage.
    by_storage: FxHashMap<usize, usize>,
}

impl Consts {
    /// The index of a real tensor. A new one is added with the value that `define` returns.
    pub(crate) fn get_or_define(
        &mut self,
        t: &Tensor,
        define: impl FnOnce(&Tensor) -> Result<ValueId>,
    ) -> Result<usize> {
        // an entry keeps its tensor's storage alive, so the address is not reused
        let storage = std::sync::Arc::as_ptr(t.own_storage()?).addr();
        let view = (storage, t.dtype(), t.meta().concrete().map(flat).unwrap_or_default());
        let mut handles = self.by_view.get(&view).into_iter().flatten().copied();
        if let Some(at) = handles.find(|&at| self.entries[at].tensor.is_same_handle(t)) {
            return Ok(at);
        }
        let meta = t.meta().clone();
        let fake = match self.by_storage.get(&storage).and_then(|&i| self.entries.get(i)) {
            Some(other) => other.fake.fake_view(meta)?,
            None => Tensor::fake_of(meta),
        };
        let at = self.entries.len();
        self.entries.push(ConstEntry { value: define(t)?, tensor: t.clone(), fake });
        self.by_storage.entry(storage).or_insert(at);
        self.by_view.entry(view).or_default().push(at);
        Ok(at)
    }

    /// Whether one of the tensors has the storage of `t`.
    pub(crate) fn has_storage_of(&self, t: &Tensor) -> bool {
        let storage = t.own_storage().map(|storage| std::sync::Arc::as_ptr(storage).addr());
        storage.is_ok_and(|storage| self.by_storage.contains_key(&storage))
    }

    pub(crate) fn all(&self) -> &[ConstEntry] {
        &self.entries
    }
}

/// Sizes, strides and offset as one key.
fn flat(layout: Concrete) -> Vec<i64> {
    layout.sizes.iter().chain(&layout.strides).copied().chain([layout.offset]).collect()
}
