//! What calls are equal to by their operators. It depends on the key and on the operands' metadata
//! alone, and programs repeat themselves: so it is asked once.

use super::functional_variant::{self, FunctionalVariant};
use super::lang::{Cx, Data, Metas, Operands, Term};
use super::rules::Found;
use super::worklist::Worklist;
use crate::functionalize::value_graph::{CallArg, CallId, Kind, SpecId};
use egg::Id;
use maquette_ir::DType;
use maquette_ir::graph::ArithOp;
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// What a call is known to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpSemantics {
    /// Nothing that rules know of.
    Unknown,
    /// It mutates, and has a variant.
    HasVariant(FunctionalVariant),
    /// It has the elements of its first operand: those of a view of it.
    SameElements(Option<SpecId>),
    /// It converts its first operand, to the dtype it has, from this one.
    Convert(DType),
    /// It looks at the metadata of its first operand alone.
    IgnoresContents,
    /// Of operands of its own metadata; or of one, and of a number that changes nothing.
    Compute { arith: ArithOp, has_identity: bool },
}

/// A call.
pub(crate) struct CallSite {
    call: CallId,
    operands: Operands,
    semantics: OpSemantics,
}

impl CallSite {
    pub fn new(s: &mut Worklist<'_>, call: CallId, operands: Operands) -> CallSite {
        let metas: Metas = operands.iter().map(|&o| s.meta(o)).collect();
        CallSite { call, operands, semantics: semantics(s.cx(), call, metas) }
    }
}

fn semantics(cx: &mut Cx<'_>, call: CallId, metas: Metas) -> OpSemantics {
    let site = (call, metas);
    if let Some(known) = cx.calls.get(&site) {
        return *known;
    }
    let metas = &site.1;
    let key = &cx.interner.calls[call.index()];
    let answer = match (key.mutates, key.serial) {
        (_, 1..) => None,
        (true, 0) => functional_variant::find(cx, call, metas).map(OpSemantics::HasVariant),
        (false, 0) => same_elements(cx, call, metas)
            .or_else(|| ignores(cx, call))
            .or_else(|| computes(cx, call, metas)),
    };
    let answer = answer.unwrap_or(OpSemantics::Unknown);
    cx.calls.insert(site, answer);
    answer
}

fn same_elements(cx: &mut Cx<'_>, call: CallId, metas: &Metas) -> Option<OpSemantics> {
    let key = &cx.interner.calls[call.index()];
    let (&Some(source), Kind::Tensor(result)) = (metas.first()?, key.kind()) else { return None };
    let first = matches!(key.args.first(), Some(CallArg::Operand(0)));
    if !first || !cx.facts.preserves_elements(cx.interner.str(key.op)) {
        return None;
    }
    if source == result {
        return Some(OpSemantics::SameElements(None));
    }
    let (from, to) = (&cx.interner.metas[source.index()], &cx.interner.metas[result.index()]);
    if (from.device, from.layout) != (to.device, to.layout) {
        return None;
    }
    match from.dtype == to.dtype {
        true => cx.interner.all(result).map(|all| OpSemantics::SameElements(Some(all))),
        false => (from.sizes == to.sizes).then_some(OpSemantics::Convert(from.dtype)),
    }
}

fn ignores(cx: &Cx<'_>, call: CallId) -> Option<OpSemantics> {
    let key = &cx.interner.calls[call.index()];
    let first = matches!(key.args.first(), Some(CallArg::Operand(0)));
    (first && cx.facts.ignores_contents(cx.interner.str(key.op)))
        .then_some(OpSemantics::IgnoresContents)
}

fn computes(cx: &Cx<'_>, call: CallId, metas: &Metas) -> Option<OpSemantics> {
    let key = &cx.interner.calls[call.index()];
    let Kind::Tensor(result) = key.kind() else { return None };
    let own = metas.iter().all(|m| *m == Some(result));
    let in_order =
        key.args.iter().zip(0..metas.len() as u32).all(|(s, i)| *s == CallArg::Operand(i));
    if !own || !in_order {
        return None;
    }
    let op = cx.interner.str(key.op);
    let arith = cx.ask(key, metas, |facts, args, kwargs| facts.arith_op(op, args, kwargs))?;
    let dtype = cx.interner.metas[result.index()].dtype;
    let has_identity = metas.len() == 1
        && key
            .args
            .get(1)
            .is_some_and(|n| is_identity_operand(arith, n, dtype, cx.no_signed_zeros));
    Some(OpSemantics::Compute { arith, has_identity })
}

