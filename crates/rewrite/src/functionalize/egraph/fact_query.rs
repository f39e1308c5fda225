//! Calls as operators' facts take them.

use super::lang::{Cx, Metas};
use crate::functionalize::value_graph::{CallArg, CallKey};
use maquette_ir::graph::{ArgKind, OpFacts};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// The size that symbols have where one is needed.
const SIZE: i64 = 4;

impl Cx<'_> {
    /// Asks the facts about a call.
    pub fn ask<R>(
        &self,
        t: &CallKey,
        metas: &Metas,
        ask: impl FnOnce(&dyn OpFacts, &[ArgKind<'_>], &[(&str, ArgKind<'_>)]) -> Option<R>,
    ) -> Option<R> {
        let symbols = &self.interner.symbols;
        let number = |e: &Expr| symbols.eval(*e, &|_| Some(SIZE)).ok();
        let sizes = |m: &Option<_>| match m {
            Some(m) => self.interner.metas[crate::functionalize::value_graph::MetaId::index(*m)]
                .sizes
                .iter()
                .map(number)
                .collect(),
            None => Some(SmallVec::new()),
        };
        let sizes: Vec<SmallVec<[i64; 4]>> = metas.iter().map(sizes).collect::<Option<_>>()?;
        let kind = |call_arg: &CallArg| self.argument(call_arg, metas, &sizes);
        let args = t.args.iter().map(kind).collect::<Option<SmallVec<[ArgKind<'_>; 4]>>>()?;
        let kwargs = t.kwargs.iter().map(|(n, s)| Some((self.interner.str(*n), kind(s)?)));
        let kwargs = kwargs.collect::<Option<SmallVec<[(&str, ArgKind<'_>); 2]>>>()?;
        ask(self.facts, &args, &kwargs)
    }

    fn argument<'a>(
        &'a self,
        call_arg: &CallArg,
        metas: &Metas,
        sizes: &'a [SmallVec<[i64; 4]>],
    ) -> Option<ArgKind<'a>> {
        Some(match call_arg {
            CallArg::Operand(i) => {
                let i = *i as usize;
                let meta = (*metas.get(i)?)?;
                ArgKind::Tensor {
                    dtype: self.interner.metas[meta.index()].dtype,
                    sizes: sizes.get(i)?,
                }
            }
            CallArg::None => ArgKind::None,
            CallArg::Int(Expr::Int(i)) => ArgKind::Int(Some(*i)),
            CallArg::Int(_) => ArgKind::Int(None),
            CallArg::Float(x) => ArgKind::Float(x.get()),
            CallArg::Bool(b) => ArgKind::Bool(*b),
            CallArg::Str(s) => ArgKind::Str(self.interner.str(*s)),
            CallArg::DType(d) => ArgKind::DType(*d),
            CallArg::List(l) => ArgKind::List(
                l.iter().map(|s| self.argument(s, metas, sizes)).collect::<Option<_>>()?,
            ),
            CallArg::Device(_) | CallArg::Layout(_) | CallArg::MemoryFormat(_) => return None,
        })
    }
}
