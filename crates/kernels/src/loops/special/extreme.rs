//! Two extremes of one operand: a minimum or maximum with its index by
//! [`minmax_with_index`](crate::minmax_with_index()), and both by [`reduce`](crate::reduce()).

use super::Special;
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, minmax_with_index, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::recognise::Extremes;

impl Special for Extremes {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [first, second]) = (operands, results) else { return Ok(false) };
        match self {
            Extremes::Indexed { max, dim } => minmax_with_index(*max, x, *dim, first, second)?,
            Extremes::Both(dims) => {
                reduce_on(isa, ReduceOp::Min, x, dims, first)?;
                reduce_on(isa, ReduceOp::Max, x, dims, second)?;
            }
        }
        Ok(true)
    }
}
