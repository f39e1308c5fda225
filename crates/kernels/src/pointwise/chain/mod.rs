//! Chains: runs of operations on floats, evaluated together a tile at a time.
//!
//! A step of its own reads its operands from blocks and writes a block, which takes longer than the
//! operation. A chain has an accumulator in vector registers instead. Its actions load a tile into
//! it, combine it with a tile or a number, or store it. A value that has another use, or that ends
//! the chain, is stored; others never reach memory.
//!
//! **Source:** superinstructions of an interpreter (Ertl and Gregg 2003), with an accumulator.
//!
//! **Invariant:** each operation rounds as its step does, so the bits are those of the steps. A
//! tile runs through the whole chain before the next one begins. Actions access the elements of
//! their own tile alone, so that a value may be stored where the chain loaded another one.
//!
//! **Cost:** an action on a tile takes its vector operations, a load of the operand, and one jump.

mod form;
mod lines;
#[cfg(test)]
mod tests;
mod vector;

use super::frame::{BLOCK, Banked, Frame, Location};
use super::steps::{Context, Step, StepFn};
use crate::gemm::{Array, Float};
use crate::isa::{Isa, Simd};
use crate::math;
use crate::view::Ptr;
pub(super) use form::ChainFormer;
use lines::LineAction;
pub(crate) use lines::{LineChain, LineOperand};
use maquette_ir::DType;
use maquette_ir::scalar_expr::{BinaryOp, Op, UnaryOp};
use smallvec::SmallVec;
use vector::Vector;

/// The most actions of a chain.
const LONGEST: usize = 48;
/// The vectors of a tile.
const TILE: usize = 8;

/// What an action does with the accumulator. Names with `Scalar` take the first element of the
/// operand for all elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Load,
    Store,
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Exp,
    Erf,
    Add,
    Sub,
    SubFrom,
    Mul,
    Div,
    DivInto,
    Min,
    MinOf,
    Max,
    MaxOf,
    AddScalar,
    SubScalar,
    SubFromScalar,
    MulScalar,
    DivScalar,
    DivIntoScalar,
    MinScalar,
    MinOfScalar,
    MaxScalar,
    MaxOfScalar,
}

impl Code {
    /// Whether the operand is one element for all.
    fn is_scalar(self) -> bool {
        use Code::*;
        match self {
            AddScalar | SubScalar | SubFromScalar | MulScalar | DivScalar | DivIntoScalar
            | MinScalar | MinOfScalar | MaxScalar | MaxOfScalar => true,
            Load | Store | Neg | Abs | Sqrt | Rsqrt | Reciprocal | Exp | Erf | Add | Sub
            | SubFrom | Mul | Div | DivInto | Min | MinOf | Max | MaxOf => false,
        }
    }
}

/// An action with the location of its operand or destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainOp {
    pub code: Code,
    pub at: Location,
}

/// The actions of a chain, in order.
pub(crate) type Chain = SmallVec<[ChainOp; 8]>;

/// Whether a chain can have the operation.
fn is_known(op: Op, d: DType) -> bool {
    let is_operation = unary(op, d).is_some() || matches!(op, Op::Binary(op, ..) if is_binary(op));
    matches!(d, DType::F32 | DType::F64) && is_operation
}

fn is_binary(op: BinaryOp) -> bool {
    binary(op, false, false).is_some()
}

/// The action of a unary operation on a dtype.
pub(crate) fn unary(op: Op, d: DType) -> Option<Code> {
    match op {
        Op::Unary(UnaryOp::Neg, _) => Some(Code::Neg),
        Op::Unary(UnaryOp::Abs, _) => Some(Code::Abs),
        Op::Unary(UnaryOp::Sqrt, _) => Some(Code::Sqrt),
        Op::Unary(UnaryOp::Rsqrt, _) => Some(Code::Rsqrt),
        Op::Unary(UnaryOp::Reciprocal, _) => Some(Code::Reciprocal),
        Op::Unary(UnaryOp::Exp, _) if d == DType::F32 => Some(Code::Exp),
        Op::Unary(UnaryOp::Erf, _) if d == DType::F32 => Some(Code::Erf),
        _ => None,
    }
}

/// The action of a binary operation. The accumulator is its right operand if `right`; the other
/// operand may be a scalar.
pub(crate) fn binary(op: BinaryOp, right: bool, scalar: bool) -> Option<Code> {
    let [with, with_scalar] = match (op, right) {
        (BinaryOp::Add, _) => [Code::Add, Code::AddScalar],
        (BinaryOp::Mul, _) => [Code::Mul, Code::MulScalar],
        (BinaryOp::Sub, false) => [Code::Sub, Code::SubScalar],
        (BinaryOp::Sub, true) => [Code::SubFrom, Code::SubFromScalar],
        (BinaryOp::Div, false) => [Code::Div, Code::DivScalar],
        (BinaryOp::Div, true) => [Code::DivInto, Code::DivIntoScalar],
        (BinaryOp::Min, false) => [Code::Min, Code::MinScalar],
        (BinaryOp::Min, true) => [Code::MinOf, Code::MinOfScalar],
        (BinaryOp::Max, false) => [Code::Max, Code::MaxScalar],
        (BinaryOp::Max, true) => [Code::MaxOf, Code::MaxOfScalar],
        _ => return None,
    };
    Some(if scalar { with_scalar } else { with })
}

