//! The steps of a compiled expression: operations on blocks. Each step is a function pointer to a
//! loop that is specialised for the operation and its class.

use super::chain::Chain;
use super::frame::{Banked, Failure, FailureKind, Frame, Location};
use super::moves;
use super::ops::{self, InPlaceOp, Op1, Op2, choose, map1, map2};
use super::place::{self, Place, ReadStep};
use crate::element::{Class, Element, dispatch};
use crate::isa::Isa;
use crate::layout::Loops;
use crate::math::Float;
use crate::view::Ptr;
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, Op, UnaryOp};
use maquette_ir::{DType, Scalar};
use std::marker::PhantomData;

/// The context shared by all steps of a running compiled expression.
pub(crate) struct Context<'a> {
    pub isa: Isa,
    pub loops: &'a Loops,
    /// The addresses of the operands' elements 0: inputs, outputs, then what
    /// [`place`](super::place) adds.
    pub bases: &'a [Ptr<u8>],
    /// The reads at computed positions, which their steps refer to.
    pub reads: &'a [ReadStep],
    /// The chains, which their steps refer to.
    pub chains: &'a [Chain],
    /// The place of the expression in a loop nest.
    pub place: Option<&'a Place<'a>>,
}

impl Context<'_> {
    /// The row-major index of an element of the loops, in failures.
    pub fn index(&self, flat: usize) -> i64 {
        self.place.map_or(0, |place| {
            let k = place.index_operand;
            self.loops.offset(k, flat) + self.bases[k].0.addr() as i64
        })
    }
}

/// One step: `run` reads `src` and writes `dst`.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub run: StepFn,
    pub dst: Location,
    pub src: [Location; 3],
    /// The operand in memory, for moves; the chain, for chains.
    pub operand: u16,
    /// Whether it is a move.
    pub in_memory: bool,
    /// The constant, for splats.
    pub value: Scalar,
    /// The instruction.
    pub instr: u32,
}

// SAFETY (for every function of this type): compilation assigns each location a block or address of
// the class with which the step uses it. Source and destination of a step never overlap, except for
// [`in_place`], whose destination is its first operand, and for chains.
pub(crate) type StepFn = fn(&Context<'_>, &mut Frame, &Step);

fn step1<A: Banked, R: Banked, O: Op1<A, R>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`.
    unsafe { frame.write::<R>(s.dst, |f, out| map1::<A, R, O>(cx.isa, f.source(s.src[0]), out)) }
}

fn step2<A: Banked, R: Banked, O: Op2<A, R>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`.
    unsafe {
        frame.write::<R>(s.dst, |f, out| {
            map2::<A, R, O>(cx.isa, f.source(s.src[0]), f.source(s.src[1]), out)
        })
    }
}

/// A binary operation whose first operand is the destination.
fn in_place<A: Banked, O: Op2<A, A>>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`; no other reference to the first operand exists.
    unsafe {
        frame.write::<A>(s.dst, |f, out| {
            cx.isa.dispatch(InPlaceOp::<A, O>(out, f.source(s.src[1]), PhantomData))
        })
    }
}

fn select<A: Banked>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`.
    unsafe {
        frame.write::<A>(s.dst, |f, out| {
            choose(cx.isa, f.source(s.src[0]), f.source(s.src[1]), f.source(s.src[2]), out)
        })
    }
}

/// Fails if any divisor is zero.
pub(crate) fn check_divisor(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    // SAFETY: see `StepFn`.
    let divisors = unsafe { frame.source::<i64>(s.src[0]) };
    if divisors.contains(&0) {
        let zeros = (0..divisors.len()).filter(|&i| divisors[i] == 0);
        let first = zeros.map(|i| cx.index(frame.start + i)).min().unwrap_or(0);
        frame.fail(Failure { at: first, instr: s.instr, kind: FailureKind::DivisionByZero });
    }
}

