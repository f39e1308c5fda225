//! What the program writes as it is, to compare plans with.

use crate::lift::{Binding, Lift, Operand};
use crate::memory::Handle;
use maquette_ir::graph::{NodeId, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::traffic::{Traffic, Writing};
use maquette_ir::view::Tri;
use smallvec::SmallVec;

/// What a size that is a symbol counts as.
const SYMBOLIC: u64 = 64;

/// About how many elements a tensor of these sizes has.
pub(crate) fn elements(sizes: &[Expr]) -> u64 {
    let size = |e: &Expr| if let Expr::Int(n) = e { u64::try_from(*n).unwrap_or(0) } else { SYMBOLIC };
    sizes.iter().map(size).fold(1, u64::saturating_mul)
}

impl Lift<'_> {
    /// Adds what a call writes where tensors lie as the program has them. Results that are `new` are not views of an operand.
    pub(crate) fn count(
        &mut self,
        node: NodeId,
        writing: Writing,
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
            .filter_map(|o| if let Ok(Binding::Tensor(t)) = self.binding(o.value) { Some((o.arg, o.value, t)) } else { None })
            .collect();
        // keywords come in any order
        reads.sort_by_key(|(arg, ..)| *arg);
        let from = reads.first().and_then(|(_, v, _)| tensor(*v)).map(|t| t.dtype);
        for &(_, v, t) in &reads {
            let session = &mut self.memory.session;
            let mut in_the_way = |u: Handle| {
                let same = t.ty == u.ty;
                writing.in_the_way(|| same, || session.disjoint(t.spec, u.spec) != Tri::Yes)
            };
            if mutated.iter().any(|(_, u)| u.storage == t.storage && in_the_way(*u)) {
                self.memory.eager += Traffic::copy(tensor(v).map_or(0, |t| elements(&t.sizes)));
            }
        }
        for (_, t) in mutated {
            let meta = &self.memory.session.metas[t.meta.index()];
            self.memory.eager += writing.cost(elements(&meta.sizes), true, from != Some(meta.dtype));
        }
        for (_, r) in graph.results(node).iter().enumerate().filter(|(i, _)| new(*i)) {
            for t in r.values().iter().filter_map(tensor) {
                self.memory.eager += writing.cost(elements(&t.sizes), false, from != Some(t.dtype));
            }
        }
    }
}
