//! Devices.

use std::fmt;
use std::str::FromStr;

/// The kind of a device. Kinds without a backend exist as names, so that operators can be
/// registered for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceKind {
    /// The host.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// PyTorch's `meta` device: metadata without storage.
    Meta,
    /// Exists only as a name.
    Xla,
    /// Exists only as a name.
    Mps,
    /// Exists only as a name.
    Ipu,
    /// Exists only as a name.
    Xpu,
    /// A second device for tests on machines with one: memory that host code cannot read, and
    /// commands that are done after their calls return.
    Test,
}

impl DeviceKind {
    /// Every kind, in declaration order.
    pub const ALL: [DeviceKind; 8] = [
        DeviceKind::Cpu,
        DeviceKind::Cuda,
        DeviceKind::Meta,
        DeviceKind::Xla,
        DeviceKind::Mps,
        DeviceKind::Ipu,
        DeviceKind::Xpu,
        DeviceKind::Test,
    ];

    /// The name before the colon of `cuda:0`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Meta => "meta",
            DeviceKind::Xla => "xla",
            DeviceKind::Mps => "mps",
            DeviceKind::Ipu => "ipu",
            DeviceKind::Xpu => "xpu",
            DeviceKind::Test => "test",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A device: a kind, and an index among the devices of this kind. The index of `cpu` and `meta` is
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    kind: DeviceKind,
    index: u16,
}

#[allow(non_upper_case_globals)] // written like the enum variants they stand for
impl Device {
    /// The host.
    pub const Cpu: Device = Device { kind: DeviceKind::Cpu, index: 0 };
    /// PyTorch's `meta` device: metadata without storage.
    pub const Meta: Device = Device { kind: DeviceKind::Meta, index: 0 };

    /// The `index`-th NVIDIA GPU.
    pub const fn cuda(index: u16) -> Device {
        Device { kind: DeviceKind::Cuda, index }
    }

    /// The `index`-th test device.
    pub const fn test(index: u16) -> Device {
        Device { kind: DeviceKind::Test, index }
    }

    /// The `index`-th device of a kind; the index of `cpu` and `meta` is always 0.
    pub const fn new(kind: DeviceKind, index: u16) -> Device {
        match kind {
            DeviceKind::Cpu | DeviceKind::Meta => Device { kind, index: 0 },
            _ => Device { kind, index },
        }
    }

    /// The kind.
    pub const fn kind(self) -> DeviceKind {
        self.kind
    }

    /// The index among devices of its kind.
    pub const fn index(self) -> u16 {
        self.index
    }

    /// The device as Rust source, for the text of an error.
    pub fn source_text(self) -> String {
        match self.kind {
            DeviceKind::Cpu => "Device::Cpu".to_owned(),
            DeviceKind::Meta => "Device::Meta".to_owned(),
            DeviceKind::Cuda => format!("Device::cuda({})", self.index),
            kind => format!("Device::new(DeviceKind::{kind:?}, {})", self.index),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Cpu | DeviceKind::Meta => f.pad(self.kind.name()),
            _ => write!(f, "{}:{}", self.kind, self.index),
        }
    }
}

/// The error of a text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown device `{0}`; expected one of cpu, cuda, meta, xla, mps, ipu, xpu, test, with an \
        optional index as in `cuda:0`"
)]
pub struct ParseDeviceError(pub String);

impl FromStr for DeviceKind {
    type Err = ParseDeviceError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        DeviceKind::ALL
            .into_iter()
            .find(|k| k.name() == s)
            .ok_or_else(|| ParseDeviceError(s.to_owned()))
    }
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    /// Accepts `cpu`, `cuda`, `cuda:1`.
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ParseDeviceError(s.to_owned());
        let (kind, index) = match s.split_once(':') {
            Some((kind, index)) => (kind, index.parse::<u16>().map_err(|_| bad())?),
            None => (s, 0),
        };
        Ok(Device::new(kind.parse().map_err(|_| bad())?, index))
    }
}
