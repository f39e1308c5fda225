//! The generator of chains.
//!
//! A call is drawn from a table of patterns, which take values that the chain has, or new inputs
//! that fit them. The operator is called eagerly on the spot: if it refuses the arguments, another
//! one is drawn.

use super::{Argument, Call, Chain, Input};
use crate::oracle::Rng;
use maquette_ir::DType;
use maquette_ops::{Tensor, Value};

/// Extents around the lengths of blocks, lanes and chunks of the kernels.
const EXTENTS: [i64; 22] =
    [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 257, 1_023, 1_025, 2_049];

/// The most elements of a tensor.
const MAX_ELEMENTS: i64 = 40_000;

/// How often another call is tried where one is refused.
const ATTEMPTS: usize = 8;

const FLOATS: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F64];

const UNARY: [&str; 20] = [
    "aten::neg",
    "aten::abs",
    "aten::exp",
    "aten::tanh",
    "aten::relu",
    "aten::sigmoid",
    "aten::sqrt",
    "aten::rsqrt",
    "aten::silu",
    "aten::sin",
    "aten::cos",
    "aten::floor",
    "aten::sign",
    "aten::reciprocal",
    "aten::log1p",
    "aten::erf",
    "aten::square",
    "aten::isnan",
    "aten::logical_not",
    "aten::gelu",
];

const BINARY: [&str; 12] = [
    "aten::add.Tensor",
    "aten::sub.Tensor",
    "aten::mul.Tensor",
    "aten::div.Tensor",
    "aten::maximum",
    "aten::minimum",
    "aten::gt.Tensor",
    "aten::eq.Tensor",
    "aten::atan2",
    "aten::mul.Tensor",
    "aten::add.Tensor",
    "aten::remainder.Tensor",
];

const IN_PLACE: [&str; 4] =
    ["aten::add_.Tensor", "aten::mul_.Tensor", "aten::copy_", "aten::sub_.Tensor"];

struct Generator {
    chain: Chain,
    values: Vec<Value>,
    /// By call: how many tensors it returns.
    results: Vec<usize>,
    rng: Rng,
    batch: i64,
}

/// Chain `index` of a seed.
pub fn generate(seed: u64, index: u64) -> Chain {
    let mut rng = Rng::new(seed, index);
    let batch = rng.one(&EXTENTS).unwrap_or(4).min(257);
    let chain = Chain { inputs: Vec::new(), calls: Vec::new(), outputs: Vec::new() };
    let mut generator = Generator { chain, values: Vec::new(), results: Vec::new(), rng, batch };
    let sizes = generator.sizes();
    let dtype = generator.dtype();
    generator.input(dtype, sizes, true);
    let calls = 2 + generator.rng.below(7);
    for _ in 0..calls {
        (0..ATTEMPTS).any(|_| generator.add_call());
    }
    generator.finish()
}

impl Generator {
    fn sizes(&mut self) -> Vec<i64> {
        let mut sizes = vec![self.batch];
        for _ in 0..self.rng.below(3) {
            let left = MAX_ELEMENTS / sizes.iter().product::<i64>().max(1);
            let extent = self.rng.one(&EXTENTS).unwrap_or(1);
            sizes.push(extent.min(left.max(1)));
        }
        sizes
    }

    fn dtype(&mut self) -> DType {
        match self.rng.below(10) {
            0 => DType::I64,
            1 => DType::I32,
            2 => self.rng.one(&FLOATS).unwrap_or(DType::F32),
            3 => DType::BF16,
            _ => DType::F32,
        }
    }

    /// Adds an input. Its value stands before the results of calls, so it is added while there are
    /// none, or else the calls are renumbered.
    fn input(&mut self, dtype: DType, sizes: Vec<i64>, is_batched: bool) -> usize {
        let is_batched = is_batched && sizes.first() == Some(&self.batch);
        let at = self.chain.inputs.len();
        self.chain.inputs.push(Input { dtype, sizes, is_batched });
        for arg in self.chain.calls.iter_mut().flat_map(|call| &mut call.args) {
            match arg {
                Argument::Value(v) if *v >= at => *v += 1,
                Argument::Values(all) => all.iter_mut().filter(|v| **v >= at).for_each(|v| *v += 1),
                _ => {}
            }
        }
        if let Ok(mut inputs) = self.chain.make_inputs(1, None)
            && let Some(t) = inputs.pop()
        {
            self.values.insert(at, Value::Tensor(t));
        }
        at
    }

