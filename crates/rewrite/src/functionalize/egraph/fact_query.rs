//! Queries of [`OpFacts`] about a call: translates a call's key and operand metadata into the
//! arguments that the facts take.

use super::lang::{Cx, Metas};
use crate::functionalize::value_graph::{CallArg, CallKey};
use maquette_ir::graph::{ArgKind, OpFacts};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// The value of every symbol in a query. [`ArgKind::Tensor`] takes the sizes of any one call: type
/// promotion depends on the number of dimensions and not on their sizes.
const PLACEHOLDER_SIZE: i64 = 4;

impl Cx<'_> {
    /// Calls `query` with the facts and the call's arguments. `None` if an argument has no form
    /// that facts know, or if the query has no answer.
    pub fn query_facts<R>(
        &self,
        key: &CallKey,
        metas: &Metas,
        query: impl FnOnce(&dyn OpFacts, &[ArgKind<'_>], &[(&str, ArgKind<'_>)]) -> Option<R>,
    ) -> Option<R> {
        let symbols = &self.interner.symbols;
        let number = |e: &Expr| symbols.eval(*e, &|_| Some(PLACEHOLDER_SIZE)).ok();
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
        let args = key.args.iter().map(kind).collect::<Option<SmallVec<[ArgKind<'_>; 4]>>>()?;
        let kwargs = key.kwargs.iter().map(|(n, s)| Some((self.interner.str(*n), kind(s)?)));
        let kwargs = kwargs.collect::<Option<SmallVec<[(&str, ArgKind<'_>); 2]>>>()?;
        query(self.facts, &args, &kwargs)
    }

    /// An argument as facts see it; `None` for devices, layouts and memory formats.
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
