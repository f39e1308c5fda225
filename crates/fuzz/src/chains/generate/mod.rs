//! The generator of chains.
//!
//! A call is drawn from a table of patterns, which take values that the chain has, or new inputs
//! that fit them. The operator is called eagerly on the spot: if it refuses the arguments, another
//! one is drawn.

mod followers;
mod gathers;
mod images;
mod patterns;
mod siblings;

use super::{Argument, Call, Chain, Input, library};
use maquette_check::Rng;
use maquette_ir::DType;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Result, Tensor, Value};

/// Extents around the lengths of blocks, lanes and chunks of the kernels.
const EXTENTS: [i64; 22] =
    [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 257, 1_023, 1_025, 2_049];

/// The most elements of a tensor.
const MAX_ELEMENTS: i64 = 40_000;

/// How many chains in a hundred are networks of images.
const NETWORKS: usize = 15;

/// How often another call is tried where one is refused.
const ATTEMPTS: usize = 8;

/// The operators that may fail, depending on data.
const MAY_FAIL: [&str; 6] = [
    "aten::remainder.Tensor",
    "aten::remainder.Scalar",
    "aten::index_select",
    "aten::bernoulli",
    "aten::embedding",
    "aten::gather",
];

const FLOATS: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F64];

struct Generator {
    chain: Chain,
    values: Vec<Value>,
    /// By call: how many tensors it returns.
    results: Vec<usize>,
    /// The tensors that depend on a call that may fail.
    uncertain: Vec<Tensor>,
    rng: Rng,
    batch: i64,
}

/// Chain `index` of a seed.
///
/// # Errors
/// The operators of the chains cannot be registered.
pub fn generate(seed: u64, index: u64) -> Result<Chain> {
    library::register()?;
    let mut rng = Rng::new(seed, index);
    let is_network = rng.chance(NETWORKS);
    let batch = match is_network {
        true => 1 + rng.below(3) as i64,
        false => rng.one(&EXTENTS).unwrap_or(4).min(257),
    };
    let chain = Chain { inputs: Vec::new(), calls: Vec::new(), outputs: Vec::new() };
    let mut generator = Generator {
        chain,
        values: Vec::new(),
        results: Vec::new(),
        uncertain: Vec::new(),
        rng,
        batch,
    };
    let (dtype, sizes) = match is_network {
        true => generator.image(),
        false => {
            let sizes = generator.sizes();
            (generator.dtype(), sizes)
        }
    };
    generator.input(dtype, sizes, true);
    // Whether an operator refuses its arguments may depend on random numbers.
    apart(&mut Philox { seed, offset: 0 }, || {
        let calls = match is_network {
            true => {
                generator.network();
                generator.rng.below(3)
            }
            false => 2 + generator.rng.below(7),
        };
        for _ in 0..calls {
            (0..ATTEMPTS).any(|_| generator.add_call());
        }
    });
    Ok(generator.finish())
}

impl Generator {
    fn sizes(&mut self) -> Vec<i64> {
        let mut sizes = vec![self.batch];
        for _ in 0..self.rng.below(4) {
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
        let input = Input { dtype, sizes, is_batched };
        let tensor = input.make(&mut Rng::new(1, at as u64), None);
        self.chain.inputs.push(input);
        for arg in self.chain.calls.iter_mut().flat_map(|call| &mut call.args) {
            match arg {
                Argument::Value(v) if *v >= at => *v += 1,
                Argument::Values(all) => all.iter_mut().filter(|v| **v >= at).for_each(|v| *v += 1),
                _ => {}
            }
        }
        if let Ok(t) = tensor {
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

    /// Draws a call; whether the chain has it now.
    fn add_call(&mut self) -> bool {
        let call = self.call();
        self.take(call)
    }

    /// Adds a call, unless the operator refuses it or its results are large. What a refused call
    /// has written stays in the values, of which only the layouts matter.
    fn take(&mut self, call: Call) -> bool {
        let mut values = self.values.clone();
        let is_small = |v: &Value| match v {
            Value::Tensor(t) => t.numel().as_i64().is_some_and(|n| n <= 4 * MAX_ELEMENTS),
            _ => false,
        };
        let depends = self.is_uncertain(&call);
        // A program whose failing call is overwritten does not fail compiled.
        if depends && call.op == "aten::copy_" {
            return false;
        }
        let is_large = self.broadcast_elements(&call).is_some_and(|n| n > 4 * MAX_ELEMENTS);
        if is_large || call.run(&mut values).is_err() || !values.iter().all(is_small) {
            return false;
        }
        if depends || MAY_FAIL.contains(&call.op) {
            let results = &values[self.values.len()..];
            self.uncertain.extend(results.iter().filter_map(|v| v.tensor().ok().cloned()));
        }
        self.results.push(values.len() - self.values.len());
        self.values = values;
        self.chain.calls.push(call);
        true
    }

    /// How many elements the values of a call broadcast to; `None` if they do not broadcast. A
    /// column and a row are small, and may give billions.
    fn broadcast_elements(&self, call: &Call) -> Option<i64> {
        let mut all: Vec<i64> = Vec::new();
        for v in call.values() {
            let sizes = self.sizes_of(v);
            let missing = sizes.len().saturating_sub(all.len());
            all.splice(0..0, vec![1; missing]);
            for (n, size) in all.iter_mut().rev().zip(sizes.iter().rev()) {
                match (*n, *size) {
                    (a, b) if a == b || b == 1 => {}
                    (1, b) => *n = b,
                    _ => return None,
                }
            }
        }
        Some(all.iter().fold(1i64, |elements, n| elements.saturating_mul(*n)))
    }

    fn is_uncertain(&self, call: &Call) -> bool {
        let values = call.values();
        let mut tensors = values.iter().filter_map(|v| self.tensor(*v));
        tensors.any(|t| self.uncertain.iter().any(|u| u.shares_storage(t)))
    }

    /// The chain. It returns the last value, something of each call of which no call reads
    /// anything, and what is written last: a compiled program leaves out what nobody sees, failures
    /// included.
    fn finish(mut self) -> Chain {
        let calls = &self.chain.calls;
        let reads: Vec<Vec<usize>> = calls.iter().map(Call::values).collect();
        let is_read_from = |i: usize, v: usize| reads[i..].iter().any(|of| of.contains(&v));
        let n = self.values.len();
        let mut outputs = vec![n.saturating_sub(1)];
        let mut first = self.chain.inputs.len();
        for (i, results) in self.results.iter().enumerate() {
            let is_read = |v: usize| is_read_from(i + 1, v) || outputs.contains(&v);
            let written = calls[i].written().filter(|v| !is_read(*v));
            let unread = (!(first..first + results).any(is_read)).then_some(first);
            outputs.extend(written);
            outputs.extend(unread.filter(|_| *results > 0));
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
