//! The patterns of calls.

use super::super::{Argument, Call};
use super::{EXTENTS, Generator};
use Argument::{Bool, Float, Int, Ints, None, Value as V, Values};
use maquette_ir::DType;
use maquette_ops::Tensor;

pub(super) const UNARY: [&str; 20] = [
    "aten::neg",
    "aten::abs",
    "aten::exp",
    "aten::tanh",
    "aten::relu",
    "aten::sigmoid",
    "aten::sqrt",
    "aten::rsqrt",
    "aten::silu",
    "aten::sin",
    "aten::cos",
    "aten::floor",
    "aten::sign",
    "aten::reciprocal",
    "aten::log1p",
    "aten::erf",
    "aten::square",
    "aten::isnan",
    "aten::logical_not",
    "aten::gelu",
];

const BINARY: [&str; 12] = [
    "aten::add.Tensor",
    "aten::sub.Tensor",
    "aten::mul.Tensor",
    "aten::div.Tensor",
    "aten::maximum",
    "aten::minimum",
    "aten::gt.Tensor",
    "aten::eq.Tensor",
    "aten::atan2",
    "aten::mul.Tensor",
    "aten::add.Tensor",
    "aten::remainder.Tensor",
];

const IN_PLACE: [&str; 4] =
    ["aten::add_.Tensor", "aten::mul_.Tensor", "aten::copy_", "aten::sub_.Tensor"];

/// Custom operators of the [oracle](crate::oracle) that take one tensor: new tensors, a view, a
/// write.
const CUSTOM_UNARY: [&str; 3] = ["oracle::both", "oracle::tail", "oracle::remix_"];

/// Custom operators that take two tensors: a new tensor, and writes.
const CUSTOM_BINARY: [&str; 5] =
    ["oracle::mix", "oracle::mix_", "oracle::strides_", "oracle::acc_", "oracle::mix"];

pub(super) fn one(op: Option<&'static str>, args: Vec<Argument>) -> Call {
    Call { op: op.unwrap_or("aten::neg"), args }
}

/// What the norm of a value adds to the variance. Norms that may be one kernel often add different
/// numbers.
fn epsilon(of: usize) -> Argument {
    Float(if of.is_multiple_of(2) { 1e-5 } else { 0.25 })
}

impl Generator {
    /// A call that the operator may refuse.
    pub(super) fn call(&mut self) -> Call {
        let v = self.any();
        match self.rng.below(72) {
            0..=26 => self.elements(v),
            27..=36 => self.rows(v),
            37..=45 => self.view(v),
            46..=49 => self.product(v),
            50 => {
                let (v, u) = self.partner(v);
                one(Some("aten::cat"), vec![Values(vec![v, u]), Int(-1)])
            }
            51..=53 => {
                let op = self.rng.one(&IN_PLACE);
                let (v, u) = self.partner(v);
                one(op, vec![V(v), V(u)])
            }
            54 => self.selected(v),
            55 => self.embedded(v).unwrap_or_else(|| one(Option::None, vec![V(v)])),
            56 => {
                let op = self.rng.one(&["aten::rand_like", "aten::bernoulli"]);
                one(op, vec![V(v)])
            }
            57 => self.custom_unary(v),
            58..=60 => self.concatenated(v),
            61 => self.halves(v),
            62 => self.attention(v),
            63..=66 => self.products(v),
            67 | 68 => self.behind_product(v).unwrap_or_else(|| one(Option::None, vec![V(v)])),
            69 => self.custom_binary(v),
            70 => self.gathered(v).unwrap_or_else(|| one(Option::None, vec![V(v)])),
            _ => self.embedded(v).unwrap_or_else(|| one(Option::None, vec![V(v)])),
        }
    }

    pub(super) fn custom_unary(&mut self, v: usize) -> Call {
        let op = self.rng.one(&CUSTOM_UNARY);
        one(op, vec![V(v)])
    }

    pub(super) fn custom_binary(&mut self, v: usize) -> Call {
        let op = self.rng.one(&CUSTOM_BINARY);
        let (v, u) = self.partner(v);
        one(op, vec![V(v), V(u)])
    }

    fn elements(&mut self, v: usize) -> Call {
        match self.rng.below(18) {
            0..=5 => {
                let op = self.rng.one(&UNARY);
                one(op, vec![V(v)])
            }
            6..=13 => {
                let op = self.rng.one(&BINARY);
                let (v, u) = self.partner(v);
                let (a, b) = if self.rng.chance(50) { (v, u) } else { (u, v) };
                one(op, vec![V(a), V(b)])
            }
            14 if self.rng.chance(30) => one(Some("aten::clone"), vec![V(v)]),
            14 => one(Some("aten::add.Scalar"), vec![V(v), Float(0.625)]),
            15 => one(Some("aten::mul.Scalar"), vec![V(v), Float(-0.3)]),
            16 => {
                let dtype = self.dtype();
                one(Some("aten::_to_copy"), vec![V(v), Argument::DType(dtype)])
            }
            _ => {
                let (v, u) = self.partner(v);
                let inputs = self.chain.inputs.len();
                let (v, w) = self.partner(v);
                // A new input moves the values after it.
                let moved = self.chain.inputs.len() > inputs && u >= w;
                one(Some("aten::addcmul"), vec![V(v), V(u + usize::from(moved)), V(w)])
            }
        }
    }

