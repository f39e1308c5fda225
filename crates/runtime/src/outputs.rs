//! Outputs that the caller gives: the tensors into which a run writes its results.
//!
//! A result that has memory of its own is written where the caller wants it, if the plan puts it
//! into a buffer that holds nothing else, and the given tensor has the result's strides. The buffer
//! of the plan then *is* the given tensor, so nothing is allocated or copied. Every other result is
//! made as by a run without given outputs, and copied: a result with other strides, a view of an
//! input, one of several results that share memory.
//!
//! **Invariant:** a given tensor that stands for a buffer has exactly its elements, each once. The
//! steps of an instance may therefore access it as they access new memory of that buffer.

use crate::instance::{End, Segment, TensorAt};
use crate::planned::Planned;
use maquette_invoke::{Bindings, ExternalTensors, SourceInfo};
use maquette_ir::DType;
use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph, Output};
use maquette_ir::graph::{Arg, Graph, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::autograd::is_grad_enabled;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::{Result, RunError, Tensor, Value, any_may_overlap, mode};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What a program returns at a leaf of its outputs.
enum OutputType {
    Tensor {
        dtype: DType,
        device: Device,
        sizes: Vec<Expr>,
    },
    /// No tensor.
    Number,
}

/// The outputs of a program for known sizes, as given tensors must be.
pub(crate) struct OutputSlots {
    slots: Vec<Slot>,
    /// The buffers for which a given tensor can stand, in order, each with its slot.
    buffers: Vec<(BufferId, usize)>,
}

/// An output for known sizes.
struct Slot {
    /// `None` if no tensor can be given for it: why.
    tensor: std::result::Result<(DType, Device, SmallVec<[i64; 6]>), &'static str>,
    /// The strides with which a given tensor can stand for a buffer.
    strides: Option<SmallVec<[i64; 6]>>,
}

const IS_NUMBER: &str = "is not a tensor";
const SIZE_OF_DATA: &str = "has a size that depends on data";

fn leaf_of_value(graph: &Graph, v: ValueId) -> OutputType {
    match graph.tensor_type(v) {
        Some(ty) => {
            let (dtype, device) = (ty.dtype, ty.device);
            OutputType::Tensor { dtype, device, sizes: ty.sizes.to_vec() }
        }
        None => OutputType::Number,
    }
}

/// The outputs of a graph that runs as it was traced.
fn of_graph(graph: &Graph, outputs: &[Arg], leaves: &mut Vec<OutputType>) {
    for arg in outputs {
        match arg {
            Arg::List(list) => of_graph(graph, graph.list(*list), leaves),
            Arg::Value(v) => leaves.push(leaf_of_value(graph, *v)),
            _ => leaves.push(OutputType::Number),
        }
    }
}

/// The outputs of a functional program.
fn of_program(program: &FunctionalGraph, outputs: &[Output], leaves: &mut Vec<OutputType>) {
    let graph = &program.graph;
    let result = |at: usize| match graph.outputs().get(at) {
        Some(Arg::Value(v)) => leaf_of_value(graph, *v),
        _ => OutputType::Number,
    };
    // A view has the sizes of its layout, and the dtype of what it views.
    let viewed = |of: OutputType, layout: usize| match (of, program.layout(layout)) {
        (OutputType::Tensor { dtype, device, .. }, Some(list)) => {
            let numbers: Vec<Expr> = list.iter().skip(1).collect();
            let sizes = numbers[..numbers.len() / 2].to_vec();
            OutputType::Tensor { dtype, device, sizes }
        }
        (of, _) => of,
    };
    let external = |which: ExternalTensor| {
        let value = match which {
            ExternalTensor::Input(i) => graph.inputs().get(i).copied(),
            ExternalTensor::Const(i) => graph.consts().get(i).map(|c| c.value()),
            ExternalTensor::SharedMemory(k) => {
                let inputs = graph.inputs().len() - program.memories.len();
                graph.inputs().get(inputs + k).copied()
            }
        };
        value.map_or(OutputType::Number, |v| leaf_of_value(graph, v))
    };
    for output in outputs {
        leaves.push(match output {
            Output::List(list) => {
                of_program(program, list, leaves);
                continue;
            }
            Output::Result { result: at, .. } => result(*at),
            Output::Alias { of, layout: None } => external(*of),
            Output::Alias { of, layout: Some(at) } => viewed(external(*of), *at),
            Output::Shared { result: at, layout, .. } => viewed(result(*at), *layout),
        });
    }
}

/// Whether each leaf of the outputs is a result in memory of its own.
fn own_results(outputs: &[Output], leaves: &mut Vec<bool>) {
    for output in outputs {
        match output {
            Output::List(list) => own_results(list, leaves),
            Output::Result { .. } => leaves.push(true),
            Output::Alias { .. } | Output::Shared { .. } => leaves.push(false),
        }
    }
}

impl OutputSlots {
    fn new(types: Vec<OutputType>, bindings: &Bindings<'_>) -> OutputSlots {
        let slot = |ty: OutputType| {
            let tensor = match ty {
                OutputType::Number => Err(IS_NUMBER),
                OutputType::Tensor { dtype, device, sizes } => {
                    let sizes = sizes.iter().map(|e| bindings.eval(*e).ok());
                    let sizes = sizes.collect::<Option<SmallVec<[i64; 6]>>>();
                    sizes.map(|sizes| (dtype, device, sizes)).ok_or(SIZE_OF_DATA)
                }
            };
            Slot { tensor, strides: None }
        };
        OutputSlots { slots: types.into_iter().map(slot).collect(), buffers: Vec::new() }
    }

    /// The outputs of a graph that runs operator by operator, as it was traced or as a program.
    pub fn unplanned(
        graph: &Graph,
        program: Option<&FunctionalGraph>,
        bindings: &Bindings<'_>,
    ) -> OutputSlots {
        let mut types = Vec::new();
        match program {
            Some(program) => of_program(program, &program.outputs, &mut types),
            None => of_graph(graph, graph.outputs(), &mut types),
        }
        OutputSlots::new(types, bindings)
    }

    /// The outputs of an instance, of which `first` is the first segment. Given tensors stand for
    /// buffers only if it is the last segment, too.
    pub fn planned(planned: &Planned, bindings: &Bindings<'_>, first: &Segment) -> OutputSlots {
        let program = &planned.program;
        let mut outputs = OutputSlots::unplanned(&program.graph, Some(program), bindings);
        let End::Return(returns) = &first.end else { return outputs };
        let mut own = Vec::new();
        own_results(&program.outputs, &mut own);
        let mut uses: FxHashMap<u32, usize> = FxHashMap::default();
        for at in returns.planned.iter().flatten() {
            *uses.entry(at.base).or_default() += 1;
        }
        let buffers: FxHashMap<u32, _> = first.outputs.iter().map(|out| (out.0.0, out)).collect();
        for (leaf, (slot, at)) in outputs.slots.iter_mut().zip(&returns.planned).enumerate() {
            let Some(at) = at
                .as_ref()
                .filter(|at| own.get(leaf) == Some(&true) && uses.get(&at.base) == Some(&1))
            else {
                continue;
            };
            let buffer = buffers.get(&at.base).copied();
            let (Some((buffer, len, dtype)), Ok((wanted, ..))) = (buffer, &slot.tensor) else {
                continue;
            };
            if let Some(strides) = whole_buffer(at, *len).filter(|_| dtype == wanted) {
                slot.strides = Some(strides);
                outputs.buffers.push((*buffer, leaf));
            }
        }
        outputs.buffers.sort_unstable();
        outputs
    }

    /// Checks the tensors that the caller gives.
    ///
    /// # Errors
    /// Their number, or the dtype, device or a size of one is not that of the output; a tensor has
    /// no contents, overlaps itself, another one, or a tensor of the run.
    pub fn check(
        &self,
        graph: &Graph,
        given: &[Tensor],
        external: &ExternalTensors,
        source_info: &SourceInfo<'_>,
    ) -> Result<()> {
        if given.len() != self.slots.len() {
            let (expected, found) = (self.slots.len(), given.len());
            return Err(RunError::OutputCount { expected, found }.into());
        }
        let inputs = external.graph_inputs().iter().enumerate();
        let inputs = inputs.filter_map(|(i, value)| match value {
            Value::Tensor(t) => Some((ExternalTensor::Input(i), t)),
            _ => None,
        });
        let consts = external.consts().iter().enumerate();
        let consts = consts.map(|(i, t)| (ExternalTensor::Const(i), t));
        let others: SmallVec<[(ExternalTensor, &Tensor); 16]> = inputs.chain(consts).collect();
        for (leaf, (slot, t)) in self.slots.iter().zip(given).enumerate() {
            slot.check(leaf, t)?;
        }
        if !any_may_overlap(given.iter(), others.iter().map(|(_, t)| *t)) {
            return Ok(());
        }
        for (leaf, t) in given.iter().enumerate() {
            let overlap = |other: String| -> Result<()> {
                Err(RunError::OutputOverlap { output: leaf.to_string(), other }.into())
            };
            if let Some(other) = given.iter().take(leaf).position(|other| t.may_overlap(other)) {
                return overlap(format!("the one for output `{other}`"));
            }
            if let Some((which, _)) = others.iter().find(|(_, other)| t.may_overlap(other)) {
                let name = external.name(graph, source_info, *which);
                return overlap(match which {
                    ExternalTensor::Const(_) => format!("the constant `{name}`"),
                    _ => format!("input `{name}`"),
                });
            }
        }
        Ok(())
    }

    /// The given tensor that stands for a buffer.
    pub fn for_buffer<'t>(&self, buffer: BufferId, given: &'t [Tensor]) -> Option<&'t Tensor> {
        let at = self.buffers.binary_search_by_key(&buffer, |(b, _)| *b).ok()?;
        let leaf = self.buffers.get(at)?.1;
        let t = given.get(leaf)?;
        self.slots.get(leaf)?.is_in_place(t).then_some(t)
    }

    /// Whether a run writes output `leaf` where the caller wants it, without a copy.
    fn is_in_place(&self, leaf: usize, t: &Tensor) -> bool {
        self.slots.get(leaf).is_some_and(|slot| slot.is_in_place(t))
    }

    /// Whether a run writes all outputs where the caller wants them.
    pub fn are_in_place(&self, given: &[Tensor]) -> bool {
        given.iter().enumerate().all(|(leaf, t)| self.is_in_place(leaf, t))
    }

    /// Copies the results that were not written in place.
    ///
    /// # Errors
    /// There are fewer results than outputs, or memory runs out.
    pub fn copy(&self, results: &[Value], given: &[Tensor]) -> Result<()> {
        let results = results.iter().flat_map(Value::tensors);
        let mut copied = 0;
        for ((leaf, to), from) in given.iter().enumerate().zip(results) {
            copied += 1;
            if !self.is_in_place(leaf, to) {
                mode::with_builtin_kernels(|| to.copy_(from).ok().map(drop))?;
            }
        }
        if copied != given.len() {
            let (expected, found) = (copied, given.len());
            return Err(RunError::OutputCount { expected, found }.into());
        }
        Ok(())
    }
}

