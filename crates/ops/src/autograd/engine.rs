//! The sweep: passes gradients from roots along the edges, each node after all that it gets
//! gradients from.
//!
//! Nodes are numbered in the order of their calls, so the largest number among the pending nodes is
//! next: nothing that is still to come has an edge to it. The cost is that of a heap operation and
//! the rule for each node. There is no recursion.

use super::collected::Collected;
use super::grad_mode::with_grad;
use super::history;
use super::layout::surely_repeats;
use super::node::{Edge, Function, GradNode, Grads, LeafGradient, lock};
use super::rule::Backward;
use crate::dispatch::autocast::without_autocast;
use crate::error::{AutogradError, Result};
use crate::tensor::Tensor;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::check_sizes_equal;
use smallvec::{SmallVec, smallvec};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// How a sweep goes.
pub(crate) struct Sweep<'a> {
    /// Keep what the nodes saved, for another sweep.
    pub(crate) retain: bool,
    /// Record the derivatives of the gradients.
    pub(crate) create: bool,
    /// The edges whose gradients are wanted. If `None`, the leaves collect theirs.
    pub(crate) wanted: Option<&'a [Edge]>,
}

/// A node with the gradients of its results so far.
struct Pending {
    node: Arc<GradNode>,
    grads: Grads,
    /// By result: whether its gradient is a fresh tensor that a rule gave. See [`Collected`].
    owned: SmallVec<[bool; 2]>,
}

struct ById(Arc<GradNode>);

impl PartialEq for ById {
    fn eq(&self, other: &ById) -> bool {
        self.0.id == other.0.id
    }
}
impl Eq for ById {}
impl PartialOrd for ById {
    fn partial_cmp(&self, other: &ById) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ById {
    fn cmp(&self, other: &ById) -> Ordering {
        let order = self.0.id.cmp(&other.0.id);
        if fault_injected(Fault::NodesInCallOrder) { order.reverse() } else { order }
    }
}

impl Sweep<'_> {
    /// Passes the gradients of `roots` on. Returns those of the wanted edges.
    ///
    /// # Errors
    /// The error of a rule; a node was freed, or a tensor that it saved was written.
    pub(crate) fn run(&self, roots: Vec<(Edge, Tensor)>) -> Result<Vec<Option<Tensor>>> {
        // The rules compute in the dtypes of the calls, which autocast has chosen before.
        without_autocast(|| with_grad(self.create, || self.run_all(roots)))
    }

