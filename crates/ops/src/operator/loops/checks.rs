//! What a nest depends on: the arguments that stand for its symbols and numbers, and the checks of
//! the values that a lowering asked for.

use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use maquette_ir::Scalar;

/// An argument, or an element of an argument that is a list of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arg {
    pub index: u8,
    pub element: Option<u32>,
}

/// The size that a symbol of a nest stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Operand {
        operand: u8,
        dim: u8,
    },
    Result {
        result: u8,
        dim: u8,
    },
    /// An integer argument.
    Number(Arg),
}

/// A value that a lowering asked for. The nest is valid for calls with an equal value.
#[derive(Clone, Debug)]
pub(super) enum Check {
    Int {
        arg: Arg,
        value: i64,
    },
    Float {
        arg: Arg,
        bits: u64,
    },
    /// Whether a dimension has this size.
    HasSize {
        arg: Arg,
        dim: u8,
        size: i64,
        holds: bool,
    },
    /// Whether a number is 0.
    IsZero {
        arg: Arg,
        holds: bool,
    },
    /// Whether a condition of the arguments holds.
    Condition {
        holds: fn(&[Value]) -> bool,
        answer: bool,
    },
}

impl Arg {
    pub(super) fn of(index: usize) -> Arg {
        Arg { index: index as u8, element: None }
    }

    /// The value; `None` if there is no such argument, and for an element of a list.
    pub(super) fn value(self, args: &[Value]) -> Option<&Value> {
        let value = args.get(usize::from(self.index))?;
        self.element.is_none().then_some(value)
    }

    /// The integer; that of an element if the argument is a list of integers.
    pub(super) fn int(self, args: &[Value]) -> Option<i64> {
        match (self.element, args.get(usize::from(self.index))?) {
            (Some(i), Value::Ints(ints)) => ints.get(i as usize)?.as_i64(),
            // One integer counts as a list of one.
            (Some(0), Value::Int(i)) => i.as_i64(),
            _ => match self.value(args)? {
                Value::Int(i) => i.as_i64(),
                _ => None,
            },
        }
    }

    /// The number; an integer if it is an element of a list.
    pub(super) fn scalar(self, args: &[Value]) -> Result<Scalar> {
        match self.element {
            None => args[usize::from(self.index)].scalar(),
            Some(_) => self.int(args).map(Scalar::Int).ok_or_else(|| {
                Error::value(format!("argument {} is not a list of integers", self.index))
            }),
        }
    }
}

/// The size of a dimension of an argument.
pub(super) fn size_of(arg: Arg, dim: usize, args: &[Value]) -> Option<i64> {
    match arg.value(args)? {
        Value::Tensor(t) => t.sizes().get(dim)?.as_i64(),
        _ => None,
    }
}

impl Check {
    /// The integer that a call has.
    pub(super) fn int(arg: Arg, args: &[Value]) -> Option<Check> {
        Some(Check::Int { arg, value: arg.int(args)? })
    }

    /// Whether a call has the value.
    pub(super) fn holds(&self, args: &[Value]) -> bool {
        match *self {
            Check::Int { arg, value } => arg.int(args) == Some(value),
            Check::Float { arg, bits } => {
                matches!(arg.value(args), Some(Value::Float(x)) if x.to_bits() == bits)
            }
            Check::HasSize { arg, dim, size, holds } => {
                size_of(arg, usize::from(dim), args).is_some_and(|n| (n == size) == holds)
            }
            Check::IsZero { arg, holds } => {
                let number = arg.value(args).and_then(|v| v.scalar().ok());
                number.is_some_and(|x| x.to_bool() != holds)
            }
            Check::Condition { holds, answer } => holds(args) == answer,
        }
    }
}
