//! The taps of resampling along one dimension: the elements that each output element reads, and
//! their weights.
//!
//! Positions are computed in the same precision as in PyTorch, because rounding decides between
//! neighbours.

use maquette_ops::Result;
use maquette_ops::operator::host::table;
use smallvec::SmallVec;

/// The input positions that one output element reads, with weights.
pub(crate) type Taps = SmallVec<[(usize, f64); 4]>;

/// The filter of a resampling by weighted sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Linear,
    Cubic,
    /// With antialiasing: the filter widens as the image shrinks.
    SmoothLinear,
    SmoothCubic,
    SmoothLanczos,
}

/// The resampling of one dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub from: usize,
    pub to: usize,
    /// Output elements per input element, if the caller gives it. Otherwise it follows from the
    /// sizes.
    pub scale: Option<f64>,
    pub align_corners: bool,
    /// Rounds to the precision of positions.
    pub round: fn(f64) -> f64,
    /// Rounds to the precision of weights.
    pub keep: fn(f64) -> f64,
}

/// Rounds to f32.
pub(crate) fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// The cubic convolution kernel (Keys 1981) with the parameter `a`, the slope at 1.
pub(crate) fn cubic(x: f64, a: f64) -> f64 {
    match x.abs() {
        x if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * a,
        _ => 0.0,
    }
}

/// The weights of four neighbours of a position. `t` is the fraction of the way from the second
/// neighbour to the third. Every step is rounded.
pub(crate) fn cubic_weights(t: f64, round: fn(f64) -> f64) -> [f64; 4] {
    const A: f64 = -0.75;
    // Horner's method for c₀ x³ + c₁ x² + c₂ x + c₃
    let polynomial =
        |x: f64, c: [f64; 4]| c[1..].iter().fold(c[0], |sum, c| round(round(sum * x) + c));
    let near = |x| polynomial(x, [A + 2.0, -(A + 3.0), 0.0, 1.0]);
    let far = |x| polynomial(x, [A, -5.0 * A, 8.0 * A, -4.0 * A]);
    let back = round(1.0 - t);
    [far(round(t + 1.0)), near(t), near(back), far(round(back + 1.0))]
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| {
        if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) }
    };
    if x.abs() < 3.0 { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

impl Axis {
    /// Input elements per output element.
    fn ratio(&self) -> f64 {
        let (from, to) = (self.from as f64, self.to as f64);
        if self.align_corners {
            return if self.to > 1 { (self.round)((from - 1.0) / (to - 1.0)) } else { 0.0 };
        }
        (self.round)(self.scale.filter(|s| *s > 0.0).map_or(from / to, |s| 1.0 / s))
    }

    /// The position of output element `i` among the input elements.
    fn position(&self, ratio: f64, i: usize) -> f64 {
        let i = i as f64;
        if self.align_corners {
            (self.round)(ratio * i)
        } else {
            (self.round)((self.round)(ratio * (i + 0.5)) - 0.5)
        }
    }

    /// The element before a position, and the fraction of the way to the next element.
    fn before(&self, position: f64) -> (f64, f64) {
        let i = position.floor().min(self.from as f64 - 1.0);
        (i, (self.round)(position - i).clamp(0.0, 1.0))
    }

    fn inside(&self, i: f64) -> usize {
        i.clamp(0.0, self.from as f64 - 1.0) as usize
    }

    /// The element that each output element takes. With `whole`, images that keep or double their
    /// size ignore the scale factor, as in PyTorch's kernel for channels-last images.
    pub(crate) fn nearest(&self, exact: bool, whole: bool) -> Result<Vec<usize>> {
        let ratio = single(self.ratio());
        table(self.to, |o| {
            let i = o as f64;
            match self.from {
                _ if exact => self.inside(single((i + 0.5) * ratio).floor()),
                n if whole && n == self.to => o,
                n if whole && 2 * n == self.to => o / 2,
                _ => self.inside(single(i * ratio).floor()),
            }
        })
    }

    fn linear(&self) -> Vec<Taps> {
        let ratio = self.ratio();
        (0..self.to)
            .map(|o| {
                if self.from == self.to {
                    return Taps::from_slice(&[(o, 1.0), (o, 0.0)]);
                }
                let (i, t) = self.before(self.position(ratio, o).max(0.0));
                let t = (self.keep)(t);
                Taps::from_slice(&[
                    (self.inside(i), (self.keep)(1.0 - t)),
                    (self.inside(i + 1.0), t),
                ])
            })
            .collect()
    }

    fn cubic(&self) -> Vec<Taps> {
        let ratio = self.ratio();
        (0..self.to)
            .map(|o| {
                let (i, t) = self.before(self.position(ratio, o));
                (0..4)
                    .map(|k| self.inside(i + f64::from(k) - 1.0))
                    .zip(cubic_weights(t, self.round).map(self.keep))
                    .collect()
            })
            .collect()
    }

    /// A filter that extends `reach` elements to each side. The weights are normalized to a sum of
    /// 1.
    fn smooth(&self, filter: fn(f64) -> f64, reach: f64) -> Vec<Taps> {
        let ratio = self.ratio();
        let widening = ratio.max(1.0);
        let reach = (self.round)(reach * widening);
        let narrowing = (self.round)(1.0 / widening);
        (0..self.to)
            .map(|o| {
                let center = (self.round)(ratio * (o as f64 + 0.5));
                let first = (center - reach + 0.5).max(0.0) as usize;
                let end = ((center + reach + 0.5).max(0.0) as usize).min(self.from);
                let r = self.round;
                let mut taps: Taps = (first..end)
                    .map(|i| (i, filter(r((r(i as f64 - center) + 0.5) * narrowing))))
                    .collect();
                let total: f64 = taps.iter().map(|t| t.1).sum();
                if total != 0.0 {
                    taps.iter_mut().for_each(|t| t.1 /= total);
                }
                taps
            })
            .collect()
    }

    /// The taps of every output element.
    pub(crate) fn taps(&self, filter: Filter) -> Vec<Taps> {
        match filter {
            Filter::Linear => self.linear(),
            Filter::Cubic => self.cubic(),
            Filter::SmoothLinear => self.smooth(triangle, 1.0),
            // PyTorch uses the slope -0.5 with antialiasing.
            Filter::SmoothCubic => self.smooth(|x| cubic(x, -0.5), 2.0),
            Filter::SmoothLanczos => self.smooth(lanczos, 3.0),
        }
    }
}

/// Quantizes the weights to integers of 15 bits with the largest possible scale, for u8 images.
/// Returns the number of fractional bits.
pub(crate) fn quantise(all: &mut [Taps]) -> u32 {
    for taps in all.iter_mut() {
        // Merges taps of the same element.
        let mut merged = Taps::new();
        for &(i, w) in taps.iter() {
            match merged.iter_mut().find(|t| t.0 == i) {
                Some(t) => t.1 += w,
                None => merged.push((i, w)),
            }
        }
        *taps = merged;
    }
    let greatest = all.iter().flatten().fold(0.0f64, |m, t| m.max(t.1));
    let fits = |bits: u32| 0.5 + greatest * f64::from(1u32 << bits) < 32768.0;
    let bits = (0..22).find(|b| !fits(b + 1)).unwrap_or(22);
    for t in all.iter_mut().flatten() {
        // `round` rounds ties away from zero, as PyTorch does.
        t.1 = (t.1 * f64::from(1u32 << bits)).round();
    }
    bits
}
