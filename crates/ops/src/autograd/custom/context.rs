//! What a custom derivative knows of the call that it belongs to.

use super::differentiated_twice;
use crate::autograd::grad_mode::is_grad_enabled;
use crate::autograd::history::{self, Tracking};
use crate::autograd::node::{Edge, GradNode};
use crate::autograd::saved::SavedTensor;
use crate::dispatch::value::Value;
use crate::error::{AutogradError, Error, Result};
use crate::functional_call;
use crate::tensor::{Tensor, kernel_scope};
use maquette_ir::Loc;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock, Weak};

/// What a derivative knows of the call: the tensors and values that were saved, and which arguments
/// need gradients. Source: the `ctx` of PyTorch's `torch.library.register_autograd`.
pub struct AutogradCtx {
    name: Arc<str>,
    loc: Loc,
    /// For each argument, whether each of its tensors needs a gradient: one entry for a plain
    /// argument, and one for each element of a list.
    needs: Vec<SmallVec<[bool; 1]>>,
    saved: Vec<(SavedTensor, Origin)>,
    values: Vec<Value>,
    /// Why what was saved cannot be kept.
    refused: Option<Error>,
    /// The tensors of the call, while what it saves is chosen.
    operands: Vec<Tensor>,
    /// The operands as the program names them. In a functional call, others are in their places.
    named: Vec<Tensor>,
    results: Vec<Tensor>,
    /// The saved tensors that are no operands, by index, and those that are marked. Which of them
    /// are results is known once the results are.
    unplaced: Vec<(usize, Tensor)>,
    marked: Vec<Tensor>,
    /// The epoch of allocation in which the choice of what is saved began.
    since: u64,
    /// Which results have no gradient, by index.
    undifferentiated: SmallVec<[usize; 1]>,
    /// The node of the call, which has the histories of the saved tensors. The node owns the
    /// context, so it is not owned in turn.
    node: OnceLock<Weak<GradNode>>,
}

/// Where a saved tensor is from, which decides its history.
#[derive(Clone, Copy)]
enum Origin {
    Operand(usize),
    Result(usize),
    /// Computed by the call, for the derivative: its own derivative is not known.
    Computed,
    /// A constant.
    Other,
}

impl AutogradCtx {
    pub(super) fn new(name: Arc<str>, loc: Loc) -> AutogradCtx {
        AutogradCtx {
            name,
            loc,
            needs: Vec::new(),
            saved: Vec::new(),
            values: Vec::new(),
            refused: None,
            operands: Vec::new(),
            named: Vec::new(),
            results: Vec::new(),
            unplaced: Vec::new(),
            marked: Vec::new(),
            since: u64::MAX,
            undifferentiated: SmallVec::new(),
            node: OnceLock::new(),
        }
    }

    /// Sets the tensors that the call may save, while it chooses. What is made from now on counts
    /// as computed by the call.
    pub(super) fn of_call(
        mut self,
        operands: Vec<Tensor>,
        results: Vec<Tensor>,
        needs: Vec<SmallVec<[bool; 1]>>,
    ) -> AutogradCtx {
        (self.operands, self.results, self.needs) = (operands, results, needs);
        self.since = kernel_scope::begin_epoch();
        self
    }

    /// Sets how the program names the operands.
    pub(super) fn with_names(mut self, named: &[Tensor]) -> AutogradCtx {
        self.named = named.to_vec();
        self
    }

    /// Ends the choice of what is saved.
    ///
    /// # Errors
    /// A value cannot be kept.
    pub(super) fn close(&mut self) -> Result<()> {
        let results = std::mem::take(&mut self.results);
        self.place(&results);
        (self.operands, self.named) = (Vec::new(), Vec::new());
        self.refused.take().map_or(Ok(()), Err)
    }

    /// Finds the results among what was saved and marked.
    pub(super) fn place(&mut self, results: &[Tensor]) {
        let place = |t: &Tensor| results.iter().position(|u| u.is_same_handle(t));
        for (saved, t) in std::mem::take(&mut self.unplaced) {
            let found = match place(&t) {
                Some(i) => Origin::Result(i),
                None if self.is_computed(&t, results) => Origin::Computed,
                None => Origin::Other,
            };
            if let Some((_, origin)) = self.saved.get_mut(saved) {
                *origin = found;
            }
        }
        let marked = std::mem::take(&mut self.marked);
        self.undifferentiated.extend(marked.iter().filter_map(place));
    }

    /// Whether a tensor that is neither an operand nor a result depends on the operands, or has a
    /// history of its own: its memory is new, or that of an operand that needs a gradient or of a
    /// result.
    fn is_computed(&self, t: &Tensor, results: &[Tensor]) -> bool {
        let is_new = || t.own_storage().is_ok_and(|s| s.made_in_epoch() >= self.since);
        let shares = |u: &Tensor| u.has_storage_of(t);
        let views = || {
            let mut operands = self.operands.iter().filter(|u| history::requires_grad(u));
            operands.any(shares) || results.iter().any(shares)
        };
        let has_history = || history::requires_grad(&functional_call::current(t));
        t.dtype().is_float() && (is_new() || views() || has_history())
    }

