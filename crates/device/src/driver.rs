//! Drivers, and the registry that finds them.
//!
//! A device is opened once, and stays open as long as the process runs. So a reference to it needs
//! no count, and blocks may be freed at any time, also while statics are dropped.

use crate::kernel::Backend;
use crate::memory::Memory;
use crate::queue::Queue;
use crate::target::Target;
use maquette_ir::{Device, DeviceKind};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The reason why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No driver of this kind is linked into the program.
    #[error("there is no driver for {0}")]
    Driver(DeviceKind),
    /// The driver has fewer devices.
    #[error("there is no device {device}: {count} found")]
    Device {
        /// The device that was asked for.
        device: Device,
        /// How many devices the driver has found.
        count: u16,
    },
    /// The driver found nothing to work with.
    #[error("{0}")]
    Unavailable(String),
}

/// The driver of all devices of one kind.
pub trait Driver: Sync {
    /// The kind.
    fn kind(&self) -> DeviceKind;

    /// How many devices there are.
    ///
    /// # Errors
    /// What the driver needs is missing. The text says what was looked for, and where.
    fn count(&self) -> Result<u16, Missing>;

    /// Opens a device. Called for an index below the count, until it succeeds.
    ///
    /// # Errors
    /// The device cannot be used.
    fn open(&self, index: u16) -> Result<&'static dyn OpenDevice, Missing>;
}

/// A device in use.
pub trait OpenDevice: Send + Sync {
    /// What the device can do.
    fn target(&self) -> &Target;
    /// The allocator.
    fn memory(&self) -> &'static dyn Memory;
    /// The compiler of kernels.
    fn backend(&self) -> &'static dyn Backend;
    /// The commands.
    fn queue(&self) -> &'static dyn Queue;
}

/// A driver in the registry. See [`register_driver!`](crate::register_driver).
pub struct DriverEntry(pub &'static dyn Driver);

inventory::collect!(DriverEntry);

/// Registers a static [`Driver`], wherever its crate is linked.
#[macro_export]
macro_rules! register_driver {
    ($driver:expr) => {
        $crate::inventory::submit! { $crate::DriverEntry(&$driver) }
    };
}

/// All drivers that are linked into the program, by kind.
pub fn drivers() -> Vec<&'static dyn Driver> {
    let mut all: Vec<_> = inventory::iter::<DriverEntry>().map(|entry| entry.0).collect();
    all.sort_by_key(|driver| driver.kind());
    all
}

/// The open devices, in the order of their opening.
static OPEN: Mutex<Vec<(Device, &'static dyn OpenDevice)>> = Mutex::new(Vec::new());

/// A device, which is opened if it was not yet.
///
/// # Errors
/// There is no such device, or it cannot be used.
pub fn open(device: Device) -> Result<&'static dyn OpenDevice, Missing> {
    static HOST: OnceLock<&'static dyn OpenDevice> = OnceLock::new();
    if device == Device::Cpu
        && let Some(host) = HOST.get()
    {
        return Ok(*host);
    }
    // A driver that panics leaves the list as it was.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = open.iter().find(|(of, _)| *of == device) {
        return Ok(*found);
    }
    let kind = device.kind();
    let driver = drivers().into_iter().find(|driver| driver.kind() == kind);
    let driver = driver.ok_or(Missing::Driver(kind))?;
    let count = driver.count()?;
    if device.index() >= count {
        return Err(Missing::Device { device, count });
    }
    let opened = driver.open(device.index())?;
    open.push((device, opened));
    if device == Device::Cpu {
        HOST.get_or_init(|| opened);
    }
    Ok(opened)
}

/// Gives the memory that open devices keep for later blocks back to the system.
pub fn release_cached_memory() {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter().for_each(|(_, device)| device.memory().release_cached());
}
