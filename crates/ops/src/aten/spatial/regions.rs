//! The greatest element, or the mean, of each of the regions an image is divided into: evenly, or
//! at random.

use super::{compute, each_index, is_empty, numbers, require_float, require_full, rounding};
use crate::aten::dims::{fresh, require, require_rank};
use crate::aten::host;
use crate::aten::lowering::{Class, Lowering, Metas, Strides};
use crate::aten::pooling::pooled_meta;
use crate::aten::table;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::require_equal;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use smallvec::smallvec;
use std::ops::Range;

/// The regions of one dimension.
type Regions = Vec<Range<usize>>;

/// An even division of the last `space` dimensions into as many regions as `out` has elements.
fn even(x: &Tensor, out: &Tensor, space: usize) -> Result<Vec<Regions>> {
    if is_empty(out) {
        return Ok(vec![Regions::new(); space]);
    }
    let tail =
        |t: &Tensor| -> Result<Vec<usize>> { Ok(host::sizes(t)?.split_off(t.dim() - space)) };
    let region = |n: usize, m: usize, i: usize| i * n / m..((i + 1) * n).div_ceil(m);
    Ok(tail(x)?
        .into_iter()
        .zip(tail(out)?)
        .map(|(n, m)| (0..m).map(|i| region(n, m, i)).collect())
        .collect())
}

/// Calls `f` with the positions and elements of every region of every plane, and the region's
/// lengths.
fn each_region(
    x: &Tensor,
    space: usize,
    regions: impl Fn(usize) -> Result<Vec<Regions>>,
    mut f: impl FnMut(&[(usize, f64)], &[usize]),
) -> Result<()> {
    let sizes = host::sizes(x)?.split_off(x.dim() - space);
    let data = host::reals(x)?;
    let mut window = Vec::new();
    for (plane, elements) in data.chunks_exact(host::count(&sizes).max(1)).enumerate() {
        let regions = regions(plane)?;
        let counts: Vec<usize> = regions.iter().map(Vec::len).collect();
        each_index(&counts, |which| {
            let ranges: Vec<&Range<usize>> =
                which.iter().zip(&regions).map(|(&i, r)| &r[i]).collect();
            let lengths: Vec<usize> = ranges.iter().map(|r| r.len()).collect();
            window.clear();
            each_index(&lengths, |offset| {
                let at = offset
                    .iter()
                    .zip(&ranges)
                    .zip(&sizes)
                    .fold(0, |at, ((o, r), n)| at * n + r.start + o);
                window.extend(elements.get(at).map(|x| (at, *x)));
            });
            f(&window, &lengths);
        });
    }
    Ok(())
}

/// Writes the greatest element of every region of every plane, the last NaN if there is one, and
/// its place in the plane.
fn greatest(
    x: &Tensor,
    space: usize,
    out: &[Tensor],
    regions: impl Fn(usize) -> Result<Vec<Regions>>,
) -> Result<()> {
    if is_empty(&out[0]) {
        return Ok(());
    }
    let (mut values, mut positions) = (Vec::new(), Vec::new());
    each_region(x, space, regions, |window, _| {
        let first = (window.first().map_or(0, |w| w.0), f64::NEG_INFINITY);
        let (position, value) = window
            .iter()
            .fold(first, |best, &(at, x)| if x > best.1 || x.is_nan() { (at, x) } else { best });
        values.push(value);
        positions.push(position as i64);
    })?;
    host::store_reals(&out[0], &values)?;
    host::fill_with::<i64>(&out[1], |o| o.iter_mut().zip(positions).for_each(|(o, p)| *o = p))
}

/// The means of an even division, each step of a sum and its division rounded to the dtype.
pub(in crate::aten) fn stepwise_means(x: &Tensor, space: usize, out: &Tensor) -> Result<()> {
    let (round, regions) = (rounding(x.dtype()), even(x, out, space)?);
    let mut values = Vec::new();
    let all = |_| Ok(regions.clone());
    each_region(x, space, all, |window, lengths| {
        let sum = window.iter().fold(0.0, |sum, w| round(sum + w.1));
        values.push(lengths.iter().fold(sum, |mean, n| round(mean / *n as f64)));
    })?;
    host::store_reals(out, &values)
}

fn with_positions(m: Meta) -> Metas {
    smallvec![m.clone(), Meta { dtype: DType::I64, ..m }]
}

#[track_caller]
fn adaptive_metas<const N: usize>(a: &[Value]) -> Result<Metas> {
    let x = a[0].tensor()?;
    require_float("self", x)?;
    require_rank("self", x, N + 1..=N + 2)?;
    require_full("self", x, 1)?;
    let to = numbers::<N>("output_size", &a[1], 0)?;
    let sizes: Dims =
        x.sizes()[..x.dim() - N].iter().copied().chain(to.map(SymInt::from)).collect();
    // PyTorch keeps the memory format of images only
    Ok(with_positions(if N == 2 {
        pooled_meta(x, sizes, x.dtype())?
    } else {
        fresh(x, sizes, x.dtype())
    }))
}

