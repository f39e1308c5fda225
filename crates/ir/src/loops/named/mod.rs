//! Nests of well-known computations, as the named operations of linalg in MLIR.
//!
//! A function appends the stages of one computation to a [`LoopBuilder`]. Operators are lowered by
//! these functions, and a hand-tuned executor recognises its nest by them: it builds the nest that
//! it implements, and compares. So the computation is written once.

mod moves;
mod reduce;
mod softmax;

pub use moves::{Number, Outside, copy, fill, gather, pad, reposition, select};
pub use reduce::{Reduced, Reduction, reduce, reduce_by};
pub use softmax::{log_softmax, softmax};

use super::{Axes, AxisId, LoopBuilder, LoopError, OperandId, StageBuilder};
use crate::DType;
use crate::scalar_expr::Reg;
use crate::sym::{Expr, Range, SymbolKind};
use smallvec::SmallVec;

/// An operand of which each dimension has an axis of its own.
#[derive(Clone, Debug)]
pub struct Input {
    /// The operand.
    pub id: OperandId,
    /// Its dtype.
    pub dtype: DType,
    /// The axis of each dimension.
    pub axes: Axes,
}

impl LoopBuilder {
    /// Adds an operand of a dtype and rank. Each dimension has a new symbol for its size, and an
    /// axis.
    pub fn input(&mut self, dtype: DType, rank: usize) -> Input {
        let sizes: SmallVec<[Expr; 4]> = (0..rank).map(|_| self.new_size()).collect();
        let id = self.operand(dtype, &sizes);
        let axes = sizes.iter().map(|&size| self.axis(size)).collect();
        Input { id, dtype, axes }
    }

    /// A new symbol for a size.
    pub fn new_size(&mut self) -> Expr {
        let symbols = self.symbols_mut();
        let size = symbols.fresh(SymbolKind::Backed, Range::SIZE);
        symbols.expr(size)
    }

    /// An axis of one iteration.
    pub fn unit_axis(&mut self) -> AxisId {
        self.axis(Expr::Int(1))
    }
}

impl StageBuilder<'_> {
    /// Adds the element of an input at its axes, cast to a dtype.
    ///
    /// # Errors
    /// As [`StageBuilder::load`].
    pub fn element(&mut self, x: &Input, dtype: DType) -> Result<Reg, LoopError> {
        let reg = self.load(x.id, &x.axes[..])?;
        Ok(self.expr.cast(reg, dtype)?)
    }
}

/// The axes without some of them.
fn without(axes: &[AxisId], left_out: &[AxisId]) -> Axes {
    axes.iter().copied().filter(|a| !left_out.contains(a)).collect()
}
