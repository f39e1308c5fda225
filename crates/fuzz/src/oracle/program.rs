//! Programs: an imperative graph, the memory it is given, and the sizes it is run at; and their
//! text.
//!
//! The text is that of the graph, with lines before it that a graph's parser takes for comments:
//!
//! ```text
//! #! memory 0: f32 = 1.0 -0.0 NaN
//! #! input x: memory 0 offset 2
//! #! sizes s0 = 3, s1 = 0
//! #! gradients
//! ```
//!
//! A memory's values are repeated as often as its inputs need. An input that is not named has a
//! memory of its own, with small numbers. The sizes are those of the graph's symbols, a line for
//! each run; a trace is made at the first. With `gradients`, the gradient of the program is run.

use super::{gradients, model};
use maquette_check::values::call_single;
use maquette_ir::graph::{Arg, Graph, Stmt, TensorType, ValueId};
use maquette_ir::sym::{Expr, SymbolId, SymbolKind};
use maquette_ir::{DType, Device, Scalar};
use maquette_ops::{Concrete, Error, Result, Tensor, Value, args};
use std::fmt::{self, Write};
use std::str::FromStr;

/// Elements after the last one that an input sees: a write beyond an input shows.
const MARGIN: usize = 3;

/// The operator that may name a place by its offset from the start of a storage.
pub(super) const AS_STRIDED: &str = "aten::as_strided";

/// What a memory holds at first, repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryInit {
    /// Any dtype.
    pub dtype: DType,
    /// The values, at least one.
    pub values: Vec<Scalar>,
}

impl MemoryInit {
    fn small(dtype: DType) -> MemoryInit {
        let values = (1..8).map(|i| match dtype {
            DType::Bool => Scalar::Bool(i % 3 == 1),
            DType::I64 => Scalar::Int(i),
            _ => Scalar::Float(i as f64),
        });
        MemoryInit { dtype, values: values.collect() }
    }

    fn tensor(&self, len: usize) -> Result<Tensor> {
        let values = || self.values.iter().cycle().take(len);
        let n = len as i64;
        match self.dtype {
            DType::F32 => Ok(Tensor::from_vec(values().map(|v| v.to_f64() as f32).collect(), [n])),
            DType::F64 => Ok(Tensor::from_vec(values().map(|v| v.to_f64()).collect(), [n])),
            DType::I64 => Ok(Tensor::from_vec(values().map(|v| v.to_i64()).collect(), [n])),
            DType::Bool => Ok(Tensor::from_vec(values().map(|v| v.to_i64() != 0).collect(), [n])),
            narrow if narrow.is_float() => {
                let wide = Tensor::from_vec(values().map(|v| v.to_f64()).collect(), [n]);
                wide.to_dtype(narrow).ok().cloned()
            }
            narrow => {
                let wide = Tensor::from_vec(values().map(|v| v.to_i64()).collect(), [n]);
                wide.to_dtype(narrow).ok().cloned()
            }
        }
    }
}

/// Where an input begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputLocation {
    /// Which memory.
    pub memory: usize,
    /// In elements.
    pub offset: i64,
}

/// Operators that move elements: see [`TestProgram::only_moves`].
const MOVES: [&str; 20] = [
    "aten::as_strided",
    "aten::cat",
    "aten::chunk",
    "aten::clone",
    "aten::copy_",
    "aten::diagonal",
    "aten::expand",
    "aten::flatten.using_ints",
    "aten::flip",
    "aten::index_select",
    "aten::permute",
    "aten::reshape",
    "aten::select.int",
    "aten::slice.Tensor",
    "aten::split.Tensor",
    "aten::stack",
    "aten::transpose.int",
    "aten::unsqueeze",
    "aten::view",
    "aten::where.self",
];

/// Values of a graph's backed symbols, by name.
pub type Sizes = Vec<(String, i64)>;

