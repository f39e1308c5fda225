//! Range checks of number arguments.

use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use maquette_ir::scalar_expr::{BinaryOp, BuildError, CmpOp, ExprBuilder, Reg, UnaryOp};
use maquette_ir::{DType, Scalar};

/// Requires a number to be in the range of the dtype that it is converted to.
#[track_caller]
pub fn require_fits(name: &str, x: Scalar, dtype: DType) -> Result<()> {
    if x.fits(dtype) {
        return Ok(());
    }
    let range = match (dtype.int_range(), dtype.largest_float()) {
        (Some((least, most)), _) => format!("{least} to {most}"),
        (_, Some(largest)) => format!("{} to {}", Scalar::Float(-largest), Scalar::Float(largest)),
        _ => "any".to_owned(),
    };
    Err(Error::value(format!(
        "argument `{name}` must be in the range of {dtype}, {range}, found {x}"
    )))
}

/// Whether the number in a register fits a dtype, as [`Scalar::fits`] says of a number. `None` if
/// every number of the register's dtype does.
pub fn fits(e: &mut ExprBuilder, x: Reg, to: DType) -> Result<Option<Reg>, BuildError> {
    let from = e.dtype(x)?;
    if to == DType::Bool || to.holds(from) {
        return Ok(None);
    }
    let (wide, is_float) = if from.is_float() { (DType::F64, true) } else { (DType::I64, false) };
    let x = e.cast(x, wide)?;
    let mut is_within = |x: Reg, least: Scalar, (upper, most): (CmpOp, Scalar)| {
        let (least, most) = (e.constant(least, wide), e.constant(most, wide));
        let (from, to) = (e.compare(CmpOp::Ge, x, least)?, e.compare(upper, x, most)?);
        e.binary(BinaryOp::And, from, to)
    };
    match (to.int_range(), to.largest_float()) {
        (Some((least, most)), _) if is_float => {
            is_within(x, (least as f64).into(), (CmpOp::Lt, (most as f64 + 1.0).into())).map(Some)
        }
        // A negative integer wraps into `u8`.
        (Some((least, most)), _) => {
            let least = if least == 0 { -most } else { least };
            is_within(x, least.into(), (CmpOp::Le, most.into())).map(Some)
        }
        // Infinities and NaN fit.
        (None, Some(largest)) if is_float => {
            let size = e.unary(UnaryOp::Abs, x)?;
            let (largest, finite) = (e.constant(largest, wide), e.constant(f64::MAX, wide));
            let is_larger = e.compare(CmpOp::Gt, size, largest)?;
            let is_finite = e.compare(CmpOp::Le, size, finite)?;
            let is_outside = e.binary(BinaryOp::And, is_larger, is_finite)?;
            let (no, yes) = (e.constant(false, DType::Bool), e.constant(true, DType::Bool));
            e.select(is_outside, no, yes).map(Some)
        }
        (None, Some(largest)) if largest < i64::MAX as f64 => {
            let largest = largest as i64;
            is_within(x, (-largest).into(), (CmpOp::Le, largest.into())).map(Some)
        }
        _ => Ok(None),
    }
}

/// The dtype whose range a fill value must be in, for tensors of dtype `d`. Narrow floats accept
/// any `f64`: a value that is too large becomes infinite.
pub const fn filling(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F64,
        d => d,
    }
}

/// As [`require_fits`] for an argument. The values of tensors and symbols are not known here, so
/// they are converted without a check.
#[track_caller]
pub fn require_argument_fits(name: &str, v: &Value, dtype: DType) -> Result<()> {
    match v {
        Value::Tensor(_) => Ok(()),
        Value::Int(i) if i.as_i64().is_none() => Ok(()),
        number => require_fits(name, number.scalar()?, dtype),
    }
}
