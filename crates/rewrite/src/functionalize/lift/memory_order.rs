//! The order of a tensor's dimensions in memory.
//!
//! A view is easy to locate in a storage if the storage's dimensions follow each other in
//! memory, from the outermost to the innermost. With constant strides, that is a sort. With
//! symbols, strides often cannot be compared, so a backtracking search tries the dimensions one
//! after the other: a dimension fits if those not yet placed fill its stride exactly. At most one
//! dimension fits at most steps, so the search is quadratic in the rank except for dimensions of
//! equal strides.
//!
//! Sizes `(n, 3, m)` with strides `(3 * m, 1, 3)` are in the order `n, m, 3`: `m * 3` elements fill
//! the stride of `n`, and 3 fill the stride of `m`.

use crate::error::Result;
use crate::functionalize::view_queries::{long_dims, row_gap_of};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// The first order of the dimensions in which the elements are equally spaced in memory; `None` if
/// no order provably is one.
pub(super) fn memory_order(
    sizes: &[Expr],
    strides: &[Expr],
    symbols: &mut SymTable,
) -> Result<Option<SmallVec<[usize; 4]>>> {
    let region = ViewSpec::strided(Expr::Int(0), sizes, strides, symbols)?;
    for long in long_dims(sizes, symbols) {
        let dims = region.dims().iter().zip(&long).filter(|(_, long)| **long).map(|(d, _)| d);
        let Some(gap) = dims.filter_map(|d| d.stride.as_i64()).filter(|s| *s > 0).min() else {
            continue;
        };
        let mut order = SmallVec::new();
        if (OrderSearch { region: &region, long: &long, gap }).complete(&mut order, symbols)? {
            return Ok(Some(order));
        }
    }
    Ok(None)
}

/// The backtracking search, from the outermost dimension inwards.
struct OrderSearch<'a> {
    region: &'a ViewSpec,
    /// By dimension: whether its stride matters; see [`long_dims`].
    long: &'a [bool],
    gap: i64,
}

impl OrderSearch<'_> {
    fn complete(&self, order: &mut SmallVec<[usize; 4]>, symbols: &mut SymTable) -> Result<bool> {
        let dims = self.region.dims();
        if order.len() == dims.len() {
            let (sizes, strides) = order
                .iter()
                .map(|&d| (dims[d].size, dims[d].stride))
                .collect::<(Vec<Expr>, Vec<Expr>)>();
            let long: SmallVec<[bool; 4]> = order.iter().map(|&d| self.long[d]).collect();
            let region = ViewSpec::strided(Expr::Int(0), &sizes, &strides, symbols)?;
            return Ok(row_gap_of(&region, &long, symbols).is_some());
        }
        for d in 0..dims.len() {
            // Dimensions whose strides do not matter keep their relative order.
            if order.contains(&d) || !self.long[d] && order.iter().any(|&o| o > d && !self.long[o])
            {
                continue;
            }
            order.push(d);
            if self.fills(order, d, symbols)? && self.complete(order, symbols)? {
                return Ok(true);
            }
            order.pop();
        }
        Ok(false)
    }

    /// Whether the dimensions that are not yet in `order` exactly fill the stride of `last`.
    fn fills(&self, order: &[usize], last: usize, symbols: &mut SymTable) -> Result<bool> {
        if !self.long[last] {
            return Ok(true);
        }
        let dims = self.region.dims();
        let rest = (0..dims.len()).filter(|d| !order.contains(d));
        let sizes: SmallVec<[Expr; 4]> =
            std::iter::once(last).chain(rest).map(|d| dims[d].size).collect();
        let row = ViewSpec::contiguous(&sizes, symbols)?;
        let step =
            row.dims().first().and_then(|row| symbols.mul(row.stride, Expr::Int(self.gap)).ok());
        Ok(step == Some(dims[last].stride))
    }
}
