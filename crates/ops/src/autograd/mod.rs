//! Reverse-mode differentiation.
//!
//! A call whose operands require a gradient records a node (`node`): the rule of the operator's
//! derivative, the tensors that the rule reads, and edges to the nodes of the operands. A *sweep*
//! (`engine`) visits the nodes in reverse order and passes gradients along the edges.
//!
//! Recording is a stage of the dispatcher (`record`), before the modes. So a trace shows the
//! operators that rules call. A rule consists of calls of operators; recorded in turn, they have
//! derivatives of their own.
//!
//! Views and writes: a handle knows its *base*, the handle that it is a view of (`history`). The
//! history of gradients belongs to the base. A write through a view changes the history of the
//! base, and every other view takes its history from there again.
//!
//! Source: A. Griewank and A. Walther, "Evaluating Derivatives", 2008, chapter 3; PyTorch's
//! autograd for views and writes.

pub(crate) mod backward;
pub(crate) mod checkpoint;
mod collected;
mod custom;
pub(crate) mod engine;
pub(crate) mod expression;
mod given;
pub(crate) mod grad_mode;
pub(crate) mod history;
pub(crate) mod layout;
pub(crate) mod node;
pub(crate) mod record;
pub(crate) mod rule;
pub(crate) mod saved;
pub(crate) mod strided;

pub use backward::{BackwardOptions, backward, grad};
pub use checkpoint::checkpoint;
// For tracers.
#[doc(hidden)]
pub use checkpoint::outside_regions;
pub use custom::{AutogradCtx, AutogradRule, ResultGrad, custom_vjp};
pub use grad_mode::{enable_grad, no_grad};

use crate::dispatch::mode::{Question, ask};
use maquette_ir::Loc;

/// Whether calls on this thread record derivatives. True at first. A compiled program is guarded on
/// the answer; any other trace fails.
#[track_caller]
pub fn is_grad_enabled() -> bool {
    // A trace gets the error, which this cannot return.
    let _reported = ask(Question::GradMode, "whether calls record derivatives", Loc::caller());
    grad_mode::is_grad_enabled()
}
