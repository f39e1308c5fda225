//! Random calls of named nests: each specialisation against the generic executor and the reference.

use super::random::{EXTENTS, LARGE, Random};
use super::{LoopKernel, agrees_at, has_special_plan, special};
use crate::without_specialisations;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{
    self, Addend, Correction, Input, Number, Product, Reduced, Reduction, RowNorm,
};
use maquette_ir::loops::{Array, LoopBuilder, LoopError, LoopNest, StageOutput};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};
use std::collections::BTreeMap;

type Results = Result<Vec<StageOutput>, LoopError>;

/// The specialisations that a campaign has to cover.
const COVERED: [&str; 15] = [
    "softmax",
    "reduce",
    "extreme",
    "layer_norm",
    "variance",
    "norm",
    "product",
    "convolution",
    "attention",
    "scan",
    "fill",
    "copy",
    "select",
    "pad",
    "triangle",
];

/// Those of them that have plans.
const PLANNED: [&str; 7] = ["softmax", "reduce", "layer_norm", "product", "fill", "copy", "select"];

const DTYPES: [DType; 8] = [
    DType::F32,
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::Bool,
];
const FLOATS: [DType; 5] = [DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16];
const SPECIAL: [f64; 8] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e-40, -3e38, 65504.0];

/// A call of a nest. Sizes are symbols in the order in which operands and axes were made.
struct Case {
    random: Random,
    nest: LoopBuilder,
    symbols: Vec<i64>,
    operands: Vec<Array>,
    numbers: Vec<Scalar>,
}

impl Case {
    fn element(&mut self, dtype: DType) -> Scalar {
        let x = match self.random.chance(20) {
            true => self.random.pick(&SPECIAL),
            false => self.random.below(4099) as f64 / 512.0 - 4.0,
        };
        match dtype {
            DType::Bool => Scalar::Bool(x > 0.0),
            d if d.is_float() => Scalar::Float(x),
            _ => Scalar::Int(x as i64),
        }
    }

    /// Random sizes with few elements.
    fn sizes(&mut self, rank: usize) -> Vec<i64> {
        let mut points = 1;
        let mut sizes = Vec::new();
        for _ in 0..rank {
            let mut size = self.random.pick(&EXTENTS);
            if points == 1 && self.random.chance(12) {
                size = self.random.pick(&LARGE);
            }
            if points * size.max(1) > 4000 {
                size = 1 + self.random.below(2) as i64;
            }
            points *= size.max(1);
            sizes.push(size);
        }
        sizes
    }

    fn input(&mut self, dtype: DType, sizes: &[i64]) -> Input {
        let numel = sizes.iter().product::<i64>() as usize;
        let elements: Vec<Scalar> = (0..numel).map(|_| self.element(dtype)).collect();
        self.input_of(dtype, sizes, elements)
    }

    fn input_of(&mut self, dtype: DType, sizes: &[i64], elements: Vec<Scalar>) -> Input {
        self.symbols.extend(sizes);
        self.operands.push(Array::new(dtype, sizes, elements).expect("fits"));
        self.nest.input(dtype, sizes.len())
    }

    fn any_input(&mut self, dtypes: &[DType], least_rank: usize) -> (Input, Vec<i64>) {
        let rank = least_rank + self.random.below(4);
        let sizes = self.sizes(rank);
        let dtype = self.random.pick(dtypes);
        (self.input(dtype, &sizes), sizes)
    }

