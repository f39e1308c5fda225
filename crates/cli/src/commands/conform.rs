//! `maquette conform`: replays recorded PyTorch calls, gradients and training, and compares the
//! results.

use super::{BOLD, DIM, GREEN, RED};
use crate::output::Output;
use maquette::prelude::*;
use maquette_conform::{
    ConformError, KnownDifferences, OperatorReport, RecordedFile, Recording, Stage, TrainReport,
    check_file, check_training, host_fallback_counts, markdown, operator_files, parse_names,
};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is shown and kept.
#[derive(clap::Args)]
pub struct Options {
    /// Folders of recorded calls, `NAME.OVERLOAD.json` beside `NAME.OVERLOAD.safetensors`, or of
    /// recorded training.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Replay only the operators named in this file, separated by white space.
    #[arg(long, value_name = "FILE")]
    ops: Option<PathBuf>,
    /// Print each failed call with its inputs, its outputs and the recorded outputs.
    #[arg(long)]
    failures: bool,
    /// Make the calls on this device, such as `test:0`.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
    /// Write a table of all operators and their results to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Write the computed outputs to this folder, in the format of recorded calls.
    #[arg(long, value_name = "OUT")]
    write: Option<PathBuf>,
}

fn text(e: ConformError) -> Error {
    Error::msg(e.to_string())
}

fn reading<T>(path: &Path, verb: &str, done: std::io::Result<T>) -> Result<T> {
    done.map_err(|e| Error::msg(format!("cannot {verb} {}: {e}", path.display())))
}

/// Runs the calls, prints one line per operator, and returns whether all calls agree, but for known
/// differences.
pub fn run(out: &mut Output, options: &Options) -> Result<bool> {
    let only = match &options.ops {
        Some(path) => Some(parse_names(&reading(path, "read", std::fs::read_to_string(path))?)),
        None => None,
    };
    if let Some(folder) = &options.write {
        reading(folder, "create", std::fs::create_dir_all(folder))?;
    }
    let mut files = Vec::new();
    for dir in &options.dirs {
        let known = std::rc::Rc::new(KnownDifferences::read(dir).map_err(text)?);
        let found = operator_files(dir, only.as_ref()).map_err(text)?;
        files.extend(found.into_iter().map(|path| (path, known.clone())));
    }
    let recorded: std::collections::BTreeSet<String> =
        files.iter().filter_map(|(p, _)| Some(p.file_stem()?.to_str()?.to_owned())).collect();
    let mut columns: &[Stage] = &[];
    let (mut reports, mut trainings) = (Vec::new(), Vec::new());
    let mut differences = Differences::default();
    for (path, known) in files {
        let file = match RecordedFile::read_for(&path, options.device).map_err(text)? {
            RecordedFile::Calls(file) => file,
            RecordedFile::Training(recording) => {
                if trainings.is_empty() {
                    train_head(out)?;
                }
                let report = check_training(&recording);
                train_row(out, &recording, &report)?;
                trainings.push(report.failures.is_empty());
                continue;
            }
        };
        if file.stages() != columns {
            columns = file.stages();
            head(out, columns)?;
        }
        let (report, found) = check_file(&file);
        row(out, &report, columns)?;
        differences.add(&report, &known);
        if options.failures {
            for (i, failure) in report.failures() {
                writeln!(out, "  call {i}, {failure}")?;
            }
        }
        if let Some(folder) = &options.write {
            file.store(&found, folder).map_err(text)?;
        }
        reports.push(report);
    }
    let unrecorded: Vec<&str> =
        only.iter().flatten().filter(|n| !recorded.contains(*n)).map(String::as_str).collect();
    if !unrecorded.is_empty() {
        writeln!(out, "{DIM}no recorded calls of {}{DIM:#}", unrecorded.join(" "))?;
    }
    if let Some(path) = &options.table {
        reading(path, "write", std::fs::write(path, markdown(&reports)))?;
    }
    differences.print(out)?;
    if options.device != Device::Cpu {
        let counts = host_fallback_counts();
        let calls: u64 = counts.values().sum();
        writeln!(out, "{calls} calls of {} operators ran on the host", counts.len())?;
    }
    let passed: usize = reports.iter().map(OperatorReport::passed).sum();
    let agreeing = trainings.iter().filter(|agrees| **agrees).count();
    let (passed, failed) = (passed + agreeing, differences.unknown + trainings.len() - agreeing);
    let of_missing = match differences.unknown_missing {
        0 => String::new(),
        n => format!(", {n} of these of missing operators"),
    };
    writeln!(out, "{passed} passed, {failed} failed{of_missing}")?;
    Ok(failed == 0)
}

