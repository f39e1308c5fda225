//! Padding with elements of the tensor: reflection, replication and circular padding. Every
//! dimension has a table of the positions to read.

use super::{compute, is_empty, require_full};
use crate::aten::dims::{fresh, require, require_dtype, require_rank};
use crate::aten::host::{self, separable};
use crate::aten::join::padding;
use crate::aten::lowering::{Class, Lowering, Metas, Strides};
use crate::aten::pooling::pooled_meta;
use crate::aten::table;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Scalar};
use smallvec::smallvec;

/// The element that a position outside the tensor reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The mirrored element. The border is not repeated.
    Reflect,
    /// The border element.
    Replicate,
    /// The element of the tensor repeated periodically.
    Circular,
}

impl Mode {
    /// The positions to read along a dimension of `n` elements, padded with `before` and `after`.
    fn table(self, n: i64, before: i64, after: i64) -> Result<Vec<usize>> {
        // Negative padding applies first: circular padding repeats the remaining elements.
        let (cut, rest) = match self {
            Mode::Circular => ((-before).max(0), (n + before.min(0) + after.min(0)).max(1)),
            _ => (0, n),
        };
        let read = |i: i64| match self {
            Mode::Reflect if i.abs() >= n => 2 * (n - 1) - i.abs(),
            Mode::Reflect => i.abs(),
            Mode::Replicate => i,
            Mode::Circular => cut + (i - cut).rem_euclid(rest),
        };
        host::table((n + before + after).max(0) as usize, |i| {
            read(i as i64 - before).clamp(0, (n - 1).max(0)) as usize
        })
    }
}

/// The limit on the padding of a dimension.
const LIMIT: i64 = 1 << 40;

/// The sizes after padding. `pad` lists the last dimension first.
#[track_caller]
fn padded(x: &Tensor, pad: &[SymInt], mode: Mode) -> Result<Dims> {
    let mut sizes: Dims = x.sizes().into();
    let least = i64::from(mode != Mode::Circular);
    for (d, (before, after)) in
        padding(x.dim(), pad)?.into_iter().enumerate().skip(x.dim() - pad.len() / 2)
    {
        let n = sizes[d];
        let too_large = || {
            format!(
                "`padding` {} is too large for dimension {d} of sizes {}",
                dims_text(pad),
                dims_text(x.sizes())
            )
        };
        for side in [before, after] {
            // The limit keeps the sum of additions and removals from overflowing.
            require(side.ge(-LIMIT).and(side.le(LIMIT)), too_large)?;
            match mode {
                Mode::Reflect => require(side.lt(n), too_large)?,
                Mode::Circular => require(side.le(n), too_large)?,
                Mode::Replicate => {}
            }
        }
        sizes[d] = n + before + after;
        require(sizes[d].ge(least), || {
            format!(
                "`padding` {} removes all elements of dimension {d} of sizes {}",
                dims_text(pad),
                dims_text(x.sizes())
            )
        })?;
    }
    Ok(sizes)
}

#[track_caller]
fn border_meta(args: &[Value], space: usize, mode: Mode) -> Result<Meta> {
    let (x, pad) = (args[0].tensor()?, args[1].ints()?);
    if pad.len() != 2 * space {
        return Err(Error::value(format!(
            "`padding` must hold {} numbers, found {}",
            2 * space,
            dims_text(pad)
        )));
    }
    require_rank("self", x, space + 1..=space + 2)?;
    require_dtype("self", x, "a numeric dtype", |d| d != DType::Bool)?;
    require_full("self", x, x.dim() - space - 1)?;
    pooled_meta(x, padded(x, pad, mode)?, x.dtype())
}

#[track_caller]
fn circular_meta(args: &[Value]) -> Result<Meta> {
    let (x, pad) = (args[0].tensor()?, args[1].ints()?);
    let lead = x.dim().saturating_sub(pad.len() / 2);
    if !matches!(lead, 1 | 2) || !pad.len().is_multiple_of(2) {
        return Err(Error::value(format!(
            "`pad` must leave one or two dimensions unpadded, found {} for sizes {}",
            dims_text(pad),
            dims_text(x.sizes())
        )));
    }
    Ok(fresh(x, padded(x, pad, Mode::Circular)?, x.dtype()))
}

