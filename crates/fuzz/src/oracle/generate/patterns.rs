//! Patterns of several statements that only together exercise an aspect of a pass.

use super::super::program_builder::BuilderArg;
use super::{Generator, LiveTensor};
use maquette_ir::graph::Arg;

const NONE: BuilderArg = BuilderArg::Plain(Arg::None);

impl Generator<'_> {
    pub(super) fn pattern(&mut self) -> bool {
        let emitted = match self.rng.below(100) {
            0..35 => self.rotation(),
            35..60 => self.permuted_store(),
            60..80 => self.stored_later(),
            _ => self.late_copy(),
        };
        emitted.is_some()
    }

    /// Like `emit`; returns the first result.
    fn first(&mut self, op: &str, args: Vec<BuilderArg>) -> Option<LiveTensor> {
        self.emit(op, args)?.into_iter().next()
    }

    /// A cyclic exchange of two or three tensors of equal sizes: inputs, or rows of one tensor. The
    /// old values must be saved before they are overwritten.
    fn rotation(&mut self) -> Option<Vec<LiveTensor>> {
        let n = if self.rng.chance(65) { 2 } else { 3 };
        let parts = if self.rng.chance(65) { self.alike(n) } else { self.rows(n) }?;
        let (first, last) = (parts.first()?, parts.last()?);
        let kept = self.first("aten::clone", vec![first.arg()])?;
        for pair in parts.windows(2) {
            if let [to, from] = pair {
                self.emit("aten::copy_", vec![to.arg(), from.arg()])?;
            }
        }
        self.emit("aten::copy_", vec![last.arg(), kept.arg()])
    }

    /// Different tensors of equal sizes, preferably whole inputs. A tensor whose sizes only match
    /// in another order is permuted.
    fn alike(&mut self, n: usize) -> Option<Vec<LiveTensor>> {
        let inputs = self.builder.inputs.len();
        let whole = self.rng.chance(70);
        let mut parts = vec![self.pick(|l| !whole || l.value < inputs)?];
        while parts.len() < n {
            let (known, sizes, dtype) =
                (parts.clone(), parts.first()?.sizes(), parts.first()?.dtype());
            let fits = |l: &LiveTensor| {
                let apart = known.iter().all(|k| k.value != l.value);
                (!whole || l.value < inputs)
                    && apart
                    && l.dtype() == dtype
                    && order(&l.sizes(), &sizes).is_some()
            };
            let mut next = self.pick(fits)?;
            if next.sizes() != sizes {
                let dims = order(&next.sizes(), &sizes)?
                    .into_iter()
                    .map(|d| BuilderArg::from(d as i64))
                    .collect();
                next = self.first("aten::permute", vec![next.arg(), BuilderArg::List(dims)])?;
            }
            parts.push(next);
        }
        Some(parts)
    }

    fn rows(&mut self, n: usize) -> Option<Vec<LiveTensor>> {
        let t = self.target()?;
        let (d, dim) = self.dim(&t)?;
        let rows = t.sizes().get(d).copied().filter(|rows| *rows >= n as i64)?;
        let which = self.rng.order(rows as usize);
        which
            .into_iter()
            .take(n)
            .map(|i| self.first("aten::select.int", vec![t.arg(), dim.clone(), (i as i64).into()]))
            .collect()
    }

    /// Overwrites a tensor through a permutation of its dimensions.
    fn permuted_store(&mut self) -> Option<Vec<LiveTensor>> {
        let rank = if self.rng.chance(70) { 3 } else { 2 };
        let t = self
            .pick(|l| l.rank() >= rank && l.sizes().iter().filter(|n| **n > 1).count() >= rank)?;
        let dims =
            self.rng.order(t.rank()).into_iter().map(|d| BuilderArg::from(d as i64)).collect();
        let turned = self.first("aten::permute", vec![t.arg(), BuilderArg::List(dims)])?;
        let sizes = turned.sizes();
        let source = match self.pick(|l| {
            l.dtype() == t.dtype() && l.sizes() == sizes && !l.tensor.shares_storage(&t.tensor)
        }) {
            Some(source) => source,
            None => {
                let y = self.pick(|l| l.dtype() == t.dtype())?;
                self.first("oracle::mix", vec![turned.arg(), y.arg()])?
            }
        };
        self.emit("aten::copy_", vec![turned.arg(), source.arg()])
    }

    /// Mutates a new tensor with an operator that observes strides, then stores it where the
    /// strides differ.
    fn stored_later(&mut self) -> Option<Vec<LiveTensor>> {
        let t = self.target()?;
        let (d, dim) = self.dim(&t)?;
        let n = t.sizes().get(d).copied()?;
        let part = match self.rng.chance(70) {
            true => {
                let (start, step) = (self.rng.between(0, n.min(1)), self.rng.between(1, 2));
                let start = self.int(start);
                self.first("aten::slice.Tensor", vec![t.arg(), dim, start, NONE, step.into()])?
            }
            false => self.transpose(&t)?.into_iter().next()?,
        };
        let computed = self.elementwise(&part)?.into_iter().next()?;
        let y = self.pick(|l| l.dtype() == computed.dtype())?;
        self.emit("oracle::strides_", vec![computed.arg(), y.arg()])?;
        self.emit("aten::copy_", vec![part.arg(), computed.arg()])
    }

    /// A copy that must not be delayed: clones a tensor, expands and logs the copy, mutates the
    /// original, and only then reshapes the expanded copy and mutates a part of it.
    fn late_copy(&mut self) -> Option<Vec<LiveTensor>> {
        let x = self.target()?;
        let mut sizes = x.sizes();
        let n: i64 = sizes.iter().product();
        let times = self.rng.between(2, 3);
        sizes.insert(0, times);
        let copy = self.first("aten::clone", vec![x.arg()])?;
        let sizes = self.ints(&sizes);
        let wide = self.first("aten::expand", vec![copy.arg(), sizes])?;
        let tag = self.rng.between(0, 99);
        self.emit("oracle::log", vec![wide.arg(), tag.into()])?;
        self.unary(&x)?;
        let all = self.int(n * times);
        let row = self.first("aten::reshape", vec![wide.arg(), BuilderArg::List(vec![all])])?;
        let start = self.rng.between(0, times - 1) * n;
        let (start, end) = (self.int(start), self.int(start + n));
        let part =
            self.first("aten::slice.Tensor", vec![row.arg(), 0.into(), start, end, 1.into()])?;
        self.fill(&part)
    }
}

/// The permutation of dimensions that turns sizes `of` into `wanted`, if there is one. Equal sizes
/// give the identity.
fn order(of: &[i64], wanted: &[i64]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = Vec::new();
    for n in wanted {
        let next = (0..of.len()).find(|d| of.get(*d) == Some(n) && !order.contains(d))?;
        order.push(next);
    }
    (order.len() == of.len()).then_some(order)
}
