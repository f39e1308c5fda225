//! Executables: planned programs with their instances.

use crate::fusion::fused;
use crate::instance::{Instance, InstanceKey, Uses};
use crate::packed_weights::PackedWeights;
use crate::run::{RunMemory, run_instance};
use maquette_interp::{Bindings, ExecutionMode, ExternalTensors, Interpreter, SourceInfo, mutated};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::fused::{FusedProgram, Refusal};
use maquette_ir::graph::{Graph, Stmt, ValueId};
use maquette_ops::{Error, Result, RunBorrow, RunError, TraceError, Value, is_in_kernel, mode};
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most instances that an executable keeps. Of more, the one that was used longest ago goes.
const MAX_INSTANCES: usize = 64;

/// The most states of runs that an executable keeps between calls.
const MAX_STATES: usize = 16;

/// A compiled program. Several threads can run it at the same time.
pub struct Executable {
    form: Form,
}

enum Form {
    Planned(Box<Planned>),
    /// A program without a plan runs operator by operator.
    Unplanned(Box<ExecutionMode<'static>>),
}

impl Form {
    fn unplanned(mode: ExecutionMode<'static>) -> Form {
        Form::Unplanned(Box::new(mode))
    }
}

/// A program in planned memory.
pub(crate) struct Planned {
    pub program: FunctionalGraph,
    pub plan: BufferPlan,
    written: FxHashSet<ExternalTensor>,
    /// The values from which `bind` statements read symbols.
    pub bind_sources: FxHashSet<ValueId>,
    pub uses: Uses,
    /// The segments that instances keep behind their first.
    pub kept_segments: Arc<AtomicUsize>,
    /// The fused program, if `program` is its fused form.
    pub fused: Option<FusedProgram>,
    /// Why nothing is fused, if there is no fused program.
    refusals: Vec<Refusal>,
    /// The program before fusion, for inputs for which a region has no kernel.
    unfused: Option<Box<Planned>>,
    /// The instances, the one used last first; `None` if a region has no kernel.
    instances: Mutex<Vec<(InstanceKey, Option<Arc<Instance>>)>>,
    /// How many inputs are the same tensors in every run.
    pub fixed_inputs: usize,
    pub packed: PackedWeights,
    /// What runs leave to later ones.
    states: Mutex<Vec<RunState>>,
}

/// What a run needs, and leaves to a later one: memory, and lists that are empty between runs.
#[derive(Default)]
struct RunState {
    key: InstanceKey,
    external: ExternalTensors,
    borrow: RunBorrow,
    memory: RunMemory,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A list is changed by one operation that does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind_sources(graph: &Graph) -> FxHashSet<ValueId> {
    let source = |stmt: &Stmt| match stmt {
        Stmt::Bind { value, .. } => Some(*value),
        Stmt::Node(_) | Stmt::Assert { .. } => None,
    };
    graph.body().iter().filter_map(source).collect()
}

impl Executable {
    /// Compiles a program for the CPU. A program in planned memory runs compiled, with operators
    /// fused. Any other mode runs operator by operator, as does a program with tensors on another
    /// device.
    ///
    /// # Errors
    /// The plan belongs to another graph.
    pub fn new(mode: ExecutionMode<'_>) -> Result<Executable> {
        Executable::compile(mode, fused)
    }

    /// As [`Executable::new`], without fusion.
    ///
    /// # Errors
    /// The plan belongs to another graph.
    pub fn unfused(mode: ExecutionMode<'_>) -> Result<Executable> {
        Executable::compile(mode, |_| Err(Vec::new()))
    }

    fn compile(
        mode: ExecutionMode<'_>,
        fuse: impl Fn(&FunctionalGraph) -> std::result::Result<(FusedProgram, BufferPlan), Vec<Refusal>>,
    ) -> Result<Executable> {
        let form = match mode {
            ExecutionMode::Buffered(program, plan) => {
                let (program, plan) = (program.into_owned(), plan.into_owned());
                if plan.graph != program.graph.digest() {
                    let graph = program.graph.name().to_owned();
                    return Err(RunError::OtherPlan { graph }.into());
                }
                match Planned::is_supported(&program, &plan) {
                    true => {
                        let fused = fuse(&program);
                        let mut unfused = Planned::new(program, plan, None);
                        Form::Planned(Box::new(match fused {
                            Ok((fused, plan)) => {
                                let program = fused.program.clone();
                                let mut planned = Planned::new(program, plan, Some(fused));
                                planned.unfused = Some(Box::new(unfused));
                                planned
                            }
                            Err(refusals) => {
                                unfused.refusals = refusals;
                                unfused
                            }
                        }))
                    }
                    false => Form::unplanned(ExecutionMode::Buffered(
                        Cow::Owned(program),
                        Cow::Owned(plan),
                    )),
                }
            }
            ExecutionMode::Functional(program) => {
                Form::unplanned(ExecutionMode::Functional(Cow::Owned(program.into_owned())))
            }
            ExecutionMode::Original(graph) => {
                Form::unplanned(ExecutionMode::Original(Cow::Owned(graph.into_owned())))
            }
        };
        Ok(Executable { form })
    }

