//! Checks that a call writes no memory position twice, within one argument or through two. The
//! result would depend on the order of the kernel's writes, which a functional graph cannot
//! express.
//!
//! If the views provably overlap, lifting refuses the program. If symbols decide, the functional
//! graph gets a runtime check ([`functional_ops::DISJOINT`] or [`functional_ops::INJECTIVE`]).
//! These checks are effects, so that they keep their order.

use super::Lift;
use super::memory_ssa::{Handle, Storage, StorageOrigin};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{CallArg, CallKey, Kind, Node};
use maquette_ir::Effect;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops;
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

impl Lift<'_> {
    /// Checks that the mutated arguments of a call overlap neither themselves nor each other.
    ///
    /// # Errors
    /// Two arguments provably overlap, or an external storage cannot represent the write.
    pub(super) fn check_mutated_args(
        &mut self,
        op: &str,
        mutated: &[(usize, Handle)],
    ) -> Result<()> {
        for (i, (second, a)) in mutated.iter().enumerate() {
            self.check_injective_storage(op, *a)?;
            // `MemorySsa::write` refuses a view that provably overlaps itself.
            if self.memory.interner.injective(a.spec) == TriBool::Unknown
                && !fault_injected(Fault::WrittenElementsOverlap)
            {
                self.add_injective_check(op, *a, *second);
            }
            for (first, b) in mutated.iter().take(i).filter(|(_, b)| a.storage == b.storage) {
                match self.memory.interner.disjoint(a.spec, b.spec) {
                    _ if fault_injected(Fault::WrittenArgumentsOverlap) => {}
                    TriBool::Yes => {}
                    TriBool::No => return Err(Reason::AliasedMutableArgs { op: op.into() }.into()),
                    TriBool::Unknown => self.add_disjoint_check(op, [*b, *a], [*first, *second]),
                }
            }
        }
        Ok(())
    }

    /// Checks that the storage of a mutated external tensor is a value with one element for each
    /// memory position. An external tensor that overlaps itself has several elements at one
    /// position, and a write to one changes all of them. Then lifting restarts with the memory
    /// itself as the value, if the memory's range is constant.
    fn check_injective_storage(&mut self, op: &str, t: Handle) -> Result<()> {
        let Storage { origin, region, written, .. } = self.memory.storages[t.storage];
        if written.is_some() || fault_injected(Fault::InputElementsOverlap) {
            return Ok(());
        }
        let viewed = |l: &Self| l.memory.interner.text(&l.memory.interner.specs[region.index()]);
        match (self.memory.interner.injective(region), self.input_range(t, region)) {
            (TriBool::Yes, _) => {}
            (_, Some(reach)) => {
                self.discovered.push(reach);
                return Err(Reason::ViewOutOfBounds { op: op.into(), viewed: viewed(self) }.into());
            }
            (TriBool::No, None) => {
                return Err(
                    Reason::WriteToOverlappingView { op: op.into(), viewed: viewed(self) }.into()
                );
            }
            (TriBool::Unknown, None) => {
                let spec = &self.memory.interner.specs[region.index()];
                let lists = [
                    spec.sizes().collect::<Vec<_>>(),
                    spec.dims().iter().map(|d| d.stride).collect(),
                ];
                let [sizes, strides] =
                    lists.map(|l| CallArg::List(l.into_iter().map(CallArg::Int).collect()));
                let external = match origin {
                    StorageOrigin::Input(i) => self.graph.inputs().get(i as usize).copied(),
                    StorageOrigin::Const(i) => {
                        self.graph.consts().get(i as usize).map(|c| c.value())
                    }
                    StorageOrigin::Shared(_) | StorageOrigin::Fresh => None,
                };
                let name = external
                    .map_or_else(|| op.to_owned(), |v| self.graph.value_name(v).to_string());
                let name = CallArg::Str(self.memory.interner.name(&name));
                self.add_runtime_check(
                    functional_ops::INJECTIVE,
                    Box::from([sizes, strides, name]),
                );
            }
        }
        Ok(())
    }

    /// Adds a runtime check that two mutated views of one storage are disjoint.
    fn add_disjoint_check(&mut self, op: &str, tensors: [Handle; 2], args: [usize; 2]) {
        let interner = &mut self.memory.interner;
        let region = |t: Handle| {
            let spec = &interner.specs[t.spec.index()];
            let numbers = [spec.offset()]
                .into_iter()
                .chain(spec.sizes())
                .chain(spec.dims().iter().map(|d| d.stride));
            CallArg::List(numbers.map(CallArg::Int).collect())
        };
        let [first, second] = tensors.map(region);
        let [first_name, second_name] =
            args.map(|a| CallArg::Str(interner.name(&self.ops.arg_name(op, a))));
        self.add_runtime_check(
            functional_ops::DISJOINT,
            Box::from([first, second, first_name, second_name]),
        );
    }

    /// Adds a runtime check that a mutated view does not overlap itself. It has the sizes and
    /// strides of the program's tensor, so that its error equals that of eager execution.
    fn add_injective_check(&mut self, op: &str, t: Handle, arg: usize) {
        let ty = self.graph.type_of(t.ty);
        let [sizes, strides] = [&ty.sizes, &ty.strides]
            .map(|l| CallArg::List(l.iter().copied().map(CallArg::Int).collect()));
        let name = CallArg::Str(self.memory.interner.name(&self.ops.arg_name(op, arg)));
        self.add_runtime_check(functional_ops::INJECTIVE, Box::from([sizes, strides, name]));
    }

    /// Adds a runtime check at the current statement, in order with the other effects.
    fn add_runtime_check(&mut self, check: &str, args: Box<[CallArg]>) {
        let key = CallKey {
            op: self.memory.interner.name(check),
            args,
            kwargs: Box::default(),
            mutates: false,
            effect: Some(Effect::Ordered),
            copies: false,
            results: Box::default(),
            layouts: Box::default(),
            offsets: Box::default(),
            serial: self.memory.statement + 1,
        };
        let call = self.memory.interner.call(key, None);
        self.memory.add(Node::Call(call, SmallVec::new()), Kind::Tuple);
    }
}
