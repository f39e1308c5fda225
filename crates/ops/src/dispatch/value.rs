//! Boxed values: what operators take and return when their types are known only at run time.

use crate::dispatch::value_list::ValueList;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::meta::{Dims, IntoDims};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Layout, MemoryFormat, Scalar};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// An argument or a result of an operator.
#[derive(Clone, Debug)]
pub enum Value {
    /// An absent optional.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// An integer, possibly symbolic.
    Int(SymInt),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Str(Arc<str>),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A layout.
    Layout(Layout),
    /// A memory format.
    MemoryFormat(MemoryFormat),
    /// A list of integers; a list of another kind is [`Value::List`].
    Ints(Box<[SymInt]>),
    /// A list of anything but integers.
    List(ValueList),
}

/// The arguments of a call, in the schema's order.
pub type Args = SmallVec<[Value; 6]>;

/// The results of a call, in the schema's order.
pub type Outputs = SmallVec<[Value; 2]>;

/// A value's kind, for messages: `a tensor f32[2, 3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueKind(String);

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value {
    /// What it is, for messages.
    pub fn kind(&self) -> ValueKind {
        ValueKind(match self {
            Value::None => "nothing".into(),
            Value::Tensor(t) => format!("a tensor {}", t.meta()),
            Value::Int(i) => format!("the integer {i}"),
            Value::Float(x) => format!("the float {x:?}"),
            Value::Bool(b) => format!("the bool {b}"),
            Value::Str(s) => format!("the string {s:?}"),
            Value::DType(d) => format!("the dtype {d}"),
            Value::Device(d) => format!("the device {d}"),
            Value::Layout(l) => format!("the layout {l}"),
            Value::MemoryFormat(m) => format!("the memory format {m}"),
            Value::Ints(l) => format!("a list of {} integers", l.len()),
            Value::List(l) => match l.first() {
                None => "an empty list".into(),
                Some(first) => format!("a list of {}, the first {}", l.len(), first.kind()),
            },
        })
    }

    /// Every tensor in it, lists included.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let values = match self {
            Value::Tensor(_) => std::slice::from_ref(self),
            Value::List(l) => &**l,
            _ => &[],
        };
        values.iter().filter_map(|v| match v {
            Value::Tensor(t) => Some(t),
            _ => None,
        })
    }

    /// Every tensor in it, to be replaced in place.
    pub(crate) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let values = match self {
            Value::Tensor(_) => std::slice::from_mut(self),
            Value::List(l) => l.elements_mut(),
            _ => &mut [],
        };
        values.iter_mut().filter_map(|v| match v {
            Value::Tensor(t) => Some(t),
            _ => None,
        })
    }

    /// The same value with every tensor in it replaced.
    pub fn map_tensors<E>(
        &self,
        f: &mut dyn FnMut(&Tensor) -> Result<Tensor, E>,
    ) -> Result<Value, E> {
        Ok(match self {
            Value::Tensor(t) => Value::Tensor(f(t)?),
            Value::List(l) => {
                Value::List(l.iter().map(|v| v.map_tensors(f)).collect::<Result<_, E>>()?)
            }
            other => other.clone(),
        })
    }

    fn mismatch(&self, expected: &str) -> Error {
        Error::value(format!("expected {expected}, found {}", self.kind()))
    }

    /// The tensor.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Value::Tensor(t) => t.alive(),
            other => Err(other.mismatch("a tensor")),
        }
    }

    /// The tensor itself.
    #[doc(hidden)]
    pub fn into_tensor(self) -> Result<Tensor> {
        match self {
            Value::Tensor(t) => match t.poisoned() {
                Some(e) => Err(e),
                None => Ok(t),
            },
            other => Err(other.mismatch("a tensor")),
        }
    }

    /// The tensor, or `None` for an absent one.
    pub fn opt_tensor(&self) -> Result<Option<&Tensor>> {
        match self {
            Value::None => Ok(None),
            other => other.tensor().map(Some),
        }
    }

    /// The integer.
    pub fn int(&self) -> Result<SymInt> {
        match self {
            Value::Int(i) => Ok(*i),
            other => Err(other.mismatch("an integer")),
        }
    }

    /// The integer as a plain number: a symbolic one becomes a guard on its value.
    #[track_caller]
    pub fn int_i64(&self) -> Result<i64> {
        let i = self.int()?;
        match i.as_i64() {
            Some(i) => Ok(i),
            None => Ok(i.guard_int()?),
        }
    }

    /// The float; an integer counts as one.
    #[track_caller]
    pub fn float(&self) -> Result<f64> {
        match self {
            Value::Float(x) => Ok(*x),
            Value::Int(_) => Ok(self.int_i64()? as f64),
            other => Err(other.mismatch("a float")),
        }
    }

    /// The truth value.
    pub fn bool(&self) -> Result<bool> {
        match self {
            Value::Bool(b) => Ok(*b),
            other => Err(other.mismatch("a bool")),
        }
    }

    /// The text.
    pub fn str(&self) -> Result<&str> {
        match self {
            Value::Str(s) => Ok(s),
            other => Err(other.mismatch("a string")),
        }
    }

    /// The number; a symbolic integer becomes a guard on its value.
    #[track_caller]
    pub fn scalar(&self) -> Result<Scalar> {
        match self {
            Value::Int(_) => Ok(Scalar::Int(self.int_i64()?)),
            Value::Float(x) => Ok(Scalar::Float(*x)),
            Value::Bool(b) => Ok(Scalar::Bool(*b)),
            other => Err(other.mismatch("a number")),
        }
    }

    /// The list of integers; one integer counts as a list of one.
    pub fn ints(&self) -> Result<&[SymInt]> {
        match self {
            Value::Ints(l) => Ok(l),
            Value::Int(i) => Ok(std::slice::from_ref(i)),
            Value::List(l) if l.is_empty() => Ok(&[]),
            other => Err(other.mismatch("a list of integers")),
        }
    }

    /// The list of integers as plain numbers: symbolic ones become guards.
    #[track_caller]
    pub fn ints_i64(&self) -> Result<SmallVec<[i64; 6]>> {
        let mut out = SmallVec::new();
        for i in self.ints()? {
            out.push(match i.as_i64() {
                Some(i) => i,
                None => i.guard_int()?,
            });
        }
        Ok(out)
    }

    /// The elements of a list; none for an absent one.
    pub fn list(&self) -> Result<&[Value]> {
        match self {
            Value::List(l) => Ok(&**l),
            Value::Ints(l) if l.is_empty() => Ok(&[]),
            Value::None => Ok(&[]),
            other => Err(other.mismatch("a list")),
        }
    }

    /// The dtype.
    pub fn dtype(&self) -> Result<DType> {
        match self {
            Value::DType(d) => Ok(*d),
            other => Err(other.mismatch("a dtype")),
        }
    }

    /// The device.
    pub fn device(&self) -> Result<Device> {
        match self {
            Value::Device(d) => Ok(*d),
            other => Err(other.mismatch("a device")),
        }
    }

    /// Whether it is an absent optional.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// The value through `f`, or `None` for an absent optional.
    pub fn opt<'a, T>(&'a self, f: impl FnOnce(&'a Value) -> Result<T>) -> Result<Option<T>> {
        if self.is_none() { Ok(None) } else { f(self).map(Some) }
    }

    /// A list of integers.
    pub fn from_dims(dims: impl IntoDims) -> Value {
        let d: Dims = dims.into_dims();
        Value::Ints(d.as_slice().into())
    }
}

