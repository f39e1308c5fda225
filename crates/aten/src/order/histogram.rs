//! Histograms: `histc`, `histogram`, `histogramdd`. Bins have equal width or given edges, in one or
//! several dimensions. The computation of bins is in `bins`.

use super::bins::{Axis, Find, fill, least_and_greatest, rounding};
use super::require_float;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{fresh, require, require_same_dtype};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::operator::{require_equal, require_same};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

const fn counted(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Scatter,
        strides: Strides::RowMajor,
        metas,
        how: How::Host(run),
    })
}

fn finite(low: f64, high: f64) -> Result<(f64, f64)> {
    if low.is_finite() && high.is_finite() {
        return Ok((low, high));
    }
    Err(Error::value(format!("the bins must cover a finite range, found [{low}, {high}]")))
}

fn bin_count(n: i64) -> Result<usize> {
    usize::try_from(n)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Error::value(format!("`bins` must be positive, found {n}")))
}

fn histc_meta(args: &[Value]) -> Result<Metas> {
    let (x, low, high) =
        (args[0].tensor()?, args[2].scalar()?.to_f64(), args[3].scalar()?.to_f64());
    require_float("self", x)?;
    let bins = bin_count(args[1].int_i64()?)?;
    finite(low, high)?;
    if low > high {
        return Err(Error::value(format!("`max` must not be below `min`, found {high} and {low}")));
    }
    Ok(smallvec![fresh(x, smallvec![bins.into()], x.dtype())])
}

/// If `min` equals `max`, the range is that of the data.
fn histc(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let (values, round) = (host::reals(x)?, rounding(x.dtype()));
    let mut range = (round(args[2].scalar()?.to_f64()), round(args[3].scalar()?.to_f64()));
    if range.0 == range.1 {
        range = least_and_greatest(values.iter().copied()).unwrap_or(range);
        range = finite(range.0, range.1)?;
    }
    if range.0 == range.1 {
        range = (round(range.0 - 1.0), round(range.1 + 1.0));
    }
    let axis = Axis::even(range, bin_count(args[1].int_i64()?)?, Find::Linear, round)?;
    host::store_reals(out, &fill(&[axis], &values, None, false)?)
}

/// A histogram of points. The arguments are `self, bins, *, range, weight, density`, without
/// `range` if the bins are tensors of edges.
struct Points<'a> {
    x: &'a Tensor,
    /// The number of coordinates of a point.
    width: usize,
    weight: Option<&'a Tensor>,
    density: bool,
}

impl<'a> Points<'a> {
    /// Points in several dimensions: the last dimension of `self` holds the coordinates.
    fn rows(x: &'a Value, axes: usize, weight: &'a Value, density: &Value) -> Result<Points<'a>> {
        let x = x.tensor()?;
        let (Some((&last, lead)), 2..) = (x.sizes().split_last(), x.dim()) else {
            return Err(Error::value(format!(
                "argument `self` must have at least 2 dimensions, found sizes {}",
                dims_text(x.sizes())
            )));
        };
        let mismatch = || {
            Error::value(format!(
                "`bins` must have an entry for each of {last} numbers of a point, found {axes}"
            ))
        };
        require_equal(last, axes.into(), &mismatch)?;
        Points { x, width: axes, weight: weight.opt_tensor()?, density: density.bool()? }
            .checked(lead)
    }

    /// Points in one dimension: every element is a point.
    fn elements(x: &'a Value, weight: &'a Value, density: &Value) -> Result<Points<'a>> {
        let x = x.tensor()?;
        Points { x, width: 1, weight: weight.opt_tensor()?, density: density.bool()? }
            .checked(x.sizes())
    }

    fn checked(self, lead: &[SymInt]) -> Result<Points<'a>> {
        require_float("self", self.x)?;
        if let Some(w) = self.weight {
            require_same_dtype(("self", self.x), ("weight", w))?;
            require_same(lead, w.sizes(), || "argument `weight` must have".into())?;
        }
        Ok(self)
    }

    /// The metadata of a histogram with these numbers of bins.
    fn hist(&self, bins: Dims) -> Meta {
        fresh(self.x, bins, self.x.dtype())
    }

    fn edges(&self, bins: i64) -> Meta {
        fresh(self.x, smallvec![SymInt::from(bins) + 1], self.x.dtype())
    }

    /// Axes with bins of equal width over `range`, or over the range of the data.
    fn even(&self, bins: &[i64], range: &Value) -> Result<Vec<Axis>> {
        let (values, round) = (host::reals(self.x)?, rounding(self.x.dtype()));
        let bounds = range_list(range, bins.len())?;
        let axis = |(d, &n): (usize, &i64)| {
            let own =
                || least_and_greatest(values.iter().skip(d).step_by(self.width.max(1)).copied());
            let (low, high) = match &bounds {
                Some(r) => (round(r[2 * d]), round(r[2 * d + 1])),
                None => own().unwrap_or((0.0, 1.0)),
            };
            let (low, high) = finite(low, high)?;
            let range =
                if low == high { (round(low - 0.5), round(high + 0.5)) } else { (low, high) };
            Axis::even(range, bin_count(n)?, Find::LinearThenNear, round)
        };
        bins.iter().enumerate().map(axis).collect()
    }

    fn run(&self, axes: &[Axis], out: &Tensor) -> Result<()> {
        let weight = self.weight.map(host::reals).transpose()?;
        host::store_reals(out, &fill(axes, &host::reals(self.x)?, weight.as_deref(), self.density)?)
    }
}

