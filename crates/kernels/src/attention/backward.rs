//! The gradients of an attention, one block of query rows at a time.
//!
//! As in FlashAttention (Dao et al. 2022), the scores are computed again, and never in memory as a
//! whole. With the weights `p = softmax(s)`, `s = q kᵀ scale + mask`, of a block of rows:
//!
//! ```text
//! dv += pᵀ g                 dp = g vᵀ
//! ds = p (dp - Σ p dp)       dq = ds k scale      dk += dsᵀ q scale
//! ```
//!
//! The blocks of a batch are taken in order, by one task, so that the sums over queries have one
//! order: that of products within blocks of [`ROWS`], and of the blocks. It depends on extents
//! alone. The scratch of a task is two blocks of scores.

use super::rows::{OfScores, padded};
use super::scores::{Matrices, Scores, row_major};
use super::{Attention, KERNEL};
use crate::copy::{same_dtype, same_sizes};
use crate::element::Element;
use crate::error::{KernelError, Result};
use crate::gemm::{Gemm, Mat, Product, Right};
use crate::isa::Isa;
use crate::load_store::Reader;
use crate::math::Float;
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use maquette_ir::DType;
use std::ops::Range;

/// The query rows of a block.
const ROWS: usize = 64;

/// The gradients of `query[..., N, E]`, `key[..., L, E]` and `value[..., L, D]` of
/// [`attention`](super::attention()), from `grad[..., N, D]`, the gradient of its result. All are
/// of `f32` or all of `f64`, with the same leading sizes. `round`, `plain_softmax` and `logsumexp`
/// of the options are not used.
///
/// # Errors
/// The sizes or the dtypes do not fit, or there is not enough memory.
pub fn attention_backward(
    grad: &View<'_>,
    [q, k, v]: [&View<'_>; 3],
    options: &Attention<'_>,
    outs: [&mut ViewMut<'_>; 3],
) -> Result<()> {
    let rank = grad.rank();
    for found in [q.rank(), k.rank(), v.rank()] {
        if rank < 2 || found != rank {
            let expected = rank.max(2);
            return Err(KernelError::Count { kernel: KERNEL, what: "dimensions", expected, found });
        }
    }
    let batch = Dims::from_slice(&grad.sizes()[..rank - 2]);
    let (n, d) = (grad.sizes()[rank - 2], grad.sizes()[rank - 1]);
    let (e, l) = (q.sizes()[rank - 1], k.sizes()[rank - 2]);
    let with = |rest: [i64; 2]| batch.iter().copied().chain(rest).collect::<Dims>();
    let [dq, dk, dv] = outs;
    for (name, view, sizes) in [
        ("the query", q, [n, e]),
        ("the key", k, [l, e]),
        ("the value", v, [l, d]),
        ("the gradient of the query", dq.as_view(), [n, e]),
        ("the gradient of the key", dk.as_view(), [l, e]),
        ("the gradient of the value", dv.as_view(), [l, d]),
    ] {
        same_sizes(KERNEL, name, &with(sizes), view.sizes())?;
        same_dtype(KERNEL, name, grad.dtype(), view.dtype())?;
    }
    if ![dq.as_view(), dk.as_view(), dv.as_view()].iter().all(|out| out.is_contiguous()) {
        return Err(KernelError::argument(KERNEL, "the gradients must be row-major"));
    }
    let mask = options.mask.as_ref().map(|m| m.expand(&with([n, l]))).transpose()?;
    let options =
        Attention { scale: options.scale, causal: options.causal, mask, ..Attention::default() };
    let operands = [grad, q, k, v];
    match grad.dtype() {
        DType::F32 => typed::<f32>(operands, &options, [dq, dk, dv]),
        DType::F64 => typed::<f64>(operands, &options, [dq, dk, dv]),
        found => {
            let expected = "f32 or f64".into();
            Err(KernelError::DType { kernel: KERNEL, operand: "the gradient", expected, found })
        }
    }
}

fn matrices<A: Element>(view: &View<'_>) -> Matrices<A> {
    let (sizes, strides) = (Dims::from_slice(view.sizes()), Dims::from_slice(view.strides()));
    Matrices { base: view.typed::<A>(), sizes, strides }
}

fn typed<A: Element + Float + Product>(
    [grad, q, k, v]: [&View<'_>; 4],
    options: &Attention<'_>,
    outs: [&mut ViewMut<'_>; 3],
) -> Result<()> {
    let rank = grad.rank();
    let [n, d] = [grad.sizes()[rank - 2] as usize, grad.sizes()[rank - 1] as usize];
    let [l, e] = [k.sizes()[rank - 2] as usize, k.sizes()[rank - 1] as usize];
    let batches = numel(&grad.sizes()[..rank - 2]);
    let isa = Isa::detect();
    let seen = if options.causal { l.min(n) } else { l };
    let work = Backward {
        scores: Scores {
            isa,
            dims: [n, seen, e],
            q: matrices(q),
            k: matrices(k),
            scale: A::from_f64(options.scale),
            causal: options.causal,
            mask: options.mask.as_ref().map(|m| (Reader::new(m), m)),
            plain_softmax: false,
            round: None,
            logsumexp: None,
        },
        keys: l,
        width: d,
        grad: matrices(grad),
        v: matrices(v),
        outs: outs.map(|out| matrices(out.as_view())),
    };
    let rows = ROWS.min(n);
    let scores = rows.saturating_mul(padded(seen));
    let masks = if work.scores.mask.is_some() { seen } else { 0 };
    thread_pool::ranges(batches, 1, 1, &|from, to| {
        let scratch = scores.saturating_mul(2).saturating_add(masks);
        with_scratch(KERNEL, scratch, |scratch: &mut [A]| {
            let (weights, rest) = scratch.split_at_mut(scores);
            let (products, hidden) = rest.split_at_mut(scores);
            (from..to).try_for_each(|batch| work.batch(batch, [weights, products, hidden]))
        })?
    })
}

struct Backward<'a, A> {
    scores: Scores<'a, A>,
    /// The number of keys, seen or not.
    keys: usize,
    /// The width of values.
    width: usize,
    grad: Matrices<A>,
    v: Matrices<A>,
    /// The gradients of the query, the key and the value.
    outs: [Matrices<A>; 3],
}

impl<A: Element + Float + Product> Backward<'_, A> {
    /// Computes the gradients of one batch. The scratch is for weights, for products, and for one
    /// row of the mask.
    fn batch(&self, batch: usize, [weights, products, hidden]: [&mut [A]; 3]) -> Result<()> {
        let ([n, _, e], l, d) = (self.scores.dims, self.keys, self.width);
        let [dq, dk, dv] = self.outs.each_ref().map(|out| out.at(batch));
        let clear = |out: Mat<A>, rows: Range<usize>, columns| {
            for row in rows {
                // SAFETY: a row of this batch of an output, which is this task's alone. Outputs are
                // row-major.
                unsafe { out.start.slice_mut(out.offset(row, 0), columns) }.fill(A::ZERO);
            }
        };
        // The products of the first block write the gradients of the keys that it sees.
        let seen_at_first = if n > 0 { self.scores.seen(&(0..n.min(ROWS))) } else { 0 };
        clear(dk, seen_at_first..l, e);
        clear(dv, seen_at_first..l, d);
        if seen_at_first == 0 {
            clear(dq, 0..n, e);
            return Ok(());
        }
        let zero = A::ZERO;
        // All elements of this matrix are one zero. To add it removes the sign of a sum that is 0.
        let zeros = Mat {
            start: Ptr(std::ptr::from_ref(&zero).cast_mut()),
            row_stride: 0,
            column_stride: 0,
        };
        let mut found = [[A::ZERO; 2]; ROWS];
        for first in (0..n).step_by(ROWS) {
            let rows = first..n.min(first + ROWS);
            let (m, seen) = (rows.len(), self.scores.seen(&rows));
            let stride = padded(seen);
            let (p, ds) = (&mut weights[..m * stride], &mut products[..m * stride]);
            self.scores.scores(batch, rows.clone(), p)?;
            self.scores.weights((batch, rows), p, hidden, true, &mut found[..m]);
            let g = self.grad.at(batch).skip_rows(first);
            let product = |sizes: [usize; 3], c: Mat<A>, a: Mat<A>, b: Mat<A>, alpha, addend| {
                let gemm = Gemm { sizes, c, a, b: Right::InPlace(b), alpha, addend };
                if sizes.contains(&0) {
                    return Ok(());
                }
                // SAFETY: rows of the block, the keys that it sees, scratch of a block, and
                // outputs of this batch, which are this task's alone.
                unsafe { A::product(self.scores.isa, 1, gemm) }
            };
            let of_weights = row_major(ds, stride);
            if d == 0 {
                ds.fill(A::ZERO);
            }
            let v = self.v.at(batch).transposed();
            product([m, seen, d], of_weights, g, v, A::ONE, None)?;
            let before = |sum| Some(if first == 0 { zeros } else { sum });
            let weights = row_major(p, stride).transposed();
            product([seen, d, m], dv, weights, g, A::ONE, before(dv))?;
            self.scores.isa.dispatch(OfScores { weights: p, gradients: ds, keys: seen });
            let (scale, ds) = (self.scores.scale, row_major(ds, stride));
            let (q, k) = (self.scores.q.at(batch).skip_rows(first), self.scores.k.at(batch));
            product([m, e, seen], dq.skip_rows(first), ds, k, scale, None)?;
            product([seen, e, m], dk, ds.transposed(), q, scale, before(dk))?;
        }
        Ok(())
    }
}
