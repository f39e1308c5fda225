//! Random products with what follows them: epilogues on rectangles, later phases, packed factors.

use super::agrees;
use super::planned::planned;
use super::random::Random;
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::{
    Array, Axes, AxisId, IndexMap, LoopBuilder, LoopError, Source, StageBuilder, StageId,
    StageKind, StageOutput,
};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, Reg, UnaryOp};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::{DType, Scalar};
use std::collections::BTreeMap;

/// What a campaign has to cover.
const COVERED: [&str; 22] = [
    "chain",
    "plain factor",
    "transposed factor",
    "narrow factor",
    "computed factor",
    "batch",
    "several axes",
    "one row",
    "vector",
    "wide",
    "long",
    "on rectangles",
    "several on rectangles",
    "later phase",
    "reduction",
    "kept sums",
    "fails",
    "second product",
    "same factor",
    "in step",
    "packed",
    "values of operands",
];

struct Generator {
    random: Random,
    nest: LoopBuilder,
    operands: Vec<Array>,
    /// Values of operands, computed before the first product, and their axes.
    ahead: Option<(StageId, Vec<AxisId>)>,
    used: Vec<&'static str>,
}

impl Generator {
    fn axes(&mut self, extent: i64) -> Vec<AxisId> {
        if extent > 1 && extent % 2 == 0 && self.random.chance(6) {
            self.used.push("several axes");
            return [2, extent / 2].map(|n| self.nest.axis(Expr::Int(n))).into();
        }
        vec![self.nest.axis(Expr::Int(extent))]
    }

    fn extents(&self, axes: &[AxisId]) -> Vec<i64> {
        let extent = |a: &AxisId| match self.nest.nest().extent(*a) {
            Expr::Int(n) => n,
            _ => 0,
        };
        axes.iter().map(extent).collect()
    }

    /// An operand over some axes.
    fn operand(&mut self, dtype: DType, axes: &[AxisId]) -> Source {
        let sizes = self.extents(axes);
        let numel = sizes.iter().product::<i64>() as usize;
        let random = &mut self.random;
        let mut element = |_| match dtype.is_float() {
            true if random.chance(5000) => Scalar::Float(f64::NAN),
            true => Scalar::Float(random.below(4099) as f64 / 512.0 - 4.0),
            false => Scalar::Int(random.below(7) as i64),
        };
        let elements: Vec<Scalar> = (0..numel).map(&mut element).collect();
        self.operands.push(Array::new(dtype, &sizes, elements).expect("fits"));
        let sizes: Vec<Expr> = sizes.into_iter().map(Expr::Int).collect();
        self.nest.operand(dtype, &sizes).into()
    }

    /// A factor over some axes and the contracted ones: how it is loaded, and computed.
    fn factor(&mut self, dtype: DType, own: &[AxisId], along: &[AxisId]) -> Factor {
        let is_narrow = dtype == DType::F32 && self.random.chance(5);
        let narrow = if self.random.chance(2) { DType::BF16 } else { DType::F16 };
        let stored = if is_narrow { narrow } else { dtype };
        let is_transposed = self.random.chance(2);
        let axes: Axes = match is_transposed {
            true => along.iter().chain(own).copied().collect(),
            false => own.iter().chain(along).copied().collect(),
        };
        let from = self.operand(stored, &axes);
        let is_computed = self.random.chance(6);
        self.used.push(match (is_computed, is_narrow, is_transposed) {
            (true, ..) => "computed factor",
            (_, true, _) => "narrow factor",
            (.., true) => "transposed factor",
            _ => "plain factor",
        });
        Factor { from, at: IndexMap::from(&axes[..]), dtype, is_computed }
    }

    /// A contraction of a factor that is given, or of an operand, with one over new columns.
    fn product(
        &mut self,
        dtype: DType,
        given: Option<Factor>,
        lead: &[AxisId],
        rows: &[AxisId],
        along: &[AxisId],
        columns: &[AxisId],
    ) -> Result<StageId, LoopError> {
        let of = |own: &[AxisId]| -> Vec<AxisId> { lead.iter().chain(own).copied().collect() };
        let left = match given {
            Some(factor) => factor,
            None => self.factor(dtype, &of(rows), along),
        };
        // The weights are common to all products of a batch at times.
        let own = if self.random.chance(3) { columns.to_vec() } else { of(columns) };
        let right = self.factor(dtype, &own, along);
        let all = lead.iter().chain(rows).chain(columns).chain(along);
        let over: Axes = all.copied().collect();
        let along: Axes = along.iter().copied().collect();
        self.nest.stage(&over, StageKind::Contract { along }, |s| {
            Ok(vec![left.value(s)?, right.value(s)?])
        })
    }

