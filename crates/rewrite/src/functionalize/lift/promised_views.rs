//! Views that a fake kernel promises. Reads and writes go to the elements that the types name, and
//! the call of the operator stays beside them: each run compares its view with the promise.

use super::memory_ssa::Handle;
use super::{Aliases, Lift, Operand};
use crate::error::{Reason, Result, UnknownView};
use maquette_ir::graph::{NodeId, ValueId, ValueType};
use maquette_ir::sym::Expr;

impl Lift<'_> {
    /// For each value that a node returns: where it begins, counted from the first element of the
    /// operand that it views.
    ///
    /// # Errors
    /// The argument that a result views is a list of several tensors.
    pub(super) fn promised_offsets(
        &mut self,
        node: NodeId,
        operands: &[Operand],
        aliases: &Aliases,
    ) -> Result<Box<[Option<Expr>]>> {
        let graph = self.graph;
        let mut offsets = Vec::new();
        for (r, alias) in graph.results(node).iter().zip(aliases) {
            let mut viewed = operands.iter().filter(|o| Some(o.arg) == *alias);
            let base = viewed.next().and_then(|o| graph.tensor_type(o.value));
            if viewed.next().is_some() {
                let (op, why) = (graph.op_name(node).into(), UnknownView::OneOfSeveral);
                return Err(Reason::UnknownView { op, why }.into());
            }
            for v in r.values().iter() {
                let ends = graph.tensor_type(v).zip(base).map(|(t, base)| (t.offset, base.offset));
                let symbols = &mut self.memory.interner.symbols;
                let offset = ends.map(|(at, from)| symbols.sub(at, from));
                offsets.push(offset.transpose().map_err(|_| Reason::Overflow("an offset"))?);
            }
        }
        Ok(offsets.into())
    }

    /// Checks that a promised view has only elements of its operand: a value has no memory around
    /// it, in which the kernel could find others.
    ///
    /// # Errors
    /// It is not known to.
    pub(super) fn check_within_operand(&mut self, v: ValueId, of: Handle, op: &str) -> Result<()> {
        let ValueType::Tensor(ty) = self.graph.value_type(v) else { return Ok(()) };
        let (view, operand) = (self.region(ty)?, self.region(of.ty)?);
        if self.memory.interner.provably_contained_in(view, operand) {
            return Ok(());
        }
        Err(Reason::UnknownView { op: op.into(), why: UnknownView::ExceedsBase }.into())
    }
}
