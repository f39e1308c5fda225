//! Embeddings and gathers with what follows them, of which an index may be out of range.

use super::super::{Argument, Call};
use super::{Generator, patterns::one};
use Argument::{Bool, Float, Int, Ints, None, Value as V};
use maquette_ir::DType;

/// One more than the greatest magnitude of the integers that inputs have.
const MAGNITUDES: i64 = 24;

impl Generator {
    /// The sum of a value with one to three embeddings of its sizes, and mostly its norm.
    pub(super) fn embedded(&mut self, v: usize) -> Option<Call> {
        let sizes = self.sizes_of(v);
        let (&width, rows) = sizes.split_last()?;
        let mut sum = v;
        for _ in 0..1 + self.rng.below(3) {
            let (moved, at) = self.positions(sum, rows.to_vec())?;
            let size = self.dimension();
            let table = self.input(self.tensor(moved)?.dtype(), vec![size, width], false);
            let [moved, at] = [moved, at].map(|u| if u >= table { u + 1 } else { u });
            let embedding = self.added(one(Some("aten::embedding"), vec![V(table), V(at)]))?;
            let (a, b) = if self.rng.chance(50) { (moved, embedding) } else { (embedding, moved) };
            sum = self.added(one(Some("aten::add.Tensor"), vec![V(a), V(b)]))?;
        }
        Some(match self.rng.below(3) {
            0 => one(Some("aten::tanh"), vec![V(sum)]),
            1 => one(Some("aten::_softmax"), vec![V(sum), Int(-1), Bool(false)]),
            _ => {
                let args = vec![V(sum), Ints(vec![width]), None, None, Float(1e-5)];
                one(Some("aten::layer_norm"), args)
            }
        })
    }

    /// An operator on elements that are gathered along a dimension, at positions of a value's
    /// sizes.
    pub(super) fn gathered(&mut self, v: usize) -> Option<Call> {
        let sizes = self.sizes_of(v);
        let dim = self.rng.below(sizes.len().max(1));
        let (v, at) = self.positions(v, sizes.clone())?;
        let mut of = sizes;
        *of.get_mut(dim)? = self.dimension();
        let source = self.input(self.tensor(v)?.dtype(), of, dim > 0);
        let [v, at] = [v, at].map(|u| if u >= source { u + 1 } else { u });
        let args = vec![V(source), Int(dim as i64), V(at)];
        let gathered = self.added(one(Some("aten::gather"), args))?;
        Some(one(Some("aten::mul.Tensor"), vec![V(gathered), V(v)]))
    }

    /// Adds positions of some sizes, which are seldom the greatest. Returns the new number of `v`,
    /// and that of the positions.
    fn positions(&mut self, v: usize, sizes: Vec<i64>) -> Option<(usize, usize)> {
        let dtype = if self.rng.chance(70) { DType::I64 } else { DType::I32 };
        let index = self.input(dtype, sizes, true);
        let at = self.added(one(Some("aten::abs"), vec![V(index)]))?;
        // Only an embedding takes other indices than `i64`.
        Some((if v >= index { v + 1 } else { v }, at))
    }

    /// A size that has each position, or not the greatest, or more.
    fn dimension(&mut self) -> i64 {
        self.rng.one(&[MAGNITUDES, MAGNITUDES - 1, MAGNITUDES + 9]).unwrap_or(MAGNITUDES)
    }
}
