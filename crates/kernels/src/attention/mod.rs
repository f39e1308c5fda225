//! Scaled dot-product attention: `softmax(q kᵀ scale + mask) v`, one block of query rows at a time.
//!
//! A block's scores stay in cache, and the full score matrix is never in memory. Unlike
//! FlashAttention (Dao et al. 2022), which tiles the keys too and rescales running sums, a block
//! here has all keys, so its softmax needs no rescaling. Blocks are independent and run on the
//! thread pool. The scratch per thread is `rows * keys` scores, whose place the weights take.
//!
//! Sums have the order of `gemm` and `reduce/lanes`, so that the bits of a row depend on neither
//! blocks nor threads. A score is the sum of two products, of the first five eighths of the width
//! and of the rest, because two chains round less than one, and an exponential has the error of a
//! score in all its digits. (With halves, one recorded call is nearer to the exact result than
//! PyTorch's, and so too far from PyTorch's.) Scores are scaled before the maximum is subtracted.
//!
//! Scores are rows of keys. With few keys they are columns instead, one for each query (`columns`).
//!
//! A hidden key has the weight 0, and its value is multiplied all the same. A block leaves out the
//! keys after its last query instead. That changes no bit: +0 is added to the sums, which removes
//! the sign of a zero, and a value that is not finite makes the sums of its column NaN.

mod backward;
mod columns;
mod rows;
mod scores;

use crate::copy::{same_dtype, same_sizes, to_vec};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::gemm::{Gemm, Product, Right};
use crate::isa::{Isa, Simd};
use crate::layout::offset;
use crate::load_store::{Reader, Writer};
use crate::math::Float;
use crate::pointwise::ops::Add;
use crate::reduce::lanes;
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, contiguous, numel};
use rows::padded;
use scores::{Matrices, Scores, Target, row_major};
use std::ops::Range;
use std::sync::OnceLock;

pub use backward::attention_backward;

const KERNEL: &str = "attention";
/// The target number of scores in one block.
const SCORES: usize = 64 * 1024;
/// The least and the most query rows of one block.
const ROWS: (usize, usize) = (16, 128);
/// The multiply-adds that take the time of a block's calls and of its exponentials.
const BLOCK_COST: usize = 64 * 1024;

/// The parameters of attention, besides query, key and value.
#[derive(Debug, Default)]
pub struct Attention<'a> {
    /// Multiplies the products of query and key.
    pub scale: f64,
    /// Whether query `i` sees only keys `0..=i`.
    pub causal: bool,
    /// Whether the exponentials are rounded to the operands' dtype before the product with the
    /// values.
    pub round: bool,
    /// Whether a query that sees no key yields NaN, as by a softmax, in place of 0.
    pub plain_softmax: bool,
    /// Broadcast to `[..., N, L]`: a bool mask selects the visible keys, a float mask is added to
    /// the scores.
    pub mask: Option<View<'a>>,
    /// Receives the log-sum-exp of each row's scores, `[..., N]`, in any float dtype.
    pub logsumexp: Option<ViewMut<'a>>,
}

/// `out[..., N, D] = softmax(query[..., N, E] key[..., L, E]ᵀ scale + mask) value[..., L, D]`, for
/// floats of one dtype, all of one rank with the same leading sizes. Half precision is computed in
/// `f32`. A query that sees no key yields 0, or NaN with `plain_softmax` if there are keys. The
/// value of a masked key is multiplied by 0. With `causal`, keys after the last query are not read.
pub fn attention(
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    options: Attention<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    attention_on(Isa::detect(), q, k, v, options, out)
}

/// As [`attention`], on the given instruction set. It changes no bit.
pub(crate) fn attention_on(
    isa: Isa,
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    options: Attention<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let rank = out.rank();
    for found in [rank, q.rank(), k.rank(), v.rank()] {
        if found != rank.max(2) {
            return Err(KernelError::Count {
                kernel: KERNEL,
                what: "dimensions",
                expected: rank.max(2),
                found,
            });
        }
    }
    let (batch, n, d) =
        (Dims::from_slice(&out.sizes()[..rank - 2]), out.sizes()[rank - 2], out.sizes()[rank - 1]);
    let (e, l) = (q.sizes()[rank - 1], k.sizes()[rank - 2]);
    let with = |rest: &[i64]| batch.iter().chain(rest).copied().collect::<Dims>();
    for (name, view, sizes) in
        [("the query", q, [n, e]), ("the key", k, [l, e]), ("the value", v, [l, d])]
    {
        same_sizes(KERNEL, name, &with(&sizes), view.sizes())?;
        same_dtype(KERNEL, name, out.dtype(), view.dtype())?;
    }
    let mask = options.mask.as_ref().map(|m| m.expand(&with(&[n, l]))).transpose()?;
    if let Some(lse) = &options.logsumexp {
        same_sizes(KERNEL, "the logarithms", &with(&[n]), lse.sizes())?;
    }
    let options = Attention { mask, ..options };
    dispatch!(float KERNEL, "the query", out.dtype(), T => {
        typed::<T, <T as Element>::Class>(isa, q, k, v, options, out)
    })
}

