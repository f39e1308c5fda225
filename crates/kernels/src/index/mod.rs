//! Gathering and scattering by index tensors (`i64` or `i32`). All indices are checked before any
//! element is written. As in PyTorch, negative indices count from the end in advanced indexing, and
//! are out of range elsewhere.

mod blocks;
mod embedding;
mod mask;
mod points;
mod select;
#[cfg(test)]
mod tests;

pub use blocks::{index, index_put};
pub use embedding::embedding_backward;
pub use mask::{count_nonzero, masked_scatter, masked_select, nonzero};
pub(crate) use points::Gather;
pub use points::{ScatterOp, Source, gather, scatter};
pub(crate) use select::{RowMajorSelect, select};

use crate::copy::to_vec;
use crate::element::{Class, Element};
use crate::error::{KernelError, Result};
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::view::View;
use maquette_ir::DType;

/// The meaning of negative indices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Negative {
    /// They count from the end.
    Wraps,
    /// They are out of range.
    Fails,
}

/// The error of an index of another dtype.
fn not_an_index(kernel: &'static str, found: DType) -> KernelError {
    KernelError::DType { kernel, operand: "the index", expected: "i64 or i32".into(), found }
}

/// Checks the indices and returns them in row-major order, each within `0..size`.
fn checked(
    kernel: &'static str,
    index: &View<'_>,
    size: i64,
    dim: usize,
    negative: Negative,
) -> Result<Vec<i64>> {
    if !matches!(index.dtype(), DType::I64 | DType::I32) {
        return Err(not_an_index(kernel, index.dtype()));
    }
    let mut out = to_vec::<i64>(index)?;
    for i in &mut out {
        let wrapped = if *i < 0 && negative == Negative::Wraps { *i + size } else { *i };
        if !(0..size).contains(&wrapped) {
            return Err(KernelError::IndexOutOfRange { index: *i, size, dim });
        }
        *i = wrapped;
    }
    Ok(out)
}

/// The combination of a scattered element with the existing one.
trait Combine<T>: Sync {
    fn combine(old: T, new: T) -> T;
}

struct Replace;
impl<T> Combine<T> for Replace {
    #[inline(always)]
    fn combine(_: T, new: T) -> T {
        new
    }
}

macro_rules! combine {
    ($($op:ident)*) => {
        $(impl<T: Element> Combine<T> for $op where $op: Op2<T::Class, T::Class> {
            #[inline(always)]
            fn combine(old: T, new: T) -> T {
                // Of two NaNs, the compiler is free to choose either, and chooses by strides.
                T::store(<$op as Op2<T::Class, T::Class>>::f(old.load(), new.load()).one_nan())
            }
        })*
    };
}
combine!(Add Mul Min Max);
