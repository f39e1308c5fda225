//! The orders in which a scan combines values.
//!
//! The output of a scan at a coordinate is the fold of the values up to it, from the identity: the
//! sum of -0 is +0, as in PyTorch. [`ScanOrder`] says how the values are grouped.
//!
//! # Blocks
//!
//! Sums of floats are in blocks. [`ScanOrder::Blocks`] shortens the chain that each output waits
//! for, on every device, and depends on the number of values alone:
//!
//! 1. The values are divided into blocks of [`BLOCK`]. The outputs of a block are a chain from its
//!    first value. The total of a block is the last of them.
//! 2. If there is more than one block, the totals are scanned by the same rule.
//! 3. Each block combines the scanned total of the blocks before it, on the left, with each of its
//!    outputs. The first block takes the identity for that total.
//!
//! So an output of `n` values is the end of a chain of at most `16 log16 n` operations, and a scan
//! takes two operations for each value and a few for each block.
//!
//! # Chains
//!
//! Products of floats are chains. In blocks, a product after a 0 would be NaN where the factors of a
//! later block overflow: `0 * inf`, as in the product of `0, 1, 2, …`.

use super::fold::{Fold, ReferenceFold, State};
use crate::DType;
use crate::scalar_expr::EvalError;

/// The values of a block of [`ScanOrder::Blocks`].
pub const BLOCK: usize = 16;

/// The order in which a scan combines values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOrder {
    /// The operation is associative to the bit, so each grouping has the same results.
    Exact,
    /// One value after another; see the [module documentation](self#chains).
    Chain,
    /// By blocks; see the [module documentation](self#blocks).
    Blocks,
}

impl ScanOrder {
    /// Every order.
    pub const ALL: [ScanOrder; 3] = [ScanOrder::Exact, ScanOrder::Chain, ScanOrder::Blocks];

    /// The name in text.
    pub const fn name(self) -> &'static str {
        match self {
            ScanOrder::Exact => "exact",
            ScanOrder::Chain => "chain",
            ScanOrder::Blocks => "blocks",
        }
    }

    /// The order of a scan with a fold that has a name: sums of floats are in blocks, and products
    /// of floats are chains. [`Fold::Of`] has any order: nothing tells whether its operation is associative.
    pub const fn of(fold: &Fold, dtype: DType) -> ScanOrder {
        match fold {
            Fold::Sum if dtype.is_float() => ScanOrder::Blocks,
            Fold::Prod if dtype.is_float() => ScanOrder::Chain,
            _ => ScanOrder::Exact,
        }
    }
}

impl ReferenceFold<'_> {
    /// The scan of values. It ignores the order of the fold.
    ///
    /// # Errors
    /// An integer is divided by zero.
    pub fn scan(&self, order: ScanOrder, values: &[State]) -> Result<Vec<State>, EvalError> {
        let block = match order {
            ScanOrder::Exact | ScanOrder::Chain => values.len().max(1),
            ScanOrder::Blocks => BLOCK,
        };
        let mut outputs: Vec<Vec<State>> =
            values.chunks(block).map(|values| self.chain(values)).collect::<Result<_, _>>()?;
        let mut before = vec![self.identity()];
        if outputs.len() > 1 {
            let totals: Vec<State> = outputs.iter().filter_map(|b| b.last().cloned()).collect();
            before.append(&mut self.scan(order, &totals)?);
        }
        for (block, total) in outputs.iter_mut().zip(&before) {
            for output in block {
                *output = self.combine(total, output)?;
            }
        }
        Ok(outputs.concat())
    }

    /// The values, each combined with those before it, from the first.
    fn chain(&self, values: &[State]) -> Result<Vec<State>, EvalError> {
        let mut outputs: Vec<State> = Vec::with_capacity(values.len());
        for value in values {
            outputs.push(match outputs.last() {
                Some(before) => self.combine(before, value)?,
                None => value.clone(),
            });
        }
        Ok(outputs)
    }
}