impl Slot {
    /// Whether a given tensor of the right sizes stands for the buffer of the output, or has no
    /// element that a run could write.
    fn is_in_place(&self, t: &Tensor) -> bool {
        let Ok((_, _, sizes)) = &self.tensor else { return false };
        if sizes.contains(&0) {
            return true;
        }
        let Some(strides) = &self.strides else { return false };
        let steps = sizes.iter().zip(strides).zip(t.strides());
        steps.into_iter().all(|((n, s), given)| *n == 1 || given.as_i64() == Some(*s))
    }

    /// Checks the tensor for output `leaf`, apart from the memory of others.
    fn check(&self, leaf: usize, t: &Tensor) -> Result<()> {
        let output = || leaf.to_string();
        let (dtype, device, sizes) = match &self.tensor {
            Ok(tensor) => tensor,
            Err(what) => return Err(RunError::OutputNotGiven { output: output(), what }.into()),
        };
        if t.alive()?.tracks_gradient() && is_grad_enabled() {
            return Err(RunError::OutputRequiresGrad { output: output() }.into());
        }
        let refused = |what: String, expected: String, found: String| -> Result<()> {
            Err(RunError::Output { output: output(), what, expected, found }.into())
        };
        if t.dtype() != *dtype {
            return refused("the dtype".into(), dtype.to_string(), t.dtype().to_string());
        }
        if t.device() != *device {
            return refused("the device".into(), device.to_string(), t.device().to_string());
        }
        if t.dim() != sizes.len() {
            return refused("the rank".into(), sizes.len().to_string(), t.dim().to_string());
        }
        for (dim, (expected, found)) in sizes.iter().zip(t.sizes()).enumerate() {
            if found.as_i64() != Some(*expected) {
                return refused(format!("size {dim}"), expected.to_string(), found.to_string());
            }
        }
        t.address()?;
        if t.may_overlap_itself() {
            let strides: Vec<String> = t.strides().iter().map(ToString::to_string).collect();
            let found = format!("[{}]", strides.join(", "));
            return refused("the strides".into(), "those of separate elements".into(), found);
        }
        Ok(())
    }
}

/// The strides of a tensor in a buffer of `len` elements, if it has each of them once.
fn whole_buffer(at: &TensorAt, len: i64) -> Option<SmallVec<[i64; 6]>> {
    let layout = at.meta.concrete()?;
    let count = layout.sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size))?;
    // Without overlap, as many elements as the buffer has, the first of which is its first, are all
    // of them.
    let is_whole = layout.offset == 0 && count == len;
    (is_whole && !Tensor::fake_of(at.meta.clone()).may_overlap_itself()).then_some(layout.strides)
}
