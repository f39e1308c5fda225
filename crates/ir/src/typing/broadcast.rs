//! Broadcasting of shapes.

use super::{Dims, TypingError};
use crate::sym::{SymError, SymInt};
use std::fmt::Write;

/// The shape to which these shapes broadcast. They are aligned at the last dimension, and a size of
/// 1 stretches to the other size.
///
/// If equality of two symbolic sizes cannot be proved, it is decided on the example values and
/// guarded. A size that depends on data is assumed not to stretch; a deferred assertion checks the
/// assumption.
///
/// # Errors
/// [`TypingError::Broadcast`] if two sizes differ and neither is 1.
#[track_caller]
pub fn broadcast(shapes: &[&[SymInt]]) -> Result<Dims, TypingError> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = Dims::from_elem(SymInt::from(1), rank);
    // The operand that determined each size, for error messages.
    let mut owner: smallvec::SmallVec<[Option<usize>; 4]> =
        smallvec::SmallVec::from_elem(None, rank);
    for (operand, shape) in shapes.iter().enumerate() {
        let offset = rank - shape.len();
        for ((at, &size), (result, owner)) in
            shape.iter().enumerate().zip(out.iter_mut().zip(owner.iter_mut()).skip(offset))
        {
            let Some(first) = *owner else {
                (*result, *owner) = (size, Some(operand));
                continue;
            };
            match stretch(*result, size, offset + at)? {
                Some(Side::Left) => {}
                Some(Side::Right) => (*result, *owner) = (size, Some(operand)),
                None => {
                    return Err(TypingError::Broadcast {
                        operand: first,
                        shape: shapes.get(first).map_or_else(String::new, |s| print(s)),
                        other: operand,
                        other_shape: print(shape),
                        dim: offset + at,
                        size: result.to_string(),
                        other_size: size.to_string(),
                    });
                }
            }
        }
    }
    Ok(out)
}

enum Side {
    Left,
    Right,
}

/// The side whose size the result takes; `None` if the sizes are incompatible.
#[track_caller]
fn stretch(a: SymInt, b: SymInt, dim: usize) -> Result<Option<Side>, SymError> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return Ok(if a == b || b == 1 {
            Some(Side::Left)
        } else if a == 1 {
            Some(Side::Right)
        } else {
            None
        });
    }
    // Of two equal sizes the more specific one: a number, then a size that is known before the
    // graph runs.
    let better = if b.as_i64().is_some() || (a.hint().is_none() && b.hint().is_some()) {
        Side::Right
    } else {
        Side::Left
    };
    let equal = a.eq(b);
    if equal.statically_known() == Some(true) {
        return Ok(Some(better));
    }
    if b.eq(1).statically_known() == Some(true) {
        return Ok(Some(Side::Left));
    }
    if a.eq(1).statically_known() == Some(true) {
        return Ok(Some(Side::Right));
    }
    let (Some(hint_a), Some(hint_b)) = (a.hint(), b.hint()) else {
        if equal.statically_known() == Some(false) {
            return Ok(None);
        }
        equal.check(&format!(
            "sizes {a} and {b} of dimension {dim} must be equal: a data-dependent size does not \
                broadcast"
        ))?;
        return Ok(Some(better));
    };
    if hint_a == hint_b {
        return Ok(equal.guard()?.then_some(better));
    }
    if hint_b == 1 {
        return Ok(b.eq(1).guard()?.then_some(Side::Left));
    }
    if hint_a == 1 {
        return Ok(a.eq(1).guard()?.then_some(Side::Right));
    }
    Ok(None)
}

fn print(shape: &[SymInt]) -> String {
    let mut text = String::from("[");
    for (i, size) in shape.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{size}", if i == 0 { "" } else { ", " });
    }
    text + "]"
}
