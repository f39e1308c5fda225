//! The architecture's invariants that the source text can show: which crate may depend on which,
//! and where operators may be named. See `ARCHITECTURE.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate, and the crates of the workspace that it may depend on. Dependencies of tests alone
/// are not restricted.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("macros", &[]),
    ("device", &["ir"]),
    ("math", &["ir"]),
    ("kernels", &["device", "ir", "math"]),
    ("test-device", &["device", "ir", "kernels"]),
    ("rewrite", &["ir"]),
    ("ops", &["device", "ir", "kernels"]),
    ("aten", &["ir", "kernels", "ops"]),
    ("invoke", &["ir", "ops"]),
    ("interp", &["invoke", "ir", "ops"]),
    ("lower", &["invoke", "ir", "ops"]),
    ("optim", &["ir", "ops"]),
    ("trace", &["interp", "invoke", "ir", "ops"]),
    ("runtime", &["device", "interp", "invoke", "ir", "kernels", "lower", "ops"]),
    (
        "pipeline",
        &["aten", "interp", "invoke", "ir", "lower", "ops", "rewrite", "runtime", "trace"],
    ),
    ("driver", &["interp", "invoke", "ir", "ops", "pipeline", "rewrite", "runtime", "trace"]),
    ("check", &["aten", "interp", "invoke", "ir", "ops", "pipeline", "runtime", "trace"]),
    ("accuracy", &["ir", "kernels"]),
    ("conform", &["aten", "check", "driver", "ir", "kernels", "ops", "optim", "pipeline", "trace"]),
    (
        "fuzz",
        &[
            "aten",
            "check",
            "conform",
            "driver",
            "interp",
            "invoke",
            "ir",
            "kernels",
            "ops",
            "pipeline",
            "rewrite",
            "runtime",
            "test-device",
            "trace",
        ],
    ),
];

/// Crates that know the operators by name: `aten` defines them, the methods in `ops` call them, and
/// the others test them.
const NAME_OPERATORS: [&str; 5] = ["aten", "ops", "check", "conform", "fuzz"];

/// The one file that names the operators of the functional dialect.
const FUNCTIONAL_OPS: &str = "ir/src/functional_ops.rs";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The libraries of the workspace: every folder under `crates` that others can depend on.
fn libraries() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("src/lib.rs").exists())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// The crates of the workspace that a manifest depends on, outside of tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]")
            && !section.contains("dev-")
            && let Some(rest) = line.strip_prefix("maquette-")
        {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            found.push(rest[..end].to_owned());
        }
    }
    found
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for name in libraries() {
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("`{name}` has no row in the table"));
            continue;
        };
        let manifest = fs::read_to_string(crates().join(&name).join("Cargo.toml")).unwrap();
        for other in dependencies(&manifest) {
            if !allowed.contains(&other.as_str()) {
                wrong.push(format!("`{name}` depends on `{other}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn manifests_are_read() {
    let manifest = "[package]\nname = \"maquette-x\"\n\
        [dependencies]\nmaquette-ir.workspace = true\n\
        maquette-ops = { workspace = true }\nhalf = \"2\"\n\
        [dev-dependencies]\nmaquette-trace = \"1\"";
    assert_eq!(dependencies(manifest), ["ir", "ops"]);
}

/// Whether a file has unit tests. Macros that make tests for other crates have `#[test]` alone.
fn has_unit_tests(file: &Path) -> bool {
    let is_rust = file.extension().is_some_and(|e| e == "rs");
    is_rust && {
        let text = fs::read_to_string(file).unwrap();
        text.lines().any(|line| line.trim() == "#[cfg(test)]")
    }
}

/// Whether a file of a library, which is not a binary's, has unit tests.
fn library_has_unit_tests(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => !path.ends_with("bin") && library_has_unit_tests(&path),
            false => has_unit_tests(&path),
        }
    })
}

