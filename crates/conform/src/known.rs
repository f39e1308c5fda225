//! Differences that are known, each with its reason: the file `known.txt` beside recorded calls.
//!
//! A line is `aten::addbmm 3: the reason`, where the number counts the calls that differ. A line
//! that begins with `#` is a comment. Calls of operators that are missing need no line, where the
//! library has the reason.

use super::file::ConformError;
use super::report::{Failure, OperatorReport, Stage};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the file in a folder of recorded calls.
const NAME: &str = "known.txt";

/// The known differences of a folder.
#[derive(Clone, Debug, Default)]
pub struct KnownDifferences(BTreeMap<String, Known>);

/// The known differences of one operator.
#[derive(Clone, Debug)]
struct Known {
    calls: usize,
    reason: String,
}

impl KnownDifferences {
    /// Reads the file of a folder. A folder without one has no known differences.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not as described above.
    pub fn read(folder: &Path) -> Result<KnownDifferences, ConformError> {
        let path = folder.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(ConformError::Io { verb: "read", path, source }),
        };
        let mut known = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, entry) = parse(line).ok_or_else(|| ConformError::Format {
                path: path.clone(),
                message: format!("line {}: expected `OPERATOR CALLS: REASON`", i + 1),
            })?;
            if known.insert(name.clone(), entry).is_some() {
                let message = format!("line {}: `{name}` has two lines", i + 1);
                return Err(ConformError::Format { path, message });
            }
        }
        Ok(KnownDifferences(known))
    }

    /// Why a call of an operator may fail, if that is known. If more calls fail than are known, the
    /// reason explains none of them.
    pub fn reason(&self, report: &OperatorReport, failure: &Failure) -> Option<&str> {
        if failure.stage == Stage::Missing {
            return maquette_aten::unsupported(&report.name);
        }
        let known = self.0.get(&report.name)?;
        (report.failed() <= known.calls).then_some(known.reason.as_str())
    }

    /// The operators with the number of calls that differ, by name.
    pub fn calls(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(name, known)| (name.as_str(), known.calls))
    }
}

fn parse(line: &str) -> Option<(String, Known)> {
    let (calls, reason) = line.split_once(": ")?;
    let mut words = calls.split_whitespace();
    let name = words.next()?.to_owned();
    let calls: usize = words.next()?.parse().ok()?;
    let reason = reason.trim().to_owned();
    let is_whole = words.next().is_none() && calls > 0 && !reason.is_empty();
    is_whole.then_some((name, Known { calls, reason }))
}
