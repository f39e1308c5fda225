//! The peaks of a machine: the floating-point operations and the bytes that it moves in a second,
//! at most. With them, the work of a kernel bounds its time (the roofline model).
//!
//! [`Peaks::measure`] takes a few seconds, and runs on request only. [`Peaks::keep`] keeps the
//! result in the user's cache directory, and [`Peaks::kept`] finds it there.

mod machine;
mod measure;
mod store;

pub use machine::{Cache, Machine};

use maquette_ops::Work;
use std::time::Duration;

/// What bounds the time of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The bytes that it moves.
    Memory,
    /// Its floating-point operations.
    Arithmetic,
}

impl Limit {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Memory => "memory",
            Limit::Arithmetic => "arithmetic",
        }
    }

    pub(crate) const fn letter(self) -> &'static str {
        match self {
            Limit::Memory => "m",
            Limit::Arithmetic => "a",
        }
    }
}

/// The least time that a machine takes for the work of a kernel, and what it needs it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The time.
    pub time: Duration,
    /// What takes longest.
    pub limit: Limit,
}

/// A rate for one thread, and for all threads of the pool together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Of one thread.
    pub one: f64,
    /// Of all threads.
    pub all: f64,
}

/// Bytes in a second, for memory of a size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// The size of the memory in bytes.
    pub bytes: u64,
    /// The bytes that are read.
    pub read: Rate,
    /// The bytes that are read and written by a copy, together.
    pub copy: Rate,
}

/// The peaks of a machine; see the [module](self).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks {
    /// The model of the processor.
    pub cpu: String,
    /// The instruction set of the kernels.
    pub isa: String,
    /// The number of threads of the pool.
    pub threads: usize,
    /// Operations on `f32` in a second.
    pub f32: Rate,
    /// Operations on `f64` in a second.
    pub f64: Rate,
    /// Bandwidths, by increasing size. The last is that of memory beyond all caches.
    pub bandwidths: Vec<Bandwidth>,
}

impl Rate {
    /// The greater one. A pool is no faster than one thread where that saturates the memory.
    fn best(self) -> f64 {
        self.one.max(self.all)
    }
}

fn seconds(amount: u64, rate: f64) -> f64 {
    if amount == 0 { 0.0 } else { amount as f64 / rate }
}

impl Peaks {
    /// The bandwidth of memory of a size: that of the smallest measured size that holds it.
    pub fn bandwidth(&self, bytes: u64) -> Option<&Bandwidth> {
        self.bandwidths.iter().find(|b| bytes <= b.bytes).or(self.bandwidths.last())
    }

    /// The least time for some work on all threads. Each byte that is written goes together with
    /// one that is read, at the rate of a copy; the others are read. `None` if there is nothing to
    /// do, or a rate is not known.
    pub fn bound(&self, work: &Work) -> Option<Bound> {
        let at = self.bandwidth(work.bytes())?;
        let copied = work.bytes_written.saturating_add(work.bytes_read.min(work.bytes_written));
        let read = work.bytes_read.saturating_sub(work.bytes_written);
        let memory = seconds(copied, at.copy.best()) + seconds(read, at.read.best());
        let rate = if work.is_double { self.f64 } else { self.f32 };
        let arithmetic = seconds(work.flops, rate.best());
        let (seconds, limit) = match memory >= arithmetic {
            true => (memory, Limit::Memory),
            false => (arithmetic, Limit::Arithmetic),
        };
        let time = Duration::try_from_secs_f64(seconds).ok()?;
        (seconds > 0.0).then_some(Bound { time, limit })
    }

    /// The peaks in a line.
    pub(crate) fn summary(&self) -> String {
        let memory = self.bandwidths.last().copied().unwrap_or_default();
        format!(
            "{:.0} GFLOP/s in f32, {:.0} in f64; memory reads {:.1} GB/s, copies {:.1} GB/s",
            self.f32.best() / 1e9,
            self.f64.best() / 1e9,
            memory.read.best() / 1e9,
            memory.copy.best() / 1e9,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks() -> Peaks {
        let rate = |all: f64| Rate { one: all / 2.0, all };
        let bandwidth = |bytes, read, copy| Bandwidth { bytes, read: rate(read), copy: rate(copy) };
        let bandwidths = vec![bandwidth(1 << 20, 100e9, 80e9), bandwidth(1 << 28, 10e9, 8e9)];
        Peaks { f32: rate(200e9), f64: rate(100e9), bandwidths, ..Peaks::default() }
    }

    fn bound(flops: u64, is_double: bool, bytes_read: u64, bytes_written: u64) -> Option<Bound> {
        peaks().bound(&Work { flops, is_double, bytes_read, bytes_written })
    }

    #[test]
    fn the_slower_of_memory_and_arithmetic_bounds_the_time() {
        let nanos = |n| Duration::from_nanos(n);
        let memory = |n| Some(Bound { time: nanos(n), limit: Limit::Memory });
        let arithmetic = |n| Some(Bound { time: nanos(n), limit: Limit::Arithmetic });
        // 8,000 bytes are copied, and 10,000 more are read
        assert_eq!(bound(0, false, 14_000, 4_000), memory(100 + 100));
        assert_eq!(bound(200_000, false, 14_000, 4_000), arithmetic(1_000));
        assert_eq!(bound(200_000, true, 14_000, 4_000), arithmetic(2_000));
        // a fill
        assert_eq!(bound(0, false, 0, 8_000), memory(100));
        // beyond the cache
        assert_eq!(bound(0, false, 10_000_000, 0), memory(1_000_000));
        assert_eq!(bound(0, false, 1 << 40, 0).map(|b| b.limit), Some(Limit::Memory));
        assert_eq!(bound(0, false, 0, 0), None);
        assert_eq!(Peaks::default().bound(&Work { flops: 1, ..Work::default() }), None);
    }
}
