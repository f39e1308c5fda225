//! The signature of a program: the meaning of each input and each result of its graph, as in
//! PyTorch's `ExportGraphSignature`.

use super::state::ModuleTensors;
use maquette_ir::graph::{Arg, Graph};
use maquette_ops::module::Slot;
use maquette_rewrite::{ExternalTensor, FunctionalGraph, Output, SharedMemory};
use maquette_trace::{LeafKind, TracedProgram};

/// The inputs and outputs of a program, in the order of its graph. Displays as text, which parses
/// back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The parameters, the buffers, then the inputs of a call.
    pub inputs: Vec<InputSpec>,
    /// The new values of mutated tensors, then the outputs.
    pub outputs: Vec<OutputSpec>,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The kind of the input.
    pub kind: InputKind,
    /// The module's name of a parameter or buffer (`layers.0.weight`), or the name of an input
    /// leaf.
    pub name: String,
    /// The input's name in graph text: `%x`. A number that is part of the program is not an input
    /// of the graph; this is the number itself.
    pub value: String,
    /// The name of another parameter or buffer that is the same tensor and graph input.
    pub tied_to: Option<String>,
    /// Whether an operator or an output uses the input.
    pub used: bool,
}

/// The kind of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// A parameter of the module.
    Parameter,
    /// A buffer of the module.
    Buffer,
    /// A captured tensor that the module does not name and the program mutates. The program owns
    /// it as a buffer.
    CapturedBuffer,
    /// A tensor or number that the caller passes.
    User,
    /// A number that is part of the program. Callers must pass the same number.
    Constant,
    /// Memory that several other inputs share.
    SharedStorage,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// The kind of the result.
    pub kind: OutputKind,
    /// The name of the mutated parameter, buffer or input, or of the leaf of the output tree. Empty
    /// if the output is a single leaf.
    pub name: String,
    /// The result's name in graph text, or for an alias the name of the graph's input. `at` is
    /// followed by the view that the output is: offset, sizes, strides.
    pub value: String,
}

/// The kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// The new value of a parameter.
    ParameterMutation,
    /// The new value of a buffer.
    BufferMutation,
    /// The new value of an input, which is written to the caller's tensor.
    InputMutation,
    /// An output.
    User,
    /// An output that is an input tensor or a view of one, after the mutations.
    Alias,
}

impl InputKind {
    /// All kinds.
    pub const ALL: [InputKind; 6] = [
        InputKind::Parameter,
        InputKind::Buffer,
        InputKind::CapturedBuffer,
        InputKind::User,
        InputKind::Constant,
        InputKind::SharedStorage,
    ];

    /// The name in printed signatures.
    pub const fn name(self) -> &'static str {
        match self {
            InputKind::Parameter => "parameter",
            InputKind::Buffer => "buffer",
            InputKind::CapturedBuffer => "captured buffer",
            InputKind::User => "input",
            InputKind::Constant => "constant input",
            InputKind::SharedStorage => "memory of",
        }
    }

    fn mutation(self) -> OutputKind {
        match self {
            InputKind::Parameter => OutputKind::ParameterMutation,
            InputKind::Buffer | InputKind::CapturedBuffer => OutputKind::BufferMutation,
            InputKind::User | InputKind::Constant | InputKind::SharedStorage => {
                OutputKind::InputMutation
            }
        }
    }
}

impl OutputKind {
    /// All kinds, those first whose names begin with the name of another one.
    pub const ALL: [OutputKind; 5] = [
        OutputKind::ParameterMutation,
        OutputKind::BufferMutation,
        OutputKind::InputMutation,
        OutputKind::Alias,
        OutputKind::User,
    ];

    /// The name in printed signatures.
    pub const fn name(self) -> &'static str {
        match self {
            OutputKind::ParameterMutation => "parameter mutation",
            OutputKind::BufferMutation => "buffer mutation",
            OutputKind::InputMutation => "input mutation",
            OutputKind::User => "output",
            OutputKind::Alias => "output alias",
        }
    }
}

impl Signature {
    /// The parameters and buffers that no operator or output uses.
    pub fn unused(&self) -> impl Iterator<Item = &InputSpec> {
        self.inputs
            .iter()
            .filter(|i| !i.used && matches!(i.kind, InputKind::Parameter | InputKind::Buffer))
    }

    /// `labels` are the names of the graph's inputs.
    pub(crate) fn of(
        traced: &TracedProgram,
        functional: &FunctionalGraph,
        module_tensors: &ModuleTensors,
        labels: &[String],
    ) -> Signature {
        let graph = &functional.graph;
        let mut inputs = Vec::new();
        for (at, named) in module_tensors.0.iter().enumerate() {
            let Some((i, state)) =
                traced.state.iter().enumerate().find(|(_, s)| s.given_indices.contains(&at))
            else {
                continue;
            };
            let first = state
                .given_indices
                .first()
                .filter(|first| **first != at)
                .and_then(|first| module_tensors.0.get(*first));
            let kind =
                if named.slot == Slot::Buffer { InputKind::Buffer } else { InputKind::Parameter };
            inputs.push(InputSpec {
                kind,
                name: named.name.clone(),
                value: input_text(graph, i),
                tied_to: first.map(|n| n.name.clone()),
                used: used(functional, i),
            });
        }
        let mut rest = 0..graph.inputs().len();
        let mut next = |kind: InputKind, name: Option<&str>| {
            let i = rest.next().unwrap_or_default();
            let value = input_text(graph, i);
            let name =
                name.map_or_else(|| value.trim_start_matches('%').to_owned(), ToOwned::to_owned);
            InputSpec { kind, name, value, tied_to: None, used: used(functional, i) }
        };
        for state in &traced.state {
            let captured = next(InputKind::CapturedBuffer, None);
            inputs.extend(state.given_indices.is_empty().then_some(captured));
        }
        for (kind, label) in traced.interface.inputs.iter().zip(&traced.interface.labels) {
            inputs.push(match kind {
                LeafKind::Input => next(InputKind::User, Some(label)),
                LeafKind::Fixed(value) => {
                    let (name, value) = (label.clone(), value.kind().to_string());
                    InputSpec { kind: InputKind::Constant, name, value, tied_to: None, used: true }
                }
            });
        }
        for m in &functional.memories {
            let seen_by: Vec<&str> =
                m.inputs.iter().filter_map(|i| labels.get(*i).map(String::as_str)).collect();
            inputs.push(next(InputKind::SharedStorage, Some(&seen_by.join(", "))));
        }
        let mut signature = Signature { inputs, outputs: Vec::new() };
        signature.outputs = signature.outputs_of(traced, functional);
        signature
    }