/// A cast to `T`, with the result in `T`'s class. From `T`'s own class, this is rounding to `T`.
struct CastTo<T>(PhantomData<T>);
impl<A: Class, T: Element> Op1<A, T::Class> for CastTo<T> {
    #[inline(always)]
    fn f(a: A) -> T::Class {
        T::store(T::Class::cast(a)).load()
    }
}

pub(crate) fn cast_fn(from: DType, to: DType) -> StepFn {
    dispatch!(to, T => cast_from::<T>(class_of(from)))
}
fn cast_from<T: Element<Class: Banked>>(from: Kind) -> StepFn {
    match from {
        Kind::F32 => step1::<f32, T::Class, CastTo<T>>,
        Kind::F64 => step1::<f64, T::Class, CastTo<T>>,
        Kind::I64 => step1::<i64, T::Class, CastTo<T>>,
        Kind::Bool => step1::<bool, T::Class, CastTo<T>>,
    }
}

/// The four classes as values. The discriminant indexes the counts of scratch blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F64,
    I64,
    Bool,
}

pub(crate) fn class_of(d: DType) -> Kind {
    match d {
        DType::F16 | DType::BF16 | DType::F32 => Kind::F32,
        DType::F64 => Kind::F64,
        DType::Bool => Kind::Bool,
        _ => Kind::I64,
    }
}

/// `match op { Name => step::<.., ops::Name>, … }`, or `None`.
macro_rules! table {
    ($step:ident<$a:ty, $r:ty>, $e:ident, $op:expr; $($name:ident)*) => {
        match $op { $($e::$name => Some($step::<$a, $r, ops::$name> as StepFn),)* _ => None }
    };
}

fn unary_float<T: Float + Banked>(op: UnaryOp) -> Option<StepFn> {
    match op {
        UnaryOp::IsNan => Some(step1::<T, bool, ops::IsNan>),
        UnaryOp::IsInf => Some(step1::<T, bool, ops::IsInf>),
        _ => {
            table!(step1<T, T>, UnaryOp, op;
                Neg Abs Sign Floor Ceil Round Trunc Sqrt Rsqrt Reciprocal Exp Exp2 Expm1
                Log Log2 Log10 Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh
                Asinh Acosh Atanh Erf Erfc Sigmoid)
        }
    }
}

/// The step of a unary operation; `None` for a dtype it does not take.
pub(crate) fn unary_fn(op: UnaryOp, d: DType) -> Option<StepFn> {
    match class_of(d) {
        Kind::F32 => unary_float::<f32>(op),
        Kind::F64 => unary_float::<f64>(op),
        Kind::I64 => table!(step1<i64, i64>, UnaryOp, op; Neg Abs Sign Not),
        Kind::Bool => table!(step1<bool, bool>, UnaryOp, op; Not),
    }
}

fn binary_float<T: Float + Banked>(op: BinaryOp) -> Option<StepFn> {
    table!(step2<T, T>, BinaryOp, op;
        Add Sub Mul Div FloorDiv TruncDiv Fmod Remainder Pow Min Max Atan2 Hypot Copysign)
}

fn in_place_float<T: Float + Banked>(op: BinaryOp) -> Option<StepFn> {
    Some(match op {
        BinaryOp::Add => in_place::<T, ops::Add>,
        BinaryOp::Sub => in_place::<T, ops::Sub>,
        BinaryOp::Mul => in_place::<T, ops::Mul>,
        BinaryOp::Div => in_place::<T, ops::Div>,
        BinaryOp::Min => in_place::<T, ops::Min>,
        BinaryOp::Max => in_place::<T, ops::Max>,
        _ => return None,
    })
}

/// The step of a binary operation onto its first operand. `None` for operations bound by
/// computation rather than memory traffic, which gain nothing in place.
pub(crate) fn in_place_fn(op: BinaryOp, d: DType) -> Option<StepFn> {
    match d {
        DType::F32 => in_place_float::<f32>(op),
        DType::F64 => in_place_float::<f64>(op),
        _ => None,
    }
}

fn shift<const BITS: i64>(op: BinaryOp) -> Option<StepFn> {
    match op {
        BinaryOp::Shl => Some(step2::<i64, i64, ops::Shl<BITS>>),
        _ => Some(step2::<i64, i64, ops::Shr<BITS>>),
    }
}