fn typed<T, A>(
    isa: Isa,
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    options: Attention<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()>
where
    T: Element<Class = A>,
    A: Float + Product,
{
    let rank = out.rank();
    let sizes = Dims::from_slice(out.sizes());
    let (n, d) = (sizes[rank - 2] as usize, sizes[rank - 1] as usize);
    let (e, l) = (q.sizes()[rank - 1] as usize, k.sizes()[rank - 2] as usize);
    let mut logsumexp = options.logsumexp;
    if out.numel() == 0 && logsumexp.as_ref().is_none_or(|o| o.numel() == 0) {
        return Ok(());
    }
    // Narrow operands are widened once, as a whole, rather than once per block.
    let narrow = T::DTYPE != A::DTYPE;
    let mut wide: [Vec<A>; 3] = Default::default();
    if narrow {
        wide = [
            to_vec(&q.without_repeats())?,
            to_vec(&k.without_repeats())?,
            to_vec(&v.without_repeats())?,
        ];
    }
    let matrices = |view: &View<'_>, wide: &[A]| {
        let strides = Dims::from_slice(view.strides());
        let (base, strides) = match narrow {
            true => {
                let dense = contiguous(view.without_repeats().sizes());
                (
                    wide.as_ptr().cast_mut(),
                    dense
                        .iter()
                        .zip(&strides)
                        .map(|(d, st)| if *st == 0 { 0 } else { *d })
                        .collect(),
                )
            }
            false => (view.typed::<T>().0.cast::<A>(), strides),
        };
        Matrices { base: Ptr(base), sizes: Dims::from_slice(view.sizes()), strides }
    };
    // The number of keys that at least one query sees.
    let seen = if options.causal { l.min(n) } else { l };
    let rows = (SCORES / seen.max(1)).clamp(ROWS.0, ROWS.1).min(n);
    let (batches, blocks) = (numel(&sizes[..rank - 2]), n.div_ceil(rows));
    let has_hidden = options.causal && blocks > 1;
    let scores = Scores {
        isa,
        dims: [n, seen, e],
        q: matrices(q, &wide[0]),
        k: matrices(k, &wide[1]),
        scale: A::from_f64(options.scale),
        causal: options.causal,
        mask: options.mask.as_ref().map(|m| (Reader::new(m), m)),
        plain_softmax: options.plain_softmax,
        round: (narrow && options.round).then_some(|x: A| T::store(x).load()),
        logsumexp: logsumexp
            .as_mut()
            .map(|o| (Writer::new(o), Dims::from_slice(o.sizes()), Dims::from_slice(o.strides()))),
    };
    let work = Work {
        width: d,
        is_finite: (0..if has_hidden { batches } else { 0 }).map(|_| OnceLock::new()).collect(),
        v: matrices(v, &wide[2]),
        out: (Writer::new(out), sizes.clone(), Dims::from_slice(out.strides())),
        scores,
    };
    let (stride, masks) = (padded(seen), if work.scores.mask.is_some() { seen } else { 0 });
    let elements = match work.scores.is_by_columns(rows) {
        true => work.scores.elements_by_columns(rows),
        false => 0,
    };
    // The last block has fewer rows.
    let elements = elements.max(rows.saturating_mul(stride));
    let per_block = rows.saturating_mul(seen).saturating_mul(e + d).saturating_add(BLOCK_COST);
    thread_pool::ranges(
        batches * blocks,
        (thread_pool::GRAIN * 16 / per_block).max(1),
        1,
        &|from, to| {
            with_scratch(KERNEL, elements, |scores: &mut [A]| {
                with_scratch(KERNEL, rows * d + masks, |rest: &mut [A]| {
                    (from..to).try_for_each(|task| {
                        let first = task % blocks * rows;
                        let rows = first..n.min(first + rows);
                        work.block(task / blocks, rows, scores, rest)
                    })
                })?
            })?
        },
    )
}

