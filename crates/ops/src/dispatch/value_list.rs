//! The elements of a [`Value::List`].
//!
//! Invariant: a list nests at most [`MAX_LIST_DEPTH`] deep, itself included, as in graphs. So
//! everything that recurses into a list (a copy, a comparison, a text, a drop) ends. Elements
//! cannot be changed from outside of this crate, so the constructors are the only place to
//! check. They cannot fail; instead of a list that would be nested deeper they make a list of
//! one poisoned tensor, and so does every list around it. Any call that takes such a list ends
//! with its error.

use crate::dispatch::value::Value;
use crate::error::{CallError, Error, ErrorKind};
use crate::tensor::Tensor;
use maquette_ir::graph::MAX_LIST_DEPTH;
use std::fmt;
use std::ops::Deref;

/// The elements of a list value, nested at most [`MAX_LIST_DEPTH`] deep. Made by `into` or
/// `collect`; a list nested deeper becomes a poisoned tensor that says so.
#[derive(Clone, Default)]
pub struct ValueList(Box<[Value]>);

/// How many lists nest in a value.
fn depth(v: &Value) -> usize {
    match v {
        Value::List(l) => 1 + l.iter().map(depth).max().unwrap_or(0),
        Value::Ints(_) => 1,
        _ => 0,
    }
}

/// The poisoned tensor of a list that was nested too deeply.
fn too_deep(v: &Value) -> Option<&Value> {
    match v {
        Value::List(l) => match &*l.0 {
            [only @ Value::Tensor(t)] => t.poisoned().filter(is_depth_error).map(|_| only),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an error says that a list is nested too deeply.
pub(crate) fn is_depth_error(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Call(CallError::ListDepth { .. }))
}

impl ValueList {
    /// The elements, to be replaced by values that nest no deeper.
    pub(crate) fn elements_mut(&mut self) -> &mut [Value] {
        &mut self.0
    }
}

impl From<Box<[Value]>> for ValueList {
    fn from(elements: Box<[Value]>) -> ValueList {
        let nested = || elements.iter().filter(|v| matches!(v, Value::List(_) | Value::Ints(_)));
        if let Some(error) = nested().find_map(too_deep) {
            return ValueList([error.clone()].into());
        }
        if nested().any(|v| depth(v) >= MAX_LIST_DEPTH) {
            let error = Error::from(CallError::ListDepth { most: MAX_LIST_DEPTH });
            return ValueList([Value::Tensor(Tensor::poison(error))].into());
        }
        ValueList(elements)
    }
}

impl From<Vec<Value>> for ValueList {
    fn from(elements: Vec<Value>) -> ValueList {
        ValueList::from(elements.into_boxed_slice())
    }
}

impl<const N: usize> From<[Value; N]> for ValueList {
    fn from(elements: [Value; N]) -> ValueList {
        ValueList::from(Vec::from(elements))
    }
}

impl FromIterator<Value> for ValueList {
    fn from_iter<I: IntoIterator<Item = Value>>(elements: I) -> ValueList {
        ValueList::from(elements.into_iter().collect::<Vec<Value>>())
    }
}

impl IntoIterator for ValueList {
    type Item = Value;
    type IntoIter = std::vec::IntoIter<Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

impl<'a> IntoIterator for &'a ValueList {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Deref for ValueList {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl fmt::Debug for ValueList {
    /// As a slice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
