//! The steps of an expression in a loop nest: coordinates, launch scalars, reads at computed
//! positions, and assertions.
//!
//! A coordinate is an operand without memory: its strides are 1 along its axis and 0 elsewhere, so
//! that the offset of an element is the coordinate, and the "address" of its element 0 is the first
//! coordinate. Sorted, merged and blocked loops thus need no special case. The row-major index of
//! an element is such an operand, too; only failures use it.

use super::frame::{Banked, Failure, FailureKind, Frame, Location};
use super::steps::{Context, Step, StepFn};
use crate::element::{Element, dispatch, from_scalar};
use crate::error::Result;
use crate::view::Ptr;
use maquette_ir::scalar_expr::{Bounds, Read, Reg};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;

/// The place of an expression in a launched loop nest.
pub(crate) struct Place<'a> {
    /// The launch scalars.
    pub scalars: &'a [Scalar],
    /// The computed dimensions of each load.
    pub computed: &'a [SmallVec<[ComputedDim; 2]>],
    /// The operand of row-major indices.
    pub index_operand: usize,
}

/// A dimension of a source whose positions are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComputedDim {
    pub dim: usize,
    pub size: i64,
    pub stride: i64,
}

/// A read at computed positions, with the locations of its operands.
pub(crate) struct ReadStep {
    input: u32,
    at: SmallVec<[Location; 4]>,
    bounds: Bounds,
    padding: Option<Location>,
    when: Option<Location>,
}

impl ReadStep {
    pub fn new(read: &Read, mut locate: impl FnMut(Reg) -> Result<Location>) -> Result<ReadStep> {
        let at = read.at.regs().iter().map(|r| locate(*r)).collect::<Result<_>>()?;
        let padding = match read.bounds {
            Bounds::Else(r) => Some(locate(r)?),
            _ => None,
        };
        let when = read.when.map(locate).transpose()?;
        Ok(ReadStep { input: read.input, at, bounds: read.bounds, padding, when })
    }

    /// A read whose positions are those of a row, at these locations, without padding.
    pub fn of_row(read: &Read, at: SmallVec<[Location; 4]>) -> ReadStep {
        ReadStep { input: read.input, at, bounds: read.bounds, padding: None, when: None }
    }

    /// The position in a dimension for one that was asked for; `None` outside.
    fn position(&self, dim: &ComputedDim, asked: i64) -> Option<i64> {
        let position = match self.bounds {
            Bounds::Wraps if asked < 0 => asked.saturating_add(dim.size),
            Bounds::Clamps => asked.min(dim.size - 1).max(0),
            _ => asked,
        };
        (0..dim.size).contains(&position).then_some(position)
    }

    /// Whether it is one of a single position, which is taken as it is, without padding.
    fn is_plain(&self) -> bool {
        self.at.len() == 1
            && self.when.is_none()
            && matches!(self.bounds, Bounds::Fails | Bounds::Inside)
    }
}

/// Writes coordinates.
pub(super) fn coord(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let k = s.operand as usize;
    let (first, stride) = (cx.bases[k].0.addr() as i64, cx.loops.inner_stride(k));
    // SAFETY: see `StepFn`.
    unsafe {
        frame.write::<i64>(s.dst, |f, out| {
            cx.loops.runs(k, f.start, f.n, |pos, at, len| {
                let coords = (0..).map(|i| first + at + i * stride);
                out[pos..pos + len].iter_mut().zip(coords).for_each(|(o, c)| *o = c);
            });
        });
    }
}

fn launch<T: Element<Class: Banked>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let scalars = cx.place.map_or(&[][..], |place| place.scalars);
    let value = scalars.get(s.operand as usize).copied().unwrap_or(Scalar::Int(0));
    // SAFETY: see `StepFn`.
    unsafe { frame.write::<T::Class>(s.dst, |_, out| out.fill(from_scalar::<T>(value).load())) }
}

