//! Running a functional program so that the caller cannot tell it from the one that mutates.

use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::typing::contiguous_strides;
use maquette_ops::{Error, Result, RunError, Tensor, Value};
use maquette_rewrite::{ExecutionMode, ExternalTensor, FunctionalGraph, Output, SharedMemory};
use maquette_trace::{Captured, SourceInfo, copy_for_write, copy_with_strides};

/// Runs a functional program: inputs and constants are left as the program would leave them, and
/// outputs are new memory or views of the inputs' as they would be.
///
/// # Errors
/// As [`maquette_trace::run_functional`]; two inputs share memory that the program writes to.
#[track_caller]
pub fn run_functional(program: &FunctionalGraph, inputs: &[Value]) -> Result<Vec<Value>> {
    run_functional_at(program, inputs, &SourceInfo::of_caller())
}

/// As [`run_functional`], for messages that know of the program.
pub(crate) fn run_functional_at(
    program: &FunctionalGraph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    let external = ExternalTensors::new(program, inputs, source_info)?;
    external.check_sharing(program)?;
    let mut results = maquette_trace::run_functional_at(
        &program.graph,
        &external.graph_inputs(inputs),
        source_info,
    )?;
    // What is written must not change what is still to be read or given back.
    for i in 0..results.len() {
        if let Value::Tensor(t) = &results[i]
            && (external.any_shares_storage(t)
                || results[..i].iter().flat_map(Value::tensors).any(|u| u.shares_storage(t)))
        {
            results[i] = Value::Tensor(copy_for_write(t)?);
        }
    }
    let builder = OutputBuilder { results: &results, external: &external, planned: &[] };
    for m in &program.mutations {
        let target = builder.view_at(external.get(m.target)?, m.layout)?;
        target.copy_(tensor(builder.result(m.result)?)?).ok()?;
    }
    let mut state = OutputState::default();
    program.outputs.iter().map(|o| builder.output(o, &mut state)).collect()
}

/// Runs a functional program in the memory that its plan gives: nothing is copied but what the plan
/// copies. Returns the outputs, and how many elements were written.
///
/// # Errors
/// As [`run_functional`]. Where a run fails, memory that the program first writes behind the
/// assertion or effect that failed is as it was; other memory that it writes may hold what was made
/// for it.
#[track_caller]
pub fn run_planned(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    inputs: &[Value],
) -> Result<(Vec<Value>, Traffic)> {
    let external = ExternalTensors::new(program, inputs, &SourceInfo::of_caller())?;
    external.check_sharing(program)?;
    let planned =
        maquette_trace::run_planned(&program.graph, plan, &external.graph_inputs(inputs))?;
    let builder =
        OutputBuilder { results: &planned.results, external: &external, planned: &planned.outputs };
    let mut state = OutputState::default();
    let outputs =
        program.outputs.iter().map(|o| builder.output(o, &mut state)).collect::<Result<_>>()?;
    Ok((outputs, planned.traffic))
}

/// Runs a program in the memory that was found for it. Returns the outputs, and how many elements
/// were written; that is not counted where the program runs as it is.
///
/// # Errors
/// As [`run_planned`], or [`maquette_trace::run_graph`].
#[track_caller]
pub fn run_in_place(
    program: &ExecutionMode,
    inputs: &[Value],
) -> Result<(Vec<Value>, Option<Traffic>)> {
    match program {
        ExecutionMode::Planned(functional, plan) => {
            run_planned(functional, plan, inputs).map(|(outputs, traffic)| (outputs, Some(traffic)))
        }
        ExecutionMode::Original(graph) => Ok((maquette_trace::run_graph(graph, inputs)?, None)),
    }
}

/// The memory of outputs.
#[derive(Default)]
struct OutputState {
    /// By number, what several outputs see.
    shared: Vec<(usize, Tensor)>,
    /// Results that are outputs already.
    returned: Vec<usize>,
    /// How many outputs that are no list were handed over.
    leaf_count: usize,
}

/// The tensors that a program was given.
struct ExternalTensors {
    inputs: Vec<Option<Tensor>>,
    consts: Vec<Tensor>,
    memories: Vec<Tensor>,
    names: Vec<String>,
}

impl ExternalTensors {
    fn new(
        program: &FunctionalGraph,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<ExternalTensors> {
        let graph = &program.graph;
        let missing = |name: String| Error::from(RunError::Constant { name });
        let captured = |c: &maquette_ir::graph::Const| {
            c.source_as::<Captured>()
                .map(|c| c.0.clone())
                .ok_or_else(|| missing(graph.value_name(c.value()).to_string()))
        };
        let memory = |m: &SharedMemory| -> Result<Tensor> {
            let first =
                m.inputs.first().and_then(|&i| inputs.get(i)).and_then(|v| v.tensors().next());
            let first =
                first.ok_or_else(|| Error::value("memory that inputs share is of no input"))?;
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
            names: match source_info.input_names {
                [] => graph.inputs().iter().map(|v| graph.value_name(*v).to_string()).collect(),
                names => names.to_vec(),
            },
        })
    }

    /// What the graph takes.
    fn graph_inputs(&self, inputs: &[Value]) -> Vec<Value> {
        inputs.iter().cloned().chain(self.memories.iter().cloned().map(Value::Tensor)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().flatten().chain(&self.consts)
    }

    fn any_shares_storage(&self, t: &Tensor) -> bool {
        self.all().any(|u| u.shares_storage(t))
    }

    fn get(&self, which: ExternalTensor) -> Result<&Tensor> {
        let found = match which {
            ExternalTensor::Input(i) => self.inputs.get(i).and_then(Option::as_ref),
            ExternalTensor::Const(i) => self.consts.get(i),
            ExternalTensor::SharedMemory(i) => self.memories.get(i),
        };
        found.ok_or_else(|| Error::value("the program writes to something that is no tensor"))
    }

    /// Inputs share memory where the program was made for it, and nowhere else that it writes.
    fn check_sharing(&self, program: &FunctionalGraph) -> Result<()> {
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
            if let Some((_, other, _)) =
                all.iter().find(|(which, _, t)| t.shares_storage(target) != is_target(*which))
            {
                return Err(RunError::SharedInputs { written, other: other.clone() }.into());
            }
        }
        Ok(())
    }
}

