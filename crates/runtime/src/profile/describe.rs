//! Which operators and lines a step of an instance computes.

use super::{KernelKind, KernelProfile, ProfiledOperator, Timing};
use crate::instance::{Call, ExpectedResult, Segment, Step, TensorAt};
use crate::planned::Planned;
use maquette_ir::buffer_plan::Step as PlanStep;
use maquette_ir::functional_ops::{Callee, FunctionalOp, VIEW};
use maquette_ir::graph::{Graph, NodeId, NodeInfo, ValueId};
use maquette_ops::Work;
use maquette_ops::internals::MetaInternals;
use smallvec::SmallVec;

/// A kernel without its times.
pub(super) struct Description(KernelProfile);

impl Description {
    /// The kernel with its times.
    pub fn with(self, timing: Timing) -> KernelProfile {
        KernelProfile { timing, ..self.0 }
    }
}

/// The kernel that a step runs, without times; `None` if it runs none.
pub(crate) fn described_kernel(
    planned: &Planned,
    segment: &Segment,
    step: usize,
) -> Option<KernelProfile> {
    described(planned, segment, step).map(|Description(kernel)| kernel)
}

/// The kernel that a step runs. `None` if it runs none: the step frees or adopts memory.
pub(super) fn described(planned: &Planned, segment: &Segment, step: usize) -> Option<Description> {
    let (work, sizes) = match segment.steps.get(step)? {
        Step::Launch(launch) => {
            let sizes = launch.call.results().first().map(|result| result.sizes().into());
            (Some(launch.call.work()), sizes.unwrap_or_default())
        }
        Step::Region(region) => (None, region.targets.first().map(sizes_of).unwrap_or_default()),
        Step::Call(call) => (None, returned_sizes(call)),
        Step::Copy { tensors, .. } => {
            let [from, to] = &**tensors;
            let (bytes_read, bytes_written) = (bytes_of(from), bytes_of(to));
            (Some(Work { bytes_read, bytes_written, ..Work::default() }), sizes_of(to))
        }
        Step::Adopt { .. } | Step::Release(_) | Step::Fail(_) => return None,
    };
    let of_step = match segment.steps.get(step)? {
        Step::Call(call) if call.op.falls_back_to_host(planned.device) => KernelKind::OnHost,
        Step::Call(_) => KernelKind::Call,
        _ => KernelKind::Operator,
    };
    let graph = &planned.program.graph;
    let name = |v: ValueId| graph.value_name(v).to_string().trim_start_matches('%').to_owned();
    let (kind, operators, value) = match planned.plan.steps.get(*segment.plan_steps.get(step)?)? {
        PlanStep::Node { node, .. } => {
            let value = graph.result_values(*node).next().map(name).unwrap_or_default();
            match (FunctionalOp::of(graph, *node), &planned.fused) {
                (Ok(FunctionalOp::Fused { kind, region, .. }), Some(fused)) => {
                    let region = fused.regions.get(region)?;
                    let operators = operators(&fused.original.graph, &region.nodes);
                    (KernelKind::Fused(kind), operators, value)
                }
                _ => (of_step, operators(graph, &[*node]), value),
            }
        }
        PlanStep::Copy { value, .. } => {
            // The line is that of the value, which nobody asked to copy.
            let copy = ProfiledOperator::new("copy", graph.producer_info(*value));
            (KernelKind::Copy, vec![copy], name(*value))
        }
        PlanStep::Stmt(_) | PlanStep::Alias { .. } => return None,
    };
    let timing = Timing::default();
    Some(Description(KernelProfile { kind, operators, value, sizes, timing, work }))
}

impl ProfiledOperator {
    fn new(name: &str, info: NodeInfo<'_>) -> ProfiledOperator {
        ProfiledOperator { name: name.to_owned(), loc: info.loc, scope: info.scope.map(Into::into) }
    }
}

fn operators(graph: &Graph, nodes: &[NodeId]) -> Vec<ProfiledOperator> {
    let operator = |node: &NodeId| {
        let name = Callee::of(graph, *node).op;
        (name != VIEW).then(|| ProfiledOperator::new(name, graph.info(*node)))
    };
    nodes.iter().filter_map(operator).collect()
}

/// The sizes of the first result of a call, if they are known.
fn returned_sizes(call: &Call) -> SmallVec<[i64; 6]> {
    let returns = call.kernel.as_ref().and_then(|kernel| kernel.returns.as_ref());
    let first = returns.and_then(|returns| returns.first());
    match (&call.into, first) {
        (Some(into), _) => sizes_of(into),
        (None, Some(ExpectedResult::Tensor { sizes, .. })) => sizes.iter().copied().collect(),
        (None, Some(ExpectedResult::Argument) | None) => SmallVec::new(),
    }
}

fn sizes_of(at: &TensorAt) -> SmallVec<[i64; 6]> {
    at.meta.concrete().map(|at| at.sizes.iter().copied().collect()).unwrap_or_default()
}

fn bytes_of(at: &TensorAt) -> u64 {
    let elements = sizes_of(at).iter().fold(1u64, |n, size| n.saturating_mul(*size as u64));
    elements.saturating_mul(at.meta.dtype.size() as u64)
}
