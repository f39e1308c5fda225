//! Folds of rows of values.

use super::access::Buffer;
use super::functions::KernelFunctions;
use super::stage::{PanelContext, StagePlan};
use super::values::Values;
use crate::element::{Class, Element, dispatch, from_scalar};
use crate::error::Result;
use crate::isa::Isa;
use crate::math::Float;
use crate::pointwise::frame::{Failure, FailureKind};
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::reduce::better;
use crate::reduce::lanes::{moments, row};
use crate::thread_pool;
use crate::view::{Ptr, numel};
use maquette_ir::loops::fold::{Fold, Lanes, Order, ReferenceFold, State, identity};
use maquette_ir::{DType, Scalar};
use std::borrow::Cow;

/// A class whose values can be folded.
pub(super) trait Folds: Class {
    /// Folds a row by the operation of a fold of one register.
    fn fold(isa: Isa, fold: &Fold, order: Order, xs: &[Self], identity: Self) -> Self;

    /// Combines two values by such an operation.
    fn combine(fold: &Fold, a: Self, b: Self) -> Self;

    /// The mean, and the sum of squared deviations.
    fn moments(isa: Isa, xs: &[Self]) -> [Self; 2];
}

fn by<A: Class, O: Op2<A, A>>(isa: Isa, order: Order, xs: &[A], identity: A) -> A {
    match order {
        Order::Lanes => row::<A, O>(isa, xs, identity),
        Order::Sequential => xs.iter().fold(identity, |state, x| O::f(state, *x)),
    }
}

macro_rules! folds {
    ($($class:ident: $moments:expr;)*) => {
        $(impl Folds for $class {
            fn fold(isa: Isa, fold: &Fold, order: Order, xs: &[Self], identity: Self) -> Self {
                match fold {
                    Fold::Prod => by::<Self, Mul>(isa, order, xs, identity),
                    Fold::Min => by::<Self, Min>(isa, order, xs, identity),
                    Fold::Max => by::<Self, Max>(isa, order, xs, identity),
                    _ => by::<Self, Add>(isa, order, xs, identity),
                }
            }

            fn combine(fold: &Fold, a: Self, b: Self) -> Self {
                match fold {
                    Fold::Prod => <Mul as Op2<Self, Self>>::f(a, b),
                    Fold::Min => <Min as Op2<Self, Self>>::f(a, b),
                    Fold::Max => <Max as Op2<Self, Self>>::f(a, b),
                    _ => <Add as Op2<Self, Self>>::f(a, b),
                }
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
    plan: &StagePlan<'_>,
    fold: &Fold,
    order: Order,
) -> Result<Option<Failure>> {
    let values = &plan.values[0];
    let sizes = cx.sizes(values);
    // The kept axes come first, and those of an output are its dimensions, row-major.
    let kept = plan.stage.axes().len() - cx.panels.fixed;
    let (rows, n) = (numel(&sizes[..kept]), numel(&sizes[kept..]));
    let grain = (thread_pool::GRAIN / n.max(1)).max(1);
    if let Fold::Of { .. } = fold {
        return reduce_states(cx, plan, fold, order, rows, n);
    }
    let [out, rest @ ..] = &plan.outputs[..] else { return Ok(None) };
    dispatch!(values.buffers[0].dtype, T => {
        let xs = Rows::<T>::new(cx, &values.buffers[0], n);
        let out = Ptr(out.base.address(cx.memory).0.cast::<T>());
        let second = rest.first().map(|b| b.base.address(cx.memory));
        let start: <T as Element>::Class = from_scalar::<T>(identity(fold, T::DTYPE)).load();
        thread_pool::ranges(rows, grain, 1, &|from, to| {
            for r in from..to {
                let row = xs.row(r);
                let at = r as i64;
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
                            let [mean, squares] = Folds::moments(cx.launch.isa, &row);
                            out.set(at, T::store(mean.one_nan()));
                            if let Some(second) = second {
                                Ptr(second.0.cast::<T>()).set(at, T::store(squares.one_nan()));
                            }
                        }
                        fold => {
                            let x = Folds::fold(cx.launch.isa, fold, order, &row, start);
                            out.set(at, T::store(x.one_nan()));
                        }
                    }
                }
            }
            Ok(())
        })?;
    });
    Ok(None)
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
    plan: &StagePlan<'_>,
    fold: &Fold,
    order: Order,
    rows: usize,
    n: usize,
) -> Result<Option<Failure>> {
    let values = &plan.values[0];
    let reference = reference(plan, fold, order);
    for r in 0..rows {
        let states: Vec<State> = (0..n).map(|i| state(cx, values, r * n + i)).collect();
        let Ok(state) = reference.fold(&states) else { return Ok(Some(division(r, n))) };
        for (x, out) in state.into_iter().zip(&plan.outputs) {
            write(cx, out, r, x);
        }
    }
    Ok(None)
}

/// The reference of a stage's fold, with the kernels' functions.
pub(super) fn reference<'f>(
    plan: &StagePlan<'_>,
    fold: &'f Fold,
    order: Order,
) -> ReferenceFold<'f> {
    let dtypes = plan.stage.expr.output_dtypes().collect();
    ReferenceFold { fold, order, lanes: Lanes::CPU, dtypes, functions: &KernelFunctions }
}

/// The only failure of a fold's operation.
pub(super) fn division(row: usize, n: usize) -> Failure {
    Failure { at: (row * n) as i64, instr: u32::MAX, kind: FailureKind::DivisionByZero }
}

/// The registers of a value, by its row-major index.
pub(super) fn state(cx: &PanelContext<'_>, values: &Values, at: usize) -> State {
    values.buffers.iter().map(|buffer| element(cx, buffer, at)).collect()
}

/// An element of a row-major buffer of the panel.
pub(super) fn element(cx: &PanelContext<'_>, buffer: &Buffer, at: usize) -> Scalar {
    let base = buffer.base.address(cx.memory);
    // SAFETY: the element was computed.
    dispatch!(buffer.dtype, T => {
        scalar(unsafe { Ptr(base.0.cast::<T>()).get(at as i64) }.load())
    })
}

/// Writes an element of a row-major buffer of the panel.
pub(super) fn write(cx: &PanelContext<'_>, buffer: &Buffer, at: usize, x: Scalar) {
    let base = buffer.base.address(cx.memory);
    // SAFETY: the buffer has the element, and belongs to this task.
    dispatch!(buffer.dtype, T => unsafe {
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

/// Rows of values as values of their class.
pub(super) struct Rows<T> {
    base: Ptr<T>,
    n: usize,
}

impl<T: Element> Rows<T> {
    pub fn new(cx: &PanelContext<'_>, values: &Buffer, n: usize) -> Rows<T> {
        Rows { base: Ptr(values.base.address(cx.memory).0.cast()), n }
    }

    /// A row: in place if its dtype is a class.
    pub fn row(&self, row: usize) -> Cow<'_, [T::Class]> {
        let at = (row * self.n) as i64;
        // SAFETY: the values were computed, and nothing writes them now. If the dtypes are equal,
        // so are the types.
        unsafe {
            match T::DTYPE == <T::Class as Element>::DTYPE {
                true => Cow::Borrowed(Ptr(self.base.0.cast::<T::Class>()).slice(at, self.n)),
                false => self.base.slice(at, self.n).iter().map(|x| x.load()).collect(),
            }
        }
    }
}
