//! `maquette devices`: describes the machine, and measures its peaks.

use super::{BOLD, DIM};
use crate::output::{Output, tell};
use maquette::prelude::*;
use maquette::profile::{Machine, Peaks, Rate};
use std::io::Write;

/// Bytes in the largest unit that divides them.
fn bytes(n: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(unit, _)| n >= *unit && n.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{n} B"), |(unit, name)| format!("{} {name}", n / unit))
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Describes the machine. `measure` measures its peaks first, and keeps them.
pub fn run(out: &mut Output, measure: bool) -> Result<()> {
    let machine = Machine::here();
    writeln!(out, "{BOLD}cpu{BOLD:#}: {}", machine.cpu)?;
    writeln!(
        out,
        "  {}; kernels use {} and {}",
        counted(machine.processors, "processor"),
        counted(machine.threads, "thread"),
        machine.isa
    )?;
    let caches = machine.caches.iter().map(|c| format!("L{} {}", c.level, bytes(c.bytes)));
    let caches: Vec<String> = caches.collect();
    if !caches.is_empty() {
        writeln!(out, "  caches for data: {}", caches.join(", "))?;
    }
    if measure {
        let peaks = Peaks::measure();
        match peaks.keep() {
            Ok(path) => tell(format_args!("the peaks are kept in {}", path.display())),
            Err(e) => {
                tell(format_args!("{BOLD}note{BOLD:#}: the peaks cannot be kept: {e}"));
            }
        }
        return table(out, &peaks);
    }
    match Peaks::kept() {
        Some(peaks) => table(out, &peaks),
        None => Ok(writeln!(
            out,
            "  {DIM}peaks: not known; `maquette devices --measure` measures them{DIM:#}"
        )?),
    }
}

/// Prints the peaks, a line for each.
fn table(out: &mut Output, peaks: &Peaks) -> Result<()> {
    let Peaks { threads, f32, f64, bandwidths, .. } = peaks;
    let all = counted(*threads, "thread");
    writeln!(out, "\n  {BOLD}{:24} {:>10} {:>12}{BOLD:#}", "peak", "1 thread", all)?;
    let mut row = |name: &str, rate: &Rate, unit: &str| {
        let [one, all] = [rate.one, rate.all].map(|rate| rate / 1e9);
        writeln!(out, "  {name:24} {one:>10.1} {all:>12.1}  {unit}")
    };
    row("multiply-adds in f32", f32, "GFLOP/s")?;
    row("multiply-adds in f64", f64, "GFLOP/s")?;
    for b in bandwidths {
        row(&format!("reads of {}", bytes(b.bytes)), &b.read, "GB/s")?;
    }
    for b in bandwidths {
        row(&format!("copies in {}", bytes(b.bytes)), &b.copy, "GB/s")?;
    }
    Ok(())
}
