//! The `maquette` command.

mod commands;
mod demo;

use clap::{Parser, Subcommand};
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
        /// Rows are kept where the network is at least this sure.
        #[arg(long, default_value_t = 0.9, value_parser = commands::probability)]
        confidence: f64,
        /// Print the traced graph and stop.
        #[arg(long)]
        graph_only: bool,
    },
    /// Parse a graph from its text form, verify it, and print it again.
    Graph {
        /// The file; `-` reads standard input.
        file: PathBuf,
        /// Print Graphviz's DOT instead.
        #[arg(long)]
        dot: bool,
    },
    /// Make a graph that mutates functional, and print it.
    Functionalize {
        /// The file with the graph's text; `-` reads standard input.
        file: PathBuf,
        /// How much is rewritten: `lift-only` applies no rule.
        #[arg(long, value_name = "LEVEL", default_value = "exact", value_parser = ["lift-only", "exact"])]
        level: String,
        /// Stop after rules have added so many equalities.
        #[arg(long, value_name = "N")]
        stop_at: Option<u64>,
        /// Say what inputs are left with, what the outputs are, which rules did something, and how
        /// it runs in memory: each copy, and why.
        #[arg(long)]
        explain: bool,
    },
    /// List operators: schema, tags, registrations, and where they were made.
    Ops {
        /// Only those whose name begins so: `mylib`, `aten::add`.
        prefix: Option<String>,
    },
    /// Make calls that PyTorch recorded, and compare: eagerly, traced, and traced with symbolic
    /// sizes.
    Conform(commands::conform::Options),
}

fn main() -> ExitCode {
    let command =
        Cli::parse().command.unwrap_or(Command::Demo { confidence: 0.9, graph_only: false });
    let done = match command {
        Command::Demo { confidence, graph_only } => demo::run(confidence, graph_only),
        Command::Graph { file, dot } => commands::graph(&file, dot),
        Command::Functionalize { file, level, stop_at, explain } => {
            commands::functionalize(&file, level == "lift-only", stop_at, explain)
        }
        Command::Ops { prefix } => commands::ops(prefix.as_deref()),
        Command::Conform(options) => match commands::conform::run(&options) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(e) => Err(e),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let red = commands::RED;
            // a failed operator's line is worth showing, a line of this command is not
            match e.op() {
                Some(_) => anstream::eprintln!("{red}error{red:#}: {e}"),
                None => anstream::eprintln!("{red}error{red:#}: {}", e.kind()),
            }
            ExitCode::FAILURE
        }
    }
}
