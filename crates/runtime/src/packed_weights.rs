//! Constants in packed form: the layout that the products of launches read.
//!
//! A packed weight is a copy of a constant, made at the first run that launches a product of it. It
//! has the version of the storage, which every write moves. A run compares versions while it borrows
//! the constant for reading, and packs again if it moved. So constants are live: whoever writes one
//! needs to recompile nothing.
//!
//! Launches of all instances of an executable share a packed weight, if they read the same memory in
//! the same way. It goes with the last of them.
//!
//! **Invariant:** the memory of a constant does not change between the comparison and the launch.
//! Other writers are refused for the whole run, and a constant is not packed if the run itself
//! writes its storage.

use maquette_ops::{PackKey, PackedOperand, Result};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// What a packed weight depends on, beside the contents: the constant, the byte at which the operand
/// begins, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WeightKey {
    pub constant: usize,
    pub start: i64,
    pub read: PackKey,
}

/// A weight of launches, with its packed form and the version of which this is.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    key: WeightKey,
    packed: RwLock<Option<(u64, Arc<PackedOperand>)>>,
}

/// The packed weights of an executable.
#[derive(Debug, Default)]
pub(crate) struct PackedWeights(Mutex<Vec<Weak<PackedWeight>>>);

impl PackedWeight {
    /// The constant.
    pub fn constant(&self) -> usize {
        self.key.constant
    }

    /// The packed form of this version. `pack` makes it. `None` if it cannot: there is not enough
    /// memory for the copy.
    pub fn of_version(
        &self,
        version: u64,
        pack: impl FnOnce() -> Result<PackedOperand>,
    ) -> Option<Arc<PackedOperand>> {
        let current = |packed: &Option<(u64, Arc<PackedOperand>)>| match packed {
            Some((of, packed)) if *of == version => Some(packed.clone()),
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
        *packed = Some((version, new.clone()));
        Some(new)
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
            let new = Arc::new(PackedWeight { key, packed: RwLock::default() });
            weights.push(Arc::downgrade(&new));
            new
        })
    }

    /// The bytes of all packed forms.
    pub fn bytes(&self) -> usize {
        let weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        weights.iter().filter_map(Weak::upgrade).map(|w| w.bytes()).sum()
    }
}
