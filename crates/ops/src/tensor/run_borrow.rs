//! The borrows of a whole run of a graph.
//!
//! If each call borrowed only its own arguments, a run could meet a conflict midway. It would fail
//! with half of its writes done, or overwrite the result of another run. A [`RunBorrow`] therefore
//! borrows all tensors of the run before the first node, or none. The run works on handles that
//! carry the grant of these borrows, and the borrows that its calls take descend from them. Until
//! the run ends, a conflicting access through any other handle is refused. This includes a handle
//! that a kernel of the run has captured.
//!
//! The tensors of a run may share a storage, and overlap. For each storage, the run takes one
//! borrow for the tensors that it writes, and one for the tensors that it only reads. Each covers
//! exactly the regions of its tensors. The read borrow descends from the write borrow, so the two
//! do not conflict, and the handles of both carry one grant. A kernel that starts a run may pass
//! handles of its own arguments, which carry grants already; such handles are grouped by grant
//! first.
//!
//! The cost is linear in the number of tensors. A [`RunBorrow`] keeps its lists, so that a later
//! run of as many tensors allocates nothing, if each storage has one of them.

use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::borrow::{Access, Grant};
use crate::tensor::holder::{Holder, RunInput};
use crate::tensor::storage::Storage;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The tensors that a run accesses, by number.
pub trait RunTensors {
    /// How many numbers there are.
    fn count(&self) -> usize;
    /// A tensor; `None` if the number is that of another value.
    fn tensor(&self, i: usize) -> Option<&Tensor>;
    /// As [`RunTensors::tensor`]. [`RunBorrow::take`] gives the handle the grant of the run.
    fn tensor_mut(&mut self, i: usize) -> Option<&mut Tensor>;
    /// The access of the run to a tensor.
    fn access(&self, i: usize) -> Access;
    /// What errors say of a tensor.
    fn input(&self, i: usize) -> Arc<RunInput>;
}

/// A tensor that a run accesses.
pub struct RunTensor<'a> {
    /// The handle.
    pub tensor: &'a mut Tensor,
    /// The access of the run.
    pub access: Access,
    /// What errors say of it.
    pub input: Arc<RunInput>,
}

impl RunTensors for Vec<RunTensor<'_>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn tensor(&self, i: usize) -> Option<&Tensor> {
        self.get(i).map(|t| &*t.tensor)
    }

    fn tensor_mut(&mut self, i: usize) -> Option<&mut Tensor> {
        self.get_mut(i).map(|t| &mut *t.tensor)
    }

    fn access(&self, i: usize) -> Access {
        self[i].access
    }

    fn input(&self, i: usize) -> Arc<RunInput> {
        self[i].input.clone()
    }
}

/// A group of handles that the run borrows together: by storage, and by the grant that the handles
/// had before the run.
struct Group {
    /// The address of the storage, and the grant.
    key: (usize, Grant),
    /// The numbers of its first and last tensor.
    first: usize,
    last: usize,
}

/// The borrows of one run, which end when this value is dropped.
#[derive(Default)]
pub struct RunBorrow {
    /// The borrows, in the order in which they were taken.
    taken: Vec<(Arc<Storage>, Grant)>,
    /// By the storage's address and the grant of the run: the grant that the handles had before.
    before: FxHashMap<(usize, Grant), Grant>,
    groups: Vec<Group>,
    group_of: FxHashMap<(usize, Grant), usize>,
    /// For each tensor, the next one of its group.
    next: Vec<Option<usize>>,
}

impl RunBorrow {
    /// Borrows tensors for a run, after it has released the borrows of an earlier one. Tensors
    /// without contents are left out, because the run itself refuses them.
    ///
    /// # Errors
    /// A borrow of another holder conflicts. Or a kernel started the run, and the run mutates an
    /// argument of the kernel that the kernel may not write. In both cases nothing stays borrowed.
    pub fn take(&mut self, tensors: &mut impl RunTensors) -> Result<()> {
        self.release();
        self.group(tensors)?;
        let taken = (0..self.groups.len()).try_for_each(|group| self.take_group(group, tensors));
        taken.inspect_err(|_| self.release())
    }

    /// Finds the groups, in the order of their first tensors.
    fn group(&mut self, tensors: &impl RunTensors) -> Result<()> {
        self.groups.clear();
        self.group_of.clear();
        self.next.clear();
        for i in 0..tensors.count() {
            self.next.push(None);
            let Some(tensor) = tensors.tensor(i) else { continue };
            if tensor.poisoned().is_some() || tensor.is_fake() || tensor.slot().is_some() {
                continue;
            }
            let key = (Arc::as_ptr(tensor.own_storage()?) as usize, tensor.grant);
            let new = self.groups.len();
            match self.groups.get_mut(*self.group_of.entry(key).or_insert(new)) {
                Some(group) => {
                    self.next[group.last] = Some(i);
                    group.last = i;
                }
                None => self.groups.push(Group { key, first: i, last: i }),
            }
        }
        Ok(())
    }

    fn take_group(&mut self, group: usize, tensors: &mut impl RunTensors) -> Result<()> {
        let RunBorrow { taken, before, groups, next, .. } = self;
        let Group { key, first, .. } = groups[group];
        let members = || std::iter::successors(Some(first), |i| next[*i]);
        let Some(tensor) = tensors.tensor(first) else { return Ok(()) };
        let storage = tensor.own_storage()?.clone();
        let mut grant = key.1;
        let mut may_write = false;
        for access in [Access::Write, Access::Read] {
            let members: SmallVec<[(&Tensor, Holder); 1]> = members()
                .filter(|i| tensors.access(*i) == access)
                .filter_map(|i| Some((tensors.tensor(i)?, Holder::Run(tensors.input(i)))))
                .collect();
            if members.is_empty() {
                continue;
            }
            grant = storage.borrows.reserve(&members, access, grant)?;
            taken.push((storage.clone(), grant));
            may_write |= access == Access::Write;
        }
        let grant = grant.of_reservation(may_write);
        before.insert((key.0, grant), key.1);
        for i in members() {
            if let Some(tensor) = tensors.tensor_mut(i) {
                tensor.grant = grant;
            }
        }
        Ok(())
    }

    /// Gives the handles in a value the grants that they had before the run. The run calls this for
    /// each value that it returns.
    pub fn restore(&self, value: &mut Value) {
        for t in value.tensors_mut().filter(|t| t.grant.is_reservation()) {
            let storage = t.own_storage().map_or(0, |s| Arc::as_ptr(s) as usize);
            if let Some(before) = self.before.get(&(storage, t.grant)) {
                t.grant = *before;
            }
        }
    }

    /// Ends the borrows.
    pub fn release(&mut self) {
        self.before.clear();
        // a read borrow is released before the write borrow from which it descends
        for (storage, grant) in self.taken.drain(..).rev() {
            storage.borrows.release(grant);
        }
    }
}

impl Drop for RunBorrow {
    fn drop(&mut self) {
        self.release();
    }
}
