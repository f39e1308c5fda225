//! Calls as operators' facts take them.

use super::lang::{Cx, Metas};
use crate::dag::{Slot, Template};
use maquette_ir::graph::{ArgKind, OpFacts};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// The size that symbols have where one is needed.
const SIZE: i64 = 4;

impl Cx<'_> {
    /// Asks the facts about a call.
    pub fn ask<R>(
        &self,
        t: &Template,
        metas: &Metas,
        ask: impl FnOnce(&dyn OpFacts, &[ArgKind<'_>], &[(&str, ArgKind<'_>)]) -> Option<R>,
    ) -> Option<R> {
        let symbols = &self.session.symbols;
        let number = |e: &Expr| symbols.eval(*e, &|_| Some(SIZE)).ok();
        let sizes = |m: &Option<_>| match m {
            Some(m) => self.session.metas[crate::dag::MetaId::index(*m)].sizes.iter().map(number).collect(),
            None => Some(SmallVec::new()),
        };
        let sizes: Vec<SmallVec<[i64; 4]>> = metas.iter().map(sizes).collect::<Option<_>>()?;
        let kind = |slot: &Slot| self.argument(slot, metas, &sizes);
        let args = t.args.iter().map(kind).collect::<Option<SmallVec<[ArgKind<'_>; 4]>>>()?;
        let kwargs = t.kwargs.iter().map(|(n, s)| Some((self.session.str(*n), kind(s)?)));
        let kwargs = kwargs.collect::<Option<SmallVec<[(&str, ArgKind<'_>); 2]>>>()?;
        ask(self.facts, &args, &kwargs)
    }

    fn argument<'a>(&'a self, slot: &Slot, metas: &Metas, sizes: &'a [SmallVec<[i64; 4]>]) -> Option<ArgKind<'a>> {
        Some(match slot {
            Slot::Operand(i) => {
                let i = *i as usize;
                let meta = (*metas.get(i)?)?;
                ArgKind::Tensor { dtype: self.session.metas[meta.index()].dtype, sizes: sizes.get(i)? }
            }
            Slot::None => ArgKind::None,
            Slot::Int(Expr::Int(i)) => ArgKind::Int(Some(*i)),
            Slot::Int(_) => ArgKind::Int(None),
            Slot::Float(x) => ArgKind::Float(x.get()),
            Slot::Bool(b) => ArgKind::Bool(*b),
            Slot::Str(s) => ArgKind::Str(self.session.str(*s)),
            Slot::DType(d) => ArgKind::DType(*d),
            Slot::List(l) => ArgKind::List(l.iter().map(|s| self.argument(s, metas, sizes)).collect::<Option<_>>()?),
            Slot::Device(_) | Slot::Layout(_) | Slot::MemoryFormat(_) => return None,
        })
    }
}
