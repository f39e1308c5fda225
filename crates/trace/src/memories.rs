//! Which tensors of a trace see one memory in the traced call, and how often it is written.
//!
//! Each input has a fake storage of its own, although inputs may share memory in the call, and so
//! has a captured tensor. The graph does not depend on it: it is right for every overlap.
//! Derivatives do: a tensor that one reads must not be written before the sweep, and is copied if
//! the call itself writes it. They compare storages, and ask here for those that stand for the same
//! memory.

use maquette_ir::Loc;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{AutogradError, Result, Tensor};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The memories that a trace knows, by their storages outside of it.
#[derive(Default)]
pub(crate) struct Memories {
    /// By the address of a storage outside of the trace.
    by_address: FxHashMap<usize, Memory>,
    /// By the address of a storage in the trace: that of the storage outside.
    outside: FxHashMap<usize, usize>,
    /// By the address of a storage in the trace: the number of its last write among all, and the
    /// line.
    last_writes: FxHashMap<usize, (usize, Loc)>,
    writes: usize,
    /// Whether storages of the trace share a memory.
    any_shared: bool,
}

/// The tensors of a trace that see a memory, one for each of their storages.
struct Memory {
    /// Keeps the address from being reused.
    _outside: Tensor,
    members: SmallVec<[Member; 1]>,
}

struct Member {
    tensor: Tensor,
    /// Whether it is an input, as the program has it.
    is_input: bool,
}

fn address(t: &Tensor) -> Option<usize> {
    t.own_storage().ok().map(|storage| Arc::as_ptr(storage).addr())
}

impl Memories {
    /// Notes the traced tensor that the program gets for a sample.
    pub(crate) fn add_input(&mut self, sample: &Tensor, traced: &Tensor) {
        self.add(sample, Member { tensor: traced.clone(), is_input: true });
    }

    /// Notes the fake tensor that stands for a captured tensor.
    pub(crate) fn add_captured(&mut self, captured: &Tensor, fake: &Tensor) {
        self.add(captured, Member { tensor: fake.clone(), is_input: false });
    }

    fn add(&mut self, outside: &Tensor, member: Member) {
        let Some(at) = address(outside) else { return };
        let new = || Memory { _outside: outside.clone(), members: SmallVec::new() };
        let members = &mut self.by_address.entry(at).or_insert_with(new).members;
        if members.iter().all(|other| !other.tensor.has_storage_of(&member.tensor)) {
            self.any_shared |= !members.is_empty();
            self.outside.extend(address(&member.tensor).map(|inside| (inside, at)));
            members.push(member);
        }
    }

    /// Counts a recorded write to a tensor of the trace.
    pub(crate) fn written(&mut self, t: &Tensor, loc: Loc) {
        self.writes += 1;
        if let Some(at) = address(t) {
            self.last_writes.insert(at, (self.writes, loc));
        }
    }

    /// The tensors that see the memory of a tensor of the program, and its place.
    fn of(&self, t: &Tensor) -> Option<(usize, &[Member])> {
        let at = address(t)?;
        let at = if t.slot().is_some() { *self.outside.get(&at)? } else { at };
        Some((at, &self.by_address.get(&at)?.members))
    }

    /// The recorded writes to the memory of a tensor that its own storage does not count, and the
    /// line of the last write.
    pub(crate) fn writes(&self, t: &Tensor) -> (u64, Option<Loc>) {
        if self.writes == 0 || t.slot().is_some() && !self.any_shared {
            return (0, None);
        }
        let Some((_, members)) = self.of(t) else { return (0, None) };
        let others = members.iter().filter(|m| !m.tensor.has_storage_of(t));
        let count = others.map(|m| m.tensor.writes()).sum();
        let line = |m: &Member| self.last_writes.get(&address(&m.tensor)?).copied();
        let last = members.iter().filter_map(line).max_by_key(|(number, _)| *number);
        (count, last.map(|(_, loc)| loc))
    }

    /// Whether a tensor is an input, or a view of one.
    pub(crate) fn is_input(&self, t: &Tensor) -> bool {
        let is_it = |m: &Member| m.is_input && m.tensor.has_storage_of(t);
        self.of(t).is_some_and(|(_, members)| members.iter().any(is_it))
    }

    /// Whether a tensor of the trace is a view of a captured one.
    pub(crate) fn views_captured(&self, t: &Tensor) -> bool {
        let is_it = |m: &Member| !m.is_input && m.tensor.has_storage_of(t);
        self.of(t).is_some_and(|(_, members)| members.iter().any(is_it))
    }

    /// Whether two tensors of the program see one memory.
    pub(crate) fn are_one(&self, a: &Tensor, b: &Tensor) -> bool {
        let is_same = || Some(self.of(a)?.0 == self.of(b)?.0);
        a.has_storage_of(b) || self.any_shared && is_same().unwrap_or(false)
    }

    /// Whether two tensors of the program share a storage; `None` if the answer may differ from run
    /// to run. Captured tensors are those of every run, inputs are not.
    pub(crate) fn share_storage(&self, a: &Tensor, b: &Tensor) -> Option<bool> {
        if a.has_storage_of(b) {
            return Some(true);
        }
        // a tensor of the trace that is not known here is a result in memory of its own
        let is_outside = |t: &Tensor| t.slot().is_none() || self.of(t).is_some();
        match (self.is_input(a), self.is_input(b)) {
            (true, _) if is_outside(b) => None,
            (_, true) if is_outside(a) => None,
            (false, false) => Some(self.of(a).zip(self.of(b)).is_some_and(|(a, b)| a.0 == b.0)),
            _ => Some(false),
        }
    }

    /// Checks that no other input in the memory of a tensor has become the result of a call. Run
    /// eagerly, the tensor might have become it too, if both are views of one tensor.
    ///
    /// # Errors
    /// One has.
    pub(crate) fn check_history(&self, t: &Tensor) -> Result<()> {
        if !self.any_shared {
            return Ok(());
        }
        let Some((_, members)) = self.of(t) else { return Ok(()) };
        let is_result = |m: &Member| {
            let t = &m.tensor;
            m.is_input && t.is_recorded()
        };
        if members.iter().any(|m| !m.tensor.has_storage_of(t) && is_result(m)) {
            return Err(AutogradError::SharedHistory { tensor: t.meta().to_string() }.into());
        }
        Ok(())
    }
}