/// An action with the address of its operand.
#[derive(Clone, Copy)]
pub(crate) struct Action<A> {
    pub code: Code,
    pub at: Ptr<A>,
}

/// The step of a chain of a dtype.
fn step_fn(d: DType) -> StepFn {
    if d == DType::F64 { step::<f64> } else { step::<f32> }
}

fn step<A: Float + Banked + Chained>(cx: &Context<'_>, frame: &mut Frame, s: &Step) {
    let Some(chain) = cx.chains.get(s.operand as usize) else { return };
    let mut actions: SmallVec<[Action<A>; LONGEST.next_power_of_two()]> = SmallVec::new();
    actions.extend(chain.iter().map(|op| Action { code: op.code, at: frame.address(op.at) }));
    // SAFETY: see `StepFn`: every operand has the `n` elements of the block, and a scalar one.
    // Nothing else accesses them now.
    unsafe { A::run(cx.isa, &actions, frame.n.min(BLOCK)) }
}

/// A class with chains.
pub(crate) trait Chained: Float {
    /// Runs the actions on `n` elements.
    ///
    /// # Safety
    /// The addresses are valid for `n` elements, those of scalars for one.
    unsafe fn run(isa: Isa, actions: &[Action<Self>], n: usize);

    /// Runs the actions on `rows` lines of `n` elements each. The addresses of the actions move by
    /// their steps from line to line.
    ///
    /// # Safety
    /// As [`Chained::run`], for each line.
    unsafe fn run_lines(isa: Isa, actions: &mut [LineAction<Self>], rows: usize, n: usize);
}

macro_rules! chained {
    ($float:ident, $avx512:ident, $lines:ident: $vector:ident) => {
        impl Chained for $float {
            unsafe fn run(isa: Isa, actions: &[Action<$float>], n: usize) {
                #[cfg(target_arch = "x86_64")]
                if isa == Isa::Avx512 && crate::isa::available(isa) {
                    // SAFETY: the machine has the instruction set; else the caller's promise.
                    return unsafe { $avx512(actions, n) };
                }
                isa.dispatch_inline(Portable { actions, n });
            }

            unsafe fn run_lines(
                isa: Isa,
                actions: &mut [LineAction<$float>],
                rows: usize,
                n: usize,
            ) {
                #[cfg(target_arch = "x86_64")]
                if isa == Isa::Avx512 && crate::isa::available(isa) {
                    // SAFETY: as above.
                    return unsafe { $lines(actions, rows, n) };
                }
                isa.dispatch_inline(lines::Portable { actions, rows, n });
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn $avx512(actions: &[Action<$float>], n: usize) {
            // SAFETY: the caller's promise.
            unsafe { run::<std::arch::x86_64::$vector>(actions, n) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn $lines(actions: &mut [LineAction<$float>], rows: usize, n: usize) {
            // SAFETY: the caller's promise.
            unsafe { lines::run::<std::arch::x86_64::$vector>(actions, rows, n) }
        }
    };
}
chained!(f32, avx512_f32, avx512_lines_f32: __m512);
chained!(f64, avx512_f64, avx512_lines_f64: __m512d);

/// The actions on vectors that are arrays.
struct Portable<'a, A> {
    actions: &'a [Action<A>],
    n: usize,
}

impl<A: Float> Simd for Portable<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        // SAFETY: the promise of `Chained::run`, the only place where this is made.
        unsafe { run::<Array<A, 8>>(self.actions, self.n) }
    }
}

/// Runs the actions on `n` elements: on tiles, then on vectors, the last of which may be a part.
///
/// # Safety
/// As for [`Chained::run`]; the machine has the vector's instruction set.
#[inline(always)]
unsafe fn run<V: Vector>(actions: &[Action<V::Float>], n: usize) {
    let whole = n / (TILE * V::N) * (TILE * V::N);
    // SAFETY: the elements are below `n`.
    unsafe {
        let actions = || actions.iter().map(|a| (*a, V::N as isize));
        for at in (0..whole).step_by(TILE * V::N) {
            tile::<V, TILE>(actions(), at, |p, _| V::load(p), |x, p, _| x.store(p));
        }
        for at in (whole..n).step_by(V::N) {
            part::<V, 1>(actions(), at, n - at);
        }
    }
}

/// Runs the actions on the first `n` elements of the tile that begins with element `at`.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn part<V: Vector, const T: usize>(
    actions: impl Iterator<Item = (Action<V::Float>, isize)>,
    at: usize,
    n: usize,
) {
    let count = |l: usize| n.saturating_sub(l * V::N).min(V::N);
    // SAFETY: the caller's promise.
    unsafe {
        let load = |p, l| V::load_first(p, count(l));
        tile::<V, T>(actions, at, load, |x, p, l| x.store_first(p, count(l)))
    }
}

