//! `grid_sampler`: images sampled at the points of a grid, as in spatial transformer networks
//! (Jaderberg et al. 2015); and `affine_grid_generator`.
//!
//! Each coordinate of a point reads up to four elements of its dimension with weights. A sample is
//! the weighted sum over the product of these reads.

use super::taps::cubic_weights;
use super::{compute, each_index, is_empty, require_full, rounding};
use maquette_ir::DType;
use maquette_ops::operator::dims::{
    fresh, require, require_float, require_rank, require_same_dtype,
};
use maquette_ops::operator::lowering::{Class, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_equal;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

/// The interpolation between elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interpolation {
    Linear,
    Nearest,
    Cubic,
}

/// The value outside the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    /// The nearest border element.
    Border,
    /// The mirrored image.
    Reflection,
}

/// The options of a sampler.
struct Sampler {
    interpolation: Interpolation,
    outside: Outside,
    align_corners: bool,
    /// Rounds to the precision in which PyTorch computes coordinates, which decides between
    /// neighbours.
    round: fn(f64) -> f64,
    /// Whether the images are volumes.
    volume: bool,
}

/// The input positions that one coordinate reads, with weights. `None` is a position outside.
type Reads = SmallVec<[(Option<usize>, f64); 4]>;

impl Sampler {
    /// Reads the options of a sampler from the arguments of `grid_sampler`.
    fn of(args: &[Value]) -> Result<Sampler> {
        let interpolation = match args[2].int_i64()? {
            0 => Interpolation::Linear,
            1 => Interpolation::Nearest,
            2 => Interpolation::Cubic,
            n => {
                return Err(Error::value(format!(
                    "`interpolation_mode` must be 0 (linear), 1 (nearest) or 2 (cubic), found {n}"
                )));
            }
        };
        let outside = match args[3].int_i64()? {
            0 => Outside::Zeros,
            1 => Outside::Border,
            2 => Outside::Reflection,
            n => {
                return Err(Error::value(format!(
                    "`padding_mode` must be 0 (zeros), 1 (border) or 2 (reflection), found {n}"
                )));
            }
        };
        let (dtype, volume) = (args[0].tensor()?.dtype(), args[0].tensor()?.dim() == 5);
        // PyTorch computes cubic interpolation of volumes at least in `f32`.
        let wide = volume && interpolation == Interpolation::Cubic && dtype != DType::F64;
        let round = rounding(if wide { DType::F32 } else { dtype });
        Ok(Sampler { interpolation, outside, align_corners: args[4].bool()?, round, volume })
    }

    /// Maps a coordinate in [-1, 1] to a position among `n` elements.
    fn position(&self, x: f64, n: f64) -> f64 {
        let r = self.round;
        if self.align_corners {
            r(r(r(x + 1.0) / 2.0) * (n - 1.0))
        } else {
            r(r(r(r(x + 1.0) * n) - 1.0) / 2.0)
        }
    }

    /// Maps a position into the image, as the padding mode says.
    fn inside(&self, x: f64, n: f64) -> f64 {
        let x = match self.outside {
            Outside::Zeros => return x,
            Outside::Border => x,
            Outside::Reflection => {
                let (low, span) = if self.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
                let away = (self.round)(x - low).abs();
                let extra = away % span;
                match (away / span).floor() % 2.0 {
                    _ if span == 0.0 => 0.0,
                    0.0 => (self.round)(extra + low),
                    _ => (self.round)((self.round)(span - extra) + low),
                }
            }
        };
        match x.is_nan() {
            // PyTorch maps NaN to the last element of a volume, and to the first of an image.
            true if self.volume => n - 1.0,
            _ => x.max(0.0).min(n - 1.0),
        }
    }

    /// The elements that a coordinate reads, of `n`.
    fn reads(&self, x: f64, n: usize) -> Reads {
        let size = n as f64;
        let position = self.position(x, size);
        let element = |i: f64| (0.0..size).contains(&i).then_some(i as usize);
        match self.interpolation {
            Interpolation::Nearest => {
                smallvec![(element(self.inside(position, size).round_ties_even()), 1.0)]
            }
            Interpolation::Linear => {
                let x = self.inside(position, size);
                let (low, high) = (x.floor(), x.floor() + 1.0);
                let t = (self.round)(x - low);
                let rest = if self.volume { high - x } else { 1.0 - t };
                smallvec![(element(low), (self.round)(rest)), (element(high), t)]
            }
            Interpolation::Cubic => {
                let first = position.floor() - 1.0;
                let weights = cubic_weights((self.round)(position - position.floor()), self.round);
                (0..4)
                    .map(|k| element(self.inside(first + f64::from(k), size).trunc()))
                    .zip(weights)
                    .collect()
            }
        }
    }
}