    /// Builds a reduction of a random operand along random axes. The operators refuse an extreme of
    /// no elements, so the operand has some.
    fn reduced(
        &mut self,
        dtypes: &[DType],
        build: impl FnOnce(&mut Random, &mut LoopBuilder, Reduced<'_>) -> Results,
    ) -> Results {
        let rank = 1 + self.random.below(4);
        let sizes: Vec<i64> = self.sizes(rank).into_iter().map(|n| n.max(1)).collect();
        let dtype = self.random.pick(dtypes);
        let x = self.input(dtype, &sizes);
        let along: Vec<_> = x.axes.iter().copied().filter(|_| self.random.chance(2)).collect();
        let of = Reduced { x: &x, along: &along, keep: self.random.chance(2), out: x.dtype };
        build(&mut self.random, &mut self.nest, of)
    }

    fn build(&mut self, what: &str) -> Results {
        match what {
            "softmax" => {
                let (x, _) = self.any_input(&FLOATS, 1);
                let along = self.random.pick(&x.axes);
                let build = if self.random.chance(2) { named::softmax } else { named::log_softmax };
                Ok(vec![build(&mut self.nest, &x, along, x.dtype)?.into()])
            }
            "reduce" => self.reduced(&DTYPES, |random, nest, of| {
                let op = random.pick(&Reduction::ALL);
                let out = match op {
                    Reduction::Any | Reduction::All => DType::Bool,
                    Reduction::ArgMin | Reduction::ArgMax => DType::I64,
                    Reduction::Mean if !of.out.is_float() => DType::F32,
                    Reduction::Sum | Reduction::Prod if of.out == DType::Bool => DType::I64,
                    _ => of.out,
                };
                Ok(vec![named::reduce(nest, op, Reduced { out, ..of })?])
            }),
            "extreme" => self.reduced(&DTYPES, |random, nest, of| {
                Ok(named::extreme(nest, random.chance(2), of)?.to_vec())
            }),
            "variance" => {
                let number = Scalar::Float(self.random.below(4) as f64 / 2.0);
                self.numbers.push(number);
                self.reduced(&FLOATS, |random, nest, of| {
                    let correction = Correction::Number(nest.number(DType::F64));
                    Ok(named::variance_and_mean(nest, of, correction, random.chance(2))?.to_vec())
                })
            }
            "norm" => self.reduced(&FLOATS, |random, nest, of| {
                let powers = [0.0, 1.0, 2.0, 2.0, 3.0, -0.5, f64::INFINITY, f64::NEG_INFINITY];
                Ok(vec![named::vector_norm(nest, of, random.pick(&powers))?])
            }),
            "layer_norm" => self.layer_norm(),
            "product" => self.product(),
            "fill" => {
                let dtype = self.random.pick(&DTYPES);
                let (value, rank) = (self.element(dtype), self.random.below(4));
                let number = match self.random.chance(2) {
                    true => {
                        self.numbers.push(value);
                        Number::Launch(self.nest.number(dtype))
                    }
                    false => Number::Constant(value),
                };
                let over = self.axes(rank);
                Ok(vec![named::fill(&mut self.nest, &over, number, dtype)?.into()])
            }
            "copy" => {
                let (x, _) = self.any_input(&DTYPES, 0);
                let out = self.random.pick(&DTYPES);
                Ok(vec![named::copy(&mut self.nest, &x, out)?.into()])
            }
            "select" => self.select(),
            "pad" => self.pad(),
            "scan" => {
                let (x, _) = self.any_input(&DTYPES, 1);
                let along = self.random.pick(&x.axes);
                if self.random.chance(2) {
                    let max = self.random.chance(2);
                    return Ok(named::cumulative_extreme(&mut self.nest, &x, along, max)?.to_vec());
                }
                let out = if x.dtype == DType::Bool { DType::I64 } else { x.dtype };
                let fold = if self.random.chance(2) { Fold::Sum } else { Fold::Prod };
                Ok(vec![named::scan(&mut self.nest, &x, along, fold, out)?])
            }
            _ => {
                let (x, _) = self.any_input(&DTYPES, 2);
                let diagonal = self.nest.number(DType::I64);
                self.numbers.push(Scalar::Int(self.random.below(13) as i64 - 6));
                let lower = self.random.chance(2);
                Ok(vec![named::triangle(&mut self.nest, &x, lower, diagonal)?.into()])
            }
        }
    }

    fn axes(&mut self, rank: usize) -> Vec<maquette_ir::loops::AxisId> {
        let sizes = self.sizes(rank);
        self.symbols.extend(&sizes);
        sizes
            .iter()
            .map(|_| {
                let size = self.nest.new_size();
                self.nest.axis(size)
            })
            .collect()
    }

    fn layer_norm(&mut self) -> Results {
        let (x, sizes) = self.any_input(&FLOATS, 1);
        let normalized = 1 + self.random.below(sizes.len());
        let statistics = match self.random.chance(2) {
            true => x.dtype,
            false => x.dtype.accumulator(),
        };
        let parameter = |case: &mut Case| {
            let is_given = case.random.chance(2);
            is_given.then(|| case.input(statistics, &sizes[sizes.len() - normalized..]))
        };
        let (weight, bias) = (parameter(self), parameter(self));
        let eps = Some(self.nest.number(x.dtype.accumulator()));
        self.numbers.push(Scalar::Float(1e-5));
        let (weight, bias) = (weight.as_ref(), bias.as_ref());
        let of = RowNorm { x: &x, normalized, weight, bias, eps, statistics };
        Ok(named::layer_norm(&mut self.nest, of)?.to_vec())
    }

    fn product(&mut self) -> Results {
        let (rank_a, rank_b, batch) =
            self.random.pick(&[(2, 2, 0), (3, 3, 1), (2, 1, 0), (1, 1, 0), (1, 2, 0)]);
        let dtype = self.random.pick(&DTYPES[..7]);
        let size = |case: &mut Case, most| match case.random.chance(20) {
            true => case.random.pick(&[0, 600, 1030]),
            false => case.random.below(most) as i64,
        };
        let k = size(self, 70);
        let [m, n] = [0, 1].map(|_| if k > 100 { 2 } else { self.random.below(40) as i64 });
        let lead = &[2][..batch];
        let of = |own: &[i64]| [lead, own].concat();
        let (is_row, is_column) = (rank_a == batch + 1, rank_b == batch + 1);
        let a = self.input(dtype, &of(&[m, k][usize::from(is_row)..]));
        let b = self.input(dtype, &of(&[k, n][..rank_b - batch]));
        let product = Product { a: &a, b: &b, batch, alpha: None, addend: None, out: dtype };
        if self.random.chance(2) || k == 0 {
            return Ok(vec![named::product(&mut self.nest, &product)?]);
        }
        let own: Vec<i64> = [m].into_iter().filter(|_| !is_row).collect();
        let own = own.into_iter().chain([n].into_iter().filter(|_| !is_column));
        let c = self.input(dtype, &of(&own.collect::<Vec<_>>()));
        let [alpha, beta] = [3, -2].map(|x| {
            self.numbers.push(Scalar::Int(x));
            self.nest.number(dtype.accumulator())
        });
        let product =
            Product { alpha: Some(alpha), addend: Some(Addend { beta, of: &c }), ..product };
        Ok(vec![named::product(&mut self.nest, &product)?])
    }

    /// A selection of slices, or of elements. Some indices are outside the operand.
    fn select(&mut self) -> Results {
        let (x, sizes) = self.any_input(&DTYPES, 1);
        let dim = self.random.below(sizes.len());
        let is_gather = self.random.chance(2);
        let mut of_index = match is_gather {
            true => sizes.iter().map(|n| self.random.below(*n as usize + 1) as i64).collect(),
            false => {
                let rank = self.random.below(3);
                vec![3; rank]
            }
        };
        if is_gather {
            of_index[dim] = self.random.below(5) as i64;
        }
        let index = self.random.pick(&[DType::I64, DType::I32]);
        let numel = of_index.iter().product::<i64>() as usize;
        let past = usize::from(self.random.chance(8));
        let last = sizes[dim] as usize + past;
        let elements = (0..numel).map(|_| Scalar::Int(self.random.below(last) as i64)).collect();
        let at = self.input_of(index, &of_index, elements);
        let build = if is_gather { named::gather } else { named::select };
        Ok(vec![build(&mut self.nest, &x, dim, &at)?.into()])
    }

    fn pad(&mut self) -> Results {
        let (x, sizes) = self.any_input(&DTYPES, 1);
        let dims: Vec<usize> = (0..sizes.len()).filter(|_| self.random.chance(2)).take(4).collect();
        let before: Vec<_> = dims.iter().map(|d| (*d, self.nest.number(DType::I64))).collect();
        let value = self.element(x.dtype);
        let value = match self.random.chance(2) {
            true => Number::Launch(self.nest.number(x.dtype)),
            false => Number::Constant(value),
        };
        let mut padded = sizes.clone();
        for &d in &dims {
            let first = self.random.below(5) as i64 - 2;
            let last = self.random.below(5) as i64 - 2;
            padded[d] = (padded[d] + first + last).max(0);
            self.numbers.push(Scalar::Int(first));
        }
        if let Number::Launch(_) = value {
            let value = self.element(x.dtype);
            self.numbers.push(value);
        }
        self.symbols.extend(&padded);
        let axes = padded.iter().map(|_| {
            let size = self.nest.new_size();
            self.nest.axis(size)
        });
        let over: Vec<_> = axes.collect();
        Ok(vec![named::pad(&mut self.nest, &x, &over, &before, value)?.into()])
    }
}

/// The calls that each specialisation took, and those for which it has a plan.
type Counts = BTreeMap<&'static str, u64>;

/// Runs random calls, and counts them.
fn campaign(seeds: std::ops::Range<u64>) -> [Counts; 2] {
    let [mut counts, mut planned] = [Counts::new(), Counts::new()];
    for seed in seeds {
        let mut case = Case {
            random: Random::new(seed),
            nest: LoopBuilder::new(SymTable::new()),
            symbols: Vec::new(),
            operands: Vec::new(),
            numbers: Vec::new(),
        };
        let what = case.random.pick(&COVERED);
        let whole: Option<fn(&mut Random)> = match what {
            "convolution" => Some(special::convolution::random_call),
            "attention" => Some(special::attention::random_call),
            _ => None,
        };
        if let Some(call) = whole {
            let run = || call(&mut case.random);
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            run.unwrap_or_else(|_| panic!("seed {seed}: {what}"));
            *counts.entry(what).or_default() += 1;
            continue;
        }
        let results = case.build(what).unwrap_or_else(|e| panic!("seed {seed}: {what}: {e}"));
        let Case { nest, symbols, operands, numbers, .. } = case;
        let nest: LoopNest = nest.finish(&results).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let run = || agrees_at(&nest, &symbols, &operands, &numbers);
        let both = || (without_specialisations(run), run());
        let both = std::panic::catch_unwind(std::panic::AssertUnwindSafe(both));
        let (generic, specialised) = both.unwrap_or_else(|_| panic!("seed {seed}: {what}"));
        assert_eq!(generic, specialised, "seed {seed}: {what}");
        let is_planned = has_special_plan(&nest, &symbols, &operands, &numbers);
        let name = LoopKernel::new(nest).specialisation();
        let name = COVERED.iter().find(|known| Some(**known) == name);
        let name = name.copied().unwrap_or("none");
        *counts.entry(name).or_default() += 1;
        *planned.entry(name).or_default() += u64::from(is_planned);
    }
    [counts, planned]
}

#[test]
fn random_calls_of_named_nests_agree() {
    let seeds = std::env::var("MAQUETTE_NESTS").ok().and_then(|n| n.parse().ok());
    let seeds: u64 = seeds.unwrap_or(1000);
    let [counts, planned] = campaign(0..seeds);
    println!("{counts:?}, of them with plans {planned:?}");
    // 500 of each in 100,000 calls
    for what in COVERED {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(count >= seeds / 200, "only {count} of {what}");
        let has_plans = planned.get(what).is_some_and(|count| *count >= seeds / 500);
        assert_eq!(has_plans, PLANNED.contains(&what), "{what}: {planned:?}");
    }
}