    pub(super) fn rows(&mut self, v: usize) -> Call {
        match self.rng.below(9) {
            0 | 1 => {
                let dim = self.dim(v);
                let op = self.rng.one(&["aten::_softmax", "aten::_log_softmax"]);
                one(op, vec![V(v), Int(dim), Bool(false)])
            }
            2..=4 => {
                let op = self.rng.one(&[
                    "aten::sum.dim_IntList",
                    "aten::mean.dim",
                    "aten::amax",
                    "aten::amin",
                    "aten::logsumexp",
                ]);
                let (dim, keep) = (self.dim(v), self.rng.chance(60));
                one(op, vec![V(v), Ints(vec![dim]), Bool(keep)])
            }
            5 | 6 => {
                let Some(&last) = self.sizes_of(v).last() else {
                    return one(Option::None, vec![V(v)]);
                };
                let (v, w) = self.with_input(v, vec![last]);
                let bias = if self.rng.chance(50) { V(w) } else { None };
                let args = vec![V(v), Ints(vec![last]), V(w), bias, epsilon(v)];
                one(Some("aten::native_layer_norm"), args)
            }
            7 => self.norm(v).unwrap_or_else(|| one(Option::None, vec![V(v)])),
            _ => {
                let dim = self.dim(v);
                one(Some("aten::cumsum"), vec![V(v), Int(dim)])
            }
        }
    }

    /// A batch norm with given statistics.
    pub(super) fn norm(&mut self, v: usize) -> Option<Call> {
        // A size other than that of the batch, which may change.
        let channels = *self.sizes_of(v).get(1)?;
        let (v, mean) = self.with_input(v, vec![channels]);
        let (v, var) = self.with_input(v, vec![channels]);
        let mean = if mean >= var { mean + 1 } else { mean };
        let weight = if self.rng.chance(50) { V(mean) } else { None };
        let args = vec![V(v), weight, None, V(mean), V(var), Float(0.1), epsilon(v)];
        Some(one(Some("aten::_native_batch_norm_legit_no_training"), args))
    }

    /// A view. Sizes of reshapes hold for every size of the batch.
    pub(super) fn view(&mut self, v: usize) -> Call {
        let sizes = self.sizes_of(v);
        let dim = self.dim(v);
        match self.rng.below(7) {
            0 => {
                let other = self.dim(v);
                let other = if other == dim { 0 } else { other };
                one(Some("aten::transpose.int"), vec![V(v), Int(dim), Int(other)])
            }
            1 => one(Some("aten::unsqueeze"), vec![V(v), Int(dim)]),
            2 => {
                let (from, step) = (self.rng.below(3) as i64, 1 + self.rng.below(2) as i64);
                let args = vec![V(v), Int(dim), Int(from), None, Int(step)];
                one(Some("aten::slice.Tensor"), args)
            }
            3 => {
                let last = sizes.len().max(1) as i64 - 1;
                let from = self.rng.below(sizes.len().max(1)) as i64;
                let args = vec![V(v), Int(from), Int(last)];
                one(Some("aten::flatten.using_ints"), args)
            }
            _ => {
                let last = sizes.last().copied().unwrap_or(1);
                let divisors: Vec<i64> = [1, 2, 3, 4, 5, 8, 11, 16, 41, 64]
                    .into_iter()
                    .filter(|d| last % d == 0)
                    .collect();
                let part = self.rng.one(&divisors).unwrap_or(1);
                let sizes = match self.rng.below(3) {
                    0 => vec![-1, part],
                    1 => vec![-1, last / part, part],
                    _ => vec![-1, part, last / part, 1],
                };
                let op = self.rng.one(&["aten::reshape", "aten::view"]);
                one(op, vec![V(v), Ints(sizes)])
            }
        }
    }

    fn product(&mut self, v: usize) -> Call {
        let sizes = self.sizes_of(v);
        if let &[_, channels, _, ..] = &sizes[..]
            && self.rng.chance(60)
        {
            let out = self.rng.one(&[1, 4, 16, 19, 33]).unwrap_or(1);
            let window = self.window();
            return self.convolution(v, [channels, out], window, sizes.len() - 2);
        }
        let Some(&k) = self.sizes_of(v).last() else { return one(Option::None, vec![V(v)]) };
        let n = self.rng.one(&EXTENTS).unwrap_or(4).min(65);
        let (v, w) = self.with_input(v, vec![n, k]);
        one(Some("aten::linear"), vec![V(v), V(w)])
    }

