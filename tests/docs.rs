//! What the documents quote is what the code says.

use std::path::Path;

#[test]
fn quoted_lines_are_in_the_files_they_are_quoted_from() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = include_str!("../docs/adding-an-operator.md");
    let mut checked = 0;
    for block in page.split("```diff\n").skip(1).zip(page.split("```diff\n")) {
        let (lines, before) = (block.0.split("```").next().unwrap(), block.1);
        let file = before.trim_end().rsplit('`').nth(1).unwrap();
        let code = std::fs::read_to_string(root.join(file)).unwrap();
        for line in lines.lines() {
            let quoted = line.strip_prefix('+').unwrap();
            assert!(code.lines().any(|l| l == quoted), "{file} has no line\n{quoted}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn every_test_that_a_row_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = include_str!("../docs/torch-library.md");
    let mut named = 0;
    for (file, test) in page
        .split('`')
        .filter_map(|quoted| quoted.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
    {
        let code =
            std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(code.contains(&format!("fn {test}()")), "{file} has no test {test}");
        named += 1;
    }
    assert!(named > 40, "{named}");
}
