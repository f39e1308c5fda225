//! Rewrites that change results by rounding, for functions that allow them: `FastMath`.
//!
//! The one rewrite so far recognises attention that is written as products and a softmax,
//! `softmax(q kᵀ scale + mask) v`, and makes it one operator, `fast::attention`. Its kernel never
//! has all scores in memory, and takes its sums in another order.
//!
//! The rewrite matches on the graph as traced, where a `matmul` is one node and not yet the views
//! and products that it consists of. It matches from the last product backwards, where PyTorch's
//! `fuse_attention` has a list of whole patterns. What an operator does in an attention is a fact
//! that `maquette_aten::attention_parts` answers. A match is refused, with a
//! [reason](NoAttentionReason), unless
//!
//! - every value between operands and result has one user, the next node of the pattern, and the
//!   program does not return it;
//! - no other node between the first and the last of the pattern writes memory or has an effect:
//!   the one operator reads its operands where the last product stood;
//! - no registration overrides an operator of the pattern, or one that it calls.
//!
//! **Invariant.** The result has the type of the original, and NaN where the original has it: a
//! query whose scores are all -inf yields NaN, as a softmax does, and not 0, as
//! `scaled_dot_product_attention` does.
//!
//! **Cost.** A pass over the nodes, another for each attention, and a copy of the graph if there is
//! one.

mod emit;
mod explain;
mod pattern;
mod scores;

pub use explain::{AttentionExplanation, NoAttentionReason};

use crate::{Compilation, PassOptions};
use maquette_aten::attention_parts::operators;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;

/// What passes may do although it changes bits of results; nothing by default. Each flag allows one
/// kind of rewrite. `explain` of a compiled function says what was rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FastMath {
    attention: bool,
}

impl FastMath {
    /// Allows nothing.
    pub fn new() -> FastMath {
        FastMath::default()
    }

    /// Allows every rewrite, later ones included.
    pub fn all() -> FastMath {
        FastMath { attention: true }
    }

    /// Whether attention that is written as products and a softmax may be one kernel, as
    /// `scaled_dot_product_attention` is.
    ///
    /// Recognised is `softmax(scores, -1).matmul(v)`, where the scores are `q.matmul(kᵀ)` of `f32`
    /// or `f64`. `bmm` and `mm` are products, too. Numbers may multiply or divide `q`, `k` and the
    /// scores. There may be one mask, after that: a float mask that is added, or a bool mask by
    /// `masked_fill` or `where_` with -inf. Between the softmax and the product there may be a
    /// `dropout` that does nothing.
    ///
    /// Results differ by rounding, and in nothing else: sums have another order, factors are
    /// multiplied into one, and weights are divided by their sum after the product with the values.
    /// So a number near the limits of the dtype may overflow in one of both. A query that sees no
    /// key yields NaN, as the function says.
    pub fn attention(self, yes: bool) -> FastMath {
        FastMath { attention: yes }
    }
}

/// The pass: rewrites a traced graph as the flags allow.
///
/// # Errors
/// The graph is not valid.
pub(crate) fn run(compilation: &mut Compilation, options: &PassOptions<'_>) -> Result<()> {
    if let ProgramForm::Original(graph) = &mut compilation.program
        && options.fast_math.attention
    {
        let (found, explanation) = pattern::find(graph);
        if !found.is_empty() || !explanation.refused.is_empty() {
            compilation.deciding.extend(operators());
        }
        if !found.is_empty() {
            *graph = emit::emit(graph, &found)?;
        }
        compilation.attention = Some(explanation);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