    /// The graph that runs, before fusion.
    pub fn graph(&self) -> &Graph {
        match &self.form {
            Form::Planned(planned) => match &planned.fused {
                Some(fused) => &fused.original.graph,
                None => &planned.program.graph,
            },
            Form::Unplanned(mode) => match &**mode {
                ExecutionMode::Original(graph) => graph,
                ExecutionMode::Functional(program) | ExecutionMode::Buffered(program, _) => {
                    &program.graph
                }
            },
        }
    }

    /// The program in planned memory, if it runs compiled.
    #[cfg(test)]
    pub(crate) fn planned(&self) -> Option<&Planned> {
        match &self.form {
            Form::Planned(planned) => Some(planned),
            Form::Unplanned(_) => None,
        }
    }

    /// The regions of operators that one kernel computes, if there are any.
    pub fn fused(&self) -> Option<&FusedProgram> {
        match &self.form {
            Form::Planned(planned) => planned.fused.as_ref(),
            Form::Unplanned(_) => None,
        }
    }

    /// The edges between operators of [`Executable::graph`] that are not fused, and why.
    pub fn refusals(&self) -> &[Refusal] {
        match &self.form {
            Form::Planned(planned) => match &planned.fused {
                Some(fused) => &fused.refusals,
                None => &planned.refusals,
            },
            Form::Unplanned(_) => &[],
        }
    }

    /// For how many layouts of the inputs the program runs as before fusion, because a region has no
    /// kernel for them.
    pub fn unfused_instances(&self) -> usize {
        match &self.form {
            Form::Planned(planned) => {
                lock(&planned.instances).iter().filter(|(_, instance)| instance.is_none()).count()
            }
            Form::Unplanned(_) => 0,
        }
    }

    /// Whether the program runs compiled.
    pub fn is_compiled(&self) -> bool {
        matches!(self.form, Form::Planned(_))
    }

    /// The executable, for runs whose first `count` inputs are the same tensors each time: the
    /// parameters of a program. As constants, they are packed for the products that read them.
    /// Runs on other tensors are right, but pack again.
    #[must_use]
    pub fn with_fixed_inputs(mut self, count: usize) -> Executable {
        if let Form::Planned(planned) = &mut self.form {
            planned.fixed_inputs = count;
            if let Some(unfused) = &mut planned.unfused {
                unfused.fixed_inputs = count;
            }
        }
        self
    }

    /// The bytes of weights in packed form, which products read: copies that the executable keeps
    /// beside constants and [fixed inputs](Executable::with_fixed_inputs). The first run with a
    /// product makes them, and a run after a write to the weight makes them again.
    pub fn packed_bytes(&self) -> usize {
        match &self.form {
            Form::Planned(planned) => {
                let unfused = planned.unfused.as_ref().map_or(0, |unfused| unfused.packed.bytes());
                planned.packed.bytes() + unfused
            }
            Form::Unplanned(_) => 0,
        }
    }

    /// Runs the program on real tensors. Inputs and constants are mutated as the original program
    /// mutates them, and outputs alias the same tensors. The results are those of
    /// [`Interpreter::run`], and so are the borrows of the run.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    pub fn run(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Vec<Value>> {
        match &self.form {
            Form::Planned(planned) => {
                if mode::is_active() {
                    let e = Error::from(TraceError::Run).at(source_info.call_site);
                    return Err(mode::failed(e));
                }
                mode::without_modes(|| planned.run(inputs, source_info))
                    .map_err(|e| source_info.locate(e))
            }
            Form::Unplanned(mode) => {
                let run = Interpreter::new(&**mode).with_source_info(*source_info).run(inputs)?;
                Ok(run.results)
            }
        }
    }
}

impl Planned {
    fn new(program: FunctionalGraph, plan: BufferPlan, fused: Option<FusedProgram>) -> Planned {
        Planned {
            written: mutated(&program),
            bind_sources: bind_sources(&program.graph),
            uses: Uses::of(&program.graph, &plan),
            kept_segments: Arc::default(),
            fused,
            refusals: Vec::new(),
            unfused: None,
            program,
            plan,
            instances: Mutex::default(),
            states: Mutex::default(),
            fixed_inputs: 0,
            packed: PackedWeights::default(),
        }
    }

