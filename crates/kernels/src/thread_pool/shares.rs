//! The division of a job's tasks among threads.
//!
//! Each thread takes the tasks of its share from the front. When none is left, it takes those of
//! the other shares from the back, where their owners come last (work stealing, as in Blumofe and
//! Leiserson, "Scheduling multithreaded computations by work stealing", 1999).
//!
//! **Invariant:** the shares of a job are disjoint ranges, and one atomic operation takes a task
//! out of a range. So each task is taken once, also where two threads have one share. Within a job,
//! the ends of a range only approach each other, so no state comes back. Relaxed order suffices:
//! the gate of the pool publishes the shares, and no thread is inside when they are set.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The function that a job calls with each of its indices.
pub(super) type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// The most tasks of a job: an index is half a word.
pub(super) const MOST: usize = u32::MAX as usize;

/// The tasks of a share that are left, a range: its end in the upper half, its start in the lower.
/// Shares are on different cache lines, which most processors fetch in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Share(AtomicU64);

impl Share {
    fn set(&self, left: Range<usize>) {
        self.0.store(packed(left.start as u64, left.end as u64), Ordering::Relaxed);
    }

    /// Takes the first task, or the last.
    #[inline]
    fn take(&self, first: bool) -> Option<usize> {
        let mut left = self.0.load(Ordering::Relaxed);
        loop {
            let (start, end) = (left & u64::from(u32::MAX), left >> 32);
            if start >= end {
                return None;
            }
            let (task, rest) = match first {
                true => (start, packed(start + 1, end)),
                false => (end - 1, packed(start, end - 1)),
            };
            match self.0.compare_exchange_weak(left, rest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(task as usize),
                Err(now) => left = now,
            }
        }
    }
}

fn packed(start: u64, end: u64) -> u64 {
    end << 32 | start
}

/// Divides `n` tasks, [`MOST`] at most, among shares.
pub(super) fn divide(n: usize, shares: &[Share]) {
    let (each, more) = (n / shares.len().max(1), n % shares.len().max(1));
    let start = |i: usize| i * each + i.min(more);
    shares.iter().enumerate().for_each(|(i, share)| share.set(start(i)..start(i + 1)));
}

/// Runs the tasks of a thread's own share, and then of the others, until no task is left or the
/// thread is to stop.
pub(super) fn run_tasks(
    task: Task<'_>,
    shares: &[Share],
    thread: usize,
    goes_on: impl Fn() -> bool,
) {
    let own = thread % shares.len().max(1);
    for (i, share) in shares[own..].iter().chain(&shares[..own]).enumerate() {
        loop {
            if !goes_on() {
                return;
            }
            let Some(index) = share.take(i == 0) else { break };
            task(index);
        }
    }
}