/// Copies a bool, and fails where it is false.
pub(super) fn assert(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`; a direct destination is written by this step alone.
    unsafe {
        frame.write::<bool>(s.dst, |f, out| out.copy_from_slice(f.source(s.src[0])));
        let holds = frame.source::<bool>(s.src[0]);
        let failing = (0..holds.len()).filter(|&i| !holds[i]);
        if let Some(at) = failing.map(|i| cx.index(frame.start + i)).min() {
            let kind = FailureKind::Assertion(u32::from(s.operand));
            frame.fail(Failure { at, instr: s.instr, kind });
        }
    }
}

fn read<T: Element<Class: Banked>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let Some(place) = cx.place else { return };
    let read = &cx.reads[s.operand as usize];
    let k = read.input as usize;
    let (base, stride) = (Ptr(cx.bases[k].0.cast::<T>()), cx.loops.inner_stride(k));
    let dims = &place.computed[k];
    let mut failure: Option<Failure> = None;
    // SAFETY: see `StepFn`; every position is checked against its dimension.
    unsafe {
        frame.write::<T::Class>(s.dst, |f, out| {
            let at: SmallVec<[&[i64]; 4]> = read.at.iter().map(|l| f.source(*l)).collect();
            let when = read.when.map(|l| f.source::<bool>(l));
            let padding = read.padding.map(|l| f.source::<T::Class>(l));
            cx.loops.runs(k, f.start, f.n, |pos, affine, len| {
                if let ([dim], [at], true) = (&dims[..], &at[..], read.is_plain()) {
                    let at = &at[pos..pos + len];
                    if at.iter().all(|at| (0..dim.size).contains(at)) {
                        let elements = out[pos..pos + len].iter_mut().zip(at);
                        for (i, (out, at)) in (0..).zip(elements) {
                            *out = base.get(affine + i * stride + at * dim.stride).load();
                        }
                        return;
                    }
                }
                for i in 0..len {
                    let e = pos + i;
                    let padding = padding.map(|p| p[e]);
                    if when.is_some_and(|when| !when[e]) {
                        out[e] = padding.unwrap_or_default();
                        continue;
                    }
                    let mut offset = affine + i as i64 * stride;
                    let mut outside = None;
                    for (dim, at) in dims.iter().zip(&at) {
                        let Some(position) = read.position(dim, at[e]) else {
                            outside = Some((at[e], *dim));
                            break;
                        };
                        offset += position * dim.stride;
                    }
                    out[e] = match (outside, padding) {
                        (None, _) => base.get(offset).load(),
                        (Some(_), Some(padding)) => padding,
                        (Some((position, ComputedDim { dim, size, .. })), None) => {
                            let at = cx.index(f.start + e);
                            let kind = FailureKind::Index { position, dim, size };
                            let new = Failure { at, instr: s.instr, kind };
                            failure = Some(failure.map_or(new, |first| first.min(new)));
                            T::Class::default()
                        }
                    };
                }
            });
        });
    }
    if let Some(failure) = failure {
        frame.fail(failure);
    }
}

/// Moves the address of a row to the positions that are those of the row. Where one is outside, the
/// row is read at the first position.
fn read_row<T>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let Some(place) = cx.place else { return };
    let read = &cx.reads[s.operand as usize];
    let k = read.input as usize;
    let mut offset = 0;
    for (dim, at) in place.computed[k].iter().zip(&read.at) {
        // SAFETY: see `StepFn`; a value of a row has an element.
        let asked = unsafe { frame.source::<i64>(*at) }.first().copied().unwrap_or(-1);
        let Some(position) = read.position(dim, asked) else {
            let kind = FailureKind::Index { position: asked, dim: dim.dim, size: dim.size };
            frame.fail(Failure { at: cx.index(frame.start), instr: s.instr, kind });
            // No dimension is empty.
            offset = 0;
            break;
        };
        offset += position * dim.stride;
    }
    let bytes = offset.wrapping_mul(size_of::<T>() as i64) as isize;
    frame.direct[k] = frame.direct[k].wrapping_offset(bytes);
}

pub(super) fn launch_fn(d: DType) -> StepFn {
    dispatch!(d, T => launch::<T>)
}

pub(super) fn read_row_fn(d: DType) -> StepFn {
    dispatch!(d, T => read_row::<T>)
}

pub(super) fn read_fn(d: DType) -> StepFn {
    dispatch!(d, T => read::<T>)
}
