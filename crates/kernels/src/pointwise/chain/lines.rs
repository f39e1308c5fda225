//! Chains on lines of elements in memory, without the blocks of an evaluation.
//!
//! Where a whole expression is one chain, its lines need no steps and no frame: an action has an
//! address and the distance to the next line. A line of a few vectors is one tile.
//!
//! **Invariant:** the bits are those of [`run`](super::run).
//!
//! **Cost:** an addition for each action of a line, besides its tiles.

use super::vector::Vector;
use super::{Action, Chained, TILE, part, tile};
use crate::gemm::{Array, Float};
use crate::isa::{Isa, Simd};

/// An action on lines.
#[derive(Clone, Copy)]
pub(crate) struct LineAction<A> {
    pub action: Action<A>,
    /// The elements from a line's operand to that of the next line.
    pub step: isize,
}

/// Runs the actions on `rows` lines of `n` elements each.
///
/// # Safety
/// The addresses are valid for `n` elements of each line, those of scalars for one. Nothing else
/// accesses what is stored.
pub(crate) unsafe fn on_lines<A: Chained>(
    isa: Isa,
    actions: &mut [LineAction<A>],
    rows: usize,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { A::run_lines(isa, actions, rows, n) }
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

/// See [`on_lines`].
///
/// # Safety
/// As [`on_lines`]; the machine has the vector's instruction set.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(actions: &mut [LineAction<V::Float>], rows: usize, n: usize) {
    let whole = n / (TILE * V::N) * (TILE * V::N);
    let rest = n - whole;
    // A register of this size loads a part of itself as fast as all of it.
    let has_masks = size_of::<V>() == 64;
    for _ in 0..rows {
        let of_line = || actions.iter().map(|a| a.action);
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
