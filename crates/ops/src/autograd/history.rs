//! The history of a handle: which node made it, so that a gradient of the handle goes to that node.
//!
//! The history of a storage belongs to a base: the handle of which the others are views. A view has
//! a history of its own, and the number of writes to the base that it accounts for. Once the base
//! was written again, a view is a strided part of the base as it is now.

use super::node::{Edge, GradNode, lock};
use super::{custom, strided};
use crate::error::{AutogradError, Result};
use crate::tensor::Tensor;
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// What autograd knows of a handle.
#[derive(Default)]
pub(crate) struct History {
    /// The variant of `tracking`, to be read without the lock.
    kind: AtomicU8,
    /// Whether this is an output of a closure with a derivative of its own, and a view of another
    /// tensor, or a view of such an output. The derivative of a view by strides is not its own, so
    /// no write can be followed.
    is_custom_view: AtomicBool,
    /// Whether this is a leaf that is a view of another tensor, or a view of such a leaf. The base
    /// of both is not a leaf, so it does not tell that a write would reach one.
    is_leaf_view: AtomicBool,
    /// Whether this is a view that was made in `no_grad`, or a view of one. The history of its base
    /// does not follow writes through it.
    is_without_grad: AtomicBool,
    tracking: Mutex<Tracking>,
}

/// How a handle takes part in differentiation.
#[derive(Clone, Default)]
pub(crate) enum Tracking {
    /// Not by itself. A view requires a gradient if its base has become a result.
    #[default]
    Untracked,
    /// A view that was made without recording, of a base that requires a gradient.
    ViewWithoutGrad,
    /// A leaf: gradients end here.
    Leaf(Arc<GradNode>),
    /// The result of a call, or a base that was written through a view; `writes` counts these
    /// writes.
    Result { edge: Edge, writes: u64 },
    /// A view of a result or leaf, as it was after `writes` writes.
    View { edge: Edge, writes: u64 },
}

impl Tracking {
    const fn kind(&self) -> u8 {
        match self {
            Tracking::Untracked => UNTRACKED,
            Tracking::ViewWithoutGrad => VIEW_WITHOUT_GRAD,
            Tracking::Leaf(_) => LEAF,
            Tracking::Result { .. } => RESULT,
            Tracking::View { .. } => VIEW,
        }
    }
}

const UNTRACKED: u8 = 0;
const VIEW_WITHOUT_GRAD: u8 = 1;
const LEAF: u8 = 2;
const RESULT: u8 = 3;
const VIEW: u8 = 4;

impl History {
    fn kind(&self) -> u8 {
        self.kind.load(Ordering::Acquire)
    }

    fn is_custom_view(&self) -> bool {
        self.is_custom_view.load(Ordering::Relaxed)
    }

    fn is_leaf_view(&self) -> bool {
        self.is_leaf_view.load(Ordering::Relaxed)
    }

    fn is_without_grad(&self) -> bool {
        self.is_without_grad.load(Ordering::Relaxed)
    }

    /// Gives a view, or another handle of the same elements, what holds for all views.
    fn pass_on(&self, to: &Tensor) {
        if self.is_custom_view() {
            set_custom_view(to);
        }
        if self.is_leaf_view() {
            set_leaf_view(to);
        }
        if self.is_without_grad() {
            set_without_grad(to);
        }
    }

    fn get(&self) -> Tracking {
        lock(&self.tracking).clone()
    }

    fn set(&self, tracking: Tracking) {
        let mut current = lock(&self.tracking);
        self.kind.store(tracking.kind(), Ordering::Release);
        let before = std::mem::replace(&mut *current, tracking);
        // what it kept alive is dropped without the lock
        drop(current);
        drop(before);
    }
}

/// Gives a handle a history.
pub(crate) fn set(t: &Tensor, tracking: Tracking) {
    if let Some(h) = t.history() {
        h.set(tracking);
    }
}

/// Gives a handle the history of another one for the same elements.
pub(crate) fn copy(from: &Tensor, to: &Tensor) {
    if let Some(h) = from.history() {
        if h.kind() != UNTRACKED {
            set(to, h.get());
        }
        h.pass_on(to);
    }
}