macro_rules! from {
    ($($t:ty => |$x:ident| $e:expr),* $(,)?) => { $(
        impl From<$t> for Value {
            fn from($x: $t) -> Value {
                $e
            }
        }
    )* };
}

from!(
    Tensor => |t| Value::Tensor(t),
    &Tensor => |t| Value::Tensor(t.clone()),
    &mut Tensor => |t| Value::Tensor(t.clone()),
    SymInt => |i| Value::Int(i),
    i64 => |i| Value::Int(i.into()),
    i32 => |i| Value::Int(i64::from(i).into()),
    usize => |i| Value::Int(SymInt::from(i)),
    f64 => |x| Value::Float(x),
    f32 => |x| Value::Float(x.into()),
    bool => |b| Value::Bool(b),
    &str => |s| Value::Str(s.into()),
    String => |s| Value::Str(s.into()),
    DType => |d| Value::DType(d),
    Device => |d| Value::Device(d),
    Layout => |l| Value::Layout(l),
    MemoryFormat => |m| Value::MemoryFormat(m),
    () => |_unit| Value::None,
);

impl From<Scalar> for Value {
    fn from(s: Scalar) -> Value {
        match s {
            Scalar::Bool(b) => Value::Bool(b),
            Scalar::Int(i) => Value::Int(i.into()),
            Scalar::Float(x) => Value::Float(x),
        }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(x: Option<T>) -> Value {
        x.map_or(Value::None, Into::into)
    }
}

impl<T: Clone + Into<Value>> From<&[T]> for Value {
    /// A list; of integers where every element is one.
    fn from(l: &[T]) -> Value {
        list(l.iter().cloned().map(Into::into).collect())
    }
}

impl<T: Clone + Into<Value>> From<Vec<T>> for Value {
    fn from(l: Vec<T>) -> Value {
        list(l.into_iter().map(Into::into).collect())
    }
}

impl<T: Clone + Into<Value>> From<&Vec<T>> for Value {
    fn from(l: &Vec<T>) -> Value {
        l.as_slice().into()
    }
}

impl<T: Clone + Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(l: [T; N]) -> Value {
        list(l.into_iter().map(Into::into).collect())
    }
}

/// Gives a list its one form: integers are [`Value::Ints`].
pub(crate) fn list(l: Vec<Value>) -> Value {
    let ints: Option<Vec<SymInt>> =
        l.iter().map(|v| if let Value::Int(i) = v { Some(*i) } else { None }).collect();
    match ints {
        Some(ints) if !ints.is_empty() => Value::Ints(ints.into()),
        _ => Value::List(l.into()),
    }
}

/// Boxes arguments for [`ops::call`](crate::call): `args![&x, 2.0, [1, 2]]`.
#[macro_export]
macro_rules! args {
    ($($e:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut args = $crate::Args::new();
        $(args.push($crate::Value::from($e));)*
        args
    }};
}
