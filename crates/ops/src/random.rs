//! Random numbers: one Philox sequence a device, advanced by every random operator in program
//! order.

use maquette_ir::Device;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use maquette_kernels::Philox;

/// Where every device starts until [`manual_seed`] is called, so that programs repeat.
const START: Philox = Philox { seed: 67_280_421_310_721, offset: 0 };

struct Generators {
    start: Philox,
    /// Devices that have been used.
    at: FxHashMap<Device, Philox>,
}

static GENERATORS: Mutex<Option<Generators>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut Generators) -> R) -> R {
    let mut g: MutexGuard<'_, Option<Generators>> =
        GENERATORS.lock().unwrap_or_else(PoisonError::into_inner);
    f(g.get_or_insert_with(|| Generators { start: START, at: FxHashMap::default() }))
}

thread_local! {
    /// A sequence of this thread's own, for a program that must not be seen to draw.
    static APART: Cell<Option<Philox>> = const { Cell::new(None) };
}

/// Runs `f` with a sequence of this thread's own in place of every device's, beginning at `at`,
/// which is left where `f` got to.
pub fn apart<R>(at: &mut Philox, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Philox>);
    impl Drop for Restore {
        fn drop(&mut self) {
            APART.set(self.0);
        }
    }
    let restore = Restore(APART.replace(Some(*at)));
    let result = f();
    *at = APART.get().unwrap_or(*at);
    drop(restore);
    result
}

/// Starts the sequences of all devices again, from `seed`.
pub fn manual_seed(seed: u64) {
    if APART.get().is_some() {
        return APART.set(Some(Philox { seed, offset: 0 }));
    }
    with(|g| *g = Generators { start: Philox { seed, offset: 0 }, at: FxHashMap::default() });
}

/// Where a device's sequence is: what the next random operator will use.
pub fn state(device: Device) -> Philox {
    APART.get().unwrap_or_else(|| with(|g| g.at.get(&device).copied().unwrap_or(g.start)))
}

/// Sets where a device's sequence is.
pub fn set_state(device: Device, at: Philox) {
    if APART.get().is_some() {
        return APART.set(Some(at));
    }
    with(|g| {
        g.at.insert(device, at);
    });
}

/// Takes what a tensor of `numel` elements needs from a device's sequence, four elements a counter.
pub fn reserve(device: Device, numel: u64) -> Philox {
    let after = |at: Philox| Philox { offset: at.offset.wrapping_add(numel.div_ceil(4)), ..at };
    if let Some(at) = APART.get() {
        APART.set(Some(after(at)));
        return at;
    }
    with(|g| {
        let start = g.start;
        let next = g.at.entry(device).or_insert(start);
        std::mem::replace(next, after(*next))
    })
}
