//! Calls of the oracle's own operators, their arguments chosen to overlap; and the statements that eager must refuse.

use super::super::draft::{Call, Group, Item, Step};
use super::{Gen, Live};
use maquette_ir::graph::Arg;
use maquette_ops::Op;

const NONE: Item = Item::Plain(Arg::None);

impl Gen<'_> {
    pub(super) fn custom(&mut self) -> bool {
        let Some(x) = self.target() else { return false };
        let made = match self.rng.below(100) {
            0..7 => self.with_read(&x, "oracle::mix_"),
            7..10 => self.with_read(&x, "oracle::strides_"),
            10..18 => self.with_read(&x, "oracle::acc_"),
            18..24 => self.emit("oracle::remix_", vec![x.item()]),
            24..32 => self.out(&x),
            32..42 => self.scan(&x),
            42..52 => self.swap(&x),
            52..60 => self.rotate(&x),
            60..67 => self.maybe(&x),
            67..75 => self.lists(&x),
            75..81 => self.with_read(&x, "oracle::mix"),
            81..85 => self.results(&x),
            85..96 => self.effect(&x),
            _ if self.data_dependent_sizes() < 2 => self.emit("oracle::count_", vec![x.item()]),
            _ => None,
        };
        made.is_some()
    }

    /// Memory that `x` sees too, or another tensor of its dtype.
    fn beside(&mut self, x: &Live) -> Option<Live> {
        if self.rng.chance(50)
            && let Some(t) = self.pick(|l| l.tensor.shares_storage(&x.tensor) && l.dtype() == x.dtype())
        {
            return Some(t);
        }
        self.pick(|l| l.dtype() == x.dtype())
    }

    fn with_read(&mut self, x: &Live, op: &str) -> Option<Vec<Live>> {
        let y = self.beside(x)?;
        self.emit(op, vec![x.item(), y.item()])
    }

    fn out(&mut self, x: &Live) -> Option<Vec<Live>> {
        let y = self.beside(x)?;
        self.emit_kw("oracle::mix_out", vec![y.item()], vec![("out", x.item())])
    }

    /// What it reads is a neighbour of what it writes: rows but the last, and rows but the first.
    fn scan(&mut self, x: &Live) -> Option<Vec<Live>> {
        let n = x.sizes().first().copied().filter(|n| *n > 1)?;
        if self.rng.chance(30) {
            let y = self.beside(x)?;
            return self.emit("oracle::scan_", vec![y.item(), x.item()]);
        }
        let (zero, one, end, last) = (self.int(0), self.int(1), self.int(n), self.int(n - 1));
        let rows = |start: Item, end: Item| vec![x.item(), 0.into(), start, end];
        let prev = self.emit("aten::slice.Tensor", rows(zero, last))?.into_iter().next()?;
        let next = self.emit("aten::slice.Tensor", rows(one, end))?.into_iter().next()?;
        let (first, second) = if self.rng.chance(50) { (prev, next) } else { (next, prev) };
        self.emit("oracle::scan_", vec![first.item(), second.item()])
    }

    /// Several parts of one tensor that do not meet, or tensors that may.
    fn apart(&mut self, x: &Live, n: usize) -> Option<Vec<Live>> {
        let rows = x.sizes().first().copied().unwrap_or(0);
        if rows < n as i64 || self.rng.chance(40) {
            let mut parts = vec![x.clone()];
            while parts.len() < n {
                let dtype = x.dtype();
                let others: Vec<Live> = parts.clone();
                parts.push(self.pick(|l| l.dtype() == dtype && others.iter().all(|o| !o.tensor.shares_storage(&l.tensor)))?);
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
            parts.extend(self.emit("aten::slice.Tensor", vec![x.item(), 0.into(), start, end, step.into()])?);
        }
        Some(parts)
    }

    fn swap(&mut self, x: &Live) -> Option<Vec<Live>> {
        let parts = self.apart(x, 2)?;
        self.emit("oracle::swap_", parts.iter().map(Live::item).collect())
    }

    fn rotate(&mut self, x: &Live) -> Option<Vec<Live>> {
        let (parts, w) = (self.apart(x, 3)?, self.beside(x)?);
        self.emit("oracle::rotate_", parts.iter().chain([&w]).map(Live::item).collect())
    }

    fn maybe(&mut self, x: &Live) -> Option<Vec<Live>> {
        let y = self.beside(x)?;
        let x = if self.rng.chance(30) { NONE } else { x.item() };
        self.emit("oracle::maybe_", vec![x, y.item()])
    }

    fn lists(&mut self, x: &Live) -> Option<Vec<Live>> {
        let n = 1 + self.rng.below(2);
        let parts = self.apart(x, n)?;
        let (mut xs, y): (Vec<Item>, _) = (parts.iter().map(Live::item).collect(), self.beside(x)?);
        if self.rng.chance(50) {
            return self.emit("oracle::each_", vec![Item::List(xs), y.item()]);
        }
        if self.rng.chance(70) {
            xs.insert(self.rng.below(xs.len() + 1), NONE);
        }
        self.emit("oracle::some_", vec![Item::List(xs), y.item()])
    }

    fn results(&mut self, x: &Live) -> Option<Vec<Live>> {
        let y = self.beside(x)?;
        match self.rng.below(3) {
            0 => self.emit("oracle::both", vec![x.item()]),
            1 => self.emit("oracle::both", vec![x.item(), y.item()]),
            _ => self.emit("oracle::copies", vec![Item::List(vec![x.item(), y.item()])]),
        }
    }

    fn effect(&mut self, x: &Live) -> Option<Vec<Live>> {
        let tag = self.rng.between(0, 99);
        let op = self.rng.one(&["oracle::log", "oracle::log", "oracle::log_", "oracle::tell"])?;
        self.emit(op, vec![x.item(), tag.into()])
    }

    /// Appends a call that eager refuses: mutated arguments that overlap, one that overlaps itself, sizes that do not fit.
    pub(super) fn refused_statement(&mut self) {
        let Some(x) = self.pick(|l| l.tensor.numel().as_i64().is_some_and(|n| n > 0)) else { return };
        let (op, args) = match self.rng.below(4) {
            0 => ("oracle::swap_", vec![x.item(), x.item()]),
            1 => ("oracle::each_", vec![Item::List(vec![x.item(), x.item()]), x.item()]),
            2 => {
                let mut sizes = vec![2];
                sizes.extend(x.sizes());
                let Some(wide) = self.emit("aten::expand", vec![x.item(), Item::List(sizes.into_iter().map(Item::from).collect())]) else {
                    return;
                };
                let Some(wide) = wide.first() else { return };
                ("oracle::mix_", vec![wide.item(), x.item()])
            }
            _ => ("aten::select.int", vec![x.item(), 9.into(), 0.into()]),
        };
        let results = match op {
            "oracle::each_" => vec![Group::List(Vec::new())],
            "aten::select.int" => vec![Group::One(self.next)],
            _ => Vec::new(),
        };
        let fails = Op::find(op).is_ok_and(|callee| {
            args.iter().map(|a| self.value(a)).collect::<Option<_>>().is_some_and(|values| callee.call(values).is_err())
        });
        if fails {
            self.draft.steps.push(Step::Call(Call { op: op.to_owned(), args, kwargs: Vec::new(), results }));
        }
    }
}
