//! Epilogues that are one chain of operations on the sums, such as a bias or a batch norm, a
//! residual and a clamp.
//!
//! An evaluation runs the steps of each map on blocks, and repeats the values of rows in them. The
//! actions of a chain go over a line of a rectangle at once, and take the value of a row from its
//! address ([`LineChain`]). A value between two maps stays in registers. Lines are rows of the
//! product, or columns where the elements of a column are neighbours in the result, as the channels
//! of a pixel may be.
//!
//! **Invariant:** the operations and their order are those of the maps, and so are the bits. A tile
//! is loaded before it is stored, so the result may be written over what an action reads there.

use super::epilogue::{MapPlan, Part};
use super::operand::{From, Operand};
use crate::element::from_scalar;
use crate::gemm::Affine;
use crate::loops::stage::PanelContext;
use crate::pointwise::chain::{Chained, Code, LineChain, LineOperand, binary, unary};
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
pub(super) struct EpilogueChain {
    actions: SmallVec<[(Code, With); 8]>,
    /// Along what lines go: 0 for columns, whose elements differ in the first index, 1 for rows.
    along: usize,
}

/// A register of a map.
enum Value {
    /// The accumulator after this many actions.
    Accumulator(usize),
    /// One number for each line, or for all.
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
        let last = maps.last()?;
        let along = match last.operands.get(last.loads)?.strides() {
            [_, 1] => 1,
            [1, _] => 0,
            _ => return None,
        };
        for (i, map) in maps.iter().enumerate() {
            let [out] = map.expr.outputs()[..] else { return None };
            let accumulator = add(&mut actions, map, (from, along), dtype)?;
            if out != accumulator {
                return None;
            }
            let stored = map.operands.get(map.loads)?;
            from = stored.from;
            let is_last = i + 1 == maps.len();
            match from {
                From::Slot(_) if !is_last => {}
                From::Memory(_) if is_last => {
                    actions.push((Code::Store, With::Memory(stored.clone())));
                }
                _ => return None,
            }
        }
        (actions.len() <= LONGEST).then_some(EpilogueChain { actions, along })
    }

    /// Along what the sums of a rectangle have to be neighbours: 0 for columns, 1 for rows.
    pub fn along(&self) -> usize {
        self.along
    }

    /// The maps of some products from a row and a column on, whose sums are given line by line.
    pub fn lines<F: InChains>(
        &self,
        cx: &PanelContext<'_>,
        coords: &[i64],
        at: [usize; 2],
    ) -> LineChain<F> {
        let next = 1 - self.along;
        LineChain::new(self.actions.iter().map(|(code, with)| {
            let operand = match with {
                With::Nothing => LineOperand::Number(F::ZERO),
                With::Sums => LineOperand::Given,
                With::Memory(o) => {
                    let address = Ptr(o.address(cx, coords, at).0.cast());
                    LineOperand::Memory(address, o.strides()[next] as isize)
                }
                With::Number(x) => LineOperand::Number(from_scalar(*x)),
                With::Launch(n) => {
                    let scalar = cx.run.scalars.get(*n as usize);
                    LineOperand::Number(scalar.map_or(F::ZERO, |x| from_scalar(*x)))
                }
            };
            (*code, operand)
        }))
    }

    /// As [`EpilogueChain::lines`] along columns, if the maps are a scale and a shift of each row,
    /// a residual, and a clamp, of which each may be missing.
    pub fn affine<F: InChains>(
        &self,
        cx: &PanelContext<'_>,
        coords: &[i64],
        at: [usize; 2],
    ) -> Option<Affine<F>> {
        let number = |with: &With| match with {
            With::Number(x) => Some(from_scalar::<F>(*x)),
            With::Launch(n) => cx.run.scalars.get(*n as usize).map(|x| from_scalar::<F>(*x)),
            _ => None,
        };
        let address = |o: &Operand| o.address(cx, coords, at).0.cast::<F>();
        let pixel = |o: &Operand| usize::try_from(o.strides()[1]).ok();
        let null = std::ptr::null();
        let mut affine = Affine {
            scale: null,
            shift: null,
            residual: null,
            residual_pixel: 0,
            least: -F::INFINITY,
            most: F::INFINITY,
            out: std::ptr::null_mut(),
            out_pixel: 0,
        };
        // The parts in order: each may come once, after those before it.
        let mut done = 0;
        let (last, actions) = self.actions.split_last()?;
        for (code, with) in actions.get(1..)? {
            let part = match (code, with) {
                (Code::Mul, With::Memory(o)) if pixel(o) == Some(0) => {
                    affine.scale = address(o);
                    1
                }
                (Code::Add, With::Memory(o)) if pixel(o) == Some(0) => {
                    affine.shift = address(o);
                    2
                }
                (Code::Add, With::Memory(o)) => {
                    (affine.residual, affine.residual_pixel) = (address(o), pixel(o)?);
                    3
                }
                (Code::MaxScalar, with) => {
                    affine.least = number(with).filter(|x| x.partial_cmp(x).is_some())?;
                    4
                }
                (Code::MinScalar, with) => {
                    let is_fine = |x: &F| x.partial_cmp(x).is_some() && *x != F::ZERO;
                    affine.most = number(with).filter(is_fine)?;
                    5
                }
                _ => return None,
            };
            if part <= done {
                return None;
            }
            done = part;
        }
        let (Code::Store, With::Memory(o)) = last else { return None };
        (affine.out, affine.out_pixel) = (address(o), pixel(o)?);
        Some(affine)
    }

    /// Computes the maps on a rectangle whose sums are neighbours in lines.
    pub fn run<F: InChains>(&self, cx: &PanelContext<'_>, part: &Part<'_>) {
        let next = 1 - self.along;
        let mut lines = self.lines::<F>(cx, part.coords, [part.rows.start, part.columns.start]);
        let lengths = [part.rows.len(), part.columns.len()];
        let (sums, step) = (Ptr(part.sums.0.0.cast()), part.sums.1[next] as isize);
        // SAFETY: the plan is of the layouts of the operands, which have the elements of the
        // rectangle; the rectangle of the results is this call's alone.
        unsafe { lines.run(cx.run.isa, [lengths[next], lengths[self.along]], sums, step) }
    }
}

/// Adds the actions of a map, which reads the accumulator as `from`, for lines along rows or
/// columns. Returns the register that is the accumulator afterwards; `None` if the map has other
/// values.
fn add(
    actions: &mut SmallVec<[(Code, With); 8]>,
    map: &MapPlan,
    (from, along): (From, usize),
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
                match (operand.from, operand.strides()[along]) {
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
