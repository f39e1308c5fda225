//! The addresses of launches, and their weights.

use super::Builder;
use crate::instance::{External, Launch, Place, Step, TensorAt};
use crate::packed_weights::{PackedWeight, WeightKey};
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::ExternalTensor;
use maquette_ops::internals::MetaInternals;
use maquette_ops::{PlacedOperand, PreparedCall};
use smallvec::SmallVec;
use std::sync::Arc;

/// A launch with its addresses; `None` if it must be a call.
pub(super) fn placed(
    call: PreparedCall,
    leaves: &[TensorAt],
    targets: &[TensorAt],
) -> Option<(PreparedCall, SmallVec<[Place; 4]>)> {
    let place = |at: &TensorAt, operand: &PlacedOperand| -> Option<Place> {
        let offset = at.meta.offset().as_i64()?.checked_mul(at.meta.dtype.size() as i64)?;
        if operand.is_empty() {
            return Some(Place { base: at.base, start: 0 });
        }
        let (from, to) = operand.span()?;
        let (from, to) = (offset.checked_add(from)?, offset.checked_add(to)?);
        let start = offset.checked_add(operand.start)?;
        (at.bounds.0 <= from && to <= at.bounds.1).then_some(Place { base: at.base, start })
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
    let mut in_place: SmallVec<[(usize, usize); 2]> = SmallVec::new();
    for (k, operand) in call.operands().iter().enumerate() {
        let at = place(leaves.get(operand.tensor)?, operand)?;
        let overlapped = |(_, result): &(usize, _)| overlap((operand, at), *result);
        for (j, result) in written().enumerate().filter(overlapped) {
            if fault_injected(Fault::ResultsOverOperands) {
                continue;
            }
            if result.1 != at || in_place.iter().any(|(_, of)| *of == j) {
                return None;
            }
            in_place.push((k, j));
        }
        places.push(at);
    }
    places.extend(results);
    let call = if in_place.is_empty() { call } else { call.in_place(&in_place)? };
    Some((call, places))
}

impl Builder<'_> {
    /// Finds the weights of launches: what no run of the program writes, and every run reads again.
    pub(super) fn find_weights(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        for step in &mut steps {
            let Step::Launch(launch) = step else { continue };
            let packs = 0..launch.call.packs().len();
            let weights = packs.map(|index| self.weight(launch, index));
            let weights: SmallVec<[Option<Arc<PackedWeight>>; 1]> = weights.collect();
            if weights.iter().any(Option::is_some) {
                launch.weights = weights.into_iter().collect();
            }
        }
        self.steps = steps;
    }

    /// The weights that are operands `packs()[index]` of a launch.
    fn weight(&self, launch: &Launch, index: usize) -> Option<Arc<PackedWeight>> {
        let operands = launch.call.packs().get(index)?.iter();
        let operands = operands.map(|operand| self.fixed(launch.places.get(*operand)?));
        let operands = operands.collect::<Option<SmallVec<[(External, i64); 1]>>>()?;
        let read = launch.call.pack_key(index)?;
        Some(self.planned.packed.of(WeightKey { operands, read }))
    }

    /// The tensor at a place, and the byte where it begins, if all runs read the same.
    fn fixed(&self, place: &Place) -> Option<(External, i64)> {
        let tensor = self.external(BufferId(place.base))?;
        let (is_fixed, which) = match tensor {
            External::Const(i) => (true, ExternalTensor::Const(i)),
            External::Input(i) => (i < self.planned.fixed_inputs, self.planned.input(i)),
        };
        (is_fixed && !self.planned.writes(which)).then_some((tensor, place.start))
    }
}
