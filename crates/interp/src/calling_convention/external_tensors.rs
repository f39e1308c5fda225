//! External tensors of a functional graph: inputs, constants, and memory that inputs share.

use crate::captured::Captured;
use crate::source_info::SourceInfo;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph, SharedMemory};
use maquette_ir::graph::Const;
use maquette_ir::sym::Expr;
use maquette_ops::{Error, Result, RunError, Tensor, Value};

/// The external tensors of one run.
pub(super) struct ExternalTensors {
    /// By input; `None` for a number.
    inputs: Vec<Option<Tensor>>,
    consts: Vec<Tensor>,
    /// Flat views of the memory that several inputs share.
    memories: Vec<Tensor>,
    /// Names of the inputs, for messages.
    names: Vec<String>,
}

impl ExternalTensors {
    pub(super) fn new(
        program: &FunctionalGraph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<ExternalTensors> {
        let graph = &program.graph;
        let missing = |name: String| Error::from(RunError::Constant { name });
        let captured = |c: &Const| {
            c.source_as::<Captured>()
                .map(|c| c.0.clone())
                .ok_or_else(|| missing(graph.value_name(c.value()).to_string()))
        };
        let names: Vec<String> = match source_info.input_names {
            [] => graph.inputs().iter().map(|v| graph.value_name(*v).to_string()).collect(),
            names => names.to_vec(),
        };
        for ((i, &input), value) in graph.inputs().iter().enumerate().zip(inputs) {
            match value {
                // Its own error comes first: a poisoned tensor has no storage to compare.
                Value::Tensor(t) => drop(t.ok()?),
                other if graph.tensor_type(input).is_some() => {
                    return Err(RunError::Input {
                        input: names.get(i).cloned().unwrap_or_default(),
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
        let memory = |m: &SharedMemory| -> Result<Tensor> {
            let first =
                m.inputs.first().and_then(|&i| inputs.get(i)).and_then(|v| v.tensors().next());
            let first = first.ok_or_else(|| Error::value("shared memory belongs to no input"))?;
            Ok(first
                .as_strided([m.len], [1i64], Some(first.storage_offset() + m.from_first))
                .ok()?
                .clone())
        };
        Ok(ExternalTensors {
            memories: program.memories.iter().map(memory).collect::<Result<_>>()?,
            inputs: inputs
                .iter()
                .map(|v| if let Value::Tensor(t) = v { Some(t.clone()) } else { None })
                .collect(),
            consts: graph.consts().iter().map(captured).collect::<Result<_>>()?,
            names,
        })
    }

    /// The inputs of the functional graph: the program's inputs, then the shared memories.
    pub(super) fn graph_inputs(&self, inputs: &[Value]) -> Vec<Value> {
        inputs.iter().cloned().chain(self.memories.iter().cloned().map(Value::Tensor)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().flatten().chain(&self.consts)
    }

    pub(super) fn any_shares_storage(&self, t: &Tensor) -> bool {
        self.all().any(|u| u.shares_storage(t))
    }

    pub(super) fn get(&self, which: ExternalTensor) -> Result<&Tensor> {
        let found = match which {
            ExternalTensor::Input(i) => self.inputs.get(i).and_then(Option::as_ref),
            ExternalTensor::Const(i) => self.consts.get(i),
            ExternalTensor::SharedMemory(i) => self.memories.get(i),
        };
        found.ok_or_else(|| Error::value("the program mutates a value that is not a tensor"))
    }

    /// Checks the aliasing assumptions of the functional graph: an external tensor shares storage
    /// with a mutated one if and only if it did in the trace.
    pub(super) fn check_sharing(&self, program: &FunctionalGraph) -> Result<()> {
        if program.absolute_offsets {
            for (v, t) in program.graph.inputs().iter().zip(&self.inputs) {
                let promised = program.graph.tensor_type(*v).map(|ty| ty.offset);
                if let (Some(Expr::Int(promised)), Some(t)) = (promised, t)
                    && t.storage_offset().as_i64() != Some(promised)
                {
                    return Err(RunError::AbsoluteOffset.into());
                }
            }
        }
        let inputs = self.inputs.iter().enumerate().filter_map(|(i, t)| {
            Some((
                ExternalTensor::Input(i),
                self.names.get(i).cloned().unwrap_or_default(),
                t.as_ref()?,
            ))
        });
        let names =
            program.graph.consts().iter().map(|c| program.graph.value_name(c.value()).to_string());
        let consts = self
            .consts
            .iter()
            .zip(names)
            .enumerate()
            .map(|(i, (t, name))| (ExternalTensor::Const(i), name, t));
        let all: Vec<(ExternalTensor, String, &Tensor)> = inputs.chain(consts).collect();
        for m in &program.mutations {
            let target = self.get(m.target)?;
            let is_target = |which: ExternalTensor| match (m.target, which) {
                (ExternalTensor::SharedMemory(k), ExternalTensor::Input(i)) => {
                    program.memories.get(k).is_some_and(|m| m.inputs.contains(&i))
                }
                (target, which) => target == which,
            };
            let written = all
                .iter()
                .find(|(which, ..)| is_target(*which))
                .map(|(_, name, _)| name.clone())
                .unwrap_or_default();
            let differs =
                |(which, _, t): &&(_, _, &Tensor)| t.shares_storage(target) != is_target(*which);
            if let Some((which, other, _)) = all.iter().find(differs) {
                let other = other.clone();
                return Err(match is_target(*which) {
                    true => RunError::SeparateInputs { first: written, second: other }.into(),
                    false => RunError::SharedInputs { written, other }.into(),
                });
            }
        }
        Ok(())
    }
}
