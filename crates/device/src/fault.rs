//! What goes wrong on a device.

use crate::address::Address;
use crate::kernel_error::KernelError;
use maquette_ir::Loc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What a launch belongs to, for a fault that is seen later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The operator: of several, the one that its operands can make fail, or the last if none can.
    pub op: Arc<str>,
    /// Its line.
    pub loc: Option<Loc>,
}

/// Where the errors of launches go that a device does later.
///
/// Launches that depend on each other share a slot. As soon as one fails, those after it do
/// nothing, so that memory stays as it was at the failure. The slot keeps the first fault.
///
/// The driver counts launches: it calls [`FailureSlot::begin`] before [`Launch::enqueue`] returns,
/// and [`FailureSlot::end`] once for each, when the launch is done or left out.
///
/// [`Launch::enqueue`]: crate::Launch::enqueue
#[derive(Debug, Default)]
pub struct FailureSlot {
    fault: OnceLock<Fault>,
    /// How many launches the device has received, and how many of them are done.
    received: AtomicUsize,
    done: AtomicUsize,
}

impl FailureSlot {
    /// The fault of the first launch that failed.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }

    /// Whether all launches so far are done, so that [`FailureSlot::fault`] is what it will be.
    pub fn is_settled(&self) -> bool {
        // In this order: what is done was received before.
        let done = self.done.load(Ordering::Acquire);
        done == self.received()
    }

    /// How many launches the device has received.
    pub fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    /// Counts a launch, which the device has received.
    pub fn begin(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// A launch is done, or was left out after a failure. The first fault stays.
    pub fn end(&self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            let _ = self.fault.set(fault);
        }
        self.done.fetch_add(1, Ordering::Release);
    }
}

/// Where a launch that is done later puts its error.
#[derive(Clone, Copy, Debug)]
pub struct Failing<'a> {
    /// The slot.
    pub slot: &'a Arc<FailureSlot>,
    /// What the launch belongs to.
    pub origin: Option<&'a Arc<Origin>>,
}

/// What went wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A kernel stopped: an index is out of range, an integer is divided by zero, an assertion does
    /// not hold, or there is no scratch memory. Its results are partly written.
    #[error("{error}")]
    Kernel {
        /// The error.
        error: KernelError,
        /// What the launch belongs to, if it was given.
        origin: Option<Arc<Origin>>,
    },
    /// A command named memory that is not allocated: a defect of the library.
    #[error("a {command} on the device accessed {bytes} bytes at {at:?}, which are not allocated")]
    StaleAddress {
        /// The command.
        command: &'static str,
        /// The first byte.
        at: Address,
        /// How many bytes.
        bytes: usize,
    },
    /// A command has operands that the device does not take: a defect of the library.
    #[error("the device has no {command} of {operands}")]
    Unsupported {
        /// The command.
        command: &'static str,
        /// Its operands.
        operands: String,
    },
    /// The device cannot be used any more.
    #[error("the device is lost: {0}")]
    Lost(String),
}

impl From<KernelError> for Fault {
    fn from(error: KernelError) -> Fault {
        Fault::Kernel { error, origin: None }
    }
}