/// Marks an output of a closure with a derivative of its own that is a view of another tensor.
pub(crate) fn set_custom_view(t: &Tensor) {
    if let Some(h) = t.history() {
        h.is_custom_view.store(true, Ordering::Relaxed);
    }
}

fn set_leaf_view(t: &Tensor) {
    if let Some(h) = t.history() {
        h.is_leaf_view.store(true, Ordering::Relaxed);
    }
}

fn set_without_grad(t: &Tensor) {
    if let Some(h) = t.history() {
        h.is_without_grad.store(true, Ordering::Relaxed);
    }
}

/// Another handle of the same elements, a view of the tensor. It has no history yet.
pub(crate) fn view_of_all(t: &Tensor) -> Tensor {
    let Ok(view) = t.view_of(t.meta().clone()) else { return t.clone() };
    match t.slot() {
        Some(slot) => view.into_slot(slot.clone()),
        None => view,
    }
}

/// As [`view_of_all`], with the history of the tensor.
pub(crate) fn alias(t: &Tensor) -> Tensor {
    let view = view_of_all(t);
    match edge(t) {
        Some(edge) => {
            let writes = view.base().map_or(0, |base| writes(&base));
            set(&view, Tracking::View { edge, writes });
        }
        None => copy(t, &view),
    }
    view
}

/// Notes that a view was made. A view that is not recorded of a tensor that requires a gradient
/// has no part in its history; a call that records the view gives it one with [`set_view`].
pub(crate) fn made_view(view: &Tensor, of: &Tensor) {
    if !super::grad_mode::is_grad_enabled() {
        set_without_grad(view);
        if requires_grad(of) {
            set(view, Tracking::ViewWithoutGrad);
        }
    }
    if let Some(of) = of.history() {
        of.pass_on(view);
    }
}

/// Whether the tensor is a view that was made in `no_grad`, or a view of one.
pub(crate) fn is_without_grad(t: &Tensor) -> bool {
    t.history().is_some_and(History::is_without_grad)
}

/// Gives a view of `base` the history of the call that made the view. The call ran its kernel in
/// `no_grad`. That counts only if the program viewed a view that was made there.
pub(crate) fn set_view(view: &Tensor, base: &Tensor, edge: Edge, of_view_without_grad: bool) {
    set(view, Tracking::View { edge, writes: writes(base) });
    if let Some(h) = view.history() {
        h.is_without_grad.store(of_view_without_grad, Ordering::Relaxed);
    }
}

/// A gradient for the program. The sweep made its views in `no_grad`, which is no concern of the
/// program: a view is another handle without a base.
pub(crate) fn without_base(gradient: Tensor) -> Tensor {
    if is_without_grad(&gradient) { gradient.untracked() } else { gradient }
}

/// Whether a gradient of the tensor is passed on.
#[inline]
pub fn requires_grad(t: &Tensor) -> bool {
    match t.history().map_or(UNTRACKED, History::kind) {
        UNTRACKED => t.base_history().is_some_and(|base| base.kind() == RESULT),
        VIEW_WITHOUT_GRAD => false,
        _ => true,
    }
}

/// Whether calls on the tensor are looked at by the stage that records derivatives: it requires a
/// gradient, or is a view without one of a tensor that does.
pub(crate) fn takes_part(t: &Tensor) -> bool {
    match t.history().map_or(UNTRACKED, History::kind) {
        UNTRACKED => t.base_history().is_some_and(|base| base.kind() == RESULT),
        _ => true,
    }
}

/// Whether the tensor is a leaf that collects a gradient.
pub(crate) fn leaf(t: &Tensor) -> Option<Arc<GradNode>> {
    match t.history()?.get() {
        Tracking::Leaf(node) => Some(node),
        _ => None,
    }
}

