//! Derivatives of averages over windows and of interpolations: linear operators that treat each
//! dimension separately.

use crate::grad::parts::separable;
use crate::grad::rule;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::{Backward, Derivative};
use maquette_ops::{Args, Error, Result, Tensor, Value};

/// Entry `d` of a list that may have one entry for all dimensions.
fn entry(list: &[SymInt], d: usize) -> Option<SymInt> {
    if list.len() == 1 { list.first().copied() } else { list.get(d).copied() }
}

/// A list of `dims` numbers: `value` at `d`, and `other` elsewhere.
fn only(dims: usize, d: usize, value: SymInt, other: i64) -> Value {
    Value::from_dims(
        (0..dims).map(|e| if e == d { value } else { other.into() }).collect::<Vec<_>>(),
    )
}

fn call(b: &Backward<'_>, args: Args) -> Result<Tensor> {
    let out = b.op().call_at(args, b.loc())?;
    out.first()
        .map_or_else(|| Err(Error::value("an operator has a result")), Value::tensor)
        .cloned()
}

/// Averages over windows.
fn average(b: &Backward<'_>, dims: usize) -> Result<()> {
    let (kernel, stride, padding) = (b.arg(1).ints()?, b.arg(2).ints()?, b.arg(3).ints()?);
    let divisor = b.arg(6);
    let along = |d: usize, eye: &Tensor| {
        let at = |list: &[SymInt]| entry(list, d).unwrap_or(1.into());
        let stride = if stride.is_empty() { kernel } else { stride };
        let args = [
            eye.into(),
            only(dims, d, at(kernel), 1),
            only(dims, d, at(stride), 1),
            only(dims, d, at(padding), 0),
            b.arg(4).clone(),
            b.arg(5).clone(),
            // one dimension divides, and the others sum
            match d {
                0 => divisor.clone(),
                _ if divisor.is_none() => Value::None,
                _ => Value::from(1i64),
            },
        ];
        call(b, args.into_iter().collect())
    };
    separable(b, dims, &along)
}

pub(crate) const AVG_POOL2D: Derivative = rule!([], |b| average(b, 2));
pub(crate) const AVG_POOL3D: Derivative = rule!([], |b| average(b, 3));

/// Operators of which argument 1 has the sizes of the result. The other arguments are flags, or
/// scales for each dimension.
fn resized(b: &Backward<'_>) -> Result<()> {
    let sizes = b.arg(1).ints()?;
    let dims = b.result_meta(0)?.rank() - 2;
    let scales = b.arguments() - dims;
    let along = |d: usize, eye: &Tensor| {
        let args = (0..b.arguments()).map(|i| match i {
            0 => eye.into(),
            1 => only(dims, d, entry(sizes, d).unwrap_or(1.into()), 1),
            // scales are the last arguments, one for each dimension
            _ if i >= scales && i - scales != d => Value::None,
            _ => b.arg(i).clone(),
        });
        call(b, args.collect())
    };
    separable(b, dims, &along)
}

pub(crate) const RESIZED: Derivative = rule!([], |b| resized(b));

/// Averages over windows that divide the operand. Argument 1 has the sizes of the result.
fn adaptive(b: &Backward<'_>, dims: usize) -> Result<()> {
    let sizes = b.arg(1).ints()?;
    let along = |d: usize, eye: &Tensor| {
        let size = entry(sizes, d).unwrap_or(1.into());
        call(b, [eye.into(), only(dims, d, size, 1)].into_iter().collect())
    };
    separable(b, dims, &along)
}

pub(crate) const ADAPTIVE_AVG_POOL2D: Derivative = rule!([], |b| adaptive(b, 2));
pub(crate) const ADAPTIVE_AVG_POOL3D: Derivative = rule!([], |b| adaptive(b, 3));
