//! The process's one thread pool. `MAQUETTE_NUM_THREADS` sets its size; the default is the number of cores.

use crate::error::{KernelError, Result};
use rayon::prelude::*;
use std::sync::{LazyLock, OnceLock};

static POOL: LazyLock<Option<rayon::ThreadPool>> = LazyLock::new(|| {
    let asked = std::env::var("MAQUETTE_NUM_THREADS").ok().and_then(|v| v.parse().ok()).filter(|n| *n > 0);
    let n = asked.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    // Without threads (none to be had, or one asked for) work stays on the caller's.
    (n > 1).then(|| rayon::ThreadPoolBuilder::new().num_threads(n).thread_name(|i| format!("maquette-{i}")).build().ok())?
});

/// Elements of simple work below which it stays on the caller's thread.
pub const GRAIN: usize = 32 * 1024;

/// How many threads large work is spread over.
pub fn num_threads() -> usize {
    POOL.as_ref().map_or(1, |p| p.current_num_threads())
}

/// Runs `f(0..n)`, on the pool if `parallel`; if several fail, the error is the lowest task's.
///
/// Not generic, as is everything here that calls rayon: its machinery is compiled once.
pub(crate) fn try_for(n: usize, parallel: bool, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    match POOL.as_ref() {
        Some(pool) if parallel && n > 1 => {
            let error: Option<KernelError> = pool.install(|| (0..n).into_par_iter().with_max_len(1).find_map_first(|i| f(i).err()));
            error.map_or(Ok(()), Err)
        }
        _ => (0..n).try_for_each(f),
    }
}

/// `f(0..n)`, in order, computed on the pool.
pub(crate) fn map<T: Send + Sync>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let slots: Vec<OnceLock<T>> = (0..n).map(|_| OnceLock::new()).collect();
    let task = |i: usize| {
        slots[i].get_or_init(|| f(i));
        Ok(())
    };
    // No task fails.
    let _ = try_for(n, true, &task);
    slots.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Splits `0..n` into a few pieces per thread, of at least `grain` and a multiple of `align`, and runs `f(start, end)` on each.
pub(crate) fn ranges(n: usize, grain: usize, align: usize, f: &(dyn Fn(usize, usize) -> Result<()> + Sync)) -> Result<()> {
    let threads = num_threads();
    if n <= grain || threads == 1 {
        return f(0, n);
    }
    let align = align.max(1);
    let piece = n.div_ceil(threads * 4).max(grain / 2).next_multiple_of(align);
    try_for(n.div_ceil(piece), true, &|i| f(i * piece, n.min((i + 1) * piece)))
}
