//! The soak: many threads call shared compiled functions for a long time.
//!
//! Some functions are [chains], others are programs of the [oracle](crate::oracle).
//! Each call is compared with the eager function. A function that was called often enough makes way
//! for another one, so that compilations, calls and drops meet. Calls have random sizes, budgets of
//! threads and given outputs.
//!
//! Memory is the other half of the check: [`resident_bytes`] has to stay flat once all kinds of
//! programs have been seen.

mod shared_chain;

use crate::chains;
use crate::oracle::generate::generate;
use crate::oracle::{Rng, SharedMode, TestProgram, Verdict, check};
use maquette_check::values::catch_panics;
use maquette_ops::Error;
use shared_chain::SharedChain;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// About the statements of a program of the oracle.
const STATEMENTS: usize = 8;

/// What to do for how long.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The number of threads.
    pub threads: usize,
    /// The seed. Equal seeds give equal programs; which thread calls which one is chance.
    pub seed: u64,
    /// The number of functions that are called at a time.
    pub functions: usize,
    /// The number of different functions. Each comes again and again, and is compiled anew: so
    /// memory that a function leaves behind adds up, and the most that all of them need does not.
    pub programs: u64,
    /// The calls after which another function takes the place of one.
    pub calls_of_one: u64,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct SoakReport {
    /// The calls that were compared.
    pub calls: u64,
    /// Those that the compiled function may refuse, or that eager refuses too.
    pub refused: u64,
    /// The functions that were made.
    pub functions: u64,
    /// The differences, with their programs; at most 20.
    pub failures: Vec<String>,
}

/// Compares what calls of chain `index` write into given tensors with what the eager chain returns,
/// at several sizes.
///
/// # Errors
/// The first difference.
pub fn check_given_outputs(seed: u64, index: u64) -> Result<(), String> {
    let chain = chains::generate(seed, index).map_err(|e| e.to_string())?;
    let shared = SharedChain::new(chain);
    let mut rng = Rng::new(seed, index);
    for (run, batch) in [None, None, Some(1), Some(9), Some(9)].into_iter().enumerate() {
        shared
            .check_into(seed.wrapping_add(run as u64), batch, &mut rng)
            .map_err(|what| format!("run {run}: {what}\n{}", shared.chain))?;
    }
    Ok(())
}

/// A function that threads share, and how often it was called.
struct Function {
    kind: Kind,
    calls: AtomicU64,
}

enum Kind {
    Chain(Box<SharedChain>),
    Program(Box<TestProgram>, SharedMode),
}

impl Function {
    /// Function number `index` of a seed: every other one is a chain.
    fn new(seed: u64, index: u64) -> Result<Function, Error> {
        let kind = match index % 2 {
            0 => Kind::Chain(Box::new(SharedChain::new(chains::generate(seed, index)?))),
            _ => {
                let program = generate(seed, index, STATEMENTS)?.program;
                let mode = SharedMode::of(&program);
                Kind::Program(Box::new(program), mode)
            }
        };
        Ok(Function { kind, calls: AtomicU64::new(0) })
    }

    /// Whether the call was compared; otherwise it was refused.
    fn check(&self, rng: &mut Rng) -> Result<bool, String> {
        match &self.kind {
            Kind::Chain(shared) => {
                shared.check(rng).map(|()| true).map_err(|what| format!("{what}\n{}", shared.chain))
            }
            Kind::Program(program, mode) => match check(program, &[mode]) {
                Ok(Verdict::Agree) => Ok(true),
                Ok(Verdict::Refused(_)) => Ok(false),
                Ok(Verdict::Mismatch { what, .. }) => Err(format!("{what}\n{program}")),
                Err(e) => Err(format!("{e}\n{program}")),
            },
        }
    }
}

/// The functions in turn, and the number of the next one.
struct Functions {
    now: Vec<Arc<Function>>,
    next: u64,
}

impl Soak {
    /// Calls functions on all threads while `goes_on` says so of the number of calls so far.
    ///
    /// # Errors
    /// A program cannot be generated.
    pub fn run(&self, goes_on: &(dyn Fn(u64) -> bool + Sync)) -> Result<SoakReport, Error> {
        let first = (0..self.functions as u64).map(|i| Ok(Arc::new(self.function(i)?)));
        let now = first.collect::<Result<Vec<_>, Error>>()?;
        let functions = Mutex::new(Functions { next: now.len() as u64, now });
        let (calls, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let failures = Mutex::new(Vec::new());
        let work = &|thread: usize| {
            let mut rng = Rng::new(self.seed, thread as u64);
            while goes_on(calls.fetch_add(1, Ordering::Relaxed)) {
                let slot = rng.below(self.functions);
                let Some(function) = lock(&functions).now.get(slot).cloned() else { return };
                let checked = catch_panics("soak", || Ok(function.check(&mut rng)));
                match checked.unwrap_or_else(|e| Err(e.to_string())) {
                    Ok(was_compared) => {
                        refused.fetch_add(u64::from(!was_compared), Ordering::Relaxed);
                    }
                    Err(what) => {
                        let mut failures = lock(&failures);
                        if failures.len() < 20 {
                            failures.push(what);
                        }
                    }
                }
                if function.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.calls_of_one {
                    self.renew(&functions, slot);
                }
            }
        };
        std::thread::scope(|scope| {
            (0..self.threads).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        let calls = calls.into_inner() - self.threads as u64;
        let functions = functions.into_inner().unwrap_or_else(PoisonError::into_inner).next;
        let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(SoakReport { calls, refused: refused.into_inner(), functions, failures })
    }

    fn function(&self, index: u64) -> Result<Function, Error> {
        Function::new(self.seed, index % self.programs.max(1))
    }

    /// Puts another function into the place of one. Threads that call the old one finish.
    fn renew(&self, functions: &Mutex<Functions>, slot: usize) {
        let index = {
            let mut functions = lock(functions);
            functions.next += 1;
            functions.next - 1
        };
        // A program that cannot be generated leaves the old one in its place.
        let Ok(new) = self.function(index) else { return };
        if let Some(place) = lock(functions).now.get_mut(slot) {
            *place = Arc::new(new);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A list is changed by one operation that does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of this process that is in RAM; `None` where the system does not say.
pub fn resident_bytes() -> Option<u64> {
    /// What Linux counts in, on the machines that it is built for by default.
    const PAGE: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * PAGE)
}
