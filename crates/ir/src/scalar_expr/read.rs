//! Reads at computed positions: gathers, padding and windows.

use super::Reg;
use std::fmt;

/// The registers of the computed positions of a [`Read`]: at most [`Positions::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Positions {
    regs: [Reg; Positions::MAX],
    len: u8,
}

impl Positions {
    /// The most computed positions of one read. An operator that indexes more dimensions by
    /// tensors stays a call.
    pub const MAX: usize = 4;

    /// The positions in these registers; `None` if there are more than [`Positions::MAX`].
    pub fn new(regs: &[Reg]) -> Option<Positions> {
        let mut all = [Reg(0); Positions::MAX];
        all.get_mut(..regs.len())?.copy_from_slice(regs);
        Some(Positions { regs: all, len: regs.len() as u8 })
    }

    /// The registers, in the order of the computed dimensions.
    pub fn regs(&self) -> &[Reg] {
        &self.regs[..self.len as usize]
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.regs()).finish()
    }
}

/// What becomes of a computed position outside its dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// There is none: the lowering guarantees it, and executors do not check.
    Inside,
    /// A position in `-size..0` counts from the end, as an index in PyTorch. Any other one outside
    /// the dimension is an error.
    Wraps,
    /// It is an error.
    Fails,
    /// It becomes the nearest one inside. In a dimension of size 0 it is an error.
    Clamps,
    /// The value of the register is read instead: padding.
    Else(Reg),
}

/// The element of an input at computed positions.
///
/// The index map of the input says which of its dimensions are affine and which are computed
/// ([`Index`](crate::loops::Index)); the positions are those of the computed dimensions, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    /// The input.
    pub input: u32,
    /// The computed positions, registers of `i64`.
    pub at: Positions,
    /// What becomes of positions outside.
    pub bounds: Bounds,
    /// A bool. If it is false, nothing is read or checked: the value is that of [`Bounds::Else`],
    /// otherwise zero.
    pub when: Option<Reg>,
}

impl Read {
    /// The read with other registers.
    pub(super) fn renamed(&self, to: &dyn Fn(Reg) -> Reg) -> Read {
        let mut at = self.at;
        at.regs[..at.len as usize].iter_mut().for_each(|r| *r = to(*r));
        let bounds = match self.bounds {
            Bounds::Else(r) => Bounds::Else(to(r)),
            bounds => bounds,
        };
        Read { input: self.input, at, bounds, when: self.when.map(to) }
    }

    /// The operands: positions, padding, condition.
    pub fn operands(&self) -> impl Iterator<Item = Reg> + use<> {
        let padding = if let Bounds::Else(r) = self.bounds { Some(r) } else { None };
        let Positions { regs, len } = self.at;
        regs.into_iter().take(len as usize).chain(padding).chain(self.when)
    }
}
