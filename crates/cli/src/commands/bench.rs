//! `maquette bench`: the time of each kernel of a compiled graph.

use super::program::{Program, ProgramOptions};
use super::{BOLD, DIM};
use crate::output::{Output, tell};
use maquette::interp::SourceInfo;
use maquette::prelude::*;
use maquette::profile::{Peaks, ProfileOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// The variable that sets the size of the thread pool.
const THREADS: &str = "MAQUETTE_NUM_THREADS";

/// What is run, how often, and what is shown.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    program: ProgramOptions,
    /// The number of threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The number of runs that count.
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The number of runs before those that count.
    #[arg(long, value_name = "N", default_value_t = 3)]
    warm_up: u32,
    /// What a row of the table is.
    #[arg(long, value_name = "WHAT", default_value = "kernel")]
    #[arg(value_parser = ["kernel", "operator", "line", "scope"])]
    by: String,
    /// Write the fastest run to this file as a trace for Perfetto (https://ui.perfetto.dev).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Profiles the graph of a file, and prints a table.
pub fn run(out: &mut Output, options: &Options) -> Result<bool> {
    // The pool takes its size from the environment of the process.
    if let Some(threads) = options.threads.map(|n| n.to_string())
        && std::env::var(THREADS).ok().as_ref() != Some(&threads)
    {
        let failed = |e| Error::msg(format!("cannot run on {threads} threads: {e}"));
        let command = std::env::current_exe().map_err(failed)?;
        let args = std::env::args_os().skip(1);
        let status = Command::new(command).args(args).env(THREADS, &threads).status();
        return Ok(status.map_err(failed)?.success());
    }
    let program = Program::of(&options.program)?;
    let profile_options = ProfileOptions::new()
        .warm_up(options.warm_up as usize)
        .repeat(options.repeat as usize)
        .peaks(Peaks::kept());
    let Program { executable, inputs, why_unplanned } = &program;
    if let Some(why) = why_unplanned {
        tell(format_args!("{BOLD}note{BOLD:#}: there is no plan for the program: {why}"));
    }
    let profile = executable.profile(inputs, &profile_options, &SourceInfo::of_caller())?;
    let table = match &options.by[..] {
        "operator" => profile.by_operator().to_string(),
        "line" => profile.by_line().to_string(),
        "scope" => profile.by_scope().to_string(),
        _ => profile.to_string(),
    };
    for line in table.lines() {
        match line.trim_start() {
            header if header.starts_with("time ") => writeln!(out, "{BOLD}{line}{BOLD:#}")?,
            "peaks: not known" => {
                let measure = "`maquette devices --measure` measures them";
                writeln!(out, "{DIM}{line}; {measure}{DIM:#}")?;
            }
            last if last.ends_with("(between kernels)") => writeln!(out, "{DIM}{line}{DIM:#}")?,
            _ => writeln!(out, "{line}")?,
        }
    }
    if let Some(path) = &options.trace {
        std::fs::write(path, profile.chrome_trace())
            .map_err(|e| Error::msg(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(true)
}