fn tensor(v: &Value) -> Result<&Tensor> {
    match v {
        Value::Tensor(t) => Ok(t),
        other => Err(Error::value(format!("expected a tensor, found {}", other.kind()))),
    }
}

struct OutputBuilder<'a> {
    results: &'a [Value],
    external: &'a ExternalTensors,
    /// Outputs that have memory of their own already, one for each that is no list.
    planned: &'a [Option<Tensor>],
}

impl OutputBuilder<'_> {
    fn result(&self, at: usize) -> Result<&Value> {
        self.results.get(at).ok_or_else(|| {
            Error::value("the graph returns fewer values than its program has results")
        })
    }

    /// Offset, sizes and strides.
    fn layout(&self, at: usize) -> Result<(i64, Vec<i64>, Vec<i64>)> {
        let numbers: Vec<i64> = match self.result(at)? {
            Value::Ints(l) => l.iter().filter_map(|i| i.as_i64()).collect(),
            _ => Vec::new(),
        };
        let Some((&offset, rest)) = numbers.split_first() else {
            return Err(Error::value("a place is no list of integers"));
        };
        let (sizes, strides) = rest.split_at(rest.len() / 2);
        Ok((offset, sizes.to_vec(), strides.to_vec()))
    }

    /// Elements of a tensor's storage, counted from its first.
    fn view_at(&self, t: &Tensor, place: Option<usize>) -> Result<Tensor> {
        let Some(place) = place else { return Ok(t.clone()) };
        let (offset, sizes, strides) = self.layout(place)?;
        let start = t.storage_offset() + offset;
        Ok(t.as_strided(sizes, strides, Some(start)).ok()?.clone())
    }

    fn output(&self, o: &Output, state: &mut OutputState) -> Result<Value> {
        let own = if let Output::List(_) = o {
            None
        } else {
            self.planned.get(state.leaf_count).and_then(Option::as_ref)
        };
        state.leaf_count += usize::from(!matches!(o, Output::List(_)));
        Ok(match o {
            Output::Result { .. } if let Some(t) = own => Value::Tensor(t.clone()),
            Output::Shared { layout: place, .. } if let Some(t) = own => {
                let (offset, sizes, strides) = self.layout(*place)?;
                Value::Tensor(t.as_strided(sizes, strides, Some(offset.into())).ok()?.clone())
            }
            Output::Result { result, layout: place } => match self.result(*result)? {
                Value::Tensor(t) => {
                    let (offset, strides) = match place {
                        Some(place) => {
                            let (offset, _, strides) = self.layout(*place)?;
                            (offset, strides.into_iter().map(Into::into).collect())
                        }
                        None => (0, contiguous_strides(t.sizes()).to_vec()),
                    };
                    let strides: Vec<SymInt> = strides;
                    let same = t.storage_offset().as_i64() == Some(offset)
                        && t.strides().iter().zip(&strides).all(|(a, b)| a.as_i64() == b.as_i64());
                    let given = state.returned.contains(result);
                    state.returned.push(*result);
                    Value::Tensor(match place {
                        _ if same && !given => t.clone(),
                        Some(place) if offset != 0 => {
                            let (offset, sizes, strides) = self.layout(*place)?;
                            self.allocate_result(*result, *place)?
                                .as_strided(sizes, strides, Some(offset.into()))
                                .ok()?
                                .clone()
                        }
                        _ => copy_with_strides(t, &strides)?,
                    })
                }
                other => other.clone(),
            },
            Output::Alias { of, layout: place } => {
                Value::Tensor(self.view_at(self.external.get(*of)?, *place)?)
            }
            Output::Shared { memory: number, result, storage_layout: whole, layout: place } => {
                let t = match state.shared.iter().find(|(at, _)| at == number) {
                    Some((_, t)) => t.clone(),
                    None => {
                        let t = self.allocate_result(*result, *whole)?;
                        state.shared.push((*number, t.clone()));
                        t
                    }
                };
                let (offset, sizes, strides) = self.layout(*place)?;
                Value::Tensor(t.as_strided(sizes, strides, Some(offset.into())).ok()?.clone())
            }
            Output::List(l) => {
                Value::List(l.iter().map(|o| self.output(o, state)).collect::<Result<_>>()?)
            }
        })
    }

    /// New memory that holds a result's elements at their places.
    fn allocate_result(&self, result: usize, whole: usize) -> Result<Tensor> {
        let (offset, sizes, strides) = self.layout(whole)?;
        let strides: Vec<SymInt> = strides.iter().map(|s| (*s).into()).collect();
        let rows = copy_with_strides(tensor(self.result(result)?)?, &strides)?;
        if offset == 0 || sizes.contains(&0) {
            return Ok(rows);
        }
        // the same behind a margin
        let extent = 1 + sizes
            .iter()
            .zip(&strides)
            .map(|(n, s)| (n - 1) * s.as_i64().unwrap_or(0))
            .sum::<i64>();
        let flat = Tensor::zeros([offset + extent], rows.dtype());
        flat.slice(0, offset..offset + extent)
            .copy_(&rows.as_strided([extent], [1i64], Some(0.into())))
            .ok()?;
        Ok(flat)
    }
}
