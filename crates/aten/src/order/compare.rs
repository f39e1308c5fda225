//! Comparisons of whole tensors: `equal`, `isclose`, `allclose`.

use super::{Keys, promoted, unknown_without_data};
use maquette_ir::DType;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{done, require_same_dtype};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::table;
use maquette_ops::{Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// Whether sizes and elements are equal. NaN equals nothing.
fn equal(a: &[Value]) -> Result<Outputs> {
    let same_sizes = a[0].tensor()?.sizes_i64()? == a[1].tensor()?.sizes_i64()?;
    let same = same_sizes && {
        let (x, y) = promoted(&a[0], &a[1])?;
        let (x, y) = (Keys::of(&x)?, Keys::of(&y)?);
        x.all.iter().zip(&y.all).all(|(a, b)| a == b && !x.is_nan(*a))
    };
    Ok(smallvec![Value::Bool(same)])
}

/// `self, other, rtol, atol, equal_nan`: `|self - other| <= atol + rtol * |other|`, computed in
/// floats.
fn isclose(args: &[Value]) -> Result<Tensor> {
    let (x, y, relative, absolute) =
        (args[0].tensor()?, args[1].tensor()?, args[2].float()?, args[3].float()?);
    require_same_dtype(("self", x), ("other", y))?;
    if [relative, absolute].iter().any(|t| t.is_nan() || *t < 0.0) {
        return Err(Error::value(format!(
            "`rtol` and `atol` must not be negative, found {relative} and {absolute}"
        )));
    }
    let float = x.dtype().is_float();
    let mut close = x.eq(y);
    if float && args[4].bool()? {
        close = close.logical_or(x.isnan().logical_and(y.isnan()));
    }
    if relative == 0.0 && absolute == 0.0 {
        return Ok(close);
    }
    let other = if float { y.clone() } else { y.to_dtype(DType::F32) };
    let allowed = (&other * relative).abs() + absolute;
    let distance = (x - &other).abs();
    Ok(close.logical_or(distance.isfinite().logical_and(distance.le(allowed))))
}

table! {
    /// Comparisons of tensors.
    static TABLE = {
        "aten::equal(Tensor self, Tensor other) -> bool" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| {
                    unknown_without_data(
                        "two tensors are \
                equal",
                    )
                },
                run: equal,
            },
            vjp: Derivative::None("the result is no float"),
        },
        "aten::isclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, \
            float atol=1e-08, bool equal_nan=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(isclose(a)?)),
        },
        "aten::allclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, \
            float atol=1e-08, bool equal_nan=False) -> bool" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| unknown_without_data("two tensors are close"),
                run: |a| Ok(smallvec![Value::Bool(isclose(a)?.all().item::<bool>()?)]),
            },
            vjp: Derivative::None("the result is no float"),
        },
    }
}
