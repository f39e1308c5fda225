//! Operators that mutate leave the graph: in their place comes what their functional twins compute.

use super::lang::{Cx, Metas};
use crate::dag::{CallId, Given, Hint, Kind, Meta, MetaId, Name, Slot, SpecId, Template};
use maquette_ir::DType;
use maquette_ir::sym::Expr;
use maquette_ir::typing::can_cast;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// Copies from one tensor to another: the twin's value is the source itself, converted and expanded.
const COPY: &str = "aten::copy";
/// The conversion of in-place operators.
const CONVERT: &str = "aten::_to_copy";

/// What a call that mutates leaves in its first argument: the value of a call of the same operands, or the second of them; converted; expanded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    pub call: Option<CallId>,
    pub convert: Option<CallId>,
    pub expand: Option<SpecId>,
}

/// The twin of a call whose value has the metadata of its first operand.
pub(super) fn twin(cx: &mut Cx<'_>, call: CallId, metas: &Metas) -> Option<Twin> {
    let template = cx.session.calls[call.index()].clone();
    let &Some(target) = metas.first()? else { return None };
    // the operator's one value is its first argument's
    if template.serial != 0 || !matches!(template.args.first(), Some(Slot::Operand(0))) || template.kind() != Kind::Tensor(target) {
        return None;
    }
    let name = cx.facts.functional_variant(cx.session.str(template.op))?.to_owned();
    let (call, value) = if name == COPY {
        match (template.args.get(1), metas.get(1)) {
            (Some(Slot::Operand(1)), Some(&Some(source))) => (None, source),
            _ => return None,
        }
    } else {
        let dtype = cx.ask(&template, metas, |facts, args, kwargs| facts.result_dtype(&name, args, kwargs))?;
        // what eager refuses to write stays an operator that refuses
        if !can_cast(dtype, cx.session.metas[target.index()].dtype) {
            return None;
        }
        let meta = with_dtype(cx, target, dtype);
        let op = cx.session.name(&name);
        (Some(call_of(cx, Template { op, mutates: false, strides: Hint::default(), ..template }, meta)), meta)
    };
    let (convert, value) = converted(cx, value, target);
    let expand = if value == target { None } else { Some(expanded(cx, value, target)?) };
    Some(Twin { call, convert, expand })
}

fn with_dtype(cx: &mut Cx<'_>, meta: MetaId, dtype: DType) -> MetaId {
    let meta = Meta { dtype, ..cx.session.metas[meta.index()].clone() };
    cx.session.meta(meta)
}

/// A call with one value.
fn call_of(cx: &mut Cx<'_>, template: Template, value: MetaId) -> CallId {
    cx.session.call(Template { results: Box::from([Given::Value(Kind::Tensor(value))]), ..template })
}

/// A value in a tensor's dtype.
fn converted(cx: &mut Cx<'_>, from: MetaId, like: MetaId) -> (Option<CallId>, MetaId) {
    let dtype = cx.session.metas[like.index()].dtype;
    if cx.session.metas[from.index()].dtype == dtype {
        return (None, from);
    }
    let (op, keyword): (Name, Name) = (cx.session.name(CONVERT), cx.session.name("dtype"));
    let template = Template {
        op,
        args: Box::from([Slot::Operand(0)]),
        kwargs: Box::from([(keyword, Slot::DType(dtype))]),
        mutates: false,
        effect: false,
        copies: false,
        results: Box::default(),
        layouts: Box::default(),
        strides: Hint::default(),
        serial: 0,
    };
    let meta = with_dtype(cx, from, dtype);
    (Some(call_of(cx, template, meta)), meta)
}

/// A value broadcast to a tensor's sizes; `None` if it is not known which dimensions are repeated.
fn expanded(cx: &mut Cx<'_>, from: MetaId, like: MetaId) -> Option<SpecId> {
    let session = &mut cx.session;
    let (source, target) = (session.metas[from.index()].clone(), session.metas[like.index()].clone());
    let lead = target.sizes.len().checked_sub(source.sizes.len())?;
    let own = ViewSpec::contiguous(&source.sizes, &mut session.symbols).ok()?;
    let mut strides: SmallVec<[Expr; 4]> = SmallVec::from_elem(Expr::Int(0), target.sizes.len());
    for (d, dim) in own.dims().iter().enumerate() {
        if dim.size == target.sizes[lead + d] {
            strides[lead + d] = dim.stride;
        } else if dim.size != Expr::Int(1) {
            return None;
        }
    }
    let spec = ViewSpec::strided(Expr::Int(0), &target.sizes, &strides, &mut session.symbols).ok()?;
    let spec = session.spec(spec);
    (source.device == target.device && session.viewed(spec, from) == like).then_some(spec)
}
