//! Rearrangements: `pixel_shuffle` (Shi et al. 2016) and its inverse, `channel_shuffle`, `rot90`;
//! and the gated linear unit `glu`. The shuffles copy between two strided views.

use super::{compute, is_empty};
use crate::aten::dims::{done, fresh, require, require_float, require_rank};
use crate::aten::lowering::{Class, Lowering, Metas, Strides};
use crate::aten::pooling::pooled_meta;
use crate::aten::table;
use crate::aten::views::narrow;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::wrap_dim;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::elementwise_strides;
use maquette_ir::{DType, MemoryFormat};
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

/// Both layouts of a pixel shuffle, `[…, C r², H, W]` and `[…, C, H r, W r]`, as views with sizes
/// `[…, C, H, r, W, r]`.
fn blocks(channels: &Meta, pixels: &Meta, r: SymInt) -> (Meta, Meta) {
    let c = channels.rank() - 3;
    // C r² splits into C, r, r. The two factors r move behind H and W.
    let channels =
        moved(moved(split(&split(channels, c, r * r), c + 1, r), c + 2, c + 4), c + 1, c + 2);
    let pixels = split(&split(pixels, c + 2, r), c + 1, r);
    (channels, pixels)
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

fn copy_as(x: &Tensor, from: Meta, out: &Tensor, to: Meta) -> Result<()> {
    if is_empty(out) {
        return Ok(());
    }
    cpu_exec::copy(&x.view_of(from)?, &out.view_of(to)?)
}

fn shuffle(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let (from, to) = blocks(x.meta(), out.meta(), args[1].int()?);
    copy_as(x, from, out, to)
}

fn unshuffle(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let (to, from) = blocks(out.meta(), x.meta(), args[1].int()?);
    copy_as(x, from, out, to)
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
fn shuffle_channels(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, groups) = (args[0].tensor()?, args[1].int()?);
    if is_empty(out) {
        return Ok(());
    }
    let from = moved(split(x.meta(), 1, x.sizes()[1].floor_div(groups)), 1, 2);
    copy_as(x, from, out, split(out.meta(), 1, groups))
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
    Ok(smallvec![Meta { strides, ..fresh(x, value.sizes, x.dtype()) }])
}

/// `value · sigmoid(gate)`
fn gate(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, [value, gate]) = halves(args)?;
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    cpu_exec::map_into(out, &[&x.view_of(value)?, &x.view_of(gate)?], |b, r| {
        let (value, gate) = (b.cast(r[0], wide)?, b.cast(r[1], wide)?);
        let open = b.unary(UnaryOp::Sigmoid, gate)?;
        let product = b.binary(BinaryOp::Mul, value, open)?;
        b.cast(product, x.dtype())
    })
}

table! {
    /// Rearrangements and `glu`.
    pub(super) static TABLE = {
        General "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| shuffled_meta(a),
                |a, out| shuffle(a, &out[0]),
            ),
        General "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| unshuffled_meta(a),
                |a, out| unshuffle(a, &out[0]),
            ),
        General "aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| channels_meta(a),
                |a, out| shuffle_channels(a, &out[0]),
            ),
        General "aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor" =>
            compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| channels_meta(a),
                |a, out| shuffle_channels(a, &out[0]),
            ),
        General "aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor" =>
            Lowering::Composite(|a| {
                done(rot90(a[0].tensor()?, a[1].int_i64()?, &a[2].ints_i64()?)?)
            }),
        General "aten::glu(Tensor self, int dim=-1) -> Tensor" =>
            compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| gated_meta(a),
                |a, out| gate(a, &out[0]),
            ),
    }
}
