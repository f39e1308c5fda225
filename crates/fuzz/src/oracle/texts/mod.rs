//! Fuzzing of graph text: no text makes the library panic, and what is accepted runs as it says.
//!
//! A seed is mutated and goes through every stage that text can reach: parsing, verification,
//! [`check_calls`], functionalization, buffer plans. What passes runs on random inputs in every
//! execution mode, and is compared bit for bit with the run of the graph itself. A failure is a
//! panic, an internal error, a functional graph that is not valid, or a difference.

mod inputs;
mod mutate;

use super::check::is_internal;
use super::outcome::{Comparison, Outcome};
use super::statements::ASKS;
use inputs::Inputs;
use maquette_check::Rng;
use maquette_check::values::catch_panics;
use maquette_interp::{ExecutionMode, Interpreter, check_calls};
use maquette_ir::functional_ops::is_functional_op;
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{AccessError, Error, ErrorKind, Result, RunError};
use maquette_rewrite::{Options, functionalize, plan};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Texts to mutate, and the operators that they call.
#[derive(Clone, Debug, Default)]
pub struct Seeds {
    texts: Vec<String>,
    operators: Vec<String>,
}

/// How far the texts of a fuzzing run came. Displays as a summary line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextReport {
    /// The number of texts.
    pub texts: u64,
    /// How many parsed.
    pub parsed: u64,
    /// How many of these verified.
    pub verified: u64,
    /// How many of these had calls that the operators accept.
    pub checked: u64,
    /// How many verified ones had a functional form.
    pub functionalized: u64,
    /// How many checked ones ran.
    pub ran: u64,
    /// The failures.
    pub failures: Vec<TextFailure>,
}

/// A text at which the library fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFailure {
    /// The number of the text.
    pub index: u64,
    /// What fails, and how.
    pub what: String,
    /// The text, reduced.
    pub text: String,
}

impl fmt::Display for TextReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} texts, {} parsed, {} verified, {} checked, {} functionalized, {} ran, {} failures",
            self.texts,
            self.parsed,
            self.verified,
            self.checked,
            self.functionalized,
            self.ran,
            self.failures.len()
        )
    }
}

impl Seeds {
    /// The graphs in all files of these folders, and of the folders in them.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn read(folders: &[impl AsRef<Path>]) -> std::io::Result<Seeds> {
        let mut seeds = Seeds::default();
        folders.iter().try_for_each(|folder| seeds.read_folder(folder.as_ref()))?;
        let operators: BTreeSet<String> = seeds
            .texts
            .iter()
            .filter_map(|text| text.parse::<Graph>().ok())
            .flat_map(|g| g.nodes().map(|n| g.op_name(n).to_owned()).collect::<Vec<_>>())
            .collect();
        seeds.operators = operators.into_iter().collect();
        Ok(seeds)
    }

    fn read_folder(&mut self, folder: &Path) -> std::io::Result<()> {
        let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
        // The order of a folder's entries is the file system's.
        let paths = entries.collect::<std::io::Result<BTreeSet<_>>>()?;
        for path in paths {
            if path.is_dir() {
                self.read_folder(&path)?;
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                self.add(&text);
            }
        }
        Ok(())
    }

    /// Adds the graphs in a text.
    pub fn add(&mut self, text: &str) {
        let mut graph: Option<String> = None;
        for line in text.lines() {
            if line.starts_with("graph ") {
                graph = Some(String::new());
            }
            let Some(lines) = &mut graph else { continue };
            lines.push_str(line);
            lines.push('\n');
            if line == "}" {
                self.texts.extend(graph.take().filter(|text| text.parse::<Graph>().is_ok()));
            }
        }
    }

    /// The graphs.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// The number of graphs.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The mutated text with a number. Equal seeds and numbers give equal texts.
    pub fn mutated(&self, seed: u64, index: u64) -> String {
        let mut rng = Rng::new(seed, index);
        let text = rng.one(&self.texts).unwrap_or_default();
        mutate::mutate(&mut rng, &text, &self.operators)
    }

    /// Checks one mutated text, and adds to the report how far it came. Calls `failed` for a
    /// failure.
    pub fn check(
        &self,
        seed: u64,
        index: u64,
        report: &mut TextReport,
        failed: &dyn Fn(&TextFailure),
    ) {
        let text = self.mutated(seed, index);
        report.texts += 1;
        let checked = |text: &str, report: &mut TextReport| {
            let rng = &mut Rng::new(seed, !index);
            catch_panics("a stage", || check_text(text, rng, report)).map_err(|e| e.to_string())
        };
        let Err(what) = checked(&text, report) else { return };
        let fails = |text: &str| checked(text, &mut TextReport::default()).is_err();
        let failure = TextFailure { index, what, text: reduce(text, &fails) };
        failed(&failure);
        report.failures.push(failure);
    }
}

