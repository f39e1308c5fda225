//! Weights in packed form: in the layout that the products of launches read, or as the values that
//! a launch computes of several weights.
//!
//! Weights are constants, and the inputs that are the same tensors in every run: the parameters of
//! an exported program. A packed weight is a copy, made at the first run that launches what reads
//! it. It belongs to one version of each storage. Every write moves the version; a run compares it
//! while it borrows the weights for reading, and packs again if it moved. So weights are live:
//! whoever writes one needs to recompile nothing.
//!
//! Frozen weights do not change, so their packed form is kept with references to the storages, and
//! compared with nothing but the places.
//!
//! Launches of all instances of an executable share a packed weight, if they read the same memory
//! in the same way. Values belong to the launch of one instance. Both go with the last launch.
//!
//! **Invariant:** the memory of a weight does not change between the comparison and the launch.
//! Other writers are refused for the whole run, and a weight is not packed if the run itself writes
//! its storage.
//!
//! **Cost:** a comparison for each weight and launch. Finding the packed weight of a launch takes
//! constant time; those that are gone are removed whenever the number has doubled.

use crate::instance::External;
use maquette_device::{Address, PackKey, PackedOperand};
use maquette_ops::internals::StorageInternals;
use maquette_ops::{Result, Storage};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// What a packed weight depends on, beside the memory: the tensors, the bytes at which the operands
/// begin, and how they are read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WeightKey {
    pub operands: SmallVec<[(External, i64); 1]>,
    pub read: PackKey,
}

/// Where a weight is in a run.
pub(crate) struct WeightPlace<'a> {
    pub storage: &'a Arc<Storage>,
    pub address: Address,
}

/// The memory of a weight at one time.
#[derive(Clone, Debug)]
struct Contents {
    /// No other storage has its address while this reference exists.
    storage: Weak<Storage>,
    address: Address,
    version: u64,
}

/// A packed form, with the memory of the weights from which it was made.
type Packed = (SmallVec<[Contents; 1]>, Arc<dyn PackedOperand>);

/// A weight of launches, or several, with the packed form.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    key: WeightKey,
    packed: RwLock<Option<Packed>>,
    frozen: OnceLock<Frozen>,
}

/// The packed form of frozen storages, from these addresses on.
struct Frozen {
    of: SmallVec<[(Arc<Storage>, Address); 1]>,
    packed: Arc<dyn PackedOperand>,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("storages", &self.of.len()).finish_non_exhaustive()
    }
}

/// The packed weights of an executable.
#[derive(Debug, Default)]
pub(crate) struct PackedWeights(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    weights: FxHashMap<WeightKey, Weak<PackedWeight>>,
    /// How many were live when those that are gone were removed last.
    live: usize,
}

impl Contents {
    fn of(place: &WeightPlace<'_>) -> Contents {
        let WeightPlace { storage, address } = *place;
        Contents { storage: Arc::downgrade(storage), address, version: storage.writes() }
    }

    fn are_at(&self, place: &WeightPlace<'_>) -> bool {
        let is_same = std::ptr::eq(self.storage.as_ptr(), Arc::as_ptr(place.storage));
        is_same && self.address == place.address && self.version == place.storage.writes()
    }
}

impl PackedWeight {
    /// The tensors.
    pub fn tensors(&self) -> impl Iterator<Item = External> + '_ {
        self.key.operands.iter().map(|(tensor, _)| *tensor)
    }

    /// The packed form of operands at these places, which the caller has borrowed for reading.
    /// `pack` makes it. `None` if it cannot: there is not enough memory for the copy.
    pub fn of(
        &self,
        places: &[WeightPlace<'_>],
        pack: impl FnOnce() -> Result<Arc<dyn PackedOperand>>,
    ) -> Option<Arc<dyn PackedOperand>> {
        if let Some(frozen) = self.frozen.get()
            && frozen.of.iter().zip(places).all(|((storage, address), place)| {
                Arc::ptr_eq(storage, place.storage) && *address == place.address
            })
        {
            return Some(frozen.packed.clone());
        }
        let current = |packed: &Option<Packed>| match packed {
            Some((of, packed)) if of.iter().zip(places).all(|(of, place)| of.are_at(place)) => {
                Some(packed.clone())
            }
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
        let contents = places.iter().map(Contents::of).collect();
        let new = pack().ok()?;
        *packed = Some((contents, new.clone()));
        drop(packed);
        self.keep_frozen();
        Some(new)
    }

    /// Keeps the packed form for good, if its storages are frozen and were not written since.
    fn keep_frozen(&self) {
        let packed = self.packed.read().unwrap_or_else(PoisonError::into_inner);
        let Some((contents, packed)) = &*packed else { return };
        let frozen = contents.iter().map(|contents| {
            let storage = contents.storage.upgrade()?;
            // Frozen first: a version that is read afterwards is the last one.
            let is_last = storage.is_frozen() && storage.writes() == contents.version;
            is_last.then_some((storage, contents.address))
        });
        if let Some(of) = frozen.collect() {
            // Another thread keeps an equal one.
            let _ = self.frozen.set(Frozen { of, packed: packed.clone() });
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
        let mut registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = registry.weights.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        if registry.weights.len() > 2 * registry.live {
            registry.weights.retain(|_, weight| weight.strong_count() > 0);
            registry.live = registry.weights.len().max(8);
        }
        let (packed, frozen) = (RwLock::default(), OnceLock::new());
        let new = Arc::new(PackedWeight { key: key.clone(), packed, frozen });
        registry.weights.insert(key, Arc::downgrade(&new));
        new
    }

    /// Keeps the packed forms of frozen weights.
    pub fn keep_frozen(&self) {
        self.live().iter().for_each(|weight| weight.keep_frozen());
    }

    /// The bytes of all packed forms.
    pub fn bytes(&self) -> usize {
        self.live().iter().map(|weight| weight.bytes()).sum()
    }

    fn live(&self) -> Vec<Arc<PackedWeight>> {
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry.weights.values().filter_map(Weak::upgrade).collect()
    }
}
