//! What calls are equal to by their operators. It depends on the template and on the operands' metadata alone, and programs repeat themselves: so
//! it is asked once.

use super::lang::{Cx, Data, Metas, Operands, Term};
use super::rules::Found;
use super::space::Space;
use super::twins::{self, Twin};
use crate::dag::{CallId, Kind, Slot, SpecId};
use egg::Id;
use maquette_ir::DType;
use maquette_ir::graph::ArithOp;
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// What a call is known to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    /// Nothing that rules know of.
    Something,
    /// It mutates, and has a twin.
    Twin(Twin),
    /// It has the elements of its first operand: those of a view of it.
    Keep(Option<SpecId>),
    /// It converts its first operand, to the dtype it has, from this one.
    Convert(DType),
    /// It looks at the metadata of its first operand alone.
    Ignore,
    /// Of operands of its own metadata; or of one, and of a number that changes nothing.
    Compute { arith: ArithOp, neutral: bool },
}

/// A call.
pub(crate) struct Site {
    call: CallId,
    operands: Operands,
    does: Does,
}

impl Site {
    pub fn new(s: &mut Space<'_>, call: CallId, operands: Operands) -> Site {
        let metas: Metas = operands.iter().map(|&o| s.meta(o)).collect();
        Site { call, operands, does: does(s.cx(), call, metas) }
    }
}

fn does(cx: &mut Cx<'_>, call: CallId, metas: Metas) -> Does {
    let key = (call, metas);
    if let Some(known) = cx.calls.get(&key) {
        return *known;
    }
    let metas = &key.1;
    let template = &cx.session.calls[call.index()];
    let answer = match (template.mutates, template.serial) {
        (_, 1..) => None,
        (true, 0) => twins::twin(cx, call, metas).map(Does::Twin),
        (false, 0) => same_elements(cx, call, metas).or_else(|| ignores(cx, call)).or_else(|| computes(cx, call, metas)),
    };
    let answer = answer.unwrap_or(Does::Something);
    cx.calls.insert(key, answer);
    answer
}

fn same_elements(cx: &mut Cx<'_>, call: CallId, metas: &Metas) -> Option<Does> {
    let template = &cx.session.calls[call.index()];
    let (&Some(source), Kind::Tensor(result)) = (metas.first()?, template.kind()) else { return None };
    let first = matches!(template.args.first(), Some(Slot::Operand(0)));
    if !first || !cx.facts.preserves_elements(cx.session.str(template.op)) {
        return None;
    }
    if source == result {
        return Some(Does::Keep(None));
    }
    let (from, to) = (&cx.session.metas[source.index()], &cx.session.metas[result.index()]);
    if (from.device, from.layout) != (to.device, to.layout) {
        return None;
    }
    match from.dtype == to.dtype {
        true => cx.session.all(result).map(|all| Does::Keep(Some(all))),
        false => (from.sizes == to.sizes).then_some(Does::Convert(from.dtype)),
    }
}

fn ignores(cx: &Cx<'_>, call: CallId) -> Option<Does> {
    let template = &cx.session.calls[call.index()];
    let first = matches!(template.args.first(), Some(Slot::Operand(0)));
    (first && cx.facts.ignores_contents(cx.session.str(template.op))).then_some(Does::Ignore)
}

fn computes(cx: &Cx<'_>, call: CallId, metas: &Metas) -> Option<Does> {
    let template = &cx.session.calls[call.index()];
    let Kind::Tensor(result) = template.kind() else { return None };
    let own = metas.iter().all(|m| *m == Some(result));
    let in_order = template.args.iter().zip(0..metas.len() as u32).all(|(s, i)| *s == Slot::Operand(i));
    if !own || !in_order {
        return None;
    }
    let op = cx.session.str(template.op);
    let arith = cx.ask(template, metas, |facts, args, kwargs| facts.arith_op(op, args, kwargs))?;
    let dtype = cx.session.metas[result.index()].dtype;
    let neutral = metas.len() == 1 && template.args.get(1).is_some_and(|n| is_neutral(arith, n, dtype, cx.no_signed_zeros));
    Some(Does::Compute { arith, neutral })
}

