//! The kernels of channels: depthwise convolutions, and greatest elements of windows, of images
//! whose channels are last in memory.
//!
//! A vector has neighbouring channels, and a tile some neighbouring outputs of a row. So every
//! plane is whole vectors, however small it is. A tap loads its weights once for all outputs of a
//! tile.
//!
//! **Invariant:** an output combines its taps in their order, those of the padding included.
//!
//! **Cost:** a load for each multiply-add, one more for each tap, and in the padding an address.

use super::affine::Affine;
use crate::gemm::lanes::{Lanes, fetch_to_write};
use crate::math::Float;

/// The outputs of a tile: enough chains to hide the latency of a multiply-add.
const MOST: usize = 7;

/// Where the taps of a tile are.
#[derive(Clone, Copy)]
pub(crate) enum Taps<'a, F> {
    /// All inside the image: the offset of each tap, and the distance between outputs.
    Inside { start: *const F, taps: &'a [usize], step: usize },
    /// The address of each tap of each output, those of a tap together. A tap in the padding has
    /// the address of the padding's elements.
    Table(&'a [*const F]),
}

/// Some neighbouring outputs of all channels.
pub(crate) struct ChannelTile<'a, F> {
    /// The number of outputs, at most [`ChannelTile::MOST`].
    pub outputs: usize,
    /// The first channel of the taps.
    pub taps: Taps<'a, F>,
    /// The weights: a vector for each tap, for one vector of channels after another. Unused for
    /// greatest elements.
    pub weights: *const F,
    pub channels: usize,
    /// The first channel of the first output, and the distance of outputs.
    pub out: *mut F,
    pub pixel: usize,
    /// What follows them, instead of the destination.
    pub then: Option<Affine<F>>,
    /// Whether as many outputs follow in memory, whose lines are fetched.
    pub fetches: bool,
}

impl<F> ChannelTile<'_, F> {
    /// The most outputs of a tile.
    pub const MOST: usize = MOST;
}

/// See [`Kernels::channels`](super::Kernels::channels).
///
/// # Safety
/// As [`Kernels::channels`](super::Kernels::channels).
#[inline(always)]
pub(super) unsafe fn channels<V: Lanes, const GREATEST: bool>(t: &ChannelTile<'_, V::Float>) {
    // SAFETY: the caller's promise.
    unsafe {
        match t.outputs {
            1 => outputs::<V, 1, GREATEST>(t),
            2 => outputs::<V, 2, GREATEST>(t),
            3 => outputs::<V, 3, GREATEST>(t),
            4 => outputs::<V, 4, GREATEST>(t),
            5 => outputs::<V, 5, GREATEST>(t),
            6 => outputs::<V, 6, GREATEST>(t),
            MOST => outputs::<V, MOST, GREATEST>(t),
            _ => {}
        }
    }
}

/// Computes `N` outputs.
///
/// # Safety
/// As [`channels`].
#[inline(always)]
unsafe fn outputs<V: Lanes, const N: usize, const GREATEST: bool>(t: &ChannelTile<'_, V::Float>) {
    // SAFETY: the caller's promise covers all accesses: the taps of the channels, the weights, and
    // the outputs.
    unsafe {
        for first in (0..t.channels).step_by(V::N) {
            let n = (t.channels - first).min(V::N);
            let to = Destination {
                out: t.out.wrapping_add(first),
                pixel: t.pixel,
                then: t.then.map(|then| then.at(first, 0)),
            };
            if t.fetches {
                let (out, pixel) = match &to.then {
                    Some(then) => (then.out, then.out_pixel),
                    None => (to.out, to.pixel),
                };
                (N..2 * N).for_each(|i| fetch_to_write(out.wrapping_add(i * pixel)));
            }
            match t.taps {
                Taps::Inside { start, taps, step } => {
                    let start = start.add(first);
                    let weights = t.weights.wrapping_add(first * taps.len());
                    let at = |tap: usize, i: usize| start.add(taps[tap] + i * step);
                    vector::<V, N, GREATEST>(taps.len(), weights, (n, &at), &to);
                }
                Taps::Table(table) => {
                    let taps = table.len() / N;
                    let weights = t.weights.wrapping_add(first * taps);
                    let at =
                        |tap: usize, i: usize| table.as_ptr().add(tap * N + i).read().add(first);
                    vector::<V, N, GREATEST>(taps, weights, (n, &at), &to);
                }
            }
        }
    }
}

/// Where outputs are written, or what follows them.
struct Destination<F> {
    out: *mut F,
    pixel: usize,
    then: Option<Affine<F>>,
}

/// Computes `N` outputs of `n` channels, at most a vector of them. `at` has the address of a tap of
/// an output.
///
/// # Safety
/// As [`channels`].
#[inline(always)]
unsafe fn vector<V: Lanes, const N: usize, const GREATEST: bool>(
    taps: usize,
    weights: *const V::Float,
    (n, at): (usize, &impl Fn(usize, usize) -> *const V::Float),
    to: &Destination<V::Float>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let weight = |tap: usize| match GREATEST {
            true => V::splat(Float::ZERO),
            false => V::load(weights.add(tap * V::N)),
        };
        let combine = |weight: V, x: V, with: V| match GREATEST {
            true => x.greater_of(with),
            false => weight.fma(x, with),
        };
        let finish = |x: V| if GREATEST { x } else { x.one_nan() };
        let first = if GREATEST { -V::Float::INFINITY } else { Float::ZERO };
        let mut all = [V::splat(first); N];
        if n == V::N {
            for tap in 0..taps {
                let weight = weight(tap);
                for (i, x) in all.iter_mut().enumerate() {
                    *x = combine(weight, V::load(at(tap, i)), *x);
                }
            }
        } else {
            for tap in 0..taps {
                let weight = weight(tap);
                for (i, x) in all.iter_mut().enumerate() {
                    *x = combine(weight, V::load_first(at(tap, i), n), *x);
                }
            }
        }
        if let Some(then) = &to.then {
            let numbers = then.vectors::<V>(n);
            for (i, x) in all.into_iter().enumerate() {
                let mut x = numbers.scaled(x);
                if !then.residual.is_null() {
                    let from = then.residual.add(i * then.residual_pixel);
                    x = x.add(if n == V::N { V::load(from) } else { V::load_first(from, n) });
                }
                let (x, out) = (numbers.clamped(x), then.out.add(i * then.out_pixel));
                match n == V::N {
                    true => x.store(out),
                    false => x.store_first(out, n),
                }
            }
            return;
        }
        for (i, x) in all.into_iter().enumerate() {
            let (x, out) = (finish(x), to.out.add(i * to.pixel));
            match n == V::N {
                true => x.store(out),
                false => x.store_first(out, n),
            }
        }
    }
}