/// A program with what it is run on. `docs/oracle.md` describes its text.
#[derive(Clone, Debug, PartialEq)]
pub struct TestProgram {
    /// The program itself; every input is a tensor.
    pub graph: Graph,
    /// The memory that its inputs see.
    pub memories: Vec<MemoryInit>,
    /// For each input.
    pub locations: Vec<InputLocation>,
    /// For each run, the first being the one that traces are made at.
    pub sizes: Vec<Sizes>,
    /// What is run: the program, or the gradient of what it computes.
    pub family: Family,
}

/// What is run of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// The program itself.
    #[default]
    Programs,
    /// A scalar that depends on every float among the outputs, and its gradient with respect to
    /// each float among the inputs. See `oracle/gradients`.
    Gradients,
}

/// What one run is given: fresh memory, and the inputs over it.
pub struct RunInputs {
    /// Whole memories, as flat tensors.
    pub memories: Vec<Tensor>,
    /// The inputs.
    pub inputs: Vec<Tensor>,
}

impl TestProgram {
    /// A program of plain sizes.
    pub(crate) fn new(
        graph: Graph,
        memories: Vec<MemoryInit>,
        locations: Vec<InputLocation>,
    ) -> TestProgram {
        let (sizes, family) = (vec![Sizes::new()], Family::Programs);
        TestProgram { graph, memories, locations, sizes, family }
    }

    /// Calls what is run of the program, on real tensors or under a trace.
    ///
    /// # Errors
    /// As [`model::call_all`]; the program has no gradient.
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Value>> {
        match self.family {
            Family::Programs => model::call_all(&self.graph, inputs),
            Family::Gradients => gradients::value_and_gradients(&self.graph, inputs),
        }
    }

    /// Whether the program was written for more than one size.
    pub fn is_symbolic(&self) -> bool {
        !backed(&self.graph).is_empty()
    }

    /// Whether its operators only move elements. Other operators give NaNs of bits that depend on
    /// the kernel: which of two NaNs arithmetic returns, and which of several a selection.
    pub fn only_moves(&self) -> bool {
        let is_move = |stmt: &Stmt| match stmt {
            Stmt::Node(node) => MOVES.contains(&self.graph.op_name(*node)),
            Stmt::Bind { .. } | Stmt::Assert { .. } => true,
        };
        self.graph.body().iter().all(is_move)
    }

    /// The inputs that see one memory with another, in groups.
    pub fn shared(&self) -> Vec<Vec<usize>> {
        let of = |m| {
            (0..self.locations.len())
                .filter(|i| self.locations.get(*i).is_some_and(|p| p.memory == m))
                .collect::<Vec<_>>()
        };
        (0..self.memories.len()).map(of).filter(|group| group.len() > 1).collect()
    }

    /// Whether the program names places by offsets from the start of a storage: then its inputs'
    /// types say where they begin.
    pub(super) fn names_storage_offsets(&self) -> bool {
        let graph = &self.graph;
        graph.nodes().any(|n| {
            let given = |arg: usize| matches!(graph.args(n).get(arg), Some(Arg::Int(_)));
            match graph.op_name(n) {
                AS_STRIDED | "aten::as_strided_copy" => given(3),
                "aten::as_strided_scatter" => given(4),
                _ => false,
            }
        })
    }

    /// Whether it sees memory by places, which may be none of its tensor's.
    pub(super) fn uses_as_strided(&self) -> bool {
        let by_places = [AS_STRIDED, "aten::as_strided_copy", "aten::as_strided_scatter"];
        self.graph.nodes().any(|n| by_places.contains(&self.graph.op_name(n)))
    }

    /// Fresh memory and inputs for a run at these sizes.
    ///
    /// # Errors
    /// An input is not a tensor, has no place, or does not fit these sizes.
    pub fn run_inputs(&self, at: &Sizes) -> Result<RunInputs> {
        self.run_inputs_on(at, Device::Cpu)
    }

