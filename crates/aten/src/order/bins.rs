//! The bins of one dimension of a histogram: their edges, the bin of an element, and weighted
//! counts.
//!
//! Edges and bin numbers decide into which bin an element on an edge falls. So they are computed as
//! PyTorch computes them, with rounding to the dtype at every step.

use half::{bf16, f16};
use maquette_ir::DType;
use maquette_ops::Result;
use maquette_ops::operator::host;

/// The function that rounds to a dtype.
pub(super) fn rounding(dtype: DType) -> fn(f64) -> f64 {
    match dtype {
        DType::F16 => |x| f16::from_f64(x).to_f64(),
        DType::BF16 => |x| bf16::from_f32(x as f32).to_f64(),
        DType::F32 => |x| f64::from(x as f32),
        _ => |x| x,
    }
}

/// How the bin of an element is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Find {
    /// By the distance from the first edge: `histc`.
    Linear,
    /// As [`Find::Linear`], then corrected by a search among the nearest edges: `histogram`.
    LinearThenNear,
    /// By binary search among the edges.
    Edges,
}

/// The bins of one dimension.
pub(super) struct Axis {
    pub(super) edges: Vec<f64>,
    pub(super) find: Find,
    pub(super) round: fn(f64) -> f64,
}

impl Axis {
    fn bins(&self) -> usize {
        self.edges.len().saturating_sub(1)
    }

    /// Bins of equal width. The first half of the edges is computed from the lower end and the rest
    /// from the upper end, as PyTorch's `linspace` does.
    pub(super) fn even(
        (low, high): (f64, f64),
        bins: usize,
        find: Find,
        round: fn(f64) -> f64,
    ) -> Result<Axis> {
        let step = round(round(high - low) / round(bins as f64));
        let edge = |i: usize| {
            if i < bins.div_ceil(2) {
                round(low + round(step * i as f64))
            } else {
                round(high - round(step * (bins - i) as f64))
            }
        };
        Ok(Axis {
            edges: host::collect(bins.saturating_add(1), (0..=bins).map(edge))?,
            find,
            round,
        })
    }

    /// The bin of an element. The last bin includes its upper edge.
    fn bin(&self, x: f64) -> Option<usize> {
        let (low, high) = (*self.edges.first()?, *self.edges.last()?);
        let bins = self.bins();
        if !(low <= x && x <= high) || bins == 0 {
            return None;
        }
        let after = |from: usize, to: usize| {
            from + self.edges.get(from..to).map_or(0, |e| e.partition_point(|e| *e <= x))
        };
        let round = self.round;
        let linear =
            || round(round(round(x - low) * round(bins as f64)) / round(high - low)) as usize;
        let found = match self.find {
            Find::Linear => linear(),
            Find::LinearThenNear => {
                let near = linear();
                let to = near.saturating_add(2).min(bins + 1);
                after(near.saturating_sub(1).min(bins), to).saturating_sub(1)
            }
            Find::Edges => after(0, bins + 1).saturating_sub(1),
        };
        Some(found.min(bins - 1))
    }
}

/// The sum of the weights in each bin. `points` holds one number for each axis and point. With
/// `density`, each sum is divided by the total and the volume of its bin.
pub(super) fn fill(
    axes: &[Axis],
    points: &[f64],
    weight: Option<&[f64]>,
    density: bool,
) -> Result<Vec<f64>> {
    let total = axes.iter().fold(1, |n: usize, a| n.saturating_mul(a.bins()));
    let mut hist = host::collect(total, std::iter::repeat(0.0))?;
    for (i, point) in points.chunks_exact(axes.len().max(1)).enumerate() {
        let at = axes.iter().zip(point).try_fold(0, |at, (a, &x)| Some(at * a.bins() + a.bin(x)?));
        if let Some(h) = at.and_then(|at| hist.get_mut(at)) {
            *h += weight.map_or(1.0, |w| w.get(i).copied().unwrap_or(0.0));
        }
    }
    if density {
        let sum: f64 = hist.iter().sum();
        for (mut i, h) in hist.iter_mut().enumerate() {
            *h /= sum;
            for a in axes.iter().rev() {
                let bin = i % a.bins();
                *h /= a.edges[bin + 1] - a.edges[bin];
                i /= a.bins();
            }
        }
    }
    Ok(hist)
}

/// The minimum and maximum; NaN if a value is NaN.
pub(super) fn least_and_greatest(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let or_nan = |a: f64, b: f64, first: bool| {
        if a.is_nan() || b.is_nan() {
            f64::NAN
        } else if first {
            a
        } else {
            b
        }
    };
    values
        .map(|x| (x, x))
        .reduce(|(low, high), (x, _)| (or_nan(low, x, low <= x), or_nan(high, x, high >= x)))
}