/// Runs the actions on the tile that begins with element `at`. Each comes with the elements between
/// its vectors.
///
/// # Safety
/// As for [`run`]. `load` and `store` access valid elements of the tile's vector with a number.
#[inline(always)]
unsafe fn tile<V: Vector, const T: usize>(
    actions: impl Iterator<Item = (Action<V::Float>, isize)>,
    at: usize,
    load: impl Fn(*const V::Float, usize) -> V,
    store: impl Fn(V, *mut V::Float, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [V::splat(<V::Float as math::Float>::ZERO); T];
        for (action, step) in actions {
            let first = action.at.0;
            let vector = |l: usize| first.wrapping_add(at).wrapping_offset(l as isize * step);
            // `$f` of each vector and the operand's.
            macro_rules! with {
                ($f:expr) => {
                    for l in 0..T {
                        acc[l] = $f(acc[l], load(vector(l), l));
                    }
                };
            }
            macro_rules! with_scalar {
                ($f:expr) => {{
                    let scalar = V::splat(*first);
                    for l in 0..T {
                        acc[l] = $f(acc[l], scalar);
                    }
                }};
            }
            // As `with_scalar`, and faster unless the number is NaN. Of two zeros, `$with` gives
            // the number, as `$f` does.
            macro_rules! with_number {
                ($f:ident, $with:ident, $of:ident) => {{
                    let number = *first;
                    if number != number {
                        with_scalar!(|a: V, x: V| a.$f(x))
                    } else if number == <V::Float as math::Float>::ZERO {
                        with_scalar!(|a: V, x: V| a.$with(x))
                    } else {
                        with_scalar!(|a: V, x: V| x.$of(a))
                    }
                }};
            }
            macro_rules! each {
                ($f:expr) => {
                    for l in 0..T {
                        acc[l] = $f(acc[l]);
                    }
                };
            }
            // `$f` of all vectors. It gets copies: the vectors themselves stay in registers.
            macro_rules! all {
                ($f:expr) => {{
                    let mut copies: [V; T] = std::array::from_fn(|l| acc[l]);
                    $f(&mut copies);
                    for l in 0..T {
                        acc[l] = copies[l];
                    }
                }};
            }
            match action.code {
                Code::Load => with!(|_, x| x),
                Code::Store => (0..T).for_each(|l| store(acc[l], vector(l), l)),
                Code::Neg => each!(|x: V| x.neg()),
                Code::Abs => each!(|x: V| x.abs()),
                Code::Sqrt => each!(|x: V| x.sqrt()),
                Code::Rsqrt => each!(|x: V| V::splat(<V::Float as math::Float>::ONE).div(x.sqrt())),
                Code::Reciprocal => each!(|x: V| V::splat(<V::Float as math::Float>::ONE).div(x)),
                Code::Exp => all!(V::exp),
                Code::Erf => all!(V::erf),
                Code::Add => with!(|a: V, x: V| a.add(x)),
                Code::Sub => with!(|a: V, x: V| a.sub(x)),
                Code::SubFrom => with!(|a: V, x: V| x.sub(a)),
                Code::Mul => with!(|a: V, x: V| a.mul(x)),
                Code::Div => with!(|a: V, x: V| a.div(x)),
                Code::DivInto => with!(|a: V, x: V| x.div(a)),
                Code::Min => with!(|a: V, x: V| a.min(x)),
                Code::MinOf => with!(|a: V, x: V| x.min(a)),
                Code::Max => with!(|a: V, x: V| a.max(x)),
                Code::MaxOf => with!(|a: V, x: V| x.max(a)),
                Code::AddScalar => with_scalar!(|a: V, x: V| a.add(x)),
                Code::SubScalar => with_scalar!(|a: V, x: V| a.sub(x)),
                Code::SubFromScalar => with_scalar!(|a: V, x: V| x.sub(a)),
                Code::MulScalar => with_scalar!(|a: V, x: V| a.mul(x)),
                Code::DivScalar => with_scalar!(|a: V, x: V| a.div(x)),
                Code::DivIntoScalar => with_scalar!(|a: V, x: V| x.div(a)),
                Code::MinScalar => with_number!(min, min_with_numbers, min_of_numbers),
                Code::MinOfScalar => with_scalar!(|a: V, x: V| x.min(a)),
                Code::MaxScalar => with_number!(max, max_with_numbers, max_of_numbers),
                Code::MaxOfScalar => with_scalar!(|a: V, x: V| x.max(a)),
            }
        }
    }
}
