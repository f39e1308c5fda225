//! What an attention does with rows of scores, a block of them in one pass.
//!
//! Memory has a row of whole groups of [`LANES`] elements, so that no loop has a rest. The elements
//! after the keys count as hidden ones in maxima and sums, and nothing else reads them. Rows are
//! folded in the order of `reduce/lanes`. Rows do not depend on each other, so the processor begins
//! with one before it has finished the last; a call for each row would keep it from that.

use crate::isa::Simd;
use crate::math::Float;
use crate::pointwise::ops::{Add, Max, Op2};
use crate::reduce::lanes::{CHUNK, Cascade, LANES, Partial, tree};

/// The elements of memory for a row of scores.
pub(super) fn padded(keys: usize) -> usize {
    keys.next_multiple_of(LANES).max(LANES)
}

/// As many zeros as a group has elements, and as many ones.
static BEHIND: [u32; 2 * LANES] = {
    let mut all = [0; 2 * LANES];
    let mut i = LANES;
    while i < 2 * LANES {
        all[i] = 1;
        i += 1;
    }
    all
};

/// A 0 for each element of group `i` that is among the first `seen` of a row, and a 1 for those
/// after them. It is read from a table: the compiler makes a branch for
/// each element of a comparison with `seen`.
#[inline(always)]
fn behind(seen: usize, i: usize) -> [u32; LANES] {
    let of_group = (seen - i * LANES).min(LANES);
    let mut flags = [0; LANES];
    flags.copy_from_slice(&BEHIND[LANES - of_group..][..LANES]);
    flags
}

/// Folds the groups of a row, each as `values` gives it.
#[inline(always)]
fn fold<A: Copy, O: Op2<A, A>>(
    groups: usize,
    identity: A,
    mut values: impl FnMut(usize) -> [A; LANES],
) -> A {
    const EACH: usize = CHUNK / LANES;
    let mut cascade = Cascade::<A, O>::new();
    let mut first = 0;
    loop {
        let end = groups.min(first + EACH);
        let mut acc = [identity; LANES];
        // The only call of `values`, so that it is inlined.
        for i in first..end {
            let group = values(i);
            for l in 0..LANES {
                acc[l] = O::f(acc[l], group[l]);
            }
        }
        if groups <= EACH {
            tree::<A, O>(&mut acc);
            return acc[0];
        }
        cascade.push(Partial::from(acc));
        first = end;
        if first == groups {
            return cascade.finish().first().copied().unwrap_or(identity);
        }
    }
}

/// The exponentials of rows of scores: of `scale` times a score, less the row's greatest.
pub(super) struct RowExponentials<'a, A> {
    /// Rows of [`padded`] elements. They receive the exponentials.
    pub scores: &'a mut [A],
    pub keys: usize,
    /// The number of keys that the first row sees, if each row sees one more than the one before.
    /// Otherwise rows see all keys.
    pub visible: Option<usize>,
    pub scale: A,
    /// Whether exponentials are divided by their sum.
    pub is_normalised: bool,
    /// Whether the exponentials of a row without visible keys are NaN: those of -inf less -inf.
    pub plain_softmax: bool,
    /// Receive a row's maximum and sum. A row of other exponentials without visible keys has the
    /// sum 1, to avoid 0 / 0.
    pub found: &'a mut [[A; 2]],
}

impl<A: Float> Simd for RowExponentials<'_, A>
where
    Add: Op2<A, A>,
    Max: Op2<A, A>,
{
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let RowExponentials { scores, keys, visible, scale, is_normalised, plain_softmax, found } =
            self;
        let rows = scores.chunks_exact_mut(padded(keys));
        for (r, (row, found)) in rows.zip(found).enumerate() {
            let visible = visible.map_or(keys, |first| keys.min(first + r));
            let (groups, _) = row.as_chunks_mut::<LANES>();
            let (groups, hidden) = groups.split_at_mut(visible.div_ceil(LANES));
            let max = fold::<A, Max>(groups.len(), -A::INFINITY, |i| {
                let mut group = groups[i];
                for (x, is_behind) in group.iter_mut().zip(behind(visible, i)) {
                    let scaled = *x * scale;
                    *x = if is_behind == 0 { scaled } else { -A::INFINITY };
                }
                groups[i] = group;
                group
            });
            let max = if max == -A::INFINITY && !plain_softmax { A::ZERO } else { max };
            let sum = fold::<A, Add>(groups.len(), A::ZERO, |i| {
                for x in &mut groups[i] {
                    *x = (*x - max).exp();
                }
                groups[i]
            });
            let sum = if sum == A::ZERO { A::ONE } else { sum };
            *found = [max, sum];
            if !hidden.is_empty() {
                // 0, or a NaN that is in the row.
                hidden.as_flattened_mut().fill((-A::INFINITY - max).exp());
            }
            if is_normalised {
                let factor = A::ONE / sum;
                for x in row {
                    *x = *x * factor;
                }
            }
        }
    }
}

/// The gradients of rows of scores from those of their weights: `p (dp - Σ p dp)`.
pub(super) struct OfScores<'a, A> {
    /// Rows of [`padded`] elements.
    pub weights: &'a [A],
    /// The gradients of the weights, then those of the scores.
    pub gradients: &'a mut [A],
    pub keys: usize,
}

impl<A: Float> Simd for OfScores<'_, A>
where
    Add: Op2<A, A>,
{
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let OfScores { weights, gradients, keys } = self;
        let stride = padded(keys);
        for (p, dp) in weights.chunks_exact(stride).zip(gradients.chunks_exact_mut(stride)) {
            let (groups, _) = p.as_chunks::<LANES>();
            let (of_groups, _) = dp.as_chunks_mut::<LANES>();
            let mean = fold::<A, Add>(keys.div_ceil(LANES), A::ZERO, |i| {
                let mut products = groups[i];
                let flags = behind(keys, i);
                for ((x, dp), is_behind) in products.iter_mut().zip(&of_groups[i]).zip(flags) {
                    let product = *x * *dp;
                    *x = if is_behind == 0 { product } else { A::ZERO };
                }
                products
            });
            for (dp, p) in dp.iter_mut().zip(p) {
                *dp = *p * (*dp - mean);
            }
        }
    }
}
