//! Executables: planned programs with their instances.

use crate::instance::LayoutStamp;
use crate::planned::{Planned, lock};
use crate::run::StepObserver;
use crate::unplanned;
use maquette_interp::ExecutionMode;
use maquette_invoke::{SourceInfo, check_overrides, mutated, outside_modes};
use maquette_ir::Device;
use maquette_ir::buffer_plan::{Buffer, BufferPlan};
use maquette_ir::functional_ops::Callee;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::fused::{FusedProgram, Refusal};
use maquette_ir::graph::{Const, Graph, NodeId};
use maquette_ir::program_form::{PlannedProgram, ProgramForm};
use maquette_ops::library::generation;
use maquette_ops::{Op, Result, RunError, Tensor, Value};
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A compiled program. Several threads can run it at the same time.
pub struct Executable {
    pub(crate) form: Form,
    /// The [`generation`] of the registry in which the last check of overrides passed.
    checked: AtomicU64,
}

pub(crate) enum Form {
    Planned(Box<Planned>),
    /// A program without a plan runs operator by operator.
    Unplanned(Box<ExecutionMode<'static>>),
}

impl Form {
    fn unplanned(mode: ExecutionMode<'static>) -> Form {
        Form::Unplanned(Box::new(mode))
    }

    /// Of a program in planned memory.
    ///
    /// # Errors
    /// A plan belongs to another graph, or writes tensors that the program does not mutate.
    fn planned(planned: PlannedProgram) -> Result<Form> {
        let PlannedProgram { program, plan, fused, refusals } = planned;
        check_plan(&program, &plan)?;
        let Some(device) = Executable::device_of(&program, &plan) else {
            let (program, plan) = (Cow::Owned(program), Cow::Owned(plan));
            return Ok(Form::unplanned(ExecutionMode::Buffered(program, plan)));
        };
        let mut unfused = Planned::new(program, device, plan, None);
        unfused.refusals = refusals;
        let Some((fused, plan)) = fused else { return Ok(Form::Planned(Box::new(unfused))) };
        check_plan(&fused.program, &plan)?;
        let mut planned = Planned::new(fused.program.clone(), device, plan, Some(fused));
        planned.unfused = Some(Box::new(unfused));
        Ok(Form::Planned(Box::new(planned)))
    }
}

/// Checks that a plan is that of a program, and writes no memory but what it may.
///
/// # Errors
/// The plan belongs to another graph, or a step writes other memory.
fn check_plan(program: &FunctionalGraph, plan: &BufferPlan) -> Result<()> {
    if plan.graph != program.graph.digest() {
        return Err(RunError::OtherPlan { graph: program.graph.name().to_owned() }.into());
    }
    check_writes(program, plan)
}

/// Checks that a plan writes no memory of the caller but what the program mutates: a run borrows
/// only this memory exclusively.
///
/// # Errors
/// A step writes other memory.
fn check_writes(program: &FunctionalGraph, plan: &BufferPlan) -> Result<()> {
    let graph = &program.graph;
    let mutated = mutated(program);
    let mut written = None;
    for (step, of) in plan.steps.iter().enumerate() {
        of.for_each_written(&mut |buffer| {
            let (which, value) = match plan.buffers.get(buffer.index()) {
                Some(&Buffer::Input(i)) => {
                    (program.external_input(i), graph.inputs().get(i).copied())
                }
                Some(&Buffer::Const(i)) => {
                    (ExternalTensor::Const(i), graph.consts().get(i).map(Const::value))
                }
                _ => return,
            };
            if !mutated.contains(&which) {
                written = written.or(Some((step, value)));
            }
        });
    }
    match written {
        None => Ok(()),
        Some((step, value)) => Err(RunError::PlanWrites {
            graph: graph.name().to_owned(),
            step,
            tensor: value.map_or_else(String::new, |v| format!("`%{}`", graph.value_name(v))),
        }
        .into()),
    }
}

impl Executable {
    /// Makes a program ready to run on the device of its tensors. A program in planned memory runs
    /// compiled, and fused if it has a fused form. Any other program runs operator by operator, as
    /// does one with tensors on several devices. An [`ExecutionMode`] is such a program, and is not
    /// fused.
    ///
    /// # Errors
    /// The plan belongs to another graph, or writes tensors that the program does not mutate.
    pub fn new(program: impl Into<ProgramForm>) -> Result<Executable> {
        let form = match program.into() {
            ProgramForm::Planned(planned) => Form::planned(*planned)?,
            ProgramForm::Functional(program) => {
                Form::unplanned(ExecutionMode::Functional(Cow::Owned(program)))
            }
            ProgramForm::Original(graph) => {
                Form::unplanned(ExecutionMode::Original(Cow::Owned(graph)))
            }
        };
        Ok(Executable { form, checked: AtomicU64::new(u64::MAX) })
    }

    /// The device on which a program in the memory of a plan runs compiled: that of all its
    /// tensors. `None` if they are on several, or on one that has no memory.
    pub fn device_of(program: &FunctionalGraph, plan: &BufferPlan) -> Option<Device> {
        let graph = &program.graph;
        let values = graph.inputs().iter().copied();
        let values = values.chain(graph.consts().iter().map(Const::value));
        let results = graph.nodes().flat_map(|node| graph.result_values(node));
        let of_values = values.chain(results).filter_map(|v| Some(graph.tensor_type(v)?.device));
        let of_buffers = plan.buffers.iter().filter_map(|b| match b {
            Buffer::New { device, .. } => Some(*device),
            Buffer::Input(_) | Buffer::Const(_) | Buffer::Returned(_) => None,
        });
        let mut devices = of_values.chain(of_buffers);
        let device = devices.next().unwrap_or(Device::Cpu);
        (device != Device::Meta && devices.all(|other| other == device)).then_some(device)
    }

