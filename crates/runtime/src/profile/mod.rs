//! Profiles: the time of each kernel of a compiled program, beside the work that it has to do.
//!
//! A profile runs the program with an observer of its steps (`record`), which reads the clock after
//! each. A run without a profile has another instance of the same loop, without the observer. The
//! cost of reading the clock is measured and subtracted.
//!
//! The work of a kernel ([`Work`]) follows from its loop nest, and is the least that any executor
//! has to do. With the [`Peaks`] of the machine it gives a bound on the time: the roofline. The
//! share of the peak is that bound over the time.

mod chrome;
mod describe;
mod groups;
mod record;
mod table;

pub(crate) use describe::described_kernel;
pub use groups::{Grouped, ProfileGroup};

use crate::executable::Executable;
use crate::peaks::{Bound, Peaks};
use maquette_invoke::SourceInfo;
use maquette_ir::Loc;
use maquette_ir::fused::FusionKind;
use maquette_ir::graph::common_scope;
use maquette_ops::{Op, Result, Value, Work};
use record::Recorder;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// How a program is profiled.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    warm_up: usize,
    repeat: usize,
    peaks: Option<Peaks>,
}

impl Default for ProfileOptions {
    fn default() -> ProfileOptions {
        ProfileOptions { warm_up: 3, repeat: 20, peaks: None }
    }
}

impl ProfileOptions {
    /// 3 runs to warm up, and 20 that count. No peaks.
    pub fn new() -> ProfileOptions {
        ProfileOptions::default()
    }

    /// The number of runs before those that count.
    #[must_use]
    pub fn warm_up(self, runs: usize) -> ProfileOptions {
        ProfileOptions { warm_up: runs, ..self }
    }

    /// The number of runs that count, at least 1.
    #[must_use]
    pub fn repeat(self, runs: usize) -> ProfileOptions {
        ProfileOptions { repeat: runs.max(1), ..self }
    }

    /// The peaks of the machine, of which the profile gives the shares. [`Peaks::kept`] are those
    /// that were measured and kept on this machine.
    #[must_use]
    pub fn peaks(self, peaks: impl Into<Option<Peaks>>) -> ProfileOptions {
        ProfileOptions { peaks: peaks.into(), ..self }
    }
}

/// Times of one thing that happened several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// How often it happened.
    pub count: usize,
    /// The least time.
    pub min: Duration,
    /// The median.
    pub median: Duration,
    /// The sum of all times.
    pub total: Duration,
}

impl Timing {
    fn of(mut times: Vec<Duration>) -> Timing {
        times.sort_unstable();
        let at = |i: usize| times.get(i).copied().unwrap_or_default();
        let (min, median) = (at(0), at(times.len() / 2));
        Timing { count: times.len(), min, median, total: times.iter().sum() }
    }
}

/// The times of a program and of its kernels. Displays as a table for people.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name of the graph.
    pub name: String,
    /// The number of threads of the pool.
    pub threads: usize,
    /// Whether the program runs compiled. Otherwise its kernels are not timed.
    pub is_compiled: bool,
    /// The runs.
    pub runs: Timing,
    /// The rest of each run: its time without that of the kernels.
    pub between: Timing,
    /// The kernels, in the order of their first launch.
    pub kernels: Vec<KernelProfile>,
    /// The peaks of the machine, if they were given.
    pub peaks: Option<Peaks>,
    /// The launches of the fastest run.
    timeline: Timeline,
}

/// What computes a kernel of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelKind {
    /// The kernel of one builtin operator.
    Operator,
    /// One kernel for the operators of a region.
    Fused(FusionKind),
    /// A custom operator, or one that runs through the dispatcher.
    Call,
    /// An operator that runs on copies in host memory, since the device has no kernel for it.
    OnHost,
    /// A copy that the buffer plan demands.
    Copy,
}

