//! Elements at other positions: `flip`, `roll`, `constant_pad_nd`, `tril`, `triu`.

use super::join::compute;
use super::views;
use crate::index::take::flat;
use maquette_ir::loops::named::{self, Number, Outside};
use maquette_ir::loops::{Affine, Index, IndexMap, LoopError, ScalarId, StageBuilder};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, Reg};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::{DType, MemoryFormat};
use maquette_ops::operator::dims::{
    decide, format_strides, fresh, fresh_like, in_format_of, require, require_rank,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, How, Lowering, Metas, Strides};
use maquette_ops::operator::number::require_argument_fits;
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Result, Tensor, Value};
use smallvec::smallvec;

/// A flipped dimension is read from its end.
fn flip(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let x = cx.input(0)?;
    let flipped = cx.by_integers(|a| views::wrap_dims(&a[1].ints_i64()?, a[0].tensor()?.dim()))?;
    let mut at = IndexMap::default();
    for (d, &axis) in x.axes.iter().enumerate() {
        at.0.push(match flipped.contains(&d) {
            true => {
                let size = cx.nest.nest().extent(axis);
                let start = cx.nest.symbols_mut().sub(size, Expr::Int(1))?;
                Affine { start, terms: smallvec![(axis, Expr::Int(-1))] }.into()
            }
            false => axis.into(),
        });
    }
    Ok(smallvec![cx.nest.map(&x.axes, |s| s.load(x.id, at))?.into()])
}

/// The dimensions to roll, with their shifts. Empty if the flattened tensor is rolled.
fn roll_shifts(args: &[Value]) -> Result<Vec<(usize, i64)>> {
    let (x, shifts, dims) = (args[0].tensor()?, args[1].ints_i64()?, args[2].ints_i64()?);
    if dims.is_empty() && shifts.len() == 1 {
        return Ok(Vec::new());
    }
    if shifts.len() != dims.len() {
        return Err(Error::value(format!(
            "`shifts` and `dims` must have the same length, found {shifts:?} and {dims:?}"
        )));
    }
    dims.iter().zip(shifts).map(|(&d, s)| Ok((wrap_dim(d, x.dim())?, s))).collect()
}

/// The remainder of a shift by a size, in `0..size`.
fn shift_within(
    s: &mut StageBuilder<'_>,
    shifts: &[ScalarId],
    size: ScalarId,
) -> Result<Reg, LoopError> {
    let size = s.launch(size)?;
    let mut sum = s.expr.constant(0, DType::I64);
    for shift in shifts {
        // The sum of two remainders does not overflow.
        let shift = s.launch(*shift)?;
        let shift = s.expr.binary(BinaryOp::Remainder, shift, size)?;
        sum = s.expr.binary(BinaryOp::Add, sum, shift)?;
        sum = s.expr.binary(BinaryOp::Remainder, sum, size)?;
    }
    Ok(sum)
}

fn roll(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let dims = cx.by_integers_in(&[2], |a| {
        roll_shifts(a).map(|s| s.into_iter().map(|(d, _)| d).collect::<Vec<_>>())
    })?;
    if dims.is_empty() && cx.args()[1].ints()?.len() == 1 {
        return roll_flat(cx);
    }
    let x = cx.input(0)?;
    let mut shifts: Vec<Vec<ScalarId>> = vec![Vec::new(); x.axes.len()];
    for (i, &d) in dims.iter().enumerate() {
        // A 0-d tensor has a dimension that is not rolled.
        if let Some(shifts) = shifts.get_mut(d) {
            shifts.push(cx.number_of(1, i)?);
        }
    }
    let sizes: Vec<ScalarId> = (x.axes.iter())
        .map(|axis| {
            let extent = cx.nest.nest().extent(*axis);
            cx.nest.size(extent)
        })
        .collect();
    let rolled: Vec<usize> = (0..x.axes.len()).filter(|d| !shifts[*d].is_empty()).collect();
    let position = |s: &mut StageBuilder<'_>, d: usize, coord: Reg| {
        let shift = shift_within(s, &shifts[d], sizes[d])?;
        Ok(s.expr.binary(BinaryOp::Sub, coord, shift)?)
    };
    let over = x.axes.clone();
    let result = named::reposition(&mut cx.nest, &x, &over, &rolled, Outside::FromEnd, position)?;
    Ok(smallvec![result.into()])
}

/// Rolls the elements in row-major order.
fn roll_flat(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let x = cx.view(|a| flat(a[0].tensor()?))?;
    let shift = cx.number_of(1, 0)?;
    let over = cx.result_axes(0);
    let sizes: Vec<ScalarId> = (over.iter().chain(&x.axes))
        .map(|axis| {
            let extent = cx.nest.nest().extent(*axis);
            cx.nest.size(extent)
        })
        .collect();
    let rolled = cx.nest.map(&over, |s| {
        let mut position = s.expr.constant(0, DType::I64);
        for (axis, size) in over.iter().zip(&sizes) {
            let (size, coord) = (s.launch(*size)?, s.coord(*axis));
            position = s.expr.binary(BinaryOp::Mul, position, size)?;
            position = s.expr.binary(BinaryOp::Add, position, coord)?;
        }
        let shift = shift_within(s, &[shift], sizes[over.len()])?;
        let position = s.expr.binary(BinaryOp::Sub, position, shift)?;
        let at: IndexMap = [Index::Computed].into_iter().collect();
        s.read(x.id, at, &[position], Bounds::Wraps, None)
    })?;
    Ok(smallvec![rolled.into()])
}

