//! The addresses of launches.

use crate::instance::{Place, TensorAt};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ops::{PlacedOperand, PreparedCall};
use smallvec::SmallVec;

/// A launch with its addresses; `None` if it must be a call.
pub(super) fn placed(
    call: PreparedCall,
    leaves: &[TensorAt],
    targets: &[TensorAt],
) -> Option<(PreparedCall, SmallVec<[Place; 4]>)> {
    let place = |at: &TensorAt, operand: &PlacedOperand| -> Option<Place> {
        let offset = at.meta.offset.as_i64()?.checked_mul(at.meta.dtype.size() as i64)?;
        let start = offset.checked_add(operand.start)?;
        match operand.span() {
            Some((from, to)) => {
                let (from, to) = (offset.checked_add(from)?, offset.checked_add(to)?);
                (at.bounds.0 <= from && to <= at.bounds.1).then_some(Place { base: at.base, start })
            }
            None => Some(Place { base: at.base, start: 0 }),
        }
    };
    let results = call.results().iter().map(|r| place(targets.get(r.tensor)?, r));
    let results = results.collect::<Option<SmallVec<[Place; 2]>>>()?;
    let overlap = |a: (&PlacedOperand, Place), b: (&PlacedOperand, Place)| {
        a.1.base == b.1.base && a.0.may_overlap(a.1.start, b.0, b.1.start)
    };
    let written = || call.results().iter().zip(results.iter().copied());
    for (i, result) in written().enumerate() {
        if result.0.may_self_overlap() || written().take(i).any(|other| overlap(result, other)) {
            return None;
        }
    }
    let mut places = SmallVec::new();
    let mut in_place = None;
    for (k, operand) in call.operands().iter().enumerate() {
        let at = place(leaves.get(operand.tensor)?, operand)?;
        let overlaps = written().any(|result| overlap((operand, at), result));
        if overlaps && !fault_injected(Fault::ResultsOverOperands) {
            if results[..] != [at] || in_place.is_some() {
                return None;
            }
            in_place = Some(k);
        }
        places.push(at);
    }
    places.extend(results);
    let call = match in_place {
        Some(k) => call.in_place(k)?,
        None => call,
    };
    Some((call, places))
}
