//! In-place operators on a random target, often a view.

use super::super::program_builder::BuilderArg;
use super::{Generator, LiveTensor};
use maquette_ir::DType;
use maquette_ir::graph::Arg;

impl Generator<'_> {
    pub(super) fn write(&mut self) -> bool {
        let Some(t) = self.target() else { return false };
        let emitted = match self.rng.below(100) {
            0..24 => self.pointwise(&t),
            24..40 => self.copy(&t),
            40..50 => self.fill(&t),
            50..60 => self.unary(&t),
            60..68 => self.ternary(&t),
            68..76 => self.scatter(&t),
            76..84 => self.index_add(&t),
            84..92 => self.index_put(&t),
            92..97 => self.masked(&t),
            _ => self.whole(&t),
        };
        emitted.is_some()
    }

    fn pointwise(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let names: &[&str] = match t.dtype() {
            DType::Bool => &["logical_and_", "logical_xor_", "bitwise_or_", "eq_", "ne_"],
            DType::I64 => &["add_", "sub_", "mul_", "bitwise_xor_", "bitwise_and_", "eq_", "lt_"],
            _ => &["add_", "sub_", "mul_", "div_", "lt_", "add_", "mul_"],
        };
        let name = self.rng.one(names)?;
        if self.rng.chance(30) && !name.starts_with("logical") {
            let s = self.scalar(t.dtype());
            return self.emit(&format!("aten::{name}.Scalar"), vec![t.arg(), s]);
        }
        let other = self.operand(t.dtype(), &t.sizes())?;
        let overload = if name.starts_with("logical") { "" } else { ".Tensor" };
        self.emit(&format!("aten::{name}{overload}"), vec![t.arg(), other.arg()])
    }

    /// Copies from another tensor, sometimes of another dtype.
    fn copy(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let dtype = if self.rng.chance(15) {
            self.rng.one(&[self.float(), DType::I64, DType::Bool])?
        } else {
            t.dtype()
        };
        let source = self.operand(dtype, &t.sizes())?;
        self.emit("aten::copy_", vec![t.arg(), source.arg()])
    }

    pub(super) fn fill(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        if self.rng.chance(25) {
            return self.emit("aten::zero_", vec![t.arg()]);
        }
        let s = self.scalar(t.dtype());
        self.emit("aten::fill_.Scalar", vec![t.arg(), s])
    }

    pub(super) fn unary(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let names: &[&str] = match t.dtype() {
            DType::Bool => &["logical_not_"],
            DType::I64 => &["neg_", "abs_", "bitwise_not_", "relu_"],
            _ => &["neg_", "abs_", "relu_", "sin_", "exp_", "sigmoid_", "reciprocal_", "lgamma_"],
        };
        let name = self.rng.one(names)?;
        self.emit(&format!("aten::{name}"), vec![t.arg()])
    }

    fn ternary(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (a, b) = (self.operand(t.dtype(), &t.sizes())?, self.operand(t.dtype(), &t.sizes())?);
        match self.rng.below(3) {
            0 => self.emit("aten::addcmul_", vec![t.arg(), a.arg(), b.arg()]),
            1 => self.emit("aten::lerp_.Scalar", vec![t.arg(), a.arg(), 0.25.into()]),
            _ => {
                let (lo, hi) = (self.scalar(t.dtype()), self.scalar(t.dtype()));
                self.emit("aten::clamp_", vec![t.arg(), lo, hi])
            }
        }
    }

    /// Random indices into a dimension of size `n`: `count` distinct ones, or arbitrary ones from
    /// data.
    pub(super) fn indices(&mut self, n: i64, count: i64) -> Option<LiveTensor> {
        if n == 0 {
            return None;
        }
        // An element that is stored twice has no differences to compare its gradient with.
        let distinct = if self.has_gradients() { 95 } else { 60 };
        if count <= n && self.rng.chance(distinct) {
            let end = self.int(count);
            let range = self.emit_kw(
                "aten::arange",
                vec![end],
                vec![("dtype", BuilderArg::Plain(Arg::DType(DType::I64)))],
            )?;
            return range.into_iter().next();
        }
        let numbers = self.pick(|l| l.dtype() == DType::I64 && l.sizes() == [count])?;
        let n = self.int(n);
        self.emit("aten::remainder.Scalar", vec![numbers.arg(), n])?.into_iter().next()
    }

    fn scatter(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        let (sizes, n) = (t.sizes(), t.sizes().get(d).copied()?);
        let of_size = |l: &LiveTensor| {
            l.dtype() == DType::I64
                && l.rank() == sizes.len()
                && l.sizes().iter().zip(&sizes).all(|(a, b)| a <= b)
        };
        let (numbers, at) = (self.pick(of_size)?, self.int(n));
        let index =
            self.emit("aten::remainder.Scalar", vec![numbers.arg(), at])?.into_iter().next()?;
        if self.rng.chance(30) {
            let s = self.scalar(t.dtype());
            return self.emit("aten::scatter_.value", vec![t.arg(), dim, index.arg(), s]);
        }
        let covers = |l: &LiveTensor| {
            l.dtype() == t.dtype()
                && l.rank() == index.rank()
                && l.sizes().iter().zip(index.sizes()).all(|(a, b)| *a >= b)
        };
        let source = self.pick(covers)?;
        let stores = !self.has_gradients() || self.rng.chance(20);
        match self.rng.below(3) {
            0 if stores => {
                self.emit("aten::scatter_.src", vec![t.arg(), dim, index.arg(), source.arg()])
            }
            0 | 1 => self.emit("aten::scatter_add_", vec![t.arg(), dim, index.arg(), source.arg()]),
            _ => {
                let reduce = self.rng.one(&["sum", "amax", "prod"])?;
                self.emit(
                    "aten::scatter_reduce_.two",
                    vec![
                        t.arg(),
                        dim,
                        index.arg(),
                        source.arg(),
                        BuilderArg::Str(reduce.to_owned()),
                    ],
                )
            }
        }
    }

    fn index_add(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let (d, dim) = self.dim(t)?;
        let sizes = t.sizes();
        let n = *sizes.get(d)?;
        if self.rng.chance(30) {
            let (at, s) = (self.indices(n, n.min(2))?, self.scalar(t.dtype()));
            return self.emit("aten::index_fill_.int_Scalar", vec![t.arg(), dim, at.arg(), s]);
        }
        let rest = |l: &LiveTensor| {
            let from = l.sizes();
            l.dtype() == t.dtype()
                && from.len() == sizes.len()
                && from.iter().zip(&sizes).enumerate().all(|(i, (a, b))| i == d || a == b)
        };
        let source = self.pick(rest)?;
        let count = *source.sizes().get(d)?;
        let index = self.indices(n, count)?;
        let op = self.rng.one(&["aten::index_add_", "aten::index_copy_"])?;
        self.emit(op, vec![t.arg(), dim, index.arg(), source.arg()])
    }

    fn index_put(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let sizes = t.sizes();
        let accumulate = self.rng.chance(40);
        if self.rng.chance(25) {
            let mask = self.pick(|l| l.dtype() == DType::Bool && l.sizes() == sizes)?;
            let value = self.pick(|l| {
                l.dtype() == t.dtype() && l.tensor.numel().as_i64() == Some(1) && l.rank() == 0
            })?;
            return self.emit(
                "aten::index_put_",
                vec![t.arg(), BuilderArg::List(vec![mask.arg()]), value.arg(), accumulate.into()],
            );
        }
        let n = *sizes.first()?;
        let count = self.rng.between(1, n.clamp(1, 3));
        let at = self.indices(n, count)?;
        let mut wanted = sizes.clone();
        *wanted.first_mut()? = count;
        let values = self.operand(t.dtype(), &wanted)?;
        let mut indices = vec![at.arg()];
        if sizes.len() > 1 && self.rng.chance(30) {
            indices.insert(0, BuilderArg::Plain(Arg::None));
        }
        self.emit(
            "aten::index_put_",
            vec![t.arg(), BuilderArg::List(indices), values.arg(), accumulate.into()],
        )
    }

    fn masked(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        let mask = self.operand(DType::Bool, &t.sizes())?;
        let s = self.scalar(t.dtype());
        self.emit("aten::masked_fill_.Scalar", vec![t.arg(), mask.arg(), s])
    }

    /// Operators on whole tensors: matrix products, scans, random numbers.
    fn whole(&mut self, t: &LiveTensor) -> Option<Vec<LiveTensor>> {
        match (self.rng.below(3), t.sizes().as_slice()) {
            (0, &[n, m]) => {
                let a = self.pick(|l| {
                    l.dtype() == t.dtype() && matches!(l.sizes().as_slice(), &[x, _] if x == n)
                })?;
                let k = *a.sizes().get(1)?;
                let b = self.pick(|l| l.dtype() == t.dtype() && l.sizes() == [k, m])?;
                self.emit("aten::addmm_", vec![t.arg(), a.arg(), b.arg()])
            }
            (1, &[n, m]) if self.rng.chance(50) => {
                let (a, b) = (self.operand(t.dtype(), &[n])?, self.operand(t.dtype(), &[m])?);
                self.emit("aten::addr_", vec![t.arg(), a.arg(), b.arg()])
            }
            (1, _) => self.emit("aten::bernoulli_.float", vec![t.arg(), 0.5.into()]),
            _ => {
                let (_, dim) = self.dim(t)?;
                self.emit("aten::cumsum_", vec![t.arg(), dim])
            }
        }
    }
}