/// The step of a binary operation; `None` for a dtype it does not take.
pub(crate) fn binary_fn(op: BinaryOp, d: DType) -> Option<StepFn> {
    match class_of(d) {
        Kind::F32 => binary_float::<f32>(op),
        Kind::F64 => binary_float::<f64>(op),
        Kind::I64 if matches!(op, BinaryOp::Shl | BinaryOp::Shr) => match d.size() {
            1 => shift::<8>(op),
            2 => shift::<16>(op),
            4 => shift::<32>(op),
            _ => shift::<64>(op),
        },
        Kind::I64 => {
            table!(step2<i64, i64>, BinaryOp, op;
                Add Sub Mul FloorDiv TruncDiv Fmod Remainder Pow Min Max And Or Xor)
        }
        Kind::Bool => table!(step2<bool, bool>, BinaryOp, op; Add Mul Min Max And Or Xor),
    }
}

fn compare_as<T: Banked>(op: CmpOp) -> StepFn {
    match op {
        CmpOp::Eq => step2::<T, bool, ops::Eq>,
        CmpOp::Ne => step2::<T, bool, ops::Ne>,
        CmpOp::Lt => step2::<T, bool, ops::Lt>,
        CmpOp::Le => step2::<T, bool, ops::Le>,
        CmpOp::Gt => step2::<T, bool, ops::Gt>,
        CmpOp::Ge => step2::<T, bool, ops::Ge>,
    }
}

pub(crate) fn compare_fn(op: CmpOp, d: DType) -> StepFn {
    match class_of(d) {
        Kind::F32 => compare_as::<f32>(op),
        Kind::F64 => compare_as::<f64>(op),
        Kind::I64 => compare_as::<i64>(op),
        Kind::Bool => compare_as::<bool>(op),
    }
}

pub(crate) fn select_fn(d: DType) -> StepFn {
    match class_of(d) {
        Kind::F32 => select::<f32>,
        Kind::F64 => select::<f64>,
        Kind::I64 => select::<i64>,
        Kind::Bool => select::<bool>,
    }
}

/// Whether an operation fails if its second operand is zero, for integers.
pub(super) fn divides(op: Op) -> bool {
    matches!(
        op,
        Op::Binary(
            BinaryOp::FloorDiv | BinaryOp::TruncDiv | BinaryOp::Fmod | BinaryOp::Remainder,
            ..
        )
    )
}

/// The step of an operation; `None` for a dtype it does not take, and for an input.
pub(super) fn step_fn(op: Op, operand: DType, result: DType) -> Option<StepFn> {
    match op {
        Op::Input(_) => None,
        Op::Coord(_) => Some(place::coord),
        Op::Launch(_) => Some(place::launch_fn(result)),
        Op::Read(_) => Some(place::read_fn(result)),
        Op::Assert(..) => Some(place::assert),
        Op::Const(_) => Some(moves::splat_const_fn(result)),
        Op::Unary(o, _) => unary_fn(o, operand),
        Op::Binary(o, ..) => binary_fn(o, operand),
        Op::Compare(o, ..) => Some(compare_fn(o, operand)),
        Op::Select(..) => Some(select_fn(result)),
        Op::Cast(_) => Some(cast_fn(operand, result)),
    }
}

/// Whether the result, computed in the class, may need rounding to be a value of the dtype.
pub(super) fn rounds(op: Op, d: DType) -> bool {
    use UnaryOp::*;
    if matches!(d, DType::F32 | DType::F64 | DType::I64 | DType::Bool) {
        return false;
    }
    match op {
        Op::Unary(Neg | Abs, _) => d.is_int(),
        Op::Unary(Sign | Floor | Ceil | Round | Trunc, _) => false,
        Op::Unary(Not, _) => d == DType::U8,
        Op::Binary(
            BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Copysign,
            ..,
        ) => false,
        Op::Unary(..) | Op::Binary(..) => true,
        _ => false,
    }
}
