//! Constants: real tensors that existed before the trace, by reference to their live storage.

use maquette_ir::DType;
use maquette_ir::graph::{ConstSource, Digest, ValueId};
use maquette_ops::{Concrete, Element, Result, Tensor};
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256};

/// A constant's contents: the captured tensor itself. Writes to it, by the graph or outside, are
/// seen by both.
#[derive(Clone, Debug)]
pub struct Captured(pub Tensor);

impl ConstSource for Captured {
    /// Over dtype, sizes and the elements in row-major order, as they are now; zero where they
    /// cannot be read.
    fn digest(&self) -> Digest {
        maquette_ops::mode::without_modes(|| self.sha256()).unwrap_or(Digest([0; 8]))
    }
}

trait Bytes: Element {
    fn update(self, hash: &mut Sha256);
}

macro_rules! bytes {
    ($($t:ty),*) => { $(impl Bytes for $t {
        fn update(self, hash: &mut Sha256) {
            hash.update(self.to_le_bytes());
        }
    })* };
}
bytes!(u8, i8, i16, i32, i64, half::f16, half::bf16, f32, f64);

impl Bytes for bool {
    fn update(self, hash: &mut Sha256) {
        hash.update([u8::from(self)]);
    }
}

impl Captured {
    fn sha256(&self) -> Result<Digest> {
        let t = &self.0;
        let mut hash = Sha256::new();
        hash.update(t.dtype().name());
        for n in t.sizes_i64()? {
            hash.update(n.to_le_bytes());
        }
        match t.dtype() {
            DType::Bool => elements::<bool>(t, &mut hash),
            DType::U8 => elements::<u8>(t, &mut hash),
            DType::I8 => elements::<i8>(t, &mut hash),
            DType::I16 => elements::<i16>(t, &mut hash),
            DType::I32 => elements::<i32>(t, &mut hash),
            DType::I64 => elements::<i64>(t, &mut hash),
            DType::F16 => elements::<half::f16>(t, &mut hash),
            DType::BF16 => elements::<half::bf16>(t, &mut hash),
            DType::F32 => elements::<f32>(t, &mut hash),
            DType::F64 => elements::<f64>(t, &mut hash),
        }?;
        let mut first = [0; 8];
        first.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        Ok(Digest(first))
    }
}

fn elements<T: Bytes>(t: &Tensor, hash: &mut Sha256) -> Result<()> {
    t.read::<T>()?.iter().for_each(|x| x.update(hash));
    Ok(())
}

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
