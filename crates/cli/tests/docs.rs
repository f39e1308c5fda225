//! The commands that the README and the pages show: the command accepts them, and they succeed.

use std::path::Path;
use std::process::Command;

/// The command lines in shell blocks, without `maquette` or `cargo run --release --`.
fn command_lines(page: &str) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let mut in_shell = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_shell = line == "```sh";
        } else if in_shell {
            let command = line.split('#').next().unwrap_or_default().trim_end();
            let args = match command.strip_prefix("maquette ") {
                Some(args) => Some(args),
                None => command.strip_prefix("cargo run --release --").filter(|a| {
                    // `cargo run --release --example …` runs another program
                    a.starts_with(' ')
                }),
            };
            lines.extend(args.map(|a| a.split_whitespace().map(str::to_owned).collect()));
        }
    }
    lines
}

#[test]
fn the_commands_that_pages_show_succeed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [graph, names, table] =
        ["shown.txt", "shown-ops.txt", "shown.md"].map(|f| scratch.join(f).display().to_string());
    let [trace, picture] =
        ["shown.json", "shown.svg"].map(|f| scratch.join(f).display().to_string());
    let program = "graph g(%x: f32[n]) -> ()\n  where n in [1, oo)\n{\n  \
        %y: f32[n] = aten::relu_(%x)\n  return ()\n}";
    std::fs::write(&graph, program).unwrap();
    std::fs::write(&names, "relu.default").unwrap();
    let mut shown = 0;
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|e| e.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|e| e == "md"));
    for page in pages.chain([root.join("README.md")]) {
        for line in command_lines(&std::fs::read_to_string(&page).unwrap()) {
            let mut args: Vec<&str> = line
                .iter()
                .map(|arg| match arg.as_str() {
                    "FILE" => graph.as_str(),
                    "OUT.json" => trace.as_str(),
                    "OUT.svg" => picture.as_str(),
                    // written anew by other means only
                    "docs/operators.md" => table.as_str(),
                    arg => arg,
                })
                .collect();
            // one operator stands for all
            if args.first() == Some(&"conform") {
                args.extend(["--ops", names.as_str()]);
            }
            let out = Command::new(env!("CARGO_BIN_EXE_maquette"))
                .args(&args)
                .env("MAQUETTE_CACHE_DIR", scratch)
                .current_dir(&root)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&out.stderr);
            assert!(
                out.status.success() && !out.stdout.is_empty(),
                "{}: {line:?}: {told}",
                page.display()
            );
            shown += 1;
        }
    }
    assert!(shown >= 10, "{shown}");
}
