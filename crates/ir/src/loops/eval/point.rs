//! The environment of an expression at a point of its stage.

use super::Launch;
use crate::Scalar;
use crate::loops::{Affine, AxisId, Index, Stage};
use crate::scalar_expr::{self, Environment};
use crate::sym::Expr;

/// A point of a stage.
pub(super) struct Point<'a> {
    pub launch: &'a Launch<'a>,
    pub stage: &'a Stage,
    /// The coordinates along the stage's axes.
    pub coords: &'a [i64],
}

impl Point<'_> {
    fn coordinate(&self, axis: AxisId) -> i64 {
        let dim = self.stage.over.iter().position(|a| *a == axis);
        dim.and_then(|d| self.coords.get(d)).copied().unwrap_or(0)
    }

    fn position(&self, affine: &Affine) -> Option<i64> {
        let number = |e: Expr| self.launch.nest.symbols.eval(e, self.launch.symbols);
        affine.at(&|axis| self.coordinate(axis), &number).ok()
    }

    /// The element of a load; the computed dimensions have these positions.
    fn load(&self, input: u32, computed: &[i64]) -> Option<Scalar> {
        let load = self.stage.loads.get(input as usize)?;
        let mut computed = computed.iter();
        let position = load.at.indices().iter().map(|index| match index {
            Index::Affine(affine) => self.position(affine),
            Index::Computed => computed.next().copied(),
        });
        self.launch.source(load.from)?.get(&position.collect::<Option<Vec<i64>>>()?)
    }
}

fn outside(input: u32) -> scalar_expr::EvalError {
    scalar_expr::EvalError::Outside { input }
}

impl Environment for Point<'_> {
    fn input(&self, input: u32) -> Result<Scalar, scalar_expr::EvalError> {
        self.load(input, &[]).ok_or_else(|| outside(input))
    }

    fn coord(&self, axis: u32) -> Result<i64, scalar_expr::EvalError> {
        Ok(self.coordinate(AxisId(axis)))
    }

    fn launch(&self, scalar: u32) -> Result<Scalar, scalar_expr::EvalError> {
        let undefined = scalar_expr::EvalError::NotPure { op: "launch" };
        self.launch.scalars.get(scalar as usize).copied().ok_or(undefined)
    }

    fn computed_dims(&self, input: u32) -> Result<Vec<(usize, i64)>, scalar_expr::EvalError> {
        let load = self.stage.loads.get(input as usize).ok_or_else(|| outside(input))?;
        let source = self.launch.source(load.from).ok_or_else(|| outside(input))?;
        let size = |dim: usize| source.sizes().get(dim).copied().unwrap_or(0);
        Ok(load.at.computed_dims().map(|dim| (dim, size(dim))).collect())
    }

    fn read(&self, input: u32, positions: &[i64]) -> Result<Scalar, scalar_expr::EvalError> {
        self.load(input, positions).ok_or_else(|| outside(input))
    }
}
