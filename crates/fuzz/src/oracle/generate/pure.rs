//! Operators that mutate nothing. Their results are new memory, which later statements view and
//! mutate.

use super::super::program_builder::BuilderArg;
use super::{Generator, LiveTensor};
use maquette_ir::graph::Arg;
use maquette_ir::{DType, MemoryFormat};

impl Generator<'_> {
    pub(super) fn pure(&mut self) -> bool {
        let Some(t) = self.any() else { return false };
        let emitted = match self.rng.below(100) {
            0..28 => self.binary(&t),
            28..40 => self.elementwise(&t),
            40..48 => self.reduction(&t),
            48..55 => self.product(&t),
            55..67 => self.duplicate(&t),
            67..73 => self.join(&t),
            73..79 => self.fresh(),
            79..85 => self.choice(&t),
            85..90 => self.ordered(&t),
            90..93 => self.random(&t),
            _ => self.data_dependent(&t),
        };
        emitted.is_some()
    }

    fn binary(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let names: &[&str] = match t.dtype() {
            DType::Bool => &["logical_or", "bitwise_xor.Tensor", "eq.Tensor"],
            DType::I64 => &[
                "add.Tensor",
                "mul.Tensor",
                "sub.Tensor",
                "maximum",
                "lt.Tensor",
                "bitwise_and.Tensor",
                "gcd",
            ],
            _ => &["add.Tensor", "mul.Tensor", "sub.Tensor", "maximum", "lt.Tensor", "div.Tensor"],
        };
        let name = self.rng.one(names)?;
        let other = self.operand(t.dtype(), &t.sizes())?;
        self.emit(&format!("aten::{name}"), vec![t.arg(), other.arg()])
    }

    pub(super) fn elementwise(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if self.rng.chance(25) {
            let dtype = self.rng.one(&[self.float(), DType::I64, DType::Bool])?;
            return self
                .emit("aten::to.dtype", vec![t.arg(), BuilderArg::Plain(Arg::DType(dtype))]);
        }
        let names: &[&str] = match t.dtype() {
            DType::Bool => &["logical_not"],
            DType::I64 => &["neg", "abs", "sign"],
            _ => &["neg", "relu", "abs", "sin", "tanh", "sqrt"],
        };
        let name = self.rng.one(names)?;
        self.emit(&format!("aten::{name}"), vec![t.arg()])
    }

    pub(super) fn reduction(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if self.rng.chance(25) {
            return self.emit("aten::sum", vec![t.arg()]);
        }
        let (_, dim) = self.dim(t)?;
        let keep = self.rng.chance(50);
        let op = self.rng.one(&[
            "aten::sum.dim_IntList",
            "aten::amax",
            "aten::cumsum",
            "aten::mean.dim",
        ])?;
        match op {
            "aten::cumsum" => self.emit(op, vec![t.arg(), dim]),
            _ => self.emit(op, vec![t.arg(), BuilderArg::List(vec![dim]), keep.into()]),
        }
    }

    /// A batch norm: the strides of its result follow those of its operand.
    pub(super) fn norm(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let absent = || BuilderArg::Plain(Arg::None);
        let args = vec![t.arg(), absent(), absent(), true.into(), 0.125.into(), 0.5.into()];
        self.emit("aten::_native_batch_norm_legit.no_stats", args)
    }

    fn product(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if t.dtype() == self.float() && t.rank() > 1 && self.rng.chance(40) {
            return self.norm(t);
        }
        let k = *t.sizes().last()?;
        let fits = |l: &LiveTensor| {
            l.dtype() == t.dtype() && (l.sizes().first() == Some(&k) && l.rank() == 2)
        };
        let other = self.pick(fits)?;
        let op = if t.rank() == 2 && self.rng.chance(50) { "aten::mm" } else { "aten::matmul" };
        self.emit(op, vec![t.arg(), other.arg()])
    }

    fn duplicate(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if t.rank() == 4 && self.rng.chance(50) {
            let format = BuilderArg::Plain(Arg::MemoryFormat(MemoryFormat::ChannelsLast));
            return self.emit_kw("aten::clone", vec![t.arg()], vec![("memory_format", format)]);
        }
        let op = self.rng.one(&["aten::clone", "aten::clone", "aten::contiguous"])?;
        self.emit(op, vec![t.arg()])
    }

    fn join(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (sizes, dtype) = (t.sizes(), t.dtype());
        let other = self.pick(|l| l.dtype() == dtype && l.sizes() == sizes)?;
        if t.rank() == 1 && self.rng.chance(40) {
            // the results are expanded
            return self.emit("aten::meshgrid", vec![BuilderArg::List(vec![t.arg(), other.arg()])]);
        }
        let (_, dim) = self.dim(t)?;
        let op = self.rng.one(&["aten::cat", "aten::stack"])?;
        self.emit(op, vec![BuilderArg::List(vec![t.arg(), other.arg()]), dim])
    }

    fn fresh(&mut self) -> Option<Vec<LiveTensor>> {
        let rank = 1 + self.rng.below(2);
        let sizes: Vec<i64> = match self.any() {
            Some(like) if self.rng.chance(60) => like.sizes(),
            _ => (0..rank).map(|_| self.rng.between(1, 4)).collect(),
        };
        let (dtype, written) =
            (self.rng.one(&[self.float(), self.float(), DType::I64])?, self.ints(&sizes));
        let options = vec![("dtype", BuilderArg::Plain(Arg::DType(dtype)))];
        if self.rng.chance(50) {
            return self.emit_kw("aten::zeros", vec![written], options);
        }
        let s = self.scalar(dtype);
        self.emit_kw("aten::full", vec![written, s], options)
    }

    fn choice(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (mask, other) =
            (self.operand(DType::Bool, &t.sizes())?, self.operand(t.dtype(), &t.sizes())?);
        self.emit("aten::where.self", vec![mask.arg(), t.arg(), other.arg()])
    }

    /// Sorting and indexing operators; some have several results.
    fn ordered(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        match self.rng.below(5) {
            4 => {
                let n = *t.sizes().first()?;
                let count = self.rng.between(1, n.clamp(1, 4));
                let at = self.indices(n, count)?;
                self.emit("aten::index.Tensor", vec![t.arg(), BuilderArg::List(vec![at.arg()])])
            }
            0 => self.emit("aten::sort", vec![t.arg(), dim]),
            1 => self.emit("aten::max.dim", vec![t.arg(), dim]),
            2 => self.emit("aten::flip", vec![t.arg(), BuilderArg::List(vec![dim])]),
            _ => {
                let n = *t.sizes().get(d)?;
                let count = self.rng.between(1, n.clamp(1, 4));
                let at = self.indices(n, count)?;
                self.emit("aten::index_select", vec![t.arg(), dim, at.arg()])
            }
        }
    }

    fn random(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let op = self.rng.one(&["aten::rand_like", "aten::randn_like"])?;
        self.emit(op, vec![t.arg()])
    }

    /// An operator with a data-dependent size; sometimes with a view of the result, which is then
    /// mutated.
    fn data_dependent(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if self.data_dependent_sizes() == 2 {
            return None;
        }
        let emitted = match self.rng.below(4) {
            0 => self.emit("aten::nonzero", vec![t.arg()]),
            1 => {
                let mask = self.operand(DType::Bool, &t.sizes())?;
                self.emit("aten::masked_select", vec![t.arg(), mask.arg()])
            }
            2 => self.emit("oracle::hits", vec![t.arg()]),
            _ => return self.emit("oracle::count_", vec![t.arg()]),
        }?;
        if self.rng.chance(60)
            && let Some(data_dependent) = emitted.first()
        {
            let (start, step) = (self.rng.between(0, 1), self.rng.between(1, 2));
            let part = self.emit(
                "aten::slice.Tensor",
                vec![
                    data_dependent.arg(),
                    0.into(),
                    start.into(),
                    BuilderArg::Plain(Arg::None),
                    step.into(),
                ],
            )?;
            let part = part.first()?;
            let s = self.scalar(part.dtype());
            self.emit("aten::fill_.Scalar", vec![part.arg(), s])?;
        }
        Some(emitted)
    }
}