fn run(args: &[Value], out: &Tensor, mode: Mode) -> Result<()> {
    if is_empty(out) {
        return Ok(());
    }
    let x = args[0].tensor()?;
    let pad = args[1].ints_i64()?;
    let pads = pad.chunks_exact(2).chain(std::iter::repeat(&[0, 0][..]));
    let tables =
        host::sizes(x)?.into_iter().rev().zip(pads).map(|(n, p)| mode.table(n as i64, p[0], p[1]));
    let mut tables: Vec<Vec<usize>> = tables.collect::<Result<_>>()?;
    tables.reverse();
    separable(x, out, &tables)
}

/// `pad` with a named mode.
fn pad(x: &Tensor, pad: &[SymInt], mode: &str, value: Option<f64>) -> Result<Outputs> {
    let name = match (mode, pad.len()) {
        ("constant", _) => {
            return crate::call(
                "aten::constant_pad_nd",
                crate::args![x, Value::from_dims(pad), Scalar::Float(value.unwrap_or(0.0))],
            );
        }
        _ if value.is_some_and(|v| v != 0.0) => {
            return Err(Error::value(format!("mode {mode} takes no `value`, found {value:?}")));
        }
        ("circular", _) => "aten::_pad_circular",
        ("reflect", 2) => "aten::reflection_pad1d",
        ("reflect", 4) => "aten::reflection_pad2d",
        ("reflect", 6) => "aten::reflection_pad3d",
        ("replicate", 2) => "aten::replication_pad1d",
        ("replicate", 4) => "aten::replication_pad2d",
        ("replicate", 6) => "aten::replication_pad3d",
        ("reflect" | "replicate", n) => {
            return Err(Error::value(format!(
                "`pad` must hold 2, 4 or 6 numbers in mode {mode}, found {n}"
            )));
        }
        (other, _) => {
            return Err(Error::value(format!(
                "`mode` must be constant, reflect, replicate or circular, found {other:?}"
            )));
        }
    };
    crate::call(name, crate::args![x, Value::from_dims(pad)])
}

/// The modes, in the order of their numbers in `_pad_enum`.
const MODES: [&str; 4] = ["reflect", "replicate", "circular", "constant"];

fn numbered(mode: i64) -> Result<&'static str> {
    let found = usize::try_from(mode).ok().and_then(|m| MODES.get(m));
    found.copied().ok_or_else(|| Error::value(format!("`mode` must be 0 to 3, found {mode}")))
}

macro_rules! border {
    ($mode:ident, $space:literal) => {
        compute(
            Class::Gather,
            Strides::RowMajor,
            |_, a| Ok(one(border_meta(a, $space, Mode::$mode)?)),
            |a, out| run(a, &out[0], Mode::$mode),
        )
    };
}

fn one(m: Meta) -> Metas {
    smallvec![m]
}

table! {
    /// Padding.
    pub(super) static TABLE = {
        General "aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor" =>
            border!(Reflect, 1),
        General "aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor" =>
            border!(Reflect, 2),
        General "aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor" =>
            border!(Reflect, 3),
        General "aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor" =>
            border!(Replicate, 1),
        General "aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor" =>
            border!(Replicate, 2),
        General "aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor" =>
            border!(Replicate, 3),
        General "aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor" =>
            compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| Ok(one(circular_meta(a)?)),
                |a, out| run(a, &out[0], Mode::Circular),
            ),
        General "aten::_pad_enum(Tensor self, SymInt[] pad, int mode, \
            float? value=None) -> Tensor" =>
            Lowering::Composite(|a| {
                pad(
                    a[0].tensor()?,
                    a[1].ints()?,
                    numbered(a[2].int_i64()?)?,
                    a[3].opt(Value::float)?,
                )
            }),
        General "aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", \
            float? value=None) -> Tensor" =>
            Lowering::Composite(|a| {
                pad(a[0].tensor()?, a[1].ints()?, a[2].str()?, a[3].opt(Value::float)?)
            }),
    }
}
