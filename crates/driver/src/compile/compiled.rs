//! Compiled functions.

use super::cache::{Cache, Found};
use super::call_inputs::CallInputs;
use super::dynamic::DynamicSet;
use super::explain::{Explanation, ProgramExplanation};
use super::program::GuardedProgram;
use super::{CompileOptions, Stance};
use crate::given_outputs;
use maquette_ir::Loc;
use maquette_ops::internals::{in_functional_call, unobserved};
use maquette_ops::{CompileError, Error, Result, Tree, Value, autocast_dtype, fake, mode, tree};
use maquette_runtime::memory_map::MemoryMap;
use maquette_runtime::profile::{Profile, ProfileOptions};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A function that is compiled when it is called: traced, made functional and planned, and run
/// again on other inputs as long as its guards hold. See [`compile`](super::compile()).
///
/// It can be called from several threads. No lock is held while the function is traced, compiled or
/// run, so a kernel may call the function that runs it. A call may use tensors that a compilation
/// on another thread has captured, as runs and traces of one function share its tensors.
pub struct Compiled<I, O, F> {
    f: F,
    options: CompileOptions,
    stance: AtomicU8,
    cache: Cache,
    types: PhantomData<fn(I) -> O>,
}

/// What a call runs: the function itself, or a program on the leaves of the inputs.
enum Prepared<I> {
    Eager(I),
    Program(Found, Vec<Value>),
}

/// Runs a call of the function itself, which a trace of this thread records.
fn unobserved_outside_traces<R>(call: impl FnOnce() -> R) -> R {
    if mode::is_active() { call() } else { unobserved(call) }
}

impl<I: Tree, O: Tree, F: Fn(I) -> O> Compiled<I, O, F> {
    pub(crate) fn new(f: F, options: CompileOptions) -> Compiled<I, O, F> {
        let stance = AtomicU8::new(options.stance as u8);
        Compiled { f, options, stance, cache: Cache::default(), types: PhantomData }
    }

    /// Calls the function: runs a program whose guards hold, and compiles one if there is none.
    /// Results, written inputs and aliases are those of the eager function, in bits unless the
    /// options allow [`FastMath`](super::FastMath).
    ///
    /// While a trace or a [functional call](maquette_ops::func::functional_call) runs, and on fake
    /// tensors, the function itself is called. A trace then records its operators.
    ///
    /// # Errors
    /// The errors of the function itself. If the call compiles, the errors of
    /// [`TraceOptions::trace`](maquette_trace::TraceOptions::trace), and
    /// [`CompileError`]: an input requires a gradient, the recompile limit is reached, the stance
    /// forbids a compilation, or a mark does not hold.
    #[track_caller]
    pub fn call(&self, inputs: I) -> Result<O::Output> {
        let loc = Loc::caller();
        let called = self.options.limited(|| self.called(inputs, loc));
        called.map_err(|e| mode::failed(if e.loc().is_some() { e } else { e.at(loc) }))
    }

    /// Calls the function, and writes what it returns into given tensors, one for each tensor that
    /// it returns. The call returns nothing, and allocates no memory for the results, where a
    /// program can write them in place: a result has memory of its own, and its tensor the strides
    /// that [`Compiled::call`] would return. Other results are copied, and so are results that view
    /// inputs or share memory: the given tensors have their values, and none of their aliases.
    ///
    /// A tensor may have any strides, and be a view of a larger one.
    ///
    /// While a trace runs, and where [`Compiled::call`] calls the function itself, the results are
    /// copied.
    ///
    /// # Errors
    /// As [`Compiled::call`]. A tensor has another dtype, device or size than the result, has
    /// elements that overlap, or shares memory with an input, a captured tensor or another result;
    /// someone else has borrowed it; it requires a gradient, and calls on this thread record
    /// derivatives; a result is not a tensor, or has a size that depends on data. Nothing was
    /// written then, but where the function itself is called, it has run before its results are
    /// compared with the tensors. After any other error, the tensors have any contents.
    #[track_caller]
    pub fn call_into(&self, inputs: I, outputs: &O::Output) -> Result<()> {
        let loc = Loc::caller();
        let called = || {
            let (spec, given) = tree::flatten_values(outputs)?;
            match self.prepared(inputs, loc)? {
                Prepared::Eager(inputs) => unobserved_outside_traces(|| {
                    let (_, leaves) = tree::flatten_values(&inputs)?;
                    given_outputs::check(&given, &leaves)?;
                    let reserved = given_outputs::reserve(&given, loc)?;
                    let results = tree::flatten_values(&(self.f)(inputs))?;
                    drop(reserved);
                    given_outputs::copy_into(&results, (&spec, &given))
                }),
                Prepared::Program(Found { program, stamp }, leaves) => {
                    unobserved(|| program.run_into(leaves, (&spec, &given), stamp, loc))
                }
            }
        };
        self.options
            .limited(called)
            .map_err(|e| mode::failed(if e.loc().is_some() { e } else { e.at(loc) }))
    }

