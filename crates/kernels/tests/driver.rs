//! The CPU passes the suite of every driver.

// The driver registers itself where the crate is linked.
use maquette_kernels as _;

maquette_device::conformance_suite!(maquette_ir::Device::Cpu);