    /// As [`TestProgram::run_inputs`], with the memories on a device.
    ///
    /// # Errors
    /// As [`TestProgram::run_inputs`]; the device has no memory.
    pub fn run_inputs_on(&self, at: &Sizes, device: Device) -> Result<RunInputs> {
        let layouts: Vec<Concrete> = self
            .graph
            .inputs()
            .iter()
            .map(|&v| layout(&self.graph, v, at))
            .collect::<Result<_>>()?;
        if layouts.len() != self.locations.len() {
            return Err(Error::value(format!(
                "{} inputs have {} memory locations",
                layouts.len(),
                self.locations.len()
            )));
        }
        let mut memories = Vec::new();
        for (index, memory) in self.memories.iter().enumerate() {
            let ends = self.locations.iter().zip(&layouts).filter(|(p, _)| p.memory == index).map(
                |(p, c)| {
                    let end = c.span().map_or(0, |(_, end)| end / c.width.max(1));
                    p.offset + end
                },
            );
            let len = usize::try_from(ends.fold(0, i64::max)).unwrap_or(0) + MARGIN;
            memories.push(memory.tensor(len)?.to_device(device).ok()?.clone());
        }
        let inputs = self.locations.iter().zip(&layouts).map(|(p, c)| {
            let memory = memories
                .get(p.memory)
                .ok_or_else(|| Error::value(format!("unknown memory {}", p.memory)))?;
            call_single(AS_STRIDED, args![memory, c.sizes.to_vec(), c.strides.to_vec(), p.offset])
        });
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(RunInputs { memories, inputs })
    }
}

/// The symbols of a graph that are sizes of inputs.
pub(super) fn backed(graph: &Graph) -> Vec<SymbolId> {
    let table = graph.symbols();
    table.symbols().filter(|s| table.kind(*s) == SymbolKind::Backed).collect()
}

pub(super) fn tensor_input(graph: &Graph, v: ValueId) -> Result<&TensorType> {
    graph.tensor_type(v).ok_or_else(|| {
        Error::value(format!("the input `{}` of a program must be a tensor", graph.value_name(v)))
    })
}

/// An input's layout at some sizes.
fn layout(graph: &Graph, v: ValueId, at: &Sizes) -> Result<Concrete> {
    let (ty, table) = (tensor_input(graph, v)?, graph.symbols());
    let env = |s: SymbolId| at.iter().find(|(name, _)| name == table.name(s)).map(|(_, n)| *n);
    let all = |exprs: &[Expr]| {
        exprs.iter().map(|&e| Ok(table.eval(e, &env)?)).collect::<Result<Vec<i64>>>()
    };
    Ok(Concrete {
        sizes: all(&ty.sizes)?.into(),
        strides: all(&ty.strides)?.into(),
        offset: 0,
        width: ty.dtype.size() as i64,
    })
}

impl fmt::Display for TestProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, m) in self.memories.iter().enumerate() {
            write!(f, "#! memory {i}: {} =", m.dtype)?;
            for v in &m.values {
                match v {
                    Scalar::Float(x) if x.is_nan() && x.is_sign_negative() => {
                        f.write_str(" -NaN")?
                    }
                    Scalar::Float(x) if m.dtype == DType::F64 => write!(f, " {x:?}")?,
                    Scalar::Float(x) => write!(f, " {:?}", *x as f32)?,
                    Scalar::Int(n) => write!(f, " {n}")?,
                    Scalar::Bool(b) => write!(f, " {b}")?,
                }
            }
            f.write_char('\n')?;
        }
        for (v, p) in self.graph.inputs().iter().zip(&self.locations) {
            writeln!(
                f,
                "#! input {}: memory {} offset {}",
                self.graph.value_name(*v),
                p.memory,
                p.offset
            )?;
        }
        for at in self.sizes.iter().filter(|at| !at.is_empty()) {
            let sizes: Vec<String> = at.iter().map(|(name, n)| format!("{name} = {n}")).collect();
            writeln!(f, "#! sizes {}", sizes.join(", "))?;
        }
        if self.family == Family::Gradients {
            writeln!(f, "#! gradients")?;
        }
        writeln!(f, "{}", self.graph)
    }
}

impl FromStr for TestProgram {
    type Err = Error;