    fn run_all(&self, roots: Vec<(Edge, Tensor)>) -> Result<Vec<Option<Tensor>>> {
        let needed = self.wanted.map(|w| Needed::new(&roots, w));
        let mut found: Vec<Option<Tensor>> = vec![None; self.wanted.map_or(0, <[Edge]>::len)];
        let mut queue: BinaryHeap<ById> = BinaryHeap::new();
        let mut pending: rustc_hash::FxHashMap<u64, Pending> = Default::default();
        let pass = |queue: &mut BinaryHeap<ById>,
                    pending: &mut rustc_hash::FxHashMap<u64, Pending>,
                    edge: Edge,
                    grad: Tensor,
                    is_fresh: bool|
         -> Result<()> {
            let entry = pending.entry(edge.node.id).or_insert_with(|| {
                queue.push(ById(edge.node.clone()));
                let n = edge.node.outputs.len();
                let (grads, owned) = (smallvec![None; n], smallvec![false; n]);
                Pending { node: edge.node.clone(), grads, owned }
            });
            let before = entry.grads.get(edge.output as usize);
            if let Some(owned) = entry.owned.get_mut(edge.output as usize) {
                let is_alone = is_fresh || fault_injected(Fault::SharedSumsInPlace);
                *owned = is_alone && matches!(before, Some(None));
            }
            if let Some(slot) = entry.grads.get_mut(edge.output as usize) {
                *slot = Some(match slot.take() {
                    Some(sum) if !fault_injected(Fault::GradientsReplaced) => {
                        (sum + grad).ok()?.clone()
                    }
                    _ => grad,
                });
            }
            Ok(())
        };
        for (edge, grad) in roots {
            pass(&mut queue, &mut pending, edge, grad, false)?;
        }
        while let Some(ById(node)) = queue.pop() {
            let Some(mut at) = pending.remove(&node.id) else { continue };
            at.node.run_hooks(&mut at.grads)?;
            for (wanted, found) in self.wanted.iter().copied().flatten().zip(&mut found) {
                if wanted.node.id == node.id {
                    *found = at.grads.get(wanted.output as usize).cloned().flatten();
                }
            }
            if let Some(needed) = &needed
                && !needed.passes(&node)
            {
                continue;
            }
            let mut collected = Collected::default();
            if let Some(Some(edge)) = node.next.first()
                && let Some(at) = pending.get_mut(&edge.node.id)
                && at.owned.get(edge.output as usize) == Some(&true)
            {
                collected.sum = at.grads.get_mut(edge.output as usize).and_then(Option::take);
            }
            let mut apply = || node.apply(&at.grads, &mut collected);
            let given = match &node.scope {
                Some(scope) => scope.run(apply)?,
                None => apply()?,
            };
            if !self.retain {
                node.free();
            }
            if let (Some(Some(edge)), Some(sum)) = (node.next.first(), collected.sum)
                && !fault_injected(Fault::SumLeftOut)
            {
                pass(&mut queue, &mut pending, edge.clone(), sum, true)?;
            }
            for (i, (edge, grad)) in node.next.iter().zip(given).enumerate() {
                if let (Some(edge), Some(grad)) = (edge, grad)
                    && needed.as_ref().is_none_or(|n| n.reaches(&edge.node))
                {
                    let is_fresh = i == 0 && collected.is_fresh;
                    pass(&mut queue, &mut pending, edge.clone(), grad, is_fresh)?;
                }
            }
        }
        if !self.create {
            found.iter_mut().for_each(|g| *g = g.take().map(history::without_base));
        }
        Ok(found)
    }
}

impl GradNode {
    /// The gradients of the operands.
    pub(crate) fn apply(
        self: &Arc<Self>,
        grads: &[Option<Tensor>],
        collected: &mut Collected,
    ) -> Result<Grads> {
        match &self.function {
            Function::Custom(saved) => self.kept(saved)?.apply(self, grads),
            Function::Call(saved) => {
                let call = self.kept(saved)?;
                let edge = Edge { node: self.clone(), output: 0 };
                Backward::apply(&call, &self.next, edge, grads, collected)
            }
            Function::Accumulate(leaf) => {
                if let Some(Some(grad)) = grads.first() {
                    self.accumulate(leaf, grad)?;
                }
                Ok(Grads::new())
            }
            Function::View(place) => place.apply(grads, collected),
            Function::Write(written) => written.apply(grads),
        }
    }

    fn accumulate(&self, leaf: &LeafGradient, grad: &Tensor) -> Result<()> {
        let LeafGradient { sum, is_traced } = leaf;
        // a run of the trace would not write the gradient
        if grad.slot().is_some() && !is_traced {
            let tensor = grad.meta().to_string();
            return Err(AutogradError::LeafOutsideTrace { tensor, made: self.loc }.into());
        }
        // No lock is held while an operator runs. If another sweep has added its gradient in
        // between, this one is added to that sum.
        loop {
            let before = lock(sum).clone();
            let after = match &before {
                // Someone else may have this gradient: it is another tensor from now on.
                Some(before) if !fault_injected(Fault::LeafGradientsReplaced) => before + grad,
                _ => history::without_base(grad.unshared()),
            };
            after.alive()?;
            let mut now = lock(sum);
            let is_same = match (&*now, &before) {
                (Some(now), Some(before)) => now.is_same_handle(before),
                (now, before) => now.is_none() && before.is_none(),
            };
            if is_same {
                *now = Some(after);
                return Ok(());
            }
        }
    }
}

impl Tensor {
    /// The tensor itself if nobody else has a handle to its memory, and each element has memory of
    /// its own; else a copy. The owner of a leaf may write its gradient.
    fn unshared(&self) -> Tensor {
        let is_writable = self.is_only_handle() && !self.is_repeated();
        if is_writable { self.clone() } else { self.clone_tensor() }
    }