/// The operands of attention, in the class in which it is computed.
struct Work<'a, A> {
    scores: Scores<'a, A>,
    /// The width of values.
    width: usize,
    /// For each batch, whether its values are finite, if blocks leave out keys.
    is_finite: Vec<OnceLock<bool>>,
    v: Matrices<A>,
    out: Target<A>,
}

impl<A: Float + Product> Work<'_, A> {
    /// Computes a block of query rows of one batch. The scratch is for scores, and for values and
    /// one row of the mask.
    fn block(
        &self,
        batch: usize,
        rows: Range<usize>,
        scores: &mut [A],
        rest: &mut [A],
    ) -> Result<()> {
        let (of, d) = (&self.scores, self.width);
        let [n, l, _] = of.dims;
        let (first, m, seen) = (rows.start, rows.len(), of.seen(&rows));
        let (values, hidden) = rest.split_at_mut(m * d);
        let mut found = [[A::ONE; 2]; ROWS.1];
        let found = &mut found[..m];
        let weights = match of.is_by_columns(m) {
            true => of.weights_by_columns((batch, rows), scores, hidden, found)?,
            false => {
                let weights = &mut scores[..m * padded(seen)];
                of.scores(batch, rows.clone(), weights)?;
                of.weights((batch, rows), weights, hidden, false, found);
                row_major(weights, padded(seen))
            }
        };
        if m * d > 0 && seen > 0 {
            let weighted_values = Gemm {
                sizes: [m, d, seen],
                c: row_major(values, d),
                a: weights,
                b: Right::InPlace(self.v.at(batch)),
                alpha: A::ONE,
                addend: None,
            };
            // SAFETY: the weights, the first `seen` rows of the value, and scratch of their
            // product's size.
            unsafe { A::product(of.isa, 1, weighted_values)? }
        } else {
            values.fill(A::ZERO);
        }
        if seen < l && !*self.is_finite[batch].get_or_init(|| self.are_finite(batch)) {
            for column in (0..d).filter(|c| !self.column_is_finite(batch, seen..l, *c)) {
                let nan = (A::INFINITY * A::ZERO).one_nan();
                values.iter_mut().skip(column).step_by(d).for_each(|y| *y = nan);
            }
        }
        let (writer, sizes, strides) = &self.out;
        let (at, rank) = (offset(sizes, strides, (batch * n + first) * d), sizes.len());
        of.isa.dispatch(Quotients(values, d.max(1), found));
        for (r, value) in values.chunks(d.max(1)).enumerate() {
            // SAFETY: this row of the output belongs to this task.
            unsafe {
                writer.write_run(
                    of.isa,
                    at + r as i64 * strides[rank - 2],
                    strides[rank - 1],
                    value,
                )
            }
        }
        Ok(())
    }

    /// Whether the values of a batch are finite.
    fn are_finite(&self, batch: usize) -> bool {
        let ([_, l, _], d, v) = (self.scores.dims, self.width, self.v.at(batch));
        if v.column_stride != 1 {
            return (0..d).all(|column| self.column_is_finite(batch, 0..l, column));
        }
        (0..l).all(|row| {
            // SAFETY: a row of the value.
            let row = unsafe { v.start.slice(v.offset(row, 0), d) };
            lanes::row_of::<A, Add, _>(self.scores.isa, row, A::ZERO, |x| x * A::ZERO) == A::ZERO
        })
    }

    /// Whether the values of some keys in a column are finite.
    fn column_is_finite(&self, batch: usize, keys: Range<usize>, column: usize) -> bool {
        let v = self.v.at(batch);
        keys.into_iter().all(|key| {
            // SAFETY: an element of the value.
            let x = unsafe { v.start.slice(v.offset(key, column), 1) }[0];
            x * A::ZERO == A::ZERO
        })
    }
}

/// Divides rows of so many weighted values by the sums of their weights.
struct Quotients<'a, A>(&'a mut [A], usize, &'a [[A; 2]]);

impl<A: Float> Simd for Quotients<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (row, [_, sum]) in self.0.chunks_mut(self.1).zip(self.2) {
            let factor = A::ONE / *sum;
            row.iter_mut().for_each(|x| *x = ((*x + A::ZERO) * factor).one_nan());
        }
    }
}

#[cfg(test)]
mod tests;