/// `x ∘ n` is `x`, to the bit. `x + 0.0` is not: of `-0.0` it is `0.0`.
fn is_neutral(arith: ArithOp, n: &Slot, dtype: DType, no_signed_zeros: bool) -> bool {
    let n = match n {
        Slot::Int(Expr::Int(i)) => *i as f64,
        Slot::Float(x) => x.get(),
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

pub(super) fn twin(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    let Does::Twin(twin) = t.does else { return };
    let value = match twin.call {
        Some(call) => Some(s.add(Term::Call(call, t.operands.clone()))),
        None => t.operands.get(1).copied(),
    };
    let Some(mut value) = value else { return };
    if let Some(convert) = twin.convert {
        value = s.add(Term::Call(convert, std::iter::once(value).collect()));
    }
    if let Some(spec) = twin.expand {
        value = s.view(spec, value);
    }
    found.push(value);
}

pub(super) fn same_elements_as(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    if let (Does::Keep(view), Some(&x)) = (t.does, t.operands.first()) {
        found.push(match view {
            Some(all) => s.view(all, x),
            None => x,
        });
    }
}

pub(super) fn neutral(_: &mut Space<'_>, t: &Site, found: &mut Found) {
    if let (Does::Compute { neutral: true, .. }, Some(&x)) = (t.does, t.operands.first()) {
        found.push(x);
    }
}

/// The calls in a class, and what they do.
fn calls(s: &mut Space<'_>, id: Id) -> SmallVec<[Site; 2]> {
    s.calls(id).into_iter().map(|(call, operands)| Site::new(s, call, operands)).collect()
}

pub(super) fn twice(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    let (Does::Compute { arith: outer @ (ArithOp::Neg | ArithOp::Abs | ArithOp::Relu | ArithOp::Not), .. }, Some(&x)) =
        (t.does, t.operands.first())
    else {
        return;
    };
    for inner in calls(s, x) {
        let (Does::Compute { arith, .. }, Some(&y)) = (inner.does, inner.operands.first()) else { continue };
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

pub(super) fn same_operands(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    if let (Does::Compute { arith: ArithOp::Max | ArithOp::Min | ArithOp::And | ArithOp::Or, .. }, [x, y]) = (t.does, t.operands.as_slice())
        && s.find(*x) == s.find(*y)
    {
        found.push(*x);
    }
}

pub(super) fn round_trip(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    let (Does::Convert(wide), Some(&x)) = (t.does, t.operands.first()) else { return };
    for inner in calls(s, x) {
        if let (Does::Convert(narrow), Some(&y)) = (inner.does, inner.operands.first())
            && wide.holds(narrow)
            && Data::Value(s.cx().session.calls[t.call.index()].kind()) == s.data(y)
        {
            found.push(y);
        }
    }
}

/// Only where the other order is there already: calls are not multiplied.
pub(super) fn commute(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    if let (Does::Compute { arith: ArithOp::Add | ArithOp::Mul | ArithOp::And | ArithOp::Or, .. }, [x, y]) = (t.does, t.operands.as_slice())
        && x != y
        && s.dtype(*x).is_some_and(|d| !d.is_float())
    {
        found.extend(s.lookup(Term::Call(t.call, [*y, *x].into_iter().collect())));
    }
}

/// In the place of the operand comes an input or constant of its kind, which costs nothing.
pub(super) fn unseen(s: &mut Space<'_>, t: &Site, found: &mut Found) {
    let (Does::Ignore, Some(&x)) = (t.does, t.operands.first()) else { return };
    let Some(y) = s.meta(x).and_then(|m| s.cx().leaves.get(&m).copied()).filter(|y| s.find(*y) != s.find(x)) else { return };
    let mut operands = t.operands.clone();
    operands[0] = s.find(y);
    found.push(s.add(Term::Call(t.call, operands)));
}