    /// Whether elements share memory, as in the gradient of a sum. With symbolic sizes: whether
    /// they are known to, as copies of all others would be kernels of a compiled step.
    fn is_repeated(&self) -> bool {
        let meta = self.meta();
        meta.dense_numel().is_none() && surely_repeats(&meta.sizes, &meta.strides)
    }
}

/// The nodes from which a wanted edge can be reached.
struct Needed {
    reaching: rustc_hash::FxHashSet<u64>,
}

impl Needed {
    /// Visits every node below the roots once, operands first, without recursion.
    fn new(roots: &[(Edge, Tensor)], wanted: &[Edge]) -> Needed {
        let mut seen: rustc_hash::FxHashMap<u64, Arc<GradNode>> = Default::default();
        let mut stack: Vec<Arc<GradNode>> = roots.iter().map(|(e, _)| e.node.clone()).collect();
        while let Some(node) = stack.pop() {
            if seen.insert(node.id, node.clone()).is_none() {
                stack.extend(node.next.iter().flatten().map(|e| e.node.clone()));
            }
        }
        let mut all: Vec<&Arc<GradNode>> = seen.values().collect();
        all.sort_unstable_by_key(|n| n.id);
        let mut reaching: rustc_hash::FxHashSet<u64> = wanted.iter().map(|e| e.node.id).collect();
        for node in all {
            if node.next.iter().flatten().any(|e| reaching.contains(&e.node.id)) {
                reaching.insert(node.id);
            }
        }
        Needed { reaching }
    }

    fn reaches(&self, node: &GradNode) -> bool {
        self.reaching.contains(&node.id)
    }

    /// Whether gradients go on from a node to a wanted one.
    fn passes(&self, node: &GradNode) -> bool {
        node.next.iter().flatten().any(|e| self.reaches(&e.node)) && self.reaches(node)
    }
}

/// For each root, whether a node that was made before the one with the number `first` can be
/// reached from it. Visits newer nodes only, each once and without recursion.
pub(crate) fn reach_older(roots: &[Option<Edge>], first: u64) -> Vec<bool> {
    let mut newer: rustc_hash::FxHashMap<u64, &GradNode> = Default::default();
    let mut stack: Vec<&GradNode> = roots.iter().flatten().map(|e| &*e.node).collect();
    let mut is_any = false;
    while let Some(node) = stack.pop() {
        if node.id < first {
            is_any = true;
        } else if newer.insert(node.id, node).is_none() {
            stack.extend(node.next.iter().flatten().map(|e| &*e.node));
        }
    }
    if !is_any {
        return vec![false; roots.len()];
    }
    let mut newer: Vec<&GradNode> = newer.into_values().collect();
    newer.sort_unstable_by_key(|n| n.id);
    let mut reaching: rustc_hash::FxHashSet<u64> = Default::default();
    for node in newer {
        let reaches = |e: &Edge| e.node.id < first || reaching.contains(&e.node.id);
        if node.next.iter().flatten().any(reaches) {
            reaching.insert(node.id);
        }
    }
    let reaches = |e: &Edge| e.node.id < first || reaching.contains(&e.node.id);
    roots.iter().map(|root| root.as_ref().is_some_and(reaches)).collect()
}

/// The gradient with which a sweep begins: that of the caller, or 1 for a tensor of one element.
pub(crate) fn root_grad(t: &Tensor, grad: Option<&Tensor>) -> Result<Tensor> {
    match grad {
        Some(grad) => {
            let claim = "a gradient has the sizes of its tensor";
            if !check_sizes_equal(t.sizes(), grad.sizes(), claim)? {
                return Err(AutogradError::RootGrad {
                    tensor: t.meta().to_string(),
                    grad: grad.meta().to_string(),
                }
                .into());
            }
            if grad.dtype() == t.dtype() { Ok(grad.clone()) } else { Ok(grad.to_dtype(t.dtype())) }
        }
        None if t.numel().eq(1).guard()? => Ok(t.ones_like()),
        None => Err(AutogradError::NotScalar { tensor: t.meta().to_string() }.into()),
    }
}
