//! Views and writes through views, by their strides: a view is a strided part of its base, and a
//! write through a view replaces this part.
//!
//! Gradients of a base have the base's strides, so that a view has the same place in them. The cost
//! of a write through a view is one copy of the base's gradient.
//!
//! Source: `CopySlices` and `AsStridedBackward` of PyTorch.

use super::collected::Collected;
use super::node::{Edge, Edges, Function, GradNode, Grads, OutputInfo};
use crate::aten::dims::known_equal;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::meta::{Dims, Meta};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::SymInt;
use smallvec::smallvec;
use std::sync::Arc;

/// A layout, with the offset from the first element of the base.
#[derive(Clone)]
struct Layout {
    sizes: Dims,
    strides: Dims,
    offset: SymInt,
}

/// A view's place in its base.
pub(crate) struct Placed {
    base: Layout,
    view: Layout,
}

/// Whether strides are known to be those of rows without gaps.
fn is_row_major(sizes: &[SymInt], strides: &[SymInt]) -> bool {
    let mut expected = SymInt::from(1);
    sizes.iter().zip(strides).rev().all(|(n, stride)| {
        let fits = n.as_i64() == Some(1) || known_equal(*stride, expected);
        expected *= *n;
        fits
    })
}

/// A write through a view: the call that computed what was written.
pub(crate) struct Written {
    place: Placed,
    /// The node of the call. It is not part of the graph itself.
    pub(crate) inner: Arc<GradNode>,
    /// The result of the call that was written, and the operand that was read there.
    output: u32,
    operand: usize,
}

impl Placed {
    pub(crate) fn new(base: &Meta, view: &Meta) -> Placed {
        let layout = |m: &Meta| Layout {
            sizes: m.sizes.clone(),
            strides: m.strides.clone(),
            offset: m.offset - base.offset,
        };
        Placed { base: layout(base), view: layout(view) }
    }

    /// A copy of a gradient of the base, with the base's strides.
    fn copy_of(&self, grad: &Tensor) -> Tensor {
        self.zeros(grad).copy_(grad)
    }

    /// Zeros with the layout of the base.
    fn zeros(&self, like: &Tensor) -> Tensor {
        let Layout { sizes, strides, .. } = &self.base;
        match is_row_major(sizes, strides) {
            true => like.new_zeros(sizes, like.dtype()),
            false => like.new_empty_strided(sizes, strides, like.dtype()).zero_(),
        }
    }

    fn part_of(&self, grad: &Tensor) -> Tensor {
        let Layout { sizes, strides, offset } = &self.view;
        let offset = if fault_injected(Fault::ViewAtStart) { 0.into() } else { *offset };
        grad.as_strided(sizes, strides, Some(offset))
    }

    /// The gradient of the base that corresponds to a gradient of the view.
    ///
    /// # Errors
    /// The gradient does not have the view's sizes.
    pub(crate) fn spread(&self, grad: &Tensor) -> Result<Tensor> {
        let all = self.zeros(grad);
        self.part_of(&all).copy_(grad).ok()?;
        Ok(all)
    }

    /// Adds the gradient of the view to a gradient of the base that nobody else holds; without one,
    /// as [`Placed::spread`].
    ///
    /// # Errors
    /// The gradient does not have the view's sizes.
    pub(crate) fn add_to(&self, collected: Option<Tensor>, grad: &Tensor) -> Result<Tensor> {
        let Some(all) = collected else { return self.spread(grad) };
        let Layout { sizes, strides, .. } = &self.base;
        let is_equal = |a: &[SymInt], b: &[SymInt]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| known_equal(*a, *b))
        };
        // The gradient of another handle of the base may lie in another order.
        if !is_equal(all.sizes(), sizes) || !is_equal(all.strides(), strides) {
            return (&all + self.spread(grad)?).ok().cloned();
        }
        self.part_of(&all).add_(grad).ok()?;
        Ok(all)
    }

    pub(crate) fn apply(
        &self,
        grads: &[Option<Tensor>],
        collected: &mut Collected,
    ) -> Result<Grads> {
        let Some(Some(grad)) = grads.first() else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(collected.add(|sum| self.add_to(sum, grad))?)])
    }
}

impl Written {
    /// The gradients of the base before the write, and of the other operands of the call.
    pub(crate) fn apply(&self, grads: &[Option<Tensor>]) -> Result<Grads> {
        let Some(Some(grad)) = grads.first() else {
            return Ok(smallvec![None; self.inner.next.len()]);
        };
        let all = self.place.copy_of(grad);
        let part = self.place.part_of(&all);
        let mut of_results: Grads = smallvec![None; self.inner.outputs.len()];
        of_results[self.output as usize] = Some(part.clone_tensor());
        let mut given = self.inner.apply(&of_results, &mut Collected::default())?;
        let before = given.get_mut(self.operand).and_then(Option::take);
        match before {
            _ if fault_injected(Fault::WrittenKeepGradient) => &part,
            Some(before) => part.copy_(&before).ok()?,
            None => part.zero_().ok()?,
        };
        if let Some(slot) = given.get_mut(self.operand) {
            *slot = Some(all);
        }
        Ok(given)
    }
}

/// The edge of a view of a base.
pub(crate) fn view(of_base: Edge, base: &Meta, view: &Meta) -> Edge {
    let (name, loc) = ("view of a written tensor".into(), of_base.node.loc);
    let outputs = smallvec![OutputInfo::of(view)];
    let function = Function::View(Placed::new(base, view));
    let node = GradNode::new(name, loc, outputs, smallvec![Some(of_base)], function);
    Edge { node, output: 0 }
}

/// The edge of a base after the call of `inner` wrote a view of it. `before` is the base's edge
/// until then.
pub(crate) fn write(
    before: Option<Edge>,
    base: &Meta,
    view: &Meta,
    inner: Arc<GradNode>,
    output: u32,
    operand: usize,
) -> Edge {
    let mut next: Edges = inner.next.clone();
    if let Some(slot) = next.get_mut(operand) {
        *slot = before;
    }
    let (name, loc) = (inner.name.clone(), inner.loc);
    let outputs = smallvec![OutputInfo::of(base)];
    let written = Written { place: Placed::new(base, view), inner, output, operand };
    let node = GradNode::new(name, loc, outputs, next, Function::Write(written));
    Edge { node, output: 0 }
}
