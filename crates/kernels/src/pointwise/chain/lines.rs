//! Chains on lines of elements in memory, without the blocks of an evaluation.
//!
//! Where a whole expression is one chain, its lines need no steps and no frame: an action has an
//! address and the distance to the next line. A line of a few vectors is one tile, or a tile has a
//! vector of each of some lines.
//!
//! **Invariant:** the bits are those of [`run`](super::run).
//!
//! **Cost:** an addition for each action of a line, besides its tiles.

use super::vector::Vector;
use super::{Action, Chained, Code, TILE, part, tile};
use crate::gemm::{Array, Float};
use crate::isa::{Isa, Simd};
use crate::view::Ptr;
use smallvec::SmallVec;

/// The operand of an action on lines.
#[derive(Clone, Copy)]
pub(crate) enum LineOperand<A> {
    /// Elements that are elsewhere for each run.
    Given,
    /// The elements of the first line, or its scalar, and the distance to those of the next line.
    Memory(Ptr<A>, isize),
    /// A number for all elements.
    Number(A),
}

/// A chain that goes over lines, some in each run.
pub(crate) struct LineChain<A> {
    actions: SmallVec<[LineAction<A>; 8]>,
    operands: SmallVec<[LineOperand<A>; 8]>,
}

impl<A: Chained> LineChain<A> {
    /// A chain of these actions.
    pub fn new(of: impl Iterator<Item = (Code, LineOperand<A>)>) -> LineChain<A> {
        let (mut actions, mut operands) = (SmallVec::new(), SmallVec::new());
        for (code, operand) in of {
            let (at, step) = match operand {
                LineOperand::Memory(at, step) => (at, step),
                _ => (Ptr(std::ptr::null_mut()), 0),
            };
            actions.push(LineAction { action: Action { code, at }, step });
            operands.push(operand);
        }
        LineChain { actions, operands }
    }

    /// Runs the actions on the next `rows` lines of `n` elements each, of which those given begin
    /// at `given`, `step` elements apart.
    ///
    /// # Safety
    /// The addresses are valid for `n` elements of each line, those of scalars for one. Nothing
    /// else accesses what is stored.
    pub unsafe fn run(&mut self, isa: Isa, [rows, n]: [usize; 2], given: Ptr<A>, step: isize) {
        for (action, operand) in self.actions.iter_mut().zip(&self.operands) {
            match operand {
                LineOperand::Given => {
                    (action.action.at, action.step) = (given, step);
                }
                LineOperand::Memory(..) => {}
                LineOperand::Number(x) => {
                    action.action.at = Ptr(std::ptr::from_ref(x).cast_mut());
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { A::run_lines(isa, &mut self.actions, rows, n) }
    }
}

/// An action on lines.
#[derive(Clone, Copy)]
pub(crate) struct LineAction<A> {
    pub action: Action<A>,
    /// The elements from a line's operand to that of the next line.
    pub step: isize,
}

/// The actions on vectors that are arrays.
pub(super) struct Portable<'a, A> {
    pub actions: &'a mut [LineAction<A>],
    pub rows: usize,
    pub n: usize,
}

impl<A: Float> Simd for Portable<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        // SAFETY: the promise of `Chained::run_lines`, the only place where this is made.
        unsafe { run::<Array<A, 8>>(self.actions, self.rows, self.n) }
    }
}

/// See [`Chained::run_lines`].
///
/// # Safety
/// As [`Chained::run_lines`]; the machine has the vector's instruction set.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(actions: &mut [LineAction<V::Float>], rows: usize, n: usize) {
    let is_one = |a: &LineAction<V::Float>| !a.action.code.is_scalar() || a.step == 0;
    if rows > 1 && n <= TILE / 2 * V::N && actions.iter().all(is_one) {
        // SAFETY: the caller's promise.
        return unsafe { columns::<V>(actions, rows, n) };
    }
    let whole = n / (TILE * V::N) * (TILE * V::N);
    let rest = n - whole;
    // A register of this size loads a part of itself as fast as all of it.
    let has_masks = size_of::<V>() == 64;
    for _ in 0..rows {
        let of_line = || actions.iter().map(|a| (a.action, V::N as isize));
        // SAFETY: the caller's promise.
        unsafe {
            for at in (0..whole).step_by(TILE * V::N) {
                tile::<V, TILE>(of_line(), at, |p, _| V::load(p), |x, p, _| x.store(p));
            }
            match rest.div_ceil(V::N) {
                0 => {}
                2 if has_masks => part::<V, 2>(of_line(), whole, rest),
                3..=4 if has_masks => part::<V, 4>(of_line(), whole, rest),
                5.. if has_masks => part::<V, TILE>(of_line(), whole, rest),
                _ => {
                    for at in (whole..n).step_by(V::N) {
                        part::<V, 1>(of_line(), at, n - at);
                    }
                }
            }
        }
        for a in &mut *actions {
            a.action.at.0 = a.action.at.0.wrapping_offset(a.step);
        }
    }
}

/// As [`run`], in tiles of a vector of each of some lines. A scalar is the same for all lines.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn columns<V: Vector>(actions: &mut [LineAction<V::Float>], rows: usize, n: usize) {
    let whole = rows / TILE;
    // SAFETY: the caller's promise.
    unsafe {
        for _ in 0..whole {
            lines::<V, TILE>(actions, n);
        }
        let rest = rows % TILE;
        if rest & 4 != 0 {
            lines::<V, 4>(actions, n);
        }
        if rest & 2 != 0 {
            lines::<V, 2>(actions, n);
        }
        if rest & 1 != 0 {
            lines::<V, 1>(actions, n);
        }
    }
}

/// Runs the actions on `T` lines, and moves them to the next ones.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn lines<V: Vector, const T: usize>(actions: &mut [LineAction<V::Float>], n: usize) {
    let of_lines = || actions.iter().map(|a| (a.action, a.step));
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..n).step_by(V::N) {
            match (n - at).min(V::N) {
                k if k == V::N => {
                    tile::<V, T>(of_lines(), at, |p, _| V::load(p), |x, p, _| x.store(p));
                }
                k => {
                    let load = |p, _| V::load_first(p, k);
                    tile::<V, T>(of_lines(), at, load, |x, p, _| x.store_first(p, k));
                }
            }
        }
    }
    for a in &mut *actions {
        a.action.at.0 = a.action.at.0.wrapping_offset(T as isize * a.step);
    }
}
