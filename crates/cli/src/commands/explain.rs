//! `maquette explain`: how a graph runs: its kernels, what is not fused and why, and its memory; or
//! the graph after a pass.

use super::program::{Program, ProgramOptions, unplanned};
use super::{BOLD, DIM, highlight};
use crate::output::{Output, tell};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use maquette::Loc;
use maquette::interp::SourceInfo;
use maquette::pipeline::{Pass, PassOptions, compile};
use maquette::prelude::*;
use maquette::runtime::{Executable, MemoryMap};
use std::io::Write;
use std::path::PathBuf;

/// What is explained.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    program: ProgramOptions,
    /// Draw the memory of the program to this file: time to the right, addresses down.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the graph after this pass instead. Sizes need no values.
    #[arg(long, value_name = "PASS", value_parser = pass(), conflicts_with = "svg")]
    after: Option<Pass>,
}

/// Parses the name of a pass.
fn pass() -> impl TypedValueParser<Value = Pass> {
    let names = PossibleValuesParser::new(Pass::ALL.iter().map(|pass| pass.name()));
    names.try_map(|name| Pass::named(&name).ok_or("there is no such pass"))
}

/// Compiles the graph of a file, runs it once, and prints how it runs.
pub fn run(out: &mut Output, options: &Options) -> Result<()> {
    if let Some(pass) = options.after {
        return after(out, &options.program, pass);
    }
    let program = Program::of(&options.program)?;
    let Program { executable, inputs, why_unplanned } = &program;
    let source_info = SourceInfo::of_caller();
    if let Some(why) = why_unplanned {
        if options.svg.is_some() {
            bail!("there is no memory to draw: {why}");
        }
        writeln!(out, "`{}` runs operator by operator: {why}", executable.graph().name())?;
        return Ok(());
    }
    let map = executable.memory_map(inputs, &source_info)?;
    let map = map.ok_or_else(|| Error::msg("the program has no memory of its own"))?;
    if let Some(path) = &options.svg {
        std::fs::write(path, map.svg())
            .map_err(|e| Error::msg(format!("cannot write {}: {e}", path.display())))?;
    }
    kernels(out, &map)?;
    not_fused(out, executable)?;
    writeln!(out, "\n{BOLD}memory{BOLD:#}\n{map}")?;
    // The first run packs the weights.
    executable.run(inputs, &source_info)?;
    if executable.packed_bytes() > 0 {
        writeln!(out, "packed weights take {} bytes more", executable.packed_bytes())?;
    }
    if executable.unfused_instances() > 0 {
        let why = "a kernel of several operators is not possible for these sizes";
        writeln!(out, "{BOLD}note{BOLD:#}: {why}, so the program runs without fusion")?;
    }
    Ok(())
}

/// Prints the graph of a file after a pass.
fn after(out: &mut Output, program: &ProgramOptions, pass: Pass) -> Result<()> {
    let (graph, _) = program.graph()?;
    let compilation = compile(&graph, &PassOptions::new().until(pass))?;
    if let Some(why) = &compilation.why_unplanned {
        tell(format_args!("{BOLD}note{BOLD:#}: the program stays as it is: {}", unplanned(why)));
    }
    writeln!(out, "{}", highlight::graph(&compilation.program.graph().to_string()))?;
    Ok(())
}

/// Lines of one file or several: `FILE:4, 5`.
fn lines_text(lines: &[Loc]) -> String {
    let mut text = String::new();
    for (i, loc) in lines.iter().enumerate() {
        match i.checked_sub(1).and_then(|before| lines.get(before)) {
            None => text = loc.to_string(),
            Some(before) if before.file == loc.file => text += &format!(", {}", loc.line),
            Some(_) => text += &format!("; {loc}"),
        }
    }
    text
}

fn kernels(out: &mut Output, map: &MemoryMap) -> Result<()> {
    let n = map.kernels.len();
    let plural = if n == 1 { "" } else { "s" };
    writeln!(out, "{BOLD}{n} kernel{plural} of `{}`{BOLD:#}", map.name)?;
    let width = map.kernels.iter().map(|k| k.label.chars().count()).max().unwrap_or_default();
    let width = width.min(60);
    for (i, kernel) in map.kernels.iter().enumerate() {
        let lines = lines_text(&kernel.lines);
        writeln!(out, "{i:>4}  {:width$}  {DIM}{lines}{DIM:#}", kernel.label)?;
    }
    Ok(())
}

/// Prints which operators are not fused, although one reads what the other computes.
fn not_fused(out: &mut Output, executable: &Executable) -> Result<()> {
    let refusals = executable.refusals();
    if refusals.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}not fused{BOLD:#}")?;
    let graph = executable.graph();
    for refusal in refusals {
        let operator = |node| {
            let name = graph.op_name(node);
            name.strip_prefix("aten::").unwrap_or(name).to_owned()
        };
        let (producer, consumer) = (operator(refusal.producer), operator(refusal.consumer));
        let lines: Vec<Loc> =
            [refusal.producer, refusal.consumer].into_iter().filter_map(|n| graph.loc(n)).collect();
        let lines = lines_text(&lines);
        let reason = refusal.reason;
        writeln!(out, "  {producer} → {consumer}: {reason}  {DIM}{lines}{DIM:#}")?;
    }
    Ok(())
}
