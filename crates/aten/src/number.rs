//! `item` and its variants, which read a number from a tensor.

use maquette_ir::DType;
use maquette_kernels::{Class, Element as _};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::require;
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Error, FakeCtx, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

fn single(args: &[Value]) -> Result<&Tensor> {
    let x = args[0].tensor()?;
    require(x.numel().eq(1), || {
        format!("argument `self` must have one element, found sizes {}", dims_text(x.sizes()))
    })?;
    Ok(x)
}

/// A trace binds an integer to a fresh symbol. Floats and bools have no symbols, so they are an
/// error.
fn fake_item(cx: &FakeCtx, args: &[Value]) -> Result<Outputs> {
    let x = single(args)?;
    match x.dtype().int_range() {
        Some((low, high)) => Ok(smallvec![Value::Int(cx.new_integer_in(low, high)?)]),
        None => Err(Error::value(format!(
            "the number in a tensor of {} is known only from its data, which a trace does not \
                have; compute with the tensor instead",
            x.dtype()
        ))),
    }
}

fn item(args: &[Value]) -> Result<Outputs> {
    let x = single(args)?;
    Ok(smallvec![match x.dtype() {
        DType::Bool => Value::Bool(x.item::<bool>()?),
        d if d.is_float() =>
            maquette_ops::typed!(d, T => Value::Float(x.item::<T>()?.load().to_f64())),
        d => maquette_ops::typed!(d, T => Value::Int(x.item::<T>()?.load().to_i64().into())),
    }])
}

table! {
    /// `item` and its variants.
    static TABLE = {
        "aten::item(Tensor self) -> Scalar" => {
            role: General,
            lowering: Lowering::Dynamic { observes_strides: true, fake: fake_item, run: item },
            vjp: Derivative::None("a number has no history"),
        },
        "aten::_local_scalar_dense(Tensor self) -> Scalar" => {
            role: General,
            lowering: Lowering::Dynamic { observes_strides: true, fake: fake_item, run: item },
            vjp: Derivative::None("a number has no history"),
        },
        "aten::is_nonzero(Tensor self) -> bool" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| {
                    Err(Error::value(
                        "whether an element is nonzero is known only from its \
                data, which a trace does not have",
                    ))
                },
                run: |a| Ok(smallvec![Value::Bool(single(a)?.ne(0).item::<bool>()?)]),
            },
            vjp: Derivative::None("the result is no float"),
        },
    }
}
