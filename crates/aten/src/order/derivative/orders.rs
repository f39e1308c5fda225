//! Derivatives of quantiles and of reductions of segments, by their parts.

use crate::grad::parts::parts;
use maquette_ir::DType;
use maquette_ops::operator::{Derivative, wrap_dim};
use maquette_ops::{Error, Result, Tensor, Value};

/// Quantiles along a dimension, of all elements or of those that are numbers. `q` has the
/// probabilities, which are the first dimension of the result unless `q` is a scalar.
fn quantile(a: &[Value], q: &Tensor, skip_nan: bool) -> Result<Tensor> {
    let x = a[0].tensor()?;
    let (dim, keep) = (a[2].opt(Value::int_i64)?, a[3].bool()?);
    let rank = x.dim();
    let along = match dim {
        Some(d) if rank > 0 => Some(wrap_dim(d, rank)? as i64),
        _ => None,
    };
    let rows = match along {
        Some(d) => x.movedim([d], [-1i64]),
        None => x.reshape([-1i64]),
    };
    let sorted = rows.sort(-1, false).0;
    let numbers = rows.isnan().logical_not().to_dtype(x.dtype()).sum_dim([-1i64], true);
    let n = numbers.detach().ones_like() * rows.size(-1);
    let q = q.reshape([-1i64]);
    // a NaN is the last, and the result if it counts
    let position = match skip_nan {
        true => ((&numbers - 1.0) * &q).clamp_min(0.0),
        false => numbers.eq(&n).where_((&n - 1.0) * &q, &n - 1.0),
    };
    let at = |position: &Tensor| sorted.gather(-1, &position.to_dtype(DType::I64));
    let (low, high) = (position.floor(), position.ceil());
    let found = match a[4].str()? {
        "lower" => at(&low),
        "higher" => at(&high),
        "nearest" => at(&position.round()),
        "midpoint" => (at(&low) + at(&high)) * 0.5,
        _ => {
            let (first, second) = (at(&low), at(&high));
            &first + (second - &first) * (position - low)
        }
    };
    let found = found.movedim([-1i64], [0i64]);
    let found = match along {
        Some(d) if keep => found.unsqueeze(d + 1),
        None if keep => (0..rank).fold(found, |t, _| t.unsqueeze(-1)),
        _ => found,
    };
    Ok(found)
}

/// The quantile at the number in argument 1.
fn single(a: &[Value], skip_nan: bool) -> Result<Vec<Tensor>> {
    let x = a[0].tensor()?;
    let q = x.detach().new_full([1i64], a[1].scalar()?, x.dtype());
    Ok(vec![quantile(a, &q, skip_nan)?.squeeze_dim(0)])
}

/// The quantiles at the tensor in argument 1.
fn several(a: &[Value], skip_nan: bool) -> Result<Vec<Tensor>> {
    let q = a[1].tensor()?;
    let found = quantile(a, q, skip_nan)?;
    Ok(vec![if q.dim() == 0 { found.squeeze_dim(0) } else { found }])
}

pub(crate) const QUANTILE: Derivative = parts!(|a| single(a, false));

pub(crate) const NANQUANTILE: Derivative = parts!(|a| single(a, true));

pub(crate) const QUANTILE_TENSOR: Derivative = parts!(|a| several(a, false));

pub(crate) const NANQUANTILE_TENSOR: Derivative = parts!(|a| several(a, true));

/// Segments of the first dimension; the cost is that of all pairs of a segment and an element.
pub(crate) const SEGMENT_REDUCE: Derivative = parts!(|a| {
    let (x, axis) = (a[0].tensor()?, a[5].int_i64()?);
    let (starts, ends) = match (a[2].opt_tensor()?, a[4].opt_tensor()?) {
        (Some(lengths), _) if lengths.dim() == 1 => {
            let ends = lengths.cumsum(0);
            (&ends - lengths, ends)
        }
        (None, Some(offsets)) if offsets.dim() == 1 => {
            let n = offsets.numel() - 1;
            (offsets.narrow(0, 0, n), offsets.narrow(0, 1, n))
        }
        _ => return Err(Error::value("the derivative takes segments of the first dimension")),
    };
    if axis != 0 {
        return Err(Error::value("the derivative takes segments of the first dimension"));
    }
    let place = x.detach().new_ones([x.size(0)], DType::I64).cumsum(0) - 1;
    let inside = place.ge(starts.unsqueeze(1)).logical_and(place.lt(ends.unsqueeze(1)));
    let mut sizes: Vec<_> = inside.sizes().to_vec();
    sizes.extend(x.sizes()[1..].iter().map(|_| maquette_ir::sym::SymInt::from(1)));
    let inside = inside.reshape(sizes);
    let rows = |otherwise: f64| inside.where_(x.unsqueeze(0), otherwise);
    let initial = a[7].opt(Value::scalar)?.map(|s| s.to_f64());
    let all = |neutral: f64| initial.unwrap_or(neutral);
    Ok(vec![match a[1].str()? {
        "sum" => rows(0.0).sum_dim([1i64], false) + all(0.0),
        "mean" => {
            let n = inside.to_dtype(x.dtype()).sum_dim([1i64], false);
            (rows(0.0).sum_dim([1i64], false) + all(0.0)) / n
        }
        "prod" => rows(1.0).prod_dim(1, false) * all(1.0),
        "max" => rows(f64::NEG_INFINITY).amax([1i64], false).clamp_min(all(f64::NEG_INFINITY)),
        "min" => rows(f64::INFINITY).amin([1i64], false).clamp_max(all(f64::INFINITY)),
        other => return Err(Error::value(format!("the reduction {other:?} has no derivative"))),
    }])
});