/// An operator of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProfiledOperator {
    /// Its name with namespace and overload.
    pub name: String,
    /// The line of its call.
    pub loc: Option<Loc>,
    /// The path of the module in whose code it is called.
    pub scope: Option<Box<str>>,
}

/// The times of one kernel, and what it has to do. A kernel is one place in the program: an
/// operator that is called on two lines has two.
#[derive(Clone, Debug)]
pub struct KernelProfile {
    /// What computes it.
    pub kind: KernelKind,
    /// The operators that it computes, in program order, without views. That of a copy is `copy`,
    /// with the line of what computed the value.
    pub operators: Vec<ProfiledOperator>,
    /// The name of its first result in the graph, without `%`; of the copied value for a copy.
    pub value: String,
    /// The sizes of its first result, if they are known.
    pub sizes: SmallVec<[i64; 6]>,
    /// The launches of all runs that count.
    pub timing: Timing,
    /// What a launch has to do. `None` for an operator that the runtime cannot look into.
    pub work: Option<Work>,
}

/// The launches of one run.
#[derive(Clone, Debug, Default)]
struct Timeline {
    run: Duration,
    launches: Vec<Launched>,
}

/// A launch: its kernel, its begin after that of the run, and its time.
#[derive(Clone, Copy, Debug)]
struct Launched {
    kernel: u32,
    start: Duration,
    time: Duration,
}

impl KernelProfile {
    /// The kernel in a few words: its operators without overloads, and builtin ones without their
    /// namespace; whether they run on the host for another device.
    pub fn label(&self) -> String {
        if self.kind == KernelKind::Copy {
            return format!("copy of %{}", self.value);
        }
        let name = |op: &ProfiledOperator| {
            let is_builtin = Op::find(&op.name).is_ok_and(|op| op.is_builtin());
            let bare = op.name.split_once("::").filter(|_| is_builtin).map(|(_, bare)| bare);
            let name = bare.unwrap_or(&op.name);
            name.split('.').next().unwrap_or(name).to_owned()
        };
        let names = self.operators.iter().map(name).collect::<Vec<_>>().join(" + ");
        if self.kind == KernelKind::OnHost { format!("{names} (on the host)") } else { names }
    }

    /// The lines of its operators, without repetition, in order.
    pub fn lines(&self) -> Vec<Loc> {
        let mut lines: Vec<Loc> = self.operators.iter().filter_map(|op| op.loc).collect();
        lines.sort_by_key(|loc| (loc.file, loc.line));
        lines.dedup();
        lines
    }

    /// The scope that its operators have in common; `None` if they have none.
    pub fn scope(&self) -> Option<&str> {
        let mut scopes = self.operators.iter().map(|op| op.scope.as_deref());
        let first = scopes.next().flatten();
        scopes.fold(first, common_scope)
    }

    /// What bounds its time on a machine with these peaks, and the least time there. `None` if its
    /// work is not known.
    pub fn bound(&self, peaks: &Peaks) -> Option<Bound> {
        peaks.bound(self.work.as_ref()?)
    }
}

impl Executable {
    /// Runs the program on these inputs again and again, and times its kernels. Each run is that of
    /// [`Executable::run`]: it mutates inputs and constants, and its results are dropped. The
    /// kernels of a program that does not run compiled are not timed.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn profile(
        &self,
        inputs: &[Value],
        options: &ProfileOptions,
        source_info: &SourceInfo<'_>,
    ) -> Result<Profile> {
        let mut recorder = Recorder::new();
        for _ in 0..options.warm_up {
            drop(self.run_observed(inputs, None, source_info, &mut recorder)?);
            recorder.discard_run();
        }
        for _ in 0..options.repeat {
            let begin = Instant::now();
            recorder.begin_run(begin);
            let results = self.run_observed(inputs, None, source_info, &mut recorder)?;
            recorder.end_run(begin.elapsed());
            drop(results);
        }
        let name = self.graph().name().to_owned();
        Ok(recorder.finish(name, self.is_compiled(), options.peaks.clone()))
    }
}
