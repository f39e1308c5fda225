//! [`Tensor`]: a cheap handle to a view of a storage, real or fake, traced or not, or to the error
//! of the call that failed to make it.

pub(crate) mod access;
pub(crate) mod alloc;
pub(crate) mod arena;
pub(crate) mod borrow;
pub(crate) mod by_storage;
pub(crate) mod clone_storages;
mod display;
pub(crate) mod element;
pub(crate) mod holder;
pub(crate) mod kernel_scope;
pub(crate) mod meta;
pub(crate) mod overlap;
mod properties;
mod region;
pub(crate) mod run_borrow;
pub(crate) mod shape;
pub(crate) mod storage;
mod trace_slot;

pub use trace_slot::{TraceSlot, TraceTag};

use crate::autograd::history::{self, History};
use crate::dispatch::mode::{self, Question};
use crate::error::{AccessError, Error, Result};
use crate::tensor::alloc::Block;
use crate::tensor::borrow::{Access, Borrows, Grant};
use crate::tensor::holder::Holder;
use crate::tensor::meta::{Dims, IntoDims, Meta};
use crate::tensor::overlap::may_self_overlap;
use crate::tensor::storage::{Data, HostBuffer, Storage};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Loc};
use std::fmt;
use std::sync::Arc;

/// A tensor handle. Cloning shares the storage; a write through one handle is seen through all of
/// its views.
///
/// A failed operation gives a *poisoned* tensor that carries the first error; whatever is computed
/// from it carries that error too, and [`Tensor::ok`] or anything that returns a [`Result`] shows
/// it.
#[derive(Clone)]
pub struct Tensor {
    node: Arc<Node>,
    pub(crate) grant: Grant,
}

enum Node {
    Live(Live),
    Poisoned { error: Error, meta: Meta },
}

struct Live {
    meta: Meta,
    storage: Arc<Storage>,
    slot: Option<TraceSlot>,
    /// The handle that this one is a view of. It is no view itself.
    base: Option<Arc<Node>>,
    history: History,
}

impl Tensor {
    fn live_node(
        meta: Meta,
        storage: Arc<Storage>,
        slot: Option<TraceSlot>,
        grant: Grant,
    ) -> Tensor {
        Tensor::live_view(meta, storage, slot, grant, None)
    }

    fn live_view(
        meta: Meta,
        storage: Arc<Storage>,
        slot: Option<TraceSlot>,
        grant: Grant,
        base: Option<Arc<Node>>,
    ) -> Tensor {
        let live = Live { meta, storage, slot, base, history: History::default() };
        Tensor { node: Arc::new(Node::Live(live)), grant }
    }

    /// A tensor that died of `error`.
    pub fn poison(error: Error) -> Tensor {
        Tensor {
            node: Arc::new(Node::Poisoned { error, meta: Meta::contiguous([0i64; 0], DType::F32) }),
            grant: Grant::NONE,
        }
    }

    /// The tensor, or the error it died of: its own, or that of a failed write to its storage. A
    /// traced function can ask this of a tensor from outside after an operator has read or written
    /// that tensor.
    #[track_caller]
    pub fn ok(&self) -> Result<&Tensor> {
        mode::ask(
            Question::Error(self),
            "whether a tensor from outside of the trace carries an error",
            Loc::caller(),
        )?;
        self.alive()
    }

    /// As [`Tensor::ok`], for the library itself.
    pub(crate) fn alive(&self) -> Result<&Tensor> {
        match self.poisoned() {
            Some(e) => Err(e),
            None => Ok(self),
        }
    }

    #[inline]
    pub(crate) fn poisoned(&self) -> Option<Error> {
        match &*self.node {
            Node::Live(l) => l.storage.poisoned(),
            Node::Poisoned { error, .. } => Some(error.clone()),
        }
    }

    fn live(&self) -> Result<&Live> {
        match &*self.node {
            Node::Live(l) => Ok(l),
            Node::Poisoned { error, .. } => Err(error.clone()),
        }
    }

    /// Zeroed memory of this metadata (strides and offset as given, which must be non-negative).
    pub(crate) fn allocate(meta: Meta) -> Result<Tensor> {
        Tensor::allocate_as(meta, Block::zeroed)
    }

    /// As [`Tensor::allocate`], for a kernel that writes every element: what is in memory before is
    /// of any value.
    pub(crate) fn allocate_to_fill(meta: Meta) -> Result<Tensor> {
        // not every byte is a bool
        let block = if meta.dtype == DType::Bool { Block::zeroed } else { Block::any };
        Tensor::allocate_as(meta, block)
    }