/// The lower and upper bounds of each of `axes` dimensions, if given.
fn range_list(v: &Value, axes: usize) -> Result<Option<Vec<f64>>> {
    let list = match v {
        Value::None => return Ok(None),
        Value::Ints(_) => v.ints_i64()?.iter().map(|i| *i as f64).collect(),
        _ => v.list()?.iter().map(Value::float).collect::<Result<Vec<_>>>()?,
    };
    if list.len() != 2 * axes {
        return Err(Error::value(format!(
            "`range` must hold a lower and an upper bound for each of {axes} dimensions, found {}",
            list.len()
        )));
    }
    if let Some(r) = list.chunks_exact(2).find(|r| r[0] > r[1]) {
        return Err(Error::value(format!(
            "`range` must hold lower bounds before upper ones, found {} and {}",
            r[0], r[1]
        )));
    }
    Ok(Some(list))
}

fn counts(v: &Value, range: &Value) -> Result<Vec<i64>> {
    let bins = v.ints_i64()?.to_vec();
    bins.iter().try_for_each(|n| bin_count(*n).map(drop))?;
    range_list(range, bins.len())?;
    Ok(bins)
}

/// The number of bins between the edges in a tensor.
fn bins_of(x: &Tensor, edges: &Tensor) -> Result<SymInt> {
    require_same_dtype(("self", x), ("bins", edges))?;
    let &[n] = edges.sizes() else {
        return Err(Error::value(format!(
            "`bins` must have 1 dimension, found sizes {}",
            dims_text(edges.sizes())
        )));
    };
    require(n.ge(2), || format!("`bins` must hold at least 2 edges, found {n}"))?;
    Ok(n - 1)
}

fn given_edges(edges: &Tensor) -> Result<Axis> {
    Ok(Axis { edges: host::reals(edges)?, find: Find::Edges, round: rounding(edges.dtype()) })
}

fn edge_tensors(v: &Value) -> Result<Vec<&Tensor>> {
    v.list()?.iter().map(Value::tensor).collect()
}

fn bin_ct(args: &[Value]) -> Result<(Points<'_>, i64)> {
    let bins = args[1].int_i64()?;
    counts(&Value::from([bins]), &args[2])?;
    Ok((Points::elements(&args[0], &args[3], &args[4])?, bins))
}

fn rows(args: &[Value]) -> Result<(Points<'_>, Vec<i64>)> {
    let bins = counts(&args[1], &args[2])?;
    Ok((Points::rows(&args[0], bins.len(), &args[3], &args[4])?, bins))
}

fn rows_over_tensors(args: &[Value]) -> Result<(Points<'_>, Vec<&Tensor>)> {
    let bins = edge_tensors(&args[1])?;
    Ok((Points::rows(&args[0], bins.len(), &args[2], &args[3])?, bins))
}

/// `histogramdd`: the counts and the edges, from separate operators. The arguments are `self, bins,
/// range, weight, density`.
fn histogramdd(a: &[Value], bins: Value) -> Result<Outputs> {
    let parts = |op: &str| {
        maquette_ops::call(
            op,
            maquette_ops::args![
                a[0].clone(),
                bins.clone(),
                a[2].clone(),
                a[3].clone(),
                a[4].clone()
            ],
        )
    };
    Ok(parts("aten::_histogramdd_from_bin_cts")?
        .into_iter()
        .chain(parts("aten::_histogramdd_bin_edges")?)
        .collect())
}