    /// Checks that nothing overrides the operators on which the program relies without calling
    /// them. The check looks at them only if a registration has changed since the last one.
    ///
    /// # Errors
    /// As [`check_overrides`].
    fn check_overrides(&self, planned: &Planned) -> Result<()> {
        let now = generation();
        if self.checked.load(Ordering::Relaxed) != now {
            check_overrides(self.graph(), &planned.program.viewers)?;
            self.checked.store(now, Ordering::Relaxed);
        }
        Ok(())
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
    pub(crate) fn planned(&self) -> Option<&Planned> {
        match &self.form {
            Form::Planned(planned) => Some(planned),
            Form::Unplanned(_) => None,
        }
    }

    /// The calls of [`Executable::graph`] that run on copies in host memory, since their tensors
    /// are on a device that has no kernel for the operator.
    pub fn on_host(&self) -> Vec<NodeId> {
        let graph = self.graph();
        let falls_back = |node: &NodeId| {
            let device = graph.result_values(*node).find_map(|v| graph.tensor_type(v));
            let op = Op::find(Callee::of(graph, *node).op);
            device.zip(op.ok()).is_some_and(|(ty, op)| op.falls_back_to_host(ty.device))
        };
        graph.nodes().filter(falls_back).collect()
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

    /// For how many layouts of the inputs the program runs as before fusion, because a region has
    /// no kernel for them.
    pub fn unfused_instances(&self) -> usize {
        match &self.form {
            Form::Planned(planned) => {
                lock(&planned.instances).iter().filter(|kept| kept.instance.is_none()).count()
            }
            Form::Unplanned(_) => 0,
        }
    }

    /// Whether the program runs compiled.
    pub fn is_compiled(&self) -> bool {
        matches!(self.form, Form::Planned(_))
    }

    /// The executable, for runs whose first `count` inputs are the same tensors each time: the
    /// parameters of a program. As constants, they are packed for what reads them.
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

    /// The bytes of weights in packed form: copies in the layout that products read, and values
    /// that launches compute of weights. The executable keeps them beside constants and [fixed
    /// inputs](Executable::with_fixed_inputs). The first run that reads a weight makes them, and a
    /// run after a write to the weight makes them again.
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
    /// mutates them, and outputs alias the same tensors. The results are those of the
    /// [interpreter](maquette_interp::Interpreter::run), and so are the borrows of the run.
    ///
    /// # Errors
    /// As [the interpreter's](maquette_interp::Interpreter::run).
    pub fn run(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Vec<Value>> {
        self.run_stamped(inputs, None, source_info)
    }

    /// As [`Executable::run`], for a caller that has compared the layouts and numbers of the inputs
    /// with those of earlier calls. Calls with one [stamp](LayoutStamp) have equal ones.
    ///
    /// # Errors
    /// As [`Executable::run`].
    #[doc(hidden)]
    pub fn run_stamped(
        &self,
        inputs: &[Value],
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
    ) -> Result<Vec<Value>> {
        self.run_observed(inputs, stamp, source_info, &mut ())
    }

    /// As [`Executable::run_stamped`], with an observer of the steps, if the program runs compiled.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub(crate) fn run_observed(
        &self,
        inputs: &[Value],
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
        observer: &mut impl StepObserver,
    ) -> Result<Vec<Value>> {
        match &self.form {
            Form::Planned(planned) => outside_modes(source_info, || {
                self.check_overrides(planned)?;
                planned.run_observed(inputs, None, stamp, source_info, observer)
            }),
            Form::Unplanned(mode) => unplanned::run(mode, inputs, source_info),
        }
    }
}

impl Executable {
    /// As [`Executable::run_into`], with the stamp of [`Executable::run_stamped`].
    ///
    /// # Errors
    /// As [`Executable::run_into`].
    #[doc(hidden)]
    pub fn run_stamped_into(
        &self,
        inputs: &[Value],
        outputs: &[Tensor],
        stamp: Option<LayoutStamp>,
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        outside_modes(source_info, || match &self.form {
            Form::Planned(planned) => {
                self.check_overrides(planned)?;
                planned.run(inputs, Some(outputs), stamp, source_info).map(drop)
            }
            Form::Unplanned(mode) => unplanned::run_into(mode, inputs, outputs, source_info),
        })
    }

    /// As [`Executable::run`], with tensors for the outputs, one for each leaf of the outputs in
    /// order. The run writes the results there and returns nothing. A repeated call allocates
    /// nothing, if each result has memory of its own and its tensor has the strides that
    /// [`Executable::run`] would return.
    ///
    /// A tensor may have any strides, and be a view of a larger one. A result that the program puts
    /// elsewhere is copied: one with other strides, a view of an input, results that share memory.
    /// The given tensors thus have the values of the results, and none of their aliases.
    ///
    /// # Errors
    /// As [`Executable::run`]. A tensor has another dtype, device or size than the output, has
    /// elements that overlap, requires a gradient where calls record derivatives, or shares memory
    /// with an input, a constant or another output; another holder has borrowed it; an output is no
    /// tensor, or has a size that depends on data. Nothing was written then. After any other error,
    /// the tensors have any contents.
    pub fn run_into(
        &self,
        inputs: &[Value],
        outputs: &[Tensor],
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        self.run_stamped_into(inputs, outputs, None, source_info)
    }
}

impl fmt::Debug for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executable").field("graph", &self.graph().name()).finish_non_exhaustive()
    }
}
