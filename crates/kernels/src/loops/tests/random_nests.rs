//! Random nests: a few stages of every kind over a few axes.

mod computed;

use super::agrees;
use super::random::{EXTENTS, LARGE, Random};
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::scan::ScanOrder;
use maquette_ir::loops::{
    Affine, Array, AxisId, Index, IndexMap, LoopBuilder, LoopError, LoopNest, Source, StageBuilder,
    StageId, StageKind,
};
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, ExprBuilder, Reg, UnaryOp};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::{DType, Scalar};
use std::collections::BTreeMap;

/// What a campaign has to cover: kinds of stages, folds, policies of bounds, extents and outcomes.
const COVERED: [&str; 28] = [
    "map",
    "scan",
    "sort",
    "scatter",
    "contract",
    "reduce",
    "sum",
    "prod",
    "min",
    "max",
    "argmin",
    "argmax",
    "moments",
    "of",
    "sequential",
    "exact",
    "blocks",
    "wraps",
    "fails",
    "clamps",
    "else",
    "inside",
    "extent 0",
    "extent 1",
    "extent about 32",
    "extent about 1024",
    "extent about 2048",
    "nest fails",
];

struct Generator {
    random: Random,
    nest: LoopBuilder,
    axes: Vec<(AxisId, i64)>,
    operands: Vec<Array>,
    numbers: Vec<Scalar>,
    stages: Vec<StageId>,
    used: Vec<&'static str>,
}

