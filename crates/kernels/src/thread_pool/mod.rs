//! The process's one thread pool. `MAQUETTE_NUM_THREADS` sets its size, 1,024 at most; the default
//! is the number of cores.
//!
//! Kernels are a fraction of a millisecond long and come one after another from a thread that waits
//! for each result. The pool is built for this pattern:
//!
//! - The calling thread takes part in its own job, and a thread that has done its share takes tasks
//!   of others, so the caller never waits for a worker that has yet to wake.
//! - Each thread has a share of the tasks of every job, at the same place if jobs use the same
//!   threads. What a task reads is often what the task at that place of the job before wrote, and
//!   then is in the cache of the thread's core (see [`shares`]).
//! - A worker that runs out of work spins for [`SPIN`] before it sleeps, so that consecutive jobs
//!   need no wake-ups.
//! - One job runs at a time. A thread that finds the pool busy runs its own tasks alone, as does a
//!   task that starts a nested job. Nested parallelism therefore cannot deadlock.
//! - A thread has a *budget*, which [`with_num_threads`] sets: the threads that one of its jobs may
//!   use, itself included. With a budget of one, it never asks for the pool.
//! - The pool gives way to its callers: callers and workers together are at most as many as the
//!   pool's size, if the callers alone are not more. A worker enters no job, and leaves the one
//!   that it is in after its present task, if it would be one too many. So a program with threads
//!   of its own gets no more running threads than it brings.
//!
//! Protocol: the atomic `gate` holds the job's number, an open flag and the number of workers
//! inside. Workers enter only while the gate is open. The caller closes the gate and waits until no
//! worker is inside before the lifetime of the job's closure ends.

mod shares;

use crate::error::{KernelError, Result};
use shares::{MOST, Share, Task, divide, run_tasks};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, LocalKey, Thread};
use std::time::{Duration, Instant};

/// Simple work on fewer elements than this stays on the caller's thread.
pub const GRAIN: usize = 32 * 1024;
/// The time a worker spins for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// The current job. The holder of `ThreadPool::turn` writes it while no worker is inside; workers
/// read it after entering.
struct Job {
    task: Task<'static>,
    /// How many shares its tasks are divided into.
    shares: usize,
}

struct ThreadPool {
    /// Held by the thread whose job is running.
    turn: Mutex<()>,
    job: UnsafeCell<Job>,
    /// The shares of the job's tasks.
    shares: Vec<Share>,
    /// The upper half is the job's number. [`OPEN`] is set while workers may enter. The bits below
    /// count the workers inside.
    gate: AtomicU64,
    /// The payload of a panic in a worker's task.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The threads that the open job may use, its caller included. It is written before the gate
    /// opens, so a worker that enters the gate it has seen has seen the limit of that job.
    limit: AtomicUsize,
    /// The threads that run large work or a compiled program, workers apart.
    callers: AtomicUsize,
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
    let threads = threads.min(1024);
    ThreadPool {
        turn: Mutex::new(()),
        job: UnsafeCell::new(Job { task: &|_| (), shares: 0 }),
        shares: (0..threads).map(|_| Share::default()).collect(),
        gate: AtomicU64::new(0),
        panic: Mutex::new(None),
        limit: AtomicUsize::new(0),
        callers: AtomicUsize::new(0),
        workers: OnceLock::new(),
        threads,
    }
});

