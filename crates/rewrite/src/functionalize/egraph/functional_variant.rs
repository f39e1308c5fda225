//! Functional variants of operators that mutate: `add_(x, y)` leaves in `x` the value of `add(x,
//! y)`.
//!
//! This is the step that PyTorch's functionalization does by lookup of the functional overload. The
//! variant computes in its own promoted dtype and in broadcast sizes; an in-place operator writes
//! its target's dtype and sizes. So the new value of the target is `expand(convert(op(x, …)))`,
//! where each of the two outer steps is omitted if it changes nothing. For example, `x.add_(y)`
//! with an `f16` tensor `x` and an `f32` tensor `y` becomes `convert<f16>(add(x, y))`, and
//! `x.copy_(y)` becomes `expand(convert(y))`.
//!
//! Serial calls (effects, random numbers) keep their mutating form.

use super::lang::{Cx, Metas};
use crate::functionalize::value_graph::{
    CallArg, CallId, CallKey, Kind, Meta, MetaId, Name, ResultKind, SpecId,
};
use maquette_ir::DType;
use maquette_ir::sym::Expr;
use maquette_ir::typing::can_cast;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// The new value of the first argument of a call that mutates it: a call of the same operands, or,
/// without `call`, the second operand; then converted; then expanded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionalVariant {
    pub call: Option<CallId>,
    pub convert: Option<CallId>,
    pub expand: Option<SpecId>,
}

/// The functional variant of a call, if the call's only value is the new value of its first operand
/// and has that operand's metadata.
pub(super) fn find(cx: &mut Cx<'_>, call: CallId, metas: &Metas) -> Option<FunctionalVariant> {
    let key = cx.interner.calls[call.index()].clone();
    let &Some(target) = metas.first()? else { return None };
    // the call's only value must be the new value of its first argument
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
        let dtype = cx.query_facts(&key, metas, |facts, args, kwargs| {
            facts.result_dtype(&name, args, kwargs)
        })?;
        // eager execution refuses to write this dtype: the mutating call stays, so that its error
        // stays
        if !can_cast(dtype, cx.interner.metas[target.index()].dtype) {
            return None;
        }
        let meta = with_dtype(cx, target, dtype);
        let op = cx.interner.name(&name);
        (Some(intern_call(cx, CallKey { op, mutates: false, ..key }, meta)), meta)
    };
    let (convert, value) = conversion_to(cx, value, target)?;
    let expand = if value == target { None } else { Some(broadcast_to(cx, value, target)?) };
    Some(FunctionalVariant { call, convert, expand })
}

/// The metadata with another dtype.
fn with_dtype(cx: &mut Cx<'_>, meta: MetaId, dtype: DType) -> MetaId {
    let meta = Meta { dtype, ..cx.interner.metas[meta.index()].clone() };
    cx.interner.meta(meta)
}

/// Interns a call with one value.
fn intern_call(cx: &mut Cx<'_>, key: CallKey, value: MetaId) -> CallId {
    cx.interner
        .call(CallKey { results: Box::from([ResultKind::Value(Kind::Tensor(value))]), ..key }, None)
}

/// The conversion of a value to the dtype of `like`, if the dtypes differ, and the metadata after
/// it; `None` if no operator converts.
fn conversion_to(cx: &mut Cx<'_>, from: MetaId, like: MetaId) -> Option<(Option<CallId>, MetaId)> {
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
        effect: None,
        copies: false,
        results: Box::default(),
        layouts: Box::default(),
        offsets: Box::default(),
        serial: 0,
    };
    let meta = with_dtype(cx, from, dtype);
    Some((Some(intern_call(cx, key, meta)), meta))
}

/// The view that broadcasts a value to the sizes of `like`. `None` if symbolic sizes do not decide
/// which dimensions are expanded, or if the result would differ in more than sizes.
fn broadcast_to(cx: &mut Cx<'_>, from: MetaId, like: MetaId) -> Option<SpecId> {
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
