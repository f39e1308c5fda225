//! Views and writes through views, by their strides: a view is a strided part of its base, and a
//! write through a view replaces this part.
//!
//! Gradients of a base have the base's strides, so that a view has the same place in them. The cost
//! of a write through a view is one copy of the base's gradient. Where elements share memory, a
//! gradient cannot be written so, and is added up by the positions of its elements.
//!
//! Source: `CopySlices` and `AsStridedBackward` of PyTorch.

use super::collected::Collected;
use super::layout::{is_in_rows, may_repeat, repeats};
use super::node::{Edge, Edges, Function, GradNode, Grads, OutputInfo};
use crate::error::Result;
use crate::operator::dims::known_equal;
use crate::tensor::Tensor;
use crate::tensor::meta::{Dims, Meta};
use maquette_ir::DType;
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
pub struct Placed {
    base: Layout,
    view: Layout,
}

/// The number of elements from the first of a layout to its last.
pub fn span(sizes: &[SymInt], strides: &[SymInt]) -> SymInt {
    sizes.iter().zip(strides).fold(1.into(), |n, (size, stride)| n + (*size - 1) * *stride)
}

/// The positions that a layout has in a storage of `span` elements, counted from an offset.
pub fn positions(
    like: &Tensor,
    span: SymInt,
    sizes: &[SymInt],
    strides: &[SymInt],
    offset: SymInt,
) -> Tensor {
    let all = like.detach().new_ones([span], DType::I64).cumsum(0) - 1;
    all.as_strided(sizes, strides, Some(offset)).reshape([-1i64])
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
    /// The place of a view in its base, by their layouts.
    pub fn new(base: &Meta, view: &Meta) -> Placed {
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
        match is_in_rows(sizes, strides) {
            true => like.new_zeros(sizes, like.dtype()),
            false => like.new_empty_strided(sizes, strides, like.dtype()).zero_(),
        }
    }

    fn part_of(&self, grad: &Tensor) -> Tensor {
        let Layout { sizes, strides, offset } = &self.view;
        let offset = if fault_injected(Fault::ViewAtStart) { 0.into() } else { *offset };
        grad.as_strided(sizes, strides, Some(offset))
    }

    /// Whether elements of the base or the view may share memory, so that a gradient cannot be
    /// written in place.
    fn may_repeat(&self) -> bool {
        let repeats = |l: &Layout| repeats(&l.sizes, &l.strides);
        repeats(&self.base) || repeats(&self.view)
    }

    /// The gradient of the base that corresponds to a gradient of the view, also where elements
    /// share memory: the gradients of one place are added up, and those elements of the base that
    /// share a place share its sum. It is row-major.
    pub fn by_positions(&self, grad: &Tensor) -> Tensor {
        let Placed { base, view } = self;
        let is_empty = |l: &Layout| l.sizes.iter().any(|n| n.as_i64() == Some(0));
        if is_empty(base) || is_empty(view) {
            return grad.new_zeros(&base.sizes, grad.dtype());
        }
        let least = base.offset.min(view.offset);
        let end = |l: &Layout| l.offset - least + span(&l.sizes, &l.strides);
        // Without elements, a last one may lie before the first.
        let all = end(base).max(end(view)).max(0);
        let at = |l: &Layout| positions(grad, all, &l.sizes, &l.strides, l.offset - least);
        let zeros = grad.new_zeros([all], grad.dtype());
        let storage = zeros.index_add(0, &at(view), &grad.reshape([-1i64]));
        let own = at(base);
        let sums = storage.index_select(0, &own);
        let shares = if may_repeat(&base.sizes, &base.strides) {
            let ones = grad.detach().new_ones(own.sizes(), grad.dtype());
            sums / zeros.index_add(0, &own, &ones).index_select(0, &own)
        } else {
            sums
        };
        shares.reshape(&base.sizes)
    }

    /// The gradient of the base that corresponds to a gradient of the view.
    ///
    /// # Errors
    /// The gradient does not have the view's sizes.
    pub fn spread(&self, grad: &Tensor) -> Result<Tensor> {
        if self.may_repeat() {
            return self.by_positions(grad).ok().cloned();
        }
        let all = self.zeros(grad);
        self.part_of(&all).copy_(grad).ok()?;
        Ok(all)
    }

    /// Adds the gradient of the view to a gradient of the base that nobody else holds; without one,
    /// as [`Placed::spread`].
    ///
    /// # Errors
    /// The gradient does not have the view's sizes.
    pub fn add_to(&self, collected: Option<Tensor>, grad: &Tensor) -> Result<Tensor> {
        let Some(all) = collected else { return self.spread(grad) };
        let Layout { sizes, strides, .. } = &self.base;
        let is_equal = |a: &[SymInt], b: &[SymInt]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| known_equal(*a, *b))
        };
        // The gradient of another handle of the base may lie in another order.
        let is_in_place = is_equal(all.sizes(), sizes) && is_equal(all.strides(), strides);
        if !is_in_place || self.may_repeat() {
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
    pub fn apply(&self, grads: &[Option<Tensor>]) -> Result<Grads> {
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
