//! What a machine says of itself.

use maquette_kernels::{Isa, num_threads};
use std::fs;
use std::path::Path;

/// The processor, as far as the operating system describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The model of the processor; its architecture, if the model is not known.
    pub cpu: String,
    /// The instruction set of the kernels: `scalar`, `avx2` or `avx512`.
    pub isa: &'static str,
    /// The number of threads of the pool.
    pub threads: usize,
    /// The number of logical processors.
    pub processors: usize,
    /// The caches for data of the first processor, the smallest first.
    pub caches: Vec<Cache>,
}

/// A cache for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its level, from 1.
    pub level: u8,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let isa = match Isa::detect() {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        };
        Machine {
            cpu: model(&info).unwrap_or(std::env::consts::ARCH).to_owned(),
            isa,
            threads: num_threads(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
        }
    }
}

/// The model's name in the text of `/proc/cpuinfo`.
fn model(info: &str) -> Option<&str> {
    let name = |line: &'_ str| line.starts_with("model name").then_some(());
    let line = info.lines().find(|line| name(line).is_some())?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

/// The caches that a folder of Linux describes.
fn caches(folder: &Path) -> Vec<Cache> {
    let mut caches = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let field = |name: &str| text(name).map(|text| text.trim().to_owned());
        let (Some(level), Some(size), Some(kind)) = (field("level"), field("size"), field("type"))
        else {
            continue;
        };
        if let (Ok(level), Some(bytes), true) =
            (level.parse(), bytes_of(&size), kind != "Instruction")
        {
            caches.push(Cache { level, bytes });
        }
    }
    caches.sort_by_key(|cache| (cache.level, cache.bytes));
    caches
}

/// A size such as `48K`, in bytes.
fn bytes_of(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(['K', 'M', 'G']);
    let unit = match size.get(digits.len()..)? {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(model("flags: x\nmodel name\t: A B\nmodel name\t: C"), Some("A B"));
        assert_eq!(model("model name\t:\n"), None);
        assert_eq!(bytes_of("48K"), Some(48 << 10));
        assert_eq!(bytes_of("2M"), Some(2 << 20));
        assert_eq!(["", "K", "48Q", "99999999999G"].map(bytes_of), [None; 4]);
        assert!(caches(Path::new("/no/such/folder")).is_empty());
        assert!(Machine::here().threads > 0);
    }
}
