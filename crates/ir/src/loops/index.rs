//! Index maps: where a load reads its source, as a function of the axes.
//!
//! An affine index is `start + stride_0 * axis_0 + …`. Its least and greatest values over all axes
//! follow from the extents, so that one check at launch, or a proof, covers every element.

use super::{AxisId, LoopNest};
use crate::sym::{Expr, Rel, SymError, SymTable};
use crate::view::TriBool;
use smallvec::SmallVec;

/// The positions of a load: an index for each dimension of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IndexMap(pub SmallVec<[Index; 4]>);

/// The position along one dimension of a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// An affine function of the axes.
    Affine(Affine),
    /// A register of each [`Read`](crate::scalar_expr::Read) of the load.
    Computed,
}

/// `start + stride_0 * axis_0 + …`, with at most one term an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    /// The position where every coordinate is 0.
    pub start: Expr,
    /// The axes and the distances of positions along them, which may be negative.
    pub terms: SmallVec<[(AxisId, Expr); 2]>,
}

impl From<AxisId> for Affine {
    fn from(axis: AxisId) -> Affine {
        Affine { start: Expr::Int(0), terms: SmallVec::from_slice(&[(axis, Expr::Int(1))]) }
    }
}

impl From<Expr> for Affine {
    /// The same position everywhere.
    fn from(start: Expr) -> Affine {
        Affine { start, terms: SmallVec::new() }
    }
}

impl From<Affine> for Index {
    fn from(affine: Affine) -> Index {
        Index::Affine(affine)
    }
}

impl From<AxisId> for Index {
    fn from(axis: AxisId) -> Index {
        Index::Affine(axis.into())
    }
}

impl From<Expr> for Index {
    fn from(start: Expr) -> Index {
        Index::Affine(start.into())
    }
}

impl<const N: usize> From<[AxisId; N]> for IndexMap {
    fn from(axes: [AxisId; N]) -> IndexMap {
        IndexMap::from(&axes[..])
    }
}

impl From<&[AxisId]> for IndexMap {
    /// Dimension `d` is indexed by axis `d` of the list.
    fn from(axes: &[AxisId]) -> IndexMap {
        axes.iter().map(|&axis| Index::from(axis)).collect()
    }
}

impl FromIterator<Index> for IndexMap {
    fn from_iter<T: IntoIterator<Item = Index>>(indices: T) -> IndexMap {
        IndexMap(indices.into_iter().collect())
    }
}

impl IndexMap {
    /// The index of each dimension.
    pub fn indices(&self) -> &[Index] {
        &self.0
    }

    /// The dimensions whose positions are computed.
    pub fn computed_dims(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|&d| matches!(self.0[d], Index::Computed))
    }

    /// Whether no dimension is computed.
    pub fn is_affine(&self) -> bool {
        self.computed_dims().next().is_none()
    }
}

impl Affine {
    /// The position at some coordinates. `number` is the value of an expression.
    ///
    /// # Errors
    /// The error of `number`, or the position overflows 64 bits.
    pub fn at(
        &self,
        coords: &dyn Fn(AxisId) -> i64,
        number: &dyn Fn(Expr) -> Result<i64, SymError>,
    ) -> Result<i64, SymError> {
        let mut position = i128::from(number(self.start)?);
        for &(axis, stride) in &self.terms {
            position += i128::from(number(stride)?) * i128::from(coords(axis));
        }
        i64::try_from(position).map_err(|_| overflow())
    }

    /// The least and the greatest position, where every extent is positive.
    ///
    /// # Errors
    /// As [`Affine::at`].
    pub fn reach(
        &self,
        extents: &dyn Fn(AxisId) -> i64,
        number: &dyn Fn(Expr) -> Result<i64, SymError>,
    ) -> Result<(i64, i64), SymError> {
        let start = i128::from(number(self.start)?);
        let (mut least, mut greatest) = (start, start);
        for &(axis, stride) in &self.terms {
            let far = i128::from(number(stride)?) * i128::from(extents(axis) - 1);
            least += far.min(0);
            greatest += far.max(0);
        }
        match (i64::try_from(least), i64::try_from(greatest)) {
            (Ok(least), Ok(greatest)) => Ok((least, greatest)),
            _ => Err(overflow()),
        }
    }

    /// Whether every position is in `0..size`, where every extent is positive. `facts` is a table
    /// in which this is assumed of the extents.
    pub(super) fn is_inside(&self, nest: &LoopNest, size: Expr, facts: &mut SymTable) -> TriBool {
        self.try_is_inside(nest, size, facts).unwrap_or(TriBool::Unknown)
    }

    fn try_is_inside(
        &self,
        nest: &LoopNest,
        size: Expr,
        facts: &mut SymTable,
    ) -> Result<TriBool, SymError> {
        let (mut least, mut greatest) = (self.start, self.start);
        for &(axis, stride) in &self.terms {
            let extent = nest.axes.get(axis.index()).copied().unwrap_or(Expr::Int(0));
            let last = facts.sub(extent, Expr::Int(1))?;
            let far = facts.mul(stride, last)?;
            if known(facts, Rel::Ge, stride, Expr::Int(0)) == TriBool::Yes {
                greatest = facts.add(greatest, far)?;
            } else if known(facts, Rel::Le, stride, Expr::Int(0)) == TriBool::Yes {
                least = facts.add(least, far)?;
            } else {
                return Ok(TriBool::Unknown);
            }
        }
        let from = known(facts, Rel::Ge, least, Expr::Int(0));
        let to = known(facts, Rel::Lt, greatest, size);
        Ok(match (from, to) {
            (TriBool::Yes, TriBool::Yes) => TriBool::Yes,
            (TriBool::No, _) | (_, TriBool::No) => TriBool::No,
            _ => TriBool::Unknown,
        })
    }
}

fn overflow() -> SymError {
    SymError::Overflow("a position".into())
}

/// Whether a relation is proved to hold, or not to.
fn known(facts: &mut SymTable, rel: Rel, a: Expr, b: Expr) -> TriBool {
    let condition = facts.rel(rel, a, b);
    match facts.prove(condition) {
        Some(true) => TriBool::Yes,
        Some(false) => TriBool::No,
        None => TriBool::Unknown,
    }
}
