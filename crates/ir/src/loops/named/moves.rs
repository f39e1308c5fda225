//! Nests that compute positions and move elements: fills, copies, padding, triangles,
//! gathers.

use super::Input;
use crate::loops::{
    Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, ScalarId, Source, StageBuilder, StageId,
};
use crate::scalar_expr::{BinaryOp, Bounds, CmpOp, Positions, Reg};
use crate::{DType, Scalar};

/// A number that a nest takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// It is given with each launch.
    Launch(ScalarId),
    /// It is part of the nest.
    Constant(Scalar),
}

impl StageBuilder<'_> {
    /// Adds a number, cast to a dtype.
    ///
    /// # Errors
    /// The nest has no such launch scalar.
    pub fn number(&mut self, number: Number, dtype: DType) -> Result<Reg, LoopError> {
        match number {
            Number::Constant(value) => Ok(self.expr.constant(value, dtype)),
            Number::Launch(id) => {
                let value = self.launch(id)?;
                Ok(self.expr.cast(value, dtype)?)
            }
        }
    }
}

/// The same number everywhere.
///
/// # Errors
/// The nest has no such launch scalar.
pub fn fill(
    nest: &mut LoopBuilder,
    over: &[AxisId],
    value: Number,
    dtype: DType,
) -> Result<StageId, LoopError> {
    nest.map(over, |s| s.number(value, dtype))
}

/// The elements of an operand, cast to a dtype.
///
/// # Errors
/// The operand does not exist.
pub fn copy(nest: &mut LoopBuilder, x: &Input, out: DType) -> Result<StageId, LoopError> {
    nest.map(&x.axes, |s| s.element(x, out))
}

/// The slices of an operand along a dimension that an index names, as `index_select` and
/// `embedding`. The axes of the index replace that of the dimension. An index outside the dimension
/// is an error.
///
/// # Errors
/// The operand has no such dimension.
pub fn select(
    nest: &mut LoopBuilder,
    x: &Input,
    dim: usize,
    index: &Input,
) -> Result<StageId, LoopError> {
    let no_dim = || LoopError::new(format!("the operand has no dimension {dim}"));
    let before = x.axes.get(..dim).ok_or_else(no_dim)?;
    let after = x.axes.get(dim + 1..).ok_or_else(no_dim)?;
    let over: Axes = before.iter().chain(&index.axes).chain(after).copied().collect();
    nest.map(&over, |s| {
        let position = s.element(index, DType::I64)?;
        s.read(x.id, computed(&x.axes, &[dim]), &[position], Bounds::Fails, None)
    })
}

/// An element of an operand for each element of an index, which is its position along a dimension;
/// along the others it has that of the index, as `gather`. An index outside the dimension is an
/// error.
///
/// # Errors
/// The operand and the index differ in rank.
pub fn gather(
    nest: &mut LoopBuilder,
    x: &Input,
    dim: usize,
    index: &Input,
) -> Result<StageId, LoopError> {
    nest.map(&index.axes, |s| {
        let position = s.element(index, DType::I64)?;
        // a scalar reads a vector of one element
        let at = match index.axes.is_empty() {
            true => [Index::Computed].into_iter().collect(),
            false => computed(&index.axes, &[dim]),
        };
        s.read(x.id, at, &[position], Bounds::Fails, None)
    })
}

/// What [`reposition`] reads at a position outside the operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outside {
    /// The nearest element.
    Nearest,
    /// For a position less than 0, the element that many from the end.
    FromEnd,
    /// A number.
    Number(Number),
}

