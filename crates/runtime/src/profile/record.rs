//! The observer of a profiled run.

use super::describe::{Description, described};
use super::{Launched, Profile, Timeline, Timing};
use crate::instance::Segment;
use crate::peaks::Peaks;
use crate::planned::Planned;
use crate::run::StepObserver;
use maquette_ir::Device;
use maquette_kernels::num_threads;
use maquette_ops::Result;
use maquette_ops::internals::wait_for;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For each step of a segment: its kernel, if it is one.
type StepKernels = Arc<[Option<u32>]>;

/// Times the steps of runs.
pub(super) struct Recorder {
    /// What it takes to read the clock.
    clock: Duration,
    kernels: Vec<Description>,
    /// By kernel: the times of its launches.
    times: Vec<Vec<Duration>>,
    runs: Vec<Duration>,
    between: Vec<Duration>,
    fastest: Option<Timeline>,
    /// By the number of a segment.
    segments: FxHashMap<u64, StepKernels>,
    /// The segment that runs.
    current: StepKernels,
    /// The device on which the steps run.
    device: Device,
    begin: Instant,
    last: Instant,
    /// The launches of this run.
    launches: Vec<Launched>,
    /// How often this run has read the clock.
    reads: u32,
}

/// The least time between two readings of the clock.
fn clock_cost() -> Duration {
    let read = |_| {
        let begin = Instant::now();
        begin.elapsed()
    };
    (0..1_000).map(read).min().unwrap_or_default()
}

impl Recorder {
    pub fn new() -> Recorder {
        let now = Instant::now();
        Recorder {
            clock: clock_cost(),
            kernels: Vec::new(),
            times: Vec::new(),
            runs: Vec::new(),
            between: Vec::new(),
            fastest: None,
            segments: FxHashMap::default(),
            current: Arc::new([]),
            device: Device::Cpu,
            begin: now,
            last: now,
            launches: Vec::new(),
            reads: 0,
        }
    }

    /// Forgets what the run before was.
    pub fn discard_run(&mut self) {
        self.launches.clear();
        self.reads = 0;
    }

    pub fn begin_run(&mut self, begin: Instant) {
        self.discard_run();
        self.begin = begin;
    }

    /// Keeps the run, which took `time`.
    pub fn end_run(&mut self, time: Duration) {
        let run = time.saturating_sub(self.clock * (self.reads + 1));
        let kernels = self.launches.iter().map(|launched| launched.time).sum();
        self.runs.push(run);
        self.between.push(run.saturating_sub(kernels));
        for launched in &self.launches {
            if let Some(times) = self.times.get_mut(launched.kernel as usize) {
                times.push(launched.time);
            }
        }
        if self.fastest.as_ref().is_none_or(|fastest| run < fastest.run) {
            self.fastest = Some(Timeline { run: time, launches: self.launches.clone() });
        }
    }

    /// The profile of all runs that were kept.
    pub fn finish(self, name: String, is_compiled: bool, peaks: Option<Peaks>) -> Profile {
        let kernels = self.kernels.into_iter().zip(self.times);
        Profile {
            name,
            threads: num_threads(),
            is_compiled,
            runs: Timing::of(self.runs),
            between: Timing::of(self.between),
            kernels: kernels.map(|(kernel, times)| kernel.with(Timing::of(times))).collect(),
            peaks,
            timeline: self.fastest.unwrap_or_default(),
        }
    }
}

impl StepObserver for Recorder {
    fn begin_segment(&mut self, planned: &Planned, segment: &Segment) {
        let Recorder { kernels, times, segments, .. } = self;
        let steps = segments.entry(segment.id).or_insert_with(|| {
            let number = |step: usize| {
                let kernel = described(planned, segment, step)?;
                kernels.push(kernel);
                times.push(Vec::new());
                Some(kernels.len() as u32 - 1)
            };
            (0..segment.steps.len()).map(number).collect()
        });
        self.current = steps.clone();
        self.device = planned.device;
        self.launches.reserve(segment.steps.len());
        self.reads += 1;
        self.last = Instant::now();
    }

    fn end_step(&mut self, step: usize) -> Result<()> {
        wait_for(self.device)?;
        let now = Instant::now();
        if let Some(&Some(kernel)) = self.current.get(step) {
            let start = self.last.saturating_duration_since(self.begin);
            let time = now.saturating_duration_since(self.last).saturating_sub(self.clock);
            self.launches.push(Launched { kernel, start, time });
        }
        self.reads += 1;
        self.last = now;
        Ok(())
    }
}
