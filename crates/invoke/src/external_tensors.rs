//! External tensors of a run: inputs, constants, and memory that inputs share.

use crate::captured::Captured;
use crate::source_info::SourceInfo;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::graph::{Const, Graph};
use maquette_ir::sym::Expr;
use maquette_ops::autograd::is_grad_enabled;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::{
    Access, Error, Result, RunBorrow, RunError, RunInput, RunTensors, Tensor, Value, mode,
};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::Arc;

/// The external tensors of one run. A later run can use the lists again
/// ([`ExternalTensors::set_program`]), so that it allocates nothing.
#[derive(Default)]
pub struct ExternalTensors {
    /// The inputs of the graph: those of the program, then flat views of the memory that several
    /// inputs share.
    inputs: Vec<Value>,
    /// The number of the program's inputs.
    given: usize,
    consts: Vec<Tensor>,
    /// The tensors that the caller gives for outputs, and their names.
    outputs: Vec<Tensor>,
    /// What errors say of each tensor above, and the names from which this was made.
    descriptions: Vec<Arc<RunInput>>,
    /// The numbers of inputs and constants among the descriptions.
    described: (usize, usize),
    input_names: Vec<String>,
    /// The inputs and constants, sorted by their storages.
    by_storage: Vec<(StorageId, ExternalTensor)>,
}

