//! Measures the peaks of a machine.
//!
//! Each rate is the best of some samples: others can make a machine slower, never faster. All
//! threads begin a sample together, each with memory of its own.

use super::{Bandwidth, Machine, Peaks, Rate};
use maquette_kernels::{Isa, multiply_adds_f32, multiply_adds_f64, read_words};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The sizes of memory for which bandwidths are measured, by increasing size.
const SIZES: [u64; 6] = [32 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20];

/// How exact a measurement is.
#[derive(Clone, Copy)]
struct Effort {
    sample: Duration,
    samples: usize,
    sizes: &'static [u64],
}

const THOROUGH: Effort = Effort { sample: Duration::from_millis(4), samples: 8, sizes: &SIZES };

/// Without optimization the loops measure nothing but themselves.
const QUICK: Effort =
    Effort { sample: Duration::from_millis(1), samples: 1, sizes: &[32 << 10, 256 << 10, 1 << 20] };

/// The amount in a second that `threads` threads reach together. `make` makes the work of a thread,
/// which returns the amount that it has done.
fn rate<W: FnMut() -> u64>(effort: Effort, threads: usize, make: impl Fn() -> W + Sync) -> f64 {
    let begin = Barrier::new(threads);
    let thread = || {
        let mut work = make();
        work();
        let sample = |_| {
            begin.wait();
            let (mut done, start) = (0u64, Instant::now());
            while start.elapsed() < effort.sample {
                done += work();
            }
            done as f64 / start.elapsed().as_secs_f64()
        };
        (0..effort.samples).map(sample).collect::<Vec<f64>>()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(thread)).collect();
        let mut sums = thread();
        for other in others {
            // The work does not panic.
            let rates = other.join().unwrap_or_default();
            sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        }
        sums.into_iter().fold(0.0, f64::max)
    })
}

/// The rates of one thread and of all. `make` gets the number of threads.
fn rates<W: FnMut() -> u64>(
    effort: Effort,
    threads: usize,
    make: impl Fn(usize) -> W + Sync,
) -> Rate {
    let one = rate(effort, 1, || make(1));
    let all = if threads == 1 { one } else { rate(effort, threads, || make(threads)) };
    Rate { one, all }
}

/// The words of a thread's share of some bytes.
fn words(bytes: u64, threads: usize) -> Vec<u64> {
    (0..bytes / 8 / threads as u64).collect()
}

fn bandwidth(effort: Effort, isa: Isa, threads: usize, bytes: u64) -> Bandwidth {
    let read = rates(effort, threads, |threads| {
        let words = words(bytes, threads);
        move || {
            black_box(read_words(isa, black_box(&words)));
            words.len() as u64 * 8
        }
    });
    let copy = rates(effort, threads, |threads| {
        let from = words(bytes / 2, threads);
        let mut to = vec![1; from.len()];
        move || {
            black_box(&mut to).copy_from_slice(black_box(&from));
            from.len() as u64 * 16
        }
    });
    Bandwidth { bytes, read, copy }
}

impl Peaks {
    /// Measures the peaks of this machine, for the instruction set and the number of threads of the
    /// kernels. It takes a few seconds and 256 MiB of memory, and wants the machine for itself. A
    /// build without optimization measures less, and nothing of interest.
    pub fn measure() -> Peaks {
        Peaks::measured(if cfg!(debug_assertions) { QUICK } else { THOROUGH })
    }

    fn measured(effort: Effort) -> Peaks {
        let Machine { cpu, isa: name, threads, .. } = Machine::here();
        let isa = Isa::detect();
        let steps = 5_000;
        let sizes = effort.sizes.iter();
        Peaks {
            cpu,
            isa: name.to_owned(),
            threads,
            f32: rates(effort, threads, |_| move || multiply_adds_f32(isa, steps)),
            f64: rates(effort, threads, |_| move || multiply_adds_f64(isa, steps)),
            bandwidths: sizes.map(|bytes| bandwidth(effort, isa, threads, *bytes)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_measured() {
        let peaks = Peaks::measured(QUICK);
        assert!(peaks.f32.one > 0.0 && peaks.f32.all > 0.0 && peaks.f64.all > 0.0);
        assert_eq!(peaks.bandwidths.len(), 3);
        for b in &peaks.bandwidths {
            assert!(b.read.one > 0.0 && b.read.all > 0.0 && b.copy.one > 0.0 && b.copy.all > 0.0);
        }
        assert_eq!(peaks.isa, Machine::here().isa);
    }
}
