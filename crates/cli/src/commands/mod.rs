//! The subcommands `graph`, `functionalize` and `ops`.

pub mod bench;
pub mod conform;
pub mod devices;
pub mod explain;
mod functionalize_report;
pub mod highlight;
mod program;

use crate::output::{Output, tell};
use anstyle::{AnsiColor, Style};
use functionalize_report as report;
use maquette::ir::functional_ops;
use maquette::ir::graph::TextPosition;
use maquette::ir::schema::closest;
use maquette::pipeline::{Pass, PassOptions, ProgramForm, WhyUnplanned, compile_observed};
use maquette::prelude::*;
use maquette::rewrite::{self, Level, Options};
use maquette::{Decomposed, KeptComposite};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

pub const RED: Style = AnsiColor::Red.on_default().bold();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GREEN: Style = AnsiColor::Green.on_default();

/// Parses a number in [0, 1].
pub fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("expected a number from 0 to 1".into()),
    }
}

/// A graph, and the lines of its statements in the file.
struct GraphFile {
    graph: Graph,
    /// The file's name in messages.
    name: String,
    /// By statement.
    positions: Vec<TextPosition>,
}

impl GraphFile {
    /// `FILE:LINE:COLUMN` of a statement, as editors know it; `FILE`, if no statement is at fault.
    fn place(&self, statement: Option<usize>) -> String {
        let at = statement.and_then(|index| self.positions.get(index));
        at.map_or_else(|| self.name.clone(), |at| format!("{}:{at}", self.name))
    }
}

/// Reads a graph, verifies it, and checks its calls against the operators.
fn read(file: &Path) -> Result<GraphFile> {
    let (text, name) = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| Error::msg(format!("cannot read <stdin>: {e}")))?;
        (text, "<stdin>".to_owned())
    } else {
        let text = std::fs::read_to_string(file)
            .map_err(|e| Error::msg(format!("cannot read {}: {e}", file.display())))?;
        (text, file.display().to_string())
    };
    let (graph, positions) = Graph::parse_with_positions(&text).map_err(|e| {
        // `FILE:LINE:COLUMN`, which editors recognise, followed by the marked source lines.
        let text = e.to_string();
        let message = text.split_once(": ").map_or("", |(_, message)| message);
        Error::msg(format!("{name}:{}:{}: {message}", e.line, e.column))
    })?;
    let file = GraphFile { graph, name, positions };
    file.graph.verify().map_err(|e| Error::msg(format!("{}: {e}", file.place(e.statement))))?;
    maquette::check_calls(&file.graph).map_err(|e| {
        // The error's source line is one of this command, so it is left out.
        let op = e.op().map(|op| format!("{op}: ")).unwrap_or_default();
        let window = e.window().unwrap_or_default().trim_end();
        Error::msg(format!("{}: {op}{}\n{window}", file.place(e.statement()), e.kind()))
    })?;
    Ok(file)
}

/// Prints a graph as graph text, or as DOT.
pub fn graph(out: &mut Output, file: &Path, dot: bool) -> Result<()> {
    let graph = read(file)?.graph;
    match dot {
        true => write!(out, "{}", graph.to_dot(&library::Facts))?,
        false => writeln!(out, "{}", highlight::graph(&graph.to_string()))?,
    }
    Ok(())
}

/// Decomposes a graph and prints the result. The composites that stay are told apart.
pub fn decompose(out: &mut Output, file: &Path) -> Result<()> {
    let file = read(file)?;
    let Decomposed { graph, kept, .. } = maquette::decompose(&file.graph)?;
    for KeptComposite { op, reason, .. } in kept {
        tell(format_args!("{BOLD}note{BOLD:#}: `{op}` stays: {reason}"));
    }
    writeln!(out, "{}", highlight::graph(&graph.to_string()))?;
    Ok(())
}