    fn from_str(text: &str) -> Result<TestProgram> {
        let graph = Graph::parse(text)?;
        graph.verify()?;
        let mut program = TestProgram {
            locations: Vec::new(),
            memories: Vec::new(),
            sizes: Vec::new(),
            family: Family::Programs,
            graph,
        };
        let mut places = Vec::new();
        for (line, rest) in text
            .lines()
            .enumerate()
            .filter_map(|(i, l)| Some((i + 1, l.strip_prefix("#!")?.trim())))
        {
            program
                .directive(rest, &mut places)
                .map_err(|what| Error::value(format!("line {line}: {what}, found `{rest}`")))?;
        }
        for &v in program.graph.inputs() {
            let (dtype, name) =
                (tensor_input(&program.graph, v)?.dtype, program.graph.value_name(v).to_string());
            let place = match places.iter().find(|(n, _)| *n == name) {
                Some((_, place)) => *place,
                None => {
                    program.memories.push(MemoryInit::small(dtype));
                    InputLocation { memory: program.memories.len() - 1, offset: 0 }
                }
            };
            match program.memories.get(place.memory) {
                Some(m) if m.dtype == dtype => program.locations.push(place),
                _ => {
                    return Err(Error::value(format!(
                        "input {name} needs a memory of dtype {dtype}"
                    )));
                }
            }
        }
        if program.sizes.is_empty() && program.is_symbolic() {
            return Err(Error::value("a program with symbols needs a line `#! sizes s0 = 3, …`"));
        }
        if program.sizes.is_empty() {
            program.sizes.push(Sizes::new());
        }
        Ok(program)
    }
}

impl TestProgram {
    /// Reads a line after `#!`; the error says what was expected.
    fn directive(
        &mut self,
        line: &str,
        places: &mut Vec<(String, InputLocation)>,
    ) -> Result<(), String> {
        let number = |text: &str| {
            text.trim()
                .parse::<i64>()
                .map_err(|_| format!("expected a number instead of `{}`", text.trim()))
        };
        let index = |text: &str| {
            text.trim()
                .parse::<usize>()
                .map_err(|_| format!("expected a memory's number instead of `{}`", text.trim()))
        };
        if let Some(rest) = line.strip_prefix("memory ") {
            let (at, rest) = rest.split_once(':').ok_or("expected `memory 0: f32 = 1.0 …`")?;
            let (dtype, values) = rest.split_once('=').ok_or("expected `=` and values")?;
            if index(at)? != self.memories.len() {
                return Err(format!("expected memory {}", self.memories.len()));
            }
            let dtype = DType::ALL
                .into_iter()
                .find(|d| d.name() == dtype.trim())
                .ok_or("expected a dtype")?;
            let value = |text: &str| match dtype {
                DType::F32 => text.parse::<f32>().ok().map(|x| Scalar::Float(x.into())),
                DType::Bool => text.parse().ok().map(Scalar::Bool),
                float if float.is_float() => text.parse().ok().map(Scalar::Float),
                _ => text.parse().ok().map(Scalar::Int),
            };
            let values: Option<Vec<Scalar>> = values.split_whitespace().map(value).collect();
            let values = values
                .filter(|v| !v.is_empty())
                .ok_or_else(|| format!("expected values of {dtype}"))?;
            self.memories.push(MemoryInit { dtype, values });
        } else if let Some(rest) = line.strip_prefix("input ") {
            let (name, rest) =
                rest.split_once(": memory ").ok_or("expected `input x: memory 0 offset 0`")?;
            let (memory, offset) = rest.split_once("offset").ok_or("expected `offset`")?;
            places.push((
                name.trim_start_matches('%').to_owned(),
                InputLocation { memory: index(memory)?, offset: number(offset)?.max(0) },
            ));
        } else if let Some(rest) = line.strip_prefix("sizes ") {
            let size = |part: &str| {
                let (name, n) = part.split_once('=').ok_or("expected `s0 = 3`")?;
                Ok::<_, String>((name.trim().to_owned(), number(n)?))
            };
            self.sizes.push(rest.split(',').map(size).collect::<Result<Sizes, String>>()?);
        } else if line == "gradients" {
            self.family = Family::Gradients;
        } else {
            return Err("expected `memory`, `input`, `sizes` or `gradients`".to_owned());
        }
        Ok(())
    }
}