thread_local! {
    /// Whether this thread is running a job, its own or another thread's.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is counted in `ThreadPool::callers`.
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
    /// The most threads that a job of this thread may use.
    static BUDGET: Cell<usize> = const { Cell::new(usize::MAX) };
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
                    .spawn(move || self.worker_loop(i, asleep))
                    .ok()?;
                Some(Worker { thread: thread.thread().clone(), asleep })
            };
            (1..self.threads).map_while(start).collect()
        })
    }

    /// Whether there is room for `workers` workers beside the callers.
    fn has_room_for(&self, workers: usize) -> bool {
        workers + self.callers.load(Ordering::Relaxed) <= self.threads
    }

    /// The main loop of worker `index`, counted from 1: enter each open job once, otherwise spin,
    /// then park.
    fn worker_loop(&self, index: usize, asleep: &AtomicBool) {
        IN_JOB.set(true);
        let mut seen = 0;
        let mut idle = Instant::now();
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            // the workers inside, with this one
            let rank = (gate & INSIDE) as usize + 1;
            let may_enter = || rank < self.limit.load(Ordering::Relaxed) && self.has_room_for(rank);
            if gate & OPEN != 0 && gate / NUMBER != seen && may_enter() {
                if self
                    .gate
                    .compare_exchange_weak(gate, gate + 1, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
                {
                    asleep.store(false, Ordering::Relaxed);
                    seen = gate / NUMBER;
                    // SAFETY: the gate was open when this thread was counted in, so the job is not
                    // overwritten before this thread leaves.
                    let Job { task, shares } = unsafe { &*self.job.get() };
                    let shares = &self.shares[..*shares];
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| {
                        run_tasks(*task, shares, index, || self.has_room_for(rank));
                    })) {
                        *lock(&self.panic) = Some(payload);
                    }
                    self.gate.fetch_sub(1, Ordering::SeqCst);
                    idle = Instant::now();
                }
                continue;
            }
            if idle.elapsed() < SPIN && self.has_room_for(index) {
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

    /// Acquires the right to run a job if the pool is free, this thread is in no job, and its
    /// budget is more than one thread.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        if num_threads() <= 1 || IN_JOB.get() {
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
        // closed the gate after them.
        let task: Task<'static> = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(task) };
        let limit = num_threads();
        let shares = &self.shares[..limit.min(n)];
        // SAFETY: this thread holds the turn, and the previous job's gate was closed with no worker
        // inside.
        unsafe { *self.job.get() = Job { task, shares: shares.len() } };
        divide(n, shares);
        self.limit.store(limit, Ordering::Relaxed);
        let number = self.gate.load(Ordering::Relaxed) / NUMBER;
        self.gate.store(((number + 1) % (NUMBER / 2)).max(1) * NUMBER + OPEN, Ordering::SeqCst);
        let others = limit.min(n) - 1;
        let room = self.threads.saturating_sub(self.callers.load(Ordering::Relaxed));
        for w in workers.iter().take(others.min(room)) {
            if w.asleep.load(Ordering::SeqCst) && w.asleep.swap(false, Ordering::SeqCst) {
                w.thread.unpark();
            }
        }
        run_tasks(task, shares, 0, || true);
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

/// The number of threads that large work of this thread uses: the size of the pool, or the budget
/// that [`with_num_threads`] sets.
pub fn num_threads() -> usize {
    POOL.threads.min(BUDGET.get())
}

/// Runs `f` with a budget of `threads` threads: each kernel that `f` calls on this thread uses at
/// most so many, this one included. Of nested budgets the least holds; 0 is 1.
pub fn with_num_threads<T>(threads: usize, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(&BUDGET, BUDGET.replace(BUDGET.get().min(threads.max(1))));
    f()
}

/// Runs `f`, which is work enough to fill a core: the pool keeps a core free for it, also between
/// its kernels.
pub fn occupying_a_core<T>(f: impl FnOnce() -> T) -> T {
    if POOL.threads <= 1 || IN_JOB.get() || IS_CALLER.get() {
        return f();
    }
    IS_CALLER.set(true);
    POOL.callers.fetch_add(1, Ordering::Relaxed);
    let _leave = LeaveOnDrop;
    f()
}

/// Sets a cell of this thread back when it is dropped.
struct Restore<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);

impl<T: Copy> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Ends the time for which a thread counts as a caller.
struct LeaveOnDrop;

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        IS_CALLER.set(false);
        POOL.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `f(0..n)`, on the pool if `parallel` and there are at most [`MOST`] tasks. If several tasks
/// fail, returns the error of the lowest index, so that the error does not depend on timing.
pub(crate) fn try_for(
    n: usize,
    parallel: bool,
    f: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<()> {
    match parallel && (2..=MOST).contains(&n) {
        true => occupying_a_core(|| try_for_on_pool(n, f)),
        false => (0..n).try_for_each(f),
    }
}

fn try_for_on_pool(n: usize, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let Some(turn) = POOL.turn() else { return (0..n).try_for_each(f) };
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
    if n == 0 {
        return Ok(());
    }
    // Little work does not even look at the pool.
    let threads = if n <= grain { 1 } else { num_threads() };
    if threads == 1 {
        return f(0, n);
    }
    let align = align.max(1);
    let piece = n.div_ceil(threads * 4).max(grain / 2).next_multiple_of(align);
    try_for(n.div_ceil(piece), true, &|i| f(i * piece, n.min((i + 1) * piece)))
}

#[cfg(test)]
mod tests;