/// Functionalizes a graph and prints the result.
pub fn functionalize(
    out: &mut Output,
    file: &Path,
    lift_only: bool,
    stop_at: Option<u64>,
    explain: bool,
) -> Result<()> {
    let mut options = Options::new().level(if lift_only { Level::LiftOnly } else { Level::Exact });
    if let Some(n) = stop_at {
        options = options.stopping_at(n);
    }
    let file = read(file)?;
    let graph = &file.graph;
    let in_file = |e: rewrite::FunctionalizeError| {
        let statement = e.statement.as_ref().map(|s| s.index);
        Error::msg(format!("{}: {e}", file.place(statement)))
    };
    let names: BTreeSet<&str> = graph.nodes().map(|n| graph.op_name(n)).collect();
    // The operators of functional graphs (`ir::…`) are not in the registry.
    for name in names
        .into_iter()
        .filter(|name| !functional_ops::is_functional_op(name) && Op::find(name).is_err())
    {
        tell(format_args!(
            "{BOLD}note{BOLD:#}: operator `{name}` is not registered; it is assumed to write to \
                all its tensors"
        ));
    }
    let mut functional = None;
    let last = if explain { Pass::SelectPlan } else { Pass::Functionalize };
    let options = PassOptions::new().decompose(false).functionalize(options).until(last);
    let compilation = compile_observed(graph, &options, &mut |_, program| {
        if let ProgramForm::Functional(f) = program {
            functional = Some(f.clone());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let f = match (functional, compilation.why_unplanned) {
        (_, Some(WhyUnplanned::Refused(e))) => return Err(in_file(e)),
        (Some(f), _) => f,
        (None, _) => bail!("{}: the program is not functional", file.name),
    };
    writeln!(out, "{}", highlight::graph(&f.graph.to_string()))?;
    if explain {
        let plan = rewrite::plan(&f, &library::Facts).map_err(Error::other)?;
        write!(out, "{}{}", report::results(&f), report::rules(&f, lift_only))?;
        write!(out, "{}", report::execution(&f, &plan, &compilation.program.mode()))?;
    }
    Ok(())
}

/// The operator that a text without a namespace names, or the one with the closest name.
fn similar_operator(text: &str) -> Option<String> {
    let names: Vec<String> = library::all().into_iter().map(|op| op.name().to_owned()).collect();
    let bare = |name: &str| name.split_once("::").map(|(_, bare)| bare.to_owned());
    let same = names.iter().find(|name| bare(name).as_deref() == Some(text));
    let starts = names.iter().find(|name| bare(name).is_some_and(|bare| bare.starts_with(text)));
    same.or(starts).cloned().or_else(|| {
        let bare: Vec<(String, &String)> =
            names.iter().filter_map(|name| Some((bare(name)?, name))).collect();
        let bare_names = bare.iter().map(|(bare, _)| bare.as_str());
        let closest = closest(text, names.iter().map(String::as_str).chain(bare_names))?;
        let full = bare.iter().find(|(bare, _)| bare == closest).map(|(_, name)| name.as_str());
        Some(full.unwrap_or(closest).to_owned())
    })
}

/// Lists operators, and registrations for operators without a definition.
pub fn ops(out: &mut Output, prefix: Option<&str>) -> Result<()> {
    let wanted = |op: &Op| prefix.is_none_or(|p| op.name().starts_with(p));
    let found: Vec<Op> = library::all().into_iter().filter(wanted).collect();
    let unresolved: Vec<Op> = library::unresolved().into_iter().filter(wanted).collect();
    if found.is_empty() && unresolved.is_empty() {
        let prefix = prefix.unwrap_or_default();
        let hint = similar_operator(prefix)
            .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        bail!("no operator has a name that starts with `{prefix}`{hint}");
    }
    for op in &found {
        writeln!(out, "{BOLD}{}{BOLD:#}", op.schema()?)?;
        writeln!(out, "  {DIM}tags: {}{DIM:#}", op.tags())?;
        for registration in op.registrations() {
            writeln!(out, "  {DIM}{registration}{DIM:#}")?;
        }
    }
    for op in &unresolved {
        writeln!(out, "{RED}{} is not defined{RED:#}", op.name())?;
        for registration in op.registrations() {
            writeln!(out, "  {DIM}{registration}{DIM:#}")?;
        }
    }
    writeln!(out, "{} operators", found.len())?;
    Ok(())
}
