//! What calls are equal to. It depends on the template and on the operands' metadata alone, and programs repeat themselves: so it is asked once.

use super::lang::{Cx, Metas, Term};
use super::rules::Found;
use super::space::Space;
use super::twins::{self, Twin};
use crate::dag::{CallId, Kind, Slot, SpecId};
use egg::Id;

/// What a call is equal to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes {
    Itself,
    Twin(Twin),
    /// Its first operand; a view of it.
    Operand(Option<SpecId>),
}

fn becomes(s: &mut Space<'_>, call: CallId, operands: &[Id]) -> Becomes {
    let metas: Metas = operands.iter().map(|&o| s.meta(o)).collect();
    let cx = s.cx();
    let key = (call, metas);
    if let Some(known) = cx.calls.get(&key) {
        return *known;
    }
    let answer = match cx.session.calls[call.index()].mutates {
        true => twins::twin(cx, call, &key.1).map(Becomes::Twin),
        false => same_elements(cx, call, &key.1).map(Becomes::Operand),
    };
    let answer = answer.unwrap_or(Becomes::Itself);
    cx.calls.insert(key, answer);
    answer
}

/// Where a call has the elements of its first operand: how it views them.
fn same_elements(cx: &mut Cx<'_>, call: CallId, metas: &Metas) -> Option<Option<SpecId>> {
    let template = &cx.session.calls[call.index()];
    let (&Some(source), Kind::Tensor(result)) = (metas.first()?, template.kind()) else { return None };
    let first = matches!(template.args.first(), Some(Slot::Operand(0)));
    if template.serial != 0 || !first || !cx.facts.keeps_elements(cx.session.str(template.op)) {
        return None;
    }
    if source == result {
        return Some(None);
    }
    let (from, to) = (&cx.session.metas[source.index()], &cx.session.metas[result.index()]);
    let alike = (from.dtype, from.device, from.layout) == (to.dtype, to.device, to.layout);
    if alike { cx.session.all(result).map(Some) } else { None }
}

pub(super) fn twin(s: &mut Space<'_>, call: CallId, operands: &[Id], found: &mut Found) {
    let Becomes::Twin(twin) = becomes(s, call, operands) else { return };
    let value = match twin.call {
        Some(call) => Some(s.add(Term::Call(call, operands.into()))),
        None => operands.get(1).copied(),
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

pub(super) fn operand(s: &mut Space<'_>, call: CallId, operands: &[Id], found: &mut Found) {
    if let (Becomes::Operand(view), Some(&x)) = (becomes(s, call, operands), operands.first()) {
        found.push(match view {
            Some(all) => s.view(all, x),
            None => x,
        });
    }
}
