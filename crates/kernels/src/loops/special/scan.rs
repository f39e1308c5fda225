//! Cumulative sums, products and extremes by [`scan`](crate::scan()) and
//! [`cumulative_extreme`](crate::cumulative_extreme()).

use super::Special;
use crate::error::Result;
use crate::isa::Isa;
use crate::scan::{ScanOp, cumulative_extreme, scan};
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::recognise::Scan;

impl Special for Scan {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        match (self, operands, results) {
            (Scan::Fold { fold: Fold::Sum, dim }, [x], [out]) => scan(ScanOp::Sum, x, *dim, out)?,
            (Scan::Fold { fold: Fold::Prod, dim }, [x], [out]) => {
                scan(ScanOp::Prod, x, *dim, out)?;
            }
            (Scan::Extreme { max, dim }, [x], [values, positions]) => {
                cumulative_extreme(*max, x, *dim, values, positions)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
