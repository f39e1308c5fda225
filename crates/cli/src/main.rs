//! The `maquette` command.

#![forbid(unsafe_code)]

mod commands;
mod demo;
mod output;

// `--device test:0`: the driver registers itself where its crate is linked.
use maquette_test_device as _;

use clap::{CommandFactory, Parser, Subcommand};
use maquette::{Device, Error, Result};
use output::{Output, tell};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trace Rust model code with opaque custom operators into graphs, and run them.
#[derive(Parser)]
#[command(version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Trace a network with custom operators and run it on real data (the default).
    Demo {
        /// Keep the rows for which the network is at least this confident.
        #[arg(long, default_value_t = 0.9, value_parser = commands::probability)]
        confidence: f64,
        /// Print the traced graph and stop.
        #[arg(long)]
        graph_only: bool,
        /// Run on this device, such as `test:0`.
        #[arg(long, value_name = "DEVICE", default_value = "cpu")]
        device: Device,
    },
    /// Parse a graph from its text form, verify it, and print it again.
    Graph {
        /// The file; `-` reads standard input.
        file: PathBuf,
        /// Print the graph in Graphviz's DOT language instead.
        #[arg(long)]
        dot: bool,
    },
    /// Replace the composites of a graph by the operators that they call, and print the result.
    Decompose {
        /// The file with the graph's text; `-` reads standard input.
        file: PathBuf,
    },
    /// Functionalize a graph that mutates tensors, and print the result.
    Functionalize {
        /// The file with the graph's text; `-` reads standard input.
        file: PathBuf,
        /// The level of rewriting: `lift-only` applies no rule.
        #[arg(long, value_name = "LEVEL", default_value = "exact")]
        #[arg(value_parser = ["lift-only", "exact"])]
        level: String,
        /// Stop after rules have added N equalities.
        #[arg(long, value_name = "N")]
        stop_at: Option<u64>,
        /// Print the mutated inputs, the outputs, the rules that applied, and the buffer plan with
        /// the reason for each copy.
        #[arg(long)]
        explain: bool,
    },
    /// Compile a graph, run it on random inputs, and print the time of each kernel beside its work.
    Bench(commands::bench::Options),
    /// Compile a graph, and print its kernels, which operators are not fused and why, and its
    /// memory; or the graph after a pass.
    Explain(commands::explain::Options),
    /// Describe this machine: its processor, and the peaks that were measured.
    Devices {
        /// Measure the peaks of arithmetic and memory, and keep them in the user's cache directory.
        /// It takes a few seconds and wants the machine for itself.
        #[arg(long)]
        measure: bool,
    },
    /// List operators with their schemas, tags and registrations.
    Ops {
        /// List only operators whose name has this prefix, such as `mylib` or `aten::add`.
        prefix: Option<String>,
    },
    /// Replay calls recorded from PyTorch and compare the outputs: eager, traced, and traced with
    /// symbolic sizes.
    Conform(commands::conform::Options),
    /// Print a completion script for a shell: `maquette completions bash > FILE`, then `source
    /// FILE`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Runs a subcommand. Returns `false` if it ran, but has failed: recorded calls disagree.
fn run(cli: Cli, out: &mut Output) -> Result<bool> {
    match cli.command.unwrap_or(Command::Demo {
        confidence: 0.9,
        graph_only: false,
        device: Device::Cpu,
    }) {
        Command::Demo { confidence, graph_only, device } => {
            demo::run(out, confidence, graph_only, device)?
        }
        Command::Graph { file, dot } => commands::graph(out, &file, dot)?,
        Command::Decompose { file } => commands::decompose(out, &file)?,
        Command::Functionalize { file, level, stop_at, explain } => {
            commands::functionalize(out, &file, level == "lift-only", stop_at, explain)?
        }
        Command::Bench(options) => return commands::bench::run(out, &options),
        Command::Explain(options) => commands::explain::run(out, &options)?,
        Command::Devices { measure } => commands::devices::run(out, measure)?,
        Command::Ops { prefix } => commands::ops(out, prefix.as_deref())?,
        Command::Conform(options) => return commands::conform::run(out, &options),
        Command::Completions { shell } => {
            // The generator panics if it cannot write, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "maquette", &mut script);
            out.write_all(&script)?;
        }
    }
    Ok(true)
}

fn main() -> ExitCode {
    let mut out = Output::new();
    let done = match Cli::try_parse() {
        Ok(cli) => run(cli, &mut out),
        Err(e) if e.use_stderr() => e.exit(),
        // `--help` and `--version`. `exit` would ignore an error of writing them.
        Err(e) => write!(out, "{}", e.render().ansi()).map(|()| true).map_err(Error::from),
    };
    let done = done.and_then(|agree| {
        // Dropping the buffer would ignore an error.
        out.flush()?;
        Ok(agree)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader has closed the pipe.
        Err(e) if output::is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            let red = commands::RED;
            // The source line of a failed operator helps; a line of this command does not.
            match e.op() {
                Some(_) => tell(format_args!("{red}error{red:#}: {e}")),
                None => tell(format_args!("{red}error{red:#}: {}", e.kind())),
            }
            ExitCode::FAILURE
        }
    }
}