/// The number of elements to add before and after each dimension. `pad` lists the last dimension
/// first, as PyTorch does.
pub(crate) fn padding(rank: usize, pad: &[SymInt]) -> Result<Vec<(SymInt, SymInt)>> {
    if !pad.len().is_multiple_of(2) || pad.len() / 2 > rank {
        return Err(Error::value(format!(
            "`pad` must hold two numbers for each of at most {rank} dimensions, found {}",
            dims_text(pad)
        )));
    }
    let mut out = vec![(SymInt::from(0), SymInt::from(0)); rank];
    for (d, p) in out.iter_mut().rev().zip(pad.chunks_exact(2)) {
        *d = (p[0], p[1]);
    }
    Ok(out)
}

/// The metadata of `constant_pad_nd`, where negative padding removes elements.
fn constant_pad_meta(x: &Tensor, pad: &[SymInt], value: &Value) -> Result<Meta> {
    // Padding that only removes elements does not use the value.
    if pad.iter().any(|n| n.as_i64().is_none_or(|n| n > 0)) {
        require_argument_fits("value", value, x.dtype())?;
    }
    let mut sizes: Dims = x.sizes().into();
    let mut cuts = true;
    for (n, (before, after)) in sizes.iter_mut().zip(padding(x.dim(), pad)?) {
        for n in [before, after] {
            cuts = cuts && !n.le(0).is_data_dependent() && decide(n.le(0))?;
        }
        let padded = *n + before + after;
        // PyTorch removes elements from both ends before it adds any, so both removals together
        // must fit.
        require((*n + before.min(0) + after.min(0)).ge(0), || {
            format!(
                "`pad` {} removes more elements than sizes {} have",
                dims_text(pad),
                dims_text(x.sizes())
            )
        })?;
        require(padded.ge(0), || {
            format!(
                "`pad` {} gives the negative size {padded} for sizes {}",
                dims_text(pad),
                dims_text(x.sizes())
            )
        })?;
        *n = padded;
    }
    let m = fresh(x, sizes, x.dtype());
    if cuts {
        // PyTorch's result is a clone of a narrowed view, which preserves the order of the strides.
        let strides = format_strides(MemoryFormat::Preserve, &m.sizes, x.meta())?;
        return Ok(m.with_strides(strides));
    }
    in_format_of(x, m)
}

/// The padded dimensions, each with the number of elements before it. Argument 1 lists the last
/// dimension first.
fn paddings(cx: &mut NestCx<'_>, rank: usize) -> Result<Vec<(usize, ScalarId)>> {
    let padded = (cx.args()[1].ints()?.len() / 2).min(rank);
    (rank - padded..rank).map(|d| Ok((d, cx.number_of(1, 2 * (rank - 1 - d))?))).collect()
}

fn constant_pad(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let x = cx.input(0)?;
    let before = paddings(cx, x.axes.len())?;
    let value = Number::Launch(cx.number(2, x.dtype)?);
    let over = cx.result_axes(0);
    Ok(smallvec![named::pad(&mut cx.nest, &x, &over, &before, value)?.into()])
}

/// A batch of matrices whose elements above or below a diagonal are zero.
fn triangle(cx: &mut NestCx<'_>, lower: bool) -> Result<NestResults> {
    let (x, diagonal) = (cx.input(0)?, cx.number(1, DType::I64)?);
    Ok(smallvec![named::triangle(&mut cx.nest, &x, lower, diagonal)?.into()])
}

fn matrix_like(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    if x.dim() < 2 {
        require_rank("self", x, 2..=64)?;
    }
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
}

table! {
    /// Flips, rolls, padding and triangles.
    static TABLE = {
        "aten::flip(Tensor self, int[] dims) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| {
                    let x = a[0].tensor()?;
                    views::wrap_dims(&a[1].ints_i64()?, x.dim())?;
                    Ok(smallvec![fresh_like(x, x.dtype())?])
                },
                How::Loops(flip),
            ),
            vjp: crate::grad::FLIP,
        },
        "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| {
                    roll_shifts(a)?;
                    let x = a[0].tensor()?;
                    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
                },
                How::Loops(roll),
            ),
            vjp: crate::grad::ROLL,
        },
        "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| Ok(smallvec![constant_pad_meta(a[0].tensor()?, a[1].ints()?, &a[2])?]),
                How::Loops(constant_pad),
            ),
            vjp: crate::grad::PAD,
        },
        "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| matrix_like(a),
                How::Loops(|cx| triangle(cx, true)),
            ),
            vjp: crate::grad::TRIL,
        },
        "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| matrix_like(a),
                How::Loops(|cx| triangle(cx, false)),
            ),
            vjp: crate::grad::TRIU,
        },
        "aten::tril_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::tril"),
        },
        "aten::triu_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::triu"),
        },
    }
}
