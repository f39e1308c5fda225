//! The surroundings of an expression in the reference evaluator.

use super::eval::EvalError;
use super::read::{Bounds, Read};
use super::{Op, Reg};
use crate::Scalar;

/// What an expression uses besides its registers. The default of every method but
/// [`Environment::input`] is the error that there is no loop nest.
pub trait Environment {
    /// The element of an input.
    ///
    /// # Errors
    /// The input does not exist.
    fn input(&self, input: u32) -> Result<Scalar, EvalError>;

    /// The coordinate along an axis.
    ///
    /// # Errors
    /// There is no such axis.
    fn coord(&self, axis: u32) -> Result<i64, EvalError> {
        Err(EvalError::NotPure { op: Op::Coord(axis).name() })
    }

    /// A number that is known at launch.
    ///
    /// # Errors
    /// There is no such number.
    fn launch(&self, scalar: u32) -> Result<Scalar, EvalError> {
        Err(EvalError::NotPure { op: Op::Launch(scalar).name() })
    }

    /// The dimensions of an input whose positions are computed, and their sizes, in order.
    ///
    /// # Errors
    /// The input does not exist.
    fn computed_dims(&self, _input: u32) -> Result<Vec<(usize, i64)>, EvalError> {
        Err(EvalError::NotPure { op: "read" })
    }

    /// The element of an input at computed positions inside their dimensions.
    ///
    /// # Errors
    /// The input does not exist.
    fn read(&self, _input: u32, _positions: &[i64]) -> Result<Scalar, EvalError> {
        Err(EvalError::NotPure { op: "read" })
    }
}

/// One element of each input of a pure expression.
pub(super) struct Elements<'a>(pub &'a [Scalar]);

impl Environment for Elements<'_> {
    fn input(&self, input: u32) -> Result<Scalar, EvalError> {
        let (expected, found) = (input as usize + 1, self.0.len());
        self.0.get(input as usize).copied().ok_or(EvalError::Inputs { expected, found })
    }
}

/// Evaluates a read: applies its bounds policy to each position.
pub(super) fn read(
    read: &Read,
    environment: &dyn Environment,
    get: &dyn Fn(Reg) -> Scalar,
) -> Result<Scalar, EvalError> {
    let padding = match read.bounds {
        Bounds::Else(r) => Some(get(r)),
        _ => None,
    };
    if read.when.is_some_and(|when| !get(when).to_bool()) {
        return Ok(padding.unwrap_or(Scalar::Int(0)));
    }
    let mut positions = Vec::with_capacity(read.at.regs().len());
    for (&r, (dim, size)) in read.at.regs().iter().zip(environment.computed_dims(read.input)?) {
        let asked = get(r).to_i64();
        let position = match read.bounds {
            Bounds::Wraps if asked < 0 => asked.saturating_add(size),
            Bounds::Clamps => asked.min(size - 1).max(0),
            _ => asked,
        };
        match ((0..size).contains(&position), padding) {
            (true, _) => positions.push(position),
            (false, Some(padding)) => return Ok(padding),
            (false, None) => return Err(EvalError::Index { position: asked, dim, size }),
        }
    }
    environment.read(read.input, &positions)
}
