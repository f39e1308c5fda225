//! The state of the random number generators: one Philox sequence per device. Every random operator
//! advances its device's sequence in program order, so a program with the same seed repeats its
//! numbers at any number of threads. Philox is counter-based (Salmon et al., "Parallel random
//! numbers: as easy as 1, 2, 3", 2011), so the state is only a seed and an offset.

use crate::dispatch::mode;
use crate::error::{Error, TraceError};
use crate::scoped_cell::with_value;
use maquette_ir::{Device, Loc};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use maquette_kernels::Philox;

/// The initial state of every device before [`manual_seed`]. It is fixed, so that programs repeat.
const START: Philox = Philox { seed: 67_280_421_310_721, offset: 0 };

struct Generators {
    start: Philox,
    /// The current state of each device used so far.
    at: FxHashMap<Device, Philox>,
}

static GENERATORS: Mutex<Option<Generators>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut Generators) -> R) -> R {
    let mut g: MutexGuard<'_, Option<Generators>> =
        GENERATORS.lock().unwrap_or_else(PoisonError::into_inner);
    f(g.get_or_insert_with(|| Generators { start: START, at: FxHashMap::default() }))
}

thread_local! {
    /// A private sequence of this thread, for computations that must not advance the devices'
    /// sequences.
    static APART: Cell<Option<Philox>> = const { Cell::new(None) };
}

/// Runs `f` with a private random sequence for this thread in place of every device's. The sequence
/// begins at `at`, which receives the state after `f`. In a trace, the trace fails.
#[track_caller]
pub fn apart<R>(at: &mut Philox, f: impl FnOnce() -> R) -> R {
    fails_trace(TraceError::Apart, Loc::caller());
    apart_also_in_traces(at, f)
}

/// As [`apart`], for calls that a trace makes on the side, and for calls whose random results it
/// keeps: no run of the graph depends on the sequence.
#[doc(hidden)]
pub fn apart_also_in_traces<R>(at: &mut Philox, f: impl FnOnce() -> R) -> R {
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

/// Whether a trace runs, which then fails with `why`: a run of its graph would neither set nor read
/// the generators.
fn fails_trace(why: TraceError, loc: Loc) -> bool {
    let is_tracing = mode::is_tracing();
    if is_tracing {
        mode::failed(Error::from(why).at(loc));
    }
    is_tracing
}

/// Restarts the sequences of all devices from `seed`. In a trace this does nothing, and the trace
/// fails.
#[track_caller]
pub fn manual_seed(seed: u64) {
    if fails_trace(TraceError::Seed, Loc::caller()) {
        return;
    }
    if APART.get().is_some() {
        return APART.set(Some(Philox { seed, offset: 0 }));
    }
    with(|g| *g = Generators { start: Philox { seed, offset: 0 }, at: FxHashMap::default() });
}

/// The state that a device's next random operator will use. In a trace, the trace fails.
#[track_caller]
pub fn state(device: Device) -> Philox {
    fails_trace(TraceError::ReadSeed, Loc::caller());
    state_also_in_traces(device)
}

/// As [`state`], where no run of a graph depends on the state.
#[doc(hidden)]
pub fn state_also_in_traces(device: Device) -> Philox {
    APART.get().unwrap_or_else(|| with(|g| g.at.get(&device).copied().unwrap_or(g.start)))
}

/// Sets the state of a device's sequence. In a trace this does nothing, and the trace fails.
#[track_caller]
pub fn set_state(device: Device, at: Philox) {
    if fails_trace(TraceError::Seed, Loc::caller()) {
        return;
    }
    if APART.get().is_some() {
        return APART.set(Some(at));
    }
    with(|g| {
        g.at.insert(device, at);
    });
}

thread_local! {
    /// The device for which this thread computes on the host.
    static INSTEAD: Cell<Option<Device>> = const { Cell::new(None) };
}

/// Runs `f`, which computes on the host, with the sequence of a device in place of the host's.
pub(crate) fn in_place_of_the_host<R>(device: Device, f: impl FnOnce() -> R) -> R {
    with_value(&INSTEAD, Some(device), f)
}

/// Advances a device's sequence by the counters that `numel` elements consume (four elements per
/// counter), and returns the state before. In a trace, the trace fails.
#[track_caller]
pub fn reserve(device: Device, numel: u64) -> Philox {
    fails_trace(TraceError::ReadSeed, Loc::caller());
    let device = INSTEAD.get().filter(|_| device == Device::Cpu).unwrap_or(device);
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