    /// Runs the program for these inputs again and again, and times its kernels; compiles one if
    /// there is none. Each run is that of [`Compiled::call`]: it mutates the inputs and the
    /// captured tensors that the function mutates, and its results are dropped.
    ///
    /// # Errors
    /// As [`Compiled::call`]. The call would run the function itself: by its stance, in a trace, or
    /// on fake tensors.
    #[track_caller]
    pub fn profile(&self, inputs: I, options: &ProfileOptions) -> Result<Profile> {
        let loc = Loc::caller();
        let profiled = || match self.prepared(inputs, loc)? {
            Prepared::Eager(_) => Err(self.runs_eagerly("nothing to profile")),
            Prepared::Program(Found { program, .. }, leaves) => {
                unobserved(|| program.profile(leaves, options, loc))
            }
        };
        self.options
            .limited(profiled)
            .map_err(|e: Error| mode::failed(if e.loc().is_some() { e } else { e.at(loc) }))
    }

    /// The map of the memory in which the program for these inputs runs: which buffer lies where,
    /// and from which kernel to which. Compiles a program if there is none, and runs nothing.
    /// `None` if the program runs as it was traced, without memory of its own:
    /// [`Compiled::explain`] gives the reason. [`MemoryMap::svg`] draws the map.
    ///
    /// ```
    /// use maquette_driver::compile;
    /// use maquette_ops::Tensor;
    ///
    /// let f = compile(|x: Tensor| x.softmax(-1).matmul(&x));
    /// let map = f.memory_map(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]))?;
    /// let map = map.ok_or_else(|| maquette_ops::Error::msg("it has planned memory"))?;
    /// assert_eq!(map.kernels.len(), 2);
    /// assert!(map.svg().starts_with("<svg"));
    /// # Ok::<(), maquette_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Compiled::profile`].
    #[track_caller]
    pub fn memory_map(&self, inputs: I) -> Result<Option<MemoryMap>> {
        let loc = Loc::caller();
        let mapped = || match self.prepared(inputs, loc)? {
            Prepared::Eager(_) => Err(self.runs_eagerly("no memory to map")),
            Prepared::Program(Found { program, .. }, leaves) => program.memory_map(leaves, loc),
        };
        self.options
            .limited(mapped)
            .map_err(|e: Error| mode::failed(if e.loc().is_some() { e } else { e.at(loc) }))
    }

    /// The error of a question about a program, for a call that runs the function itself.
    fn runs_eagerly(&self, nothing: &str) -> Error {
        Error::value(format!("`{}` runs eagerly for this call, so there is {nothing}", self.name()))
    }

    fn called(&self, inputs: I, loc: Loc) -> Result<O::Output> {
        match self.prepared(inputs, loc)? {
            Prepared::Eager(inputs) => self.eager(inputs),
            Prepared::Program(Found { program, stamp }, leaves) => {
                unobserved(|| program.run(leaves, stamp, loc))
            }
        }
    }

    /// What a call runs.
    fn prepared(&self, inputs: I, loc: Loc) -> Result<Prepared<I>> {
        // In a functional call, tensors that the function captures may have others in their places.
        let is_eager = mode::is_active() || in_functional_call() || fake::is_running();
        if is_eager || self.stance() == Stance::ForceEager {
            return Ok(Prepared::Eager(inputs));
        }
        let call = CallInputs::of(&inputs)?;
        let refusal = self.refusal(&inputs, &call)?;
        if refusal.is_none() {
            if call.is_fake {
                return Ok(Prepared::Eager(inputs));
            }
            if let Some(found) = self.cache.find(&call) {
                return Ok(Prepared::Program(found, call.values));
            }
        }
        match self.stance() {
            Stance::EagerOnRecompile => return Ok(Prepared::Eager(inputs)),
            Stance::EagerThenCompile if self.cache.is_first_call(&call) => {
                return Ok(Prepared::Eager(inputs));
            }
            _ => {}
        }
        if let Some(refusal) = refusal {
            return Err(refusal.into());
        }
        drop(inputs);
        let program = self.compiled(&call, loc)?;
        Ok(Prepared::Program(Found { program, stamp: None }, call.values))
    }

