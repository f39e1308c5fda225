//! Peaks that are kept between processes: a text file in the user's cache directory, one for each
//! model of a processor, instruction set and number of threads.

use super::{Bandwidth, Machine, Peaks, Rate};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The first line of a file. Another format has another number.
const HEADER: &str = "maquette peaks 1";

/// The user's cache directory: `MAQUETTE_CACHE_DIR`, or `maquette` in `XDG_CACHE_HOME` or in
/// `.cache` in the home directory. `None` if no variable says where it is.
fn cache_dir() -> Option<PathBuf> {
    let dir = |name: &str| env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    dir("MAQUETTE_CACHE_DIR")
        .or_else(|| dir("XDG_CACHE_HOME").map(|dir| dir.join("maquette")))
        .or_else(|| dir("HOME").map(|dir| dir.join(".cache").join("maquette")))
}

/// The name of the file for a processor.
fn file_name(cpu: &str, isa: &str, threads: usize) -> String {
    let mut name = String::from("peaks");
    for word in cpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        name += "-";
        name += &word.to_ascii_lowercase();
    }
    // Loops without optimization do not reach the peaks.
    let build = if cfg!(debug_assertions) { "-debug" } else { "" };
    format!("{name}-{isa}-{threads}{build}.txt")
}

impl Peaks {
    /// The peaks of this machine that were kept for its number of threads and instruction set;
    /// `None` if there are none.
    pub fn kept() -> Option<Peaks> {
        Peaks::kept_in(&cache_dir()?)
    }

    fn kept_in(dir: &Path) -> Option<Peaks> {
        let Machine { cpu, isa, threads, .. } = Machine::here();
        let text = fs::read_to_string(dir.join(file_name(&cpu, isa, threads))).ok()?;
        let of_machine = |peaks: &Peaks| peaks.cpu == cpu && peaks.threads == threads;
        Peaks::parse(&text).filter(of_machine)
    }

    /// Keeps the peaks in the user's cache directory. Returns the file.
    ///
    /// # Errors
    /// The directory is not known, or the file cannot be written.
    pub fn keep(&self) -> io::Result<PathBuf> {
        let unknown = "neither `MAQUETTE_CACHE_DIR` nor `XDG_CACHE_HOME` nor `HOME` is set";
        self.keep_in(&cache_dir().ok_or_else(|| io::Error::other(unknown))?)
    }

    fn keep_in(&self, dir: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(dir)?;
        let path = dir.join(file_name(&self.cpu, &self.isa, self.threads));
        // Readers see the old file or the new one.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, self.text())?;
        fs::rename(&new, &path)?;
        Ok(path)
    }

    fn text(&self) -> String {
        let Peaks { cpu, isa, threads, f32, f64, bandwidths } = self;
        let rate = |rate: &Rate| format!("{:e} {:e}", rate.one, rate.all);
        let mut text = format!("{HEADER}\ncpu {cpu}\nisa {isa}\nthreads {threads}\n");
        let _ = writeln!(text, "f32 {}\nf64 {}", rate(f32), rate(f64));
        for Bandwidth { bytes, read, copy } in bandwidths {
            let _ = writeln!(text, "bandwidth {bytes} {} {}", rate(read), rate(copy));
        }
        text
    }

    /// Reads the text of a file; `None` if it is none.
    fn parse(text: &str) -> Option<Peaks> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADER) {
            return None;
        }
        let mut peaks = Peaks::default();
        for line in lines {
            let (key, rest) = line.split_once(' ')?;
            let number = |n: &str| n.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
            let numbers: Option<Vec<f64>> = rest.split(' ').map(number).collect();
            match (key, numbers.as_deref()) {
                ("cpu", _) => peaks.cpu = rest.to_owned(),
                ("isa", _) => peaks.isa = rest.to_owned(),
                ("threads", _) => peaks.threads = rest.parse().ok()?,
                ("f32", Some(&[one, all])) => peaks.f32 = Rate { one, all },
                ("f64", Some(&[one, all])) => peaks.f64 = Rate { one, all },
                ("bandwidth", Some(&[bytes, read, reads, copy, copies])) => {
                    let read = Rate { one: read, all: reads };
                    let copy = Rate { one: copy, all: copies };
                    peaks.bandwidths.push(Bandwidth { bytes: bytes as u64, read, copy });
                }
                _ => return None,
            }
        }
        let is_whole = peaks.f32.one > 0.0 && peaks.f64.one > 0.0 && !peaks.bandwidths.is_empty();
        (is_whole && peaks.bandwidths.is_sorted_by_key(|b| b.bytes)).then_some(peaks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks() -> Peaks {
        let Machine { cpu, isa, threads, .. } = Machine::here();
        let rate = |one: f64| Rate { one, all: one * 1.9 };
        let bandwidth =
            |bytes, read: f64| Bandwidth { bytes, read: rate(read), copy: rate(read / 1.3) };
        Peaks {
            cpu,
            isa: isa.to_owned(),
            threads,
            f32: rate(1.23e11),
            f64: rate(0.6e11),
            bandwidths: vec![bandwidth(1 << 15, 1.1e11), bandwidth(1 << 28, 1e10 / 3.0)],
        }
    }

    #[test]
    fn kept_peaks_are_found_again() {
        let dir = env::temp_dir().join(format!("maquette-peaks-{}", std::process::id()));
        assert_eq!(Peaks::kept_in(&dir), None);
        let path = peaks().keep_in(&dir).unwrap();
        assert_eq!(Peaks::kept_in(&dir), Some(peaks()));
        let other = Peaks { cpu: "another one".to_owned(), ..peaks() };
        fs::write(&path, other.text()).unwrap();
        assert_eq!(Peaks::kept_in(&dir), None);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn other_texts_are_no_peaks() {
        let text = peaks().text();
        assert!(Peaks::parse(&text).is_some());
        let lines: Vec<&str> = text.lines().collect();
        for (from, to) in
            [(HEADER, "maquette peaks 2"), ("f32 ", "f32 nan "), ("bandwidth 3", "bandwidth -3")]
        {
            assert_eq!(Peaks::parse(&text.replacen(from, to, 1)), None, "{to}");
        }
        for end in 0..lines.len() - 2 {
            assert_eq!(Peaks::parse(&lines[..end].join("\n")), None, "{end}");
        }
    }

    #[test]
    fn files_are_named_after_the_processor() {
        let name = file_name("Some(R) CPU @ 2.4", "avx2", 8);
        assert!(name.starts_with("peaks-some-r-cpu-2-4-avx2-8"), "{name}");
    }
}
