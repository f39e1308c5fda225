//! What PyTorch 2.15 refuses around custom operators, traces and exports, and what is said here:
//! one snapshot, to be read from top to bottom.
//!
//! A row is a program and the error it gives; or the function that does not compile and what the
//! compiler says of it, as in `tests/ui`; or why the mistake cannot be made here.

#[path = "error_contract/calls.rs"]
mod calls;
#[path = "error_contract/definition.rs"]
mod definition;
#[path = "error_contract/fakes.rs"]
mod fakes;
#[path = "error_contract/gradients.rs"]
mod gradients;
#[path = "error_contract/opchecks.rs"]
mod opchecks;
#[path = "error_contract/optimizers.rs"]
mod optimizers;
#[path = "error_contract/programs.rs"]
mod programs;
#[path = "error_contract/tags.rs"]
mod tags;

use maquette::prelude::*;
use std::fmt::Write;
use std::path::Path;

/// A mistake, and what comes of it.
pub struct Row {
    title: &'static str,
    shown: Shown,
}

enum Shown {
    Fails { program: &'static str, run: fn() -> Result<()> },
    Refused { file: &'static str, function: &'static str },
    Without(&'static str),
}

/// The function in `tests/ui/<file>.rs` does not compile.
pub fn refused(title: &'static str, file: &'static str, function: &'static str) -> Row {
    Row { title, shown: Shown::Refused { file, function } }
}

/// The mistake cannot be made, or is none.
pub fn without(title: &'static str, why: &'static str) -> Row {
    Row { title, shown: Shown::Without(why) }
}

#[doc(hidden)]
pub fn failing(title: &'static str, program: &'static str, run: fn() -> Result<()>) -> Row {
    Row { title, shown: Shown::Fails { program, run } }
}

/// The program fails.
macro_rules! fails {
    ($title:literal, $program:expr) => {
        crate::failing($title, stringify!($program), || crate::Outcome::outcome($program))
    };
}
pub(crate) use fails;

/// What programs end with.
pub trait Outcome {
    fn outcome(self) -> Result<()>;
}

impl Outcome for Tensor {
    fn outcome(self) -> Result<()> {
        self.ok().map(drop)
    }
}

impl<T, E> Outcome for std::result::Result<T, E>
where
    Error: From<E>,
{
    fn outcome(self) -> Result<()> {
        self.map(drop).map_err(Error::from)
    }
}

/// `[1, 2, 3]`
pub fn x() -> Tensor {
    Tensor::from([1.0f32, 2.0, 3.0])
}

/// A kernel.
pub fn copy(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f32>()?))
}

/// Its fake kernel.
pub fn copy_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

/// A kernel whose result's size depends on data.
pub fn nonzero(x: &Tensor) -> Result<Tensor> {
    let places = x
        .read::<f32>()?
        .iter()
        .enumerate()
        .filter(|(_, v)| **v != 0.0)
        .map(|(i, _)| i as i64)
        .collect::<Vec<_>>();
    Ok(Tensor::from(places))
}

/// Its fake kernel.
pub fn nonzero_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([cx.new_dynamic_size()?], DType::I64))
}

/// A program on one line, without the braces of a block.
fn one_line(program: &str) -> String {
    let text = program.split_whitespace().collect::<Vec<_>>().join(" ");
    let inner = text.strip_prefix("{ ").and_then(|t| t.strip_suffix(" }"));
    inner.unwrap_or(&text).to_owned()
}

/// The attribute and head of a function in a file of `tests/ui`, and what the compiler says of
/// these lines.
fn of_compiler(file: &str, function: &str) -> (String, String) {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui").join(file);
    let source = std::fs::read_to_string(at.with_extension("rs")).unwrap();
    let messages = std::fs::read_to_string(at.with_extension("stderr")).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let head = lines
        .iter()
        .position(|l| l.contains(&format!("fn {function}(")))
        .unwrap_or_else(|| panic!("{file} has no {function}"));
    let shown =
        lines[head - 1..=head].iter().map(|l| l.trim().trim_end_matches(" {")).collect::<Vec<_>>();
    let about = |message: &&str| {
        let place = message
            .split(&format!("ui/{file}.rs:"))
            .nth(1)
            .and_then(|p| p.split(':').next()?.parse::<usize>().ok());
        place.is_some_and(|line| (head..=head + 1).contains(&line))
    };
    // the message without the lines of code, which are shown already
    let text = |message: &str| {
        message
            .lines()
            .take_while(|l| !l.trim_start().starts_with("--> "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let found: Vec<String> = messages.split("\n\n").filter(about).map(text).collect();
    assert!(!found.is_empty(), "{file} says nothing of {function}");
    (shown.join(" "), found.join("\n"))
}

fn section(title: &str, rows: Vec<Row>, number: &mut usize) -> String {
    let mut out = format!("# {title}\n\n");
    for Row { title, shown } in rows {
        *number += 1;
        let (program, text) = match shown {
            Shown::Without(why) => {
                writeln!(out, "## {number}. {title}\n\nno such error: {why}\n").unwrap();
                continue;
            }
            Shown::Refused { file, function } => of_compiler(file, function),
            Shown::Fails { program, run } => {
                let text =
                    run().map_or_else(|e| e.to_string(), |()| panic!("{title} must be an error"));
                (one_line(program), text)
            }
        };
        writeln!(out, "## {number}. {title}\n\n    {program}\n\n{}\n", text.trim_end()).unwrap();
    }
    out
}

#[test]
fn every_row_of_the_error_contract() {
    let mut number = 0;
    let sections = [
        ("Definition", definition::rows()),
        ("Tags", tags::rows()),
        ("Calls", calls::rows()),
        ("Fake kernels and symbols", fakes::rows()),
        ("Mutation, batching", programs::mutation()),
        ("Derivatives", gradients::rows()),
        ("opcheck", opchecks::rows()),
        ("Traces and runs", programs::rows()),
        ("Optimizers", optimizers::rows()),
    ];
    let text: String =
        sections.into_iter().map(|(title, rows)| section(title, rows, &mut number)).collect();
    insta::with_settings!({
        filters => vec![(r"\.rs:\d+", ".rs:LINE")],
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("error_contract", text);
    });
}