impl Sampler {
    /// The weighted sum of the elements that the coordinates of a point read.
    fn blend(&self, reads: &[Reads], image: &[usize], elements: &[f64]) -> f64 {
        if self.interpolation == Interpolation::Cubic {
            return self.curve(reads, image, Some(0), elements);
        }
        let r = self.round;
        let counts: SmallVec<[usize; 3]> = reads.iter().map(|r| r.len()).collect();
        let mut sum = 0.0;
        each_index(&counts, |which| {
            let taps = which.iter().zip(reads).map(|(&k, r)| r[k]);
            let at = taps.clone().zip(image).try_fold(0, |at, ((i, _), n)| Some(at * n + i?));
            let weight = taps.rev().fold(1.0, |weight, (_, w)| r(weight * w));
            match at.and_then(|at| elements.get(at)) {
                Some(x) => sum = r(sum + r(x * weight)),
                // PyTorch multiplies by the zeros outside images, which keeps a NaN weight, but
                // skips those outside volumes.
                None if weight.is_nan() && !self.volume => sum = weight,
                None => {}
            }
        });
        sum
    }

    /// Cubic interpolation: four elements of the last dimension are interpolated first, then four
    /// of the results, and so on.
    fn curve(&self, reads: &[Reads], image: &[usize], at: Option<usize>, elements: &[f64]) -> f64 {
        let r = self.round;
        let (Some((first, reads)), Some((n, image))) = (reads.split_first(), image.split_first())
        else {
            return at.and_then(|at| elements.get(at)).copied().unwrap_or(0.0);
        };
        first.iter().fold(0.0, |sum, &(i, weight)| {
            let inner = at.zip(i).map(|(at, i)| at * n + i);
            r(sum + r(weight * self.curve(reads, image, inner, elements)))
        })
    }
}

#[track_caller]
fn sampled_meta(args: &[Value], space: usize) -> Result<Metas> {
    let (x, grid) = (args[0].tensor()?, args[1].tensor()?);
    require_rank("input", x, space + 2..=space + 2)?;
    require_rank("grid", grid, space + 2..=space + 2)?;
    require_float("input", x)?;
    require_same_dtype(("input", x), ("grid", grid))?;
    Sampler::of(args)?;
    let misfit = || {
        let (x, g) = (dims_text(x.sizes()), dims_text(grid.sizes()));
        Error::value(format!(
            "argument `grid` must hold {space} coordinates for each position of every image of \
                `input` {x}, found sizes {g}"
        ))
    };
    require_equal(x.sizes()[0], grid.sizes()[0], &misfit)?;
    require_equal(space.into(), grid.sizes()[space + 1], &misfit)?;
    require_full("input", x, 2)?;
    let sizes: Dims = x.sizes()[..2].iter().chain(&grid.sizes()[1..=space]).copied().collect();
    Ok(smallvec![fresh(x, sizes, x.dtype())])
}

/// Samples every channel of every image at every point of its grid.
fn sample(args: &[Value], out: &Tensor, space: usize) -> Result<()> {
    if is_empty(out) {
        return Ok(());
    }
    let (x, grid) = (args[0].tensor()?, args[1].tensor()?);
    let sampler = Sampler::of(args)?;
    let (sizes, elements, coordinates) = (host::sizes(x)?, host::reals(x)?, host::reals(grid)?);
    let (channels, image) = (sizes[1], &sizes[2..]);
    let area: usize = host::count(image);
    let positions: usize = host::count(&host::sizes(out)?[2..]);
    let mut result = host::filled(0.0, elements.len() / area * positions)?;
    for (n, points) in coordinates.chunks_exact(positions * space).enumerate() {
        for (p, point) in points.chunks_exact(space).enumerate() {
            // A point lists its coordinates from the last dimension to the first.
            let reads: Vec<Reads> =
                point.iter().rev().zip(image).map(|(&c, &n)| sampler.reads(c, n)).collect();
            for c in n * channels..(n + 1) * channels {
                result[c * positions + p] =
                    sampler.blend(&reads, image, &elements[c * area..(c + 1) * area]);
            }
        }
    }
    host::store_reals(out, &result)
}

