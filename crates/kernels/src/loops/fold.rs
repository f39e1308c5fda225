//! Folds of rows of values.

use super::functions::KernelFunctions;
use super::rows::{RowPlan, of_class};
use super::stage::{Outcome, Output, PanelContext, StagePlan, unless};
use crate::element::{Class, Element, dispatch, from_scalar};
use crate::isa::Isa;
use crate::math::Float;
use crate::pointwise::FirstFailure;
use crate::pointwise::frame::{Failure, FailureKind};
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::reduce::better;
use crate::reduce::lanes::{CHUNK, moments};
use crate::reduce::rows::{SPAN, Spans, fold_rows, row_in_spans};
use crate::scan::blocks::{Totals, scan_line};
use crate::thread_pool;
use crate::view::Ptr;
use maquette_ir::loops::Stage;
use maquette_ir::loops::fold::{Fold, Lanes, Order, ReferenceFold, State, identity};
use maquette_ir::{DType, Scalar};
use std::mem::MaybeUninit;

/// A class whose values can be folded.
pub(super) trait Folds: Class {
    /// Folds rows of at most [`CHUNK`] values in the order of lanes; see [`fold_rows`].
    ///
    /// # Safety
    /// As for [`fold_rows`].
    unsafe fn fold_rows(
        isa: Isa,
        fold: &Fold,
        rows: (Ptr<Self>, i64, usize),
        start: Self,
        out: &mut [Self],
    );

