//! A second device on machines with one: `Device::test(0)` and `Device::test(1)`.
//!
//! It has the difficulties of an accelerator, and computes with the kernels of the CPU:
//!
//! - **Host code cannot read its memory.** The addresses that it hands out are no addresses of the
//!   process: an access to one ends the process. Only commands find the bytes.
//! - **Calls return before the work is done.** A thread of each device does the commands one after
//!   another, kernels among them. The error of a kernel is in the slot of its launch after a wait,
//!   and every other fault is reported by the next wait.
//! - **Every access is checked.** A command that names a byte outside of a block, or in a block
//!   that was freed before, is a fault, since no address is handed out twice.
//!
//! [`live_blocks`] counts the blocks that nobody has freed, for tests that look for leaks.
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod backend;
mod blocks;
mod queue;

use backend::TestBackend;
use blocks::Blocks;
use maquette_device::{
    Backend, Driver, Memory, Missing, OpenDevice, Queue, Target, register_driver,
};
use maquette_ir::DeviceKind;
pub use queue::Held;
use queue::TestQueue;
use std::sync::OnceLock;

/// How many devices there are.
const COUNT: u16 = 2;

static TARGET: Target = Target {
    alignment: blocks::ALIGN,
    is_host_memory: false,
    reports_late: true,
    runs_host_kernels: true,
};

/// The driver of the test devices.
struct TestDriver;

register_driver!(TestDriver);

/// One test device.
struct TestDevice {
    queue: TestQueue,
    backend: &'static TestBackend,
}

static DEVICES: [OnceLock<TestDevice>; COUNT as usize] = [OnceLock::new(), OnceLock::new()];

impl Driver for TestDriver {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Test
    }

    fn count(&self) -> Result<u16, Missing> {
        Ok(COUNT)
    }

    fn open(&self, index: u16) -> Result<&'static dyn OpenDevice, Missing> {
        let none = || Missing::Unavailable(format!("there is no test device {index}"));
        let slot = DEVICES.get(usize::from(index)).ok_or_else(none)?;
        let queue = TestQueue::start(index)
            .map_err(|e| Missing::Unavailable(format!("no thread for the test device: {e}")))?;
        let backend = Box::leak(Box::new(TestBackend(queue.0)));
        Ok(slot.get_or_init(|| TestDevice { queue, backend }))
    }
}

impl OpenDevice for TestDevice {
    fn target(&self) -> &Target {
        &TARGET
    }

    fn memory(&self) -> &'static dyn Memory {
        self.queue.memory()
    }

    fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    fn queue(&self) -> &'static dyn Queue {
        self.queue.commands()
    }
}

/// Holds back the commands that a device gets from now on, until the value is dropped: so that a
/// test sees what host code does while launches are on their way. A wait lasts until then.
pub fn hold(index: u16) -> Option<Held> {
    let device = DEVICES.get(usize::from(index)).and_then(OnceLock::get)?;
    Some(device.queue.hold())
}

/// How many blocks of a device are allocated, after all commands so far.
pub fn live_blocks(index: u16) -> usize {
    let device = DEVICES.get(usize::from(index)).and_then(OnceLock::get);
    device.map_or(0, |device| device.queue.live_blocks())
}
