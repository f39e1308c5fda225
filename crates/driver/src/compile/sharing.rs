//! Whether inputs share memory that the program writes.
//!
//! A functional program keeps the contents of a written input in a value of its own, so it is valid
//! only if no other input and no captured tensor sees that memory. Otherwise the graph runs as it
//! was traced, which is right for every overlap and copies nothing. A callable can have both
//! programs; this guard tells them apart. It compares storages, not regions: the cost is a pointer
//! comparison for each written input and other input, or that of sorting the inputs if many are
//! written, and nothing for a program that writes none.
//!
//! A trace that records derivatives refuses or copies what a derivative reads, where it is written.
//! So its graph is right only where the same tensors share written memory: the guard compares them
//! (`pattern`).

use super::call_inputs::CallInputs;
use maquette_invoke::Captured;
use maquette_ir::graph::{Def, Graph};
use maquette_ops::internals::TensorInternals;
use maquette_ops::library::Facts;
use maquette_ops::{ByStorage, Result, RunError, Tensor, Value};

/// For so many written inputs, each is compared with every other input.
const FEW: usize = 4;

/// The tensors that a program writes, and those that must not share their memory.
#[derive(Debug)]
pub(crate) struct SharingGuard {
    /// The leaves that the program may write.
    written: Vec<usize>,
    /// The captured tensors, if the program writes anything.
    captured: Vec<Tensor>,
    /// The same by their storages, and those that the program may write.
    captured_by_storage: ByStorage,
    written_captured: ByStorage,
    /// Whether captured tensors share written memory among themselves, in every call.
    always: bool,
    /// Whether the program is for calls whose inputs share written memory.
    pub(crate) shared: bool,
    /// The pattern of the call, if inputs share written memory and the trace recorded derivatives.
    pattern: Option<Vec<Option<usize>>>,
}

impl SharingGuard {
    /// The guard of a traced graph, for a call. `differentiated` says whether the trace recorded
    /// derivatives. `leaves` are the leaves of the graph's inputs.
    ///
    /// # Errors
    /// A constant has no contents.
    pub(crate) fn new(
        graph: &Graph,
        differentiated: bool,
        leaves: &[usize],
        call: &CallInputs,
    ) -> Result<SharingGuard> {
        let externals = graph.written_externals(&Facts);
        let (mut written, mut of_captured) = (Vec::new(), Vec::new());
        for value in externals {
            match graph.def(value) {
                Def::Input(i) => written.extend(leaves.get(i as usize).copied()),
                Def::Const(i) => of_captured.push(i as usize),
                Def::Node(_) => {}
            }
        }
        let writes = !written.is_empty() || !of_captured.is_empty();
        let mut captured = Vec::new();
        for constant in graph.consts().iter().filter(|_| writes) {
            let Some(source) = constant.source_as::<Captured>() else {
                let name = graph.value_name(constant.value()).to_string();
                return Err(RunError::Constant { name }.into());
            };
            captured.push(source.0.clone());
        }
        let captured_by_storage = ByStorage::new(captured.iter().enumerate());
        let written_captured = of_captured.iter().filter_map(|&i| Some((i, captured.get(i)?)));
        let is_shared = |(i, t): (usize, &Tensor)| {
            captured_by_storage.having_storage_of(t).any(|other| other != i)
        };
        let always = written_captured.clone().any(is_shared);
        let written_captured = ByStorage::new(written_captured);
        let guard = SharingGuard {
            written,
            captured_by_storage,
            written_captured,
            captured,
            always,
            shared: always,
            pattern: None,
        };
        let shared = guard.first(call).is_some() || always;
        let pattern = (shared && differentiated).then(|| guard.pattern_of(call));
        Ok(SharingGuard { shared, pattern, ..guard })
    }

    /// Whether the guard depends on the inputs.
    pub(crate) fn depends_on_inputs(&self) -> bool {
        (!self.always || self.pattern.is_some()) && self.writes_any()
    }

    /// Whether the program is for calls in which the same tensors share written memory.
    pub(crate) fn is_of_one_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// For each leaf, in memory that the program writes: the first tensor in that memory, where the
    /// captured tensors come before the leaves. The captured ones share memory in one way.
    fn pattern_of(&self, call: &CallInputs) -> Vec<Option<usize>> {
        let leaves: Vec<Option<&Tensor>> = call.values.iter().map(|v| v.tensors().next()).collect();
        let written = self.written.iter().filter_map(|&leaf| Some((leaf, (*leaves.get(leaf)?)?)));
        let written = ByStorage::new(written);
        let all = self.captured.iter().map(Some).chain(leaves.iter().copied());
        let all = ByStorage::new(all.enumerate().filter_map(|(i, t)| Some((i, t?))));
        let first = |t: &Option<&Tensor>| {
            let t = (*t)?;
            let mut found = [&written, &self.written_captured].into_iter();
            found.find_map(|written| written.having_storage_of(t).next())?;
            all.having_storage_of(t).next()
        };
        leaves.iter().map(first).collect()
    }

    /// Whether the program writes to an input or a captured tensor.
    fn writes_any(&self) -> bool {
        !self.written.is_empty() || !self.written_captured.is_empty()
    }

    /// Whether the program serves a call.
    pub(crate) fn holds(&self, call: &CallInputs) -> bool {
        match &self.pattern {
            Some(pattern) => self.pattern_of(call) == *pattern,
            None => self.always || self.first(call).is_some() == self.shared,
        }
    }

    /// The first leaf that shares written memory, and the leaf that it shares it with; `None` in
    /// place of a captured tensor.
    pub(crate) fn first(&self, call: &CallInputs) -> Option<(usize, Option<usize>)> {
        if !self.writes_any() {
            return None;
        }
        let tensor = |leaf: usize| match call.values.get(leaf) {
            Some(Value::Tensor(t)) => Some(t),
            _ => None,
        };
        let leaves = 0..call.values.len();
        let sorted = (self.written.len() > FEW)
            .then(|| ByStorage::new(leaves.clone().filter_map(|leaf| Some((leaf, tensor(leaf)?)))));
        for &leaf in &self.written {
            let Some(written) = tensor(leaf) else { continue };
            let shares = |other: &usize| {
                *other != leaf && tensor(*other).is_some_and(|t| t.has_storage_of(written))
            };
            let other = match &sorted {
                Some(sorted) => sorted.having_storage_of(written).find(|other| *other != leaf),
                None => leaves.clone().find(shares),
            };
            if let Some(other) = other {
                return Some((leaf, Some(other)));
            }
            if self.captured_by_storage.having_storage_of(written).next().is_some() {
                return Some((leaf, None));
            }
        }
        if self.written_captured.is_empty() {
            return None;
        }
        let is_written = |t| self.written_captured.having_storage_of(t).next().is_some();
        leaves
            .into_iter()
            .find(|leaf| tensor(*leaf).is_some_and(is_written))
            .map(|leaf| (leaf, None))
    }
}