    fn allocate_as(meta: Meta, block: fn(usize) -> Option<Block>) -> Result<Tensor> {
        let failed =
            || AccessError::Allocation { sizes: dims_text(&meta.sizes), dtype: meta.dtype };
        let data = if meta.device == Device::Meta {
            Data::Fake
        } else if meta.device == Device::Cpu {
            let bytes = match (meta.checked_dense_numel(), meta.offset.as_i64()) {
                (Some(n), Some(0)) => n.checked_mul(meta.dtype.size() as i64).ok_or_else(failed)?,
                _ => {
                    let c = meta.concrete().ok_or_else(failed)?;
                    if c.sizes.iter().any(|&n| n < 0) || c.strides.iter().any(|&s| s < 0) {
                        return Err(failed().into());
                    }
                    if c.sizes.contains(&0) { 0 } else { c.span().ok_or_else(failed)?.1 }
                }
            };
            let bytes = usize::try_from(bytes).map_err(|_| failed())?;
            Data::Host(HostBuffer::of_block(block(bytes).ok_or_else(failed)?, bytes))
        } else {
            return Err(AccessError::NoAllocator(meta.device).into());
        };
        let storage = Arc::new(Storage::new(data));
        Ok(Tensor::live_node(meta, storage, None, Grant::NONE))
    }

    /// Adopts a host vector of `sizes` in row-major order.
    pub(crate) fn adopt<T: crate::Element>(data: Vec<T>, sizes: impl IntoDims) -> Result<Tensor> {
        Tensor::over(HostBuffer::from_vec(data), sizes, T::DTYPE)
    }

    /// Row-major of `sizes`, over all of `buffer`.
    pub(crate) fn over(buffer: HostBuffer, sizes: impl IntoDims, dtype: DType) -> Result<Tensor> {
        let meta = Meta::contiguous(sizes, dtype);
        let size = dtype.size() as i64;
        let bytes = meta
            .sizes
            .iter()
            .try_fold(size, |n, s| s.as_i64().filter(|s| *s >= 0).and_then(|s| n.checked_mul(s)));
        if bytes != i64::try_from(buffer.len()).ok() {
            return Err(AccessError::Shape {
                sizes: dims_text(&meta.sizes),
                found: buffer.len() / dtype.size(),
            }
            .into());
        }
        Ok(Tensor::live_node(meta, Arc::new(Storage::new(Data::Host(buffer))), None, Grant::NONE))
    }

    /// A tensor of this metadata without contents, over a storage of its own.
    pub fn fake_of(meta: Meta) -> Tensor {
        let storage = Arc::new(Storage::new(Data::Fake));
        Tensor::live_node(meta, storage, None, Grant::NONE)
    }

    /// A row-major tensor on the host without contents: for asking operators about sizes.
    pub fn fake(sizes: impl IntoDims, dtype: DType) -> Tensor {
        Tensor::fake_of(Meta::contiguous(sizes, dtype))
    }

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
    pub(crate) fn view_of(&self, meta: Meta) -> Result<Tensor> {
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

    /// What autograd knows of the handle; `None` for a poisoned one.
    pub(crate) fn history(&self) -> Option<&History> {
        match &*self.node {
            Node::Live(l) => Some(&l.history),
            Node::Poisoned { .. } => None,
        }
    }

    /// The handle that this one is a view of.
    pub(crate) fn base(&self) -> Option<Tensor> {
        match &*self.node {
            Node::Live(l) => l.base.clone().map(|node| Tensor { node, grant: Grant::NONE }),
            Node::Poisoned { .. } => None,
        }
    }

    /// What autograd knows of the handle that this one is a view of.
    pub(crate) fn base_history(&self) -> Option<&History> {
        match &*self.node {
            Node::Live(Live { base: Some(base), .. }) => match &**base {
                Node::Live(base) => Some(&base.history),
                Node::Poisoned { .. } => None,
            },
            _ => None,
        }
    }

    /// The same handle without the rights of a borrow.
    pub(crate) fn without_grant(&self) -> Tensor {
        Tensor { node: self.node.clone(), grant: Grant::NONE }
    }

    /// Whether the handle carries the borrow of one kernel call.
    pub(crate) fn has_grant(&self) -> bool {
        self.grant.is_of_call()
    }

    /// Counts a write by a call; calls inside a kernel belong to the outer one.
    pub(crate) fn bump_version(&self) {
        if let Node::Live(l) = &*self.node
            && !self.has_grant()
        {
            l.storage.bump_version();
        }
    }

    /// Its metadata; that of an empty `f32` tensor where it is poisoned.
    pub fn meta(&self) -> &Meta {
        match &*self.node {
            Node::Live(l) => &l.meta,
            Node::Poisoned { meta, .. } => meta,
        }
    }

    /// Its storage, or the error it died of. A traced function cannot ask for storages, which are
    /// others in each run.
    #[track_caller]
    pub fn storage(&self) -> Result<&Arc<Storage>> {
        mode::ask(Question::Surroundings, "the storage of a tensor", Loc::caller())?;
        self.own_storage()
    }

    /// As [`Tensor::storage`], for the library itself.
    pub(crate) fn own_storage(&self) -> Result<&Arc<Storage>> {
        Ok(&self.live()?.storage)
    }

    /// Its value in a trace.
    pub fn slot(&self) -> Option<&TraceSlot> {
        match &*self.node {
            Node::Live(l) => l.slot.as_ref(),
            Node::Poisoned { .. } => None,
        }
    }

    /// Metadata only: a fake, traced or `meta` tensor.
    pub fn is_fake(&self) -> bool {
        match &*self.node {
            Node::Live(Live { storage, .. }) => matches!(storage.data, Data::Fake),
            _ => false,
        }
    }

    /// Whether both see the same storage. A trace fails where the answer may differ from run to
    /// run: for an input and another input, or a tensor from outside.
    #[track_caller]
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        match mode::active().mode() {
            Some(mode) => mode.shares_storage(self, other, Loc::caller()),
            None => self.has_storage_of(other),
        }
    }

