//! The copy cost of the original program: how many elements eager execution writes and copies, as
//! the bound that a buffer plan must not exceed.
//!
//! A call copies an operand that overlaps a mutated argument, unless the operator needs no copy
//! (see [`WriteModel`]). For symbolic sizes, whether they overlap may be undecided. The bound must
//! not be too high, so [`CopyCost`](maquette_ir::copy_cost::CopyCost) counts such a copy only under
//! its [`OverlapCondition`]; it is added in full only to the estimate.

use super::memory_ssa::Handle;
use super::{Lift, LiftedValue, Operand};
use maquette_ir::copy_cost::{OverlapCondition, Traffic, WriteModel};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{NodeId, ValueId};
use maquette_ir::view::{TriBool, ViewSpec};
use smallvec::SmallVec;

impl Lift<'_> {
    /// Adds the elements that a call writes when its tensors lie where the program has them. `new`
    /// tells which results are not views of an operand.
    pub(crate) fn count_eager_copies(
        &mut self,
        node: NodeId,
        write_model: WriteModel,
        operands: &[Operand],
        mutated: &[(usize, Handle)],
        new: impl Fn(usize) -> bool,
    ) {
        let graph = self.graph;
        let tensor = |v: ValueId| graph.tensor_type(v);
        let is_read = |o: &&Operand| mutated.iter().all(|(arg, _)| *arg != o.arg);
        let mut reads: SmallVec<[(usize, ValueId, Handle); 4]> = operands
            .iter()
            .filter(is_read)
            .filter_map(|o| {
                if let Ok(LiftedValue::Tensor(t)) = self.lifted(o.value) {
                    Some((o.arg, o.value, t))
                } else {
                    None
                }
            })
            .collect();
        // keyword arguments come in any order, and the first operand determines whether the call
        // converts
        reads.sort_by_key(|(arg, ..)| *arg);
        let from = reads.first().and_then(|(_, v, _)| tensor(*v)).map(|t| t.dtype);
        for &(_, v, t) in reads.iter().filter(|_| write_model.copies_operands()) {
            let Some(sizes) = tensor(v).map(|t| &t.sizes) else { continue };
            let interner = &mut self.memory.interner;
            let same_storage =
                || mutated.iter().map(|(_, u)| *u).filter(|u| u.storage == t.storage);
            let mut surely_copied = |u: Handle| {
                // an operand without elements costs nothing, so it may be treated as nonempty
                let meets = match interner.disjoint(t.spec, u.spec) {
                    TriBool::Yes => fault_injected(Fault::OperandOverlapCertain),
                    TriBool::No => true,
                    TriBool::Unknown => {
                        interner.contained_in(t.spec, u.spec) == TriBool::Yes
                            || fault_injected(Fault::OperandOverlapCertain)
                    }
                };
                meets
                    && write_model.needs_operand_copy(|| !interner.differ(t.spec, u.spec), || true)
            };
            if same_storage().any(&mut surely_copied) {
                self.memory.eager.add(sizes, Traffic::copy(1));
                continue;
            }
            let mut maybe_copied = |u: &Handle| {
                let meets = interner.disjoint(t.spec, u.spec) != TriBool::Yes;
                write_model
                    .needs_operand_copy(|| interner.same_layout(t.spec, u.spec, true), || meets)
            };
            if let Some(u) = same_storage().find(&mut maybe_copied) {
                let symbols = &mut interner.symbols;
                let mut memory_view = |t: Handle| {
                    let t = graph.type_of(t.ty);
                    ViewSpec::strided(t.offset, &t.sizes, &t.strides, symbols).ok()
                };
                let condition = memory_view(t)
                    .zip(memory_view(u))
                    .and_then(|(t, u)| OverlapCondition::of(&t, &u, write_model, symbols));
                self.memory.eager.add_estimate(sizes, Traffic::copy(1));
                condition.into_iter().for_each(|m| self.memory.eager.copied.add_if(m, 1));
            }
        }
        for (_, t) in mutated {
            let meta = &self.memory.interner.metas[t.meta.index()];
            self.memory
                .eager
                .add(&meta.sizes, write_model.per_element(true, from != Some(meta.dtype)));
        }
        for (_, r) in graph.results(node).iter().enumerate().filter(|(i, _)| new(*i)) {
            for t in r.values().iter().filter_map(tensor) {
                self.memory
                    .eager
                    .add(&t.sizes, write_model.per_element(false, from != Some(t.dtype)));
            }
        }
    }
}
