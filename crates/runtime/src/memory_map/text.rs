//! Maps as text.

use super::{BufferMemory, MemoryMap};
use std::fmt;

/// The values of a buffer that are named.
const NAMED: usize = 4;

impl fmt::Display for MemoryMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "arena of {} bytes; {} are in use at one time, {} without sharing",
            self.arena_bytes,
            self.live_bytes(),
            self.bytes_without_sharing()
        )?;
        if self.ends_early {
            write!(f, "; up to the first size that depends on data")?;
        }
        for buffer in &self.buffers {
            let (first, last) = buffer.lifetime;
            let memory = match buffer.memory {
                BufferMemory::Arena { offset } => format!("arena + {offset}"),
                memory => memory.name().to_owned(),
            };
            let mut values = buffer.values.iter().take(NAMED).cloned().collect::<Vec<_>>();
            if buffer.values.len() > NAMED {
                values.push(format!("{} more", buffer.values.len() - NAMED));
            }
            let kernels =
                if first == last { format!("{first}") } else { format!("{first}–{last}") };
            let (bytes, values) = (buffer.bytes, values.join(", "));
            write!(f, "\n  {memory:<18} {bytes:>12} bytes  kernels {kernels:<9} {values}")?;
        }
        Ok(())
    }
}