    /// Takes what another context has saved. The results of the other one are placed.
    pub(super) fn take_saved(&mut self, from: &mut AutogradCtx) {
        self.saved.append(&mut from.saved);
        self.values.append(&mut from.values);
        self.undifferentiated.append(&mut from.undifferentiated);
        self.refused = from.refused.take();
    }

    pub(super) fn set_node(&self, node: &Arc<GradNode>) {
        self.node.get_or_init(|| Arc::downgrade(node));
    }

    /// Whether a result has a gradient.
    pub(super) fn differentiates(&self, result: usize) -> bool {
        !self.undifferentiated.contains(&result)
    }

    /// Keeps a tensor for the derivative: an input, an output, or any other. An input or output has
    /// its gradient in derivatives of higher order. A float that the call itself has computed, as
    /// an intermediate or a view, has none that is known: a call whose derivative reads one can be
    /// differentiated once, and a second sweep that depends on it is an error. Integers, and
    /// tensors that were made before the call, are constants. A float that the call makes from
    /// numbers, as by [`Tensor::full`], counts as computed: the numbers may be elements of an
    /// input, read by [`Tensor::item`]. So make constants before the call, or in the derivative.
    ///
    /// PyTorch: `ctx.save_for_backward`.
    pub fn save(&mut self, t: &Tensor) {
        let place = |of: &[Tensor]| of.iter().position(|u| u.is_same_handle(t));
        let operand = place(&self.operands).or_else(|| place(&self.named));
        if let Some((i, t)) = operand.and_then(|i| Some((i, self.operands.get(i)?))) {
            self.saved.push((SavedTensor::new(t), Origin::Operand(i)));
            return;
        }
        self.unplaced.push((self.saved.len(), t.clone()));
        self.saved.push((SavedTensor::new(&functional_call::current(t)), Origin::Other));
    }

    /// Keeps a number, a list of sizes or another value that is not a tensor. A size of a traced
    /// tensor stays symbolic. A tensor among the values is an error of the call: it would be kept
    /// with its history, which would keep itself alive.
    pub fn save_value(&mut self, value: impl Into<Value>) {
        let value = value.into();
        if value.tensors().next().is_some() {
            self.refused.get_or_insert_with(|| AutogradError::TensorAsValue.into());
        }
        self.values.push(value);
    }

    /// Declares that an output has no gradient: it will not require one. Outputs of dtypes other
    /// than floats have none anyway.
    ///
    /// PyTorch: `ctx.mark_non_differentiable`.
    pub fn mark_non_differentiable(&mut self, output: &Tensor) {
        self.marked.push(output.clone());
    }

    fn saved_count(&self) -> String {
        match self.saved.len() {
            0 => "`save` was not called".to_owned(),
            1 => "the only saved tensor has number 0".to_owned(),
            n => format!("the last of the saved tensors has number {}", n - 1),
        }
    }

    /// The saved tensor with this index, in the order of [`AutogradCtx::save`].
    ///
    /// # Errors
    /// There is none, or its memory was written since.
    pub fn saved(&self, index: usize) -> Result<Tensor> {
        let missing = || {
            Error::value(format!("no tensor was saved as number {index}: {}", self.saved_count()))
        };
        let (saved, origin) = self.saved.get(index).ok_or_else(missing)?;
        let unpack = |edge: Option<&Edge>| saved.unpack(edge, &self.name, self.loc);
        let Some(node) = self.node.get().and_then(Weak::upgrade) else { return unpack(None) };
        match origin {
            Origin::Operand(i) => unpack(node.next.get(*i).and_then(Option::as_ref)),
            Origin::Result(i) if self.differentiates(*i) => {
                unpack(Some(&Edge { node, output: *i as u32 }))
            }
            Origin::Result(_) | Origin::Computed if is_grad_enabled() => {
                let t = unpack(None)?;
                if !t.dtype().is_float() {
                    return Ok(t);
                }
                let (edge, t) = (differentiated_twice(&node, t.meta()), t.untracked());
                history::set(&t, Tracking::Result { edge, writes: 0 });
                Ok(t)
            }
            Origin::Result(_) | Origin::Computed | Origin::Other => unpack(None),
        }
    }

    /// The saved value with this index, in the order of [`AutogradCtx::save_value`].
    ///
    /// # Errors
    /// There is none.
    pub fn value(&self, index: usize) -> Result<&Value> {
        let missing =
            || Error::value(format!("{} values are saved, not {index}", self.values.len()));
        self.values.get(index).ok_or_else(missing)
    }

    /// Whether an argument needs a gradient; for a list, whether any of its tensors does.
    ///
    /// PyTorch: `ctx.needs_input_grad`.
    pub fn needs_input_grad(&self, argument: usize) -> bool {
        self.needs.get(argument).is_some_and(|a| a.contains(&true))
    }

    /// Whether each element of a list needs a gradient.
    pub fn needs_input_grads(&self, argument: usize) -> &[bool] {
        self.needs.get(argument).map_or(&[], |a| &**a)
    }
}
