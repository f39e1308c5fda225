//! The small subcommands.

pub mod conform;

use anstyle::{AnsiColor, Style};
use maquette::prelude::*;
use maquette::rewrite::{self, ExecutionMode, Level, Options};
use std::collections::BTreeSet;
use std::io::{Read, Write};
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

/// Reads a graph, verifies it, and holds it against the operators.
fn read(file: &Path) -> Result<Graph> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        std::fs::read_to_string(file)
            .map_err(|e| Error::msg(format!("cannot read {}: {e}", file.display())))?
    };
    let graph: Graph = text.parse()?;
    graph.verify()?;
    maquette::check_calls(&graph).map_err(|e| {
        // no line of this command is to blame
        let op = e.op().map(|op| format!("{op}: ")).unwrap_or_default();
        Error::msg(format!("{op}{}\n{}", e.kind(), e.window().unwrap_or_default().trim_end()))
    })?;
    Ok(graph)
}

/// Prints a graph again, or as DOT.
pub fn graph(file: &Path, dot: bool) -> Result<()> {
    let graph = read(file)?;
    print(&if dot { graph.to_dot(&library::Facts) } else { graph.to_string() })
}

/// Prints a program as a graph of values.
pub fn functionalize(
    file: &Path,
    lift_only: bool,
    stop_at: Option<u64>,
    explain: bool,
) -> Result<()> {
    let mut options = Options::new().level(if lift_only { Level::LiftOnly } else { Level::Exact });
    if let Some(n) = stop_at {
        options = options.stopping_at(n);
    }
    let graph = read(file)?;
    let names: BTreeSet<&str> = graph.nodes().map(|n| graph.op_name(n)).collect();
    // a functional graph's own operators are in no registry
    for name in names.into_iter().filter(|name| {
        !maquette::ir::functional_ops::is_functional_op(name) && Op::find(name).is_err()
    }) {
        anstream::eprintln!(
            "{BOLD}note{BOLD:#}: there is no operator `{name}` here; it is taken to write to all \
                its tensors"
        );
    }
    let f = rewrite::functionalize(&graph, &library::Facts, &options).map_err(Error::other)?;
    let mut text = format!("{}\n", f.graph);
    if explain {
        f.mutations.iter().for_each(|m| text += &format!("mutation: {m:?}\n"));
        f.outputs.iter().for_each(|o| text += &format!("output: {o:?}\n"));
        for (name, n) in &f.stats.rules {
            let equation = rewrite::rules()
                .find(|(rule, _)| rule == name)
                .map_or("", |(_, equation)| equation);
            text += &format!("{n} x {name}: {equation}\n");
        }
        text +=
            &format!("ended by: {}\n", if lift_only { "lifting alone" } else { f.stats.stopped });
        let plan = rewrite::plan(&f, &library::Facts).map_err(Error::other)?;
        text += &plan.display(&f.graph).to_string();
        text += &format!("the plan copies {} elements at most; ", f.copies_at_most_text(&plan));
        text += &format!("the original program, {} at least\n", f.copies_at_least_text());
        text += &match rewrite::functionalize_in_place(&graph, &library::Facts, &options)
            .map_err(Error::other)?
        {
            ExecutionMode::Buffered(chosen, _) if chosen.graph == f.graph => {
                "execution: by this plan\n".to_owned()
            }
            ExecutionMode::Buffered(chosen, plan) => {
                format!("execution: as lifted:\n{}\n{}", chosen.graph, plan.display(&chosen.graph))
            }
            ExecutionMode::Original(_) | ExecutionMode::Functional(_) => {
                "execution: original program\n".to_owned()
            }
        };
    }
    print(&text)
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // the reader has seen enough
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Lists operators, and what is registered for operators that nothing defines.
pub fn ops(prefix: Option<&str>) -> Result<()> {
    let wanted = |op: &Op| prefix.is_none_or(|p| op.name().starts_with(p));
    let found: Vec<Op> = library::all().into_iter().filter(wanted).collect();
    let unresolved: Vec<Op> = library::unresolved().into_iter().filter(wanted).collect();
    if found.is_empty() && unresolved.is_empty() {
        bail!("no operator's name begins with `{}`", prefix.unwrap_or_default());
    }
    for op in &found {
        anstream::println!("{BOLD}{}{BOLD:#}", op.schema()?);
        anstream::println!("  {DIM}tags: {}{DIM:#}", op.tags());
        for registration in op.registrations() {
            anstream::println!("  {DIM}{registration}{DIM:#}");
        }
    }
    for op in &unresolved {
        anstream::println!("{RED}{} is not defined{RED:#}", op.name());
        for registration in op.registrations() {
            anstream::println!("  {DIM}{registration}{DIM:#}");
        }
    }
    anstream::println!("{} operators", found.len());
    Ok(())
}