    /// A map over some axes of earlier stages over them and of new operands.
    fn map(
        &mut self,
        axes: &[AxisId],
        before: &[(StageId, DType)],
        [rows, columns]: [&[AxisId]; 2],
    ) -> Result<(StageId, DType), LoopError> {
        let dtype = before[0].1;
        let mut loads: Vec<(Source, IndexMap)> = Vec::new();
        let last = before.len() - 1;
        let latest = if self.random.chance(4) { self.random.below(before.len()) } else { last };
        loads.push((before[latest].0.into(), IndexMap::from(axes)));
        for _ in 0..self.random.below(3) {
            let own: Vec<AxisId> = match self.random.below(6) {
                0 => rows.to_vec(),
                1 | 2 => columns.to_vec(),
                3 => axes.iter().rev().copied().collect(),
                4 => Vec::new(),
                _ => axes.to_vec(),
            };
            let narrow = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
            let stored = if self.random.chance(4) { narrow } else { dtype };
            loads.push((self.operand(stored, &own), IndexMap::from(&own[..])));
        }
        if let Some((stage, own)) = self.ahead.clone()
            && own.iter().all(|axis| axes.contains(axis))
            && !self.random.chance(4)
        {
            loads.push((stage.into(), IndexMap::from(&own[..])));
        }
        let mut random = Random::new(self.random.below(1 << 30) as u64);
        let gather = random.chance(6).then(|| self.gathered(dtype, columns));
        let out = match self.random.below(8) {
            0 if dtype == DType::F32 => DType::BF16,
            _ => dtype,
        };
        let stage = self.nest.map(axes, |s| {
            let mut regs = Vec::new();
            for (from, at) in &loads {
                let x = s.load(*from, at.clone())?;
                regs.push(s.expr.cast(x, dtype)?);
            }
            if let Some((table, index, at)) = gather {
                let position = s.load(index, at)?;
                let map: IndexMap = [maquette_ir::loops::Index::Computed].into_iter().collect();
                regs.push(s.read(table, map, &[position], Bounds::Fails, None)?);
            }
            if random.chance(4) {
                let coord = s.coord(axes[random.below(axes.len())]);
                regs.push(s.expr.cast(coord, dtype)?);
            }
            // All loads are used.
            let mut x = regs[0];
            for y in &regs[1..] {
                let op = random.pick(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Max]);
                x = s.expr.binary(op, x, *y)?;
            }
            if random.chance(2) {
                x = s.expr.unary(random.pick(&[UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Neg]), x)?;
            }
            s.expr.cast(x, out).map_err(LoopError::from)
        })?;
        Ok((stage, out))
    }

    /// A table, and positions in it by columns. Some are outside.
    fn gathered(&mut self, dtype: DType, columns: &[AxisId]) -> (Source, Source, IndexMap) {
        let size = 7 - i64::from(self.random.chance(3));
        let elements: Vec<Scalar> = (0..size).map(|i| Scalar::Float(i as f64)).collect();
        self.operands.push(Array::new(dtype, &[size], elements).expect("fits"));
        let table = self.nest.operand(dtype, &[Expr::Int(size)]).into();
        let index = self.operand(DType::I64, columns);
        (table, index, IndexMap::from(columns))
    }

    fn build(&mut self) -> Result<Vec<StageOutput>, LoopError> {
        let dtype = if self.random.chance(5) { DType::F64 } else { DType::F32 };
        let batch = if self.random.chance(5) { 2 } else { 1 };
        let [mut m, mut n, mut k] =
            [self.random.below(20), self.random.below(70), self.random.below(40)];
        match self.random.below(8) {
            0 => {
                self.used.push("one row");
                (m, n, k) = (1, 64 + self.random.below(300), 64 + self.random.below(30));
            }
            1 => {
                self.used.push("wide");
                (m, n, k) =
                    (self.random.below(90), 64 + self.random.below(500), 64 + self.random.below(9));
                n = n.min(30_000 / m.max(1));
            }
            2 => {
                self.used.push("long");
                k = self.random.pick(&[512, 513, 1030, 2050, 2600]);
                (m, n) = (self.random.below(20), self.random.below(40));
            }
            3 => {
                self.used.push("vector");
                n = self.random.below(4);
                m = self.random.below(200);
            }
            _ => {}
        }
        let mut lead = Vec::new();
        if batch > 1 {
            self.used.push("batch");
            lead.push(self.nest.axis(Expr::Int(batch)));
        }
        let [rows, columns, along] = [m, n, k].map(|n| self.axes(n as i64));
        let all: Vec<AxisId> = lead.iter().chain(&rows).copied().collect();
        if self.random.chance(3) {
            let own = if self.random.chance(4) { rows.clone() } else { columns.clone() };
            let [a, b] = [0; 2].map(|_| self.operand(dtype, &own));
            let stage = self.nest.map(&own, |s| {
                let at = IndexMap::from(&own[..]);
                let (x, y) = (s.load(a, at.clone())?, s.load(b, at)?);
                let sum = s.expr.binary(BinaryOp::Add, x, y)?;
                s.expr.unary(UnaryOp::Tanh, sum).map_err(LoopError::from)
            })?;
            self.ahead = Some((stage, own));
        }
        let left = self.factor(dtype, &all, &along);
        let sums = self.product(dtype, Some(left.clone()), &lead, &rows, &along, &columns)?;
        let axes: Vec<AxisId> = lead.iter().chain(&rows).chain(&columns).copied().collect();
        let mut stages = vec![(sums, dtype)];
        let mut results: Vec<StageOutput> = Vec::new();
        for _ in 0..self.random.below(4) {
            if self.random.chance(3) {
                results.push(stages[self.random.below(stages.len())].0.into());
            }
            let stage = self.map(&axes, &stages, [&rows, &columns])?;
            // What is narrow is only cast back.
            if stage.1 == dtype {
                stages.push(stage);
            } else {
                results.push(stage.0.into());
            }
        }
        let last = stages[stages.len() - 1].0;
        match self.random.below(6) {
            0 => {
                self.used.push("reduction");
                let kept: Vec<AxisId> = lead.iter().chain(&rows).copied().collect();
                let sum = self.nest.reduce(&axes, &columns, Fold::Sum, Order::Lanes, |s| {
                    s.load(last, IndexMap::from(&axes[..]))
                })?;
                let mean = self.nest.map(&axes, |s| {
                    let x = s.load(last, IndexMap::from(&axes[..]))?;
                    let sum = s.load(sum, IndexMap::from(&kept[..]))?;
                    Ok(s.expr.binary(BinaryOp::Sub, x, sum)?)
                })?;
                results.push(mean.into());
            }
            1 => {
                self.used.push("second product");
                let at = IndexMap::from(&axes[..]);
                let left = Factor { from: last.into(), at, dtype, is_computed: false };
                let more = self.random.below(50) as i64;
                let new = self.axes(more);
                let sums = self.product(dtype, Some(left), &lead, &rows, &columns, &new)?;
                let axes: Vec<AxisId> = lead.iter().chain(&rows).chain(&new).copied().collect();
                let (last, _) = self.map(&axes, &[(sums, dtype)], [&rows, &new])?;
                results.push(last.into());
            }
            2 | 3 => {
                self.used.push("same factor");
                results.push(last.into());
                // Maps of the second product may read what the first one has at their places.
                let in_step = !self.random.chance(3);
                let more = self.random.below(90) as i64;
                let new = if in_step { columns.clone() } else { self.axes(more) };
                let sums = self.product(dtype, Some(left), &lead, &rows, &along, &new)?;
                let mut before = vec![(sums, dtype)];
                if in_step {
                    before.extend(stages.last());
                    results.push(sums.into());
                }
                let axes: Vec<AxisId> = lead.iter().chain(&rows).chain(&new).copied().collect();
                let (last, _) = self.map(&axes, &before, [&rows, &new])?;
                results.push(last.into());
            }
            _ => results.push(last.into()),
        }
        if results.contains(&sums.into()) {
            self.used.push("kept sums");
        }
        Ok(results)
    }
}

