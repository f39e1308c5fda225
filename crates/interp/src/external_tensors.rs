//! External tensors of a run: inputs, constants, and memory that inputs share.

use crate::captured::Captured;
use crate::source_info::SourceInfo;
use maquette_ir::Loc;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph, SharedMemory};
use maquette_ir::graph::{Const, Graph, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::{Access, Error, Result, RunBorrow, RunError, RunTensor, Tensor, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// The external tensors of one run.
pub struct ExternalTensors {
    inputs: Vec<Value>,
    consts: Vec<Tensor>,
    /// Flat views of the memory that several inputs share.
    memories: Vec<Tensor>,
    /// Names of the inputs, for messages.
    names: Vec<Arc<str>>,
}

impl ExternalTensors {
    /// The external tensors of an original graph.
    pub(crate) fn of_graph(
        graph: &Graph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<ExternalTensors> {
        let missing = |name: String| Error::from(RunError::Constant { name });
        let captured = |c: &Const| {
            c.source_as::<Captured>()
                .map(|c| c.0.clone())
                .ok_or_else(|| missing(graph.value_name(c.value()).to_string()))
        };
        let name = |(i, v): (usize, &ValueId)| match source_info.input_names.get(i) {
            Some(name) if !name.is_empty() => name.as_str().into(),
            _ => graph.value_name(*v).to_string().into(),
        };
        let names: Vec<Arc<str>> = graph.inputs().iter().enumerate().map(name).collect();
        for ((&input, value), name) in graph.inputs().iter().zip(inputs).zip(&names) {
            match value {
                // Its own error comes first: a poisoned tensor has no storage to compare.
                Value::Tensor(t) => drop(t.ok()?),
                other if graph.tensor_type(input).is_some() => {
                    return Err(RunError::Input {
                        input: name.to_string(),
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
        Ok(ExternalTensors {
            inputs: inputs.to_vec(),
            consts: graph.consts().iter().map(captured).collect::<Result<_>>()?,
            memories: Vec::new(),
            names,
        })
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
        let memory = |m: &SharedMemory| -> Result<Tensor> {
            let first =
                m.inputs.first().and_then(|&i| inputs.get(i)).and_then(|v| v.tensors().next());
            let first = first.ok_or_else(|| Error::value("shared memory belongs to no input"))?;
            Ok(first
                .as_strided([m.len], [1i64], Some(first.storage_offset() + m.from_first))
                .ok()?
                .clone())
        };
        let external = ExternalTensors {
            memories: program.memories.iter().map(memory).collect::<Result<_>>()?,
            ..ExternalTensors::of_graph(&program.graph, inputs, source_info)?
        };
        external.check_sharing(program)?;
        Ok(external)
    }

    /// Borrows all external tensors for a run: those in `written` exclusively, the others for
    /// reading. Their handles carry the rights of the run afterwards.
    ///
    /// # Errors
    /// As [`RunBorrow::take`].
    pub fn borrow(
        &mut self,
        graph: &Graph,
        written: &FxHashSet<ExternalTensor>,
        run: Loc,
    ) -> Result<RunBorrow> {
        let ExternalTensors { inputs, consts, memories, names } = self;
        let access = |which: ExternalTensor| match written.contains(&which) {
            true => Access::Write,
            false => Access::Read,
        };
        let name_of = |i: usize| names.get(i).cloned().unwrap_or_else(|| "memory".into());
        let inputs = inputs.iter_mut().enumerate().filter_map(|(i, v)| match v {
            Value::Tensor(tensor) => {
                let access = access(ExternalTensor::Input(i));
                Some(RunTensor { tensor, access, name: name_of(i) })
            }
            _ => None,
        });
        let memories = memories.iter_mut().enumerate().map(|(i, tensor)| {
            let access = access(ExternalTensor::SharedMemory(i));
            RunTensor { tensor, access, name: "memory that inputs share".into() }
        });
        let consts = consts.iter_mut().zip(graph.consts()).enumerate().map(|(i, (tensor, c))| {
            let access = access(ExternalTensor::Const(i));
            RunTensor { tensor, access, name: graph.value_name(c.value()).to_string().into() }
        });
        RunBorrow::take(inputs.chain(memories).chain(consts).collect(), run)
    }

    /// The inputs of the graph: the program's inputs, then the shared memories.
    pub fn graph_inputs(&self) -> Vec<Value> {
        self.inputs
            .iter()
            .cloned()
            .chain(self.memories.iter().cloned().map(Value::Tensor))
            .collect()
    }

    /// The contents of the graph's constants, in order.
    pub fn consts(&self) -> &[Tensor] {
        &self.consts
    }

    fn input(&self, i: usize) -> Option<&Tensor> {
        match self.inputs.get(i) {
            Some(Value::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// The storages of the inputs and constants.
    pub(crate) fn storages(&self) -> FxHashSet<StorageId> {
        let inputs = (0..self.inputs.len()).filter_map(|i| self.input(i));
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
            ExternalTensor::SharedMemory(i) => self.memories.get(i),
        };
        found.ok_or_else(|| Error::value("the program mutates a value that is not a tensor"))
    }

    fn name(&self, graph: &Graph, which: ExternalTensor) -> String {
        match which {
            ExternalTensor::Input(i) => self.names.get(i).map(ToString::to_string),
            ExternalTensor::Const(i) => {
                graph.consts().get(i).map(|c| graph.value_name(c.value()).to_string())
            }
            ExternalTensor::SharedMemory(_) => None,
        }
        .unwrap_or_default()
    }

    /// Checks the aliasing assumptions of the functional graph: an external tensor shares storage
    /// with a mutated one if and only if it did in the trace. The cost is linear in the number of
    /// tensors.
    fn check_sharing(&self, program: &FunctionalGraph) -> Result<()> {
        if program.absolute_offsets {
            for (i, v) in program.graph.inputs().iter().enumerate() {
                let promised = program.graph.tensor_type(*v).map(|ty| ty.offset);
                if let (Some(Expr::Int(promised)), Some(t)) = (promised, self.input(i))
                    && t.storage_offset().as_i64() != Some(promised)
                {
                    return Err(RunError::AbsoluteOffset.into());
                }
            }
        }
        let mut by_storage: FxHashMap<StorageId, Vec<ExternalTensor>> = FxHashMap::default();
        let inputs = (0..self.inputs.len()).map(ExternalTensor::Input);
        for which in inputs.chain((0..self.consts.len()).map(ExternalTensor::Const)) {
            if let Some(id) = self.get(which).ok().and_then(storage_id) {
                by_storage.entry(id).or_default().push(which);
            }
        }
        let mut checked: FxHashSet<ExternalTensor> = FxHashSet::default();
        for target in program.mutations.iter().map(|m| m.target).filter(|t| checked.insert(*t)) {
            // A poisoned tensor has no storage. Its first use in the run reports the poison.
            let Some(id) = storage_id(self.get(target)?) else { continue };
            let members: SmallVec<[ExternalTensor; 1]> = match target {
                ExternalTensor::SharedMemory(k) => {
                    let memory = program.memories.get(k);
                    memory
                        .iter()
                        .flat_map(|m| &m.inputs)
                        .map(|i| ExternalTensor::Input(*i))
                        .collect()
                }
                one => [one].into_iter().collect(),
            };
            let is_member: FxHashSet<ExternalTensor> = members.iter().copied().collect();
            let here = by_storage.get(&id).map(Vec::as_slice).unwrap_or_default();
            let is_here = |m: &&ExternalTensor| {
                self.get(**m).ok().and_then(storage_id).is_none_or(|there| there == id)
            };
            let written = || {
                let first = members.first().map(|m| self.name(&program.graph, *m));
                first.unwrap_or_default()
            };
            if let Some(other) = members.iter().find(|m| !is_here(m)) {
                let second = self.name(&program.graph, *other);
                return Err(RunError::SeparateInputs { first: written(), second }.into());
            }
            if let Some(other) = here.iter().find(|t| !is_member.contains(t)) {
                let other = self.name(&program.graph, *other);
                return Err(RunError::SharedInputs { written: written(), other }.into());
            }
        }
        Ok(())
    }
}

/// The identity of a storage: its address, valid while the storage is alive.
pub(crate) type StorageId = usize;

/// The storage of a tensor; `None` if the tensor is poisoned.
pub(crate) fn storage_id(t: &Tensor) -> Option<StorageId> {
    t.storage().ok().map(|s| Arc::as_ptr(s) as StorageId)
}