    fn outputs_of(&self, traced: &TracedProgram, functional: &FunctionalGraph) -> Vec<OutputSpec> {
        let graph = &functional.graph;
        let mut outputs = Vec::new();
        for m in &functional.mutations {
            let value = result_text(graph, m.result);
            let written: Vec<(usize, String)> = match m.target {
                ExternalTensor::Input(i) => vec![(i, at(graph, value, m.layout))],
                ExternalTensor::SharedMemory(k) => functional
                    .memories
                    .get(k)
                    .map(|m| m.inputs.iter().map(|&i| (i, part(graph, m, i, &value))).collect())
                    .unwrap_or_default(),
                ExternalTensor::Const(_) => Vec::new(),
            };
            for (target, value) in written {
                let target = input_text(graph, target);
                if let Some(input) = self.inputs.iter().find(|i| i.value == target) {
                    outputs.push(OutputSpec {
                        kind: input.kind.mutation(),
                        name: input.name.clone(),
                        value,
                    });
                }
            }
        }
        for (name, output) in
            traced.interface.out_spec.leaf_paths().into_iter().zip(&functional.outputs)
        {
            let kind = if let Output::Alias { .. } = output {
                OutputKind::Alias
            } else {
                OutputKind::User
            };
            outputs.push(OutputSpec { kind, name, value: output_text(functional, output) });
        }
        outputs
    }
}

fn input_text(graph: &Graph, i: usize) -> String {
    graph.inputs().get(i).map_or_else(String::new, |v| format!("%{}", graph.value_name(*v)))
}

fn result_text(graph: &Graph, i: usize) -> String {
    graph.outputs().get(i).map_or_else(String::new, |&a| graph.display_arg(a).to_string())
}

/// The text of a value, or of a view of it.
fn at(graph: &Graph, value: String, place: Option<usize>) -> String {
    match place {
        Some(place) => format!("{value} at {}", result_text(graph, place)),
        None => value,
    }
}

/// The text of the view of shared memory that an input is.
fn part(graph: &Graph, memory: &SharedMemory, input: usize, value: &str) -> String {
    let Some(ty) = graph.inputs().get(input).and_then(|v| graph.tensor_type(*v)) else {
        return value.to_owned();
    };
    let offset = ty.offset.as_i64().unwrap_or_default() - memory.start;
    let numbers =
        [offset].into_iter().chain(ty.sizes.iter().chain(&ty.strides).filter_map(|e| e.as_i64()));
    let numbers: Vec<String> = numbers.map(|n| n.to_string()).collect();
    format!("{value} at [{}]", numbers.join(", "))
}

fn output_text(f: &FunctionalGraph, output: &Output) -> String {
    let graph = &f.graph;
    match output {
        Output::Result { result, .. } => result_text(graph, *result),
        Output::Shared { result, layout: place, .. } => {
            at(graph, result_text(graph, *result), Some(*place))
        }
        Output::Alias { of, layout: place } => {
            let of = match *of {
                ExternalTensor::Input(i) => input_text(graph, i),
                ExternalTensor::Const(i) => graph
                    .consts()
                    .get(i)
                    .map_or_else(String::new, |c| format!("%{}", graph.value_name(c.value()))),
                ExternalTensor::SharedMemory(i) => {
                    input_text(graph, graph.inputs().len() - f.memories.len() + i)
                }
            };
            at(graph, of, *place)
        }
        Output::List(l) => {
            let elements: Vec<String> = l.iter().map(|o| output_text(f, o)).collect();
            format!("[{}]", elements.join(", "))
        }
    }
}

/// Whether an operator or an output uses an input, directly or through shared memory.
fn used(f: &FunctionalGraph, i: usize) -> bool {
    let graph = &f.graph;
    let taken = |i: usize| {
        let Some(&v) = graph.inputs().get(i) else { return false };
        let mut returned = false;
        graph
            .outputs()
            .iter()
            .for_each(|&o| graph.for_each_leaf(o, &mut |leaf| returned |= leaf == Arg::Value(v)));
        returned || !graph.users(v).is_empty()
    };
    let first = graph.inputs().len() - f.memories.len();
    let memory = f.memories.iter().position(|m| m.inputs.contains(&i));
    let given_back = |o: &Output| match o {
        Output::Alias { of: ExternalTensor::Input(of), .. } => *of == i,
        Output::Alias { of: ExternalTensor::SharedMemory(of), .. } => Some(*of) == memory,
        _ => false,
    };
    taken(i) || memory.is_some_and(|m| taken(first + m)) || f.outputs.iter().any(given_back)
}