    /// Folds a row in the order of lanes; see [`row_in_spans`].
    fn fold_spans(isa: Isa, fold: &Fold, n: usize, start: Self, spans: Spans<'_, Self>) -> Self;

    /// Combines two values by the operation of a fold of one register.
    fn combine(fold: &Fold, a: Self, b: Self) -> Self;

    /// Sums a line in place, in the order of blocks. No other named fold has that order.
    fn scan_blocks(isa: Isa, line: &mut [Self]);

    /// The mean, and the sum of squared deviations.
    fn moments(isa: Isa, xs: &[Self]) -> [Self; 2];
}

/// `$body` with `$O` the operation of a fold of one register.
macro_rules! with_operation {
    ($fold:expr, $O:ident => $body:expr) => {
        match $fold {
            Fold::Prod => with_operation!(@ Mul, $O, $body),
            Fold::Min => with_operation!(@ Min, $O, $body),
            Fold::Max => with_operation!(@ Max, $O, $body),
            _ => with_operation!(@ Add, $O, $body),
        }
    };
    (@ $operation:ty, $O:ident, $body:expr) => {{
        type $O = $operation;
        $body
    }};
}

macro_rules! folds {
    ($($class:ident: $moments:expr;)*) => {
        $(impl Folds for $class {
            unsafe fn fold_rows(
                isa: Isa,
                fold: &Fold,
                (first, stride, n): (Ptr<Self>, i64, usize),
                start: Self,
                out: &mut [Self],
            ) {
                // SAFETY: the caller's promise.
                with_operation!(fold, O => unsafe {
                    fold_rows::<Self, O>(isa, first, stride, n, start, out)
                })
            }

            fn fold_spans(
                isa: Isa,
                fold: &Fold,
                n: usize,
                start: Self,
                spans: Spans<'_, Self>,
            ) -> Self {
                with_operation!(fold, O => row_in_spans::<Self, O>(isa, n, start, spans))
            }

            fn combine(fold: &Fold, a: Self, b: Self) -> Self {
                with_operation!(fold, O => <O as Op2<Self, Self>>::f(a, b))
            }

            fn scan_blocks(isa: Isa, line: &mut [Self]) {
                scan_line::<Self, Add>(isa, line, &mut Totals::new(Some(Self::default())))
            }

            fn moments(isa: Isa, xs: &[Self]) -> [Self; 2] {
                $moments(isa, xs)
            }
        })*
    };
}

fn of_floats<A: Float>(isa: Isa, xs: &[A]) -> [A; 2]
where
    Add: Op2<A, A>,
{
    moments(isa, xs)
}

/// The verifier allows moments of floats alone.
fn none<A: Class>(_: Isa, _: &[A]) -> [A; 2] {
    [A::default(); 2]
}

folds! { f32: of_floats; f64: of_floats; i64: none; bool: none; }

/// Reduces the rows of a stage's values in a panel. Returns the first failure.
pub(super) fn reduce(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    stage: &Stage,
    rows: &RowPlan,
    fold: &Fold,
    order: Order,
) -> Outcome {
    if let Fold::Of { .. } = fold {
        return reduce_states(cx, plan, stage, rows, fold, order);
    }
    let is_by_lanes = order == Order::Lanes && fold.binary_op().is_some();
    dispatch!(plan.outputs[0].buffer.dtype, T => match is_by_lanes {
        true => by_lanes::<T>(cx, plan, rows, fold),
        false => by_rows::<T>(cx, plan, rows, fold),
    })
}

fn grain(n: usize) -> usize {
    (thread_pool::GRAIN / n.max(1)).max(1)
}

fn start<T: Element>(fold: &Fold) -> T::Class {
    from_scalar::<T>(identity(fold, T::DTYPE)).load()
}

/// The address of an output's values for a panel, which are row-major.
pub(super) fn address<T>(cx: &PanelContext<'_>, output: &Output) -> Ptr<T> {
    Ptr(output.access.address(cx).0.cast())
}

/// Folds of one register in the order of lanes.
fn by_lanes<T: Element<Class: Folds>>(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    rows: &RowPlan,
    fold: &Fold,
) -> Outcome {
    let (isa, n, start) = (cx.run.isa, rows.n, start::<T>(fold));
    let out = address::<T>(cx, &plan.outputs[0]);
    let failure = FirstFailure::default();
    // Evaluates some values of the panel.
    let part = |from: usize, to: usize, part: &mut Part<T::Class>| {
        failure.add(plan.values[0].run_part(cx, from, to, part.address()));
    };
    let in_memory = rows.rows::<T>(cx);
    let short = |from: usize, to: usize, out: &mut [T::Class]| match &in_memory {
        // SAFETY: the rows are in memory, and `T` is its class.
        Some(xs) => xs.runs(from, to, |first, stride, count, row| unsafe {
            let rows = (Ptr(first.0.cast()), stride, n);
            Folds::fold_rows(isa, fold, rows, start, &mut out[row..row + count]);
        }),
        None => {
            let mut values = Part::new();
            let fitting = SPAN / n.max(1);
            for (out, row) in out.chunks_mut(fitting).zip((from..).step_by(fitting)) {
                part(row * n, (row + out.len()) * n, &mut values);
                // SAFETY: the values of these rows were written.
                unsafe {
                    let rows = (Ptr(values.address().0.cast()), n as i64, n);
                    Folds::fold_rows(isa, fold, rows, start, out);
                }
            }
        }
    };
    let long = |row: usize| -> T::Class {
        let spans = |at: usize, len: usize, f: &mut dyn FnMut(&[T::Class])| match &in_memory {
            Some(xs) => {
                let elements = &xs.elements(row)[at..at + len];
                match of_class::<T>(elements) {
                    Some(values) => f(values),
                    None => {
                        let mut values = [T::Class::default(); SPAN];
                        values.iter_mut().zip(elements).for_each(|(v, x)| *v = x.load());
                        f(&values[..len]);
                    }
                }
            }
            None => {
                let mut values = Part::new();
                part(row * n + at, row * n + at + len, &mut values);
                // SAFETY: the values of the span were written.
                f(unsafe { Ptr(values.address().0.cast()).slice(0, len) });
            }
        };
        Folds::fold_spans(isa, fold, n, start, &spans)
    };
    let is_short = n <= CHUNK && T::DTYPE == <T::Class as Element>::DTYPE;
    thread_pool::ranges(rows.count(cx), grain(n), 1, &|from, to| {
        // SAFETY: an output has a place for each row, and a row belongs to one task. In a short
        // fold `T` is its class.
        unsafe {
            match is_short {
                true => short(from, to, Ptr(out.0.cast()).slice_mut(from as i64, to - from)),
                false => (from..to).for_each(|row| out.set(row as i64, T::store(long(row)))),
            }
        }
        Ok(())
    })?;
    unless(failure.get())
}

/// Memory for the values of a part: whole rows, or a span of one.
struct Part<A>([MaybeUninit<A>; SPAN]);

impl<A: Class> Part<A> {
    fn new() -> Part<A> {
        Part([MaybeUninit::uninit(); SPAN])
    }