const DTYPES: [DType; 8] = [
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::BF16,
    DType::Bool,
];

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let mut nest = LoopBuilder::new(SymTable::new());
        let mut axes = Vec::new();
        let mut points = 1;
        let mut used = Vec::new();
        for _ in 0..1 + random.below(4) {
            let mut extent = random.pick(&EXTENTS);
            if points == 1 && random.chance(25) {
                extent = random.pick(&LARGE);
            }
            if points * extent.max(1) > 5000 {
                extent = 2;
            }
            points *= extent.max(1);
            used.push(match extent {
                0 => "extent 0",
                1 => "extent 1",
                2..31 => "extent of a few",
                31..1000 => "extent about 32",
                1000..2000 => "extent about 1024",
                _ => "extent about 2048",
            });
            axes.push((nest.axis(Expr::Int(extent)), extent));
        }
        Generator {
            random,
            nest,
            axes,
            operands: Vec::new(),
            numbers: Vec::new(),
            stages: Vec::new(),
            used,
        }
    }

    fn extent(&self, axis: AxisId) -> i64 {
        self.axes[axis.index()].1
    }

    /// Some axes in some order.
    fn some_axes(&mut self) -> Vec<AxisId> {
        let mut axes: Vec<AxisId> = self.axes.iter().map(|(a, _)| *a).collect();
        for i in (1..axes.len()).rev() {
            let j = if self.random.chance(3) { self.random.below(i + 1) } else { i };
            axes.swap(i, j);
        }
        if self.random.chance(3) {
            axes.truncate(self.random.below(axes.len() + 1));
        }
        axes
    }

    /// An operand that a stage over these axes can read, with its index map.
    fn operand(&mut self, dtype: DType, over: &[AxisId]) -> (Source, IndexMap) {
        let (mut sizes, mut map) = (Vec::new(), Vec::new());
        for &axis in over {
            let extent = self.extent(axis);
            let (size, affine) = match self.random.below(8) {
                0 => continue,
                1 => (1, Affine::from(Expr::Int(0))),
                // backwards
                2 if extent > 0 => {
                    let terms = [(axis, Expr::Int(-1))].into_iter().collect();
                    (extent, Affine { start: Expr::Int(extent - 1), terms })
                }
                // every other one
                3 => {
                    let terms = [(axis, Expr::Int(2))].into_iter().collect();
                    (2 * extent + 1, Affine { start: Expr::Int(1), terms })
                }
                _ => (extent, Affine::from(axis)),
            };
            sizes.push(size);
            map.push(Index::from(affine));
        }
        let operand = self.new_operand(dtype, &sizes);
        (operand, map.into_iter().collect())
    }

    fn new_operand(&mut self, dtype: DType, sizes: &[i64]) -> Source {
        let n = sizes.iter().product::<i64>() as usize;
        let elements: Vec<Scalar> = (0..n).map(|_| self.scalar(dtype)).collect();
        self.operands.push(Array::new(dtype, sizes, elements).expect("fits"));
        let sizes: Vec<Expr> = sizes.iter().map(|s| Expr::Int(*s)).collect();
        self.nest.operand(dtype, &sizes).into()
    }

    fn scalar(&mut self, dtype: DType) -> Scalar {
        let small = self.random.below(41) as i64 - 20;
        match dtype {
            DType::Bool => Scalar::Bool(small > 0),
            d if d.is_int() => Scalar::Int(small),
            _ => match self.random.below(40) {
                0 => Scalar::Float(f64::NAN),
                1 => Scalar::Float(f64::INFINITY),
                2 => Scalar::Float(-0.0),
                _ => Scalar::Float(small as f64 / 8.0 + self.random.below(1000) as f64 / 4096.0),
            },
        }
    }

    /// A source of this dtype: an operand, or an earlier stage whose axes the stage has.
    fn source(&mut self, dtype: DType, over: &[AxisId]) -> (Source, IndexMap) {
        let nest = self.nest.nest();
        let fits = |s: &&StageId| {
            let stage = nest.stage(**s).expect("exists");
            let is_whole = !matches!(stage.kind, StageKind::Scatter { .. });
            let axes = stage.axes();
            is_whole && stage.output_dtypes()[0] == dtype && axes.iter().all(|a| over.contains(a))
        };
        let fitting: Vec<StageId> = self.stages.iter().filter(fits).copied().collect();
        if !fitting.is_empty() && !self.random.chance(3) {
            let stage = self.random.pick(&fitting);
            let axes = self.nest.nest().stage(stage).expect("exists").axes();
            // sometimes another element than its own, so that the axis is not outer
            let map = axes.iter().map(|&axis| match self.random.chance(8) {
                true if self.extent(axis) > 0 => Index::from(Expr::Int(0)),
                _ => Index::from(axis),
            });
            return (stage.into(), map.collect());
        }
        self.operand(dtype, over)
    }

    /// The registers of a random expression of this dtype.
    fn plan(&mut self, dtype: DType, over: &[AxisId]) -> Vec<(Source, IndexMap)> {
        (0..1 + self.random.below(2)).map(|_| self.source(dtype, over)).collect()
    }

    fn fold(&mut self, dtype: DType) -> Fold {
        if self.random.chance(8) {
            return self.fold_of(dtype);
        }
        match self.random.below(if dtype == DType::F32 || dtype == DType::F64 { 7 } else { 6 }) {
            0 | 1 if !matches!(dtype, DType::BF16) => Fold::Sum,
            2 if !matches!(dtype, DType::BF16) => Fold::Prod,
            3 => Fold::Min,
            4 => Fold::ArgMax,
            5 => Fold::ArgMin,
            6 => Fold::Moments,
            _ => Fold::Max,
        }
    }

    /// A fold by an expression, which need not be associative: its order is defined.
    fn fold_of(&mut self, dtype: DType) -> Fold {
        let mut expr = ExprBuilder::new();
        let [a, b] = [expr.input(dtype), expr.input(dtype)];
        let less = expr.compare(CmpOp::Lt, a, b).expect("compares");
        let product = expr.binary(BinaryOp::Mul, a, b).expect("multiplies");
        let combined = expr.select(less, product, a).expect("selects");
        let combine = Box::new(expr.finish(&[combined]).expect("is valid"));
        Fold::Of { identity: vec![self.scalar(dtype)], combine }
    }

    fn stage(&mut self) -> Result<(), LoopError> {
        let over = self.some_axes();
        let dtype = self.random.pick(&DTYPES);
        let kind = self.random.below(12);
        let loads = self.plan(dtype, &over);
        let seed = self.random.clone();
        let sort_axis = over.first().copied();
        let stage = match kind {
            0..4 => {
                let number = self.random.chance(3).then(|| {
                    self.numbers.push(Scalar::Int(3));
                    self.nest.number(dtype)
                });
                let gather = self.gather(&over, dtype);
                self.used.push("map");
                self.nest.stage(&over, StageKind::Map, |s| {
                    let mut x = expression(s, seed, dtype, &loads, &over)?;
                    if let Some(number) = number {
                        let n = s.launch(number)?;
                        x = s.expr.binary(BinaryOp::Max, x, n)?;
                    }
                    if let Some(gather) = gather {
                        let y = gather(s)?;
                        x = s.expr.binary(BinaryOp::Min, x, y)?;
                    }
                    Ok(vec![x])
                })?
            }
            4..7 => {
                let along: Vec<AxisId> =
                    over.iter().copied().filter(|_| self.random.chance(2)).collect();
                let fold = self.fold(dtype);
                let order = match fold {
                    Fold::Moments => Order::Lanes,
                    _ => self.random.pick(&[Order::Lanes, Order::Lanes, Order::Sequential]),
                };
                self.used.push("reduce");
                self.used.push(fold.name().unwrap_or("of"));
                if order == Order::Sequential {
                    self.used.push("sequential");
                }
                self.nest.reduce(&over, &along, fold, order, |s| {
                    expression(s, seed, dtype, &loads, &over)
                })?
            }
            7 | 8 if sort_axis.is_some() => {
                let along = over[self.random.below(over.len())];
                self.used.push("scan");
                let fold = match self.fold(dtype) {
                    Fold::ArgMax | Fold::ArgMin | Fold::Moments => Fold::Max,
                    fold => fold,
                };
                let order = match fold {
                    Fold::Of { .. } => self.random.pick(&ScanOrder::ALL),
                    _ => ScanOrder::of(&fold, dtype),
                };
                self.used.push(order.name());
                self.nest.stage(&over, StageKind::Scan { along, fold, order }, |s| {
                    Ok(vec![expression(s, seed, dtype, &loads, &over)?])
                })?
            }
            9 if sort_axis.is_some() => {
                let along = over[self.random.below(over.len())];
                // Later stages are also over this axis, and a stage has few points.
                let points: i64 = self.axes.iter().map(|(_, n)| n.max(&1)).product();
                let kept = self.random.below(self.extent(along) as usize + 1) as i64;
                let kept = kept.min(20_000 / points.max(1));
                let keep = self.nest.axis(Expr::Int(kept));
                self.axes.push((keep, kept));
                let descending = self.random.chance(2);
                self.used.push("sort");
                self.nest.stage(&over, StageKind::Sort { along, keep, descending }, |s| {
                    Ok(vec![expression(s, seed, dtype, &loads, &over)?])
                })?
            }
            10 => self.scatter(&over, dtype, &loads)?,
            _ => {
                let dtype = self.random.pick(&[DType::F32, DType::F32, DType::F64, DType::I64]);
                let along: Vec<AxisId> =
                    over.iter().copied().filter(|_| self.random.chance(2)).collect();
                let [left, right] = [self.source(dtype, &over), self.source(dtype, &over)];
                self.used.push("contract");
                let along = along.iter().copied().collect();
                self.nest.stage(&over, StageKind::Contract { along }, |s| {
                    Ok(vec![s.load(left.0, left.1)?, s.load(right.0, right.1)?])
                })?
            }
        };
        self.stages.push(stage);
        Ok(())
    }

    fn finish(mut self) -> (LoopNest, Vec<Array>, Vec<Scalar>, Vec<&'static str>) {
        let stages = 1 + self.random.below(4);
        while self.stages.len() < stages {
            self.stage().unwrap_or_else(|e| panic!("{e}\n{}", self.nest.nest()));
        }
        let mut results = Vec::new();
        for &stage in &self.stages {
            if Some(&stage) == self.stages.last() || self.random.chance(3) {
                results.push(stage.into());
            }
        }
        let nest = self.nest.finish(&results).expect("stages exist");
        (nest, self.operands, self.numbers, self.used)
    }
}

