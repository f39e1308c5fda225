//! What the documents quote is what the code says.

mod snapshot_guide;

use maquette::prelude::*;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A fenced block of a page.
struct Block {
    /// The page's path from the root.
    page: String,
    /// What follows the opening fence.
    language: String,
    text: String,
}

/// The blocks of all pages for readers.
fn blocks() -> Vec<Block> {
    let mut pages = vec!["README.md".to_owned(), "crates/rewrite/filetests/README.md".to_owned()];
    for folder in ["docs", "docs/design"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages.sort();
    let mut blocks = Vec::new();
    for page in pages {
        let markdown = std::fs::read_to_string(root().join(&page)).unwrap();
        let mut open: Option<Block> = None;
        for line in markdown.lines() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    let (page, language) = (page.clone(), language.to_owned());
                    open = Some(Block { page, language, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block is not closed");
    }
    blocks
}

#[test]
fn every_rust_block_is_a_doc_test() {
    let facade = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rust: Vec<Block> = blocks().into_iter().filter(|b| b.language.contains("rust")).collect();
    assert!(rust.len() > 10);
    for block in rust {
        assert_eq!(block.language, "rust", "{}: {}", block.page, block.text);
        assert!(
            facade.contains(&format!("snippets!(\"{}\")", block.page)),
            "{}: no doc tests are made of this page",
            block.page
        );
    }
}

#[test]
fn snippets_show_the_code_alone() {
    for block in blocks().iter().filter(|b| b.language == "rust") {
        let hidden = block.text.lines().find(|l| l.starts_with("# ") || *l == "#");
        assert_eq!(hidden, None, "{}: `snippets!` adds what a doc test needs", block.page);
    }
}

#[test]
fn the_test_in_the_guide_to_snapshots_is_a_test() {
    let mut shown = blocks().into_iter().filter(|b| b.page == "docs/snapshots.md");
    let shown = shown.find(|b| b.language == "rust").unwrap().text;
    let test = include_str!("snapshot_guide.rs");
    assert!(test.ends_with(&format!("\n\n{shown}")), "{shown}");
}

#[test]
fn every_graph_parses_and_is_printed_so() {
    let mut graphs = 0;
    for block in blocks().iter().filter(|b| b.language == "text" && b.text.starts_with("graph ")) {
        let graph: Graph =
            block.text.parse().unwrap_or_else(|e| panic!("{}: {e}\n{}", block.page, block.text));
        graph.verify().unwrap_or_else(|e| panic!("{}: {e}", block.page));
        assert_eq!(graph.to_string(), block.text.trim_end(), "{}", block.page);
        graphs += 1;
    }
    assert!(graphs >= 5, "{graphs}");
}

#[test]
fn the_filetest_that_is_shown_is_one() {
    let mut shown = blocks().into_iter().filter(|b| b.page.ends_with("filetests/README.md"));
    let file = include_str!("../crates/rewrite/filetests/functionalize/view_of_written_input.mqt");
    assert_eq!(shown.next().unwrap().text, file);
}

/// Folders of the workspace's packages, by name.
fn packages() -> Vec<(String, PathBuf)> {
    let mut folders: Vec<PathBuf> =
        ["", "tests", "benches", "examples/minilm"].map(|f| root().join(f)).into();
    folders.extend(std::fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap().path()));
    let name = |folder: &PathBuf| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let (_, package) = manifest.split_once("[package]\nname = \"").unwrap();
        package.split('"').next().unwrap().to_owned()
    };
    folders.into_iter().map(|folder| (name(&folder), folder)).collect()
}

/// Whether a package has a target: `--test cli`, `--bin oracle`.
fn has_target(folder: &Path, kind: &str, name: &str) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let places = match kind {
        "--test" => vec![format!("tests/{name}.rs"), format!("tests/{name}/main.rs")],
        "--bin" => vec![format!("src/bin/{name}.rs")],
        "--example" => ["examples/NAME.rs", "examples/NAME/main.rs", "examples/NAME/Cargo.toml"]
            .map(|p| p.replace("NAME", name))
            .into(),
        _ => vec![],
    };
    let declared = match kind {
        "--features" => format!("\n{name} = ["),
        _ => format!("\nname = \"{name}\""),
    };
    places.iter().any(|p| folder.join(p).exists()) || manifest.contains(&declared)
}

#[test]
fn build_targets_of_cargo_commands_exist() {
    let packages = packages();
    let mut checked = 0;
    for block in blocks().iter().filter(|b| b.language == "sh") {
        // a backslash continues a line, a hash begins a comment, and ` -- ` a program's arguments
        let text = block.text.replace("\\\n", " ");
        for line in text.lines().filter(|l| l.contains("cargo ")) {
            let line = line.split('#').next().unwrap().split(" -- ").next().unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            let after =
                |option: &str| words.iter().position(|w| *w == option).map(|i| words[i + 1]);
            let package = after("-p").unwrap_or("maquette");
            let (_, folder) = packages
                .iter()
                .find(|(name, _)| name == package)
                .unwrap_or_else(|| panic!("{}: there is no package {package}", block.page));
            for kind in ["--test", "--bin", "--example", "--bench", "--features"] {
                let Some(name) = after(kind) else { continue };
                assert!(has_target(folder, kind, name), "{}: {line}", block.page);
                checked += 1;
            }
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn quoted_lines_are_in_the_files_they_are_quoted_from() {
    let page = include_str!("../docs/adding-an-operator.md");
    let mut checked = 0;
    for block in page.split("```diff\n").skip(1).zip(page.split("```diff\n")) {
        let (lines, before) = (block.0.split("```").next().unwrap(), block.1);
        let file = before.trim_end().rsplit('`').nth(1).unwrap();
        let code = std::fs::read_to_string(root().join(file)).unwrap();
        for line in lines.lines() {
            let quoted = line.strip_prefix('+').unwrap();
            assert!(code.lines().any(|l| l == quoted), "{file} has no line\n{quoted}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn rustc_says_of_sizes_what_the_page_quotes() {
    let said = std::fs::read_to_string(root().join("tests/ui/sizes.stderr")).unwrap();
    let said = said.replace("maquette::", "").replace("std::ops::", "");
    let page = include_str!("../docs/branching.md");
    let rows: Vec<&str> = page.lines().filter_map(|l| l.split(" | ").nth(1)).collect();
    let quoted: Vec<&str> = rows.into_iter().filter(|cell| cell.starts_with('E')).collect();
    assert_eq!(quoted.len(), 4);
    for cell in quoted {
        let (code, message) = (&cell[..5], cell.rsplit(": ").next().unwrap());
        assert!(said.contains(&format!("error[{code}]")), "{cell}");
        assert!(said.contains(message), "{cell}\n{said}");
    }
}

#[test]
fn every_test_that_a_row_names_exists() {
    let page = include_str!("../docs/torch-library.md");
    let mut named = 0;
    for (file, test) in page
        .split('`')
        .filter_map(|quoted| quoted.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
    {
        let code =
            std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(code.contains(&format!("fn {test}()")), "{file} has no test {test}");
        named += 1;
    }
    assert!(named > 40, "{named}");
}
