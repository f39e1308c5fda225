//! The process's one thread pool. `MAQUETTE_NUM_THREADS` sets its size, 1,024 at most; the default
//! is the number of cores.
//!
//! Kernels are a fraction of a millisecond long and come one after another from a thread that waits
//! for each result. The pool is built for this pattern:
//!
//! - The calling thread takes part in its own job, and tasks are taken from one atomic counter, so
//!   the caller never waits for a worker that has yet to wake.
//! - A worker that runs out of work spins for [`SPIN`] before it sleeps, so that consecutive jobs
//!   need no wake-ups.
//! - One job runs at a time. A thread that finds the pool busy runs its own tasks alone, as does a
//!   task that starts a nested job. Nested parallelism therefore cannot deadlock.
//!
//! Protocol: the atomic `gate` holds the job's number, an open flag and the number of workers
//! inside. Workers enter only while the gate is open. The caller closes the gate and waits until no
//! worker is inside before the lifetime of the job's closure ends.

use crate::error::{KernelError, Result};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Simple work on fewer elements than this stays on the caller's thread.
pub const GRAIN: usize = 32 * 1024;
/// The time a worker spins for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// The function that a job calls with each of its indices.
type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// The current job. The holder of `ThreadPool::turn` writes it while no worker is inside; workers
/// read it after entering.
struct Job {
    task: Task<'static>,
    n: usize,
}

struct ThreadPool {
    /// Held by the thread whose job is running.
    turn: Mutex<()>,
    job: UnsafeCell<Job>,
    /// The next index to run.
    next: AtomicUsize,
    /// The upper half is the job's number. [`OPEN`] is set while workers may enter. The bits below
    /// count the workers inside.
    gate: AtomicU64,
    /// The payload of a panic in a worker's task.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    workers: OnceLock<Vec<Worker>>,
    threads: usize,
}

struct Worker {
    thread: Thread,
    asleep: &'static AtomicBool,
}

const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
const NUMBER: u64 = 1 << 32;

// SAFETY: `job` is the only field that is not `Sync`; the gate orders its writes and reads (see
// `ThreadPool::run`).
unsafe impl Sync for ThreadPool {}

static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
    let asked =
        std::env::var("MAQUETTE_NUM_THREADS").ok().and_then(|v| v.parse().ok()).filter(|n| *n > 0);
    let threads =
        asked.or_else(|| thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    ThreadPool {
        turn: Mutex::new(()),
        job: UnsafeCell::new(Job { task: &|_| (), n: 0 }),
        next: AtomicUsize::new(0),
        gate: AtomicU64::new(0),
        panic: Mutex::new(None),
        workers: OnceLock::new(),
        threads: threads.min(1024),
    }
});

