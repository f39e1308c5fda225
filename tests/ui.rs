//! What the macros refuse, and with which words at which tokens. The programs of `ui/` do not
//! compile, and the compiler's text about `NAME.rs` is `NAME.stderr`.
//!
//! The compiler uses the libraries that cargo has just built for this test. So no dependency is
//! compiled a second time. `MAQUETTE_BLESS=1 cargo test -p maquette-tests --test ui` writes the
//! texts anew.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Set to `1`, the compiler's texts are written instead of compared.
const BLESS: &str = "MAQUETTE_BLESS";

/// The folder of the programs, below the workspace.
const PROGRAMS: &str = "tests/ui/";

/// The facade as cargo built it for this test.
struct Facade {
    library: PathBuf,
    /// The folders that have the libraries it depends on.
    dependencies: Vec<PathBuf>,
}

impl Facade {
    /// Finds the facade beside this test.
    ///
    /// Cargo keeps libraries with other features, and of other compilers, in the same folder. Cargo
    /// has just brought this test's own up to date. So the newest library that has the feature
    /// `check`, and that the compiler accepts, is of today's code.
    fn find() -> Facade {
        let test = std::env::current_exe().unwrap();
        let deps = test.parent().unwrap();
        // with `--target`, cargo builds the macros for the host, in another folder
        let profile = deps.parent().unwrap().file_name().unwrap();
        let of_host = deps.join("../../..").join(profile).join("deps");
        let dependencies = vec![deps.to_owned(), of_host];
        let mut libraries: Vec<PathBuf> = std::fs::read_dir(deps)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("libmaquette-") && name.ends_with(".rlib")
            })
            .collect();
        libraries.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
        let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui-probe.rs");
        std::fs::write(&probe, "pub use maquette::check;\nfn main() {}\n").unwrap();
        let mut refused = String::new();
        for library in libraries.into_iter().rev() {
            let facade = Facade { library, dependencies: dependencies.clone() };
            let out = facade.compile(&probe);
            if out.status.success() {
                return facade;
            }
            let why = String::from_utf8_lossy(&out.stderr);
            write!(refused, "{}:\n{why}", facade.library.display()).unwrap();
        }
        panic!("no library of the facade in {} can be used\n{refused}", deps.display());
    }

    /// Compiles a program as far as its types. The path is from the workspace's root, as are those
    /// that the compiler prints.
    fn compile(&self, program: &Path) -> Output {
        let name = program.file_stem().unwrap().to_string_lossy();
        let metadata = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ui-{name}.rmeta"));
        let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        for folder in &self.dependencies {
            compiler.arg("-L").arg(with_path("dependency=", folder));
        }
        compiler
            .current_dir(workspace())
            // some advice is for users of cargo
            .env("CARGO_CRATE_NAME", "program")
            .args(["--edition=2024", "--crate-type=bin", "--crate-name=program"])
            // the compiler would write types longer than a line into a file
            .args(["--emit=metadata", "--diagnostic-width=1000"])
            .arg("--extern")
            .arg(with_path("maquette=", &self.library))
            .arg("-o")
            .arg(metadata)
            .arg(program)
            .output()
            .unwrap_or_else(|e| panic!("cannot run the compiler: {e}"))
    }
}

/// An option of the compiler, as `maquette=PATH`.
fn with_path(option: &str, path: &Path) -> OsString {
    let mut option = OsString::from(option);
    option.push(path);
    option
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The compiler's text without the parts that are not about the program: lines and columns of other
/// files, how many other candidates there are, and the summary.
fn normalized(text: &str) -> String {
    let text = text.split("error: aborting due to").next().unwrap_or_default();
    let mut diagnostics: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        match diagnostics.last_mut() {
            Some(last) if !line.starts_with("error") && !line.starts_with("warning") => {
                last.push(line);
            }
            _ => diagnostics.push(vec![line]),
        }
    }
    let text: String = diagnostics.iter().map(|lines| diagnostic(lines)).collect();
    format!("{}\n", text.trim_end())
}

/// One diagnostic, normalized.
fn diagnostic(lines: &[&str]) -> String {
    // the column of the bar between line numbers and code, of the whole diagnostic
    let mut bar = 0;
    let mut digits = 1;
    let mut elsewhere = false;
    let mut normalized = Vec::with_capacity(lines.len());
    for &line in lines {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let number = code.bytes().take_while(u8::is_ascii_digit).count();
        // a second file of the same message comes behind `:::`
        if let Some((arrow @ ("-->" | ":::"), path)) = code.split_once(' ') {
            if arrow == "-->" {
                bar = indent;
            }
            elsewhere = !path.starts_with(PROGRAMS);
            let shown = match path.strip_prefix("tests/") {
                Some(program) if !elsewhere => program,
                _ => path.split(':').next().unwrap_or_default(),
            };
            normalized.push(format!("{:indent$}{arrow} {shown}", ""));
        } else if number > 0 && bar > 0 && elsewhere {
            normalized.push(format!("{:1$}{2}", "", indent + number, &code[number..]));
        } else if code.starts_with("and ") && code.ends_with(" others") {
            normalized.push(format!("{:indent$}and $N others", ""));
        } else {
            if number > 0 && bar > 0 {
                digits = digits.max(number);
            }
            normalized.push(line.to_owned());
        }
    }
    // the numbers that are gone made the column wider
    let excess = " ".repeat(bar.saturating_sub(digits));
    let mut text = String::new();
    let mut in_code = false;
    for line in &normalized {
        in_code |= line.trim_start().starts_with("--> ");
        let line = if in_code { line.strip_prefix(&excess).unwrap_or(line) } else { line };
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// Compiles a program and compares. `Err` says what differs.
fn check(facade: &Facade, name: &str, bless: bool) -> Result<(), String> {
    let program = Path::new(PROGRAMS).join(name);
    let expected = workspace().join(program.with_extension("stderr"));
    let out = facade.compile(&program);
    if out.status.success() {
        return Err(format!("{PROGRAMS}{name} compiles, and should be refused\n"));
    }
    let found = normalized(&String::from_utf8_lossy(&out.stderr));
    if bless {
        std::fs::write(expected, found).unwrap();
        return Ok(());
    }
    let expected = std::fs::read_to_string(expected).unwrap_or_default();
    if expected == found {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&expected, &found);
    let diff = diff.unified_diff().context_radius(6).header("expected", "found").to_string();
    Err(format!(
        "{PROGRAMS}{name} is refused with another text\n{diff}to take it: {BLESS}=1 cargo test -p \
            maquette-tests --test ui\n"
    ))
}

#[test]
fn refusals() {
    let bless = std::env::var(BLESS).is_ok_and(|v| v == "1");
    let mut programs: Vec<String> = std::fs::read_dir(workspace().join(PROGRAMS))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".rs"))
        .collect();
    programs.sort();
    assert!(!programs.is_empty());
    let facade = Facade::find();
    let at_once = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut failures = String::new();
    for some in programs.chunks(at_once) {
        std::thread::scope(|scope| {
            let facade = &facade;
            let running: Vec<_> =
                some.iter().map(|name| scope.spawn(move || check(facade, name, bless))).collect();
            for done in running {
                failures.push_str(&done.join().unwrap().err().unwrap_or_default());
            }
        });
    }
    assert!(failures.is_empty(), "\n{failures}");
}
