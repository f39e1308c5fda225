//! Calls of the oracle's own operators, with arguments that often overlap; and statements that
//! eager execution must refuse.

use super::super::program_builder::{BuilderArg, BuilderStmt, Call, ResultGroup};
use super::{Generator, LiveTensor};
use maquette_ir::graph::Arg;
use maquette_ops::Op;

const NONE: BuilderArg = BuilderArg::Plain(Arg::None);

impl Generator<'_> {
    pub(super) fn custom(&mut self) -> bool {
        let Some(x) = self.target() else { return false };
        let emitted = match self.rng.below(100) {
            0..7 => self.with_read(&x, "oracle::mix_"),
            7..10 => self.with_read(&x, "oracle::strides_"),
            10..18 => self.with_read(&x, "oracle::acc_"),
            18..24 => self.emit("oracle::remix_", vec![x.arg()]),
            24..32 => self.out(&x),
            32..42 => self.scan(&x),
            42..52 => self.swap(&x),
            52..60 => self.rotate(&x),
            60..67 => self.maybe(&x),
            67..75 => self.lists(&x),
            75..81 => self.with_read(&x, "oracle::mix"),
            81..85 => self.results(&x),
            85..96 => self.effect(&x),
            _ if self.data_dependent_sizes() < 2 => self.emit("oracle::count_", vec![x.arg()]),
            _ => None,
        };
        emitted.is_some()
    }

    /// A tensor of the same dtype as `x`, often one that shares its storage.
    fn aliasing_operand(&mut self, x: &LiveTensor) -> Option<LiveTensor> {
        if self.rng.chance(50)
            && let Some(t) =
                self.pick(|l| l.tensor.shares_storage(&x.tensor) && l.dtype() == x.dtype())
        {
            return Some(t);
        }
        self.pick(|l| l.dtype() == x.dtype())
    }

    fn with_read(&mut self, x: &LiveTensor, op: &str) -> Option<Vec<LiveTensor>> {
        let y = self.aliasing_operand(x)?;
        self.emit(op, vec![x.arg(), y.arg()])
    }

    fn out(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let y = self.aliasing_operand(x)?;
        self.emit_kw("oracle::mix_out", vec![y.arg()], vec![("out", x.arg())])
    }

    /// A scan whose operands are adjacent: all rows but the last, and all rows but the first.
    fn scan(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let n = x.sizes().first().copied().filter(|n| *n > 1)?;
        if self.rng.chance(30) {
            let y = self.aliasing_operand(x)?;
            return self.emit("oracle::scan_", vec![y.arg(), x.arg()]);
        }
        let (zero, one, end, last) = (self.int(0), self.int(1), self.int(n), self.int(n - 1));
        let rows = |start: BuilderArg, end: BuilderArg| vec![x.arg(), 0.into(), start, end];
        let prev = self.emit("aten::slice.Tensor", rows(zero, last))?.into_iter().next()?;
        let next = self.emit("aten::slice.Tensor", rows(one, end))?.into_iter().next()?;
        let (first, second) = if self.rng.chance(50) { (prev, next) } else { (next, prev) };
        self.emit("oracle::scan_", vec![first.arg(), second.arg()])
    }

    /// Disjoint parts of one tensor, or tensors with different storages.
    fn disjoint_parts(&mut self, x: &LiveTensor, n: usize) -> Option<Vec<LiveTensor>> {
        let rows = x.sizes().first().copied().unwrap_or(0);
        if rows < n as i64 || self.rng.chance(40) {
            let mut parts = vec![x.clone()];
            while parts.len() < n {
                let dtype = x.dtype();
                let others: Vec<LiveTensor> = parts.clone();
                parts.push(self.pick(|l| {
                    l.dtype() == dtype && others.iter().all(|o| !o.tensor.shares_storage(&l.tensor))
                })?);
            }
            return Some(parts);
        }
        let interleaved = self.rng.chance(40);
        let mut parts = Vec::new();
        for i in 0..n as i64 {
            let (start, end, step) = match interleaved {
                true => (i, rows, n as i64),
                false => (i * rows / n as i64, (i + 1) * rows / n as i64, 1),
            };
            let (start, end) = (self.int(start), self.int(end));
            parts.extend(
                self.emit("aten::slice.Tensor", vec![x.arg(), 0.into(), start, end, step.into()])?,
            );
        }
        Some(parts)
    }

    fn swap(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let parts = self.disjoint_parts(x, 2)?;
        self.emit("oracle::swap_", parts.iter().map(LiveTensor::arg).collect())
    }

    fn rotate(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (parts, w) = (self.disjoint_parts(x, 3)?, self.aliasing_operand(x)?);
        self.emit("oracle::rotate_", parts.iter().chain([&w]).map(LiveTensor::arg).collect())
    }

    fn maybe(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let y = self.aliasing_operand(x)?;
        let x = if self.rng.chance(30) { NONE } else { x.arg() };
        self.emit("oracle::maybe_", vec![x, y.arg()])
    }

    fn lists(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let n = 1 + self.rng.below(2);
        let parts = self.disjoint_parts(x, n)?;
        let (mut xs, y): (Vec<BuilderArg>, _) =
            (parts.iter().map(LiveTensor::arg).collect(), self.aliasing_operand(x)?);
        if self.rng.chance(50) {
            return self.emit("oracle::each_", vec![BuilderArg::List(xs), y.arg()]);
        }
        if self.rng.chance(70) {
            xs.insert(self.rng.below(xs.len() + 1), NONE);
        }
        self.emit("oracle::some_", vec![BuilderArg::List(xs), y.arg()])
    }

    fn results(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let y = self.aliasing_operand(x)?;
        match self.rng.below(3) {
            0 => self.emit("oracle::both", vec![x.arg()]),
            1 => self.emit("oracle::both", vec![x.arg(), y.arg()]),
            _ => self.emit("oracle::copies", vec![BuilderArg::List(vec![x.arg(), y.arg()])]),
        }
    }

    fn effect(&mut self, x: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let tag = self.rng.between(0, 99);
        let op = self.rng.one(&["oracle::log", "oracle::log", "oracle::log_", "oracle::tell"])?;
        self.emit(op, vec![x.arg(), tag.into()])
    }

    /// Appends a call of a view operator that breaks the promise of its fake kernel, and sometimes
    /// a write to the view.
    pub(super) fn broken_promise(&mut self) {
        let rows = |l: &LiveTensor| l.sizes().first().is_some_and(|n| *n > 1);
        let Some(x) = self.pick(rows) else { return };
        let view = self.emit("oracle::lies", vec![x.arg()]).and_then(|v| v.into_iter().next());
        if let Some(view) = view.filter(|_| self.rng.chance(70)) {
            self.with_read(&view, "oracle::mix_");
        }
    }

    /// Appends a call that eager execution refuses: mutated arguments that overlap, an argument
    /// that overlaps itself, a kernel that breaks its contract, or an index out of range.
    pub(super) fn refused_statement(&mut self) {
        let Some(x) = self.pick(|l| l.tensor.numel().as_i64().is_some_and(|n| n > 0)) else {
            return;
        };
        let (op, args) = match self.rng.below(8) {
            0 => ("oracle::swap_", vec![x.arg(), x.arg()]),
            1 => ("oracle::each_", vec![BuilderArg::List(vec![x.arg(), x.arg()]), x.arg()]),
            2 => {
                let mut sizes = vec![2];
                sizes.extend(x.sizes());
                let Some(wide) = self.emit(
                    "aten::expand",
                    vec![
                        x.arg(),
                        BuilderArg::List(sizes.into_iter().map(BuilderArg::from).collect()),
                    ],
                ) else {
                    return;
                };
                let Some(wide) = wide.first() else { return };
                ("oracle::mix_", vec![wide.arg(), x.arg()])
            }
            3 | 6 => ("oracle::keeps", vec![x.arg()]),
            4 | 7 => ("oracle::peeks", vec![x.arg()]),
            _ => ("aten::select.int", vec![x.arg(), 9.into(), 0.into()]),
        };
        let results = match op {
            "oracle::each_" => vec![ResultGroup::List(Vec::new())],
            "aten::select.int" | "oracle::keeps" | "oracle::peeks" => {
                vec![ResultGroup::One(self.next)]
            }
            _ => Vec::new(),
        };
        let fails = Op::find(op).is_ok_and(|callee| {
            args.iter()
                .map(|a| self.value(a))
                .collect::<Option<_>>()
                .is_some_and(|values| callee.call(values).is_err())
        });
        if fails {
            self.builder.stmts.push(BuilderStmt::Call(Call {
                op: op.to_owned(),
                args,
                kwargs: Vec::new(),
                results,
            }));
        }
    }
}
