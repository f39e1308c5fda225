//! Steps of cheap operations on floats with an operand that is one element for all of a block.
//!
//! For such an operation, the time to fill and read a block of copies is that of the operation
//! itself.

use super::frame::{Banked, Frame};
use super::ops::{self, Op2};
use super::steps::{Context, Kind, Step, StepFn, class_of};
use crate::isa::{Each, Simd};
use crate::math::Float;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{BinaryOp, Op, UnaryOp};
use std::marker::PhantomData;

/// `out[i] = f(scalar, xs[i])`, or with the operands exchanged if `RIGHT`.
struct WithScalar<'a, A, O, const RIGHT: bool>(&'a [A], A, &'a mut [A], PhantomData<O>);

impl<A: Copy, O: Op2<A, A>, const RIGHT: bool> Simd for WithScalar<'_, A, O, RIGHT> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.2.iter_mut().zip(self.0) {
            *o = if RIGHT { O::f(*x, self.1) } else { O::f(self.1, *x) };
        }
    }
}

fn with_scalar<A: Banked, O: Op2<A, A>, const RIGHT: bool>(
    cx: &Context<'_>,
    frame: &mut Frame,
    s: &Step,
) {
    let (block, scalar) = if RIGHT { (s.src[0], s.src[1]) } else { (s.src[1], s.src[0]) };
    // SAFETY: see `StepFn`.
    unsafe {
        frame.write::<A>(s.dst, |f, out| {
            let scalar = f.source::<A>(scalar).first().copied().unwrap_or_default();
            cx.isa.dispatch_inline(WithScalar::<A, O, RIGHT>(
                f.source(block),
                scalar,
                out,
                PhantomData,
            ))
        })
    }
}

/// The operation on the memory of its first operand. The second one is a scalar.
fn in_place<A: Banked, O: Op2<A, A>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`; no other reference to the first operand exists.
    unsafe {
        frame.write::<A>(s.dst, |f, out| {
            let scalar = f.source::<A>(s.src[1]).first().copied().unwrap_or_default();
            cx.isa.dispatch_inline(Each(out, |x| O::f(x, scalar)))
        })
    }
}

/// `out[i] = exp(xs[i] - scalar)`, rounded twice.
struct ExpOfDifference<'a>(&'a [f64], f64, &'a mut [f64]);

impl Simd for ExpOfDifference<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.2.iter_mut().zip(self.0) {
            *o = Float::exp(*x - self.1);
        }
    }
}

fn exp_of_difference(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`.
    unsafe {
        frame.write::<f64>(s.dst, |f, out| {
            let scalar = f.source::<f64>(s.src[1]).first().copied().unwrap_or_default();
            cx.isa.dispatch_inline(ExpOfDifference(f.source(s.src[0]), scalar, out))
        })
    }
}

/// The step of an operation with a scalar as its right operand, and then another: for the
/// exponential of a softmax of `f64`. In `f32`, [chains](super::chain) have the exponential, and
/// take each step for one operation.
pub(super) fn joined_fn(first: Op, second: UnaryOp, d: DType) -> Option<StepFn> {
    match (first, second, d) {
        (Op::Binary(BinaryOp::Sub, ..), UnaryOp::Exp, DType::F64) => Some(exp_of_difference),
        _ => None,
    }
}

/// Whether there are steps for an operation of this dtype with a scalar operand.
pub(super) fn is_known(op: BinaryOp, d: DType) -> bool {
    d.is_float() && float::<f32, true>(op).is_some()
}

/// `match op { Name => step::<…, ops::Name, …>, … }`, or `None`.
macro_rules! table {
    ($op:expr, $name:ident => $step:expr) => {
        Some(match $op {
            BinaryOp::Add => table!(@ Add, $name, $step),
            BinaryOp::Sub => table!(@ Sub, $name, $step),
            BinaryOp::Mul => table!(@ Mul, $name, $step),
            BinaryOp::Div => table!(@ Div, $name, $step),
            BinaryOp::Min => table!(@ Min, $name, $step),
            BinaryOp::Max => table!(@ Max, $name, $step),
            _ => return None,
        })
    };
    (@ $operation:ident, $name:ident, $step:expr) => {{
        type $name = ops::$operation;
        $step
    }};
}

fn float<A: Float + Banked, const RIGHT: bool>(op: BinaryOp) -> Option<StepFn> {
    table!(op, O => with_scalar::<A, O, RIGHT>)
}

fn float_in_place<A: Float + Banked>(op: BinaryOp) -> Option<StepFn> {
    table!(op, O => in_place::<A, O>)
}

/// The step of an operation on the memory of its first operand, whose second one is a scalar.
pub(super) fn in_place_fn(op: Op, d: DType) -> Option<StepFn> {
    let Op::Binary(op, ..) = op else { return None };
    match d {
        DType::F32 => float_in_place::<f32>(op),
        DType::F64 => float_in_place::<f64>(op),
        _ => None,
    }
}

/// The step of an operation whose operand `scalar` is a scalar.
pub(super) fn step_fn(op: Op, d: DType, scalar: usize) -> Option<StepFn> {
    let Op::Binary(op, ..) = op else { return None };
    match (class_of(d), scalar) {
        (Kind::F32, 0) => float::<f32, false>(op),
        (Kind::F32, _) => float::<f32, true>(op),
        (Kind::F64, 0) => float::<f64, false>(op),
        (Kind::F64, _) => float::<f64, true>(op),
        _ => None,
    }
}