/// The elements of an operand at positions that are computed from the coordinates, in some of its
/// dimensions: `position` is called with such a dimension and the coordinate along its axis in
/// `over`. In the other dimensions the position is the coordinate.
///
/// A read has a limited number of computed positions, so more dimensions take more stages.
///
/// # Errors
/// The ranks of the operand and of `over` differ, or the error of `position`.
pub fn reposition(
    nest: &mut LoopBuilder,
    x: &Input,
    over: &[AxisId],
    dims: &[usize],
    outside: Outside,
    position: impl Fn(&mut StageBuilder<'_>, usize, Reg) -> Result<Reg, LoopError>,
) -> Result<StageId, LoopError> {
    let (mut from, mut axes) = (Source::from(x.id), x.axes.clone());
    let mut rest = dims;
    loop {
        let (now, later) = rest.split_at(rest.len().min(Positions::MAX));
        match later {
            [] => axes = over.into(),
            _ => now.iter().for_each(|d| axes[*d] = over[*d]),
        }
        let stage = nest.map(&axes, |s| {
            let mut at = Vec::with_capacity(now.len());
            for &d in now {
                let coord = s.coord(axes[d]);
                at.push(position(s, d, coord)?);
            }
            if at.is_empty() {
                return s.load(from, &axes[..]);
            }
            let bounds = match outside {
                Outside::Nearest => Bounds::Clamps,
                Outside::FromEnd => Bounds::Wraps,
                Outside::Number(number) => Bounds::Else(s.number(number, x.dtype)?),
            };
            s.read(from, computed(&axes, now), &at, bounds, None)
        })?;
        if later.is_empty() {
            return Ok(stage);
        }
        (from, rest) = (stage.into(), later);
    }
}

/// `x` with elements added, or removed, at the ends of some dimensions, as `constant_pad_nd`. Each
/// entry of `before` is a dimension with the number of elements that come before it, an `i64`; the
/// extents of `over` say how many come after it.
///
/// # Errors
/// The nest has no such launch scalar, or `over` has another rank.
pub fn pad(
    nest: &mut LoopBuilder,
    x: &Input,
    over: &[AxisId],
    before: &[(usize, ScalarId)],
    value: Number,
) -> Result<StageId, LoopError> {
    let dims: Vec<usize> = before.iter().map(|(d, _)| *d).collect();
    reposition(nest, x, over, &dims, Outside::Number(value), |s, dim, coord| {
        let count = before.iter().find(|(d, _)| *d == dim).map(|(_, count)| *count);
        let count = count.map(|count| s.launch(count)).transpose()?;
        let count = count.unwrap_or_else(|| s.expr.constant(0, DType::I64));
        Ok(s.expr.binary(BinaryOp::Sub, coord, count)?)
    })
}

/// The elements of the matrices in the last two dimensions of `x` on one side of a diagonal, and
/// zeros on the other, as `tril` if `lower`, else as `triu`. The diagonal is an `i64`, and belongs
/// to both.
///
/// # Errors
/// The operand is not a matrix, or the nest has no such launch scalar.
pub fn triangle(
    nest: &mut LoopBuilder,
    x: &Input,
    lower: bool,
    diagonal: ScalarId,
) -> Result<StageId, LoopError> {
    let [.., row, column] = x.axes[..] else {
        return Err(LoopError::new("a triangle is of a matrix".to_owned()));
    };
    nest.map(&x.axes, |s| {
        // A coordinate minus another does not overflow, as one plus the diagonal might.
        let (row, column) = (s.coord(row), s.coord(column));
        let distance = s.expr.binary(BinaryOp::Sub, column, row)?;
        let diagonal = s.launch(diagonal)?;
        let is_in = if lower { CmpOp::Le } else { CmpOp::Ge };
        let is_in = s.expr.compare(is_in, distance, diagonal)?;
        let (element, zero) = (s.element(x, x.dtype)?, s.expr.constant(0, x.dtype));
        Ok(s.expr.select(is_in, element, zero)?)
    })
}

/// The map of a source whose dimensions have these axes, with computed positions in `dims`.
fn computed(axes: &[AxisId], dims: &[usize]) -> IndexMap {
    let index = |(d, axis): (usize, &AxisId)| match dims.contains(&d) {
        true => Index::Computed,
        false => Index::from(*axis),
    };
    axes.iter().enumerate().map(index).collect()
}
