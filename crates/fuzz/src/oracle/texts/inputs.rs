//! Random inputs of a graph that was read from text.

use crate::oracle::program::RunInputs;
use maquette_check::Rng;
use maquette_check::values::call_single;
use maquette_ir::Device;
use maquette_ir::graph::{Arg, Graph, TensorType, ValueType};
use maquette_ir::sym::{Expr, SymbolId, SymbolKind};
use maquette_ops::{Result, Tensor, Value, args};
use rustc_hash::FxHashMap;

/// The most elements of a tensor in a run.
const MAX_ELEMENTS: i64 = 1 << 14;
/// The largest number in a run, except for the end of a slice.
const MAX_NUMBER: i64 = 1 << 12;
/// How many values of the symbols are tried.
const ATTEMPTS: usize = 20;

/// Whether a number may occur in a run.
fn is_small(n: i64) -> bool {
    n.unsigned_abs() <= MAX_NUMBER.unsigned_abs()
}

/// The inputs of a run.
pub(super) struct Inputs {
    symbols: FxHashMap<SymbolId, i64>,
    seed: u64,
}

impl Inputs {
    /// Values of the symbols under which the graph's guards hold and its tensors are small; `None`
    /// if there are none among those tried, or if the graph has inputs that cannot be made.
    pub(super) fn choose(graph: &Graph, rng: &mut Rng) -> Option<Inputs> {
        let host = |v| match graph.value_type(v) {
            ValueType::Tensor(ty) => {
                let ty = graph.type_of(ty);
                ty.device == Device::Cpu && !ty.requires_grad
            }
            _ => true,
        };
        if !graph.consts().is_empty() || !graph.inputs().iter().copied().all(host) {
            return None;
        }
        (0..ATTEMPTS).find_map(|_| {
            let table = graph.symbols();
            let backed = table.symbols().filter(|s| table.kind(*s) == SymbolKind::Backed);
            let symbols = backed
                .map(|s| {
                    let range = table.range(s);
                    (s, rng.between(0, 5).clamp(range.lo, range.hi))
                })
                .collect();
            let inputs = Inputs { symbols, seed: rng.next() };
            inputs.suit(graph).then_some(inputs)
        })
    }

    fn number(&self, graph: &Graph, e: Expr) -> Option<i64> {
        graph.symbols().eval(e, &|s| self.symbols.get(&s).copied()).ok()
    }

    fn suit(&self, graph: &Graph) -> bool {
        let value = |s| self.symbols.get(&s).copied();
        let guards = graph.guards().iter();
        let elements = |numbers: &[Expr]| {
            numbers.iter().try_fold(1i64, |product, &e| match self.number(graph, e) {
                Some(n) if !is_small(n) => None,
                Some(n) => product.checked_mul(n.abs().max(1)).filter(|p| *p <= MAX_ELEMENTS),
                // data decide it
                None => Some(product),
            })
        };
        let list = |span| {
            let int = |a: &Arg| if let Arg::Int(e) = *a { Some(e) } else { None };
            graph.list(span).iter().filter_map(int).collect::<Vec<Expr>>()
        };
        let argument = |a: Arg| match a {
            Arg::Int(e) => self.number(graph, e).is_none_or(|n| is_small(n) || n == i64::MAX),
            Arg::List(l) => elements(&list(l)).is_some(),
            _ => true,
        };
        let small = |ty: &TensorType| {
            elements(&ty.sizes).is_some()
                && ty.exprs().all(|e| self.number(graph, e).is_none_or(is_small))
        };
        guards.into_iter().all(|&g| graph.symbols().eval_bool(g, &value).unwrap_or(false))
            && graph.values().filter_map(|v| graph.tensor_type(v)).all(small)
            && graph.nodes().all(|n| {
                let kwargs = graph.kwargs(n).iter().map(|(_, a)| *a);
                graph.args(n).iter().copied().chain(kwargs).all(argument)
            })
    }

    /// The inputs, in new memory.
    pub(super) fn make(&self, graph: &Graph) -> Result<(RunInputs, Vec<Value>)> {
        let mut rng = Rng::new(self.seed, 0);
        let mut made = RunInputs { memories: Vec::new(), inputs: Vec::new() };
        let mut values = Vec::new();
        for &input in graph.inputs() {
            values.push(match graph.value_type(input) {
                ValueType::Tensor(ty) => {
                    let (memory, tensor) = self.tensor(graph, graph.type_of(ty), &mut rng)?;
                    made.memories.push(memory);
                    made.inputs.push(tensor.clone());
                    Value::Tensor(tensor)
                }
                ValueType::Int(e) => Value::Int(self.number(graph, e).unwrap_or_default().into()),
                ValueType::Float => Value::Float(rng.between(-4, 4) as f64 / 2.0),
                ValueType::Bool => Value::Bool(rng.chance(50)),
                ValueType::Str => Value::Str("text".into()),
            });
        }
        Ok((made, values))
    }

    /// A memory, and a tensor of the type in it.
    fn tensor(&self, graph: &Graph, ty: &TensorType, rng: &mut Rng) -> Result<(Tensor, Tensor)> {
        let numbers = |of: &[Expr]| -> Vec<i64> {
            of.iter().map(|&e| self.number(graph, e).unwrap_or_default()).collect()
        };
        let (sizes, strides) = (numbers(&ty.sizes), numbers(&ty.strides));
        let offset = self.number(graph, ty.offset).unwrap_or_default();
        let last: i64 = sizes.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum();
        let elements: Vec<f64> = (0..=offset + last)
            .map(|_| match ty.dtype.is_float() {
                true => rng.between(-8, 8) as f64 / 4.0,
                false => rng.between(0, 3) as f64,
            })
            .collect();
        let length = elements.len() as i64;
        let memory = Tensor::from_vec(elements, [length]).to_dtype(ty.dtype).clone_tensor();
        memory.ok()?;
        let tensor = call_single("aten::as_strided", args![&memory, sizes, strides, offset])?;
        Ok((memory, tensor))
    }
}
