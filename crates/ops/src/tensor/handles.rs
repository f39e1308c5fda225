//! Further handles to the storage of a tensor.

use super::{Node, Tensor, TraceSlot};
use crate::autograd::history;
use crate::error::{Error, Result};
use crate::tensor::borrow::Grant;
use crate::tensor::meta::{IntoDims, Meta};
use maquette_ir::fault_injection::{Fault, fault_injected};
use std::sync::Arc;

impl Tensor {
    /// The storage of a fake tensor seen through other metadata, untraced: there is no data to be
    /// out of bounds of.
    ///
    /// # Errors
    /// The tensor is poisoned or has data.
    pub fn fake_view(&self, meta: Meta) -> Result<Tensor> {
        if self.is_fake() {
            self.view_of(meta)
        } else {
            Err(Error::value("`fake_view` is for fake tensors"))
        }
    }

    /// The same storage seen through other metadata, untraced. The caller has checked bounds and
    /// device.
    #[doc(hidden)]
    pub fn view_of(&self, meta: Meta) -> Result<Tensor> {
        let live = self.live()?;
        let base = live.base.as_ref().unwrap_or(&self.node).clone();
        let view = Tensor::live_view(meta, live.storage.clone(), None, self.grant, Some(base));
        history::made_view(&view, self);
        Ok(view)
    }

    /// The same storage seen with other sizes, strides and offset, in elements, untraced. An access
    /// checks that they are inside the storage.
    ///
    /// # Errors
    /// The tensor is poisoned.
    pub fn with_layout(&self, sizes: &[i64], strides: &[i64], offset: i64) -> Result<Tensor> {
        let offset = offset.into();
        self.view_of(Meta {
            offset,
            ..self.meta().with_dims(sizes.into_dims(), strides.into_dims())
        })
    }

    /// The same tensor as value `slot` of a trace. Its storage is the trace's own, so that views
    /// and poison are shared within it.
    pub fn with_slot(&self, slot: TraceSlot) -> Tensor {
        match &*self.node {
            Node::Live(l) => {
                let (meta, storage, base) = (l.meta.clone(), l.storage.clone(), l.base.clone());
                Tensor::live_view(meta, storage, Some(slot), self.grant, base)
            }
            Node::Poisoned { .. } => self.clone(),
        }
    }

    /// As [`Tensor::with_slot`], in place where nobody else has the handle.
    pub fn into_slot(mut self, slot: TraceSlot) -> Tensor {
        match Arc::get_mut(&mut self.node) {
            Some(Node::Live(l)) => {
                l.slot = Some(slot);
                self
            }
            _ => self.with_slot(slot),
        }
    }

    /// The same metadata and fake storage, outside any trace: what a fake kernel is given for a
    /// traced tensor. Its views are views of this tensor.
    pub fn without_slot(&self) -> Tensor {
        match &*self.node {
            Node::Live(l) if l.slot.is_some() => {
                let base = l.base.as_ref().unwrap_or(&self.node).clone();
                let (meta, storage) = (l.meta.clone(), l.storage.clone());
                let base = (!fault_injected(Fault::TracedViewsAreBases)).then_some(base);
                let t = Tensor::live_view(meta, storage, None, self.grant, base);
                history::copy(self, &t);
                t
            }
            _ => self.clone(),
        }
    }

    /// Another handle to the same elements, without a history of gradients.
    pub(crate) fn untracked(&self) -> Tensor {
        match &*self.node {
            Node::Live(l) => {
                Tensor::live_node(l.meta.clone(), l.storage.clone(), l.slot.clone(), self.grant)
            }
            Node::Poisoned { .. } => self.clone(),
        }
    }

    /// The same handle without the rights of a borrow.
    pub(crate) fn without_grant(&self) -> Tensor {
        Tensor { node: self.node.clone(), grant: Grant::NONE }
    }
}