    /// Why no program can serve a call, if none can.
    fn refusal(&self, inputs: &I, call: &CallInputs) -> Result<Option<CompileError>> {
        if autocast_dtype().is_some() {
            return Ok(Some(CompileError::Autocast));
        }
        let Some(leaf) = call.requires_grad else { return Ok(None) };
        let (_, leaves) = tree::flatten(inputs)?;
        let path = leaves.get(leaf).map_or("", |leaf| leaf.path.as_str());
        let input = self.options.trace.label(leaf, path);
        Ok(Some(CompileError::RequiresGrad { input }))
    }

    /// Calls the function itself.
    fn eager(&self, inputs: I) -> Result<O::Output> {
        let call = || tree::flatten_values(&(self.f)(inputs));
        let (spec, leaves) = unobserved_outside_traces(call)?;
        O::Output::unflatten(&spec, &mut leaves.into_iter())
    }

    /// Compiles the function for a call that no program serves.
    fn compiled(&self, call: &CallInputs, loc: Loc) -> Result<Arc<GuardedProgram>> {
        let (name, limit) = (self.name(), self.options.limit);
        let failures = self.cache.failures(call);
        if self.stance() == Stance::FailOnRecompile && !failures.is_empty() {
            return Err(CompileError::Recompile { name, failures }.into());
        }
        if self.cache.live() >= limit {
            return Err(CompileError::RecompileLimit { name, limit, failures }.into());
        }
        let (signature, set_by_calls) = (call.signature(), !self.options.symbolic);
        let mut dynamic = match set_by_calls {
            true => self.cache.dynamic_set(&signature),
            false => DynamicSet::all(&signature),
        };
        // Each turn but the last follows an addition by another thread, after which more sizes are
        // symbols. So there are at most as many as there are sizes.
        loop {
            let mut program = GuardedProgram::new(&self.f, call, dynamic, &self.options, loc)?;
            program.reason = match self.cache.closest_failure(call) {
                None => "the first call".to_owned(),
                Some(failure) => failure.to_string(),
            };
            match self.cache.insert(program, call, limit, set_by_calls) {
                Ok(program) => return Ok(program),
                Err(now) => dynamic = now,
            }
            if let Some(found) = self.cache.find(call) {
                return Ok(found.program);
            }
        }
    }

    /// Whether one of the programs so far serves these inputs, inside `no_grad` or outside as this
    /// call is. A call then runs this program, unless the stance or a trace makes the call eager.
    ///
    /// # Errors
    /// As [`Tree::flatten`].
    pub fn matches(&self, inputs: &I) -> Result<bool> {
        let call = CallInputs::of(inputs)?;
        let is_refused = call.requires_grad.is_some() || autocast_dtype().is_some();
        Ok(!is_refused && !call.is_fake && self.cache.find(&call).is_some())
    }
}

impl<I, O, F> Compiled<I, O, F> {
    fn name(&self) -> String {
        self.options.name.clone().unwrap_or_else(|| "graph".to_owned())
    }

    pub(crate) fn programs(&self) -> Vec<Arc<GuardedProgram>> {
        self.cache.programs()
    }

    /// The programs so far: why each was compiled, what it requires, and how it runs.
    pub fn explain(&self) -> Explanation {
        let programs = self.cache.programs();
        Explanation {
            name: self.name(),
            stance: self.stance(),
            compilations: self.cache.compilations(),
            recompile_limit: self.options.limit,
            programs: programs.iter().map(|p| ProgramExplanation::of(p)).collect(),
        }
    }

    /// How often the function was compiled.
    pub fn compilations(&self) -> usize {
        self.cache.compilations()
    }

    /// How calls are treated that no program fits.
    pub fn stance(&self) -> Stance {
        Stance::ALL
            .into_iter()
            .find(|s| *s as u8 == self.stance.load(Ordering::Relaxed))
            .unwrap_or_default()
    }

    /// Changes the stance for later calls, for example to [`Stance::FailOnRecompile`] once the
    /// function has been called with every kind of input that it will get.
    pub fn set_stance(&self, stance: Stance) {
        self.stance.store(stance as u8, Ordering::Relaxed);
    }

    /// Removes all programs, with what they captured. The next call compiles again.
    pub fn reset(&self) {
        self.cache.clear();
    }
}

impl<I, O, F> fmt::Debug for Compiled<I, O, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("name", &self.name())
            .field("compilations", &self.compilations())
            .finish_non_exhaustive()
    }
}