/// The metadata of `affine_grid_generator`.
#[track_caller]
fn affine_meta(args: &[Value]) -> Result<Metas> {
    let (theta, size) = (args[0].tensor()?, args[1].ints()?);
    require_float("theta", theta)?;
    let space = size.len().wrapping_sub(2);
    if !matches!(space, 2 | 3) {
        return Err(Error::value(format!(
            "`size` must hold 4 or 5 numbers, found {}",
            dims_text(size)
        )));
    }
    require_rank("theta", theta, 3..=3)?;
    let misfit = || {
        Error::value(format!(
            "argument `theta` must hold a {space}×{} matrix for each of {} images, found sizes {}",
            space + 1,
            size[0],
            dims_text(theta.sizes())
        ))
    };
    for (&n, expected) in theta.sizes().iter().zip([size[0], space.into(), (space + 1).into()]) {
        require_equal(expected, n, &misfit)?;
    }
    for &n in size {
        require(n.ge(0), || format!("`size` must not be negative, found {}", dims_text(size)))?;
    }
    let mut sizes: Dims = smallvec![size[0]];
    sizes.extend_from_slice(&size[2..]);
    sizes.push(space.into());
    Ok(smallvec![fresh(theta, sizes, theta.dtype())])
}

/// The coordinates of `n` elements: their centers, or, with `align_corners`, positions with the
/// outermost elements at -1 and 1.
fn even(n: usize, align_corners: bool, round: fn(f64) -> f64) -> Vec<f64> {
    let step = if n > 1 { 2.0 / (n - 1) as f64 } else { 0.0 };
    let corner = |i: usize| match n {
        1 => 0.0,
        _ if i < n / 2 => round(step * i as f64 - 1.0),
        _ => round(1.0 - step * (n - 1 - i) as f64),
    };
    (0..n)
        .map(
            |i| {
                if align_corners { corner(i) } else { round(corner(i) * (n - 1) as f64 / n as f64) }
            },
        )
        .collect()
}

fn affine(args: &[Value], out: &Tensor) -> Result<()> {
    if is_empty(out) {
        return Ok(());
    }
    let (theta, align_corners) = (args[0].tensor()?, args[2].bool()?);
    let image = host::sizes(out)?;
    let space = image.len() - 2;
    let positions = &image[1..=space];
    let round = rounding(theta.dtype());
    let axes: Vec<Vec<f64>> = positions.iter().map(|&n| even(n, align_corners, round)).collect();
    let mut result = Vec::new();
    for matrix in host::reals(theta)?.chunks_exact(space * (space + 1)) {
        each_index(positions, |at| {
            for row in matrix.chunks_exact(space + 1) {
                // A point lists its coordinates from the last dimension to the first.
                let point = at.iter().zip(&axes).rev().map(|(&i, axis)| axis[i]).chain([1.0]);
                result.push(row.iter().zip(point).map(|(m, x)| m * x).sum::<f64>());
            }
        });
    }
    host::store_reals(out, &result)
}

table! {
    /// Grid samplers.
    static TABLE = {
        "aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, \
            int padding_mode, bool align_corners) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| sampled_meta(a, 2),
                How::Host(|a, out| sample(a, &out[0], 2)),
            ),
            vjp: crate::grad::GRID_SAMPLER,
        },
        "aten::grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, \
            int padding_mode, bool align_corners) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| sampled_meta(a, 3),
                How::Host(|a, out| sample(a, &out[0], 3)),
            ),
            vjp: crate::grad::GRID_SAMPLER,
        },
        "aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, \
            int padding_mode, bool align_corners) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let name = if a[0].tensor()?.dim() == 5 {
                    "aten::grid_sampler_3d"
                } else {
                    "aten::grid_sampler_2d"
                };
                maquette_ops::call(name, a.iter().cloned().collect())
            }),
        },
        "aten::affine_grid_generator(Tensor theta, SymInt[] size, \
            bool align_corners) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Fill,
                Strides::RowMajor,
                |_, a| affine_meta(a),
                How::Host(|a, out| affine(a, &out[0])),
            ),
            vjp: crate::grad::AFFINE_GRID,
        },
    }
}