/// Removes lines, one after another, as long as the text fails.
fn reduce(text: String, fails: &dyn Fn(&str) -> bool) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut at = lines.len();
    while at > 0 {
        at -= 1;
        let mut shorter = lines.clone();
        shorter.remove(at);
        if fails(&(shorter.join("\n") + "\n")) {
            lines = shorter;
        }
    }
    lines.join("\n") + "\n"
}

/// Whether a run is refused because of a view of elements that its tensor does not have. Eager
/// execution allows it as long as the storage has them.
fn exceeds_its_tensor(graph: &Graph, e: &Error) -> bool {
    let strided = graph.nodes().any(|n| graph.op_name(n).starts_with("aten::as_strided"));
    let refused = match e.kind() {
        ErrorKind::Run(RunError::Assertion { message: Some(message), .. }) => {
            message == "a view must not exceed the elements of its tensor"
        }
        ErrorKind::Access(AccessError::OutOfBounds { .. }) => true,
        _ => false,
    };
    strided && refused
}

/// Takes a text through every stage.
///
/// # Errors
/// A stage fails in a way that no text excuses.
fn check_text(text: &str, rng: &mut Rng, report: &mut TextReport) -> Result<()> {
    let Ok(graph) = text.parse::<Graph>() else { return Ok(()) };
    report.parsed += 1;
    let printed = graph.to_string();
    if printed.parse::<Graph>().as_ref() != Ok(&graph) {
        return Err(Error::value(format!("the text of the graph is another graph's:\n{printed}")));
    }
    if graph.verify().is_err() {
        return Ok(());
    }
    report.verified += 1;
    let checked = check_calls(&graph);
    report.checked += u64::from(checked.is_ok());
    let functional = match functionalize(&graph, &Facts, &Options::new()).map_err(Error::other) {
        Ok(functional) => functional,
        Err(e) if is_internal(&e) => return Err(e),
        Err(_) => return Ok(()),
    };
    report.functionalized += 1;
    functional.graph.verify()?;
    if functional.stats.rounds == 0 && !functional.stats.stopped.is_empty() {
        return Err(Error::value(format!("rewriting failed: {}", functional.stats.stopped)));
    }
    let plan = match plan(&functional, &Facts).map_err(Error::other) {
        Ok(plan) => plan,
        Err(e) if is_internal(&e) => return Err(e),
        Err(_) => return Ok(()),
    };
    if checked.is_err() {
        return Ok(());
    }
    // That the regions of a functional graph do not overlap is a promise of its maker. A kernel that
    // asks for the state of a storage gets other storages from a functional program.
    if graph.nodes().map(|n| graph.op_name(n)).any(|op| is_functional_op(op) || op == ASKS) {
        return Ok(());
    }
    let Some(inputs) = Inputs::choose(&graph, rng) else { return Ok(()) };
    let run = |mode: ExecutionMode<'_>| -> Result<Outcome> {
        let (run_inputs, values) = inputs.make(&graph)?;
        Outcome::of(&run_inputs, |_| Ok(Interpreter::new(mode).run(&values)?.results.into()))
    };
    let Ok(expected) = run(ExecutionMode::from(&graph)) else {
        // what eager refuses may run, or be refused for another reason, but nothing may panic
        let _ = run(ExecutionMode::from(&functional));
        let _ = run(ExecutionMode::from((&functional, &plan)));
        return Ok(());
    };
    report.ran += 1;
    let modes = [
        ("functional", ExecutionMode::from(&functional)),
        ("planned", ExecutionMode::from((&functional, &plan))),
    ];
    for (name, mode) in modes {
        let found = match run(mode) {
            Ok(found) => found,
            Err(e) if exceeds_its_tensor(&graph, &e) => continue,
            Err(e) => {
                return Err(Error::value(format!("{name} fails, but eager runs: {e}")));
            }
        };
        expected
            .difference(&found, Comparison::ALL)
            .map_err(|what| Error::value(format!("{name}: {what}")))?;
    }
    Ok(())
}
