//! Operators that mutate leave the graph: in their place comes what their functional twins compute.

use super::lang::{Egraph, Term};
use super::rules::{Found, meta_of, view};
use crate::dag::{Given, Kind, MetaId, Name, Slot, Template};
use egg::Id;
use maquette_ir::DType;
use maquette_ir::graph::ArgKind;
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// Copies from one tensor to another: the twin's value is the source itself, converted and expanded.
const COPY: &str = "aten::copy";
/// The conversion of in-place operators.
const CONVERT: &str = "aten::_to_copy";

pub(super) fn twin(g: &mut Egraph<'_>, id: Id, t: &Term, found: &mut Found) {
    let Term::Call(call, operands) = t else { return };
    if !g.analysis.session.calls[call.index()].mutates {
        return;
    }
    let template = g.analysis.session.calls[call.index()].clone();
    let (Some(&first), Some(target)) = (operands.first(), meta_of(g, id)) else { return };
    // the operator's one value is its first argument's
    if template.serial != 0 || !matches!(template.args.first(), Some(Slot::Operand(0))) || meta_of(g, first) != Some(target) {
        return;
    }
    let op = g.analysis.session.str(template.op).to_owned();
    let Some(twin) = g.analysis.facts.twin(&op).map(str::to_owned) else { return };
    let value = if twin == COPY {
        match (template.args.get(1), operands.get(1)) {
            (Some(Slot::Operand(1)), Some(&source)) => Some(source),
            _ => None,
        }
    } else {
        computed(g, &twin, &template, operands, target)
    };
    let Some(value) = value.and_then(|v| converted(g, v, target)).and_then(|v| expanded(g, v, target)) else { return };
    found.push(value);
}

/// What the twin gives, in its own dtype.
fn computed(g: &mut Egraph<'_>, twin: &str, t: &Template, operands: &[Id], target: MetaId) -> Option<Id> {
    let dtype = dtype_of(g, twin, t, operands)?;
    let meta = with_dtype(g, target, dtype);
    let op = g.analysis.session.name(twin);
    Some(call(g, Template { op, mutates: false, layouts: Box::default(), ..t.clone() }, operands, meta))
}

fn dtype_of(g: &Egraph<'_>, twin: &str, t: &Template, operands: &[Id]) -> Option<DType> {
    let args = t.args.iter().map(|s| kind(g, s, operands)).collect::<Option<SmallVec<[ArgKind<'_>; 4]>>>()?;
    let kwargs = t.kwargs.iter().map(|(n, s)| Some((g.analysis.session.str(*n), kind(g, s, operands)?)));
    let kwargs = kwargs.collect::<Option<SmallVec<[(&str, ArgKind<'_>); 2]>>>()?;
    g.analysis.facts.result_dtype(twin, &args, &kwargs)
}

/// An argument, as far as dtypes depend on it.
fn kind<'a>(g: &'a Egraph<'_>, slot: &Slot, operands: &[Id]) -> Option<ArgKind<'a>> {
    Some(match slot {
        Slot::Operand(i) => {
            let meta = &g.analysis.session.metas[meta_of(g, *operands.get(*i as usize)?)?.index()];
            ArgKind::Tensor { dtype: meta.dtype, zero_dim: meta.sizes.is_empty() }
        }
        Slot::None => ArgKind::None,
        Slot::Int(Expr::Int(i)) => ArgKind::Int(Some(*i)),
        Slot::Int(_) => ArgKind::Int(None),
        Slot::Float(x) => ArgKind::Float(x.get()),
        Slot::Bool(b) => ArgKind::Bool(*b),
        Slot::Str(s) => ArgKind::Str(g.analysis.session.str(*s)),
        Slot::DType(d) => ArgKind::DType(*d),
        Slot::Device(_) | Slot::Layout(_) | Slot::MemoryFormat(_) | Slot::List(_) => return None,
    })
}

fn with_dtype(g: &mut Egraph<'_>, meta: MetaId, dtype: DType) -> MetaId {
    let session = &mut g.analysis.session;
    let meta = crate::dag::Meta { dtype, ..session.metas[meta.index()].clone() };
    session.meta(meta)
}

/// A call with one value.
fn call(g: &mut Egraph<'_>, template: Template, operands: &[Id], value: MetaId) -> Id {
    let results = Box::from([Given::Value(Kind::Tensor(value))]);
    let layouts = vec![None; operands.len()].into();
    let call = g.analysis.session.call(Template { results, layouts, ..template });
    g.add(Term::Call(call, operands.into()))
}

/// A value in a tensor's dtype.
fn converted(g: &mut Egraph<'_>, value: Id, like: MetaId) -> Option<Id> {
    let from = meta_of(g, value)?;
    let dtype = g.analysis.session.metas[like.index()].dtype;
    if g.analysis.session.metas[from.index()].dtype == dtype {
        return Some(value);
    }
    let session = &mut g.analysis.session;
    let (op, keyword): (Name, Name) = (session.name(CONVERT), session.name("dtype"));
    let template = Template {
        op,
        args: Box::from([Slot::Operand(0)]),
        kwargs: Box::from([(keyword, Slot::DType(dtype))]),
        mutates: false,
        effect: false,
        copies: false,
        results: Box::default(),
        layouts: Box::default(),
        serial: 0,
    };
    let meta = with_dtype(g, from, dtype);
    Some(call(g, template, &[value], meta))
}

/// A value broadcast to a tensor's sizes; `None` if it is not known which dimensions are repeated.
fn expanded(g: &mut Egraph<'_>, value: Id, like: MetaId) -> Option<Id> {
    let from = meta_of(g, value)?;
    if from == like {
        return Some(value);
    }
    let session = &mut g.analysis.session;
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
    let out = view(g, spec, value);
    (source.device == target.device && meta_of(g, out) == Some(like)).then_some(out)
}