impl ExternalTensors {
    /// The external tensors of an original graph.
    ///
    /// # Errors
    /// An input is not a tensor where the graph has one, or a constant has no contents.
    pub fn of_graph(
        graph: &Graph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<ExternalTensors> {
        let mut external = ExternalTensors::default();
        external.set_graph(graph, inputs, source_info)?;
        Ok(external)
    }

    fn set_graph(
        &mut self,
        graph: &Graph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        self.clear();
        for (i, (&input, value)) in graph.inputs().iter().zip(inputs).enumerate() {
            match value {
                // Its own error comes first: a poisoned tensor has no storage to compare.
                Value::Tensor(t) => drop(t.ok()?),
                other if graph.tensor_type(input).is_some() => {
                    return Err(RunError::Input {
                        input: input_name(graph, source_info, i),
                        what: "the kind".into(),
                        expected: "a tensor".into(),
                        found: other.kind().to_string(),
                        why: None,
                    }
                    .into());
                }
                _ => {}
            }
        }
        self.inputs.extend_from_slice(inputs);
        self.given = inputs.len();
        for constant in graph.consts() {
            let missing = || RunError::Constant { name: const_name(graph, constant) };
            self.consts.push(constant.source_as::<Captured>().ok_or_else(missing)?.0.clone());
        }
        Ok(())
    }

    /// The external tensors of a functional graph.
    ///
    /// # Errors
    /// Inputs share mutated memory otherwise than in the trace, or a constant has no contents.
    pub fn of_program(
        program: &FunctionalGraph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<ExternalTensors> {
        let mut external = ExternalTensors::default();
        external.set_program(program, inputs, source_info)?;
        Ok(external)
    }

    /// Takes the external tensors of another run, as [`ExternalTensors::of_program`].
    ///
    /// # Errors
    /// As [`ExternalTensors::of_program`].
    pub fn set_program(
        &mut self,
        program: &FunctionalGraph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        self.set_graph(&program.graph, inputs, source_info)?;
        for m in &program.memories {
            let tensor = |i: &usize| inputs.get(*i).and_then(|v| v.tensors().next());
            let declared = |i: &usize| {
                let ty = program.graph.tensor_type(*program.graph.inputs().get(*i)?)?;
                ty.offset.as_i64()
            };
            // An empty tensor may begin anywhere.
            let has_elements = |i: &&usize| tensor(i).is_some_and(|t| !is_empty(t));
            let found = m.inputs.first().and_then(|first| {
                let from_first = |i| Some(declared(i)? - declared(first)?);
                let anchor = m.inputs.iter().find(has_elements).unwrap_or(first);
                let from = if anchor == first { 0 } else { from_first(anchor)? };
                Some((tensor(anchor)?, m.from_first - from))
            });
            let (tensor, from) =
                found.ok_or_else(|| Error::value("shared memory belongs to no input"))?;
            let start = tensor.meta().offset() + from;
            let memory = || tensor.as_strided([m.len], [1i64], Some(start));
            let memory = mode::with_builtin_kernels(memory);
            self.inputs.push(Value::Tensor(memory.ok()?.clone()));
        }
        self.check_sharing(program, source_info)
    }

    /// Adds the tensors into which the run writes its outputs. It borrows them exclusively. The
    /// caller has checked that none shares memory with another tensor of the run.
    pub fn set_outputs(&mut self, outputs: &[Tensor]) {
        self.outputs.clear();
        self.outputs.extend_from_slice(outputs);
    }

    /// The tensors of the caller for outputs.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// The name of a graph input or constant, for messages.
    pub fn name(
        &self,
        graph: &Graph,
        source_info: &SourceInfo<'_>,
        which: ExternalTensor,
    ) -> String {
        match which {
            ExternalTensor::Input(i) => input_name(graph, source_info, i),
            ExternalTensor::Const(i) => {
                graph.consts().get(i).map(|c| const_name(graph, c)).unwrap_or_default()
            }
            ExternalTensor::SharedMemory(_) => "memory that inputs share".to_owned(),
        }
    }

    /// Refuses inputs and constants whose gradients a run would not pass on: one that records no
    /// derivatives.
    fn refuse_gradients(&self, graph: &Graph, source_info: &SourceInfo<'_>) -> Result<()> {
        if !is_grad_enabled() {
            return Ok(());
        }
        let mut given = self.inputs.iter().take(self.given);
        let input = given.position(|v| v.tensors().any(Tensor::requires_grad));
        let constant = self.consts.iter().position(Tensor::requires_grad);
        let tensor = match (input, constant) {
            (Some(i), _) => {
                format!("input `{}`", self.name(graph, source_info, ExternalTensor::Input(i)))
            }
            (_, Some(i)) => {
                let name = self.name(graph, source_info, ExternalTensor::Const(i));
                format!("the captured tensor {} (`{name}` of the graph)", self.consts[i].meta())
            }
            _ => return Ok(()),
        };
        Err(RunError::RequiresGrad { tensor }.into())
    }

    /// Drops the tensors of the run, and keeps the lists.
    pub fn clear(&mut self) {
        self.inputs.clear();
        self.outputs.clear();
        self.consts.clear();
        self.by_storage.clear();
        self.given = 0;
    }

    /// Borrows all external tensors for a run: those in `written` exclusively, the others for
    /// reading. Their handles carry the rights of the run afterwards. Every run does so before its
    /// first operator.
    ///
    /// # Errors
    /// As [`RunBorrow::take`]. An input or a constant requires a gradient, and calls on this thread
    /// record derivatives: the results of a run have no history.
    pub fn borrow(
        &mut self,
        graph: &Graph,
        written: &FxHashSet<ExternalTensor>,
        source_info: &SourceInfo<'_>,
        borrow: &mut RunBorrow,
    ) -> Result<()> {
        self.refuse_gradients(graph, source_info)?;
        self.describe(graph, source_info);
        let ExternalTensors { inputs, given, consts, outputs, descriptions, .. } = self;
        let given = *given;
        borrow.take(&mut Handles { inputs, given, consts, outputs, descriptions, written })
    }

    /// Makes the descriptions, unless those of an earlier run serve.
    fn describe(&mut self, graph: &Graph, source_info: &SourceInfo<'_>) {
        let SourceInfo { input_names, call_site: loc } = *source_info;
        let (inputs, consts) = (self.inputs.len(), self.consts.len());
        let count = inputs + consts + self.outputs.len();
        // A run without outputs may have those of a run with outputs.
        if self.descriptions.len() >= count
            && self.described == (inputs, consts)
            && self.descriptions.first().is_none_or(|d| d.loc == loc)
            && self.input_names == input_names
        {
            return;
        }
        self.described = (inputs, consts);
        self.input_names = input_names.to_vec();
        let name = |i: usize| match i.checked_sub(inputs + consts) {
            Some(output) => output.to_string(),
            None => match i.checked_sub(inputs) {
                Some(i) => self.name(graph, source_info, ExternalTensor::Const(i)),
                None if i < self.given => input_name(graph, source_info, i),
                None => self.name(graph, source_info, ExternalTensor::SharedMemory(i - self.given)),
            },
        };
        let role = |i: usize| if i < inputs + consts { "input" } else { "output" };
        let describe = |i: usize| Arc::new(RunInput { role: role(i), name: name(i).into(), loc });
        self.descriptions = (0..count).map(describe).collect();
    }

    /// The inputs of the graph: the program's inputs, then the shared memories.
    pub fn graph_inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// The contents of the graph's constants, in order.
    pub fn consts(&self) -> &[Tensor] {
        &self.consts
    }

    fn input(&self, i: usize) -> Option<&Tensor> {
        tensor_of(self.inputs.get(..self.given)?.get(i)?)
    }

    /// The storages of the inputs and constants.
    pub fn storages(&self) -> FxHashSet<StorageId> {
        let inputs = (0..self.given).filter_map(|i| self.input(i));
        inputs.chain(&self.consts).filter_map(storage_id).collect()
    }

    /// An external tensor.
    ///
    /// # Errors
    /// There is no such tensor.
    pub fn get(&self, which: ExternalTensor) -> Result<&Tensor> {
        let found = match which {
            ExternalTensor::Input(i) => self.input(i),
            ExternalTensor::Const(i) => self.consts.get(i),
            ExternalTensor::SharedMemory(i) => self.inputs.get(self.given + i).and_then(tensor_of),
        };
        found.ok_or_else(|| Error::value("the program mutates a value that is not a tensor"))
    }

    /// Checks that inputs which share memory are as far apart in it as their types say.
    fn check_offsets(
        &self,
        program: &FunctionalGraph,
        inputs: &[usize],
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        let graph = &program.graph;
        let placed = |i: usize| {
            let declared = graph.tensor_type(*graph.inputs().get(i)?)?.offset.as_i64()?;
            let t = self.input(i).filter(|t| !is_empty(t))?;
            let found = t.meta().offset().as_i64()?;
            Some((i, storage_id(t)?, i128::from(declared), i128::from(found)))
        };
        let mut placed = inputs.iter().filter_map(|i| placed(*i));
        let Some((first, storage, declared, found)) = placed.next() else { return Ok(()) };
        for (other, of, declared_other, found_other) in placed {
            let (expected, found) = (declared_other - declared, found_other - found);
            if of == storage && expected != found {
                let [first, second] = [first, other].map(|i| input_name(graph, source_info, i));
                return Err(RunError::SharedOffsets { first, second, expected, found }.into());
            }
        }
        Ok(())
    }

    /// Checks the aliasing assumptions of the functional graph: an external tensor shares storage
    /// with a mutated one if and only if it did in the trace. The cost is that of sorting the
    /// tensors, if any is mutated.
    fn check_sharing(
        &mut self,
        program: &FunctionalGraph,
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        if program.absolute_offsets {
            for (i, v) in program.graph.inputs().iter().enumerate() {
                let promised = program.graph.tensor_type(*v).map(|ty| ty.offset);
                if let (Some(Expr::Int(promised)), Some(t)) = (promised, self.input(i))
                    && t.meta().offset().as_i64() != Some(promised)
                {
                    return Err(RunError::AbsoluteOffset.into());
                }
            }
        }
        for memory in &program.memories {
            self.check_offsets(program, &memory.inputs, source_info)?;
        }
        if program.mutations.is_empty() {
            return Ok(());
        }
        let mut by_storage = std::mem::take(&mut self.by_storage);
        let inputs = (0..self.given).map(ExternalTensor::Input);
        let tensors = inputs.chain((0..self.consts.len()).map(ExternalTensor::Const));
        let storage = |which: ExternalTensor| Some((storage_id(self.get(which).ok()?)?, which));
        by_storage.extend(tensors.filter_map(storage));
        // Those of one storage are in the order of the tensors.
        by_storage.sort_unstable();
        self.by_storage = by_storage;
        let name = |which: ExternalTensor| self.name(&program.graph, source_info, which);
        let mut last = None;
        for target in program.mutations.iter().map(|m| m.target) {
            // A tensor is often mutated again and again.
            if last.replace(target) == Some(target) {
                continue;
            }
            // A poisoned tensor has no storage. Its first use in the run reports the poison.
            let Some(id) = storage_id(self.get(target)?) else { continue };
            let members: SmallVec<[ExternalTensor; 4]> = match target {
                ExternalTensor::SharedMemory(k) => {
                    let inputs = program.memories.get(k).into_iter().flat_map(|m| &m.inputs);
                    inputs.map(|i| ExternalTensor::Input(*i)).collect()
                }
                one => [one].into_iter().collect(),
            };
            let first = self.by_storage.partition_point(|(there, _)| *there < id);
            let here = self.by_storage.get(first..).unwrap_or_default().iter();
            let mut here = here.take_while(|(there, _)| *there == id).map(|(_, which)| which);
            let is_here = |m: &&ExternalTensor| {
                self.get(**m).ok().and_then(storage_id).is_none_or(|there| there == id)
            };
            let written = || members.first().map(|m| name(*m)).unwrap_or_default();
            if let Some(other) = members.iter().find(|m| !is_here(m)) {
                let second = name(*other);
                return Err(RunError::SeparateInputs { first: written(), second }.into());
            }
            if let Some(other) = here.find(|t| !members.contains(t)) {
                let other = name(*other);
                return Err(RunError::SharedInputs { written: written(), other }.into());
            }
        }
        Ok(())
    }
}

/// The handles of the external tensors of a run that borrows them.
struct Handles<'a> {
    inputs: &'a mut [Value],
    given: usize,
    consts: &'a mut [Tensor],
    outputs: &'a mut [Tensor],
    descriptions: &'a [Arc<RunInput>],
    written: &'a FxHashSet<ExternalTensor>,
}

impl RunTensors for Handles<'_> {
    fn count(&self) -> usize {
        self.inputs.len() + self.consts.len() + self.outputs.len()
    }

