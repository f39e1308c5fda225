//! Operators that mutate leave the graph: in their place comes what their functional variants
//! compute.

use super::lang::{Cx, Metas};
use crate::functionalize::value_graph::{
    CallArg, CallId, CallKey, Kind, Meta, MetaId, Name, ResultKind, SpecId,
};
use maquette_ir::DType;
use maquette_ir::sym::Expr;
use maquette_ir::typing::can_cast;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// What a call that mutates leaves in its first argument: the value of a call of the same operands,
/// or the second of them; converted; expanded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionalVariant {
    pub call: Option<CallId>,
    pub convert: Option<CallId>,
    pub expand: Option<SpecId>,
}

/// The functional variant of a call whose value has the metadata of its first operand.
pub(super) fn find(cx: &mut Cx<'_>, call: CallId, metas: &Metas) -> Option<FunctionalVariant> {
    let key = cx.interner.calls[call.index()].clone();
    let &Some(target) = metas.first()? else { return None };
    // the operator's one value is its first argument's
    if key.serial != 0
        || !matches!(key.args.first(), Some(CallArg::Operand(0)))
        || key.kind() != Kind::Tensor(target)
    {
        return None;
    }
    let name = cx.facts.functional_variant(cx.interner.str(key.op))?.to_owned();
    let (call, value) = if let Some(copied) = cx.facts.copied_operand(&name) {
        // the value is the source itself, converted and expanded
        match (key.args.get(copied), metas.get(1)) {
            (Some(CallArg::Operand(1)), Some(&Some(source))) => (None, source),
            _ => return None,
        }
    } else {
        let dtype =
            cx.ask(&key, metas, |facts, args, kwargs| facts.result_dtype(&name, args, kwargs))?;
        // what eager refuses to write stays an operator that refuses
        if !can_cast(dtype, cx.interner.metas[target.index()].dtype) {
            return None;
        }
        let meta = with_dtype(cx, target, dtype);
        let op = cx.interner.name(&name);
        (Some(call_of(cx, CallKey { op, mutates: false, ..key }, meta)), meta)
    };
    let (convert, value) = converted(cx, value, target)?;
    let expand = if value == target { None } else { Some(expanded(cx, value, target)?) };
    Some(FunctionalVariant { call, convert, expand })
}

fn with_dtype(cx: &mut Cx<'_>, meta: MetaId, dtype: DType) -> MetaId {
    let meta = Meta { dtype, ..cx.interner.metas[meta.index()].clone() };
    cx.interner.meta(meta)
}

/// A call with one value.
fn call_of(cx: &mut Cx<'_>, key: CallKey, value: MetaId) -> CallId {
    cx.interner
        .call(CallKey { results: Box::from([ResultKind::Value(Kind::Tensor(value))]), ..key }, None)
}

/// A value in a tensor's dtype; `None` if no operator converts.
fn converted(cx: &mut Cx<'_>, from: MetaId, like: MetaId) -> Option<(Option<CallId>, MetaId)> {
    let dtype = cx.interner.metas[like.index()].dtype;
    if cx.interner.metas[from.index()].dtype == dtype {
        return Some((None, from));
    }
    let op: Name = cx.interner.name(cx.facts.conversion()?);
    let keyword: Name = cx.interner.name("dtype");
    let key = CallKey {
        op,
        args: Box::from([CallArg::Operand(0)]),
        kwargs: Box::from([(keyword, CallArg::DType(dtype))]),
        mutates: false,
        effect: false,
        copies: false,
        results: Box::default(),
        layouts: Box::default(),
        serial: 0,
    };
    let meta = with_dtype(cx, from, dtype);
    Some((Some(call_of(cx, key, meta)), meta))
}

/// A value broadcast to a tensor's sizes; `None` if it is not known which dimensions are repeated.
fn expanded(cx: &mut Cx<'_>, from: MetaId, like: MetaId) -> Option<SpecId> {
    let interner = &mut cx.interner;
    let (source, target) =
        (interner.metas[from.index()].clone(), interner.metas[like.index()].clone());
    let lead = target.sizes.len().checked_sub(source.sizes.len())?;
    let own = ViewSpec::contiguous(&source.sizes, &mut interner.symbols).ok()?;
    let mut strides: SmallVec<[Expr; 4]> = SmallVec::from_elem(Expr::Int(0), target.sizes.len());
    for (d, dim) in own.dims().iter().enumerate() {
        if dim.size == target.sizes[lead + d] {
            strides[lead + d] = dim.stride;
        } else if dim.size != Expr::Int(1) {
            return None;
        }
    }
    let spec =
        ViewSpec::strided(Expr::Int(0), &target.sizes, &strides, &mut interner.symbols).ok()?;
    let spec = interner.spec(spec);
    (source.device == target.device && interner.viewed(spec, from) == like).then_some(spec)
}
