//! [`Tensor`]: a cheap handle to a view of a storage, real or fake, traced or not, or to the error
//! of the call that failed to make it.

pub(crate) mod access;
pub(crate) mod arena;
pub(crate) mod borrow;
pub(crate) mod by_storage;
pub(crate) mod clone_storages;
pub(crate) mod create;
mod display;
pub(crate) mod element;
mod handles;
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
mod transfer;

pub(crate) use borrow::BorrowGuard;
pub use meta::dims_text;
pub use trace_slot::{TraceSlot, TraceTag};

use crate::autograd::history::History;
use crate::dispatch::mode::{self, Question};
use crate::error::{Error, Result};
use crate::tensor::borrow::Grant;
use crate::tensor::meta::Meta;
use crate::tensor::overlap::may_self_overlap;
use crate::tensor::storage::{Data, Storage};
use maquette_ir::{DType, Loc};
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
    /// The handle that this one is a view of. It is not a view itself.
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
    #[inline]
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

    /// As [`Storage::forget_writes`], for a new result of a call.
    pub(crate) fn forget_writes(&self) {
        if let Node::Live(l) = &*self.node
            && l.storage.writes() != 0
        {
            l.storage.forget_writes();
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
    #[inline]
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
}
