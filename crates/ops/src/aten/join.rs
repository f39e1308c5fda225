//! Concatenation, repetition and rearrangement: `cat`, `stack`, `repeat`, `tile`, `flip`, `roll`,
//! `constant_pad_nd`, `tril`, `triu`.

use super::copies::copy_of;
use super::dims::{
    channels_last_strides, decide, done, format_strides, fresh, fresh_like, in_format_of,
    is_channels_last, require, require_rank,
};
use super::loops::{NestCx, NestResults};
use super::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use super::number::require_argument_fits;
use super::structure::tensors;
use super::table;
use super::take::flat;
use super::views;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::{require_equal, require_same, wrap_dim};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::loops::named::{self, Number, Outside};
use maquette_ir::loops::{Affine, Index, IndexMap, LoopError, ScalarId, StageBuilder};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, CmpOp, Reg};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::typing::promote;
use maquette_ir::{DType, MemoryFormat};
use smallvec::smallvec;

const fn compute(
    class: Class,
    strides: Strides,
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class, strides, metas, how })
}

/// Whether a tensor is empty and 1-d. For compatibility, PyTorch's `cat` ignores such tensors.
fn is_placeholder(t: &Tensor) -> bool {
    t.dim() == 1 && t.sizes()[0].as_i64() == Some(0)
}

/// The metadata of a concatenation. It is channels-last if all parts are.
#[track_caller]
fn cat_meta(parts: &[&Tensor], dim: i64) -> Result<Meta> {
    let dtype =
        promote(parts.iter().map(|t| super::lowering::operand(&Value::Tensor((*t).clone()))));
    // a 1-d part of symbolic size is a placeholder if the ranks leave no other possibility
    let may_be_placeholder =
        |t: &Tensor| is_placeholder(t) || t.dim() == 1 && t.sizes()[0].as_i64().is_none();
    let certain = parts.iter().find(|t| !may_be_placeholder(t));
    let Some(first) = certain.or_else(|| parts.iter().find(|t| !is_placeholder(t))) else {
        return Ok(fresh(parts[0], parts[0].sizes().into(), dtype));
    };
    if first.dim() == 0 {
        return Err(Error::value(
            "argument `tensors` holds a 0-d tensor, which cannot be concatenated",
        ));
    }
    let d = wrap_dim(dim, first.dim())?;
    let mut sizes: Dims = first.sizes().into();
    let mut channels_last = true;
    sizes[d] = 0.into();
    for (i, t) in parts.iter().enumerate().filter(|(_, t)| !is_placeholder(t)) {
        let misfit = || {
            let (expected, found) = (dims_text(first.sizes()), dims_text(t.sizes()));
            format!(
                "`tensors[{i}]` must have sizes {expected} except in dimension {dim}, found sizes \
                    {found}"
            )
        };
        let mismatch = || Error::value(misfit());
        if t.dim() != sizes.len() && may_be_placeholder(t) {
            require(t.sizes()[0].eq(0), misfit)?;
            continue;
        }
        if t.dim() != sizes.len() {
            return Err(mismatch());
        }
        for k in (0..sizes.len()).filter(|&k| k != d) {
            require_equal(sizes[k], t.sizes()[k], &mismatch)?;
        }
        sizes[d] += t.sizes()[d];
        channels_last = channels_last && is_channels_last(t.meta())?;
    }
    let m = fresh(first, sizes, dtype);
    Ok(if channels_last { Meta { strides: channels_last_strides(&m.sizes), ..m } } else { m })
}

fn cat(args: &[Value], out: &Tensor) -> Result<()> {
    let parts = tensors("tensors", &args[0])?;
    let mut start = SymInt::from(0);
    for t in parts.into_iter().filter(|t| !is_placeholder(t)) {
        let dim = wrap_dim(args[1].int_i64()?, t.dim())?;
        let length = t.sizes()[dim];
        cpu_exec::copy(t, &out.view_of(views::narrow(out.meta(), dim as i64, start, length)?)?)?;
        start += length;
    }
    Ok(())
}

fn stack(parts: &[&Tensor], dim: i64) -> Result<Tensor> {
    let dim = wrap_dim(dim, parts[0].dim() + 1)? as i64;
    for (i, t) in parts.iter().enumerate() {
        require_same(parts[0].sizes(), t.sizes(), || format!("`tensors[{i}]` must have"))?;
    }
    Ok(Tensor::cat(&parts.iter().map(|t| t.unsqueeze(dim)).collect::<Vec<_>>(), dim))
}

fn repeat_meta(x: &Tensor, repeats: &[SymInt]) -> Result<Meta> {
    let lead = repeats.len().checked_sub(x.dim()).ok_or_else(|| {
        Error::value(format!(
            "`repeats` must have at least {} entries, one per dimension, found {}",
            x.dim(),
            dims_text(repeats)
        ))
    })?;
    for r in repeats {
        require(r.ge(0), || {
            format!("`repeats` must not be negative, found {}", dims_text(repeats))
        })?;
    }
    let sizes = repeats
        .iter()
        .enumerate()
        .map(|(d, &r)| d.checked_sub(lead).map_or(r, |d| r * x.sizes()[d]))
        .collect();
    Ok(fresh(x, sizes, x.dtype()))
}