thread_local! {
    /// Whether this thread is running a job, its own or another thread's.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

impl ThreadPool {
    /// The workers, one fewer than `threads`, spawned by the first job. If the system refuses a
    /// thread, the pool has fewer.
    fn workers(&'static self) -> &'static [Worker] {
        self.workers.get_or_init(|| {
            let start = |i| {
                let asleep: &'static AtomicBool = Box::leak(Box::default());
                let thread = thread::Builder::new()
                    .name(format!("maquette-{i}"))
                    .spawn(move || self.worker_loop(asleep))
                    .ok()?;
                Some(Worker { thread: thread.thread().clone(), asleep })
            };
            (1..self.threads).map_while(start).collect()
        })
    }

    /// The main loop of a worker: enter each open job once, otherwise spin, then park.
    fn worker_loop(&self, asleep: &AtomicBool) {
        IN_JOB.set(true);
        let mut seen = 0;
        let mut idle = Instant::now();
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            if gate & OPEN != 0 && gate / NUMBER != seen {
                if self
                    .gate
                    .compare_exchange_weak(gate, gate + 1, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
                {
                    asleep.store(false, Ordering::Relaxed);
                    seen = gate / NUMBER;
                    // SAFETY: the gate was open when this thread was counted in, so the job is not
                    // overwritten before this thread leaves.
                    let Job { task, n } = unsafe { &*self.job.get() };
                    if let Err(payload) =
                        catch_unwind(AssertUnwindSafe(|| self.run_tasks(task, *n)))
                    {
                        *lock(&self.panic) = Some(payload);
                    }
                    self.gate.fetch_sub(1, Ordering::SeqCst);
                    idle = Instant::now();
                }
                continue;
            }
            if idle.elapsed() < SPIN {
                (0..32).for_each(|_| std::hint::spin_loop());
                thread::yield_now();
            } else if !asleep.swap(true, Ordering::SeqCst) {
                // Look at the gate once more before parking: a job that opened before the flag was
                // set did not unpark this thread.
            } else {
                thread::park();
            }
        }
    }

    /// Runs tasks until no index is left.
    fn run_tasks(&self, task: Task<'_>, n: usize) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return;
            }
            task(i);
        }
    }

    /// Acquires the right to run a job if the pool is free and this thread is in no job.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        if self.threads <= 1 || IN_JOB.get() {
            return None;
        }
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs `task(0..n)` on this thread and on the workers that join in time.
    fn run(&'static self, _turn: MutexGuard<'_, ()>, task: Task<'_>, n: usize) {
        let workers = self.workers();
        lock(&self.panic).take();
        IN_JOB.set(true);
        let close_gate = CloseGateOnDrop(self);
        // SAFETY: only the lifetime changes; no worker has the reference once `CloseGateOnDrop` has
        // closed the gate behind them.
        let task: Task<'static> = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(task) };
        // SAFETY: this thread holds the turn, and the previous job's gate was closed with no worker
        // inside.
        unsafe { *self.job.get() = Job { task, n } };
        self.next.store(0, Ordering::Relaxed);
        let number = self.gate.load(Ordering::Relaxed) / NUMBER;
        self.gate.store(((number + 1) % (NUMBER / 2)).max(1) * NUMBER + OPEN, Ordering::SeqCst);
        for w in workers.iter().take(n - 1) {
            if w.asleep.load(Ordering::SeqCst) && w.asleep.swap(false, Ordering::SeqCst) {
                w.thread.unpark();
            }
        }
        self.run_tasks(task, n);
        drop(close_gate);
        let payload = lock(&self.panic).take();
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }
}

/// Closes the gate and waits until no worker is inside, even if the caller's own task panics.
struct CloseGateOnDrop<'a>(&'a ThreadPool);

impl Drop for CloseGateOnDrop<'_> {
    fn drop(&mut self) {
        IN_JOB.set(false);
        self.0.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while self.0.gate.load(Ordering::SeqCst) & INSIDE != 0 {
            spins += 1;
            // Yield from time to time: a preempted worker may need this core.
            if spins.is_multiple_of(1 << 12) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of threads that large work uses.
pub fn num_threads() -> usize {
    POOL.threads
}

/// Runs `f(0..n)`, on the pool if `parallel`. If several tasks fail, returns the error of the
/// lowest index, so that the error does not depend on timing.
pub(crate) fn try_for(
    n: usize,
    parallel: bool,
    f: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<()> {
    let turn = if parallel && n > 1 { POOL.turn() } else { None };
    let Some(turn) = turn else { return (0..n).try_for_each(f) };
    let first: Mutex<Option<(usize, KernelError)>> = Mutex::new(None);
    let lowest = AtomicUsize::new(usize::MAX);
    POOL.run(
        turn,
        &|i| {
            // Tasks after a failed one can be skipped; earlier ones must run, since one of them may
            // fail and be the lowest.
            if i > lowest.load(Ordering::Relaxed) {
                return;
            }
            if let Err(e) = f(i) {
                let mut first = lock(&first);
                if first.as_ref().is_none_or(|(at, _)| i < *at) {
                    *first = Some((i, e));
                    lowest.store(i, Ordering::Relaxed);
                }
            }
        },
        n,
    );
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, e)| Err(e))
}

/// The results of `f(0..n)` in order, computed on the pool.
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

/// Splits `0..n` into up to four pieces per thread, aligned to `align` and not much smaller than
/// `grain`, and runs `f(start, end)` on each.
pub(crate) fn ranges(
    n: usize,
    grain: usize,
    align: usize,
    f: &(dyn Fn(usize, usize) -> Result<()> + Sync),
) -> Result<()> {
    let threads = num_threads();
    if n == 0 {
        return Ok(());
    }
    if n <= grain || threads == 1 {
        return f(0, n);
    }
    let align = align.max(1);
    let piece = n.div_ceil(threads * 4).max(grain / 2).next_multiple_of(align);
    try_for(n.div_ceil(piece), true, &|i| f(i * piece, n.min((i + 1) * piece)))
}

#[cfg(test)]
mod tests;
