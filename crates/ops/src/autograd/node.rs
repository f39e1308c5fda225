//! The graph of derivatives: nodes for calls, and edges to the nodes of the operands.

use super::custom::CustomCall;
use super::given::{Role, with_read_only};
use super::saved::SavedCall;
use super::strided::{Placed, Written};
use crate::error::{AutogradError, Result};
use crate::scope::{ModuleScope, current_scope};
use crate::tensor::Tensor;
use crate::tensor::meta::{Dims, Meta};
use maquette_ir::sym::check_sizes_equal;
use maquette_ir::{DType, Device, Loc};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Output `output` of a node: where a gradient is passed to.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<GradNode>,
    pub(crate) output: u32,
}

/// One edge for each tensor operand, in order; `None` where no gradient is needed.
pub(crate) type Edges = SmallVec<[Option<Edge>; 3]>;

/// Gradients, one for each edge or output; `None` stands for zeros.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 3]>;

/// A function that sees a gradient on its way, and may replace it.
pub(crate) type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// What a gradient of an output must look like.
#[derive(Clone)]
pub(crate) struct OutputInfo {
    pub(crate) sizes: Dims,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
}

impl OutputInfo {
    pub(crate) fn of(m: &Meta) -> OutputInfo {
        OutputInfo { sizes: m.sizes.clone(), dtype: m.dtype, device: m.device }
    }
}

/// A node of the graph of derivatives.
pub(crate) struct GradNode {
    /// Greater than that of every node that it has an edge to. So descending order is a reverse
    /// topological order.
    pub(crate) id: u64,
    /// The operator's name, for messages.
    pub(crate) name: Arc<str>,
    /// The line of the call.
    pub(crate) loc: Loc,
    /// The module in whose code the call was traced.
    pub(crate) scope: Option<ModuleScope>,
    pub(crate) outputs: SmallVec<[OutputInfo; 1]>,
    pub(crate) next: Edges,
    pub(crate) function: Function,
    /// Hooks by output.
    hooks: Mutex<Vec<(u32, Hook)>>,
}

/// The gradient that sweeps have added up.
#[derive(Default)]
pub(crate) struct LeafGradient {
    pub(crate) sum: Mutex<Option<Tensor>>,
    /// Whether the leaf is a tensor of a trace.
    pub(crate) is_traced: bool,
}

/// How a node computes the gradients of its operands.
pub(crate) enum Function {
    /// By the rule of the call's operator. `None` after a sweep that did not retain the graph.
    Call(Mutex<Option<Arc<SavedCall>>>),
    /// By a function that the program gave.
    Custom(Mutex<Option<Arc<CustomCall>>>),
    /// Adds the gradient to that of a leaf.
    Accumulate(LeafGradient),
    /// The part of a gradient that belongs to a view.
    View(Placed),
    /// A write through a view.
    Write(Written),
}

impl GradNode {
    pub(crate) fn new(
        name: Arc<str>,
        loc: Loc,
        outputs: SmallVec<[OutputInfo; 1]>,
        next: Edges,
        function: Function,
    ) -> Arc<GradNode> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (scope, hooks) = (current_scope(), Mutex::default());
        Arc::new(GradNode { id, name, loc, scope, outputs, next, function, hooks })
    }

    /// The node of a leaf.
    pub(crate) fn leaf(of: &Tensor, loc: Loc) -> Arc<GradNode> {
        let meta = of.meta();
        let gradient = LeafGradient { is_traced: of.slot().is_some(), ..LeafGradient::default() };
        let outputs = smallvec::smallvec![OutputInfo::of(meta)];
        GradNode::new("leaf".into(), loc, outputs, Edges::new(), Function::Accumulate(gradient))
    }

    pub(crate) fn add_hook(&self, output: u32, hook: Hook) {
        lock(&self.hooks).push((output, hook));
    }

    /// Runs the hooks of the outputs on their gradients.
    pub(crate) fn run_hooks(&self, grads: &mut [Option<Tensor>]) -> Result<()> {
        let hooks = lock(&self.hooks).clone();
        for (output, hook) in hooks {
            if let Some(slot) = grads.get_mut(output as usize)
                && let Some(grad) = slot
                && let Some(other) =
                    with_read_only(Role::Hook, self, std::iter::once(&*grad), || hook(grad))?
            {
                let (expected, found) = (grad.meta(), other.alive()?.meta());
                let claim = "a hook returns a gradient of the same sizes";
                let fits = expected.dtype == found.dtype
                    && check_sizes_equal(&expected.sizes, &found.sizes, claim)?;
                if !fits {
                    let (expected, found) = (expected.to_string(), found.to_string());
                    return Err(AutogradError::GradOfHook { expected, found }.into());
                }
                *slot = Some(other);
            }
        }
        Ok(())
    }

    /// What the node keeps of its call.
    ///
    /// # Errors
    /// A sweep has freed it.
    pub(crate) fn kept<T>(&self, saved: &Mutex<Option<Arc<T>>>) -> Result<Arc<T>> {
        let freed = || AutogradError::Freed { op: self.name.to_string(), called: self.loc };
        Ok(lock(saved).clone().ok_or_else(freed)?)
    }

    /// Frees the tensors that the node keeps.
    pub(crate) fn free(&self) {
        match &self.function {
            Function::Call(saved) => drop(lock(saved).take()),
            Function::Custom(saved) => drop(lock(saved).take()),
            Function::Write(written) => written.inner.free(),
            Function::Accumulate(_) | Function::View(_) => {}
        }
    }
}

/// The contents of a mutex, also after a panic of another holder: every change is one assignment.
pub(crate) fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for GradNode {
    /// Drops what the node alone keeps alive without recursion: a graph may be a million nodes
    /// deep.
    fn drop(&mut self) {
        let mut pending: Vec<Arc<GradNode>> = Vec::new();
        take_nodes(self, &mut pending);
        while let Some(node) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                take_nodes(&mut node, &mut pending);
            }
        }
    }
}

/// Moves the nodes that a node refers to into a list.
fn take_nodes(node: &mut GradNode, into: &mut Vec<Arc<GradNode>>) {
    into.extend(node.next.drain(..).flatten().map(|e| e.node));
    if let Function::Write(written) = &node.function {
        into.push(written.inner.clone());
    }
}

impl OutputInfo {
    /// The gradient of a result that nothing depends on.
    pub(crate) fn zeros(&self) -> Tensor {
        Tensor::empty_on(&self.sizes, self.dtype, self.device).zero_()
    }
}
