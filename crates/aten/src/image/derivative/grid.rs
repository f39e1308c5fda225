//! Derivatives of samples of images at the points of a grid, by their parts.
//!
//! A coordinate reads a few elements of its dimension, each with a weight. A sample is the sum of
//! the products over all dimensions.

use crate::grad::parts::parts;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::{Result, Tensor, Value};

/// A position that is read: its index, whether it is inside, and its weight.
struct Read {
    at: Tensor,
    inside: Tensor,
    weight: Tensor,
}

/// The options of a sampler, with the size of one dimension.
struct Axis {
    interpolation: i64,
    outside: i64,
    align_corners: bool,
    size: Tensor,
}

impl Axis {
    /// Maps a position into the image.
    fn moved_inside(&self, x: Tensor) -> Tensor {
        let last = &self.size - 1.0;
        let reflected = || {
            let (low, span) = match self.align_corners {
                true => (0.0, last.clone()),
                false => (-0.5, self.size.clone()),
            };
            let away = (&x - low).abs();
            let turns = (&away / &span).floor();
            let extra = &away - &turns * &span;
            let even = turns.remainder(2.0).eq(0.0);
            let found = even.where_(&extra + low, &span - &extra + low);
            span.eq(0.0).where_(0.0, found)
        };
        let x = match self.outside {
            0 => return x,
            1 => x,
            _ => reflected(),
        };
        // At a bound itself, the coordinate has no gradient.
        let (below, above) = (x.le(0.0), x.ge(&last));
        below.where_(0.0, above.where_(last.detach(), x))
    }

    fn read(&self, at: &Tensor, weight: Tensor) -> Read {
        let at = at.detach();
        let inside = at.ge(0.0).logical_and(at.lt(&self.size));
        Read { at: inside.where_(at, 0.0).to_dtype(DType::I64), inside, weight }
    }

    /// The reads of coordinates in [-1, 1].
    fn reads(&self, x: &Tensor) -> Vec<Read> {
        let position = match self.align_corners {
            true => (x + 1.0) / 2.0 * (&self.size - 1.0),
            false => ((x + 1.0) * &self.size - 1.0) / 2.0,
        };
        let ones = position.detach().ones_like();
        match self.interpolation {
            1 => vec![self.read(&self.moved_inside(position).detach().round(), ones)],
            0 => {
                let position = self.moved_inside(position);
                let low = position.detach().floor();
                let part = &position - &low;
                vec![self.read(&low, 1.0 - &part), self.read(&(&low + 1.0), part)]
            }
            _ => {
                let low = position.detach().floor();
                let part = &position - &low;
                let weights = cubic(&part);
                let reads = weights.into_iter().zip([-1.0, 0.0, 1.0, 2.0]);
                reads.map(|(w, k)| self.read(&self.moved_inside(&low + k).trunc(), w)).collect()
            }
        }
    }
}

/// The weights of cubic convolution with the parameter -3/4, of the four neighbours.
fn cubic(t: &Tensor) -> [Tensor; 4] {
    let a = -0.75;
    let near = |t: &Tensor| ((t * (a + 2.0) - (a + 3.0)) * t) * t + 1.0;
    let far = |t: &Tensor| ((t * a - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
    let rest = 1.0 - t;
    [far(&(t + 1.0)), near(t), near(&rest), far(&(&rest + 1.0))]
}

/// The sum over all combinations of reads, one of each dimension.
fn samples(x: &Tensor, reads: &[Vec<Read>]) -> Tensor {
    let (batch, channels) = (x.size(0), x.size(1));
    let space = &x.sizes()[2..];
    let flat = x.flatten(2, -1);
    let mut found: Option<Tensor> = None;
    let count: usize = reads.iter().map(Vec::len).product();
    for which in 0..count {
        let (mut rest, mut at, mut weight, mut inside) = (which, None, None, None);
        for (reads, size) in reads.iter().zip(space) {
            let read = &reads[rest % reads.len()];
            rest /= reads.len();
            at = Some(at.map_or_else(|| read.at.clone(), |at: Tensor| at * *size + &read.at));
            let product = |w: Tensor| w * &read.weight;
            weight = Some(weight.map_or_else(|| read.weight.clone(), product));
            let both = |i: Tensor| i.logical_and(&read.inside);
            inside = Some(inside.map_or_else(|| read.inside.clone(), both));
        }
        let (Some(at), Some(weight), Some(inside)) = (at, weight, inside) else { continue };
        let mut sizes: Vec<SymInt> = vec![batch, channels];
        sizes.extend_from_slice(&at.sizes()[1..]);
        let index = at.flatten(1, -1).unsqueeze(1);
        let index = index.expand([batch, channels, index.size(2)]);
        let elements = flat.gather(-1, &index).reshape(sizes);
        let term = inside.unsqueeze(1).where_(elements * weight.unsqueeze(1), 0.0);
        found = Some(match found {
            Some(sum) => sum + term,
            None => term,
        });
    }
    found.unwrap_or_else(|| x.clone())
}

fn sampler(a: &[Value]) -> Result<Tensor> {
    let (x, grid) = (a[0].tensor()?, a[1].tensor()?);
    let space = x.dim() as i64 - 2;
    let reads = (0..space).map(|d| {
        let size = x.detach().new_full([0i64; 0], 1.0, x.dtype()) * x.size(d + 2);
        let axis = Axis {
            interpolation: a[2].int_i64()?,
            outside: a[3].int_i64()?,
            align_corners: a[4].bool()?,
            size,
        };
        // the last coordinate of a point belongs to the first dimension
        Ok(axis.reads(&grid.select(-1, space - 1 - d)))
    });
    Ok(samples(x, &reads.collect::<Result<Vec<_>>>()?))
}

pub(crate) const GRID_SAMPLER: Derivative = parts!(|a| Ok(vec![sampler(a)?]));

/// The grid is the product of fixed points, with 1 as the last coordinate, and the matrices.
pub(crate) const AFFINE_GRID: Derivative = parts!(|a| {
    let theta = a[0].tensor()?;
    let (batch, rows) = (theta.size(0), theta.size(1));
    let unit = theta.detach().ones_like().tril(0).triu(0);
    let points = maquette_ops::call(
        "aten::affine_grid_generator",
        maquette_ops::args![unit, a[1].clone(), a[2].clone()],
    )?;
    let points = points[0].tensor()?;
    let flat = points.reshape([batch, (-1i64).into(), rows]);
    let one = flat.narrow(-1, 0, 1).ones_like();
    let points_and_one = Tensor::cat([&flat, &one], -1);
    let grid = points_and_one.matmul(&theta.transpose(1, 2));
    Ok(vec![grid.reshape(points.sizes())])
});