    /// As [`Tensor::shares_storage`], of the storages that represent the program's in a trace.
    pub(crate) fn has_storage_of(&self, other: &Tensor) -> bool {
        match (&*self.node, &*other.node) {
            (Node::Live(a), Node::Live(b)) => Arc::ptr_eq(&a.storage, &b.storage),
            _ => false,
        }
    }

    /// Whether both are the same handle. A trace fails where the answer may differ from run to
    /// run, as [`Tensor::shares_storage`] does.
    #[track_caller]
    pub fn is_same(&self, other: &Tensor) -> bool {
        let is_same = self.is_same_handle(other);
        // handles of different storages differ, unless both are handles from outside of a trace
        if !is_same && mode::is_active() {
            self.shares_storage(other);
        }
        is_same
    }

    /// As [`Tensor::is_same`], of the handles that represent the program's in a trace.
    pub(crate) fn is_same_handle(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.node, &other.node)
    }

    /// Whether nobody else has a handle to this tensor, or a view of its storage.
    pub(crate) fn is_only_handle(&self) -> bool {
        match &*self.node {
            Node::Live(l) => {
                // A view has its base, which has the storage, too.
                let (own, handles) = match &l.base {
                    Some(base) => (Arc::strong_count(base) == 1, 2),
                    None => (true, 1),
                };
                own && Arc::strong_count(&self.node) == 1
                    && Arc::strong_count(&l.storage) == handles
            }
            Node::Poisoned { .. } => true,
        }
    }

    /// Poisons the storage after a write that failed, so that every view sees it. The first error
    /// stays.
    pub fn poison_storage(&self, e: &Error) {
        // a handle borrowed for reading has no say over what it reads
        if let Node::Live(l) = &*self.node
            && (!self.has_grant() || self.grant.may_write())
        {
            l.storage.poison(e);
        }
    }

    /// Whether the tensor has every byte of its storage, which has data on the host, and no element
    /// twice.
    pub(crate) fn covers_storage(&self) -> bool {
        let bytes = match &*self.node {
            Node::Live(Live { storage, slot: None, .. }) => storage.len() as i64,
            _ => return false,
        };
        let Some(at) = self.meta().concrete() else { return false };
        let own = at.sizes.iter().try_fold(at.width, |n, &size| n.checked_mul(size));
        bytes > 0 && own == Some(bytes) && !may_self_overlap(&at)
    }

    /// Borrows what it sees until the result is dropped.
    pub(crate) fn borrow(&self, access: Access, holder: Holder) -> Result<BorrowGuard, Error> {
        let storage = self.own_storage()?;
        let grant = storage.borrows.take(self, access, holder)?;
        Ok(BorrowGuard { storage: storage.clone(), grant })
    }
}

/// A borrow that ends when it is dropped.
pub(crate) struct BorrowGuard {
    storage: Arc<Storage>,
    pub(crate) grant: Grant,
}

impl BorrowGuard {
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }
}

impl Drop for BorrowGuard {
    fn drop(&mut self) {
        let borrows: &Borrows = &self.storage.borrows;
        borrows.release(self.grant);
    }
}

/// `[2, s0]`
pub(crate) fn dims_text(dims: &[SymInt]) -> String {
    let parts: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", parts.join(", "))
}

/// The dims of a contiguous tensor of these sizes are implied; others are worth showing.
fn has_plain_layout(m: &Meta) -> bool {
    let plain: Dims = maquette_ir::typing::contiguous_strides(&m.sizes);
    m.offset.as_i64() == Some(0)
        && plain.iter().zip(&m.strides).all(|(a, b)| a.eq(*b).statically_known() == Some(true))
}

impl fmt::Display for Meta {
    /// As in graph text: `f32[2, 3] strides [1, 2] offset 4 device cuda:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, dims_text(&self.sizes))?;
        if !has_plain_layout(self) {
            write!(f, " strides {}", dims_text(&self.strides))?;
            if self.offset.as_i64() != Some(0) {
                write!(f, " offset {}", self.offset)?;
            }
        }
        if self.device != Device::Cpu {
            write!(f, " device {}", self.device)?;
        }
        Ok(())
    }
}
