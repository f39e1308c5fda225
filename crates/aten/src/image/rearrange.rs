//! Rearrangements: `pixel_shuffle` (Shi et al. 2016) and its inverse, `channel_shuffle`, `rot90`;
//! and the gated linear unit `glu`. The shuffles copy between two strided views.

use super::compute;
use super::pooling::pooled_meta;
use crate::create::copies::copy_of;
use crate::shape::views::narrow;
use maquette_ir::MemoryFormat;
use maquette_ir::loops::{Affine, AxisId, Index, IndexMap};
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::typing::elementwise_strides;
use maquette_ops::operator::dims::{done, fresh, require, require_float, require_rank};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, How, Lowering, Metas, Strides};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Result, Tensor, Value};
use smallvec::smallvec;

/// The metadata with a dimension split into two, of which the second has size `inner`.
fn split(m: &Meta, d: usize, inner: SymInt) -> Meta {
    let mut out = m.clone();
    out.sizes[d] = m.sizes[d].floor_div(inner);
    out.strides[d] = m.strides[d] * inner;
    out.sizes.insert(d + 1, inner);
    out.strides.insert(d + 1, m.strides[d]);
    out
}

/// The metadata with dimension `from` moved to position `to`.
fn moved(mut m: Meta, from: usize, to: usize) -> Meta {
    let (size, stride) = (m.sizes.remove(from), m.strides.remove(from));
    m.sizes.insert(to, size);
    m.strides.insert(to, stride);
    m
}

/// The channels of a pixel shuffle, `[…, C r², H, W]`, as a view with sizes `[…, C, H, r, W, r]`:
/// of the factors C, r, r, the two last move after H and W.
fn channel_blocks(m: &Meta, r: SymInt) -> Meta {
    let c = m.rank() - 3;
    moved(moved(split(&split(m, c, r * r), c + 1, r), c + 2, c + 4), c + 1, c + 2)
}

/// The pixels of a pixel shuffle, `[…, C, H r, W r]`, as a view with the same sizes.
fn pixel_blocks(m: &Meta, r: SymInt) -> Meta {
    let c = m.rank() - 3;
    split(&split(m, c + 2, r), c + 1, r)
}

/// The image, the block size in argument `arg`, and the sizes of the image.
fn block<'a>(args: &'a [Value], arg: &str) -> Result<(&'a Tensor, SymInt, Dims)> {
    let (x, r) = (args[0].tensor()?, args[1].int_i64()?);
    require_rank("self", x, 3..=64)?;
    // The square of the block size is a number of channels.
    if !(1..=1 << 20).contains(&r) {
        return Err(Error::value(format!("`{arg}` must be positive and at most 2^20, found {r}")));
    }
    Ok((x, r.into(), x.sizes().into()))
}

#[track_caller]
fn require_multiple(x: &Tensor, d: usize, n: SymInt) -> Result<()> {
    require(x.sizes()[d].modulo(n).eq(0), || {
        format!("dimension {d} of sizes {} must be a multiple of {n}", dims_text(x.sizes()))
    })
}

#[track_caller]
fn shuffled_meta(args: &[Value]) -> Result<Metas> {
    let (x, r, mut sizes) = block(args, "upscale_factor")?;
    let c = sizes.len() - 3;
    require_multiple(x, c, r * r)?;
    sizes[c] = sizes[c].floor_div(r * r);
    sizes[c + 1] *= r;
    sizes[c + 2] *= r;
    Ok(smallvec![pooled_meta(x, sizes, x.dtype())?])
}

#[track_caller]
fn unshuffled_meta(args: &[Value]) -> Result<Metas> {
    let (x, r, mut sizes) = block(args, "downscale_factor")?;
    let c = sizes.len() - 3;
    require_multiple(x, c + 1, r)?;
    require_multiple(x, c + 2, r)?;
    sizes[c] *= r * r;
    sizes[c + 1] = sizes[c + 1].floor_div(r);
    sizes[c + 2] = sizes[c + 2].floor_div(r);
    Ok(smallvec![pooled_meta(x, sizes, x.dtype())?])
}

/// The shuffles copy between two strided views: one of the operand and one of the result.
fn shuffle(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.view_result(|a, out| out.view_of(pixel_blocks(out.meta(), a[1].int()?)));
    copy_of(cx, |a| {
        let x = a[0].tensor()?;
        x.view_of(channel_blocks(x.meta(), a[1].int()?))
    })
}

fn unshuffle(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.view_result(|a, out| out.view_of(channel_blocks(out.meta(), a[1].int()?)));
    copy_of(cx, |a| {
        let x = a[0].tensor()?;
        x.view_of(pixel_blocks(x.meta(), a[1].int()?))
    })
}

