//! What follows the sums of a convolution whose channels are last: a scale and a shift of the
//! channel, a residual, and a clamp.
//!
//! A bias, a batch norm with given statistics and what a network adds to it are of this form. What
//! is missing has a number that changes nothing: 1, -0, and infinities.
//!
//! **Invariant:** the operations are those of the chain that it stands for, in the same order, each
//! rounded.

use crate::gemm::lanes::Lanes;
use crate::math::Float;

/// The operands of some pixels, whose channels are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Affine<F> {
    /// By channel, or null for 1 and for -0.
    pub scale: *const F,
    pub shift: *const F,
    /// The residual and the distance of its pixels, or null.
    pub residual: *const F,
    pub residual_pixel: usize,
    /// The bounds of the result. The least is no NaN; the most is neither NaN nor zero.
    pub least: F,
    pub most: F,
    /// The result, and the distance of its pixels.
    pub out: *mut F,
    pub out_pixel: usize,
}

impl<F> Affine<F> {
    /// The same from a channel and a pixel on.
    pub fn at(self, channel: usize, pixel: usize) -> Affine<F> {
        let by_channel = |p: *const F| if p.is_null() { p } else { p.wrapping_add(channel) };
        let residual = match self.residual.is_null() {
            true => self.residual,
            false => self.residual.wrapping_add(pixel * self.residual_pixel + channel),
        };
        Affine {
            scale: by_channel(self.scale),
            shift: by_channel(self.shift),
            residual,
            out: self.out.wrapping_add(pixel * self.out_pixel + channel),
            ..self
        }
    }

    /// Its numbers for a vector of channels, of which `n` are wanted.
    ///
    /// # Safety
    /// The machine has the instruction set, and the operands have these channels.
    #[inline(always)]
    pub(super) unsafe fn vectors<V: Lanes<Float = F>>(&self, n: usize) -> AffineVectors<V>
    where
        F: Float,
    {
        // SAFETY: the caller's promise.
        unsafe {
            let or = |p: *const F, number: F| match (p.is_null(), n == V::N) {
                (true, _) => V::splat(number),
                (false, true) => V::load(p),
                (false, false) => V::load_first(p, n),
            };
            AffineVectors {
                scale: or(self.scale, F::ONE),
                shift: or(self.shift, -F::ZERO),
                least: V::splat(self.least),
                most: V::splat(self.most),
            }
        }
    }
}

/// The numbers of an [`Affine`] for a vector of channels.
#[derive(Clone, Copy)]
pub(super) struct AffineVectors<V> {
    scale: V,
    shift: V,
    least: V,
    most: V,
}

impl<V: Lanes> AffineVectors<V> {
    /// A sum with its scale and shift.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    pub unsafe fn scaled(&self, sum: V) -> V {
        // SAFETY: the caller's promise.
        unsafe { sum.one_nan().mul(self.scale).add(self.shift) }
    }

    /// The result, within its bounds.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    pub unsafe fn clamped(&self, x: V) -> V {
        // SAFETY: the caller's promise.
        unsafe { x.at_least(self.least).at_most(self.most) }
    }
}

/// See [`Kernels::affine`](super::Kernels::affine).
///
/// # Safety
/// As [`Kernels::affine`](super::Kernels::affine).
#[inline(always)]
pub(super) unsafe fn affine<V: Lanes>(
    sums: *const V::Float,
    width: usize,
    of: &Affine<V::Float>,
    [pixels, channels]: [usize; 2],
) {
    // SAFETY: the caller's promise covers all accesses.
    unsafe {
        for first in (0..channels).step_by(V::N) {
            let (n, of) = ((channels - first).min(V::N), of.at(first, 0));
            let (sums, numbers) = (sums.add(first), of.vectors::<V>(n));
            let (load, store) = (
                |p: *const V::Float| if n == V::N { V::load(p) } else { V::load_first(p, n) },
                |x: V, i: usize| match n == V::N {
                    true => x.store(of.out.add(i * of.out_pixel)),
                    false => x.store_first(of.out.add(i * of.out_pixel), n),
                },
            );
            if of.residual.is_null() {
                for i in 0..pixels {
                    let x = numbers.scaled(V::load(sums.add(i * width)));
                    store(numbers.clamped(x), i);
                }
                continue;
            }
            for i in 0..pixels {
                let other = load(of.residual.add(i * of.residual_pixel));
                let x = numbers.scaled(V::load(sums.add(i * width))).add(other);
                store(numbers.clamped(x), i);
            }
        }
    }
}
