//! The text form of profiles: a version line, then for each operator its schema and one line per
//! recorded call.
//!
//! ```text
//! maquette fake profiles, version 1
//! op mylib::nonzero(Tensor x, Tensor? mask, int n) -> Tensor
//!   f32[_, _], None, _ -> i64[_, _]
//! ```

use super::{FakeProfile, FakeProfiles, Profiled, TensorProfile};
use crate::error::{Error, Result};
use maquette_ir::schema::Schema;
use maquette_ir::{DType, Device, Layout};
use std::fmt::{self, Display};
use std::str::FromStr;

const HEAD: &str = "maquette fake profiles, version ";
const VERSION: &str = "1";

pub(super) fn list(items: &[Profiled]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}

impl Display for TensorProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, vec!["_"; self.rank].join(", "))?;
        if self.device != Device::Cpu {
            write!(f, " device {}", self.device)?;
        }
        if self.layout == Layout::Strided { Ok(()) } else { write!(f, " layout {}", self.layout) }
    }
}

impl Display for Profiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Profiled::Tensor(t) => t.fmt(f),
            Profiled::Absent => f.write_str("None"),
            Profiled::Int => f.write_str("int"),
            Profiled::Any => f.write_str("_"),
            Profiled::Choice(c) => f.write_str(c),
            Profiled::List(l) => write!(f, "[{}]", list(l)),
        }
    }
}

impl Display for FakeProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", list(&self.args), list(&self.outputs))
    }
}

impl Display for FakeProfiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}{VERSION}")?;
        for (schema, profiles) in &self.by_schema {
            writeln!(f, "op {schema}")?;
            profiles.iter().try_for_each(|p| writeln!(f, "  {p}"))?;
        }
        Ok(())
    }
}

/// An error that names the expected form and the text found.
fn expected(what: &str, found: &str) -> Error {
    Error::value(format!("expected {what}, found `{found}`"))
}

impl FromStr for FakeProfiles {
    type Err = Error;

    /// # Errors
    /// The text has another format version or is malformed; the error names the line.
    fn from_str(text: &str) -> Result<FakeProfiles> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, head) = lines.next().unwrap_or_default();
        match head.strip_prefix(HEAD).map(str::trim) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(Error::value(format!(
                    "the profiles have version {other}, but this build reads version {VERSION}"
                )));
            }
            None => return Err(expected(&format!("`{HEAD}{VERSION}` in the first line"), head)),
        }
        let mut all = FakeProfiles::new();
        let mut schema: Option<String> = None;
        for (at, line) in lines {
            let read = match (line.strip_prefix("op "), &schema) {
                (Some(declared), _) => Schema::from_str(declared).map_err(Error::from).map(|s| {
                    all.by_schema.entry(s.to_string()).or_default();
                    schema = Some(s.to_string());
                }),
                (None, Some(s)) => line.parse().map(|profile| {
                    all.by_schema.entry(s.clone()).or_default().insert(profile);
                }),
                (None, None) => Err(expected("`op` and a schema", line)),
            };
            read.map_err(|e| {
                Error::value(format!("line {} of the profiles: {}", at + 1, e.kind()))
            })?;
        }
        Ok(all)
    }
}

impl FromStr for FakeProfile {
    type Err = Error;

    /// # Errors
    /// The text is not a profile.
    fn from_str(text: &str) -> Result<FakeProfile> {
        let (args, outputs) =
            text.split_once("->").ok_or_else(|| expected("arguments, `->` and outputs", text))?;
        Ok(FakeProfile { args: items(args)?, outputs: items(outputs)? })
    }
}

/// Splits the text at commas outside brackets, and parses each part.
fn items(text: &str) -> Result<Vec<Profiled>> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    if parts.iter().all(|p| p.trim().is_empty()) && parts.len() == 1 {
        return Ok(Vec::new());
    }
    parts.into_iter().map(|p| item(p.trim())).collect()
}

fn item(text: &str) -> Result<Profiled> {
    const CHOICES: [&str; 4] = ["dtype(", "device(", "layout(", "memory_format("];
    match text {
        "None" => return Ok(Profiled::Absent),
        "int" => return Ok(Profiled::Int),
        "_" => return Ok(Profiled::Any),
        "true" | "false" => return Ok(Profiled::Choice(text.to_owned())),
        _ if CHOICES.iter().any(|c| text.starts_with(c)) && text.ends_with(')') => {
            return Ok(Profiled::Choice(text.to_owned()));
        }
        _ => {}
    }
    let malformed = || expected("`f32[_, _]`, `[…]`, `int`, `None`, `_` or `dtype(…)`", text);
    if let Some(inner) = text.strip_prefix('[') {
        return Ok(Profiled::List(items(inner.strip_suffix(']').ok_or_else(malformed)?)?));
    }
    let (dtype, rest) = text.split_once('[').ok_or_else(malformed)?;
    let (dims, mut rest) = rest.split_once(']').ok_or_else(malformed)?;
    let dims = items(dims)?;
    if dims.iter().any(|d| *d != Profiled::Any) {
        return Err(malformed());
    }
    let dtype = DType::from_str(dtype).map_err(|_| malformed())?;
    let mut profile =
        TensorProfile { rank: dims.len(), dtype, device: Device::Cpu, layout: Layout::Strided };
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        rest = after;
        word
    };
    loop {
        match word() {
            "" => return Ok(Profiled::Tensor(profile)),
            "device" => profile.device = Device::from_str(word()).map_err(|_| malformed())?,
            "layout" => profile.layout = Layout::from_str(word()).map_err(|_| malformed())?,
            _ => return Err(malformed()),
        }
    }
}
