//! Epilogues that are one chain of operations on the sums, such as a bias or a batch norm, a
//! residual and a clamp.
//!
//! An evaluation runs the steps of each map on blocks, and repeats the values of rows in them. The
//! actions of a chain go over a line of a rectangle at once, and take the value of a row from its
//! address ([`on_lines`]). A value between two maps stays in registers.
//!
//! **Invariant:** the operations and their order are those of the maps, and so are the bits. A tile
//! is loaded before it is stored, so the result may be written over what an action reads there.

use super::epilogue::{MapPlan, Part};
use super::operand::{From, Operand};
use crate::element::from_scalar;
use crate::loops::stage::PanelContext;
use crate::pointwise::chain::{Action, Chained, Code, LineAction, binary, on_lines, unary};
use crate::view::Ptr;
use maquette_ir::scalar_expr::{Op, Reg};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;

/// The most actions of a chain.
const LONGEST: usize = 24;

/// What an action combines the accumulator with, or where it stores it.
enum With {
    Nothing,
    Sums,
    Memory(Operand),
    Number(Scalar),
    Launch(u32),
}

/// The maps of an epilogue as actions.
pub(super) struct EpilogueChain(SmallVec<[(Code, With); 8]>);

/// A register of a map.
enum Value {
    /// The accumulator after this many actions.
    Accumulator(usize),
    /// One number for each row, or for all.
    Scalar(With),
    /// An element for each sum.
    Elements(Operand),
}

/// A class in which chains run.
pub(super) trait InChains: Chained + crate::element::Element {}
impl InChains for f32 {}
impl InChains for f64 {}

impl EpilogueChain {
    /// The chain that these maps of sums of a dtype are; `None` if they are none.
    pub fn of(maps: &[MapPlan], dtype: DType) -> Option<EpilogueChain> {
        let mut actions: SmallVec<[(Code, With); 8]> = SmallVec::new();
        actions.push((Code::Load, With::Sums));
        let mut from = From::Sums;
        for (i, map) in maps.iter().enumerate() {
            let [out] = map.expr.outputs()[..] else { return None };
            let accumulator = add(&mut actions, map, from, dtype)?;
            if out != accumulator {
                return None;
            }
            let stored = map.operands.get(map.loads)?;
            from = stored.from;
            let is_last = i + 1 == maps.len();
            match from {
                From::Slot(_) if !is_last => {}
                From::Memory(_) if is_last && stored.strides()[1] == 1 => {
                    actions.push((Code::Store, With::Memory(stored.clone())));
                }
                _ => return None,
            }
        }
        (actions.len() <= LONGEST && !maps.is_empty()).then_some(EpilogueChain(actions))
    }

    /// Computes the maps on a rectangle whose sums follow each other in rows.
    pub fn run<F: InChains>(&self, cx: &PanelContext<'_>, part: &Part<'_>) {
        let at = [part.rows.start, part.columns.start];
        let scalar = |with: &With| -> F {
            match with {
                With::Number(x) => from_scalar(*x),
                With::Launch(n) => {
                    cx.run.scalars.get(*n as usize).map_or(F::ZERO, |x| from_scalar(*x))
                }
                _ => F::ZERO,
            }
        };
        // Actions have the addresses of these numbers.
        let numbers: SmallVec<[F; 8]> = self.0.iter().map(|(_, with)| scalar(with)).collect();
        let action = |((code, with), number): (&(Code, With), &F)| {
            let (at, step) = match with {
                With::Sums => (Ptr(part.sums.0.0.cast()), part.sums.1[0]),
                With::Memory(o) => (Ptr(o.address(cx, part.coords, at).0.cast()), o.strides()[0]),
                _ => (Ptr(std::ptr::from_ref(number).cast_mut()), 0),
            };
            LineAction { action: Action { code: *code, at }, step: step as isize }
        };
        let mut actions: SmallVec<[LineAction<F>; LONGEST]> =
            self.0.iter().zip(&numbers).map(action).collect();
        // SAFETY: the plan is of the layouts of the operands, which have the elements of the
        // rectangle; the rectangle of the results is this call's alone.
        unsafe { on_lines(cx.run.isa, &mut actions, part.rows.len(), part.columns.len()) }
    }
}

/// Adds the actions of a map, which reads the accumulator as `from`. Returns the register that is
/// the accumulator afterwards; `None` if the map has other values.
fn add(
    actions: &mut SmallVec<[(Code, With); 8]>,
    map: &MapPlan,
    from: From,
    dtype: DType,
) -> Option<Reg> {
    let mut values: SmallVec<[Value; 16]> = SmallVec::new();
    let mut accumulator = None;
    for (i, instr) in map.expr.instrs().iter().enumerate() {
        let now = actions.len();
        let is_now = |r: Reg| matches!(values[r.index()], Value::Accumulator(at) if at == now);
        if instr.dtype != dtype {
            return None;
        }
        let value = match instr.op {
            Op::Const(x) => Value::Scalar(With::Number(x)),
            Op::Launch(n) => Value::Scalar(With::Launch(n)),
            Op::Input(k) => {
                let operand = map.operands.get(k as usize).filter(|_| (k as usize) < map.loads)?;
                let is_affine = map.computed.get(k as usize)?.is_empty();
                match (operand.from, operand.strides()[1]) {
                    (of, _) if of == from => Value::Accumulator(now),
                    (From::Memory(_), 0) if is_affine => {
                        Value::Scalar(With::Memory(operand.clone()))
                    }
                    (From::Memory(_), 1) if is_affine => Value::Elements(operand.clone()),
                    _ => return None,
                }
            }
            Op::Binary(op, a, b) => {
                let right = match (is_now(a), is_now(b)) {
                    (true, false) => false,
                    (false, true) => true,
                    _ => return None,
                };
                let (with, is_scalar) = match &values[if right { a } else { b }.index()] {
                    Value::Scalar(With::Number(x)) => (With::Number(*x), true),
                    Value::Scalar(With::Launch(n)) => (With::Launch(*n), true),
                    Value::Scalar(With::Memory(o)) => (With::Memory(o.clone()), true),
                    Value::Elements(o) => (With::Memory(o.clone()), false),
                    _ => return None,
                };
                actions.push((binary(op, right, is_scalar)?, with));
                Value::Accumulator(actions.len())
            }
            op @ Op::Unary(_, a) if is_now(a) => {
                actions.push((unary(op, dtype)?, With::Nothing));
                Value::Accumulator(actions.len())
            }
            _ => return None,
        };
        if matches!(value, Value::Accumulator(_)) {
            accumulator = Some(Reg(i as u32));
        }
        values.push(value);
    }
    accumulator
}