/// A random expression over some loads of a dtype.
fn expression(
    s: &mut StageBuilder<'_>,
    mut random: Random,
    dtype: DType,
    loads: &[(Source, IndexMap)],
    over: &[AxisId],
) -> Result<Reg, LoopError> {
    let mut regs = Vec::new();
    for (from, map) in loads {
        regs.push(s.load(*from, map.clone())?);
    }
    if let (true, Some(axis)) = (random.chance(3), over.last()) {
        let coord = s.coord(*axis);
        regs.push(s.expr.cast(coord, dtype)?);
    }
    for _ in 0..random.below(4) {
        let (a, b) = (random.pick(&regs), random.pick(&regs));
        let x = match (dtype, random.below(5)) {
            (DType::Bool, 0) => s.expr.unary(UnaryOp::Not, a)?,
            (d, 0) if d.is_float() => {
                s.expr.unary(random.pick(&[UnaryOp::Exp, UnaryOp::Tanh]), a)?
            }
            (d, 1) if d != DType::Bool => s.expr.unary(UnaryOp::Neg, a)?,
            (_, 2) => s.expr.binary(BinaryOp::Mul, a, b)?,
            (_, 3) => {
                let less = s.expr.compare(CmpOp::Lt, a, b)?;
                s.expr.select(less, b, a)?
            }
            _ => s.expr.binary(BinaryOp::Add, a, b)?,
        };
        regs.push(x);
    }
    Ok(regs.pop().expect("there is a load"))
}

/// Runs random nests, and counts what they used and how many failed.
fn campaign(seeds: std::ops::Range<u64>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let (nest, operands, numbers, used) = Generator::new(seed).finish();
        let parsed = LoopNest::parse(&nest.to_string()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parsed.to_string(), nest.to_string());
        let error = std::panic::catch_unwind(|| agrees(&nest, &operands, &numbers));
        let error = error.unwrap_or_else(|_| panic!("seed {seed}\n{nest}"));
        let outcome = if error.is_some() { "fails" } else { "succeeds" };
        for what in used.iter().copied().map(str::to_owned).chain([format!("nest {outcome}")]) {
            *counts.entry(what).or_default() += 1;
        }
    }
    counts
}

#[test]
fn random_nests_agree_with_the_reference() {
    let seeds = std::env::var("MAQUETTE_NESTS").ok().and_then(|n| n.parse().ok());
    let seeds: u64 = seeds.unwrap_or(2000);
    let counts = campaign(0..seeds);
    println!("{counts:?}");
    // 500 of each in 100,000 nests
    for what in COVERED {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(count as u64 >= seeds / 200, "only {count} of {what}");
    }
}