fn repeated(x: &Tensor, bins: &Value) -> Result<Value> {
    let width = x.sizes().last().copied().unwrap_or(0.into());
    let width = width.as_i64().map_or_else(|| width.guard_int(), Ok)?;
    let bins = bins.int_i64()?;
    Ok(Value::from(host::collect(usize::try_from(width).unwrap_or(0), std::iter::repeat(bins))?))
}

table! {
    /// Histograms.
    static TABLE = {
        "aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor" => {
            role: General,
            lowering: counted(|_, a| histc_meta(a), |a, o| histc(a, &o[0])),
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, \
            Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)" => {
            role: General,
            lowering: counted(
                |_, a| {
                    let (p, n) = bin_ct(a)?;
                    Ok(smallvec![p.hist(smallvec![n.into()]), p.edges(n)])
                },
                |a, o| {
                    let (p, n) = bin_ct(a)?;
                    let axes = p.even(&[n], &a[2])?;
                    host::store_reals(&o[1], &axes[0].edges)?;
                    p.run(&axes, &o[0])
                },
            ),
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, \
            bool density=False) -> (Tensor hist, Tensor bin_edges)" => {
            role: General,
            lowering: counted(
                |_, a| {
                    let (p, bins) = (Points::elements(&a[0], &a[2], &a[3])?, a[1].tensor()?);
                    Ok(smallvec![
                        p.hist(smallvec![bins_of(p.x, bins)?]),
                        fresh(bins, bins.sizes().into(), bins.dtype())
                    ])
                },
                |a, o| {
                    let axes = [given_edges(a[1].tensor()?)?];
                    host::store_reals(&o[1], &axes[0].edges)?;
                    Points::elements(&a[0], &a[2], &a[3])?.run(&axes, &o[0])
                },
            ),
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, \
            Tensor? weight=None, bool density=False) -> Tensor[]" => {
            role: General,
            lowering: counted(
                |_, a| {
                    let (p, bins) = rows(a)?;
                    Ok(bins.iter().map(|n| p.edges(*n)).collect())
                },
                |a, outs| {
                    let (p, bins) = rows(a)?;
                    p.even(&bins, &a[2])?
                        .iter()
                        .zip(outs)
                        .try_for_each(|(axis, o)| host::store_reals(o, &axis.edges))
                },
            ),
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::_histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None, \
            Tensor? weight=None, bool density=False) -> Tensor" => {
            role: General,
            lowering: counted(
                |_, a| {
                    let (p, bins) = rows(a)?;
                    Ok(smallvec![p.hist(bins.iter().map(|n| SymInt::from(*n)).collect())])
                },
                |a, o| {
                    let (p, bins) = rows(a)?;
                    p.run(&p.even(&bins, &a[2])?, &o[0])
                },
            ),
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::_histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, \
            Tensor? weight=None, bool density=False) -> Tensor" => {
            role: General,
            lowering: counted(
                |_, a| {
                    let (p, bins) = rows_over_tensors(a)?;
                    Ok(smallvec![
                        p.hist(bins.iter().map(|b| bins_of(p.x, b)).collect::<Result<_>>()?)
                    ])
                },
                |a, o| {
                    let (p, bins) = rows_over_tensors(a)?;
                    p.run(&bins.into_iter().map(given_edges).collect::<Result<Vec<_>>>()?, &o[0])
                },
            ),
            vjp: Derivative::None("the numbers in bins are constant almost everywhere"),
        },
        "aten::histogramdd(Tensor self, int[] bins, float[]? range=None, \
            Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)" => {
            role: General,
            lowering: Lowering::Composite(|a| histogramdd(a, a[1].clone())),
        },
        "aten::histogramdd.int_bins(Tensor self, int bins, float[]? range=None, \
            Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)" => {
            role: General,
            lowering: Lowering::Composite(|a| histogramdd(a, repeated(a[0].tensor()?, &a[1])?)),
        },
        "aten::histogramdd.TensorList_bins(Tensor self, Tensor[] bins, \
            float[]? range=None, Tensor? weight=None, \
            bool density=False) -> (Tensor hist, Tensor[] bin_edges)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let hist = maquette_ops::call(
                    "aten::_histogramdd_from_bin_tensors",
                    maquette_ops::args![a[0].clone(), a[1].clone(), a[3].clone(), a[4].clone()],
                )?;
                Ok(hist.into_iter().chain([a[1].clone()]).collect())
            }),
        },
    }
}
