//! Concatenation, repetition and rearrangement: `cat`, `stack`, `repeat`, `tile`, `flip`, `roll`,
//! `constant_pad_nd`, `tril`, `triu`.

use super::dims::{
    channels_last_strides, decide, done, format_strides, fresh, fresh_like, in_format_of,
    is_channels_last, require, require_rank,
};
use super::host::{self, fill_with, separable, typed};
use super::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use super::number::require_argument_fits;
use super::structure::tensors;
use super::table;
use super::views;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::{require_equal, require_same, wrap_dim};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::MemoryFormat;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::promote;
use smallvec::smallvec;

const fn compute(
    class: Class,
    strides: Strides,
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class, strides, metas, how: How::Host(run) })
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

/// Index tables of the identity permutation.
fn identity(sizes: &[usize]) -> Result<Vec<Vec<usize>>> {
    sizes.iter().map(|&n| host::table(n, |i| i)).collect()
}

/// Runs a kernel unless the output is empty. Index tables are no longer than a nonempty output; an
/// empty tensor may have a dimension of any length, for which there may be no memory.
fn unless_empty(
    args: &[Value],
    out: &Tensor,
    run: fn(&[Value], &Tensor) -> Result<()>,
) -> Result<()> {
    if out.numel().as_i64() == Some(0) { Ok(()) } else { run(args, out) }
}

fn repeat(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let (from, to) = (host::sizes(x)?, host::sizes(out)?);
    let lead = to.len() - from.len();
    let x =
        x.view_of(views::expand(x.meta(), &[&vec![SymInt::from(1); lead], x.sizes()].concat())?)?;
    let of = |(d, &n): (usize, &usize)| {
        host::table(n, |i| d.checked_sub(lead).map_or(0, |d| i % from[d]))
    };
    let tables: Vec<Vec<usize>> = to.iter().enumerate().map(of).collect::<Result<_>>()?;
    separable(&x, out, &tables)
}

fn flip(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let mut tables = identity(&host::sizes(x)?)?;
    for d in views::wrap_dims(&args[1].ints_i64()?, x.dim())? {
        if let Some(t) = tables.get_mut(d) {
            t.reverse();
        }
    }
    separable(x, out, &tables)
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

fn roll(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let shifts = roll_shifts(args)?;
    if let ([], [shift]) = (shifts.as_slice(), args[1].ints_i64()?.as_slice()) {
        return typed!(x.dtype(), T => {
            let from = host::data::<T>(x)?;
            fill_with::<T>(out, |o| {
                o.copy_from_slice(&from);
                if !o.is_empty() {
                    o.rotate_right(shift.rem_euclid(o.len() as i64) as usize);
                }
            })
        });
    }
    let mut tables = identity(&host::sizes(out)?)?;
    for (d, s) in shifts {
        if let Some(t) = tables.get_mut(d).filter(|t| !t.is_empty()) {
            let n = t.len() as i64;
            t.rotate_right(s.rem_euclid(n) as usize);
        }
    }
    separable(x, out, &tables)
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

fn constant_pad(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    host::fill(out, args[2].scalar()?)?;
    let (mut from, mut to) = (x.meta().clone(), out.meta().clone());
    for (d, (before, after)) in padding(x.dim(), args[1].ints()?)?.into_iter().enumerate() {
        let (cut_front, cut_back) =
            ((SymInt::from(0) - before).max(0), (SymInt::from(0) - after).max(0));
        let length = (from.sizes[d] - cut_front - cut_back).max(0);
        from = views::narrow(&from, d as i64, cut_front.min(from.sizes[d]), length)?;
        to = views::narrow(&to, d as i64, before.max(0).min(to.sizes[d]), length)?;
    }
    cpu_exec::copy(&x.view_of(from)?, &out.view_of(to)?)
}

/// Copies a batch of matrices, and zeroes the elements above or below a diagonal.
fn triangle(args: &[Value], out: &Tensor, lower: bool) -> Result<()> {
    let x = args[0].tensor()?;
    let (sizes, k) = (host::sizes(x)?, args[1].int_i64()?);
    let (rows, cols) = (sizes[sizes.len() - 2], sizes[sizes.len() - 1]);
    cpu_exec::copy(x, out)?;
    if rows == 0 || cols == 0 {
        return Ok(());
    }
    typed!(x.dtype(), T => fill_with::<T>(out, |o| {
        for (r, row) in o.chunks_exact_mut(cols).enumerate() {
            let edge = ((r % rows) as i64).saturating_add(k);
            let (keep_from, keep_to) = match lower {
                true => (0, edge.saturating_add(1)),
                false => (edge, i64::MAX),
            };
            for (c, v) in row.iter_mut().enumerate() {
                if !(keep_from..keep_to).contains(&(c as i64)) {
                    *v = T::default();
                }
            }
        }
    }))
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
                |a, out| cat(a, &out[0]),
            ),
        General "aten::stack(Tensor[] tensors, int dim=0) -> Tensor" =>
            Lowering::Composite(|a| done(stack(&tensors("tensors", &a[0])?, a[1].int_i64()?)?)),
        General "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor" =>
            compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| Ok(smallvec![repeat_meta(a[0].tensor()?, a[1].ints()?)?]),
                |a, out| unless_empty(a, &out[0], repeat),
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
                |a, out| unless_empty(a, &out[0], flip),
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
                |a, out| unless_empty(a, &out[0], roll),
            ),
        General "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| Ok(smallvec![constant_pad_meta(a[0].tensor()?, a[1].ints()?, &a[2])?]),
                |a, out| constant_pad(a, &out[0]),
            ),
        General "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| matrix_like(a),
                |a, out| triangle(a, &out[0], true),
            ),
        General "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| matrix_like(a),
                |a, out| triangle(a, &out[0], false),
            ),
        General "aten::tril_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)" =>
            Lowering::InPlace("aten::tril"),
        General "aten::triu_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)" =>
            Lowering::InPlace("aten::triu"),
    }
}