/// The calls that do not agree, and why they do not.
#[derive(Default)]
struct Differences {
    /// For each reason: the operators, with the numbers of their calls.
    known: std::collections::BTreeMap<String, Vec<(String, usize)>>,
    /// How many have no known reason.
    unknown: usize,
    /// How many of these are of operators that are not there.
    unknown_missing: usize,
}

impl Differences {
    fn add(&mut self, report: &OperatorReport, known: &KnownDifferences) {
        for (_, failure) in report.failures() {
            let Some(reason) = known.reason(report, failure) else {
                self.unknown += 1;
                self.unknown_missing += usize::from(failure.stage == Stage::Missing);
                continue;
            };
            let operators = self.known.entry(reason.to_owned()).or_default();
            match operators.last_mut().filter(|(name, _)| *name == report.name) {
                Some((_, calls)) => *calls += 1,
                None => operators.push((report.name.clone(), 1)),
            }
        }
    }

    /// A line for each reason.
    fn print(&self, out: &mut Output) -> Result<()> {
        let calls: usize = self.known.values().flatten().map(|(_, calls)| calls).sum();
        if calls > 0 {
            writeln!(out, "{BOLD}{calls} calls differ for known reasons{BOLD:#}")?;
        }
        for (reason, operators) in &self.known {
            let names: Vec<String> =
                operators.iter().map(|(name, calls)| format!("{name} ({calls})")).collect();
            writeln!(out, "  {reason}: {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// The kinds of tensors that a step of training leaves.
const KINDS: [&str; 5] = ["loss", "gradients", "parameters", "buffers", "state"];

fn train_head(out: &mut Output) -> Result<()> {
    write!(out, "{BOLD}{:16} {:>5} ", "training", "steps")?;
    KINDS.iter().try_for_each(|kind| write!(out, " {kind:>10}"))?;
    writeln!(out, "  {:>10} {:>10}{BOLD:#}", "eager", "compiled")?;
    Ok(())
}

/// The largest relative difference in each kind of tensor, and the time of a step.
fn train_row(out: &mut Output, recording: &Recording, report: &TrainReport) -> Result<()> {
    let colour = if report.failures.is_empty() { GREEN } else { RED };
    write!(out, "{:16} {colour}{:>5}{colour:#} ", recording.name, recording.steps)?;
    for kind in KINDS {
        match report.differences.get(kind) {
            Some(difference) => write!(out, " {difference:10.1e}")?,
            None => write!(out, " {:10}", "")?,
        }
    }
    let [eager, compiled] = report.times.map(|t| t.as_secs_f64() * 1e3);
    writeln!(out, "  {eager:>7.2} ms {compiled:>7.2} ms")?;
    for failure in &report.failures {
        writeln!(out, "  {failure}")?;
    }
    Ok(())
}

fn head(out: &mut Output, columns: &[Stage]) -> Result<()> {
    write!(out, "{BOLD}{:56} {:>9} ", "operator", "agree")?;
    columns.iter().try_for_each(|stage| write!(out, " {stage:>8}"))?;
    writeln!(out, "{BOLD:#}")?;
    Ok(())
}

fn row(out: &mut Output, report: &OperatorReport, columns: &[Stage]) -> Result<()> {
    let colour = if report.failed() == 0 { GREEN } else { RED };
    let agree = format!("{}/{}", report.passed(), report.calls.len());
    write!(out, "{:56} {colour}{agree:>9}{colour:#} ", report.name)?;
    for stage in columns {
        match report.failed_at(*stage) {
            0 => write!(out, "{:9}", "")?,
            n => write!(out, "{n:9}")?,
        }
    }
    writeln!(out)?;
    if let Some(other) = &report.other_schema {
        writeln!(out, "  {RED}its schema in Maquette is{RED:#} {other}")?;
    }
    Ok(())
}
