//! [`DispatchKey`]: the calls that a kernel serves.

use super::op::Op;
use crate::error::{RegisterError, Result};
use maquette_ir::{DeviceKind, Loc};
use std::fmt;
use std::str::FromStr;

/// The calls that a kernel serves: those on one kind of device, or all calls without a kernel for
/// their device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the others are the kinds of devices")]
pub enum DispatchKey {
    Cpu,
    Cuda,
    /// Fake tensors: a kernel under this key is the fake kernel.
    Meta,
    Xla,
    Mps,
    Ipu,
    Xpu,
    Test,
    /// Every device without a kernel of its own (PyTorch's `CompositeExplicitAutograd`).
    Default,
}

impl DispatchKey {
    const DEVICES: [(DispatchKey, DeviceKind); 8] = [
        (DispatchKey::Cpu, DeviceKind::Cpu),
        (DispatchKey::Cuda, DeviceKind::Cuda),
        (DispatchKey::Meta, DeviceKind::Meta),
        (DispatchKey::Xla, DeviceKind::Xla),
        (DispatchKey::Mps, DeviceKind::Mps),
        (DispatchKey::Ipu, DeviceKind::Ipu),
        (DispatchKey::Xpu, DeviceKind::Xpu),
        (DispatchKey::Test, DeviceKind::Test),
    ];

    /// The kind of device; `None` for [`DispatchKey::Default`].
    pub fn device(self) -> Option<DeviceKind> {
        DispatchKey::DEVICES.iter().find(|(k, _)| *k == self).map(|(_, d)| *d)
    }

    /// A description of the registration under this key, for messages: `cpu kernel`.
    pub(crate) fn what(self) -> String {
        match self {
            DispatchKey::Meta => "fake kernel".to_owned(),
            key => format!("{key} kernel"),
        }
    }
}

impl fmt::Display for DispatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.device().map_or("default", DeviceKind::name))
    }
}

impl From<DeviceKind> for DispatchKey {
    fn from(kind: DeviceKind) -> DispatchKey {
        DispatchKey::DEVICES
            .iter()
            .find(|(_, d)| *d == kind)
            .map_or(DispatchKey::Default, |(k, _)| *k)
    }
}

impl FromStr for DispatchKey {
    type Err = crate::Error;

    /// Parses a device name in any case, `default`, or one of PyTorch's names of the default key.
    fn from_str(text: &str) -> Result<DispatchKey> {
        let lower = text.to_ascii_lowercase();
        if ["default", "compositeexplicitautograd", "compositeimplicitautograd"]
            .contains(&lower.as_str())
        {
            return Ok(DispatchKey::Default);
        }
        let found = DeviceKind::from_str(&lower).map(DispatchKey::from);
        found.map_err(|_| RegisterError::Key { found: text.to_owned() }.into())
    }
}

/// Conversion to a [`DispatchKey`], from a key, a [`DeviceKind`], or a text such as `"cpu"` or
/// `"default"`.
pub trait IntoKey {
    /// The key.
    ///
    /// # Errors
    /// The text is not the name of a key.
    fn into_key(self) -> Result<DispatchKey>;
}

impl IntoKey for DispatchKey {
    fn into_key(self) -> Result<DispatchKey> {
        Ok(self)
    }
}

impl IntoKey for DeviceKind {
    fn into_key(self) -> Result<DispatchKey> {
        Ok(self.into())
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<DispatchKey> {
        self.parse()
    }
}

/// The key of a registration for `op`. An error names the operator.
pub(super) fn key_for(op: Op, key: impl IntoKey, loc: Loc) -> Result<DispatchKey> {
    key.into_key().map_err(|e| e.in_call(op.shared_name(), loc))
}
