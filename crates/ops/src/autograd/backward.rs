//! The entry points of a sweep: `backward` collects gradients in leaves, `grad` returns them.

use super::engine::{Sweep, root_grad};
use super::history;
use super::node::Edge;
use crate::dispatch::failures::failed;
use crate::error::{AutogradError, Result};
use crate::tensor::Tensor;
use maquette_ir::Loc;

/// How a sweep goes. The default keeps nothing for another sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackwardOptions {
    /// Keep what the recorded calls saved, so that another sweep is possible.
    pub retain_graph: bool,
    /// Record the derivatives of the gradients, so that gradients of gradients are possible. The
    /// graph is retained.
    pub create_graph: bool,
}

/// The edges of the roots with the gradients with which the sweep begins.
fn roots(outputs: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<(Edge, Tensor)>> {
    outputs
        .iter()
        .enumerate()
        .map(|(i, t)| {
            t.alive()?;
            let edge = history::edge(t)
                .ok_or_else(|| AutogradError::RootWithoutGrad { tensor: t.meta().to_string() })?;
            Ok((edge, root_grad(t, grads.get(i).and_then(Option::as_ref))?))
        })
        .collect()
}

/// Adds to the gradient of each leaf its gradient of the outputs, each weighted by its entry in
/// `grads`: 1 if that is `None`, which only a tensor of one element may have. Source:
/// `torch.autograd.backward`.
///
/// # Errors
/// An output requires no gradient or has several elements and no entry; an earlier sweep has freed
/// the graph; a tensor that a rule reads was written since; a rule fails.
#[track_caller]
pub fn backward(
    outputs: &[Tensor],
    grads: &[Option<Tensor>],
    options: BackwardOptions,
) -> Result<()> {
    let loc = Loc::caller();
    collect(outputs, grads, options).map_err(|e| failed(e.at(loc)))
}

/// As [`backward`], for a caller that adds its line to errors.
pub(crate) fn collect(
    outputs: &[Tensor],
    grads: &[Option<Tensor>],
    options: BackwardOptions,
) -> Result<()> {
    let BackwardOptions { retain_graph, create_graph } = options;
    let sweep = Sweep { retain: retain_graph || create_graph, create: create_graph, wanted: None };
    sweep.run(roots(outputs, grads)?).map(drop)
}

/// The gradients of the outputs with respect to `inputs`, each output weighted as in [`backward`].
/// `None` for an input on which no output depends. Leaves collect nothing. Source:
/// `torch.autograd.grad`.
///
/// # Errors
/// As [`backward`]; an input requires no gradient.
#[track_caller]
pub fn grad(
    outputs: &[Tensor],
    inputs: &[Tensor],
    grads: &[Option<Tensor>],
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let loc = Loc::caller();
    gradients(outputs, inputs, grads, options).map_err(|e| failed(e.at(loc)))
}

/// As [`grad`], for a caller that adds its line to errors.
fn gradients(
    outputs: &[Tensor],
    inputs: &[Tensor],
    grads: &[Option<Tensor>],
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let wanted = inputs
        .iter()
        .map(|t| {
            t.alive()?;
            Ok(history::edge(t)
                .ok_or_else(|| AutogradError::InputWithoutGrad { tensor: t.meta().to_string() })?)
        })
        .collect::<Result<Vec<Edge>>>()?;
    gradients_of(roots(outputs, grads)?, &wanted, options)
}

/// As [`gradients`], of roots with their gradients, with respect to the tensors of edges.
pub(crate) fn gradients_of(
    roots: Vec<(Edge, Tensor)>,
    wanted: &[Edge],
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let BackwardOptions { retain_graph, create_graph } = options;
    let retain = retain_graph || create_graph;
    Sweep { retain, create: create_graph, wanted: Some(wanted) }.run(roots)
}
