//! `snippets!`: the pages of the documentation as doc tests. Their snippets show the code alone,
//! and this module adds what a test needs besides.

use proc_macro2::TokenStream;
use quote::quote;
use std::path::Path;
use syn::{Error, LitStr, Result, parse2};

/// What a snippet returns that uses `?`.
const OK: &str = "# Ok::<(), Box<dyn std::error::Error>>(())\n";

/// Names that are there with the feature `check` alone.
const OF_CHECK: [&str; 3] = ["opcheck", "gradcheck", "assert_graph_snapshot"];

/// Makes the lines of a program the same in a test and on a page.
const WITHOUT_LINES: &str = "\
# let without_lines = |text: &str| -> String {
#     let word = |w: &str| if w.contains(\".rs:\") { \"LINE\".to_owned() } else { w.to_owned() };
#     let line = |l: &str| l.split(' ').map(word).collect::<Vec<_>>().join(\" \");
#     text.trim_end().lines().map(line).collect::<Vec<_>>().join(\"\\n\")
# };
";

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let path: LitStr = parse2(input)?;
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let page = std::fs::read_to_string(Path::new(&root).join(path.value()))
        .map_err(|e| Error::new(path.span(), format!("cannot read {}: {e}", path.value())))?;
    let tests = tests(&page);
    Ok(quote!(#tests))
}

/// A fenced block, or the text between two.
struct Part<'a> {
    /// What follows the opening fence; `None` between blocks.
    language: Option<&'a str>,
    lines: Vec<&'a str>,
}

fn parts(page: &str) -> Vec<Part<'_>> {
    let mut parts = vec![Part { language: None, lines: Vec::new() }];
    for line in page.lines() {
        let is_inside = parts.last().is_some_and(|part| part.language.is_some());
        match line.strip_prefix("```") {
            Some(language) => {
                let language = (!is_inside).then_some(language);
                parts.push(Part { language, lines: Vec::new() });
            }
            None => parts.last_mut().into_iter().for_each(|part| part.lines.push(line)),
        }
    }
    parts
}

/// The page with complete snippets.
pub(crate) fn tests(page: &str) -> String {
    let parts = parts(page);
    let mut out = String::new();
    for (i, part) in parts.iter().enumerate() {
        match part.language {
            Some("rust") => {
                // the text between follows a block, and then the next block
                let next = parts.get(i + 2).filter(|next| next.language == Some("text"));
                out += &snippet(&part.lines, next.map(|next| next.lines.as_slice()));
            }
            Some(language) => {
                out += &format!("```{language}\n{}\n```\n", part.lines.join("\n"));
            }
            None => out += &format!("{}\n", part.lines.join("\n")),
        }
    }
    out
}

/// A snippet as a test. If it prints one value, and a block of text follows, the two are compared.
fn snippet(lines: &[&str], printed: Option<&[&str]>) -> String {
    if lines.iter().any(|line| line.starts_with("fn main(")) {
        return format!("```rust\n{}\n```\n", lines.join("\n"));
    }
    let values: Vec<&str> = lines.iter().filter_map(|line| value_of(line)).collect();
    let mut body = String::new();
    for line in lines {
        body += &format!("{line}\n");
        if let ([value], Some(printed), Some(_)) = (values.as_slice(), printed, value_of(line)) {
            let printed: Vec<String> =
                printed.iter().map(|line| format!("#     {line:?},\n")).collect();
            body += &format!(
                "{WITHOUT_LINES}# let page = [\n{}# ].join(\"\\n\");\n\
                 # assert_eq!(without_lines(&format!({value})), without_lines(&page));\n",
                printed.concat()
            );
        }
    }
    if OF_CHECK.iter().any(|name| body.contains(name)) {
        return format!(
            "```rust\n# #[cfg(feature = \"check\")]\n\
             # fn main() -> Result<(), Box<dyn std::error::Error>> {{\n{body}# Ok(())\n# }}\n\
             # #[cfg(not(feature = \"check\"))]\n# fn main() {{}}\n```\n"
        );
    }
    format!("```rust\n{body}{OK}```\n")
}

/// The arguments of a `println!` that is a line of its own.
fn value_of(line: &str) -> Option<&str> {
    line.strip_prefix("println!(")?.strip_suffix(");")
}
