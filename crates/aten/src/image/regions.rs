//! Pooling over regions that divide an image: adaptive pooling, with even divisions, and fractional
//! max pooling (Graham 2014), with random ones.

use super::pooling::pooled_meta;
use super::{compute, each_index, is_empty, numbers, require_full, rounding};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{fresh, require, require_float, require_rank};
use maquette_ops::operator::lowering::{Class, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_equal;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;
use std::ops::Range;

/// The regions along one dimension.
type Regions = Vec<Range<usize>>;

/// Divides each of the last `space` dimensions evenly into as many regions as the output has
/// elements. Regions may overlap by one element.
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

/// Calls `f` with the positions and values of every region of every plane, and with the lengths of
/// the region's sides.
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

/// Writes the maximum of every region of every plane, and its position in the plane. If a region
/// has NaN, the last NaN is the maximum.
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

/// The means of an even division. As in PyTorch, every addition and the division round to the
/// dtype.
pub(crate) fn stepwise_means(x: &Tensor, space: usize, out: &Tensor) -> Result<()> {
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
    smallvec![m.clone(), m.with_dtype(DType::I64)]
}

#[track_caller]
fn adaptive_metas<const N: usize>(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    require_float("self", x)?;
    require_rank("self", x, N + 1..=N + 2)?;
    require_full("self", x, 1)?;
    let to = numbers::<N>("output_size", &args[1], 0)?;
    let sizes: Dims =
        x.sizes()[..x.dim() - N].iter().copied().chain(to.map(SymInt::from)).collect();
    // PyTorch preserves the memory format of images, but not of volumes.
    Ok(with_positions(if N == 2 {
        pooled_meta(x, sizes, x.dtype())?
    } else {
        fresh(x, sizes, x.dtype())
    }))
}

fn adaptive<const N: usize>(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let regions = even(x, &out[0], N)?;
    greatest(x, N, out, |_| Ok(regions.clone()))
}

/// Pools a signal as an image of height 1.
fn adaptive_signal(a: &[Value]) -> Result<Outputs> {
    let x = a[0].tensor()?;
    require_rank("self", x, 2..=3)?;
    let [n] = numbers::<1>("output_size", &a[1], 0)?;
    let out = maquette_ops::call(
        "aten::adaptive_max_pool2d",
        maquette_ops::args![x.unsqueeze(-2), [1, n]],
    )?;
    out.iter().map(|v| Ok(Value::Tensor(v.tensor()?.squeeze_dim(-2)))).collect()
}

/// The metadata of fractional pooling: values and their positions.
#[track_caller]
fn fractional_metas<const N: usize>(args: &[Value]) -> Result<Metas> {
    let (x, samples) = (args[0].tensor()?, args[3].tensor()?);
    require_float("self", x)?;
    require_rank("self", x, N + 1..=N + 2)?;
    require_full("self", x, x.dim() - N - 1)?;
    let (kernel, to) =
        (numbers::<N>("kernel_size", &args[1], 1)?, numbers::<N>("output_size", &args[2], 1)?);
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

/// The starts of the windows along a dimension: steps of nearly equal length from a random phase.
/// The arithmetic is in the dtype, as in PyTorch, because rounding decides where windows start.
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

/// Pools each plane over windows whose phases come from `random_samples`.
fn fractional<const N: usize>(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let (kernel, to) =
        (numbers::<N>("kernel_size", &args[1], 1)?, numbers::<N>("output_size", &args[2], 1)?);
    let from = host::sizes(x)?.split_off(x.dim() - N);
    let samples = host::reals(args[3].tensor()?)?;
    let round = rounding(x.dtype());
    greatest(x, N, out, |plane| {
        let own = samples
            .get(plane * N..(plane + 1) * N)
            .ok_or_else(|| Error::value("argument `random_samples` is too small"))?;
        // Samples list the width first for images, and the depth first for volumes.
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
    /// Pooling over regions.
    static TABLE = {
        "aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(adaptive_signal),
        },
        "aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)" => {
            role: General,
            lowering: compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| adaptive_metas::<2>(a),
                How::Host(adaptive::<2>),
            ),
            vjp: crate::grad::MAX_POOL2D,
        },
        "aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)" => {
            role: General,
            lowering: compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| adaptive_metas::<3>(a),
                How::Host(adaptive::<3>),
            ),
            vjp: crate::grad::MAX_POOL3D,
        },
        "aten::fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, \
            Tensor random_samples) -> (Tensor, Tensor)" => {
            role: General,
            lowering: compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| fractional_metas::<2>(a),
                How::Host(fractional::<2>),
            ),
            vjp: crate::grad::MAX_POOL2D,
        },
        "aten::fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, \
            Tensor random_samples) -> (Tensor, Tensor)" => {
            role: General,
            lowering: compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| fractional_metas::<3>(a),
                How::Host(fractional::<3>),
            ),
            vjp: crate::grad::MAX_POOL3D,
        },
    }
}