    fn tensor(&self, i: usize) -> Option<&Tensor> {
        let Some(i) = i.checked_sub(self.inputs.len()) else {
            return tensor_of(self.inputs.get(i)?);
        };
        match i.checked_sub(self.consts.len()) {
            Some(i) => self.outputs.get(i),
            None => self.consts.get(i),
        }
    }

    fn tensor_mut(&mut self, i: usize) -> Option<&mut Tensor> {
        let Some(i) = i.checked_sub(self.inputs.len()) else {
            return match self.inputs.get_mut(i) {
                Some(Value::Tensor(t)) => Some(t),
                _ => None,
            };
        };
        match i.checked_sub(self.consts.len()) {
            Some(i) => self.outputs.get_mut(i),
            None => self.consts.get_mut(i),
        }
    }

    fn access(&self, i: usize) -> Access {
        if i >= self.inputs.len() + self.consts.len() {
            return Access::Write;
        }
        let which = if i < self.given {
            ExternalTensor::Input(i)
        } else if i < self.inputs.len() {
            ExternalTensor::SharedMemory(i - self.given)
        } else {
            ExternalTensor::Const(i - self.inputs.len())
        };
        if self.written.contains(&which) { Access::Write } else { Access::Read }
    }

    fn input(&self, i: usize) -> Arc<RunInput> {
        self.descriptions[i].clone()
    }
}

fn tensor_of(value: &Value) -> Option<&Tensor> {
    match value {
        Value::Tensor(t) => Some(t),
        _ => None,
    }
}

/// The name of an input, for messages.
fn input_name(graph: &Graph, source_info: &SourceInfo<'_>, i: usize) -> String {
    match (source_info.input_names.get(i), graph.inputs().get(i)) {
        (Some(name), _) if !name.is_empty() => name.clone(),
        (_, Some(v)) => graph.value_name(*v).to_string(),
        _ => "memory".to_owned(),
    }
}

fn const_name(graph: &Graph, constant: &Const) -> String {
    graph.value_name(constant.value()).to_string()
}

fn is_empty(t: &Tensor) -> bool {
    t.numel().as_i64() == Some(0)
}

/// The identity of a storage: its address, valid while the storage is alive.
pub type StorageId = usize;

/// The storage of a tensor; `None` if the tensor is poisoned.
pub fn storage_id(t: &Tensor) -> Option<StorageId> {
    t.own_storage().ok().map(|s| Arc::as_ptr(s) as StorageId)
}
