//! Assertions that a program calls as operators. They return nothing, and fail if the assertion
//! does not hold.

use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{known_equal, require};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Error, Outputs, Result, Tensor, Value};

/// `a, size, stride, dtype, device, layout`: each argument that is present must equal the property
/// of `a`.
#[track_caller]
fn metadata(args: &[Value]) -> Result<Outputs> {
    let t = args[0].tensor()?;
    same_dims("size", t.sizes(), &args[1])?;
    same_dims("stride", t.strides(), &args[2])?;
    let wrong = |what: &str, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
        Err(Error::value(format!("argument `a` must have the {what} {expected}, found {found}")))
    };
    match (args[3].opt(Value::dtype)?, args[4].opt(Value::device)?, &args[5]) {
        (Some(d), ..) if d != t.dtype() => wrong("dtype", &d, &t.dtype()),
        (_, Some(d), _) if d != t.device() => wrong("device", &d, &t.device()),
        (.., Value::Layout(l)) if *l != t.layout() => wrong("layout", l, &t.layout()),
        _ => Ok(Outputs::new()),
    }
}

#[track_caller]
fn same_dims(what: &str, found: &[SymInt], expected: &Value) -> Result<()> {
    let Some(expected) = expected.opt(Value::ints)? else { return Ok(()) };
    let wrong = || {
        format!(
            "argument `a` must have the {what} {}, found {}",
            dims_text(expected),
            dims_text(found)
        )
    };
    if expected.len() != found.len() {
        return Err(Error::value(wrong()));
    }
    expected
        .iter()
        .zip(found)
        .filter(|(e, f)| !known_equal(**e, **f))
        .try_for_each(|(&e, &f)| require(e.eq(f), wrong))
}

/// The tensor must have one element, and the element must not be zero.
fn holds(t: &Tensor, message: &str) -> Result<Outputs> {
    match host::reals(t)?.as_slice() {
        [x] if *x != 0.0 => Ok(Outputs::new()),
        [_] => Err(Error::value(message)),
        many => Err(Error::value(format!(
            "argument `self` must have one element, found {}",
            many.len()
        ))),
    }
}

table! {
    /// Assertions.
    static TABLE = {
        "aten::_assert_tensor_metadata(Tensor a, SymInt[]? size=None, \
            SymInt[]? stride=None, ScalarType? dtype=None, *, Device? device=None, \
            Layout? layout=None) -> ()" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_,
                a| metadata(a),
                run: metadata,
            },
            vjp: Derivative::None("there is no result"),
        },
        "aten::_assert_async(Tensor self) -> ()" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| Ok(Outputs::new()),
                run: |a| holds(a[0].tensor()?, "the asserted tensor is zero"),
            },
            vjp: Derivative::None("there is no result"),
        },
        "aten::_assert_async.msg(Tensor self, str assert_msg) -> ()" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| Ok(Outputs::new()),
                run: |a| holds(a[0].tensor()?, a[1].str()?),
            },
            vjp: Derivative::None("there is no result"),
        },
    }
}