#[derive(Clone)]
struct Factor {
    from: Source,
    at: IndexMap,
    dtype: DType,
    is_computed: bool,
}

impl Factor {
    fn value(&self, s: &mut StageBuilder<'_>) -> Result<Reg, LoopError> {
        let x = s.load(self.from, self.at.clone())?;
        let x = s.expr.cast(x, self.dtype)?;
        Ok(if self.is_computed { s.expr.unary(UnaryOp::Neg, x)? } else { x })
    }
}

fn campaign(seeds: std::ops::Range<u64>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let nest = LoopBuilder::new(SymTable::new());
        let random = Random::new(seed);
        let mut generator =
            Generator { random, nest, operands: Vec::new(), ahead: None, used: Vec::new() };
        let results = generator.build().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let Generator { nest, operands, mut used, .. } = generator;
        let nest = nest.finish(&results).expect("stages exist");
        let run = || agrees(&nest, &operands, &[]);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let error = run.unwrap_or_else(|_| panic!("seed {seed}"));
        if error.is_some() {
            used.push("fails");
        }
        planned(&nest, &operands, &mut used);
        used.sort_unstable();
        used.dedup();
        used.iter().for_each(|what| *counts.entry(*what).or_default() += 1);
    }
    counts
}

#[test]
fn random_products_agree_with_the_reference() {
    let seeds = std::env::var("MAQUETTE_NESTS").ok().and_then(|n| n.parse().ok());
    let seeds: u64 = seeds.unwrap_or(250);
    let counts = campaign(0..seeds);
    println!("{counts:?}");
    // 500 of each in 25,000 products
    for what in COVERED {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(count >= seeds / 50, "only {count} of {what}");
    }
}