    /// Whether the program mutates a tensor of the caller.
    pub fn writes(&self, which: ExternalTensor) -> bool {
        self.written.contains(&which)
    }

    /// The tensors of the caller that the program mutates.
    pub fn written(&self) -> impl Iterator<Item = ExternalTensor> + '_ {
        self.written.iter().copied()
    }

    /// Input `i` of the graph: an input of the program, or memory that inputs share.
    pub fn input(&self, i: usize) -> ExternalTensor {
        let inputs = self.program.graph.inputs().len() - self.program.memories.len();
        match i.checked_sub(inputs) {
            Some(memory) => ExternalTensor::SharedMemory(memory),
            None => ExternalTensor::Input(i),
        }
    }

    /// The instance that was used last.
    #[cfg(test)]
    pub fn last_instance(&self) -> Option<Arc<Instance>> {
        lock(&self.instances).first().and_then(|(_, instance)| instance.clone())
    }

    /// The bytes of all arenas that are kept for later runs.
    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        lock(&self.states).iter().map(|state| state.memory.arena_bytes()).sum()
    }

    fn run(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Vec<Value>> {
        // A kernel that starts a run cannot use memory that was made before its call.
        let mut state = match is_in_kernel() {
            true => RunState::default(),
            false => lock(&self.states).pop().unwrap_or_default(),
        };
        let results = self.run_with(&mut state, inputs, source_info);
        state.memory.end_run(results.is_err());
        state.borrow.release();
        state.external.clear();
        let mut states = lock(&self.states);
        if states.len() < MAX_STATES {
            states.push(state);
        }
        results
    }

    fn run_with(
        &self,
        state: &mut RunState,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<Vec<Value>> {
        let RunState { key, external, borrow, memory } = state;
        external.set_program(&self.program, inputs, source_info)?;
        external.borrow(&self.program.graph, &self.written, source_info, borrow)?;
        let (planned, instance) = self.form_for(key, external, source_info)?;
        for &which in &self.written {
            external.get(which)?.storage()?.bump_version();
        }
        let mut results = run_instance(planned, &instance, external, memory, source_info)?;
        results.iter_mut().for_each(|v| borrow.restore(v));
        Ok(results)
    }

    /// The form of the program for inputs of these layouts, with its instance.
    fn form_for(
        &self,
        key: &mut InstanceKey,
        external: &ExternalTensors,
        source_info: &SourceInfo<'_>,
    ) -> Result<(&Planned, Arc<Instance>)> {
        if let Some(instance) = self.instance(key, external, source_info)? {
            return Ok((self, instance));
        }
        let refused = || Error::msg("a program without regions has no instance");
        let unfused = self.unfused.as_deref().ok_or_else(refused)?;
        let instance = unfused.instance(key, external, source_info)?;
        Ok((unfused, instance.ok_or_else(refused)?))
    }

    /// The instance for inputs of these layouts; `None` if a region has no kernel for them. The
    /// first call makes it, and checks the inputs and the guards: they depend on nothing else.
    fn instance(
        &self,
        key: &mut InstanceKey,
        external: &ExternalTensors,
        source_info: &SourceInfo<'_>,
    ) -> Result<Option<Arc<Instance>>> {
        let inputs = external.graph_inputs();
        let has_key = key.set(&self.program, inputs).is_some();
        if has_key {
            let mut instances = lock(&self.instances);
            if let Some(at) = instances.iter().position(|(k, _)| k == key) {
                instances[..=at].rotate_right(1);
                return Ok(instances[0].1.clone());
            }
        }
        let mut bindings = Bindings::new(&self.program.graph, source_info.input_names);
        bindings.bind_inputs(inputs)?;
        let known = bindings.into_values();
        let instance =
            Instance::new(self, inputs, external.consts(), known, source_info)?.map(Arc::new);
        if has_key {
            let mut instances = lock(&self.instances);
            instances.truncate(MAX_INSTANCES - 1);
            instances.insert(0, (key.clone(), instance.clone()));
        }
        Ok(instance)
    }
}

impl fmt::Debug for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executable").field("graph", &self.graph().name()).finish_non_exhaustive()
    }
}
