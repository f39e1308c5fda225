//! The list of what a function may ask, in `docs/design/questions.md`, has every public function of
//! the crate that returns something else than tensors.

use maquette_aten as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files whose public functions no program reaches: private modules, what macros name, and what the
/// crate of the operators needs.
const PRIVATE: [&str; 12] = [
    "internals.rs",
    "library/wrapper.rs",
    "library/same_args.rs",
    "functional_call.rs: in_functional_call",
    "autograd/grad_mode.rs: is_grad_enabled",
    "autograd/history.rs: requires_grad",
    "autograd/layout.rs",
    "autograd/strided.rs",
    "dispatch/cpu_exec.rs",
    "methods/calls.rs",
    "tensor/meta.rs: dims_text",
    "tensor/shape.rs",
];

/// Return types that hold tensors alone, or nothing: such a call is recorded, or has no answer.
const WITHOUT_ANSWER: [&str; 10] = [
    "",
    "Tensor",
    "Result<Tensor>",
    "Result<Vec<Tensor>>",
    "Result<Outputs>",
    "Result<()>",
    "R",
    "T",
    "Self",
    "Meta",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The type of a line that begins an item without indentation; `None` for the types that are not
/// listed.
fn listed_type(line: &str) -> Option<&str> {
    let name = line.strip_prefix("impl ")?.strip_suffix(" {")?;
    ["Tensor", "Storage", "Op", "Meta"].contains(&name).then_some(name)
}

/// The name of a public function that a line begins.
fn function(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.trim_start_matches("const ").trim_start_matches("unsafe ");
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// What a function returns, from the lines that begin with it.
fn returns(lines: &[&str]) -> String {
    let mut signature = String::new();
    for line in lines {
        signature += line.trim();
        signature += " ";
        if line.ends_with('{') || line.ends_with('}') {
            break;
        }
    }
    let returned = signature.rsplit_once("-> ").map_or("", |(_, returned)| returned);
    returned.split([' ', '{']).next().unwrap_or_default().to_owned()
}

/// The public functions of a file that have an answer.
fn questions(file: &str, text: &str, found: &mut BTreeSet<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut of, mut is_free, mut hidden) = (None, true, false);
    for (at, line) in lines.iter().enumerate() {
        match line.trim_start() {
            attribute if attribute.starts_with(['#', '/']) => {
                hidden |= attribute == "#[doc(hidden)]";
                continue;
            }
            _ if *line == "}" => (of, is_free) = (None, true),
            _ if line.starts_with("impl") => (of, is_free) = (listed_type(line), false),
            _ if line.starts_with("pub trait") => (of, is_free) = (None, false),
            _ => {}
        }
        let was_hidden = std::mem::take(&mut hidden);
        let Some(name) = function(line) else { continue };
        let is_private = PRIVATE.contains(&file) || PRIVATE.contains(&&*format!("{file}: {name}"));
        let returned = returns(&lines[at..]);
        if was_hidden || is_private || WITHOUT_ANSWER.contains(&&*returned) {
            continue;
        }
        match (line.starts_with(' '), of) {
            (true, Some(of)) => found.insert(format!("{of}::{name}")),
            (false, _) if is_free => found.insert(name.to_owned()),
            _ => false,
        };
    }
}

#[test]
fn every_question_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut paths, mut found) = (Vec::new(), BTreeSet::new());
    files(&root.join("src"), &mut paths);
    for path in paths {
        let file = path.strip_prefix(root.join("src")).unwrap().to_str().unwrap().to_owned();
        if !file.starts_with("operator/") && !file.starts_with("error/") {
            questions(&file, &std::fs::read_to_string(path).unwrap(), &mut found);
        }
    }
    let page = std::fs::read_to_string(root.join("../../docs/design/questions.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let names = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`'));
    let listed: BTreeSet<String> = names
        .filter(|name| !name.trim_matches([',', ' ']).is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let missing: Vec<&String> = found.difference(&listed).collect();
    assert!(missing.is_empty(), "functions that the page does not list: {missing:?}");
    let gone: Vec<&String> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "rows of the page without a function: {gone:?}");
}
