//! Operators on the order of elements, and relatives: comparison, selection, quantiles, search,
//! histograms, unique elements, segments, embedding bags and covariances.
//!
//! Elements are compared as `i64` keys that have the same order ([`Keys`]). So one loop serves
//! every dtype, and no `i64` is rounded to a float.

mod bins;
mod compare;
mod count;
pub(crate) mod derivative;
mod embedding_bag;
mod histogram;
mod moments;
mod quantile;
mod search;
mod segment;
mod select;
pub(crate) mod sort;
mod unique;

use maquette_ir::sym::SymInt;
use maquette_ir::typing::promote;
use maquette_ir::{DType, Scalar};
use maquette_kernels::{Class, Element as _};
use maquette_ops::operator::cpu_exec;
use maquette_ops::operator::dims::require_float;
use maquette_ops::operator::host::{self, typed};
use maquette_ops::operator::lowering::operand;
use maquette_ops::{Error, FakeCtx, Result, Tensor, Value};

/// The key of NaN, above the keys of all numbers.
const NAN: i64 = i64::MAX;

/// The elements of a tensor as integers in the same order. Equal elements, such as 0 and -0, have
/// equal keys.
struct Keys {
    all: Vec<i64>,
    float: bool,
}

impl Keys {
    fn of(t: &Tensor) -> Result<Keys> {
        let float = t.dtype().is_float();
        let all = if float { host::reals(t)?.into_iter().map(key).collect() } else { integers(t)? };
        Ok(Keys { all, float })
    }

    fn is_nan(&self, key: i64) -> bool {
        self.float && key == NAN
    }

    /// Whether two elements are equal. NaN equals nothing.
    fn same(&self, a: usize, b: usize) -> bool {
        self.all[a] == self.all[b] && !self.is_nan(self.all[a])
    }
}

/// The key of a float: its bits, with the magnitude bits of negative numbers inverted. This is the
/// total order of IEEE 754 for numbers, with 0 and -0 made equal.
fn key(x: f64) -> i64 {
    if x.is_nan() {
        return NAN;
    }
    // Adding 0 turns -0 into 0. The bits of negative numbers fall as the numbers rise.
    let bits = (x + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The elements in row-major order as integers. Floats are truncated.
fn integers(t: &Tensor) -> Result<Vec<i64>> {
    typed!(t.dtype(), T => {
        let x = t.read::<T>()?;
        host::collect(x.len(), x.iter().map(|x| x.load().to_i64()))
    })
}

/// Fills a fresh output with integers in row-major order.
fn store_integers(out: &Tensor, values: &[i64]) -> Result<()> {
    typed!(out.dtype(), T => host::fill_with::<T>(out, |o| {
        o.iter_mut().zip(values).for_each(|(o, x)| *o = T::store(Class::cast(*x)));
    }))
}

/// Fills a fresh output with the elements of `x` at row-major positions.
fn take(x: &Tensor, at: &[usize], out: &Tensor) -> Result<()> {
    typed!(x.dtype(), T => {
        let x = host::data::<T>(x)?;
        host::fill_with::<T>(out, |o| {
            o.iter_mut().zip(at).for_each(|(o, &i)| *o = x.get(i).copied().unwrap_or_default());
        })
    })
}

/// The lines of a row-major tensor along one dimension: `count` lines of `len` elements, `step`
/// positions apart.
struct Lines {
    len: usize,
    step: usize,
    count: usize,
}

impl Lines {
    /// The lines along dimension `dim`. A 0-d tensor is one line of one element.
    fn of(t: &Tensor, dim: usize) -> Result<Lines> {
        let sizes = host::sizes(t)?;
        let len = sizes.get(dim).copied().unwrap_or(1);
        let step = host::count(sizes.get(dim + 1..).unwrap_or_default());
        Ok(Lines {
            len,
            step,
            count: host::count(&sizes[..dim.min(sizes.len())]).saturating_mul(step),
        })
    }

    /// All elements as one line.
    fn flat(t: &Tensor) -> Result<Lines> {
        Ok(Lines { len: host::count(&host::sizes(t)?), step: 1, count: 1 })
    }

    /// The row-major position of element `i` of a line.
    fn at(&self, line: usize, i: usize) -> usize {
        (line / self.step * self.len + i) * self.step + line % self.step
    }
}

/// Two operands converted to their promoted dtype.
fn promoted(a: &Value, b: &Value) -> Result<(Tensor, Tensor)> {
    let dtype = promote([operand(a), operand(b)]);
    Ok((cpu_exec::cast(&as_tensor(a)?, dtype)?, cpu_exec::cast(&as_tensor(b)?, dtype)?))
}

/// A tensor argument, or a number as a 0-d tensor.
fn as_tensor(v: &Value) -> Result<Tensor> {
    match v {
        Value::Tensor(_) => Ok(v.tensor()?.clone()),
        _ => Ok(match v.scalar()? {
            Scalar::Bool(b) => Tensor::scalar(b),
            Scalar::Int(i) => Tensor::scalar(i),
            Scalar::Float(x) => Tensor::scalar(x),
        }),
    }
}

/// A new data-dependent size between `least` and `most`, as far as their ranges are known.
fn dynamic_size(cx: &FakeCtx, least: SymInt, most: SymInt) -> Result<SymInt> {
    let (lo, hi) = (least.range().lo.max(0), most.range().hi.max(0));
    if lo == hi { Ok(lo.into()) } else { cx.new_dynamic_size_in(lo.min(hi), hi) }
}

/// The number of groups of `n` elements: at most `n`, and at least 1 unless `n` is 0.
fn group_count(cx: &FakeCtx, n: SymInt) -> Result<SymInt> {
    dynamic_size(cx, n.min(1), n)
}

/// Requires an argument not to be of bools.
pub(super) fn refuse_bool(arg: &str, v: &Value) -> Result<()> {
    if operand(v).dtype != DType::Bool {
        return Ok(());
    }
    Err(Error::value(format!("argument `{arg}` must hold numbers, found {}", v.kind())))
}

/// The error of a fake kernel whose result depends on data and is not a tensor.
fn unknown_without_data<T>(what: &str) -> Result<T> {
    Err(Error::value(format!(
        "whether {what} is known only from their data, which a trace does not have"
    )))
}
