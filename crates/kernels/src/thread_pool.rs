//! The process's one thread pool. `MAQUETTE_NUM_THREADS` sets its size, 1,024 at most; the default
//! is the number of cores.
//!
//! Kernels come one after another, each a fraction of a millisecond, from a thread that waits for
//! the result: so that thread takes part, and a worker that has just run out of work spins for a
//! moment before it sleeps. One job runs at a time; a thread that comes while another's job runs
//! does its own work alone, as do tasks that ask for the pool themselves. Nothing waits for a
//! worker that has yet to wake.

use crate::error::{KernelError, Result};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Elements of simple work below which it stays on the caller's thread.
pub const GRAIN: usize = 32 * 1024;
/// How long a worker looks for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// What a job does with each of its indices.
type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// The job at hand. Written by the holder of `ThreadPool::turn` while no worker is inside; read by
/// workers that entered.
struct Job {
    task: Task<'static>,
    n: usize,
}

struct ThreadPool {
    /// Held by whoever's job runs.
    turn: Mutex<()>,
    job: UnsafeCell<Job>,
    /// The next index nobody has taken.
    next: AtomicUsize,
    /// The job's number in the upper half; [`OPEN`] while workers may enter; below, how many are
    /// inside.
    gate: AtomicU64,
    /// What a worker's task panicked with.
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
    /// Whether this thread is inside a job, its own or another's.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

impl ThreadPool {
    /// The workers, one fewer than threads; started by the first job. Threads that cannot be had
    /// are done without.
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

    /// A worker's life: enter each job that is open, then look for the next.
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
                    // SAFETY: the gate was open when this thread was counted in, so the job stays
                    // as it is until it leaves.
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
                // Looks once more: a job that opened before the flag was seen unparks nobody.
            } else {
                thread::park();
            }
        }
    }

    /// Takes indices until there are none left.
    fn run_tasks(&self, task: Task<'_>, n: usize) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return;
            }
            task(i);
        }
    }

    /// The right to run a job, where the pool is free and this thread is in no job.
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

    /// Runs `task(0..n)` on this thread and whichever workers come in time.
    fn run(&'static self, _turn: MutexGuard<'_, ()>, task: Task<'_>, n: usize) {
        let workers = self.workers();
        lock(&self.panic).take();
        IN_JOB.set(true);
        let close_gate = CloseGateOnDrop(self);
        // SAFETY: only the lifetime changes; no worker has the reference once `CloseGateOnDrop` has
        // closed the gate behind them.
        let task: Task<'static> = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(task) };
        // SAFETY: the turn is ours, and the last job's gate was closed with nobody inside.
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

/// Closes the gate and waits for the workers inside, also when the caller's own task panics.
struct CloseGateOnDrop<'a>(&'a ThreadPool);

impl Drop for CloseGateOnDrop<'_> {
    fn drop(&mut self) {
        IN_JOB.set(false);
        self.0.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while self.0.gate.load(Ordering::SeqCst) & INSIDE != 0 {
            spins += 1;
            // A worker that lost its core needs this one.
            if spins.is_multiple_of(1 << 12) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many threads large work is spread over.
pub fn num_threads() -> usize {
    POOL.threads
}

/// Runs `f(0..n)`, on the pool if `parallel`; if several fail, the error is the lowest task's.
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
            // Tasks after one that failed are not needed; those before it might fail, and be the
            // lowest.
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

/// Splits `0..n` into a few pieces per thread, of at least `grain` and a multiple of `align`, and
/// runs `f(start, end)` on each.
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