    fn tensor(&self, v: usize) -> Option<&Tensor> {
        match self.values.get(v)? {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }

    fn sizes_of(&self, v: usize) -> Vec<i64> {
        let sizes = self.tensor(v).map(|t| t.sizes().iter().filter_map(|n| n.as_i64()).collect());
        sizes.unwrap_or_default()
    }

    /// A value; late ones are more likely.
    fn any(&mut self) -> usize {
        let n = self.values.len();
        match self.rng.chance(70) {
            true => n - 1 - self.rng.below(n.min(2)),
            false => self.rng.below(n),
        }
    }

    /// A value that broadcasts with value `v`: one of the same sizes, or a new input.
    fn partner(&mut self, v: usize) -> (usize, usize) {
        let sizes = self.sizes_of(v);
        let alike: Vec<usize> =
            (0..self.values.len()).filter(|u| *u != v && self.sizes_of(*u) == sizes).collect();
        if self.rng.chance(60)
            && let Some(u) = self.rng.one(&alike)
        {
            return (v, u);
        }
        let mut sizes = sizes;
        match self.rng.below(5) {
            0 => drop(sizes.drain(..self.rng.below(sizes.len() + 1))),
            1 => {
                let dim = self.rng.below(sizes.len().max(1));
                sizes.iter_mut().skip(dim).take(1).for_each(|n| *n = 1);
            }
            _ => {}
        }
        let dtype = match self.rng.chance(75) {
            true => self.tensor(v).map_or(DType::F32, Tensor::dtype),
            false => self.dtype(),
        };
        let dtype = if dtype == DType::Bool { DType::F32 } else { dtype };
        let u = self.input(dtype, sizes, true);
        (if v >= u { v + 1 } else { v }, u)
    }

    /// A dimension of value `v`, mostly the last.
    fn dim(&mut self, v: usize) -> i64 {
        let rank = self.sizes_of(v).len().max(1);
        if self.rng.chance(70) { -1 } else { self.rng.below(rank) as i64 }
    }

    fn add_call(&mut self) -> bool {
        let call = self.call();
        let mut values = self.values.clone();
        let is_small = |v: &Value| match v {
            Value::Tensor(t) => t.numel().as_i64().is_some_and(|n| n <= 4 * MAX_ELEMENTS),
            _ => false,
        };
        // Writes of a refused call would stay, so that only functional calls are tried freely.
        if call.run(&mut values).is_err() || !values.iter().all(is_small) {
            return false;
        }
        self.results.push(values.len() - self.values.len());
        self.values = values;
        self.chain.calls.push(call);
        true
    }

    fn call(&mut self) -> Call {
        use Argument::{Bool, Float, Int, Ints, None, Value as V, Values};
        let v = self.any();
        let one = |op: &'static str, args: Vec<Argument>| Call { op, args };
        match self.rng.below(32) {
            0..=5 => {
                let op = self.rng.one(&UNARY).unwrap_or("aten::neg");
                one(op, vec![V(v)])
            }
            6..=13 => {
                let op = self.rng.one(&BINARY).unwrap_or("aten::add.Tensor");
                let (v, u) = self.partner(v);
                match self.rng.chance(50) {
                    true => one(op, vec![V(v), V(u)]),
                    false => one(op, vec![V(u), V(v)]),
                }
            }
            14 => one("aten::add.Scalar", vec![V(v), Float(0.625)]),
            15 => one("aten::mul.Scalar", vec![V(v), Float(-0.3)]),
            16 => {
                let dtype = self.dtype();
                one("aten::_to_copy", vec![V(v), Argument::DType(dtype)])
            }
            17 | 18 => {
                let (dim, op) =
                    (self.dim(v), self.rng.one(&["aten::_softmax", "aten::_log_softmax"]));
                one(op.unwrap_or("aten::_softmax"), vec![V(v), Int(dim), Bool(false)])
            }
            19..=21 => {
                let ops = [
                    "aten::sum.dim_IntList",
                    "aten::mean.dim",
                    "aten::amax",
                    "aten::amin",
                    "aten::logsumexp",
                ];
                let op = self.rng.one(&ops).unwrap_or("aten::amax");
                let (dim, keep) = (self.dim(v), self.rng.chance(60));
                one(op, vec![V(v), Ints(vec![dim]), Bool(keep)])
            }
            22 | 23 => {
                let Some(&last) = self.sizes_of(v).last() else {
                    return one("aten::neg", vec![V(v)]);
                };
                let dtype = self.tensor(v).map_or(DType::F32, Tensor::dtype);
                let w = self.input(dtype, vec![last], false);
                let v = if v >= w { v + 1 } else { v };
                let bias = if self.rng.chance(50) { V(w) } else { None };
                one(
                    "aten::native_layer_norm",
                    vec![V(v), Ints(vec![last]), V(w), bias, Float(1e-5)],
                )
            }
            24 => {
                let dim = self.dim(v);
                one("aten::cumsum", vec![V(v), Int(dim)])
            }
            25 => {
                let (a, b) = (self.dim(v), self.dim(v));
                one("aten::transpose.int", vec![V(v), Int(a), Int(if a == b { 0 } else { b })])
            }
            26 => {
                let dim = self.dim(v);
                one("aten::unsqueeze", vec![V(v), Int(dim)])
            }
            27 => {
                let dim = self.dim(v);
                let (from, step) = (self.rng.below(3) as i64, 1 + self.rng.below(2) as i64);
                one("aten::slice.Tensor", vec![V(v), Int(dim), Int(from), None, Int(step)])
            }
            28 => {
                let sizes = self.sizes_of(v);
                let Some(&k) = sizes.last() else { return one("aten::neg", vec![V(v)]) };
                let n = self.rng.one(&EXTENTS).unwrap_or(4).min(65);
                let dtype = self.tensor(v).map_or(DType::F32, Tensor::dtype);
                let w = self.input(dtype, vec![n, k], false);
                let v = if v >= w { v + 1 } else { v };
                one("aten::linear", vec![V(v), V(w)])
            }
            29 => {
                let (v, u) = self.partner(v);
                one("aten::cat", vec![Values(vec![v, u]), Int(-1)])
            }
            30 => {
                let op = self.rng.one(&IN_PLACE).unwrap_or("aten::copy_");
                let (v, u) = self.partner(v);
                one(op, vec![V(v), V(u)])
            }
            _ => {
                let (v, u) = self.partner(v);
                let inputs = self.chain.inputs.len();
                let (v, w) = self.partner(v);
                // A new input moves the values behind it.
                let moved = self.chain.inputs.len() > inputs && u >= w;
                one("aten::addcmul", vec![V(v), V(u + usize::from(moved)), V(w)])
            }
        }
    }

    /// The chain. It returns the last value, and something of each call of which no call reads
    /// anything: a compiled program leaves out what nobody sees, failures included.
    fn finish(mut self) -> Chain {
        let mut reads: Vec<usize> = Vec::new();
        for arg in self.chain.calls.iter().flat_map(|call| &call.args) {
            match arg {
                Argument::Value(v) => reads.push(*v),
                Argument::Values(all) => reads.extend(all),
                _ => {}
            }
        }
        let n = self.values.len();
        let mut outputs = vec![n.saturating_sub(1)];
        let mut first = self.chain.inputs.len();
        for results in &self.results {
            let is_read = |v: &usize| reads.contains(v) || outputs.contains(v);
            if !(first..first + results).any(|v| is_read(&v)) {
                outputs.push(first);
            }
            first += results;
        }
        if self.rng.chance(30) {
            outputs.push(self.rng.below(n));
        }
        outputs.dedup();
        self.chain.outputs = outputs;
        self.chain
    }
}