/// `x ∘ n` is `x`, to the bit. `x + 0.0` is not: of `-0.0` it is `0.0`.
fn is_identity_operand(arith: ArithOp, n: &CallArg, dtype: DType, no_signed_zeros: bool) -> bool {
    let n = match n {
        CallArg::Int(Expr::Int(i)) => *i as f64,
        CallArg::Float(x) => x.get(),
        _ => return false,
    };
    let zero = n == 0.0 && dtype != DType::Bool;
    match arith {
        ArithOp::Add => zero && (n.is_sign_negative() || !dtype.is_float() || no_signed_zeros),
        ArithOp::Sub => zero && (n.is_sign_positive() || !dtype.is_float() || no_signed_zeros),
        ArithOp::Mul | ArithOp::Div => n == 1.0,
        _ => false,
    }
}

pub(super) fn functional_variant(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    let OpSemantics::HasVariant(variant) = t.semantics else { return };
    let value = match variant.call {
        Some(call) => Some(s.add(Term::Call(call, t.operands.clone()))),
        None => t.operands.get(1).copied(),
    };
    let Some(mut value) = value else { return };
    if let Some(convert) = variant.convert {
        value = s.add(Term::Call(convert, std::iter::once(value).collect()));
    }
    if let Some(spec) = variant.expand {
        value = s.view(spec, value);
    }
    found.push(value);
}

pub(super) fn same_elements_as(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    if let (OpSemantics::SameElements(view), Some(&x)) = (t.semantics, t.operands.first()) {
        found.push(match view {
            Some(all) => s.view(all, x),
            None => x,
        });
    }
}

pub(super) fn identity_operand(_: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    if let (OpSemantics::Compute { has_identity: true, .. }, Some(&x)) =
        (t.semantics, t.operands.first())
    {
        found.push(x);
    }
}

/// The calls in a class, and what they do.
fn calls(s: &mut Worklist<'_>, id: Id) -> SmallVec<[CallSite; 2]> {
    s.calls(id).into_iter().map(|(call, operands)| CallSite::new(s, call, operands)).collect()
}

pub(super) fn involution_or_idempotent(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    let (
        OpSemantics::Compute {
            arith: outer @ (ArithOp::Neg | ArithOp::Abs | ArithOp::Relu | ArithOp::Not),
            ..
        },
        Some(&x),
    ) = (t.semantics, t.operands.first())
    else {
        return;
    };
    for inner in calls(s, x) {
        let (OpSemantics::Compute { arith, .. }, Some(&y)) =
            (inner.semantics, inner.operands.first())
        else {
            continue;
        };
        match (outer, arith) {
            (ArithOp::Neg, ArithOp::Neg) | (ArithOp::Not, ArithOp::Not) => found.push(y),
            (ArithOp::Abs, ArithOp::Abs) | (ArithOp::Relu, ArithOp::Relu) => found.push(x),
            // unsigned numbers have no sign to lose
            (ArithOp::Abs, ArithOp::Neg) if s.dtype(y).is_some_and(|d| d != DType::U8) => {
                found.push(s.add(Term::Call(t.call, std::iter::once(y).collect())));
            }
            _ => {}
        }
    }
}

pub(super) fn same_operands(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    if let (
        OpSemantics::Compute {
            arith: ArithOp::Max | ArithOp::Min | ArithOp::And | ArithOp::Or,
            ..
        },
        [x, y],
    ) = (t.semantics, t.operands.as_slice())
        && s.find(*x) == s.find(*y)
    {
        found.push(*x);
    }
}

pub(super) fn round_trip(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    let (OpSemantics::Convert(wide), Some(&x)) = (t.semantics, t.operands.first()) else { return };
    for inner in calls(s, x) {
        if let (OpSemantics::Convert(narrow), Some(&y)) = (inner.semantics, inner.operands.first())
            && wide.holds(narrow)
            && Data::Value(s.cx().interner.calls[t.call.index()].kind()) == s.data(y)
        {
            found.push(y);
        }
    }
}

/// Only where the other order is there already: calls are not multiplied.
pub(super) fn commute(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    if let (
        OpSemantics::Compute {
            arith: ArithOp::Add | ArithOp::Mul | ArithOp::And | ArithOp::Or,
            ..
        },
        [x, y],
    ) = (t.semantics, t.operands.as_slice())
        && x != y
        && s.dtype(*x).is_some_and(|d| !d.is_float())
    {
        found.extend(s.lookup(Term::Call(t.call, [*y, *x].into_iter().collect())));
    }
}

/// In the place of the operand comes an input or constant of its kind, which costs nothing.
pub(super) fn ignored_operand(s: &mut Worklist<'_>, t: &CallSite, found: &mut Found) {
    let (OpSemantics::IgnoresContents, Some(&x)) = (t.semantics, t.operands.first()) else {
        return;
    };
    let Some(y) =
        s.meta(x).and_then(|m| s.cx().leaves.get(&m).copied()).filter(|y| s.find(*y) != s.find(x))
    else {
        return;
    };
    let mut operands = t.operands.clone();
    operands[0] = s.find(y);
    found.push(s.add(Term::Call(t.call, operands)));
}
