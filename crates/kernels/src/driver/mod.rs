//! The CPU as a driver: host memory, and commands that are done when their call returns.

mod backend;
mod launches;
mod memory;
mod queue;

use backend::HostBackend;
use maquette_device::{
    Backend, Driver, Memory, Missing, OpenDevice, Queue, Target, register_driver,
};
use maquette_ir::DeviceKind;
use memory::{ALIGN, HostMemory};
use queue::HostQueue;

/// The driver of the one CPU.
struct CpuDriver;

/// The CPU.
struct Cpu;

static TARGET: Target =
    Target { alignment: ALIGN, is_host_memory: true, reports_late: false, runs_host_kernels: true };

register_driver!(CpuDriver);

impl Driver for CpuDriver {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn count(&self) -> Result<u16, Missing> {
        Ok(1)
    }

    fn open(&self, _index: u16) -> Result<&'static dyn OpenDevice, Missing> {
        Ok(&Cpu)
    }
}

impl OpenDevice for Cpu {
    fn target(&self) -> &Target {
        &TARGET
    }

    fn memory(&self) -> &'static dyn Memory {
        &HostMemory
    }

    fn backend(&self) -> &'static dyn Backend {
        &HostBackend
    }

    fn queue(&self) -> &'static dyn Queue {
        &HostQueue
    }
}

/// The memory of the host, for drivers whose device keeps its bytes there.
pub fn host_memory() -> &'static dyn Memory {
    &HostMemory
}

/// The kernels of the host, for drivers whose device computes there.
pub fn host_backend() -> &'static dyn Backend {
    &HostBackend
}

/// The commands of the host, for drivers whose device computes there.
pub fn host_queue() -> &'static dyn Queue {
    &HostQueue
}
