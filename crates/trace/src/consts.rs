//! Constants: real tensors that existed before the trace, by reference to their live storage.

use maquette_ir::DType;
use maquette_ir::graph::ValueId;
use maquette_ops::{Concrete, Result, Tensor};
use rustc_hash::FxHashMap;

/// A real tensor that the graph refers to: what it is in the graph, and the fake tensor that stands
/// for it in fake kernels.
#[derive(Clone)]
pub(crate) struct ConstEntry {
    pub(crate) value: ValueId,
    pub(crate) tensor: Tensor,
    pub(crate) fake: Tensor,
}

impl ConstEntry {
    /// Whether the program writes to its memory.
    pub(crate) fn is_mutated(&self) -> bool {
        self.fake.storage().is_ok_and(|s| s.version() > 0)
    }
}

/// The real tensors of a trace, in the order they were met.
#[derive(Default)]
pub(crate) struct Consts {
    entries: Vec<ConstEntry>,
    /// By storage, layout and dtype.
    by_view: FxHashMap<(usize, DType, Vec<i64>), usize>,
    /// By storage: one of those that see it; all of them have one fake storage too.
    by_storage: FxHashMap<usize, usize>,
}

impl Consts {
    /// Which a real tensor is: as met before, or with what `define` makes of it now.
    pub(crate) fn get_or_define(
        &mut self,
        t: &Tensor,
        define: impl FnOnce(&Tensor) -> Result<ValueId>,
    ) -> Result<usize> {
        // a known tensor keeps its storage alive, so its address stays its own
        let storage = std::sync::Arc::as_ptr(t.storage()?).addr();
        let view = (storage, t.dtype(), t.meta().concrete().map(flat).unwrap_or_default());
        if let Some(&at) = self.by_view.get(&view) {
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
        self.by_view.insert(view, at);
        Ok(at)
    }

    pub(crate) fn all(&self) -> &[ConstEntry] {
        &self.entries
    }
}

fn flat(c: Concrete) -> Vec<i64> {
    c.sizes.iter().chain(&c.strides).copied().chain([c.offset]).collect()
}
