//! Weights in packed form: the layout that the products of launches read.
//!
//! Weights are constants, and the inputs that are the same tensors in every run: the parameters of an
//! exported program. A packed weight is a copy, made at the first run that launches a product of it.
//! It belongs to one version of one storage. Every write moves the version; a run compares it while
//! it borrows the weight for reading, and packs again if it moved. So weights are live: whoever
//! writes one needs to recompile nothing.
//!
//! A frozen weight does not change, so its packed form is kept with a reference to the storage, and
//! compared with nothing but the place.
//!
//! Launches of all instances of an executable share a packed weight, if they read the same memory in
//! the same way. It goes with the last of them.
//!
//! **Invariant:** the memory of a weight does not change between the comparison and the launch. Other
//! writers are refused for the whole run, and a weight is not packed if the run itself writes its
//! storage.

use crate::instance::External;
use maquette_ops::{PackKey, PackedOperand, Result, Storage};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// What a packed weight depends on, beside the memory: the tensor, the byte at which the operand
/// begins, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WeightKey {
    pub tensor: External,
    pub start: i64,
    pub read: PackKey,
}

/// The memory of a weight at one time.
#[derive(Clone, Debug)]
struct Contents {
    /// No other storage has its address while this reference exists.
    storage: Weak<Storage>,
    address: usize,
    version: u64,
}

/// A weight of launches, with its packed form.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    key: WeightKey,
    packed: RwLock<Option<(Contents, Arc<PackedOperand>)>>,
    frozen: OnceLock<Frozen>,
}

/// The packed form of a frozen storage, from this address on.
struct Frozen {
    storage: Arc<Storage>,
    address: usize,
    packed: Arc<PackedOperand>,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The packed weights of an executable.
#[derive(Debug, Default)]
pub(crate) struct PackedWeights(Mutex<Vec<Weak<PackedWeight>>>);

impl Contents {
    fn are(&self, storage: &Arc<Storage>, address: usize, version: u64) -> bool {
        let is_same = std::ptr::eq(self.storage.as_ptr(), Arc::as_ptr(storage));
        is_same && self.address == address && self.version == version
    }
}

impl PackedWeight {
    /// The tensor.
    pub fn tensor(&self) -> External {
        self.key.tensor
    }

    /// The packed form of an operand at this address, which the caller has borrowed for reading.
    /// `pack` makes it. `None` if it cannot: there is not enough memory for the copy.
    pub fn of(
        &self,
        storage: &Arc<Storage>,
        address: usize,
        pack: impl FnOnce() -> Result<PackedOperand>,
    ) -> Option<Arc<PackedOperand>> {
        if let Some(frozen) = self.frozen.get()
            && Arc::ptr_eq(&frozen.storage, storage)
            && frozen.address == address
        {
            return Some(frozen.packed.clone());
        }
        let version = storage.version();
        let current = |packed: &Option<(Contents, Arc<PackedOperand>)>| match packed {
            Some((of, packed)) if of.are(storage, address, version) => Some(packed.clone()),
            _ => None,
        };
        let found = current(&self.packed.read().unwrap_or_else(PoisonError::into_inner));
        if found.is_some() {
            return found;
        }
        let mut packed = self.packed.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = current(&packed) {
            return Some(found);
        }
        // The memory of the old form goes first.
        *packed = None;
        let new = Arc::new(pack().ok()?);
        let contents = Contents { storage: Arc::downgrade(storage), address, version };
        *packed = Some((contents, new.clone()));
        drop(packed);
        self.keep_frozen();
        Some(new)
    }

    /// Keeps the packed form for good, if its storage is frozen and was not written since.
    fn keep_frozen(&self) {
        let packed = self.packed.read().unwrap_or_else(PoisonError::into_inner);
        let Some((contents, packed)) = &*packed else { return };
        let Some(storage) = contents.storage.upgrade() else { return };
        // Frozen first: a version that is read afterwards is the last one.
        if storage.is_frozen() && storage.version() == contents.version {
            let (address, packed) = (contents.address, packed.clone());
            // Another thread keeps an equal one.
            let _ = self.frozen.set(Frozen { storage, address, packed });
        }
    }

    fn bytes(&self) -> usize {
        let packed = self.packed.read().unwrap_or_else(PoisonError::into_inner);
        packed.as_ref().map_or(0, |(_, packed)| packed.bytes())
    }
}

impl PackedWeights {
    /// The weight of a key, which all launches share.
    pub fn of(&self, key: WeightKey) -> Arc<PackedWeight> {
        let mut weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = weights.iter().filter_map(Weak::upgrade).find(|w| w.key == key);
        found.unwrap_or_else(|| {
            weights.retain(|w| w.strong_count() > 0);
            let new =
                Arc::new(PackedWeight { key, packed: RwLock::default(), frozen: OnceLock::new() });
            weights.push(Arc::downgrade(&new));
            new
        })
    }

    /// Keeps the packed forms of frozen weights.
    pub fn keep_frozen(&self) {
        let weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        weights.iter().filter_map(Weak::upgrade).for_each(|w| w.keep_frozen());
    }

    /// The bytes of all packed forms.
    pub fn bytes(&self) -> usize {
        let weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        weights.iter().filter_map(Weak::upgrade).map(|w| w.bytes()).sum()
    }
}
