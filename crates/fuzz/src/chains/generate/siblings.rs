//! Products of one left factor, as the query, key and value of an attention: what one kernel
//! computes.

use super::super::{Argument, Call};
use super::patterns::{UNARY, one};
use super::{Generator, MAX_ELEMENTS};
use Argument::{Ints, None, Value as V};

impl Generator {
    /// Products that share their left factor: with some columns each, with a bias or something
    /// after them, and now and then with a write of the factor between them.
    pub(super) fn products(&mut self, v: usize) -> Call {
        let mut v = v;
        let sizes = self.sizes_of(v);
        let Some(&k) = sizes.last() else { return one(Option::None, vec![V(v)]) };
        // As many columns as rows hide which of them something is broadcast along.
        let rows = sizes.iter().rev().nth(1).copied().unwrap_or(1);
        let rows = if rows <= MAX_ELEMENTS / rows.max(1) { rows } else { 16 };
        let n = self.rng.one(&[1, 3, 16, rows, 33, 48, 65, 130]).unwrap_or(16);
        let mut results: Vec<usize> = Vec::new();
        for _ in 0..2 + self.rng.below(3) {
            let n = match self.rng.below(8) {
                0 => 1,
                1 => n + 7,
                _ => n,
            };
            let inputs = self.chain.inputs.len();
            let (of, w) = self.with_input(v, vec![n, k]);
            let (of, b) = self.with_input(of, vec![n]);
            let w = if w >= b { w + 1 } else { w };
            // New inputs move the values after them.
            let moved = self.chain.inputs.len() - inputs;
            results.iter_mut().for_each(|r| *r += moved);
            v = of;
            let bias = if self.rng.chance(50) { V(b) } else { None };
            let result = self.values.len();
            if !self.take(one(Some("aten::linear"), vec![V(v), V(w), bias])) {
                break;
            }
            results.push(result);
            if self.rng.chance(20) {
                // Of one column, the rows alone; of several, as many elements in other rows.
                let lead = &sizes[..sizes.len() - 1];
                let viewed = match (n, lead) {
                    (1, _) => lead.to_vec(),
                    (_, [batch @ .., m]) => batch.iter().copied().chain([n, *m]).collect(),
                    _ => vec![-1],
                };
                let view = self.values.len();
                if self.take(one(Some("aten::reshape"), vec![V(result), Ints(viewed)]))
                    && let Some(last) = results.last_mut()
                {
                    *last = view;
                }
            }
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
