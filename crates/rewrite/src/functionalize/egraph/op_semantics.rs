//! Rules about calls, and the operator semantics that they rely on.
//!
//! The semantics of a call (see [`OpSemantics`]) depend only on the call's key and on its operands'
//! metadata. They are computed once for each pair and cached in [`Cx::calls`], since programs
//! repeat the same calls.
//!
//! The rules know operators by what [`OpFacts`](maquette_ir::graph::OpFacts) says of them. All
//! identities are exact to the bit; with `no_signed_zeros`, up to the sign of zero.

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

/// What rules know of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpSemantics {
    /// Nothing.
    Unknown,
    /// It mutates its first operand, and a functional variant computes the new value.
    HasVariant(FunctionalVariant),
    /// It has the elements of its first operand in row-major order, as `clone` and `reshape` do;
    /// with a spec, in the sizes of that view.
    SameElements(Option<SpecId>),
    /// It converts its first operand from this dtype to the result's.
    Convert(DType),
    /// Its result depends on the metadata of its first operand and not on the contents, as that of
    /// `fill` does.
    IgnoresContents,
    /// An element-wise function of operands that all have the result's metadata. `has_identity`: of
    /// one operand and a number that leaves the operand unchanged.
    Compute { arith: ArithOp, has_identity: bool },
}

/// A call that rules are applied to.
pub(crate) struct CallSite {
    call: CallId,
    operands: Operands,
    semantics: OpSemantics,
}

impl CallSite {
    pub fn new(worklist: &mut Worklist<'_>, call: CallId, operands: Operands) -> CallSite {
        let metas: Metas = operands.iter().map(|&o| worklist.meta(o)).collect();
        CallSite { call, operands, semantics: semantics(worklist.cx(), call, metas) }
    }
}

/// The semantics of a call, cached.
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

/// Whether a call only copies, reshapes or converts its first operand.
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

/// Whether a call ignores the contents of its first operand.
fn ignores(cx: &Cx<'_>, call: CallId) -> Option<OpSemantics> {
    let key = &cx.interner.calls[call.index()];
    let first = matches!(key.args.first(), Some(CallArg::Operand(0)));
    (first && cx.facts.ignores_contents(cx.interner.str(key.op)))
        .then_some(OpSemantics::IgnoresContents)
}

/// Whether a call is an element-wise function, with its tensors first and in order.
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
    let arith =
        cx.query_facts(key, metas, |facts, args, kwargs| facts.arith_op(op, args, kwargs))?;
    let dtype = cx.interner.metas[result.index()].dtype;
    let has_identity = metas.len() == 1
        && key
            .args
            .get(1)
            .is_some_and(|n| is_identity_operand(arith, n, dtype, cx.no_signed_zeros));
    Some(OpSemantics::Compute { arith, has_identity })
}

/// Whether `x ∘ n` equals `x` to the bit. `x + 0.0` does not: `-0.0 + 0.0` is `0.0`.
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

/// The rule `functional-variant`: merges a call that mutates with its [`FunctionalVariant`], which
/// [`functional_variant::find`] has found.
pub(super) fn functional_variant(worklist: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    let OpSemantics::HasVariant(variant) = site.semantics else { return };
    let value = match variant.call {
        Some(call) => Some(worklist.add(Term::Call(call, site.operands.clone()))),
        None => site.operands.get(1).copied(),
    };
    let Some(mut value) = value else { return };
    if let Some(convert) = variant.convert {
        value = worklist.add(Term::Call(convert, std::iter::once(value).collect()));
    }
    if let Some(spec) = variant.expand {
        value = worklist.view(spec, value);
    }
    found.push(value);
}

/// `clone(x) = x`, and `reshape(x)` is a view of `x`.
pub(super) fn same_elements_as(worklist: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    if let (OpSemantics::SameElements(view), Some(&x)) = (site.semantics, site.operands.first()) {
        found.push(match view {
            Some(all) => worklist.view(all, x),
            None => x,
        });
    }
}

/// `x * 1 = x` and the like.
pub(super) fn identity_operand(_: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    if let (OpSemantics::Compute { has_identity: true, .. }, Some(&x)) =
        (site.semantics, site.operands.first())
    {
        found.push(x);
    }
}