    /// The size, the stride, the padding and the dilation of a window.
    pub(super) fn window(&mut self) -> [i64; 4] {
        let size = self.rng.one(&[1, 2, 3]).unwrap_or(1);
        let stride = self.rng.one(&[1, 1, 2]).unwrap_or(1);
        let dilation = self.rng.one(&[1, 1, 2]).unwrap_or(1);
        [size, stride, self.rng.below(2) as i64, dilation]
    }

    /// A convolution from some channels to others, or by single channels.
    pub(super) fn convolution(
        &mut self,
        v: usize,
        [channels, out]: [i64; 2],
        [size, stride, padding, dilation]: [i64; 4],
        spatial: usize,
    ) -> Call {
        let is_depthwise = self.rng.chance(40);
        let [out, inner] = if is_depthwise { [channels, 1] } else { [out, channels] };
        let sizes = [out, inner].into_iter().chain(std::iter::repeat_n(size, spatial));
        let (v, w) = self.with_input(v, sizes.collect());
        let (v, b) = self.with_input(v, vec![out]);
        let w = if w >= b { w + 1 } else { w };
        let bias = if self.rng.chance(50) { V(b) } else { None };
        let [stride, padding, dilation, zero] =
            [stride, padding, dilation, 0].map(|n| Ints(vec![n; spatial]));
        let groups = Int(if is_depthwise { channels } else { 1 });
        let args = vec![V(v), V(w), bias, stride, padding, dilation, Bool(false), zero, groups];
        one(Some("aten::convolution"), args)
    }

    /// A concatenation of values that have just been computed, and now and then of one twice.
    fn concatenated(&mut self, v: usize) -> Call {
        let mut parts = vec![v];
        for _ in 0..1 + self.rng.below(3) {
            let part = self.values.len();
            let op = self.rng.one(&UNARY);
            if self.rng.chance(80) && self.take(one(op, vec![V(v)])) {
                parts.push(part);
            } else {
                parts.push(v);
            }
        }
        if self.rng.chance(70) {
            parts.remove(0);
        }
        let dim = self.dim(v);
        one(Some("aten::cat"), vec![Values(parts), Int(dim)])
    }

    /// Both halves of a value along its last dimension, the second one first.
    fn halves(&mut self, v: usize) -> Call {
        let first = self.values.len();
        // The number of parts must not depend on the batch.
        if self.sizes_of(v).len() < 2
            || self.sizes_of(v).last() == Some(&1)
            || !self.take(one(Some("aten::chunk"), vec![V(v), Int(2), Int(-1)]))
        {
            return one(Option::None, vec![V(v)]);
        }
        one(Some("aten::cat"), vec![Values(vec![first + 1, first]), Int(-1)])
    }

    /// An attention of a value with itself, whose heads are put together.
    fn attention(&mut self, v: usize) -> Call {
        let &[_, heads, _, width] = &self.sizes_of(v)[..] else {
            return one(Option::None, vec![V(v)]);
        };
        let (y, causal) = (self.values.len(), self.rng.chance(50));
        let args = vec![V(v), V(v), V(v), None, Float(0.0), Bool(causal)];
        let transpose = vec![V(y), Int(1), Int(2)];
        if !self.take(one(Some("aten::scaled_dot_product_attention"), args))
            || !self.take(one(Some("aten::transpose.int"), transpose))
        {
            return one(Option::None, vec![V(v)]);
        }
        one(Some("aten::reshape"), vec![V(y + 1), Ints(vec![-1, heads * width])])
    }

    /// A selection by indices that are in range for the last dimension, as most often; an operator
    /// that may fail.
    fn selected(&mut self, v: usize) -> Call {
        let Some(&last) = self.sizes_of(v).last() else { return one(Option::None, vec![V(v)]) };
        let count = self.rng.one(&EXTENTS).unwrap_or(4).min(33);
        let index = self.input(DType::I64, vec![count], false);
        let v = if v >= index { v + 1 } else { v };
        let remainder = vec![V(index), Int(last.max(1))];
        let first_result = self.values.len();
        if !self.take(one(Some("aten::remainder.Scalar"), remainder)) {
            return one(Option::None, vec![V(v)]);
        }
        one(Some("aten::index_select"), vec![V(v), Int(-1), V(first_result)])
    }

    /// A new input of the dtype of value `v`, the same for each size of the batch, with the new
    /// number of `v`.
    pub(super) fn with_input(&mut self, v: usize, sizes: Vec<i64>) -> (usize, usize) {
        let dtype = self.tensor(v).map_or(DType::F32, Tensor::dtype);
        let u = self.input(dtype, sizes, false);
        (if v >= u { v + 1 } else { v }, u)
    }
}
