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
//! The cost is linear in the number of tensors.

use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::borrow::{Access, Grant};
use crate::tensor::holder::{Holder, RunInput};
use crate::tensor::storage::Storage;
use maquette_ir::Loc;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// A tensor that a run accesses.
pub struct RunTensor<'a> {
    /// The handle. [`RunBorrow::take`] gives it the grant of the run.
    pub tensor: &'a mut Tensor,
    /// The access of the run.
    pub access: Access,
    /// The name of the tensor, for errors.
    pub name: Arc<str>,
}

/// A group of handles that the run borrows together: by storage, and by the grant that the handles
/// had before the run.
type Key = (*const Storage, Grant);

/// The borrows of one run, which end when this value is dropped.
#[derive(Default)]
pub struct RunBorrow {
    /// The borrows, in the order in which they were taken.
    taken: Vec<(Arc<Storage>, Grant)>,
    /// By the storage's address and the grant of the run: the grant that the handles had before.
    before: FxHashMap<(usize, Grant), Grant>,
}

impl RunBorrow {
    /// Borrows tensors for a run that the source line `loc` started. Tensors without contents are
    /// left out, because the run itself refuses them.
    ///
    /// # Errors
    /// A borrow of another holder conflicts. Or a kernel started the run, and the run mutates an
    /// argument of the kernel that the kernel may not write. In both cases nothing stays borrowed.
    pub fn take(mut tensors: Vec<RunTensor<'_>>, loc: Loc) -> Result<RunBorrow> {
        let mut groups: FxHashMap<Key, SmallVec<[usize; 1]>> = FxHashMap::default();
        let mut order: Vec<Key> = Vec::new();
        for (i, t) in tensors.iter().enumerate() {
            if t.tensor.poisoned().is_some() || t.tensor.is_fake() || t.tensor.slot().is_some() {
                continue;
            }
            let key = (Arc::as_ptr(t.tensor.storage()?), t.tensor.grant);
            let group = groups.entry(key).or_default();
            if group.is_empty() {
                order.push(key);
            }
            group.push(i);
        }
        let mut run = RunBorrow::default();
        for key in order {
            let Some(group) = groups.get(&key) else { continue };
            let storage = match group.first().and_then(|&i| tensors.get(i)) {
                Some(t) => t.tensor.storage()?.clone(),
                None => continue,
            };
            let mut grant = key.1;
            let mut may_write = false;
            for access in [Access::Write, Access::Read] {
                let members: SmallVec<[(&Tensor, Holder); 1]> = group
                    .iter()
                    .filter_map(|&i| tensors.get(i))
                    .filter(|t| t.access == access)
                    .map(|t| {
                        (&*t.tensor, Holder::Run(Box::new(RunInput { name: t.name.clone(), loc })))
                    })
                    .collect();
                if members.is_empty() {
                    continue;
                }
                grant = storage.borrows.reserve(&members, access, grant)?;
                run.taken.push((storage.clone(), grant));
                may_write |= access == Access::Write;
            }
            let grant = grant.of_reservation(may_write);
            run.before.insert((key.0 as usize, grant), key.1);
            for &i in group {
                if let Some(t) = tensors.get_mut(i) {
                    t.tensor.grant = grant;
                }
            }
        }
        Ok(run)
    }

    /// Gives the handles in a value the grants that they had before the run. The run calls this for
    /// each value that it returns.
    pub fn restore(&self, value: &mut Value) {
        for t in value.tensors_mut().filter(|t| t.grant.is_reservation()) {
            let storage = t.storage().map_or(0, |s| Arc::as_ptr(s) as usize);
            if let Some(before) = self.before.get(&(storage, t.grant)) {
                t.grant = *before;
            }
        }
    }
}

impl Drop for RunBorrow {
    fn drop(&mut self) {
        // a read borrow is released before the write borrow from which it descends
        self.taken.iter().rev().for_each(|(storage, grant)| storage.borrows.release(*grant));
    }
}
