//! Programs in planned memory: instances for the layouts of inputs, and what runs leave to later
//! ones.

use crate::instance::{Instance, InstanceKey, LayoutStamp, Uses};
use crate::packed_weights::PackedWeights;
use crate::run::{RunMemory, StepObserver, run_instance};
use maquette_invoke::{Bindings, ExternalTensors, SourceInfo, mutated};
use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::fused::{FusedProgram, Refusal};
use maquette_ir::graph::{Graph, Stmt, ValueId};
use maquette_lower::SizeClasses;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Error, Result, RunBorrow, Tensor, Value, is_in_kernel, occupying_a_core};
use rustc_hash::FxHashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most instances that an executable keeps. Of more, the one that was used longest ago goes.
const MAX_INSTANCES: usize = 64;

/// The most states of runs that an executable keeps between calls.
const MAX_STATES: usize = 16;
/// A program in planned memory.
pub(crate) struct Planned {
    pub program: FunctionalGraph,
    /// The device of all tensors.
    pub device: Device,
    pub plan: BufferPlan,
    written: FxHashSet<ExternalTensor>,
    /// The values from which `bind` statements read symbols.
    pub bind_sources: FxHashSet<ValueId>,
    pub uses: Uses,
    /// The segments that instances keep after their first.
    pub kept_segments: Arc<AtomicUsize>,
    /// The fused program, if `program` is its fused form.
    pub fused: Option<FusedProgram>,
    /// The sizes of the program before fusion.
    pub size_classes: SizeClasses,
    /// Why nothing is fused, if there is no fused program.
    pub refusals: Vec<Refusal>,
    /// The program before fusion, for inputs for which a region has no kernel.
    pub unfused: Option<Box<Planned>>,
    /// The instances, the one used last first.
    pub instances: Mutex<Vec<KeptInstance>>,
    /// How many inputs are the same tensors in every run.
    pub fixed_inputs: usize,
    pub packed: PackedWeights,
    /// What runs leave to later ones.
    states: Mutex<Vec<RunState>>,
}

/// An instance that later runs may use.
pub(crate) struct KeptInstance {
    key: InstanceKey,
    /// The stamp of the last run, if its caller gave one.
    stamp: Option<LayoutStamp>,
    /// `None` if a region has no kernel.
    pub instance: Option<Arc<Instance>>,
}

/// What a run needs, and leaves to a later one: memory, and lists that are empty between runs.
#[derive(Default)]
struct RunState {
    key: InstanceKey,
    external: ExternalTensors,
    borrow: RunBorrow,
    memory: RunMemory,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

impl Planned {
    pub fn new(
        program: FunctionalGraph,
        device: Device,
        plan: BufferPlan,
        fused: Option<FusedProgram>,
    ) -> Planned {
        let size_classes = fused.as_ref().map(|fused| SizeClasses::of(&fused.original.graph));
        Planned {
            written: mutated(&program),
            bind_sources: bind_sources(&program.graph),
            uses: Uses::of(&program.graph, &plan),
            kept_segments: Arc::default(),
            size_classes: size_classes.unwrap_or_default(),
            fused,
            refusals: Vec::new(),
            unfused: None,
            program,
            device,
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
        self.program.external_input(i)
    }

    /// The instance that was used last.
    #[cfg(test)]
    pub fn last_instance(&self) -> Option<Arc<Instance>> {
        lock(&self.instances).first().and_then(|kept| kept.instance.clone())
    }

    /// The bytes of all arenas that are kept for later runs.
    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        lock(&self.states).iter().map(|state| state.memory.arena_bytes()).sum()
    }

    /// Runs the program; see [`Executable`](crate::Executable).
    ///
    /// # Errors
    /// As [`Executable::run_into`](crate::Executable::run_into).
    pub fn run(
        &self,
        inputs: &[Value],
        outputs: Option<&[Tensor]>,
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
    ) -> Result<Vec<Value>> {
        self.run_observed(inputs, outputs, stamp, source_info, &mut ())
    }