fn adaptive<const N: usize>(a: &[Value], out: &[Tensor]) -> Result<()> {
    let x = a[0].tensor()?;
    let regions = even(x, &out[0], N)?;
    greatest(x, N, out, |_| Ok(regions.clone()))
}

/// Signals are images of height 1.
fn adaptive_signal(a: &[Value]) -> Result<Outputs> {
    let x = a[0].tensor()?;
    require_rank("self", x, 2..=3)?;
    let [n] = numbers::<1>("output_size", &a[1], 0)?;
    let out = crate::call("aten::adaptive_max_pool2d", crate::args![x.unsqueeze(-2), [1, n]])?;
    out.iter().map(|v| Ok(Value::Tensor(v.tensor()?.squeeze_dim(-2)))).collect()
}

#[track_caller]
fn fractional_metas<const N: usize>(a: &[Value]) -> Result<Metas> {
    let (x, samples) = (a[0].tensor()?, a[3].tensor()?);
    require_float("self", x)?;
    require_rank("self", x, N + 1..=N + 2)?;
    require_full("self", x, x.dim() - N - 1)?;
    let (kernel, to) =
        (numbers::<N>("kernel_size", &a[1], 1)?, numbers::<N>("output_size", &a[2], 1)?);
    let (lead, space) = x.sizes().split_at(x.dim() - N);
    for ((&n, k), m) in space.iter().zip(kernel).zip(to) {
        require(n.ge(SymInt::from(k) + m - 1), || {
            format!(
                "{m} windows of size {k} exceed a dimension of size {n} in sizes {}",
                dims_text(x.sizes())
            )
        })?;
    }
    if samples.dtype() != x.dtype() {
        return Err(Error::value(format!(
            "argument `random_samples` must hold {}, as `self` does; found {}",
            x.dtype(),
            samples.dtype()
        )));
    }
    let batch = if lead.len() == 2 { lead[0] } else { 1.into() };
    let expected = [batch, lead[lead.len() - 1], N.into()];
    let misfit = || {
        Error::value(format!(
            "argument `random_samples` must have sizes of at least {}, found {}",
            dims_text(&expected),
            dims_text(samples.sizes())
        ))
    };
    if samples.dim() != 3 {
        return Err(misfit());
    }
    require(samples.sizes()[0].ge(batch), || misfit().to_string())?;
    for (&e, &f) in expected.iter().zip(samples.sizes()).skip(1) {
        require_equal(e, f, &misfit)?;
    }
    let sizes = lead.iter().copied().chain(to.map(SymInt::from)).collect();
    Ok(with_positions(fresh(x, sizes, x.dtype())))
}

/// Where the windows begin: steps of nearly one length, begun at a random phase. In the arithmetic
/// of the dtype, which decides where they fall.
fn phases(n: usize, kernel: usize, count: usize, sample: f64, round: fn(f64) -> f64) -> Vec<usize> {
    let last = n - kernel;
    let step = if count > 1 { round(last as f64 / (count - 1) as f64) } else { 0.0 };
    let at = |i: usize| round(round(i as f64 + sample) * step).trunc();
    let mut starts: Vec<usize> = (0..count)
        .map(|i| (at(i) - round(sample * step).trunc()).max(0.0) as usize)
        .map(|s| s.min(last))
        .collect();
    if let Some(s) = starts.last_mut() {
        *s = last;
    }
    starts
}

fn fractional<const N: usize>(a: &[Value], out: &[Tensor]) -> Result<()> {
    let x = a[0].tensor()?;
    let (kernel, to) =
        (numbers::<N>("kernel_size", &a[1], 1)?, numbers::<N>("output_size", &a[2], 1)?);
    let from = host::sizes(x)?.split_off(x.dim() - N);
    let samples = host::reals(a[3].tensor()?)?;
    let round = rounding(x.dtype());
    greatest(x, N, out, |plane| {
        let own = samples
            .get(plane * N..(plane + 1) * N)
            .ok_or_else(|| Error::value("argument `random_samples` is too small"))?;
        // samples of images are listed width first, those of volumes depth first
        let sample = |d: usize| if N == 2 { own[N - 1 - d] } else { own[d] };
        Ok((0..N)
            .map(|d| {
                let k = kernel[d] as usize;
                phases(from[d], k, to[d] as usize, sample(d), round)
                    .into_iter()
                    .map(|s| s..s + k)
                    .collect()
            })
            .collect())
    })
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        General "aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)" =>
            Lowering::Composite(adaptive_signal),
        General "aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)" =>
            compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| adaptive_metas::<2>(a),
                adaptive::<2>,
            ),
        General "aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)" =>
            compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| adaptive_metas::<3>(a),
                adaptive::<3>,
            ),
        General "aten::fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, \
            Tensor random_samples) -> (Tensor, Tensor)" =>
            compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| fractional_metas::<2>(a),
                fractional::<2>,
            ),
        General "aten::fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, \
            Tensor random_samples) -> (Tensor, Tensor)" =>
            compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| fractional_metas::<3>(a),
                fractional::<3>,
            ),
    }
}
