//! The steps that move elements between memory and blocks, with conversion to and from their class.

use super::frame::{BLOCK, Banked, Frame};
use super::steps::{Context, Step, StepFn};
use crate::element::{Element, dispatch, from_scalar};
use crate::isa::Simd;
use crate::view::Ptr;
use maquette_ir::DType;

/// Converts elements to their class.
pub(crate) struct Load<'a, T: Element>(pub &'a [T], pub &'a mut [T::Class]);
impl<T: Element> Simd for Load<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.1.iter_mut().zip(self.0) {
            *o = x.load();
        }
    }
}

pub(crate) struct Store<'a, T: Element>(pub &'a [T::Class], pub &'a mut [T]);
impl<T: Element> Simd for Store<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.1.iter_mut().zip(self.0) {
            *o = T::store(*x);
        }
    }
}

/// Loads short rows that have one distance, each of adjacent elements or of one repeated element.
struct LoadRows<'a, T: Element> {
    base: Ptr<T>,
    /// From row to row, and from element to element: 0 or 1.
    strides: [i64; 2],
    /// The elements of a row.
    n: usize,
    /// The index of the first element.
    start: usize,
    out: &'a mut [T::Class],
}

impl<T: Element> Simd for LoadRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let (mut rest, mut first) = (self.out, self.start % self.n);
        let mut at = (self.start / self.n) as i64 * self.strides[0];
        while !rest.is_empty() {
            let (row, next) = rest.split_at_mut((self.n - first).min(rest.len()));
            // SAFETY: see `StepFn`; these are elements of the row.
            unsafe {
                match self.strides[1] {
                    0 => row.fill(self.base.get(at).load()),
                    _ => {
                        let elements = self.base.slice(at + first as i64, row.len());
                        row.iter_mut().zip(elements).for_each(|(o, x)| *o = x.load());
                    }
                }
            }
            (rest, first) = (next, 0);
            at += self.strides[0];
        }
    }
}

fn load<T: Element<Class: Banked>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let (k, base) = (s.operand as usize, Ptr(cx.bases[s.operand as usize].0.cast::<T>()));
    let stride = cx.loops.inner_stride(k);
    // SAFETY: see `StepFn`; the runs stay within the operand.
    unsafe {
        if let (&[outer, stride @ 0..=1], n) = (&cx.loops.strides[k][..], cx.loops.inner_size())
            && n < BLOCK
        {
            let (start, strides) = (frame.start, [outer, stride]);
            frame.write::<T::Class>(s.dst, |_, out| {
                cx.isa.dispatch(LoadRows::<T> { base, strides, n, start, out })
            });
            return;
        }
        frame.write::<T::Class>(s.dst, |f, out| {
            cx.loops.runs(k, f.start, f.n, |pos, at, len| {
                let out = &mut out[pos..pos + len];
                match stride {
                    1 => cx.isa.dispatch(Load::<T>(base.slice(at, len), out)),
                    0 => out.fill(base.get(at).load()),
                    _ => (0..).zip(out).for_each(|(i, o)| *o = base.get(at + i * stride).load()),
                }
            });
        });
    }
}

/// Loads the elements at the address of an operand in the frame.
fn load_direct<T: Element<Class: Banked>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let base = Ptr(frame.direct[s.operand as usize].cast::<T>());
    // SAFETY: see `StepFn`; a direct operand has the elements of the block.
    unsafe {
        frame.write::<T::Class>(s.dst, |_, out| {
            cx.isa.dispatch(Load::<T>(base.slice(0, out.len()), out))
        });
    }
}

fn store<T: Element<Class: Banked>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let (k, base) = (s.operand as usize, Ptr(cx.bases[s.operand as usize].0.cast::<T>()));
    let stride = cx.loops.inner_stride(k);
    // SAFETY: see `StepFn`; the runs stay within the operand, and blocks within their own elements.
    unsafe {
        let src = frame.source::<T::Class>(s.src[0]);
        cx.loops.runs(k, frame.start, frame.n, |pos, at, len| {
            let src = &src[pos..pos + len];
            match stride {
                1 => cx.isa.dispatch(Store::<T>(src, base.slice_mut(at, len))),
                _ => (0..).zip(src).for_each(|(i, x)| base.set(at + i * stride, T::store(*x))),
            }
        });
    }
}

/// Fills a block with the one element of an operand.
fn splat_input<T: Element<Class: Banked>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`; an operand of a non-empty compiled expression has an element 0.
    unsafe {
        let x = Ptr(cx.bases[s.operand as usize].0.cast::<T>()).get(0);
        frame.write::<T::Class>(s.dst, |_, out| out.fill(x.load()));
    }
}

/// Fills a block with the one element that an operand has for a row.
fn splat_row<T: Element<Class: Banked>>(_: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`; the address of a row's element was set with the row.
    unsafe {
        let x = Ptr(frame.direct[s.operand as usize].cast::<T>()).get(0);
        frame.write::<T::Class>(s.dst, |_, out| out.fill(x.load()));
    }
}

fn splat_const<T: Element<Class: Banked>>(_: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`.
    unsafe { frame.write::<T::Class>(s.dst, |_, out| out.fill(from_scalar::<T>(s.value).load())) }
}

pub(super) fn load_direct_fn(d: DType) -> StepFn {
    dispatch!(d, T => load_direct::<T>)
}

pub(crate) fn load_fn(d: DType) -> StepFn {
    dispatch!(d, T => load::<T>)
}
pub(crate) fn store_fn(d: DType) -> StepFn {
    dispatch!(d, T => store::<T>)
}
pub(crate) fn splat_input_fn(d: DType) -> StepFn {
    dispatch!(d, T => splat_input::<T>)
}
pub(crate) fn splat_row_fn(d: DType) -> StepFn {
    dispatch!(d, T => splat_row::<T>)
}
pub(crate) fn splat_const_fn(d: DType) -> StepFn {
    dispatch!(d, T => splat_const::<T>)
}
