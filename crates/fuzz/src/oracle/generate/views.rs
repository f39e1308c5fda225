//! Views: statements that return another tensor over the same memory.

use super::super::program_builder::BuilderArg;
use super::{Generator, LiveTensor};
use maquette_ir::graph::Arg;
use maquette_ops::internals::MetaInternals;

const NONE: BuilderArg = BuilderArg::Plain(Arg::None);

impl Generator<'_> {
    pub(super) fn view(&mut self) -> bool {
        let Some(t) = self.any() else { return false };
        let emitted = match self.rng.below(100) {
            0..24 => self.slice(&t),
            24..34 => self.select(&t),
            34..40 => self.transpose(&t),
            40..45 => self.permute(&t),
            45..47 => self.straighten(&t),
            47..58 => self.reshape(&t),
            58..64 => self.expand(&t),
            64..69 => self.diagonal(&t),
            69..75 => self.unfold(&t),
            75..84 => self.split(&t),
            84..90 => self.as_strided(&t),
            90..96 => self.squeeze(&t),
            _ => self.plain(&t),
        };
        emitted.is_some()
    }

    fn slice(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        let n = t.sizes().get(d).copied()?;
        if self.rng.chance(20) {
            let length = self.rng.between(0, n);
            let start = self.rng.between(0, n - length);
            let (start, length) = (self.int(start), self.int(length));
            return self.emit("aten::narrow", vec![t.arg(), dim, start, length]);
        }
        let start = self.rng.between(0, n);
        let end = self.rng.between(start, n + 1);
        let step = if self.rng.chance(35) { self.rng.between(2, 3) } else { 1 };
        let from_end = self.rng.chance(20) && start < n;
        let start = if from_end { BuilderArg::from(start - n) } else { self.int(start) };
        let end = if self.rng.chance(20) { NONE } else { self.int(end) };
        self.emit("aten::slice.Tensor", vec![t.arg(), dim, start, end, step.into()])
    }

    fn select(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        let n = t.sizes().get(d).copied().filter(|n| *n > 0)?;
        let at = self.rng.between(0, n - 1);
        let index = if self.rng.chance(25) { BuilderArg::from(at - n) } else { self.int(at) };
        self.emit("aten::select.int", vec![t.arg(), dim, index])
    }

    pub(super) fn transpose(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if t.rank() <= 2 && self.rng.chance(50) {
            return self.emit("aten::t", vec![t.arg()]);
        }
        let ((_, a), (_, b)) = (self.dim(t)?, self.dim(t)?);
        let op = if self.rng.chance(30) { "aten::movedim.int" } else { "aten::transpose.int" };
        self.emit(op, vec![t.arg(), a, b])
    }

    fn permute(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let order = self.rng.order(t.rank());
        let dims = order.into_iter().map(|d| BuilderArg::from(d as i64)).collect();
        self.emit("aten::permute", vec![t.arg(), BuilderArg::List(dims)])
    }

    /// Flattens a dense tensor in memory order; sometimes applied to a new element-wise result,
    /// which follows the strides of its operand.
    fn straighten(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let computed =
            if self.rng.chance(60) { self.elementwise(t)?.into_iter().next() } else { None };
        let t = computed.as_ref().unwrap_or(t);
        let strides = t.tensor.meta().concrete()?.strides;
        let mut order: Vec<usize> = (0..t.rank()).collect();
        order.sort_by_key(|&d| std::cmp::Reverse(strides.get(d).copied()));
        let sizes = t.sizes();
        let flat = self.ints(&[order.iter().filter_map(|&d| sizes.get(d)).product()]);
        let dims = order.into_iter().map(|d| BuilderArg::from(d as i64)).collect();
        let straight = self
            .emit("aten::permute", vec![t.arg(), BuilderArg::List(dims)])?
            .into_iter()
            .next()?;
        self.emit("aten::view", vec![straight.arg(), flat])
    }

    /// Reshapes to sizes with the same number of elements: joins two dimensions, splits one,
    /// flattens, or inserts a dimension of size 1; sometimes one size is -1.
    fn reshape(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let mut sizes = t.sizes();
        let at = self.rng.below(sizes.len());
        match self.rng.below(4) {
            0 if sizes.len() > at + 1 => {
                let joined = sizes.get(at)? * sizes.get(at + 1)?;
                sizes.splice(at..at + 2, [joined]);
            }
            1 => {
                let n = sizes.get(at).copied().filter(|n| *n > 1)?;
                let by = (2..=n).find(|k| n % k == 0)?;
                sizes.splice(
                    at..at + 1,
                    if self.rng.chance(50) { [by, n / by] } else { [n / by, by] },
                );
            }
            2 => sizes = vec![sizes.iter().product()],
            _ => sizes.insert(at, 1),
        }
        let mut written = match self.ints(&sizes) {
            BuilderArg::List(l) => l,
            _ => return None,
        };
        if self.rng.chance(30) && !sizes.contains(&0) {
            let open = self.rng.below(written.len());
            *written.get_mut(open)? = BuilderArg::from(-1);
        }
        let op = if self.rng.chance(60) { "aten::view" } else { "aten::reshape" };
        self.emit(op, vec![t.arg(), BuilderArg::List(written)])
    }

    fn expand(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let mut sizes = t.sizes();
        for n in sizes.iter_mut().filter(|n| **n == 1) {
            *n = self.rng.between(0, 4);
        }
        if self.rng.chance(60) {
            sizes.insert(0, self.rng.between(0, 3));
        }
        let sizes = self.ints(&sizes);
        let emitted = self.emit("aten::expand", vec![t.arg(), sizes])?;
        self.part_of_a_copy(emitted)
    }

    /// Sometimes clones an expanded view and selects a part of the copy. In the copy, a write to
    /// one of the repeated elements is distinguishable from a write to another.
    fn part_of_a_copy(&mut self, emitted: Vec<LiveTensor>) -> Option<Vec<LiveTensor>> {
        if let (true, Some(wide)) = (self.rng.chance(25), emitted.first()) {
            let copy = self.emit("aten::clone", vec![wide.arg()])?.into_iter().next()?;
            self.select(&copy);
        }
        Some(emitted)
    }

    fn diagonal(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let order = self.rng.order(t.rank());
        let (&[a, b, ..], offset) = (order.as_slice(), self.rng.between(-1, 1)) else {
            return None;
        };
        self.emit(
            "aten::diagonal",
            vec![t.arg(), offset.into(), (a as i64).into(), (b as i64).into()],
        )
    }

    fn unfold(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        let n = t.sizes().get(d).copied()?;
        let (size, step) = (self.rng.between(0, n.min(3)), self.rng.between(1, 3));
        let emitted = self.emit("aten::unfold", vec![t.arg(), dim, size.into(), step.into()])?;
        self.part_of_a_copy(emitted)
    }

    fn split(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        let n = t.sizes().get(d).copied()?;
        match self.rng.below(4) {
            0 => {
                let size = self.rng.between(1, n.max(1));
                let size = self.int(size);
                self.emit("aten::split.Tensor", vec![t.arg(), size, dim])
            }
            1 => {
                let first = self.rng.between(0, n);
                let sizes = self.ints(&[first, n - first]);
                self.emit("aten::split_with_sizes", vec![t.arg(), sizes, dim])
            }
            2 => {
                let chunks = self.rng.between(1, 3);
                self.emit("aten::chunk", vec![t.arg(), chunks.into(), dim])
            }
            _ => self.emit("aten::unbind.int", vec![t.arg(), dim]),
        }
    }

    /// A random layout within the memory span of the tensor that skips the same gaps; rarely any
    /// layout, which only eager execution can follow.
    fn as_strided(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        // at other sizes most such views exceed their tensor, which is refused
        if !self.symbols.is_empty() && self.rng.chance(85) {
            return None;
        }
        let c = t.tensor.meta().concrete()?;
        let (first, last) = c.span()?;
        let anything = self.rng.chance(4);
        if first == last && !anything {
            return None;
        }
        let gap = c
            .sizes
            .iter()
            .zip(&c.strides)
            .filter(|(n, _)| **n > 1)
            .fold(0, |g, (_, s)| gcd(g, *s))
            .max(1);
        let gap = if anything { 1 } else { gap };
        let reach = ((last - first) / c.width - 1) / gap + 1;
        let n = self.rng.between(1, reach.min(4));
        let (mut sizes, mut strides) = match self.rng.chance(50) {
            true => {
                (vec![n], vec![self.rng.between(1, ((reach - 1) / (n - 1).max(1)).clamp(1, 3))])
            }
            false => (vec![self.rng.between(1, 3), n.min(3)], vec![self.rng.between(0, 3), 1]),
        };
        let start = self.rng.chance(60).then(|| self.rng.between(0, 1));
        let extent = |sizes: &[i64]| {
            sizes.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<i64>() + start.unwrap_or(0)
        };
        while !anything && extent(&sizes) >= reach {
            *sizes.iter_mut().find(|n| **n > 1)? -= 1;
        }
        strides.iter_mut().for_each(|s| *s *= gap);
        let offset = start.map_or(NONE, |start| (first / c.width + start * gap).into());
        let (sizes, strides) = (
            self.ints(&sizes),
            BuilderArg::List(strides.into_iter().map(BuilderArg::from).collect()),
        );
        self.emit("aten::as_strided", vec![t.arg(), sizes, strides, offset])
    }

    fn squeeze(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if self.rng.chance(50) {
            let at = self.rng.between(-(t.rank() as i64) - 1, t.rank() as i64);
            return self.emit("aten::unsqueeze", vec![t.arg(), at.into()]);
        }
        let (_, dim) = self.dim(t)?;
        self.emit("aten::squeeze.dim", vec![t.arg(), dim])
    }

    fn plain(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let mut op =
            self.rng.one(&["aten::alias", "aten::detach", "oracle::tail", "oracle::tail"])?;
        // The values that follow it have no differences to be compared with.
        if op == "aten::detach" && self.has_gradients() && self.rng.chance(80) {
            op = "aten::alias";
        }
        if op == "oracle::tail" && t.sizes().first().is_none_or(|n| *n == 0) {
            return None;
        }
        self.emit(op, vec![t.arg()])
    }
}

/// The greatest common divisor.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