/// The calls in a class, with their semantics.
fn calls(worklist: &mut Worklist<'_>, id: Id) -> SmallVec<[CallSite; 2]> {
    worklist
        .calls(id)
        .into_iter()
        .map(|(call, operands)| CallSite::new(worklist, call, operands))
        .collect()
}

/// `neg(neg(x)) = x`, `relu(relu(x)) = relu(x)` and the like.
pub(super) fn involution_or_idempotent(
    worklist: &mut Worklist<'_>,
    site: &CallSite,
    found: &mut Found,
) {
    let (
        OpSemantics::Compute {
            arith: outer @ (ArithOp::Neg | ArithOp::Abs | ArithOp::Relu | ArithOp::Not),
            ..
        },
        Some(&x),
    ) = (site.semantics, site.operands.first())
    else {
        return;
    };
    for inner in calls(worklist, x) {
        let (OpSemantics::Compute { arith, .. }, Some(&y)) =
            (inner.semantics, inner.operands.first())
        else {
            continue;
        };
        match (outer, arith) {
            (ArithOp::Neg, ArithOp::Neg) | (ArithOp::Not, ArithOp::Not) => found.push(y),
            (ArithOp::Abs, ArithOp::Abs) | (ArithOp::Relu, ArithOp::Relu) => found.push(x),
            // `abs(neg(x)) = abs(x)` fails for unsigned integers: `neg` wraps and `abs` does
            // nothing
            (ArithOp::Abs, ArithOp::Neg) if worklist.dtype(y).is_some_and(|d| d != DType::U8) => {
                found.push(worklist.add(Term::Call(site.call, std::iter::once(y).collect())));
            }
            _ => {}
        }
    }
}

/// `max(x, x) = x` and the like.
pub(super) fn same_operands(worklist: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    if let (
        OpSemantics::Compute {
            arith: ArithOp::Max | ArithOp::Min | ArithOp::And | ArithOp::Or,
            ..
        },
        [x, y],
    ) = (site.semantics, site.operands.as_slice())
        && worklist.find(*x) == worklist.find(*y)
    {
        found.push(*x);
    }
}

/// `convert(convert(x)) = x` if the intermediate dtype represents every value of `x`'s dtype.
pub(super) fn round_trip(worklist: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    let (OpSemantics::Convert(wide), Some(&x)) = (site.semantics, site.operands.first()) else {
        return;
    };
    for inner in calls(worklist, x) {
        if let (OpSemantics::Convert(narrow), Some(&y)) = (inner.semantics, inner.operands.first())
            && wide.holds(narrow)
            && Data::Value(worklist.cx().interner.calls[site.call.index()].kind())
                == worklist.data(y)
        {
            found.push(y);
        }
    }
}

/// Merges with the commuted call only if that call already exists, so that the rule adds no terms.
pub(super) fn commute(worklist: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    if let (
        OpSemantics::Compute {
            arith: ArithOp::Add | ArithOp::Mul | ArithOp::And | ArithOp::Or,
            ..
        },
        [x, y],
    ) = (site.semantics, site.operands.as_slice())
        && x != y
        && worklist.dtype(*x).is_some_and(|d| !d.is_float())
    {
        found.extend(worklist.lookup(Term::Call(site.call, [*y, *x].into_iter().collect())));
    }
}

/// Replaces the operand by an input or constant of the same metadata, which costs nothing, so that
/// the operand's computation may become dead.
pub(super) fn ignored_operand(worklist: &mut Worklist<'_>, site: &CallSite, found: &mut Found) {
    let (OpSemantics::IgnoresContents, Some(&x)) = (site.semantics, site.operands.first()) else {
        return;
    };
    let Some(y) = worklist
        .meta(x)
        .and_then(|m| worklist.cx().leaves.get(&m).copied())
        .filter(|y| worklist.find(*y) != worklist.find(x))
    else {
        return;
    };
    let mut operands = site.operands.clone();
    operands[0] = worklist.find(y);
    found.push(worklist.add(Term::Call(site.call, operands)));
}
