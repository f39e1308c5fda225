//! Products of one left factor, as the query, key and value of an attention: what one kernel
//! computes.

use super::super::{Argument, Call};
use super::Generator;
use super::patterns::{UNARY, one};
use Argument::{None, Value as V};

impl Generator {
    /// Products that share their left factor: with some columns each, with a bias or something
    /// behind them, and now and then with a write of the factor between them.
    pub(super) fn products(&mut self, v: usize) -> Call {
        let mut v = v;
        let sizes = self.sizes_of(v);
        let Some(&k) = sizes.last() else { return one(Option::None, vec![V(v)]) };
        let n = self.rng.one(&[1, 3, 16, 33, 48, 65, 130]).unwrap_or(16);
        let mut results: Vec<usize> = Vec::new();
        for _ in 0..2 + self.rng.below(3) {
            let n = if self.rng.chance(75) { n } else { n + 7 };
            let inputs = self.chain.inputs.len();
            let (of, w) = self.with_input(v, vec![n, k]);
            let (of, b) = self.with_input(of, vec![n]);
            let w = if w >= b { w + 1 } else { w };
            // New inputs move the values behind them.
            let moved = self.chain.inputs.len() - inputs;
            results.iter_mut().for_each(|r| *r += moved);
            v = of;
            let bias = if self.rng.chance(50) { V(b) } else { None };
            let result = self.values.len();
            if !self.take(one(Some("aten::linear"), vec![V(v), V(w), bias])) {
                break;
            }
            results.push(result);
            if self.rng.chance(30) {
                let op = self.rng.one(&UNARY);
                self.take(one(op, vec![V(result)]));
            }
            if self.rng.chance(6) {
                self.take(one(Some("aten::mul_.Tensor"), vec![V(v), V(v)]));
            }
        }
        // The gate and the value of a gated network.
        match results[..] {
            [a, .., b] => one(Some("aten::mul.Tensor"), vec![V(a), V(b)]),
            _ => one(Option::None, vec![V(v)]),
        }
    }
}