    /// As [`Planned::run`], with an observer of the steps.
    ///
    /// # Errors
    /// As [`Planned::run`].
    pub fn run_observed(
        &self,
        inputs: &[Value],
        outputs: Option<&[Tensor]>,
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
        observer: &mut impl StepObserver,
    ) -> Result<Vec<Value>> {
        // A kernel that starts a run cannot use memory that was made before its call.
        let mut state = match is_in_kernel() {
            true => RunState::default(),
            false => lock(&self.states).pop().unwrap_or_default(),
        };
        let results = occupying_a_core(|| {
            self.run_with(&mut state, inputs, outputs, stamp, source_info, observer)
        });
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
        outputs: Option<&[Tensor]>,
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
        observer: &mut impl StepObserver,
    ) -> Result<Vec<Value>> {
        let RunState { key, external, borrow, memory } = state;
        external.set_program(&self.program, inputs, source_info)?;
        external.set_outputs(outputs.unwrap_or_default());
        external.borrow(&self.program.graph, &self.written, source_info, borrow)?;
        let (planned, instance) = self.form_for(key, stamp, external, source_info)?;
        if outputs.is_some() {
            let (graph, given) = (&planned.program.graph, external.outputs());
            instance.outputs.check(graph, given, external, source_info)?;
            given.iter().try_for_each(|t| t.own_storage().map(|s| s.bump_version()))?;
        }
        for &which in &self.written {
            external.get(which)?.own_storage()?.bump_version();
        }
        let mut results =
            run_instance(planned, &instance, external, memory, source_info, observer)?;
        results.iter_mut().for_each(|v| borrow.restore(v));
        Ok(results)
    }

    /// The form of the program for these inputs, with its instance, which is made if it is the
    /// first.
    ///
    /// # Errors
    /// The inputs do not fit the program.
    pub fn prepared(
        &self,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<(&Planned, Arc<Instance>)> {
        let RunState { mut key, mut external, .. } = RunState::default();
        external.set_program(&self.program, inputs, source_info)?;
        self.form_for(&mut key, None, &external, source_info)
    }

    /// The form of the program for inputs of these layouts, with its instance.
    fn form_for(
        &self,
        key: &mut InstanceKey,
        stamp: Option<LayoutStamp>,
        external: &ExternalTensors,
        source_info: &SourceInfo<'_>,
    ) -> Result<(&Planned, Arc<Instance>)> {
        if let Some(instance) = self.instance(key, stamp, external, source_info)? {
            return Ok((self, instance));
        }
        let refused = || Error::msg("a program without regions has no instance");
        let unfused = self.unfused.as_deref().ok_or_else(refused)?;
        let instance = unfused.instance(key, stamp, external, source_info)?;
        Ok((unfused, instance.ok_or_else(refused)?))
    }

    /// The instance for inputs of these layouts; `None` if a region has no kernel for them. The
    /// first call makes it, and checks the inputs and the guards: they depend on nothing else.
    fn instance(
        &self,
        key: &mut InstanceKey,
        stamp: Option<LayoutStamp>,
        external: &ExternalTensors,
        source_info: &SourceInfo<'_>,
    ) -> Result<Option<Arc<Instance>>> {
        let inputs = external.graph_inputs();
        // Memory that inputs share is an input of the graph that no stamp describes.
        let stamp = stamp.filter(|_| self.program.memories.is_empty());
        if let Some(instance) = stamp.and_then(|stamp| self.stamped(stamp, key, inputs)) {
            return Ok(instance);
        }
        let has_key = key.set(&self.program, self.device, inputs).is_some();
        if has_key {
            let mut instances = lock(&self.instances);
            if let Some(at) = instances.iter().position(|kept| kept.key == *key) {
                instances[..=at].rotate_right(1);
                // The layouts have not changed, so that an earlier stamp stays true.
                instances[0].stamp = stamp.or(instances[0].stamp);
                return Ok(instances[0].instance.clone());
            }
        }
        let mut bindings = Bindings::new(&self.program.graph, source_info.input_names);
        bindings.bind_inputs(inputs)?;
        let known = bindings.into_values();
        let instance =
            Instance::new(self, inputs, external.consts(), known, source_info)?.map(Arc::new);
        if has_key {
            let mut instances = lock(&self.instances);
            let oldest = instances.len().min(MAX_INSTANCES - 1);
            // An instance keeps kernels, and the destructors of what they have captured may call
            // this program. So the lock ends before.
            let evicted: Vec<_> = instances.drain(oldest..).collect();
            let kept = KeptInstance { key: key.clone(), stamp, instance: instance.clone() };
            instances.insert(0, kept);
            drop(instances);
            drop(evicted);
        }
        Ok(instance)
    }

    /// The instance of the last run, if it had this stamp. The inputs are not poisoned:
    /// [`ExternalTensors::set_program`] has refused such inputs.
    fn stamped(
        &self,
        stamp: LayoutStamp,
        key: &mut InstanceKey,
        inputs: &[Value],
    ) -> Option<Option<Arc<Instance>>> {
        let instances = lock(&self.instances);
        let last = instances.first().filter(|kept| kept.stamp == Some(stamp))?;
        debug_assert!(
            fault_injected(Fault::InstanceOfAnySizes)
                || key
                    .set(&self.program, self.device, inputs)
                    .is_none_or(|()| last.key.has_layouts_of(key)),
            "calls with one stamp have inputs of other layouts"
        );
        last.key.is_current().then(|| last.instance.clone())
    }
}