/// The tensor with a repeated dimension before each of its own, where `repeats` has one.
fn repeated(args: &[Value]) -> Result<Tensor> {
    let (x, repeats) = (args[0].tensor()?, args[1].ints()?);
    let lead = repeats.len().saturating_sub(x.dim());
    let mut m = x.meta().clone();
    (m.sizes, m.strides) = (Dims::new(), Dims::new());
    for (d, &times) in repeats.iter().enumerate() {
        m.sizes.push(times);
        m.strides.push(0.into());
        if let Some(d) = d.checked_sub(lead) {
            m.sizes.push(x.sizes()[d]);
            m.strides.push(x.strides()[d]);
        }
    }
    x.view_of(m)
}

/// The result of `repeat` with the dimensions of [`repeated`].
fn repeated_result(args: &[Value], out: &Tensor) -> Result<Tensor> {
    let (x, repeats) = (args[0].tensor()?, args[1].ints()?);
    let lead = repeats.len().saturating_sub(x.dim());
    let mut m = out.meta().clone();
    (m.sizes, m.strides) = (Dims::new(), Dims::new());
    for (d, &times) in repeats.iter().enumerate() {
        let size = d.checked_sub(lead).map(|d| x.sizes()[d]);
        m.sizes.push(times);
        m.strides.push(out.strides()[d] * size.unwrap_or(1.into()));
        if let Some(size) = size {
            m.sizes.push(size);
            m.strides.push(out.strides()[d]);
        }
    }
    out.view_of(m)
}

fn repeat(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.view_result(repeated_result);
    copy_of(cx, repeated)
}

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
        s.read(
            x.id,
            IndexMap([Index::Computed].into_iter().collect()),
            &[position],
            Bounds::Wraps,
            None,
        )
    })?;
    Ok(smallvec![rolled.into()])
}

/// The number of elements to add before and after each dimension. `pad` lists the last dimension
/// first, as PyTorch does.
pub(super) fn padding(rank: usize, pad: &[SymInt]) -> Result<Vec<(SymInt, SymInt)>> {
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
        return Ok(Meta {
            strides: format_strides(MemoryFormat::Preserve, &m.sizes, x.meta())?,
            ..m
        });
    }
    in_format_of(x, m)
}

/// The padded dimensions, each with the number of elements before it. Argument 1 lists the last
/// dimension first.
pub(super) fn paddings(cx: &mut NestCx<'_>, rank: usize) -> Result<Vec<(usize, ScalarId)>> {
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

/// A batch of matrices whose elements above or below a diagonal are zero. A coordinate minus
/// another does not overflow, as one plus the diagonal might.
fn triangle(cx: &mut NestCx<'_>, lower: bool) -> Result<NestResults> {
    let (x, diagonal) = (cx.input(0)?, cx.number(1, DType::I64)?);
    let [.., row, column] = x.axes[..] else {
        return Err(Error::value("a triangle is of a matrix"));
    };
    let triangle = cx.nest.map(&x.axes, |s| {
        let (row, column) = (s.coord(row), s.coord(column));
        let distance = s.expr.binary(BinaryOp::Sub, column, row)?;
        let diagonal = s.launch(diagonal)?;
        let is_in = if lower { CmpOp::Le } else { CmpOp::Ge };
        let is_in = s.expr.compare(is_in, distance, diagonal)?;
        let (element, zero) = (s.element(&x, x.dtype)?, s.expr.constant(0, x.dtype));
        Ok(s.expr.select(is_in, element, zero)?)
    })?;
    Ok(smallvec![triangle.into()])
}

fn matrix_like(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    if x.dim() < 2 {
        require_rank("self", x, 2..=64)?;
    }
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
}

table! {
    /// Concatenation, repetition, padding and triangles.
    pub(super) static TABLE = {
        General "aten::cat(Tensor[] tensors, int dim=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| Ok(smallvec![cat_meta(&tensors("tensors", &a[0])?, a[1].int_i64()?)?]),
                How::Host(|a, out| cat(a, &out[0])),
            ),
        General "aten::stack(Tensor[] tensors, int dim=0) -> Tensor" =>
            Lowering::Composite(|a| done(stack(&tensors("tensors", &a[0])?, a[1].int_i64()?)?)),
        General "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor" =>
            compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| Ok(smallvec![repeat_meta(a[0].tensor()?, a[1].ints()?)?]),
                How::Loops(repeat),
            ),
        General "aten::tile(Tensor self, SymInt[] dims) -> Tensor" =>
            Lowering::Composite(|a| {
                let (x, dims) = (a[0].tensor()?, a[1].ints()?);
                let mut repeats: Dims =
                    smallvec![SymInt::from(1); x.dim().saturating_sub(dims.len())];
                repeats.extend_from_slice(dims);
                done(x.repeat(repeats))
            }),
        General "aten::flip(Tensor self, int[] dims) -> Tensor" =>
            compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| {
                    let x = a[0].tensor()?;
                    views::wrap_dims(&a[1].ints_i64()?, x.dim())?;
                    Ok(smallvec![fresh_like(x, x.dtype())?])
                },
                How::Loops(flip),
            ),
        General "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor" =>
            compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| {
                    roll_shifts(a)?;
                    let x = a[0].tensor()?;
                    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
                },
                How::Loops(roll),
            ),
        General "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| Ok(smallvec![constant_pad_meta(a[0].tensor()?, a[1].ints()?, &a[2])?]),
                How::Loops(constant_pad),
            ),
        General "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| matrix_like(a),
                How::Loops(|cx| triangle(cx, true)),
            ),
        General "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| matrix_like(a),
                How::Loops(|cx| triangle(cx, false)),
            ),
        General "aten::tril_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)" =>
            Lowering::InPlace("aten::tril"),
        General "aten::triu_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)" =>
            Lowering::InPlace("aten::triu"),
    }
}
