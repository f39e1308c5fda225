//! Nests of well-known computations, as the named operations of linalg in MLIR.
//!
//! A function appends the stages of one computation to a [`LoopBuilder`]. Operators are lowered by
//! these functions, and [`recognise`](super::recognise) finds by them which nest a driver has a
//! kernel for: it builds the nest, and compares. So the computation is written once.

mod attention;
mod convolution;
mod moves;
mod norm;
mod product;
mod reduce;
mod scan;
mod softmax;
mod statistics;

pub use attention::{Attended, Attention, Scale, attention, logarithms};
pub use convolution::{ChannelGroups, Convolution, WindowDim, convolution};
pub use moves::{Number, Outside, copy, fill, gather, pad, reposition, select, triangle};
pub use norm::{GroupNorm, RowNorm, group_norm, layer_norm, rms_norm};
pub use product::{Addend, Product, product};
pub use reduce::{Reduced, Reduction, extreme, reduce, reduce_by};
pub use scan::{cumulative_extreme, scan};
pub use softmax::{log_softmax, logsumexp, safe_softmax, softmax};
pub use statistics::{Correction, power, root, variance, variance_and_mean, vector_norm};

use super::{
    Affine, Axes, AxisId, IndexMap, LoopBuilder, LoopError, OperandId, ScalarId, StageBuilder,
};
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

    /// The position along a dimension of an operand, whose axis is `dim`, that the coordinate of
    /// `axis` broadcasts to: a dimension of size 1 is read at 0.
    ///
    /// # Errors
    /// The size has no expression.
    pub fn broadcast(&mut self, dim: AxisId, axis: AxisId) -> Result<Affine, LoopError> {
        let size = self.nest().extent(dim);
        let symbols = self.symbols_mut();
        let stride = symbols.sub(size, Expr::Int(1)).and_then(|n| symbols.min(n, Expr::Int(1)));
        let stride = stride.map_err(|e| LoopError::new(e.to_string()))?;
        Ok(Affine { start: Expr::Int(0), terms: SmallVec::from_slice(&[(axis, stride)]) })
    }

    /// The positions at which an input is read so that it is broadcast to `axes`.
    ///
    /// # Errors
    /// The input has more dimensions than there are axes.
    pub fn broadcast_to(&mut self, x: &Input, axes: &[AxisId]) -> Result<IndexMap, LoopError> {
        let lead = axes.len().checked_sub(x.axes.len());
        let lead =
            lead.ok_or_else(|| LoopError::new("an operand does not expand to the result"))?;
        let dims = x.axes.iter().zip(&axes[lead..]);
        dims.map(|(dim, axis)| Ok(self.broadcast(*dim, *axis)?.into())).collect()
    }

    /// An axis of one iteration.
    pub fn unit_axis(&mut self) -> AxisId {
        self.axis(Expr::Int(1))
    }

    /// The number of points along some axes, as a launch scalar.
    ///
    /// # Errors
    /// The number is too large.
    pub fn count(&mut self, along: &[AxisId]) -> Result<ScalarId, LoopError> {
        let mut count = Expr::Int(1);
        for axis in along {
            let extent = self.nest().extent(*axis);
            let product = self.symbols_mut().mul(count, extent);
            count = product.map_err(|e| LoopError::new(e.to_string()))?;
        }
        Ok(self.size(count))
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
