//! Constant arguments of user-defined types.
//!
//! In schemas, calls and graphs, such an argument is a `str` with the type's name and the value's
//! text: `Padding(reflect)`. A graph therefore prints, parses and compares it like any other
//! constant. The kernel gets the value of the user's type.

use super::typed::KernelArg;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use maquette_ir::schema::Type;
use std::ops::Deref;

/// A user-defined type whose values can be constant arguments, such as an enum of modes.
///
/// Two values are the same constant if their texts are equal.
pub trait ConstArg: Sized {
    /// The type's name, unique in a program.
    const NAME: &'static str;

    /// The value as text.
    fn to_text(&self) -> String;

    /// The value with this text.
    ///
    /// # Errors
    /// The text is not that of a value.
    fn from_text(text: &str) -> Result<Self>;
}

/// A kernel's argument of type [`ConstArg`]: `fn pad(x: &Tensor, mode: Const<Padding>)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Const<T>(pub T);

impl<T> Deref for Const<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ConstArg> From<Const<T>> for Value {
    fn from(c: Const<T>) -> Value {
        Value::from(format!("{}({})", T::NAME, c.0.to_text()))
    }
}

fn load<T: ConstArg>(v: &Value) -> Result<Const<T>> {
    let text = v.str().map_err(|_| {
        Error::value(format!("expected a constant of the type {}, found {}", T::NAME, v.kind()))
    })?;
    let inner = text
        .strip_prefix(T::NAME)
        .and_then(|t| t.strip_prefix('('))
        .and_then(|t| t.strip_suffix(')'));
    let inner = inner.ok_or_else(|| {
        Error::value(format!("expected a constant of the type {}, found {text:?}", T::NAME))
    })?;
    T::from_text(inner).map(Const)
}

impl<T: ConstArg> KernelArg for Const<T> {
    type State<'v> = Option<Const<T>>;
    type Item<'a> = Const<T>;
    type Kind = &'static str;
    fn ty() -> Type {
        Type::Str
    }
    fn load(v: &Value) -> Result<Self::State<'_>> {
        load(v).map(Some)
    }
    fn item<'a>(state: &'a mut Self::State<'_>) -> Self::Item<'a> {
        match state.take() {
            Some(c) => c,
            None => unreachable!("a kernel takes each argument once"),
        }
    }
}