#[track_caller]
fn channels_meta(args: &[Value]) -> Result<Metas> {
    let (x, groups) = (args[0].tensor()?, args[1].int()?);
    require_rank("self", x, 3..=64)?;
    require(groups.gt(0), || format!("`groups` must be positive, found {groups}"))?;
    require_multiple(x, 1, groups)?;
    Ok(smallvec![pooled_meta(x, x.sizes().into(), x.dtype())?])
}

/// Channel `g k + i` of `groups` groups of `k` channels becomes channel `i groups + g`.
fn shuffle_channels(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.view_result(|a, out| out.view_of(split(out.meta(), 1, a[1].int()?)));
    copy_of(cx, |a| {
        let (x, groups) = (a[0].tensor()?, a[1].int()?);
        x.view_of(moved(split(x.meta(), 1, x.sizes()[1].floor_div(groups)), 1, 2))
    })
}

/// Quarter turns from the first of two dimensions toward the second.
#[track_caller]
fn rot90(x: &Tensor, turns: i64, dims: &[i64]) -> Result<Tensor> {
    let &[a, b] = dims else {
        return Err(Error::value(format!("`dims` must name two dimensions, found {dims:?}")));
    };
    let (a, b) = (wrap_dim(a, x.dim())? as i64, wrap_dim(b, x.dim())? as i64);
    if a == b {
        return Err(Error::value(format!(
            "`dims` must name two dimensions of sizes {}, found {dims:?}",
            dims_text(x.sizes())
        )));
    }
    Ok(match turns.rem_euclid(4) {
        1 => x.flip([b]).transpose(a, b),
        2 => x.flip([a, b]),
        3 => x.flip([a]).transpose(a, b),
        _ => x.clone_as(MemoryFormat::Contiguous),
    })
}

/// The two halves of a dimension.
#[track_caller]
fn halves(args: &[Value]) -> Result<(&Tensor, [Meta; 2])> {
    let (x, dim) = (args[0].tensor()?, args[1].int_i64()?);
    require_float("self", x)?;
    require_rank("self", x, 1..=64)?;
    let d = wrap_dim(dim, x.dim())?;
    require_multiple(x, d, 2.into())?;
    let half = x.sizes()[d].floor_div(2);
    Ok((x, [narrow(x.meta(), d as i64, 0.into(), half)?, narrow(x.meta(), d as i64, half, half)?]))
}

#[track_caller]
fn gated_meta(args: &[Value]) -> Result<Metas> {
    let (x, [value, gate]) = halves(args)?;
    let strides = elementwise_strides(
        &value.sizes,
        &[(&value.sizes, &value.strides), (&gate.sizes, &gate.strides)],
    )?;
    Ok(smallvec![fresh(x, value.sizes, x.dtype()).with_strides(strides)])
}

/// `value · sigmoid(gate)`
fn gate(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (x, over) = (cx.input(0)?, cx.result_axes(0));
    let dim = wrap_dim(cx.int(1)?, x.axes.len())?;
    let half = cx.nest.nest().extent(over[dim]);
    let at = |start: Expr| -> IndexMap {
        let of = |(d, axis): (usize, &AxisId)| match d == dim {
            true => Index::from(Affine { start, ..Affine::from(*axis) }),
            false => Index::from(*axis),
        };
        over.iter().enumerate().map(of).collect()
    };
    let wide = x.dtype.accumulator();
    let gated = cx.nest.map(&over, |s| {
        let (value, gate) = (s.load(x.id, at(Expr::Int(0)))?, s.load(x.id, at(half))?);
        let (value, gate) = (s.expr.cast(value, wide)?, s.expr.cast(gate, wide)?);
        let open = s.expr.unary(UnaryOp::Sigmoid, gate)?;
        let product = s.expr.binary(BinaryOp::Mul, value, open)?;
        Ok(s.expr.cast(product, x.dtype)?)
    })?;
    Ok(smallvec![gated.into()])
}

table! {
    /// Rearrangements and `glu`.
    static TABLE = {
        "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| shuffled_meta(a),
                How::Loops(shuffle),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| unshuffled_meta(a),
                How::Loops(unshuffle),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| channels_meta(a),
                How::Loops(shuffle_channels),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| channels_meta(a),
                How::Loops(shuffle_channels),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(rot90(a[0].tensor()?, a[1].int_i64()?, &a[2].ints_i64()?)?)
            }),
        },
        "aten::glu(Tensor self, int dim=-1) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| gated_meta(a),
                How::Loops(gate),
            ),
            vjp: crate::grad::GLU,
        },
    }
}
