//! What passes ask about the target of a compilation. **A target enters the pipeline here**, and
//! nowhere else: the passes in this crate ask these functions, and the passes in `maquette-rewrite`
//! get the facts as traits.
//!
//! The target of a program is the device of its tensors. `maquette-lower` knows what one kernel of
//! the device computes, and `maquette-runtime` what an executable runs in planned memory. That is
//! all for which this crate depends on the runtime.

use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{Graph, OpFacts};
use maquette_lower::KernelFacts;
use maquette_ops::library::Facts;
use maquette_runtime::Executable;

/// Facts of operators.
pub(crate) const OPERATORS: &dyn OpFacts = &Facts;

/// The device that runs a program in the memory of a plan. `None` if the program runs operator by
/// operator: no kernels are fused for it.
pub(crate) fn device_of(program: &FunctionalGraph, plan: &BufferPlan) -> Option<Device> {
    Executable::device_of(program, plan)
}

/// Which operators of a graph one kernel of the target can compute.
pub(crate) fn kernels(graph: &Graph, device: Device) -> KernelFacts {
    KernelFacts::of(graph, device)
}
