//! Products with operators on values of their sizes, in any order: what one kernel computes, over
//! memory that nothing reads any more.

use super::super::{Argument, Call};
use super::{Generator, MAX_ELEMENTS, patterns::one};
use Argument::{Bool, Int, None, Value as V};

/// Operators that a kernel computes before a product: they are not worth computing twice.
const BEFORE: [&str; 3] = ["aten::exp", "aten::tanh", "aten::sigmoid"];

/// Operators after a product.
const BEHIND: [&str; 4] =
    ["aten::add.Tensor", "aten::mul.Tensor", "aten::sub.Tensor", "aten::add.Tensor"];

impl Generator {
    /// The last operator after a product of value `v`. The others are added.
    pub(super) fn behind_product(&mut self, v: usize) -> Option<Call> {
        let mut sizes = self.sizes_of(v);
        // Of one dimension, the sizes would not say whether it is that of the batch.
        let &[_, .., inner] = &sizes[..] else { return Option::None };
        // A factor of the sizes of the product may be read after it, too.
        let is_square = inner * inner <= MAX_ELEMENTS && self.rng.chance(60);
        let outer = if is_square { inner } else { self.rng.one(&[1, 17, 33, 65])? };
        *sizes.last_mut()? = outer;
        let (v, weight) = self.with_input(v, vec![outer, inner]);
        let dtype = self.tensor(v)?.dtype();
        let [first, second] =
            [self.input(dtype, sizes.clone(), true), self.input(dtype, sizes, true)];
        let [v, weight] = [v, weight].map(|u| if u >= first { u + 2 } else { u });
        // What a kernel of its own computes is in memory that can be written later.
        let apart = self.added(one(Some("aten::cumsum"), vec![V(first), Int(-1)]))?;
        let before = self.rng.one(&BEFORE);
        let early = self.added(one(before, vec![V(second)]))?;
        let factor = match is_square {
            true => self.rng.one(&[v, apart, early])?,
            false => v,
        };
        let product = self.added(one(Some("aten::linear"), vec![V(factor), V(weight), None]))?;
        let (last, read) = match self.rng.chance(30) {
            true => self.gate([product, early, apart])?,
            false => self.combine([product, early, apart])?,
        };
        // What something else reads, too, is a result of the kernel.
        if self.rng.chance(50) {
            self.added(one(Some("aten::cumsum"), vec![V(read), Int(-1)]));
        }
        Some(match self.rng.below(4) {
            0 => one(Some("aten::add_.Tensor"), vec![V(first), V(last)]),
            1 => one(Some("aten::copy_"), vec![V(second), V(last)]),
            2 => one(Some("aten::_softmax"), vec![V(last), Int(-1), Bool(false)]),
            _ => one(Some("aten::cumsum"), vec![V(last), Int(-1)]),
        })
    }

    /// Adds operators on a product and other values, in any order. Returns the last result, and a
    /// value.
    fn combine(&mut self, values: [usize; 3]) -> Option<(usize, usize)> {
        let (mut last, mut values) = (values[0], values.to_vec());
        for _ in 0..1 + self.rng.below(4) {
            let other = self.rng.one(&values)?;
            let (a, b) = if self.rng.chance(50) { (last, other) } else { (other, last) };
            let op = self.rng.one(&BEHIND);
            last = self.added(one(op, vec![V(a), V(b)]))?;
            values.push(last);
        }
        Some((last, self.rng.one(&values)?))
    }

    /// Adds operators of which the first and the last one read the same value, as a gate. Returns
    /// the results of both.
    fn gate(&mut self, [product, gate, other]: [usize; 3]) -> Option<(usize, usize)> {
        let of = |own: &mut Generator, a: usize, b: usize| {
            let op = own.rng.one(&BEHIND);
            own.added(one(op, vec![V(a), V(b)]))
        };
        let first = of(self, product, gate)?;
        let second = of(self, first, other)?;
        Some((of(self, gate, second)?, first))
    }

    /// Adds a call. Returns its first result, unless the operator refuses the arguments.
    pub(super) fn added(&mut self, call: Call) -> Option<usize> {
        let result = self.values.len();
        self.take(call).then_some(result)
    }
}