    fn address(&mut self) -> Ptr<u8> {
        Ptr(self.0.as_mut_ptr().cast())
    }
}

/// Folds that take one row after the other from memory.
fn by_rows<T: Element<Class: Folds>>(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    rows: &RowPlan,
    fold: &Fold,
) -> Outcome {
    let Some(xs) = rows.rows::<T>(cx) else { return Ok(()) };
    let start = start::<T>(fold);
    let out = address::<T>(cx, &plan.outputs[0]);
    let second = plan.outputs.get(1).map(|output| address::<u8>(cx, output));
    thread_pool::ranges(rows.count(cx), grain(rows.n), 1, &|from, to| {
        for r in from..to {
            let (row, at) = (xs.row(r), r as i64);
            // SAFETY: an output has a place for each row, and a row belongs to one task.
            unsafe {
                match fold {
                    Fold::ArgMin | Fold::ArgMax => {
                        let (x, index) = extreme(*fold == Fold::ArgMax, &row, start);
                        out.set(at, T::store(x));
                        if let Some(second) = second {
                            Ptr(second.0.cast::<i64>()).set(at, index);
                        }
                    }
                    Fold::Moments => {
                        let [mean, squares] = Folds::moments(cx.run.isa, &row);
                        out.set(at, T::store(mean.one_nan()));
                        if let Some(second) = second {
                            Ptr(second.0.cast::<T>()).set(at, T::store(squares.one_nan()));
                        }
                    }
                    fold => {
                        let combine = |state, x: &T::Class| Folds::combine(fold, state, *x);
                        let x: T::Class = row.iter().fold(start, combine);
                        out.set(at, T::store(x.one_nan()));
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// The extreme of a row with its index: of the first of equal ones, or the first NaN.
fn extreme<A: Class>(max: bool, xs: &[A], start: A) -> (A, i64) {
    let Some((first, rest)) = xs.split_first() else { return (start, 0) };
    let (mut best, mut at) = (*first, 0);
    for (x, i) in rest.iter().zip(1..) {
        if better(max, *x, best) {
            (best, at) = (*x, i);
        }
    }
    (best.one_nan(), at)
}

/// Folds of several registers, or by an expression: one value at a time, by the reference.
fn reduce_states(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    stage: &Stage,
    rows: &RowPlan,
    fold: &Fold,
    order: Order,
) -> Outcome {
    let reference = reference(stage, fold, order);
    for r in 0..rows.count(cx) {
        let states: Vec<State> = (0..rows.n).map(|i| state(cx, plan, r * rows.n + i)).collect();
        let Ok(state) = reference.fold(&states) else { return Err(division(r, rows.n).into()) };
        for (x, out) in state.into_iter().zip(&plan.outputs) {
            write(address(cx, out), out.buffer.dtype, r, x);
        }
    }
    Ok(())
}

/// The reference of a stage's fold, with the kernels' functions.
pub(super) fn reference<'f>(stage: &Stage, fold: &'f Fold, order: Order) -> ReferenceFold<'f> {
    let dtypes = stage.expr.output_dtypes().collect();
    ReferenceFold { fold, order, lanes: Lanes::ORDER, dtypes, functions: &KernelFunctions }
}

/// The only failure of a fold's operation.
pub(super) fn division(row: usize, n: usize) -> Failure {
    Failure { at: (row * n) as i64, instr: u32::MAX, kind: FailureKind::DivisionByZero }
}

/// The registers of a value, by its row-major index.
pub(super) fn state(cx: &PanelContext<'_>, plan: &StagePlan, at: usize) -> State {
    let buffers = plan.values.iter().flat_map(|values| &values.buffers);
    buffers.map(|buffer| element(cx.base(buffer.base), buffer.dtype, at)).collect()
}

/// An element of a tensor in memory.
pub(super) fn element(base: Ptr<u8>, dtype: DType, at: usize) -> Scalar {
    // SAFETY: the element was computed.
    dispatch!(dtype, T => {
        scalar(unsafe { Ptr(base.0.cast::<T>()).get(at as i64) }.load())
    })
}

/// Writes an element of a tensor in memory.
pub(super) fn write(base: Ptr<u8>, dtype: DType, at: usize, x: Scalar) {
    // SAFETY: the buffer has the element, and belongs to this task.
    dispatch!(dtype, T => unsafe {
        Ptr(base.0.cast::<T>()).set(at as i64, from_scalar::<T>(x))
    });
}

/// A value as a scalar.
fn scalar<A: Class>(x: A) -> Scalar {
    match A::DTYPE {
        DType::Bool => Scalar::Bool(x.to_bool()),
        DType::I64 => Scalar::Int(x.to_i64()),
        _ => Scalar::Float(x.to_f64()),
    }
}
