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
//! alone. The scratch of a task is three blocks of scores.

use super::scores::{Matrices, Scores, row_major};
use super::{Attention, KERNEL};
use crate::copy::{same_dtype, same_sizes};
use crate::element::Element;
use crate::error::{KernelError, Result};
use crate::gemm::{Gemm, Mat, Product, Right};
use crate::isa::{Each, Isa, Simd};
use crate::load_store::Reader;
use crate::math::Float;
use crate::pointwise::ops::Add;
use crate::reduce::lanes;
use crate::scratch::Scratch;
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut, numel};
use maquette_ir::DType;

/// The query rows of a block.
const ROWS: usize = 64;

/// The gradients of `query[..., N, E]`, `key[..., L, E]` and `value[..., L, D]` of
/// [`attention`](super::attention()), from `grad[..., N, D]`, the gradient of its result. All are of
/// `f32` or all of `f64`, with the same leading sizes. `round` and `logsumexp` of the options are
/// not used.
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
    let (scores, masks) = (rows * seen, if work.scores.mask.is_some() { seen } else { 0 });
    thread_pool::ranges(batches, 1, 1, &|from, to| {
        let scratch = |n| Scratch::new(KERNEL, n);
        let mut scratch = [scratch(scores)?, scratch(scores)?, scratch(scores)?, scratch(masks)?];
        (from..to).try_for_each(|batch| work.batch(batch, scratch.each_mut().map(Scratch::get)))
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
    /// Computes the gradients of one batch. The scratch is for weights, scores or their gradients,
    /// products, and one row of the mask.
    fn batch(&self, batch: usize, scratch: [&mut [A]; 4]) -> Result<()> {
        let ([n, _, e], l, d) = (self.scores.dims, self.keys, self.width);
        let [dq, dk, dv] = self.outs.each_ref().map(|out| out.at(batch));
        for (out, rows, columns) in [(dq, n, e), (dk, l, e), (dv, l, d)] {
            for row in 0..rows {
                // SAFETY: a row of this batch of an output, which is this task's alone. Outputs are
                // row-major.
                unsafe { out.start.slice_mut(out.offset(row, 0), columns) }.fill(A::ZERO);
            }
        }
        let [weights, scores, products, hidden] = scratch;
        for first in (0..n).step_by(ROWS) {
            let rows = first..n.min(first + ROWS);
            let (m, seen) = (rows.len(), self.scores.seen(&rows));
            if seen == 0 {
                continue;
            }
            let (p, s) = (&mut weights[..m * seen], &mut scores[..m * seen]);
            let ds = &mut products[..m * seen];
            self.scores.scores(batch, rows, s)?;
            for r in 0..m {
                let (s, p) = (&mut s[r * seen..][..seen], &mut p[r * seen..][..seen]);
                let row = (batch * n + first + r, first + r);
                let factor = A::ONE / self.scores.weights(row, s, p, &mut hidden[..]);
                self.scores.isa.dispatch(Each(p, |p: A| p * factor));
            }
            let g = self.grad.at(batch).skip_rows(first);
            let product = |sizes: [usize; 3], c: Mat<A>, a: Mat<A>, b: Mat<A>, alpha, addend| {
                let gemm = Gemm { sizes, c, a, b: Right::InPlace(b), alpha, addend };
                if sizes.contains(&0) {
                    return Ok(());
                }
                // SAFETY: rows of the block, the keys that it sees, scratch of a block, and outputs of
                // this batch, which are this task's alone.
                unsafe { A::product(self.scores.isa, 1, gemm) }
            };
            ds.fill(A::ZERO);
            product(
                [m, seen, d],
                row_major(ds, seen),
                g,
                self.v.at(batch).transposed(),
                A::ONE,
                None,
            )?;
            product([seen, d, m], dv, row_major(p, seen).transposed(), g, A::ONE, Some(dv))?;
            for r in 0..m {
                let (p, ds) = (&p[r * seen..][..seen], &mut ds[r * seen..][..seen]);
                let (isa, s) = (self.scores.isa, &mut s[r * seen..][..seen]);
                isa.dispatch(Products(s, p, ds));
                let mean = lanes::row::<A, Add>(isa, s, A::ZERO);
                isa.dispatch(OfScores(ds, p, mean));
            }
            let (scale, ds) = (self.scores.scale, row_major(ds, seen));
            let (q, k) = (self.scores.q.at(batch).skip_rows(first), self.scores.k.at(batch));
            product([m, e, seen], dq.skip_rows(first), ds, k, scale, None)?;
            product([seen, e, m], dk, ds.transposed(), q, scale, Some(dk))?;
        }
        Ok(())
    }
}

/// The products of two rows.
struct Products<'a, A>(&'a mut [A], &'a [A], &'a [A]);

impl<A: Float> Simd for Products<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Products(out, a, b) = self;
        out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = *a * *b);
    }
}

/// The gradients of a row's scores from those of its weights: `p (dp - mean)`.
struct OfScores<'a, A>(&'a mut [A], &'a [A], A);

impl<A: Float> Simd for OfScores<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let OfScores(dp, p, mean) = self;
        dp.iter_mut().zip(p).for_each(|(dp, p)| *dp = *p * (*dp - mean));
    }
}
