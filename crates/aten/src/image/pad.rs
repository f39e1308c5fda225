//! Padding with elements of the tensor: reflection, replication and circular padding. The position
//! that an element reads is computed from its coordinate.

use super::pooling::pooled_meta;
use super::{compute, require_full};
use crate::shape::shift::padding;
use maquette_ir::loops::named::{self, Outside};
use maquette_ir::loops::{LoopError, StageBuilder};
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, Reg, UnaryOp};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Scalar};
use maquette_ops::operator::dims::{fresh, require, require_dtype, require_rank};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Outputs, Result, Tensor, Value};
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
    /// The position that coordinate `i` of the tensor reads, which may be outside it, of `n`
    /// elements. Those of the border are then nearest.
    fn position(
        self,
        s: &mut StageBuilder<'_>,
        i: Reg,
        n: Reg,
        [before, after]: [Reg; 2],
    ) -> Result<Reg, LoopError> {
        let (zero, one) = (s.expr.constant(0, DType::I64), s.expr.constant(1, DType::I64));
        match self {
            Mode::Replicate => Ok(i),
            Mode::Reflect => {
                let distance = s.expr.unary(UnaryOp::Abs, i)?;
                let is_inside = s.expr.compare(CmpOp::Lt, distance, n)?;
                let last = s.expr.binary(BinaryOp::Sub, n, one)?;
                let twice = s.expr.binary(BinaryOp::Add, last, last)?;
                let mirrored = s.expr.binary(BinaryOp::Sub, twice, distance)?;
                Ok(s.expr.select(is_inside, distance, mirrored)?)
            }
            Mode::Circular => {
                // Negative padding applies first: the remaining elements are repeated.
                let minus = s.expr.unary(UnaryOp::Neg, before)?;
                let cut = s.expr.binary(BinaryOp::Max, minus, zero)?;
                let removed = s.expr.binary(BinaryOp::Min, before, zero)?;
                let rest = s.expr.binary(BinaryOp::Add, n, removed)?;
                let removed = s.expr.binary(BinaryOp::Min, after, zero)?;
                let rest = s.expr.binary(BinaryOp::Add, rest, removed)?;
                let rest = s.expr.binary(BinaryOp::Max, rest, one)?;
                let from_cut = s.expr.binary(BinaryOp::Sub, i, cut)?;
                let repeated = s.expr.binary(BinaryOp::Remainder, from_cut, rest)?;
                Ok(s.expr.binary(BinaryOp::Add, cut, repeated)?)
            }
        }
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

/// The nest of a mode. Argument 1 lists the last dimension first.
fn bordered(cx: &mut NestCx<'_>, mode: Mode) -> Result<NestResults> {
    let x = cx.input(0)?;
    let rank = x.axes.len();
    let padded = (cx.args()[1].ints()?.len() / 2).min(rank);
    let mut dims = Vec::with_capacity(padded);
    for d in rank - padded..rank {
        let first = 2 * (rank - 1 - d);
        let extent = cx.nest.nest().extent(x.axes[d]);
        dims.push((cx.number_of(1, first)?, cx.number_of(1, first + 1)?, cx.nest.size(extent)));
    }
    let over = cx.result_axes(0);
    let all: Vec<usize> = (rank - padded..rank).collect();
    let position = |s: &mut StageBuilder<'_>, d: usize, coord: Reg| {
        let (before, after, n) = dims[d + padded - rank];
        let (before, after, n) = (s.launch(before)?, s.launch(after)?, s.launch(n)?);
        let i = s.expr.binary(BinaryOp::Sub, coord, before)?;
        mode.position(s, i, n, [before, after])
    };
    let result = named::reposition(&mut cx.nest, &x, &over, &all, Outside::Nearest, position)?;
    Ok(smallvec![result.into()])
}

/// `pad` with a named mode.
fn pad(x: &Tensor, pad: &[SymInt], mode: &str, value: Option<f64>) -> Result<Outputs> {
    let name = match (mode, pad.len()) {
        ("constant", _) => {
            return maquette_ops::call(
                "aten::constant_pad_nd",
                maquette_ops::args![x, Value::from_dims(pad), Scalar::Float(value.unwrap_or(0.0))],
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
    maquette_ops::call(name, maquette_ops::args![x, Value::from_dims(pad)])
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
            How::Loops(|cx| bordered(cx, Mode::$mode)),
        )
    };
}

fn one(m: Meta) -> Metas {
    smallvec![m]
}

table! {
    /// Padding.
    static TABLE = {
        "aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor" => {
            role: General,
            lowering: border!(Reflect, 1),
            vjp: crate::grad::REARRANGED,
        },
        "aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor" => {
            role: General,
            lowering: border!(Reflect, 2),
            vjp: crate::grad::REARRANGED,
        },
        "aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor" => {
            role: General,
            lowering: border!(Reflect, 3),
            vjp: crate::grad::REARRANGED,
        },
        "aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor" => {
            role: General,
            lowering: border!(Replicate, 1),
            vjp: crate::grad::REARRANGED,
        },
        "aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor" => {
            role: General,
            lowering: border!(Replicate, 2),
            vjp: crate::grad::REARRANGED,
        },
        "aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor" => {
            role: General,
            lowering: border!(Replicate, 3),
            vjp: crate::grad::REARRANGED,
        },
        "aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| Ok(one(circular_meta(a)?)),
                How::Loops(|cx| bordered(cx, Mode::Circular)),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::_pad_enum(Tensor self, SymInt[] pad, int mode, \
            float? value=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                pad(
                    a[0].tensor()?,
                    a[1].ints()?,
                    numbered(a[2].int_i64()?)?,
                    a[3].opt(Value::float)?,
                )
            }),
        },
        "aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", \
            float? value=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                pad(a[0].tensor()?, a[1].ints()?, a[2].str()?, a[3].opt(Value::float)?)
            }),
        },
    }
}
