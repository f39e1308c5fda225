//! Stages that are computed in the memory of a later result.
//!
//! The values of a map that a later map reads last, element by element, can be where that map's
//! result is: a softmax then has its exponentials in its result and multiplies them there. Less
//! memory passes through the caches, and the first write of the result overlaps with computation.
//! The scores of a softmax could be there as well. By measurement that is slower, since a cheap map
//! waits for the first write.
//!
//! Invariant: the later map reads each element before it writes it, and no stage reads the values
//! after it. Behind a product, no other stage reads them at all. Both have the same extents. The
//! later map reads the values at its own axes in order, so that an outer axis is at the same place
//! in both: no other panel reads the values either.

use super::launch::Launch;
use crate::pointwise::in_place_op;
use crate::view::contiguous;
use maquette_device::Layout;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::loops::{IndexMap, Source, Stage, StageId, StageKind, StageOutput};

/// The result in which an output of a map can be computed, which is not a result itself.
pub(super) fn later_result<'l>(
    launch: &'l Launch<'_>,
    stage: &Stage,
    output: StageOutput,
) -> Option<(usize, &'l Layout)> {
    let (nest, from) = (launch.nest, Source::Stage(output));
    let is_read = |s: &Stage| {
        let is_into = matches!(s.kind, StageKind::Scatter { into, .. } if into == from);
        is_into || s.loads.iter().any(|load| load.from == from)
    };
    let last = nest.stages().iter().rposition(is_read)?;
    // Maps after a product run on one rectangle after another, so that memory of a rectangle is
    // written while other stages still read the values.
    let between = nest.stages().get(output.stage.index() + 1..last)?;
    let has_product = between.iter().any(|s| matches!(s.kind, StageKind::Contract { .. }));
    let is_read_between = between.iter().any(is_read);
    if has_product && is_read_between && !fault_injected(Fault::EarlierValuesInOperands) {
        return None;
    }
    let reader = &nest.stages()[last];
    let are_maps = [stage, reader].iter().all(|s| matches!(s.kind, StageKind::Map));
    let [extents, of_reader] = [stage, reader].map(|s| launch.extents_of(&s.axes()));
    if !are_maps || extents != of_reader || launch.results_of(output).next().is_some() {
        return None;
    }
    let reads = reader.loads.iter().filter(|load| load.from == from).count();
    let k = reader.loads.iter().position(|load| load.from == from)?;
    let is_own = reader.loads[k].at == IndexMap::from(&reader.axes()[..]);
    in_place_op(&reader.expr, k)?;
    let (i, layout) = launch.results_of(StageId(last as u32).into()).next()?;
    let fits = nest.dtype(output) == Some(layout.dtype);
    (reads == 1 && is_own && fits && layout.strides == contiguous(&layout.sizes))
        .then_some((i, layout))
}