/// Cargo compiles a target a second time for its unit tests, unless its manifest says that there
/// are none. Where there are some, it must not say so.
#[test]
fn manifests_say_which_targets_have_unit_tests() {
    let mut folders: Vec<PathBuf> = libraries().iter().map(|name| crates().join(name)).collect();
    folders.push(crates().join(".."));
    for folder in folders {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        // Each section begins with the kind of its target.
        for target in manifest.split("\n[").filter(|section| section.starts_with("[bin]]")) {
            let name = target.lines().find_map(|line| line.strip_prefix("name = \"")).unwrap();
            let file = folder.join(format!("src/bin/{}.rs", name.trim_end_matches('"')));
            let says_none = target.lines().any(|line| line.trim() == "test = false");
            assert!(!(says_none && has_unit_tests(&file)), "{}", file.display());
        }
        let has_library_tests = library_has_unit_tests(&folder.join("src"));
        let says_none = manifest.contains("[lib]\ntest = false\n");
        assert_eq!(says_none, !has_library_tests, "the library in {}", folder.display());
    }
}

/// Every line of code below `src` of a crate, with its file: no comments, no unit tests.
fn code_lines(name: &str) -> Vec<(String, usize, String)> {
    let mut lines = Vec::new();
    let mut folders = vec![crates().join(name).join("src")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !stem.ends_with("tests") {
                let text = fs::read_to_string(&path).unwrap();
                let relative = path.strip_prefix(crates()).unwrap().display().to_string();
                let code = text.lines().enumerate().take_while(|(_, l)| *l != "#[cfg(test)]");
                let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
                lines.extend(code.map(|(i, line)| (relative.clone(), i + 1, line.to_owned())));
            }
        }
    }
    lines
}

/// The files that may name a kind of devices: drivers, and the registry of operators, which has a
/// key for each kind. Others ask the target of a device, or whether the device is the CPU.
const KNOW_KINDS: [&str; 5] = [
    "kernels/src/driver/mod.rs",
    "ops/src/library/key.rs",
    "ops/src/library/registrations.rs",
    "ops/src/library/state.rs",
    "test-device/src/lib.rs",
];

#[test]
fn only_drivers_and_the_registry_tell_kinds_of_devices_apart() {
    let names_kind = |line: &str| {
        line.match_indices("DeviceKind::").any(|(at, found)| {
            let rest = &line[at + found.len()..];
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            // A constant has no lower-case letter.
            name.starts_with(char::is_uppercase) && name.chars().any(char::is_lowercase)
        })
    };
    let above_ir = libraries().into_iter().filter(|name| name != "ir");
    let found = above_ir.flat_map(|name| code_lines(&name)).filter(|(_, _, l)| names_kind(l));
    let mut files: Vec<String> = found.map(|(file, ..)| file).collect();
    files.dedup();
    assert_eq!(files, KNOW_KINDS);
}

/// The lines that contain a text, as `file:line: code`.
fn lines_with<'a>(name: &str, text: &'a str) -> impl Iterator<Item = String> + 'a {
    let lines = code_lines(name).into_iter().filter(move |(_, _, line)| line.contains(text));
    lines.map(|(file, at, line)| format!("{file}:{at}: {}", line.trim()))
}

#[test]
fn operators_are_named_where_they_are_defined() {
    let libraries = libraries();
    let others = libraries.iter().filter(|name| !NAME_OPERATORS.contains(&name.as_str()));
    let named = |name| lines_with(name, "\"aten::").chain(lines_with(name, "\"fast::"));
    let found: Vec<String> = others.flat_map(|name| named(name)).collect();
    assert!(
        found.is_empty(),
        "a fact about operators belongs in `OpFacts`, answered in `ops`:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_functional_dialect_is_named_in_one_file() {
    let found: Vec<String> = libraries()
        .iter()
        .flat_map(|name| lines_with(name, "\"ir::"))
        .filter(|line| !line.starts_with(FUNCTIONAL_OPS))
        .collect();
    assert!(found.is_empty(), "use `ir::functional_ops`:\n{}", found.join("\n"));
}

/// The formatter leaves the bodies of macros, so that it does not see the rows of operators.
#[test]
fn rows_of_operators_have_at_most_100_columns() {
    let long = |(_, _, line): &(String, usize, String)| line.chars().count() > 100;
    let found: Vec<String> = code_lines("aten")
        .into_iter()
        .filter(long)
        .map(|(file, at, line)| format!("{file}:{at}: {}", line.trim()))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