/// Where a gradient of the tensor goes.
pub(crate) fn edge(t: &Tensor) -> Option<Edge> {
    let history = t.history()?;
    match history.kind() {
        UNTRACKED if t.base_history().is_none() => return None,
        VIEW_WITHOUT_GRAD => return None,
        _ => {}
    }
    let tracking = history.get();
    let (own, accounted) = match tracking {
        Tracking::Leaf(node) => return Some(Edge { node, output: 0 }),
        Tracking::Result { edge, .. } => return Some(edge),
        Tracking::View { edge, writes } => (Some(edge), writes),
        Tracking::Untracked => (None, 0),
        Tracking::ViewWithoutGrad => return None,
    };
    let base = t.base()?;
    match base.history()?.get() {
        Tracking::Result { edge: of_base, writes }
            if own.is_none() || writes != accounted && !fault_injected(Fault::ViewsKeepHistory) =>
        {
            let edge = match &own {
                Some(own) if history.is_custom_view() => custom::written_since(own, t.meta()),
                _ => strided::view(of_base, base.meta(), t.meta()),
            };
            history.set(Tracking::View { edge: edge.clone(), writes });
            Some(edge)
        }
        _ => own,
    }
}

/// The number of writes to the base of a view, which its history accounts for.
pub(crate) fn writes(base: &Tensor) -> u64 {
    match base.history().map(History::get) {
        Some(Tracking::Result { writes, .. }) => writes,
        _ => 0,
    }
}

/// Checks that a call which records derivatives may write the tensor.
///
/// # Errors
/// The tensor is a leaf or a view of one, a view that was made without recording, or an output of a
/// closure that shares memory.
pub(crate) fn check_writable(t: &Tensor) -> Result<()> {
    let Some(history) = t.history() else { return Ok(()) };
    let base = t.base_history();
    if history.is_custom_view() {
        return Err(AutogradError::WriteToCustomView.into());
    }
    check_view(t)?;
    if history.kind() == LEAF {
        return Err(AutogradError::WriteToLeaf { view: false }.into());
    }
    if history.is_leaf_view() || base.is_some_and(|b| b.kind() == LEAF) {
        return Err(AutogradError::WriteToLeaf { view: true }.into());
    }
    Ok(())
}

/// Checks that a tensor which the program writes with gradients is not a view that was made in
/// `no_grad`.
///
/// # Errors
/// It is.
pub(crate) fn check_view(t: &Tensor) -> Result<()> {
    if is_without_grad(t) && t.dtype().is_float() {
        return Err(AutogradError::WriteToViewWithoutGrad.into());
    }
    Ok(())
}

/// Checks that the program may write the tensor through an array, now.
///
/// # Errors
/// Gradients are recorded, and the tensor takes part in differentiation.
pub(crate) fn check_array_write(t: &Tensor) -> Result<()> {
    if !takes_part(t) || !super::grad_mode::is_grad_enabled() {
        return Ok(());
    }
    check_writable(t)?;
    Err(AutogradError::WriteByArray { tensor: t.meta().to_string() }.into())
}

/// Records that the call of `node` wrote `t`, which is its result `output`. `operand` is the index
/// of `t` among the node's operands.
pub(crate) fn rebase(t: &Tensor, node: Arc<GradNode>, output: u32, operand: usize) {
    let Some(base) = t.base() else {
        let writes = writes(t) + 1;
        set(t, Tracking::Result { edge: Edge { node, output }, writes });
        return;
    };
    if fault_injected(Fault::BaseNotRebased) {
        return;
    }
    let before = edge(&base);
    let count = writes(&base) + 1;
    let edge = strided::write(before, base.meta(), t.meta(), node, output, operand);
    set(&base, Tracking::Result { edge, writes: count });
}

/// Makes the tensor a leaf.
///
/// # Errors
/// Its dtype has no gradients, or it is the result of a call.
pub(crate) fn make_leaf(t: &Tensor, loc: Loc) -> Result<()> {
    let live = t.alive()?;
    if !live.dtype().is_float() {
        return Err(AutogradError::NotFloat { dtype: live.dtype() }.into());
    }
    if !requires_grad(live) {
        if live.base_history().is_some() {
            set_leaf_view(live);
        }
        set(live, Tracking::Leaf(GradNode::leaf(live, loc)));
    }
    Ok(())
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({})", self.kind())
    }
}
