//! Which elements resampling reads along one dimension, and with what weights.
//!
//! Positions are worked out in the precision PyTorch works them out in: it decides between
//! neighbours.

use crate::aten::host::table;
use crate::error::Result;
use smallvec::SmallVec;

/// The input positions of one output place, with their weights.
pub(super) type Taps = SmallVec<[(usize, f64); 4]>;

/// How output elements are weighted sums of input elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Linear,
    Cubic,
    /// Antialiased: the filter widens as the image shrinks.
    SmoothLinear,
    SmoothCubic,
    SmoothLanczos,
}

/// One dimension to resample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub from: usize,
    pub to: usize,
    /// Output elements per input element, where they were given rather than follow from the sizes.
    pub scale: Option<f64>,
    pub align_corners: bool,
    /// Rounds to the precision that positions are computed in.
    pub round: fn(f64) -> f64,
    /// Rounds to the precision that weights are kept in.
    pub keep: fn(f64) -> f64,
}

/// Rounds to single precision.
pub(super) fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Keyes' cubic convolution, `a` its slope at 1.
pub(super) fn cubic(x: f64, a: f64) -> f64 {
    match x.abs() {
        x if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * a,
        _ => 0.0,
    }
}

/// The weights of four neighbours, the second and third of which surround the place `t` between
/// them; every step is rounded.
pub(super) fn cubic_weights(t: f64, round: fn(f64) -> f64) -> [f64; 4] {
    const A: f64 = -0.75;
    // c₀ x³ + c₁ x² + c₂ x + c₃
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

    /// Where output element `i` lies among the input elements.
    fn position(&self, ratio: f64, i: usize) -> f64 {
        let i = i as f64;
        if self.align_corners {
            (self.round)(ratio * i)
        } else {
            (self.round)((self.round)(ratio * (i + 0.5)) - 0.5)
        }
    }

    /// The element before a position, and how far the position is from there to the next.
    fn before(&self, position: f64) -> (f64, f64) {
        let i = position.floor().min(self.from as f64 - 1.0);
        (i, (self.round)(position - i).clamp(0.0, 1.0))
    }

    fn inside(&self, i: f64) -> usize {
        i.clamp(0.0, self.from as f64 - 1.0) as usize
    }

    /// The one element that each place takes. Where images grow to their own size or twice it,
    /// PyTorch looks at no scale (`whole`).
    pub(super) fn nearest(&self, exact: bool, whole: bool) -> Result<Vec<usize>> {
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

    /// A filter of this reach to either side, whose weights add up to 1.
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

    /// What each place is a weighted sum of.
    pub(super) fn taps(&self, filter: Filter) -> Vec<Taps> {
        match filter {
            Filter::Linear => self.linear(),
            Filter::Cubic => self.cubic(),
            Filter::SmoothLinear => self.smooth(triangle, 1.0),
            // PyTorch takes this slope where it antialiases
            Filter::SmoothCubic => self.smooth(|x| cubic(x, -0.5), 2.0),
            Filter::SmoothLanczos => self.smooth(lanczos, 3.0),
        }
    }
}

/// Makes the weights of all positions integers of 15 bits, as large as they can be; returns how
/// many of the bits are fractional.
pub(super) fn quantise(all: &mut [Taps]) -> u32 {
    for taps in all.iter_mut() {
        // an element that is read twice is read once, with both weights
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
        // rounds halves away from zero
        t.1 = (t.1 * f64::from(1u32 << bits)).round();
    }
    bits
}
