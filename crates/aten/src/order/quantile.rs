//! Quantiles: the element at rank `q (n - 1)` of each sorted line, interpolated between ranks.
//!
//! As in PyTorch, ranks are computed in `f64`, `q` is rounded to the tensor's dtype, and
//! interpolation rounds to that dtype at every step. A line with NaN gives NaN, unless the operator
//! skips NaN.

use super::{Lines, key};
use crate::reduce::reduced;
use maquette_ir::DType;
use maquette_ir::typing::contiguous_strides;
use maquette_ops::operator::dims::{fresh, require};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Meta, Result, Tensor, Value};
use smallvec::smallvec;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Linear,
    Lower,
    Higher,
    Midpoint,
    Nearest,
}

/// A call. The arguments are `self, q, dim, keepdim, *, interpolation`.
struct Quantile<'a> {
    x: &'a Tensor,
    q: &'a Value,
    dim: Option<usize>,
    keepdim: bool,
    between: Between,
}

impl<'a> Quantile<'a> {
    /// Reads and checks the arguments.
    fn of(args: &'a [Value]) -> Result<Quantile<'a>> {
        let x = args[0].tensor()?;
        if !matches!(x.dtype(), DType::F32 | DType::F64) {
            return Err(Error::value(format!(
                "argument `self` must have dtype f32 or f64, found {}{}",
                x.dtype(),
                dims_text(x.sizes())
            )));
        }
        require(x.numel().gt(0), || {
            format!("argument `self` must have elements, found sizes {}", dims_text(x.sizes()))
        })?;
        match &args[1] {
            Value::Tensor(_) => {
                let q = args[1].tensor()?;
                if q.dtype() != x.dtype() || q.dim() > 1 {
                    let (found, expected) =
                        (format!("{}{}", q.dtype(), dims_text(q.sizes())), x.dtype());
                    return Err(Error::value(format!(
                        "`q` must be a number, or {expected} of at most 1 dimension; found {found}"
                    )));
                }
            }
            number => in_unit(number.float()?)?,
        }
        let between = match args[4].str()? {
            "linear" => Between::Linear,
            "lower" => Between::Lower,
            "higher" => Between::Higher,
            "midpoint" => Between::Midpoint,
            "nearest" => Between::Nearest,
            other => {
                let names = "\"linear\", \"lower\", \"higher\", \"midpoint\" or \"nearest\"";
                return Err(Error::value(format!(
                    "`interpolation` must be {names}, found {other:?}"
                )));
            }
        };
        let dim = args[2].opt(Value::int_i64)?.map(|d| wrap_dim(d, x.dim())).transpose()?;
        Ok(Quantile { x, q: &args[1], dim, keepdim: args[3].bool()?, between })
    }

    fn meta(&self) -> Result<Meta> {
        let x = self.x;
        let dims: Vec<usize> = self.dim.map_or_else(|| (0..x.dim()).collect(), |d| vec![d]);
        let rest = reduced(x, &dims, self.keepdim, x.dtype());
        let Some(&count) = self.q.tensors().next().and_then(|q| q.sizes().first()) else {
            return Ok(rest);
        };
        // PyTorch computes several quantiles as the last dimension and then moves it to the front.
        let mut sizes: Dims = rest.sizes.iter().copied().chain([count]).collect();
        let mut strides = contiguous_strides(&sizes);
        sizes.rotate_right(1);
        strides.rotate_right(1);
        Ok(fresh(x, sizes, x.dtype()).with_strides(strides))
    }

    /// Sorts each line and interpolates at the rank of each quantile.
    fn run(&self, out: &Tensor, skip_nan: bool) -> Result<()> {
        let values = host::reals(self.x)?;
        let lines = self.dim.map_or_else(|| Lines::flat(self.x), |d| Lines::of(self.x, d))?;
        let round: fn(f64) -> f64 =
            if self.x.dtype() == DType::F32 { |x| f64::from(x as f32) } else { |x| x };
        let shares = match self.q {
            Value::Tensor(q) => host::reals(q)?,
            number => vec![round(number.float()?)],
        };
        shares.iter().try_for_each(|q| in_unit(*q))?;
        let mut results = host::filled(0.0, shares.len() * lines.count)?;
        for l in 0..lines.count {
            let mut line: Vec<f64> = (0..lines.len).map(|i| values[lines.at(l, i)]).collect();
            line.sort_unstable_by_key(|x| key(*x));
            let numbers = line.partition_point(|x| !x.is_nan());
            for (s, &q) in shares.iter().enumerate() {
                let last = line.len().saturating_sub(1) as f64;
                let rank = match numbers == line.len() {
                    true => q * last,
                    false if skip_nan => q * (numbers.max(1) - 1) as f64,
                    // NaN is last in the order of keys.
                    false => last,
                };
                results[s * lines.count + l] = self.interpolated(&line, rank, round);
            }
        }
        host::store_reals(out, &results)
    }

    fn interpolated(&self, line: &[f64], rank: f64, round: fn(f64) -> f64) -> f64 {
        let at = |rank: f64| line.get(rank as usize).copied().unwrap_or(f64::NAN);
        let (below, above) = (rank.floor(), rank.ceil());
        let weight = match self.between {
            Between::Lower => return at(below),
            Between::Higher => return at(above),
            Between::Nearest => return at(rank.round_ties_even()),
            Between::Midpoint => 0.5,
            Between::Linear => round(rank - below),
        };
        let (a, b) = (at(below), at(above));
        let distance = round(b - a);
        // Interpolates from the nearer end, as PyTorch's `lerp` does.
        if weight < 0.5 {
            round(a + round(weight * distance))
        } else {
            round(b - round(distance * round(1.0 - weight)))
        }
    }
}

fn in_unit(q: f64) -> Result<()> {
    if (0.0..=1.0).contains(&q) {
        Ok(())
    } else {
        Err(Error::value(format!("`q` must be from 0 to 1, found {q}")))
    }
}

macro_rules! quantile {
    ($skip_nan:literal) => {
        Lowering::Compute(Compute {
            class: Class::Sort,
            strides: Strides::FromOperands,
            metas: |_, a| -> Result<Metas> { Ok(smallvec![Quantile::of(a)?.meta()?]) },
            how: How::Host(|a, out| Quantile::of(a)?.run(&out[0], $skip_nan)),
        })
    };
}

table! {
    /// Quantiles.
    static TABLE = {
        "aten::quantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, \
            str interpolation=\"linear\") -> Tensor" => {
            role: General,
            lowering: quantile!(false),
            vjp: crate::grad::QUANTILE_TENSOR,
        },
        "aten::quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, \
            str interpolation=\"linear\") -> Tensor" => {
            role: General,
            lowering: quantile!(false),
            vjp: crate::grad::QUANTILE,
        },
        "aten::nanquantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, \
            str interpolation=\"linear\") -> Tensor" => {
            role: General,
            lowering: quantile!(true),
            vjp: crate::grad::NANQUANTILE_TENSOR,
        },
        "aten::nanquantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, \
            *, str interpolation=\"linear\") -> Tensor" => {
            role: General,
            lowering: quantile!(true),
            vjp: crate::grad::NANQUANTILE,
        },
    }
}
